"""Tokens that must not be there yet: the effects of work that something still holds back.

A thing that does not happen is only a verdict where a control shows it happen.
Source: docs/rules.md 2, "Early" and "Not happening".
"""

from __future__ import annotations

from typing import Final

from conformance.judgement.statements import CONCURRENCY
from conformance.judgement.walk import Walk
from conformance.model import Node, crosses
from probes.program import (
    BLOCKING_STREAM,
    HIGH_PRIORITY,
    Program,
    is_blocking_stream,
    is_high_priority,
    is_host_buffer,
)
from probes.transform import spelled_out, with_plain_streams, without
from reports.records import Verdict

#: The token took longer to come in the control than it was watched for.
PATIENCE: Final = "patience"
#: Controls whose token came later than that, before nothing can be said: one may have met a hiccup.
TRIES: Final = 3
#: What orders the default stream and blocking ones.
LEGACY: Final = "STM-LEGACY-1"


def prioritised(program: Program) -> bool:
    """Has the program a stream of high priority?"""
    return any(map(is_high_priority, program.streams))


def judge_tokens(walk: Walk) -> None:
    """Judge every copy to the host that may not have happened at the current look."""
    model = walk.model
    for node in model.nodes:
        if node.kind != "copy" or not is_host_buffer(node.buffer or "") or model.is_done(node):
            continue
        if not model.telling(node):
            continue
        clauses, holding = _held_by(walk, node)
        if walk.look.buffers.get(node.buffer or "") == model.token(node):
            _judge_early(walk, node, clauses)
            continue
        key = node.index, frozenset(clauses), frozenset(n.step for n in holding)
        if holding and key not in walk.shown_to_happen:
            walk.shown_to_happen.add(key)
            control = _free(walk, clauses, holding)
            if not _happens(walk, control, node):
                verdict, reason = Verdict.UNSUPPORTED, CONCURRENCY
            elif not _watched_for(walk, control, node):
                verdict, reason = Verdict.INCONCLUSIVE, PATIENCE
            else:
                verdict, reason = Verdict.CONFORMANT, ""
            for clause in sorted(clauses):
                walk.say(clause, verdict, reason)


def _held_by(walk: Walk, node: Node) -> tuple[set[str], list[Node]]:
    """Which clauses say that the token may not be there, and the operations that hold it back."""
    model = walk.model
    before = [n for n in model.nodes[: node.index] if n.stream == node.stream]
    gates = [n for n in before if not model.openable(n)]
    waits = [n for n in before if n.kind == "wait" and n.bound is not None and not model.is_done(n.bound)]
    if gates:
        inside = all(n.kind == "host-fn" for n in gates)
        return {"HFN-BLOCK-1" if inside else "STM-FIFO-1"}, gates + waits
    clauses: set[str] = set()
    for wait in waits:
        if wait.event in model.destroyed:
            clauses.add("EVT-DESTROY-1")
        elif crosses(wait):
            clauses |= {"EVT-WAIT-6", "STM-WSTREAM-1"} if wait.temporary else {"EVT-WAIT-6"}
        elif wait.temporary:
            clauses.add("STM-WSTREAM-1")
        elif model.current.get(wait.event or "") is not wait.bound:
            clauses |= {"EVT-WAIT-1", "EVT-REREC-2"}
        else:
            clauses.add("EVT-WAIT-1")
    if not clauses and model.held_by_ties(node):
        return {LEGACY}, [n for n in model.nodes if is_blocking_stream(n.stream)]
    return clauses, waits


def _free(walk: Walk, clauses: set[str], holding: list[Node]) -> Program:
    """The program without what holds a token back; for the default stream's rule, on streams that it does not bind."""
    if clauses == {LEGACY}:
        return with_plain_streams(walk.program, BLOCKING_STREAM)
    return without(walk.program, {n.step for n in holding})


def _judge_early(walk: Walk, node: Node, clauses: set[str]) -> None:
    model = walk.model
    if clauses == {"STM-WSTREAM-1"} and _happens(walk, spelled_out(walk.program)[0], node):
        clauses = {"EVT-WAIT-1"}  # no difference of spelling: it is the wait itself
    if clauses == {"STM-WSTREAM-1", "EVT-WAIT-6"}:
        clauses = {"EVT-WAIT-6" if _happens(walk, spelled_out(walk.program)[0], node) else "STM-WSTREAM-1"}
    if prioritised(walk.program) and not _happens(walk, with_plain_streams(walk.program, HIGH_PRIORITY), node):
        clauses = {"STM-PRIO-1"}  # on streams of one priority the same token waits
    holding = {n.gate for n in model.closure(node) if n.gate is not None and not model.openable(n)}
    proof = bool(holding - walk.look.ended)
    for clause in sorted(clauses):
        if proof:
            walk.say(clause, Verdict.NON_CONFORMANT, "early", proved_closed=True)
        else:
            walk.say(clause, Verdict.INCONCLUSIVE, "gate-expired")


def _watched_for(walk: Walk, control: Program, node: Node) -> bool:
    """Was the token watched for at least as long as it takes to come in the control?

    Else a busy device, on which it is only slow, would pass for one that holds it back.
    """
    looks, took = walk.controls.once(control, walk.index), 0.0
    for _ in range(TRIES):
        took = looks[walk.index].arrived.get(node.buffer or "", 0.0) if walk.index < len(looks) else 0.0
        if took <= walk.look.seconds:
            return True
        looks = walk.controls.once_more(control, walk.index)
    walk.controls.needed = max(walk.controls.needed, took)
    return False


def _happens(walk: Walk, control: Program, node: Node) -> bool:
    """Does the token arrive at the same host point of the control?"""
    looks = walk.controls.once(control, walk.index)
    if walk.index >= len(looks):
        return False
    return looks[walk.index].buffers.get(node.buffer or "") == walk.model.token(node)
