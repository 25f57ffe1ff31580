"""What the host finds in its buffers once an event is complete: the right token, an old one, or a later one.

Source: docs/rules.md 2, "Data".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reports.records import Verdict

if TYPE_CHECKING:
    from conformance.execution import Seen
    from conformance.judgement.walk import Walk
    from conformance.model import Node


def judge_data(walk: Walk, event: str, seen: Seen, record: Node, want: dict[str, int]) -> None:
    """Say which clause the data that was found speaks of: a wrong value shows where its copy read too soon or late."""
    wrong = set()
    for copy in walk.model.closure(record):
        if copy.kind != "copy" or copy.buffer not in want or not isinstance(copy.source, str):
            continue
        found, links = seen.data.get(copy.buffer), _links(walk, copy)
        if found == want[copy.buffer]:
            if any(_crossed(walk, link) for link in links):
                walk.say("MEM-DEV-1", Verdict.CONFORMANT, event=event)
            continue
        wrong.add(next(filter(None, (_misread(walk, link, found) for link in links)), "MEM-VIS-1"))
    if any(seen.data.get(buffer) != value for buffer, value in want.items()) and not wrong:
        wrong.add("MEM-VIS-1")
    for clause in sorted(wrong):
        walk.say(clause, Verdict.NON_CONFORMANT, event=event)
    if not wrong:
        walk.say("MEM-VIS-1", Verdict.CONFORMANT, event=event)


def _links(walk: Walk, copy: Node) -> list[Node]:
    """A copy, and the copies that its value went through before it, the last one first."""
    links = [copy]
    while (before := _writers(walk, links[-1])[0]) and before[-1].kind == "copy":
        links.append(before[-1])
    return links


def _writers(walk: Walk, copy: Node) -> tuple[list[Node], list[Node]]:
    """What writes a copy's source, issued before it and after it."""
    writers = [n for n in walk.model.nodes if n.buffer == copy.source and n is not copy]
    return [n for n in writers if n.index < copy.index], [n for n in writers if n.index > copy.index]


def _crossed(walk: Walk, copy: Node) -> bool:
    """Was a copy's source written by another stream?"""
    before = _writers(walk, copy)[0]
    return bool(before) and before[-1].stream != copy.stream


def _misread(walk: Walk, copy: Node, found: int | None) -> str:
    """The clause that a copy broke if it is where the found value comes from, else nothing."""
    before, after = _writers(walk, copy)
    old = found in {walk.model.token(n) for n in before}
    if (old and not _crossed(walk, copy)) or found in {walk.model.token(n) for n in after}:
        return "STM-FIFO-1"  # it read its source out of its stream's order
    return "MEM-DEV-1" if old else ""
