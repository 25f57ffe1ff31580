"""Host functions: called after what was queued before them, once, and holding what is queued behind them.

Source: docs/rules.md 2, "Early" and "Not happening".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from conformance.judgement.statements import CONCURRENCY
from probes.transform import without
from reports.records import Verdict

if TYPE_CHECKING:
    from conformance.judgement.walk import Walk
    from conformance.model import Node

ORDER = "HFN-ORDER-1"


def judge_functions(walk: Walk) -> None:
    """Judge every host function at the current look by how often it was called."""
    for node in walk.model.nodes:
        if node.function is None or node.function not in walk.look.called:
            continue
        calls = walk.look.called[node.function]
        if all(map(walk.model.is_done, node.preds)):
            _judge_due(walk, node, calls)
        else:
            _judge_held(walk, node, calls)


def _judge_held(walk: Walk, node: Node, calls: int) -> None:
    """Something that it must come after is held."""
    holding = [n for n in walk.model.holding(node) if n is not node]
    if calls:
        proof = {n.gate for n in holding} - walk.look.ended
        if proof:
            walk.say(ORDER, Verdict.NON_CONFORMANT, "early", proved_closed=True)
        else:
            walk.say(ORDER, Verdict.INCONCLUSIVE, "gate-expired")
        return
    key = node.index, frozenset({ORDER}), frozenset(n.step for n in holding)
    if key in walk.shown_to_happen:
        return
    walk.shown_to_happen.add(key)
    # That it was not called counts only where it is called without what holds it.
    looks = walk.controls.once(without(walk.program, {n.step for n in holding}), walk.index)
    shown = walk.index < len(looks) and looks[walk.index].called.get(node.function or "", 0) > 0
    walk.say(ORDER, Verdict.CONFORMANT if shown else Verdict.UNSUPPORTED, "" if shown else CONCURRENCY)


def _judge_due(walk: Walk, node: Node, calls: int) -> None:
    """Nothing holds it back: it is called once, and before an event behind it is seen complete."""
    behind = [
        event
        for event, seen in walk.look.events.items()
        if seen.ever and event in walk.model.current and walk.model.captures(walk.model.current[event], node)
    ]
    if calls > 1:
        walk.say(ORDER, Verdict.NON_CONFORMANT, "more than once")
    elif calls == 1:
        walk.say(ORDER, Verdict.CONFORMANT)
    elif behind and all(map(walk.model.openable, walk.model.closure(node))):
        walk.say(ORDER, Verdict.NON_CONFORMANT, "not called", event=behind[0])
