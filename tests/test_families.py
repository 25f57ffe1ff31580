"""Families of probes beyond events and waits: host functions, kinds of streams, data, times.

That each fault is caught, and legal devices are left alone, is the matrix's matter (`test_selftest`).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
import torch_double as double
from judgement_helpers import At, Controls, looks
from realtime_helpers import settled, some_try
from torch_double_driver import Ladder

from conformance.backends import torch_device
from conformance.backends.reference import ReferenceBackend
from conformance.execution import Call, Look, Outcome
from conformance.judgement.judge import judge
from conformance.model import Model, Obligation
from conformance.numbers import Depth, Numbers
from conformance.run import run
from conformance.runner import LocalRunner, run_one
from conformance.selection import select
from conformance.timekeeping import HostTimes, Time
from conformance.trial import lag
from conformance.trial.state import RunState
from probes.notation import parse
from probes.program import Elapsed
from reports.records import Verdict

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from conformance.backends.api import Backend
    from reports.records import ClauseResult, Report, Result

ONCE = Numbers(repeat=1)


def model_of(text: str) -> Model:
    model = Model()
    for number, step in enumerate(parse(text).steps):
        model.feed(step, number)
    return model


def report(backend: Backend, *probes: str) -> Report:
    return run(LocalRunner(backend, ONCE, Depth.STANDARD), select(ONCE, probes=probes), ONCE)


def clauses(backend: Backend, *probes: str) -> dict[tuple[str, str], ClauseResult]:
    """By probe[variant] and clause."""
    results = report(backend, *probes).results
    return {(f"{r.probe}[{r.variant}]", c.clause): c for r in results for c in r.clauses}


# The legacy default stream.


@pytest.mark.parametrize(
    ("text", "owed"),
    [
        ("blocking: gate g\ndefault: record e", Obligation.PEND),
        ("default: gate g\nblocking: record e", Obligation.PEND),
        ("default: gate g\nS: record e", Obligation.SHOULD),
        ("S: gate g\ndefault: record e", Obligation.SHOULD),
        ("blocking1: gate g\nblocking2: record e", Obligation.SHOULD),
        ("blocking1: gate g\ndefault: fill x 1\nblocking2: record e", Obligation.PEND),
        ("default: record e\nblocking: gate g", Obligation.MUST),
        ("blocking: gate g\ndefault: fill x 1\nS: wait-stream default, record e", Obligation.PEND),
    ],
)
def test_the_default_stream_orders_blocking_streams_and_no_others(text: str, owed: Obligation) -> None:
    model = model_of(text)
    assert model.obligation("e") is owed
    if owed is Obligation.PEND:
        assert model.held_by_ties(model.current["e"])


def test_a_gate_of_its_own_is_no_matter_of_the_default_streams_rule() -> None:
    model = model_of("blocking: gate g1\ndefault: gate g2, record e")
    assert not model.held_by_ties(model.current["e"])


def test_waiting_for_the_default_stream_shows_its_rule_only_where_nothing_else_makes_it_wait() -> None:
    """On one queue everything waits, so there the rule is not put to the test."""
    one = clauses(ReferenceBackend(("queues-1",)), "legacy-*")
    many = clauses(ReferenceBackend(), "legacy-*")
    for key in (("legacy-last[query-default]", "STM-LEGACY-1"), ("legacy-last[query-default]", "STM-LEGACY-2")):
        assert many[key].verdict is Verdict.CONFORMANT
        assert (one[key].verdict, one[key].reason) == (Verdict.UNSUPPORTED, "concurrency")


# Priorities.


def test_what_plain_streams_do_wrong_too_is_no_matter_of_priority() -> None:
    found = clauses(ReferenceBackend(("wait-dropped",)), "priority")
    consumer = "priority[consumer-query-default]"
    assert found[consumer, "EVT-WAIT-1"].verdict is Verdict.NON_CONFORMANT
    assert found[consumer, "STM-PRIO-1"].verdict is not Verdict.NON_CONFORMANT


# Times.


def times(seen_at: float = 1.0, opened_at: float = 1.5) -> tuple[HostTimes, Model]:
    model = model_of("S: record a, gate g, record e")
    marks = HostTimes()
    marks.recorded("a", 0.9)
    marks.recorded("e", 0.95)
    marks.opened["g"] = opened_at
    marks.seen |= {"a": seen_at, "e": 1.6}
    return marks, model


def test_the_hosts_bracket_holds_both_ways_round() -> None:
    marks, model = times()
    assert marks.between(model, "a", "e") == (pytest.approx(0.5), pytest.approx(0.7))
    assert marks.between(model, "e", "a") == (pytest.approx(-0.7), pytest.approx(-0.5))
    assert marks.between(model, "a", "a") == (None, None)
    marks.recorded("a", 2.0)  # what was seen of it before is of no use
    assert marks.between(model, "a", "e")[0] is None


def asked(time: Time, text: str = "S: record a, gate g, record e\nhost: open g, elapsed a e") -> dict[str, Verdict]:
    program = parse(text)
    rows = looks(program, *[At("a e")] * 3)
    last = Look(
        at=rows[-1].at,
        call=Call(step=Elapsed(start="a", end="e"), outcome=Outcome.RETURNED, time=time),
        events=rows[-1].events,
    )
    first = looks(program, At("a"), At("a e"))
    statements = judge(program, "query", [*first, last], Controls())
    return {s.clause: s.verdict for s in statements if s.clause.startswith("TIM")}


def test_a_time_is_judged_by_its_sign_and_by_the_hosts_bracket() -> None:
    good = {"TIM-POS-1": Verdict.CONFORMANT, "TIM-BRK-1": Verdict.CONFORMANT}
    inside = Time(seconds=0.55, kept=True, least=0.5, most=0.7)
    assert asked(inside) == good
    assert asked(Time(seconds=0.4999, kept=True, least=0.5, most=0.7)) == good  # the clocks' resolution and drift
    for seconds in (0.4, 0.8):
        found = asked(Time(seconds=seconds, kept=True, least=0.5, most=0.7))
        assert found == {"TIM-POS-1": Verdict.CONFORMANT, "TIM-BRK-1": Verdict.NON_CONFORMANT}
    assert asked(Time(seconds=-0.1, kept=True))["TIM-POS-1"] is Verdict.NON_CONFORMANT


def test_a_number_where_there_is_no_time_is_an_error() -> None:
    for text in ("S: record a, gate g, record e\nhost: elapsed a e, open g", "S: record a\nhost: elapsed a e"):
        program = parse(text)
        for time, verdict in (
            (Time(seconds=0.0, kept=True), Verdict.NON_CONFORMANT),
            (Time(seconds=None, refused="not ready", kept=True), Verdict.CONFORMANT),
        ):
            first, second = looks(program, At("a"), At("a"))[:2]
            call = Call(step=Elapsed(start="a", end="e"), outcome=Outcome.RETURNED, time=time)
            seen = [first, Look(at=second.at, call=call, events=second.events)]
            assert {s.clause: s.verdict for s in judge(program, "query", seen, Controls())}["TIM-ERR-1"] is verdict
    assert asked(Time(seconds=0.1, kept=False)) == {"TIM-ERR-1": Verdict.NON_CONFORMANT}


# How soon.


@pytest.mark.parametrize(
    ("lags", "controls", "held"),
    [
        ([0.001] * 20, [0.0001], True),
        ([0.02] * 20, [0.0001], False),
        ([0.02] * 20, [0.003], True),  # ten times what the control takes
        ([0.001] * 19 + [0.5], [0.0001], True),  # a hiccup of the host
        ([0.001] * 17 + [0.5] * 3, [0.0001], False),
        ([0.5], [0.0001], False),
    ],
)
def test_soon_is_five_milliseconds_or_ten_times_the_control(
    lags: Sequence[float], controls: Sequence[float], held: bool
) -> None:
    assert lag.statement(lags, controls, late=False).held is held


def test_a_late_event_and_one_without_control_say_nothing_of_how_soon() -> None:
    for found in (lag.statement([0.5], [0.1], late=True), lag.statement([0.5], [], late=False)):
        assert (found.verdict, found.held) == (Verdict.UNSUPPORTED, None)


# torch, on a double of it.


@pytest.fixture
def torch_backend(monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    monkeypatch.setitem(sys.modules, "torch", double.torch)  # type: ignore[arg-type]  # a stand-in
    monkeypatch.setattr(torch_device, "Ladder", Ladder)
    backend = torch_device.TorchBackend("cuda")
    yield backend
    backend.close()
    double.WRONG.clear()


FAMILIES = ("host-function*", "legacy-*", "non-blocking", "priority", "elapsed*", "wait-data", "source-order")


def test_the_torch_backend_runs_every_family(torch_backend: Backend) -> None:

    def found(names: Collection[str]) -> dict[str, Result]:
        return {f"{r.probe}[{r.variant}]": r for r in report(torch_backend, *(names or FAMILIES)).results}

    said = [(where, c) for where, r in settled(found).items() for c in r.clauses]
    wrong = [(where, c) for where, c in said if c.verdict not in (Verdict.CONFORMANT, Verdict.OBSERVED)]
    assert wrong == []
    assert {c.clause for _, c in said} >= {"HFN-ORDER-1", "HFN-BLOCK-1", "STM-LEGACY-2", "TIM-BRK-1", "STM-PRIO-1"}
    two = clauses(torch_backend, "across-devices")["across-devices[to-far-wait-query-default]", "EVT-WAIT-6"]
    assert (two.verdict, two.reason) == (Verdict.UNSUPPORTED, "second-device: torch.cuda.device_count() is 1")


@pytest.mark.parametrize(
    ("wrong", "probe", "clause"),
    [("legacy-ignored", "legacy-last", "STM-LEGACY-2"), ("host-early", "host-function", "HFN-ORDER-1")],
)
def test_the_torch_backend_shows_a_driver_that_is_wrong(
    torch_backend: Backend, wrong: str, probe: str, clause: str
) -> None:
    double.WRONG.add(wrong)
    where = f"{probe}[query-default]", clause
    assert some_try(lambda: clauses(torch_backend, probe)[where].verdict is Verdict.NON_CONFORMANT)


@pytest.mark.parametrize("observe", ["query", "synchronize"])
def test_a_device_that_publishes_only_at_a_synchronize_is_judged_and_not_given_up(
    monkeypatch: pytest.MonkeyPatch, observe: str
) -> None:
    monkeypatch.setitem(sys.modules, "torch", double.torch)  # type: ignore[arg-type]  # a stand-in
    monkeypatch.setattr(torch_device, "Ladder", Ladder)
    monkeypatch.setattr(double, "WRONG", {"publishes-at-sync"})  # from the warm-up on
    backend = torch_device.TorchBackend("cuda")
    try:
        # The streams are threads: a busy machine keeps them waiting, and a hold counts if it is twenty times that.
        numbers = Numbers(repeat=1, holds=(0.3, 0.5, 0.8))
        (pair,) = select(numbers, probes=["nothing-behind"], variants=[f"{observe}-default"]).cases

        def wrong() -> set[str]:
            result = run_one(backend, *pair, RunState(numbers))
            return {c.clause for c in result.clauses if c.verdict is Verdict.NON_CONFORMANT}

        assert some_try(lambda: wrong() == {"EVT-LIVE-1"})
        assert backend.usable
    finally:
        backend.close()
