"""Reference devices with one odd mechanism each, for the ladder: what it must tell apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from conformance.backends.api import Opinion
from conformance.backends.reference import ReferenceBackend, ReferenceSession
from conformance.backends.reference.device import Device
from conformance.backends.reference.faults import make_device

if TYPE_CHECKING:
    from conformance.backends.api import Request
    from conformance.backends.reference.device import Task
    from probes.program import DeviceOp


class OddBackend(ReferenceBackend):
    """The reference backend on a device of another make."""

    def __init__(self, device: type[Device]) -> None:
        super().__init__()
        self._make = device


class Gathers(Device):
    """Work sits in the host until something submits all of it; a synchronize always does."""

    submitted = 0

    def ready(self, task: Task) -> bool:
        return task.index < self.submitted and super().ready(task)

    def submit(self) -> None:
        self.submitted = len(self.tasks)
        self.settle()

    def flush(self) -> None:
        self.submit()
        super().flush()


class SubmitsOnQuery(Gathers):
    """Legal: whoever asks is answered."""

    def query(self, event: str) -> bool:
        self.submit()
        return super().query(event)

    def synchronize(self, event: str) -> bool:
        self.submit()
        return super().synchronize(event)


class SubmitsOnStreamQuery(Gathers):
    def query_stream(self, stream: str) -> bool:
        self.submit()
        return super().query_stream(stream)


class SubmitsOnNextOperation(Gathers):
    """An operation is submitted by the next one on its stream, and the last by a synchronize."""

    def ready(self, task: Task) -> bool:
        return bool(self.later(task) or task.index < self.submitted) and Device.ready(self, task)


class SubmitsOnTenth(Gathers):
    """So many operations on any streams are submitted together: more than the program has."""

    every = 14

    def issue(self, op: DeviceOp) -> None:
        super().issue(op)
        if len(self.tasks) - self.submitted >= self.every:
            self.submit()


class SubmitsByTimer(Gathers):
    """What was queued is submitted a while after the first of it."""

    after = 1.2

    def ready(self, task: Task) -> bool:
        return (self.clock >= self.after or task.index < self.submitted) and Device.ready(self, task)

    def advance(self, seconds: float) -> None:
        super().advance(seconds)
        self.settle()


class LockedQuery(Device):
    """A query of an event sits in the host while a wait on the event's stream is blocked."""

    def blocked(self, event: str) -> bool:
        record = self.current.get(event)
        return record is not None and record.done and not all(w.done for w in self.later(record, "wait"))

    def query(self, event: str) -> bool:
        self._block(lambda: self.blocked(event))
        return super().query(event)


class ImpatientLock(LockedQuery):
    """The same, and a query that does not get the lock in time says that the event is not complete."""

    def query(self, event: str) -> bool:
        if self.blocked(event):
            self.advance(0.25)
            return False
        return super().query(event)


class ParkedQueue(make_device(("queues-1",))):  # type: ignore[misc]
    """Nothing on a hardware queue is published while another stream's gate or wait is blocked on it."""

    def publish(self, record: Task) -> bool:
        queue = self.queue_of(record.stream)
        rest = [t for t in self.tasks if self.queue_of(t.stream) == queue and t.stream != record.stream]
        return record.done and all(t.done for t in rest if t.kind in ("gate", "wait"))


class SecondOpinion(OddBackend):
    """A session that can ask below its API, and a device whose API is late: is the driver late too?"""

    def __init__(self, *, driver_late: bool) -> None:
        super().__init__(make_device(("late-next-wait",)))
        self.driver_late = driver_late

    def session(self, request: Request) -> ReferenceSession:
        made = super().session(request)
        device: Any = made._device
        driver_late = self.driver_late

        class Asking(ReferenceSession):
            def ask_below(self, event: str) -> Opinion:
                task = device.current[event]
                return Opinion(
                    layer="driver", call="the double", complete=bool(task.published if driver_late else task.done)
                )

        made.__class__ = Asking
        return made
