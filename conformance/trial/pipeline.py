"""Runs one pipeline, Pipe(k, n): is every step's event published before the next step's gate opens?

The host harvests step j-n before it submits step j. When an event is late, the remaining gates are
opened one by one until it is seen: the lag in steps. Source: docs/rules.md 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from conformance.backends.api import Backend, EventFlags, Request
from conformance.errors import DeviceError
from conformance.execution import Look, Observer, Setting
from conformance.numbers import Numbers
from conformance.trial.state import RunState
from probes.probe import Case, Pipe
from probes.program import Copy, DeviceOp, Open, Record, SyncDevice, Wait, gate_of
from probes.ring import copy_stream, main_stream, step_ops
from reports.records import RingMeasure

TIMELY: Final = "timely"
LATE: Final = "late"
#: Late once with its control on time, and not again: seen is not forgotten, and not proved.
UNSTEADY: Final = "unsteady"
#: The event was complete and its token not there yet; or another token was there, and stayed.
LATE_DATA: Final = "late-data"
WRONG_DATA: Final = "wrong-data"


@dataclass(slots=True, kw_only=True)
class PipeRun:
    """One run of a pipeline, or of the control of one of its harvests."""

    outcome: str  # timely, late, on-time (a control), or why it says nothing
    harvest: int | None = None
    lag_steps: int | None = None
    lag_seconds: float | None = None
    early: bool = False
    pended: int = 0  # looks at events whose gate was closed
    slowest: float = 0.0  # the slowest publication that was on time


def measure_pipe(backend: Backend, pipe: Pipe, case: Case, state: RunState) -> tuple[RingMeasure, PipeRun]:
    """Run a pipeline; a late harvest counts only with its control on time (or what excuses the control, proved).

    Raises Unsupported where the backend lacks a capability that only shows while the pipeline runs.
    """
    if backend.gate().assurance == "timed":
        outcome = "timed-gate"  # a pipeline needs its gates opened one by one
        measure = RingMeasure(ring=pipe.ring, in_flight=pipe.in_flight, outcome=outcome, steps=pipe.steps)
        return measure, PipeRun(outcome=outcome)
    failures: tuple[type[Exception], ...] = (DeviceError, *backend.vendor_errors)
    try:
        return _measure(backend, pipe, case, state)
    except failures as error:
        what = " ".join(f"error: {type(error).__name__}: {error}".split())
        measure = RingMeasure(ring=pipe.ring, in_flight=pipe.in_flight, outcome=what, steps=pipe.steps)
        return measure, PipeRun(outcome=what)


def _measure(backend: Backend, pipe: Pipe, case: Case, state: RunState) -> tuple[RingMeasure, PipeRun]:
    numbers = state.numbers
    # A first late event gets the whole deadline, so that a hiccup is not taken for one.
    hold = numbers.harvest if state.proved else numbers.deadline
    run, note = _Pipeline(backend, pipe, case, numbers, hold).run(), ""
    outcome = run.outcome
    if run.outcome == LATE and run.harvest is not None:
        if not state.live_or_record:  # else it is proved that events are late whatever the ring, and the control too
            control = _Pipeline(backend, pipe, case, numbers, hold, cut=run.harvest).run()
            note = control.outcome
            if control.outcome != "on-time":
                outcome = "control-late"
            elif hold < numbers.patience * control.slowest:
                outcome = "patience"
        # One late harvest may be a hiccup, and a late one at ring = in flight switches a workaround off.
        again = _Pipeline(backend, pipe, case, numbers, hold).run()
        if again.outcome != LATE:
            run, outcome = again, UNSTEADY
            if hold < numbers.deadline and again.outcome == TIMELY:
                # The short hold, once the defect is proved: a busy host reaches that, and nobody the deadline.
                run = _Pipeline(backend, pipe, case, numbers, numbers.deadline).run()
                outcome = TIMELY if run.outcome == TIMELY else UNSTEADY
    return (
        RingMeasure(
            ring=pipe.ring,
            in_flight=pipe.in_flight,
            outcome=outcome,
            steps=pipe.steps,
            lag_steps=run.lag_steps,
            lag_us=None if run.lag_seconds is None else round(run.lag_seconds * 1e6, 1),
            control=note,
            decisive=case.decisive,
        ),
        run,
    )


class _Pipeline:
    def __init__(
        self, backend: Backend, pipe: Pipe, case: Case, numbers: Numbers, hold: float, cut: int | None = None
    ) -> None:
        self.backend, self.pipe, self.case, self.numbers, self.cut = backend, pipe, case, numbers, cut
        self.setting = Setting(observe=case.observe, flags=EventFlags(case.flags), hold=hold)
        self.ops = [step_ops(pipe, step, gate_only=cut is not None and step > cut) for step in range(pipe.steps)]
        self.result = PipeRun(outcome=TIMELY)
        self.number = 0

    def _request(self) -> Request:
        flat: list[DeviceOp] = [op for ops in self.ops for op in ops]
        streams = [main_stream(self.pipe), *(copy_stream(self.pipe, step) for step in range(self.pipe.ring))]
        events = sorted({op.event for op in flat if isinstance(op, (Record, Wait))})
        buffers = sorted({name for op in flat if isinstance(op, Copy) for name in (op.source, op.target)})
        gates = [gate for op in flat if (gate := gate_of(op)) is not None]
        return Request(
            streams=streams,
            events=events,
            gates=gates,
            buffers=buffers,
            flags=self.setting.flags,
            gate_limit=self.numbers.gate_limit,
        )

    def run(self) -> PipeRun:
        session = self.backend.session(self._request())
        try:
            self.observer = Observer(self.backend, session, self.numbers, self.setting)
            handles = list(self.observer.handles.values())
            if len(set(handles)) < len(handles):
                return PipeRun(outcome="aliased")
            self._go()
        finally:
            session.close()
        return self.result

    def _go(self) -> None:
        steps, depth = self.pipe.steps, self.pipe.in_flight
        for step in range(steps + depth):
            harvest = step - depth
            if harvest >= 0 and not self._harvest(harvest, range(harvest, min(step, steps))):
                return
            if step < steps and not self._submit(step):
                return

    def _submit(self, step: int) -> bool:
        for op in self.ops[step]:
            self.number += 1
            if self.observer.issue(op, self.number) is not None:
                self.result.outcome = "incomplete"  # a call that must not block did
                return False
        return True

    def _open(self, step: int) -> None:
        self.number += 1
        self.observer.host(Open(gate=f"g{step}"), self.number)

    def _look(self, events: list[str], gates: list[int], hold: float | None = None) -> Look:
        # The harvested step's token only: older buffers stay as they were.
        buffers = [f"h{event[1:]}" for event in events[:1]]
        return self.observer.look(events, buffers, [f"g{gate}" for gate in gates], hold=hold)

    def _harvest(self, j: int, unopened: range) -> bool:
        """Open step j's gate and look at its event. False ends the run."""
        recorded = [p for p in unopened if self.cut is None or p <= self.cut]
        if self.cut is None:
            before = self._look([f"e{p}" for p in recorded], list(unopened))
            # Each event is a PEND point until its own gate opens; only a gate shown closed makes it one.
            for p in recorded:
                if f"g{p}" not in before.ended:
                    self.result.pended += not before.ended
                    self.result.early |= before.events[f"e{p}"].ever
            if before.ended:
                self._stop("gate-expired", j)
                return False
        self._open(j)
        later = [p for p in unopened if p != j]
        look = self._look([f"e{j}"], later)
        seen = look.events[f"e{j}"]
        if self.cut is not None and j < self.cut and not look.ended:
            return True  # the same pace as the pipeline's, and nothing to be judged
        if look.ended:
            self._stop("gate-expired", j)
            return False
        if self.cut == j:
            self._stop("on-time" if seen.ever else LATE, j)
            self.result.slowest = seen.after or 0.0
            return False
        if not seen.ever:
            self._lag(j, later, look)
            return False
        self.result.slowest = max(self.result.slowest, seen.after or 0.0)
        if seen.data[f"h{j}"] != j + 1:
            self._stop(self._which_data(j, later), j)
            return False
        return True

    def _which_data(self, j: int, later: list[int]) -> str:
        """Did the token come after its event, or is it another one? The first is visibility, the second order."""
        for p in later:
            self._open(p)
        self.number += 1
        self.observer.host(SyncDevice(), self.number)
        return LATE_DATA if self.observer.session.read(f"h{j}") == j + 1 else WRONG_DATA

    def _stop(self, outcome: str, j: int) -> None:
        self.result.outcome, self.result.harvest = outcome, j

    def _lag(self, j: int, later: list[int], look: Look) -> None:
        """Open the gates that are left, one by one, until the event is seen."""
        self._stop(LATE, j)
        waited = look.seconds
        window = self.numbers.publication_window(self.setting.hold)
        for p in later:
            self._open(p)
            look = self._look([f"e{j}"], [], hold=window)
            seen = look.events[f"e{j}"]
            if seen.ever:
                self.result.lag_steps, self.result.lag_seconds = p - j, waited + (seen.after or 0.0)
                return
            waited += look.seconds
