"""The ring: what one pipeline's run says, on right and on wrong devices (docs/rules.md 3 and 4.5)."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from conformance.backends.reference import ReferenceBackend, ReferenceSession
from conformance.backends.reference.device import Device
from conformance.backends.reference.faults import make_device
from conformance.errors import DeviceError
from conformance.numbers import Numbers
from conformance.trial.pipeline import PipeRun, measure_pipe
from conformance.trial.result import ring_result
from conformance.trial.state import RunState
from probes.notation import parse
from probes.program import Record
from probes.ring import ring_probe, step_ops
from reports.records import ClauseResult, RingMeasure, Verdict

if TYPE_CHECKING:
    from conformance.backends.api import Request
    from probes.probe import Case, Pipe

PLAIN = "default-wait-stream-side-query"
BLOCKING = "blocking-wait-stream-side-synchronize"

#: Rings of k with n in flight.
SHAPES = [(k, n) for n in range(1, 5) for k in range(1, 5)]


def variant(k: int, n: int, name: str = PLAIN) -> tuple[Pipe, Case]:
    probe = ring_probe(k, n)
    return probe.pipes[name], next(case for case in probe if case.variant == name)


def measured(
    k: int, n: int, *faults: str, name: str = PLAIN, excused: bool = False, proved: bool = False
) -> tuple[RingMeasure, PipeRun]:
    """Pipe(k, n) on a device with these faults."""
    return on(ReferenceBackend(faults), k, n, name=name, excused=excused, proved=proved)


def on(
    backend: ReferenceBackend, k: int, n: int, *, name: str = PLAIN, excused: bool = False, proved: bool = False
) -> tuple[RingMeasure, PipeRun]:
    state = RunState(Numbers(), live_or_record=excused, proved=proved)
    return measure_pipe(backend, *variant(k, n, name), state)


class Hooked(ReferenceBackend):
    """The reference device with hooks that no fault has; counts its sessions."""

    def __init__(self, hooks: dict[str, object], faults: tuple[str, ...] = ()) -> None:
        super().__init__(faults)
        self.kind: type[Device] = type("Hooked", (make_device(faults),), hooks)
        self.requests: list[Request] = []

    def session(self, request: Request) -> ReferenceSession:
        self.requests.append(request)
        return ReferenceSession(self.kind(request.streams, request.gate_limit), self.clock, request)


# ---------------------------------------------------------------------- the ring theorem


@pytest.mark.parametrize("name", [PLAIN, BLOCKING, "default-wait-default-query"])
def test_clean_device_is_timely(name: str) -> None:
    for (k, n), faults in itertools.product(SHAPES, ((), ("queues-1",), ("queues-2",))):
        measure, run = measured(k, n, *faults, name=name)
        assert (measure.outcome, run.early) == ("timely", False), (k, n, faults)
        assert run.pended >= measure.steps  # each event was a PEND point before its gate opened


@pytest.mark.parametrize("fault", ["late-next-wait", "late-any-wait", "late-idle", "late-never"])
def test_late_exactly_where_the_ring_is_shorter_than_the_steps_in_flight(fault: str) -> None:
    for k, n in SHAPES:
        measure, _ = measured(k, n, fault)
        assert measure.outcome == ("late" if k < n else "timely"), (k, n)
        assert measure.control == ("on-time" if k < n else "")


@pytest.mark.parametrize("name", [PLAIN, BLOCKING, "default-wait-default-query"])
def test_lag_in_steps(name: str) -> None:
    for k, n in [(k, n) for k, n in SHAPES if k < n]:
        window = (n - 1) // k * k  # of the first harvest: docs/rules.md 9, theorem 3
        assert measured(k, n, "late-idle", name=name)[0].lag_steps == window, (k, n)
        assert measured(k, n, "late-any-wait", name=name)[0].lag_steps == window, (k, n)
        assert measured(k, n, "late-next-wait", name=name)[0].lag_steps == (window if n <= 2 * k else k), (k, n)


def test_what_no_gate_publishes_has_no_lag() -> None:
    measure, run = measured(1, 3, "late-never")
    assert (measure.outcome, measure.lag_steps, measure.lag_us) == ("late", None, None)
    assert run.harvest == 0


def test_a_ring_on_shared_queues_is_no_ring() -> None:
    """The defect lives in queues: with two of them, a ring of two is in time, and a longer one is not."""
    found = {(k, n): measured(k, n, "late-next-wait-queue", "queues-2")[0].outcome for k, n in SHAPES if k in (1, n)}
    assert [found[1, n] for n in (2, 3, 4)] == ["late"] * 3
    assert [found[n, n] for n in (2, 3, 4)] == ["timely", "late", "late"]
    own = {n: measured(n, n, "late-next-wait-queue")[0].outcome for n in (2, 3, 4)}
    assert set(own.values()) == {"timely"}  # with a queue for each stream every ring helps


def test_blocking_events_are_measured_by_synchronize() -> None:
    assert measured(1, 2, "late-blocking-sync", name=BLOCKING)[0].outcome == "late"
    assert measured(2, 2, "late-blocking-sync", name=BLOCKING)[0].outcome == "timely"
    assert measured(1, 2, "late-blocking-sync", name=PLAIN)[0].outcome == "timely"


# ---------------------------------------------------------------------- what a pipeline cannot say


@pytest.mark.parametrize("fault", ["late-sync", "lost-event", "deferred-record", "record-captures-later"])
def test_late_without_the_next_steps_too_is_control_late(fault: str) -> None:
    """No ring helps, but nothing shows that the harness is not the cause; a proof of EVT-LIVE-1 or EVT-REC-1 does."""
    for k, n in ((1, 2), (2, 2), (3, 4)):
        measure, run = measured(k, n, fault)
        assert (measure.outcome, measure.control, run.harvest) == ("control-late", "late", 0)
        assert measured(k, n, fault, excused=True)[0].outcome == "late"


def test_wrong_data_is_said() -> None:
    for k, n in SHAPES:
        measure, run = measured(k, n, "wait-dropped")
        assert measure.outcome == "wrong-data"
        assert run.early  # the copy did not wait for its step


def test_data_of_an_event_on_time_is_checked() -> None:
    def read(device: Device, buffer: str) -> int:
        return 0 if buffer == "h7" else Device.read(device, buffer)

    measure, run = on(Hooked({"read": read}), 2, 2)
    assert (measure.outcome, run.harvest, run.early) == ("wrong-data", 7, False)


def test_aliased_streams_are_not_measured() -> None:
    measure, run = measured(2, 2, "aliased-streams")
    assert (measure.outcome, run.pended) == ("aliased", 0)


@pytest.mark.parametrize("name", [PLAIN, "default-wait-side-query"])
def test_a_call_that_blocks_leaves_it_incomplete(name: str) -> None:
    for k, n in SHAPES:
        assert measured(k, n, "wait-blocks-host", name=name)[0].outcome == "incomplete", (k, n)
        assert measured(k, n, "record-blocks-host", name=name)[0].outcome == "incomplete", (k, n)


@pytest.mark.parametrize("n", [1, 2, 4])
@pytest.mark.parametrize(("fault", "name"), [("query-always-true", PLAIN), ("sync-noop", BLOCKING)])
def test_an_early_event_is_a_finding(n: int, fault: str, name: str) -> None:
    measure, run = measured(1, n, fault, name=name)
    assert run.early
    assert run.pended > 0
    clauses = {c.clause: c.verdict for c in recorded(measure, run, n, name)}
    assert clauses == {"EVT-SAFE-1" if fault == "query-always-true" else "EVT-SYNC-1": Verdict.NON_CONFORMANT}


def recorded(measure: RingMeasure, run: PipeRun, n: int, name: str = PLAIN) -> tuple[ClauseResult, ...]:
    _, case = variant(1, n, name)
    return ring_result(ReferenceBackend(), ring_probe(1, n), case, measure, run, False, 0.0).clauses


def test_a_pipeline_says_nothing_about_what_it_did_not_watch() -> None:
    measure, run = measured(1, 2)
    assert [(c.clause, c.verdict) for c in recorded(measure, run, 2)] == [("EVT-SAFE-1", Verdict.CONFORMANT)]
    aliased = measured(2, 2, "aliased-streams")
    said = [(c.clause, c.verdict, c.reason) for c in recorded(*aliased, 2)]
    assert said == [("EVT-INDEP-1", Verdict.INCONCLUSIVE, "aliased")]


def test_gates_that_end_by_themselves_are_no_proof() -> None:
    for k, n in SHAPES:
        measure, run = measured(k, n, "gates-expire")
        assert measure.outcome == "gate-expired"
        assert not run.early
        assert not [c for c in recorded(measure, run, n) if c.verdict is Verdict.NON_CONFORMANT]


def test_a_later_gate_that_expires_during_a_late_look_is_no_proof() -> None:
    """Late, and then a gate that should have been closed is not: nothing holds the event any more, or did."""

    def query(device: Device, event: str) -> bool:
        if event == "e3" and "g3" in device.opened:
            device.gates_ended.add("g4")
            return False
        return Device.query(device, event)

    measure, run = on(Hooked({"query": query}), 1, 3)
    assert (measure.outcome, run.harvest) == ("gate-expired", 3)


def test_a_late_event_on_a_slow_device_needs_a_longer_hold() -> None:
    hooks: dict[str, object] = {"operation": 0.008}  # five operations: the control takes 0.04 s
    assert on(Hooked(hooks), 1, 2, proved=True)[0].outcome == "timely"
    assert on(Hooked(hooks, ("late-never",)), 1, 2, proved=True)[0].outcome == "patience"  # 0.1 s is no proof
    assert on(Hooked(hooks, ("late-never",)), 1, 2)[0].outcome == "late"  # a whole second is
    hooks = {"operation": 0.02}
    assert on(Hooked(hooks, ("late-never",)), 1, 2)[0].outcome == "patience"


def test_a_device_error_costs_one_pipeline() -> None:
    def record(device: Device, task: object) -> None:
        raise DeviceError("eventRecord: 719")

    measure, _ = on(Hooked({"record": record}), 1, 2)
    assert measure.outcome == "error: DeviceError: eventRecord: 719"


# ---------------------------------------------------------------------- the shape of a pipeline


def test_steps_and_streams() -> None:
    for k, n in SHAPES:
        pipe, case = variant(k, n)
        assert pipe.steps == max(24, 8 * n)
        records = [
            op
            for j in range(pipe.steps)
            for op in step_ops(pipe, j)
            if isinstance(op, Record) and op.event.startswith("e")
        ]
        assert [op.stream for op in records] == [f"ring{j % k}" for j in range(pipe.steps)]
        assert list(parse(case.text).gates) == [f"g{j}" for j in range(n)]


def test_the_control_brings_only_gates_after_its_harvest() -> None:
    backend = Hooked({}, ("late-idle",))
    on(backend, 2, 3)
    run, control, again = backend.requests
    assert run == again  # one late harvest may be a hiccup
    assert (run.streams, run.gates) == (control.streams, control.gates)  # the same queues, the same gates closed
    assert [event for event in control.events if event.startswith("e")] == ["e0"]


class LateOnce(ReferenceBackend):
    """A device that is late in the first pipeline it runs, and right ever after."""

    def __init__(self) -> None:
        super().__init__()
        self.sessions = 0

    def session(self, request: Request) -> ReferenceSession:
        self.sessions += 1
        faults = ("late-next-wait",) if self.sessions == 1 else ()
        return ReferenceSession(make_device(faults)(request.streams, request.gate_limit), self.clock, request)


@pytest.mark.parametrize(("proved", "outcome"), [(False, "unsteady"), (True, "timely")])
def test_a_whole_deadline_of_lateness_is_never_forgotten(proved: bool, outcome: str) -> None:
    """At the short hold, which is in use only once the defect is proved, two timely runs outweigh a hiccup."""
    probe = ring_probe(1, 2)
    case = probe.cases[0]
    state = RunState(Numbers(), proved=proved)
    measure, run = measure_pipe(LateOnce(), probe.pipes[case.variant], case, state)
    assert measure.outcome == outcome
    found = {c.verdict for c in ring_result(LateOnce(), probe, case, measure, run, proved, 0.0).clauses}
    assert (Verdict.INCONCLUSIVE in found) == (outcome == "unsteady")
