"""The judgement of one repetition of one program: a walk over its looks beside the model.

Source: docs/rules.md 2. Late events go on to `late`, things that must not happen to `tokens`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from conformance.execution import Call, Look, Observe, Outcome, Seen
from conformance.judgement.data import judge_data
from conformance.judgement.functions import judge_functions
from conformance.judgement.late import captured_later_work, judge_late
from conformance.judgement.statements import CONCURRENCY, Statement
from conformance.judgement.times import judge_time
from conformance.judgement.tokens import judge_tokens, prioritised
from conformance.judgement.walk import Controls, Walk
from conformance.model import Node, Obligation
from probes.program import (
    BLOCKING_STREAM,
    DEFAULT_STREAM,
    Destroy,
    Elapsed,
    Program,
    QueryStream,
    Record,
    Sync,
    SyncStream,
    Wait,
    WaitStream,
    is_blocking_stream,
)
from probes.transform import with_plain_streams, with_streams, without
from reports.records import Verdict

#: What streams of different priorities must keep as streams of one do.
ORDERING: Final = ("STM-FIFO-1", "EVT-WAIT-1", "STM-WSTREAM-1")

#: A host call that must return at once, and the clause that says so.
BLOCKED: Final = {
    Wait: "EVT-WAIT-3",
    WaitStream: "EVT-WAIT-3",
    Record: "EVT-REC-2",
    Destroy: "EVT-DESTROY-1",
}


def judge(program: Program, observe: Observe, looks: Sequence[Look], controls: Controls) -> list[Statement]:
    """Every statement that one repetition supports. ``controls`` runs them for late events and absent tokens."""
    walk = Walk(program, observe, looks, controls)
    fed = 0
    for walk.index, look in enumerate(looks):
        for number in range(fed, look.at):
            walk.model.feed(program.steps[number], number)
        fed = look.at
        if look.call is not None and look.call.outcome is Outcome.BLOCKED and type(look.call.step) in BLOCKED:
            walk.say(BLOCKED[type(look.call.step)], Verdict.NON_CONFORMANT, "blocked", repeat=True)
            break
        if look.call is not None and look.call.refused is not None:
            refused = (Verdict.CONFORMANT, "") if look.call.refused else (Verdict.NON_CONFORMANT, "accepted")
            walk.say("EVT-ERR-1", *refused)
            break
        if not _distinct_handles(walk):
            return [walk.said[-1]]
        _returned_at_once(walk)
        for event, seen in look.events.items():
            _judge_event(walk, event, seen)
        _judge_call(walk, look.call)
        judge_functions(walk)
        judge_tokens(walk)
    _judge_priority(walk)
    captured_later_work(walk)
    for _ in walk.busy:
        walk.say("STM-QUERY-1", Verdict.INCONCLUSIVE, "no-control")  # it was never seen to say anything but busy
    return walk.said


def _distinct_handles(walk: Walk) -> bool:
    """On one stream given twice a program says nothing but that."""
    handles = walk.look.handles
    if len(handles) < 2:
        return True
    distinct = len(set(handles.values())) == len(handles)
    walk.say("STM-ALIAS-1", Verdict.CONFORMANT if distinct else Verdict.NON_CONFORMANT, "" if distinct else "aliased")
    return distinct


def _returned_at_once(walk: Walk) -> None:
    """A wait, or a record, on something pending returned before the deadline: else the look would say blocked."""
    for node in walk.model.nodes:
        if node.kind == "wait" and node.bound is not None and not node.born >> node.bound.index & 1:
            walk.say("EVT-WAIT-3", Verdict.CONFORMANT)
            break
    if any(
        n.kind == "record" and not n.temporary and any(not n.born >> p.index & 1 for p in n.preds)
        for n in walk.model.nodes
    ):
        walk.say("EVT-REC-2", Verdict.CONFORMANT)


def _judge_event(walk: Walk, event: str, seen: Seen) -> None:
    model = walk.model
    record = model.current.get(event)
    if record is None:
        # A helper needs a moment to return from synchronize; a query has no such excuse.
        always = seen.first and seen.last and not seen.flickered if walk.by_query else seen.ever
        walk.say("EVT-NEVER-1", Verdict.CONFORMANT if always else Verdict.NON_CONFORMANT, event=event)
        return
    before = walk.seen_of.get(event) is record
    if walk.by_query and (seen.ever or before):
        steady = not seen.flickered and not (before and not seen.first)
        walk.say("EVT-MONO-1", Verdict.CONFORMANT if steady else Verdict.NON_CONFORMANT, event=event)
    owed = model.obligation_of(record)
    want = model.tokens(record)
    if owed is Obligation.PEND:
        _judge_pending(walk, event, seen, record)
    elif owed is Obligation.SHOULD:
        # Judged by the token too: an event that is merely unpublished is no lack of concurrency.
        witnessed = bool(want) and walk.there(walk.look, want)
        _judge_concurrency(walk, event, record, seen.ever, witnessed)
    elif walk.late.get(event, (None,))[0] is record:
        pass  # its lateness was judged at the look at which it was owed first
    elif not seen.ever and not before:
        judge_late(walk, event, record)
    elif seen.ever:
        _judge_on_time(walk, event, record)
    if seen.ever and owed is Obligation.PEND:
        walk.early.add(record.index)
    if seen.ever and owed is Obligation.MUST and want and record.index not in walk.early:
        # At MUST points only: elsewhere an event seen is early, and that is its own finding.
        # An event that was early says nothing more about its data.
        # By what the host finds at the moment at which it first sees the event, not by what comes later.
        judge_data(walk, event, seen, record, want)
    call = walk.look.call
    if call is not None and call.step == Sync(event=event) and owed is Obligation.MUST:
        _judge_agreement(walk, event, seen, call, before)
    if seen.ever:
        walk.seen_of[event] = record


def _judge_pending(walk: Walk, event: str, seen: Seen, record: Node) -> None:
    model = walk.model
    holding = {n.gate for n in model.closure(record) if n.gate is not None and not model.openable(n)}
    proof = holding - walk.look.ended
    again = any(
        node.kind == "record" and node.event == event and model.is_done(node) for node in model.nodes[: record.index]
    )
    clauses = ["EVT-SAFE-1" if walk.by_query else "EVT-SYNC-1", *(["EVT-REREC-1"] if again else [])]
    if proof and record.stream == DEFAULT_STREAM and model.held_by_ties(record):
        names = {name: DEFAULT_STREAM for name in walk.program.streams if is_blocking_stream(name)}
        if seen.ever and not _seen_in(walk, with_streams(walk.program, names), event):
            clauses.append("STM-LEGACY-2")  # on one stream it waits, so it is the rule that does not hold
        elif not seen.ever:
            # That it waits shows the rule only if it does not where no stream is tied to the default one.
            tells = _seen_in(walk, with_plain_streams(walk.program, BLOCKING_STREAM), event)
            tied = (Verdict.CONFORMANT, "") if tells else (Verdict.UNSUPPORTED, CONCURRENCY)
            walk.say("STM-LEGACY-2", *tied, event=event)
    for clause in clauses:
        if not proof:
            walk.say(clause, Verdict.INCONCLUSIVE, "gate-expired", event=event)
        elif seen.ever:
            walk.say(clause, Verdict.NON_CONFORMANT, "early", event=event, proved_closed=True)
        else:
            walk.say(clause, Verdict.CONFORMANT, event=event)


def _seen_in(walk: Walk, control: Program, event: str) -> bool:
    """Is the event seen at this look of a control?"""
    looks = walk.controls.run(control, walk.observe, walk.index)
    return walk.index < len(looks) and event in looks[walk.index].events and looks[walk.index].events[event].ever


def _judge_concurrency(walk: Walk, event: str, record: Node, seen: bool, witnessed: bool) -> None:
    """What may wait for an unrelated stream: its event, or its work as well?"""
    model = walk.model
    ahead = [n for n in model.nodes[: record.index] if not model.openable(n)]
    free = not is_blocking_stream(record.stream) and all(n.stream == DEFAULT_STREAM for n in ahead)
    clause = "STM-NB-1" if free else "STM-CONC-1"
    # What does not come without the other stream's gates either does not wait for them.
    waits = not seen and _seen_in(walk, without(walk.program, {n.step for n in ahead}), event)
    for name, held in ((clause, seen or witnessed), ("STM-CONC-2", seen)):
        if name == "STM-CONC-2" and (free or not (seen or witnessed)):
            walk.say(name, Verdict.UNSUPPORTED, CONCURRENCY, event=event)
        elif held or waits:
            walk.say(name, Verdict.OBSERVED, "" if held else "not held", event=event, held=held)
        else:
            walk.say(name, Verdict.UNSUPPORTED, "control-late", event=event)


def _judge_priority(walk: Walk) -> None:
    """Streams of several priorities: did what they ran keep every order that was put to the test?"""
    if not prioritised(walk.program):
        return
    order = [s for s in walk.said if s.clause in ORDERING]
    if order and all(s.verdict is Verdict.CONFORMANT for s in order):
        walk.say("STM-PRIO-1", Verdict.CONFORMANT)
    elif not any(s.clause == "STM-PRIO-1" for s in walk.said):
        walk.say("STM-PRIO-1", Verdict.UNSUPPORTED, CONCURRENCY)


def _judge_on_time(walk: Walk, event: str, record: Node) -> None:
    """An event that came in time: which clauses were put to the test by that?"""
    model = walk.model
    waits = walk.waits(record)
    # Blind to a latching defect unless the captured work was pending when the later operation was queued.
    later = [n for n in walk.behind(record) if not model.is_done(n) and not n.born >> record.index & 1]
    captured = [
        n
        for wait in waits
        if wait.bound is not None
        for n in walk.behind(wait.bound)
        if not model.is_done(n) and not model.captures(record, n)
    ]
    again = any(n.kind == "record" and any(wait.event == n.event for wait in waits) for n in captured)
    tested: set[str] = set()
    if later:
        tested.add("EVT-INDEP-1" if walk.by_query else "EVT-INDEP-3")
        tested.add("EVT-WAIT-4" if any(n.kind == "wait" for n in later) else "EVT-REC-1")
    elif not captured:
        tested.add("EVT-LIVE-1")
    if captured:
        tested.add("EVT-REREC-2" if again else "EVT-INDEP-2")
    for wait in waits:
        if wait.bound is None:
            later_record = model.current.get(wait.event or "")
            if later_record is None:
                tested.add("EVT-NEVER-2")
            elif not model.is_done(later_record):
                tested.add("EVT-WAIT-2")
        elif wait.bound.stream == wait.stream:
            tested.add("EVT-WAIT-5")
    for clause in sorted(tested):
        walk.say(clause, Verdict.CONFORMANT, event=event)


def _judge_agreement(walk: Walk, event: str, seen: Seen, call: Call, before: bool) -> None:
    if call.outcome is Outcome.RETURNED:
        # What synchronize has returned for is complete: the very next query must say so.
        walk.say("EVT-AGREE-1", Verdict.CONFORMANT if seen.first else Verdict.NON_CONFORMANT, event=event)
    elif before:
        walk.say("EVT-AGREE-1", Verdict.NON_CONFORMANT, "blocked", event=event, repeat=True)
    else:
        walk.say("EVT-AGREE-1", Verdict.INCONCLUSIVE, "not-seen", event=event)


def _judge_call(walk: Walk, call: Call | None) -> None:
    if call is None:
        return
    model, step = walk.model, call.step
    returned = call.outcome is Outcome.RETURNED
    if isinstance(step, Sync):
        record = model.current.get(step.event)
        if returned and record is not None and not model.is_done(record):
            walk.say("EVT-SYNC-1", Verdict.NON_CONFORMANT, "early", event=step.event)
    elif isinstance(step, QueryStream):
        mine = [n for n in model.nodes if n.stream == step.stream]
        if not all(map(model.is_done, mine)):
            if call.value:
                walk.say("STM-QUERY-1", Verdict.NON_CONFORMANT, "early")
            else:
                walk.busy.add(step.stream)
        elif all(map(model.is_serial, mine)) and step.stream in walk.busy:
            walk.busy.discard(step.stream)
            # Only a query that says idle once the stream is makes its busy answer worth something.
            walk.say(
                "STM-QUERY-1", *((Verdict.CONFORMANT, "") if call.value else (Verdict.INCONCLUSIVE, "control-late"))
            )
    elif isinstance(step, Elapsed) and call.time is not None:
        judge_time(walk, step, call.time)
    elif isinstance(step, SyncStream):
        _judge_stream_sync(walk, step, returned)
    elif isinstance(step, Destroy):
        record = model.current.get(step.event)
        pending = record is not None and not model.is_done(record)
        walk.say(
            "EVT-DESTROY-1",
            Verdict.CONFORMANT if pending else Verdict.UNSUPPORTED,
            "" if pending else "not-pending",
            event=step.event,
        )


def _judge_stream_sync(walk: Walk, step: SyncStream, returned: bool) -> None:
    model = walk.model
    mine = [n for n in model.nodes if n.stream == step.stream]
    done = all(map(model.is_done, mine))
    if not (all(map(model.is_serial, mine)) or not done):
        return
    others = {n.step for n in model.nodes if not model.is_done(n)}
    if not done:
        walk.say("STM-SYNC-1", *((Verdict.NON_CONFORMANT, "early") if returned else (Verdict.CONFORMANT, "")))
    elif returned:
        walk.say("STM-SYNC-1", *((Verdict.CONFORMANT, "") if others else (Verdict.UNSUPPORTED, "nothing-pending")))
    else:
        looks = walk.controls.run(without(walk.program, others), walk.observe, walk.index) if others else ()
        call = looks[walk.index].call if walk.index < len(looks) else None
        if call is not None and call.outcome is Outcome.RETURNED:
            walk.say("STM-SYNC-1", Verdict.NON_CONFORMANT, "over-waits", repeat=True)
        else:
            walk.say("STM-SYNC-1", Verdict.INCONCLUSIVE, "control-late")
