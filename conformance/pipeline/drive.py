"""Does one job on an open backend: in this process for the reference device, in a child for hardware."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conformance.errors import DeviceError, SuiteError
from conformance.pipeline.bookkeeping import measure_bookkeeping
from conformance.pipeline.decode import run_row
from conformance.pipeline.faulty import check_fault
from conformance.pipeline.jobs import BookkeepingJob, CompareJob, Job, ReadsJob, RowJob, lost
from conformance.pipeline.reads import measure_reads
from conformance.pipeline.rules import check_rules
from conformance.pipeline.workarounds import compare
from reports.pipeline import Parts

if TYPE_CHECKING:
    from collections.abc import Callable

    from conformance.backends.api import Backend
    from conformance.numbers import Numbers
    from conformance.pipeline.device import Engine


class Driver:
    """One backend; ``beat`` is called between steps, and may raise to end the job."""

    def __init__(self, backend: Backend, numbers: Numbers, beat: Callable[[], None]) -> None:
        self._backend, self._numbers, self._beat = backend, numbers, beat
        self._engine: Engine | None = None
        self.spent = False  # the device did not become idle after a job

    def drive(self, job: Job) -> Parts:
        """One job; what its device cannot do is a note, and costs nothing else. Raises UsageError."""
        failures: tuple[type[Exception], ...] = (SuiteError, *self._backend.vendor_errors)
        if isinstance(job, RowJob):
            check_fault(job.fault)
        try:
            return self._parts(job)
        except failures as error:
            return lost(job, " ".join(f"{type(error).__name__}: {error}".split()))

    def _parts(self, job: Job) -> Parts:
        if isinstance(job, CompareJob):
            return Parts(answers=compare(self._backend, self._numbers, job.in_flight, job.fault))
        engine = self._opened()
        try:
            if isinstance(job, RowJob):
                return Parts(rows=(run_row(engine, job),))
            if isinstance(job, BookkeepingJob):
                return Parts(bookkeeping=measure_bookkeeping(engine, job.step_ms, job.parts, job.steps))
            if isinstance(job, ReadsJob):
                return Parts(reads=measure_reads(engine, job.uses))
            return Parts(findings=check_rules(engine, job.steps))
        finally:
            self.spent = not engine.give([engine.main, *engine.side], [], []) or self.spent

    def _opened(self) -> Engine:
        if self._engine is None:
            hook = getattr(self._backend, "engine", None)
            if hook is None:
                raise DeviceError(f"{self._backend.name}: no real-time pipeline; torch backends have it")
            engine: Engine = hook(self._beat)
            engine.busy.learn(engine.main)
            self._engine = engine
        return self._engine
