"""Devices side by side: each in its own child, watched by a thread of its own; Ctrl-C ends all of them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar, runtime_checkable

from conformance.devices import DeviceLocks, spans_two

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from conformance.backends.api import DeviceInfo
    from conformance.measure.found import Measurement
    from conformance.pipeline.jobs import Job
    from conformance.runner import Runner
    from probes.probe import Case, Probe
    from reports.diagnosis import Diagnosis
    from reports.pipeline import Parts
    from reports.records import Header, Result

Made = TypeVar("Made")

#: Seconds between two looks at threads: so soon is Ctrl-C seen.
LOOK: Final = 0.1
#: Seconds in which a thread ends once its child was told to: a gate limit, and the child's own end.
ENDING: Final = 5.0


class Stopped(BaseException):
    """This run is to end, without a report."""


@runtime_checkable
class Interruptible(Protocol):
    """What may be ended from another thread."""

    def interrupt(self) -> None:
        """Open the gates and have the child end, whatever it does."""
        ...


class Turn:
    """A runner whose cases hold the locks of the devices that they use; a `Runner`."""

    def __init__(self, runner: Runner, stop: threading.Event | None = None) -> None:
        self._runner, self._stop, self._locks = runner, stop, DeviceLocks(runner.lock)

    @property
    def header(self) -> Header:
        """The runner's."""
        return self._runner.header

    @property
    def lock(self) -> DeviceInfo:
        """The runner's."""
        return self._runner.lock

    def run(self, probe: Probe, case: Case) -> Result:
        """One case to its record. Raises Stopped once the run is to end."""
        self._locks.hold(both=spans_two(case))
        self._check()
        result = self._runner.run(probe, case)
        self._check()
        return result

    def measure(self) -> Measurement:
        """The device's capabilities."""
        self._locks.hold()
        measured = self._runner.measure()
        self._check()
        return measured

    def drive(self, job: Job) -> Parts:
        """One job of the decode pipeline."""
        self._locks.hold()
        parts = self._runner.drive(job)
        self._check()
        return parts

    def diagnose(self, point: dict[str, str], probe: str, variant: str) -> Diagnosis:
        """Sweep the factors of a late event."""
        self._locks.hold()
        found = self._runner.diagnose(point, probe, variant)
        self._check()
        return found

    def close(self) -> None:
        """Release the locks; the runner stays open."""
        self._locks.release()

    def _check(self) -> None:
        if self._stop is not None and self._stop.is_set():
            raise Stopped


class _Thread(threading.Thread, Generic[Made]):
    def __init__(self, job: Callable[[threading.Event], Made], stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self._job, self._stop_all = job, stop
        self.made: list[Made] = []
        self.error: BaseException | None = None
        # Not `join`: interrupted there, Python before 3.13 takes a thread that still runs for one that has ended.
        self.ended = threading.Event()

    def run(self) -> None:
        try:
            self.made.append(self._job(self._stop_all))
        except BaseException as error:  # noqa: BLE001 - kept, not swallowed: whoever started the thread raises it
            self.error = error
        finally:
            self.ended.set()


def side_by_side(
    jobs: Sequence[Callable[[threading.Event], Made]], interruptible: Sequence[Interruptible]
) -> list[Made | BaseException]:
    """What came of each job, in a thread of its own; an error that one raised stands in its place.

    A job is given an event that is set once it must end. On Ctrl-C that is done, each of ``interruptible`` is
    interrupted, and the threads are waited for; then KeyboardInterrupt goes on.
    """
    stop = threading.Event()
    threads = [_Thread(job, stop) for job in jobs]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            while not thread.ended.wait(LOOK):
                pass
    except KeyboardInterrupt:
        stop.set()
        for each in interruptible:
            each.interrupt()
        for thread in threads:
            if thread.ident is not None:  # else it was not started yet, and is not any more
                thread.ended.wait(ENDING)
        raise
    return [thread.error if thread.error is not None else thread.made[0] for thread in threads]
