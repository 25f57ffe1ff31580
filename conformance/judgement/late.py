"""A MUST event that was not seen by its deadline: which control puts it on time, and so which clause failed.

Source: docs/rules.md 2, "Late": the ladder of controls, in its order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from conformance.execution import Look, Observe
from conformance.judgement.statements import Late
from conformance.judgement.walk import Walk
from conformance.model import Node, crosses
from probes.program import Destroy, Open, Program
from probes.transform import fresh_name, with_other_event, without
from reports.records import Kind, Verdict

#: A control that is late once may have met a hiccup of the host; late again, it is late.
CONTROL_TRIES: Final = 2


def judge_late(walk: Walk, event: str, record: Node) -> None:
    """Say which clause a late event breaks, if a control shows it; else why nothing can be said."""
    own = {n.step for n in walk.behind(record)}
    if walk.controls.once_only:
        clause = "EVT-LIVE-1" if not own else "EVT-INDEP-1" if walk.by_query else "EVT-INDEP-3"
        walk.say(clause, Verdict.INCONCLUSIVE, "not-repeated", event=event)
        return
    if walk.controls.after_live and any(known == "EVT-LIVE-1" for _, known, _ in walk.late.values()):
        # Each event of such a device is late, and every control with it: one of them a program is enough.
        return
    rung, control, shown = None, None, None
    for name, dropped in _ladder(walk, record, own):
        candidate = without(walk.program, dropped)
        if (look := _shown(walk, candidate, event)) is not None:
            rung, control, shown = name, candidate, look
            break
    want = walk.model.tokens(record)
    awaited = {
        buffer: value
        for wait in walk.waits(record)
        if wait.bound is not None
        for buffer, value in walk.model.tokens(wait.bound).items()
    }
    witnessed = walk.there(walk.look, want)
    kind = Kind.PUBLICATION if witnessed else Kind.EXECUTION
    if not want or (shown is not None and not witnessed and not walk.there(shown, want)):
        walk.say("EVT-INDEP-1" if walk.by_query else "EVT-INDEP-3", Verdict.INCONCLUSIVE, "no-witness", event=event)
        return
    clause = _clause(walk, event, record, rung, kind, awaited)
    late = _describe(walk, event, rung, control, shown, want if witnessed else None)
    if rung is None and own:
        walk.say("EVT-INDEP-1" if walk.by_query else "EVT-INDEP-3", Verdict.INCONCLUSIVE, "control-late", event=event)
    if rung is None and not witnessed:
        walk.say("EVT-LIVE-1", Verdict.INCONCLUSIVE, "not-executed", event=event)
        return
    walk.late[event] = (record, clause, late)
    walk.say(clause, Verdict.NON_CONFORMANT, kind.value, kind=kind, event=event, late=late)


def _ladder(walk: Walk, record: Node, own: set[int]) -> Iterator[tuple[str, set[int]]]:
    """The controls in their order: a name, and the steps to leave out. One that removes nothing is skipped."""
    model = walk.model
    waits = walk.waits(record)
    captured = own | {
        n.step
        for wait in waits
        if wait.bound is not None
        for n in walk.behind(wait.bound)
        if not model.captures(record, n)
    }
    rungs = {
        "own": own,
        "captured": captured if captured != own else set(),
        "void": {wait.step for wait in waits if wait.bound is None},
        "self": {wait.step for wait in waits if wait.bound is not None and wait.bound.stream == wait.stream},
        "across": {wait.step for wait in waits if crosses(wait)},
        "destroy": {i for i, s in enumerate(walk.program.steps[: walk.look.at]) if isinstance(s, Destroy)},
        "others": captured | {n.step for n in model.nodes[record.index :] if n.kind == "wait"},
    }
    for name, dropped in rungs.items():
        if dropped:
            yield name, dropped


def _shown(walk: Walk, control: Program, event: str, observe: Observe | None = None) -> Look | None:
    """The control's look at the same host point, if the event is seen there."""
    # Once more only where that may matter: a control that was late twice before is taken at its word.
    for _ in range(CONTROL_TRIES if walk.controls.doubtful(control) else 1):
        looks = walk.controls.run(control, observe or walk.observe, walk.index)
        look = looks[walk.index] if walk.index < len(looks) else None
        seen = look.events.get(event) if look is not None else None
        if seen is not None and seen.ever:
            return look
    return None


def _clause(walk: Walk, event: str, record: Node, rung: str | None, kind: Kind, awaited: dict[str, int]) -> str:
    held_before = rung == "captured" and not walk.there(walk.look, awaited)  # what it waits for is itself missing
    if rung in ("own", "others") or held_before:
        if kind is Kind.EXECUTION:
            return "EVT-WAIT-4"
        if walk.by_query or _shown(walk, walk.program, event, "query") is None:
            return "EVT-INDEP-1"
        return "EVT-INDEP-3"
    if rung in ("captured", "void"):
        # Does the later record of the awaited event matter? Give it to another event and see.
        waits = walk.waits(record)
        again = {
            n.step
            for wait in waits
            for n in walk.model.nodes[wait.index + 1 :]
            if n.kind == "record" and n.event == wait.event
        }
        other = fresh_name(walk.program, f"{event}_other")
        # Where the late event is itself one of those records, it goes by its new name.
        judged = other if record.step in again else event
        bound = bool(again) and _shown(walk, with_other_event(walk.program, again, other), judged) is not None
        if rung == "captured":
            return "EVT-REREC-2" if bound else "EVT-INDEP-2"
        return "EVT-WAIT-2" if bound else "EVT-NEVER-2"
    return {"self": "EVT-WAIT-5", "across": "EVT-WAIT-6", "destroy": "EVT-DESTROY-1"}.get(rung or "", "EVT-LIVE-1")


def _describe(
    walk: Walk, event: str, rung: str | None, control: Program | None, shown: Look | None, want: dict[str, int] | None
) -> Late:
    published_by, published_after = None, None
    for look in walk.looks[walk.index + 1 :]:
        seen = look.events.get(event)
        if seen is not None and seen.ever:
            published_by = look.call.step if look.call is not None else None
            published_after = seen.after
            break
    slowest = 0.0
    if shown is not None:
        slowest = max((s.after or 0.0 for s in shown.events.values() if s.ever), default=0.0)
    return Late(
        event=event,
        look=walk.index,
        rung=rung,
        control=control,
        control_seconds=slowest,
        witness_seconds=None if want is None else max((walk.look.arrived.get(b, 0.0) for b in want), default=0.0),
        published_by=published_by,
        published_after=published_after,
        hold=walk.look.seconds,
    )


def captured_later_work(walk: Walk) -> None:
    """Host and device waiters late by the same later gate, with no wait behind the record: the record took it in."""
    for record, clause, late in walk.late.values():
        if clause != "EVT-INDEP-1" or any(n.kind == "wait" for n in walk.behind(record)):
            continue
        for waiter, other_clause, other in walk.late.values():
            same = late.published_by == other.published_by and isinstance(late.published_by, Open)
            if other_clause == "EVT-INDEP-2" and same and walk.model.captures(waiter, record):
                walk.say(
                    "EVT-REC-1",
                    Verdict.NON_CONFORMANT,
                    Kind.PUBLICATION.value,
                    kind=Kind.PUBLICATION,
                    event=late.event,
                    late=late,
                )
