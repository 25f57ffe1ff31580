"""Runners: where cases are run. In this process (`LocalRunner`), or in a child (`conformance.supervisor`).

Hardware always runs in a child, so that a driver that hangs or crashes costs one verdict.

For the tests of this suite alone: the environment variable `STREAM_CONFORMANCE_TEST_CHILD` puts every
backend into a child; if it reads ``package.module:callable``, the child calls that with the
`Opening` for its backend. A report made so names it under `injected`, and decides nothing.
"""

from __future__ import annotations

import importlib
import os
import time
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from conformance.backends.registry import HARDWARE, Opening, check_name, open_as
from conformance.diagnosis.sweep import diagnose
from conformance.errors import SuiteError, Unsupported
from conformance.header import make_header
from conformance.measure import measure
from conformance.measure.found import Measurement
from conformance.trial.case import run_case
from conformance.trial.experiment import run_experiment
from conformance.trial.pipeline import measure_pipe
from conformance.trial.record import BoundTo
from conformance.trial.result import experiment_result, lost_result, result_of, ring_result, skipped_ring
from conformance.trial.state import RunState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from conformance.backends.api import Backend, DeviceInfo
    from conformance.numbers import Depth, Numbers
    from conformance.pipeline.jobs import Job
    from conformance.selection import Selection
    from probes.probe import Case, Probe
    from reports.diagnosis import Diagnosis
    from reports.pipeline import Parts
    from reports.records import Header, Result

#: See above.
TEST_CHILD: Final = "STREAM_CONFORMANCE_TEST_CHILD"


class Runner(Protocol):
    """An open device that cases can be run on, one after the other."""

    @property
    def header(self) -> Header:
        """Where results come from; not yet ended."""
        ...

    @property
    def lock(self) -> DeviceInfo:
        """The device in use, for `conformance.devices.device_lock`."""
        ...

    def run(self, probe: Probe, case: Case) -> Result:
        """One case to its record. Raises HarnessError if no case can be run at all."""
        ...

    def measure(self) -> Measurement:
        """The device's capabilities and what a ring's price is made of; after the last case. Never raises for it."""
        ...

    def drive(self, job: Job) -> Parts:
        """One job of the decode pipeline. Never raises for the device."""
        ...

    def diagnose(self, point: dict[str, str], probe: str, variant: str) -> Diagnosis:
        """Which factors decide that an event is late, beginning at a point. Raises HarnessError if it is cut short."""
        ...

    def close(self) -> None:
        """Give the device back; the gates that are still closed are opened. May be called twice."""
        ...


class LocalRunner:
    """A backend in this process."""

    def __init__(self, backend: Backend, numbers: Numbers, depth: Depth, selection: Selection | None = None) -> None:
        self._backend = backend
        self._numbers, self._state = numbers, RunState(numbers)
        self.header = make_header(backend, depth, restricted=selection is not None and selection.restricted)
        self.lock = backend.device()

    def run(self, probe: Probe, case: Case) -> Result:
        """One case to its record."""
        return run_one(self._backend, probe, case, self._state)

    def measure(self) -> Measurement:
        """The device's capabilities."""
        return measure(self._backend, self._numbers)

    def drive(self, job: Job) -> Parts:
        """One job of the decode pipeline."""
        from conformance.pipeline.drive import Driver

        return Driver(self._backend, self._numbers, lambda: None).drive(job)

    def diagnose(self, point: dict[str, str], probe: str, variant: str) -> Diagnosis:
        """Sweep the factors of a late event."""
        return diagnose(self._backend, self._numbers, point, probe, variant)

    def close(self) -> None:
        """Close the backend."""
        self._backend.close()


