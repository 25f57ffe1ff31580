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
        writers = [n for n in walk.model.nodes if n.buffer == copy.source and n is not copy]
        before = [n for n in writers if n.index < copy.index]
        found, right = seen.data.get(copy.buffer), want[copy.buffer]
        crossed = bool(before) and before[-1].stream != copy.stream
        if found == right:
            if crossed:
                walk.say("MEM-DEV-1", Verdict.CONFORMANT, event=event)
            continue
        old = found in {walk.model.token(n) for n in before}
        if (old and not crossed) or found in {walk.model.token(n) for n in writers if n.index > copy.index}:
            wrong.add("STM-FIFO-1")  # the copy read its source out of its stream's order
        elif old:
            wrong.add("MEM-DEV-1")
        else:
            wrong.add("MEM-VIS-1")
    if any(seen.data.get(buffer) != value for buffer, value in want.items()) and not wrong:
        wrong.add("MEM-VIS-1")
    for clause in sorted(wrong):
        walk.say(clause, Verdict.NON_CONFORMANT, event=event)
    if not wrong:
        walk.say("MEM-VIS-1", Verdict.CONFORMANT, event=event)