def run_one(backend: Backend, probe: Probe, case: Case, state: RunState) -> Result:
    """One case to its record."""
    if case.experiment:
        return experiment_result(backend, probe, case, run_experiment(backend, probe, case, state))
    pipe = probe.pipes.get(case.variant)
    if pipe is None:
        return result_of(backend, run_case(backend, probe, case, state))
    for capability in case.needs:
        if (reason := backend.unsupported(capability)) is not None:
            return skipped_ring(backend, probe, case, f"{capability}: {reason}")
    key = pipe.ring, pipe.in_flight
    if key in state.late_rings:
        return skipped_ring(backend, probe, case, f"ring {pipe.ring} with {pipe.in_flight} in flight is late already")
    started = time.perf_counter()
    try:
        measure, pipe_run = measure_pipe(backend, pipe, case, state)
    except Unsupported as error:
        return skipped_ring(backend, probe, case, str(error))
    if measure.outcome == "late":
        state.late_rings.add(key)
    return ring_result(backend, probe, case, measure, pipe_run, state.proved, time.perf_counter() - started)


def open_runner(opening: Opening, numbers: Numbers, depth: Depth, selection: Selection | None = None) -> Runner:
    """Open a device: hardware in a child, the rest here.

    Raises UsageError for what cannot be combined, BackendUnavailable for what is not here, HarnessError
    if no child can be started.
    """
    check_name(opening.name)
    hook = os.environ.get(TEST_CHILD, "")
    if opening.name in HARDWARE or hook:
        from conformance.shared import SharedGates
        from conformance.supervisor import ChildRunner

        factory = hook if ":" in hook else ""
        restricted = selection is not None and selection.restricted
        words = SharedGates if opening.name in HARDWARE else None
        return ChildRunner(opening, numbers, depth, restricted=restricted, make_words=words, factory=factory)
    return LocalRunner(open_as(opening), numbers, depth, selection)


class SurfacesRunner:
    """One device, driven through one API surface after the other; each has a process and a state of its own."""

    def __init__(self, surfaces: Sequence[str], opener: Callable[[str], Runner], profile: str) -> None:
        self._opener, self._profile = opener, profile
        self._surface, self._runner = surfaces[0], opener(surfaces[0])
        self._refused: dict[str, str] = {}
        self.header = msgspec.structs.replace(self._runner.header, surfaces=tuple(surfaces))
        self.lock = self._runner.lock

    def run(self, probe: Probe, case: Case) -> Result:
        """One case on its surface; where that cannot be opened, its cases are inconclusive and the others stand."""
        if case.surface != self._surface and case.surface not in self._refused:
            self._runner.close()
            try:
                self._runner = self._opener(case.surface)
                self._surface = case.surface
            except SuiteError as error:
                self._refused[case.surface] = str(error)
        if case.surface in self._refused:
            bound = BoundTo(profile=self._profile, surface=case.surface)
            return lost_result(bound, probe, case, self._refused[case.surface])
        return self._runner.run(probe, case)

    def measure(self) -> Measurement:
        """The device's capabilities, through the surface in use."""
        return Measurement() if self._refused else self._runner.measure()

    def drive(self, job: Job) -> Parts:
        """One job of the decode pipeline, through the surface in use."""
        return self._runner.drive(job)

    def diagnose(self, point: dict[str, str], probe: str, variant: str) -> Diagnosis:
        """Sweep the factors of a late event, through the surface in use."""
        return self._runner.diagnose(point, probe, variant)

    def interrupt(self) -> None:
        """End the surface in use, from another thread."""
        end = getattr(self._runner, "interrupt", None)
        if end is not None:
            end()

    def close(self) -> None:
        """Close the surface in use."""
        self._runner.close()


def open_for_child(opening: Opening, factory: str) -> Backend:
    """What a child opens. Raises as `open_as` does, and whatever a test's factory raises."""
    if not factory:
        return open_as(opening)
    module, _, name = factory.partition(":")
    made: Backend = getattr(importlib.import_module(module), name)(opening)
    return made


def marked(header: Header, factory: str) -> Header:
    """The header of a child whose backend a test's factory made: `injected`, so that nobody decides by it."""
    return msgspec.structs.replace(header, injected=(*header.injected, factory)) if factory else header
