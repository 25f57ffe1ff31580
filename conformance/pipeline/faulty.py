"""Lays a fault of `conformance.backends.fault_layer` over the raw calls of the pipeline.

The fault itself is the one that the conformance runs use: here it is only given the calls of torch in the
shape in which it takes a program's operations. It changes records, waits and host calls, and leaves tensors
and copies alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from conformance.backends.fault_layer import FaultySession
from conformance.errors import UsageError
from probes.program import DeviceOp, Record, Sync, Wait, WaitStream

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from conformance.backends.api import EventFlags, Session
    from conformance.backends.torch_device.surfaces import VendorSurface

#: Faults that records, waits and the host's calls alone can carry.
FAULTS: Final = ("late-next-wait", "late-any-wait", "wait-dropped", "sync-noop")


def check_fault(fault: str) -> None:
    """Raise UsageError for a fault that cannot be laid over a pipeline; "" is none."""
    if fault and fault not in FAULTS:
        raise UsageError(f"--fault {fault}: over a pipeline there are {', '.join(FAULTS)}; give one of them")


class _Done:
    """A synchronize that is made when it is asked whether it has returned: the caller is the one that blocks."""

    error: BaseException | None = None

    def __init__(self, event: Any) -> None:
        self._event = event

    @property
    def returned(self) -> bool:
        """True, once the event is complete."""
        self._event.synchronize()
        return True


class _Calls:
    """The calls that the fault makes, by the names that it gives to streams and events."""

    def __init__(self, surface: VendorSurface, flags: EventFlags) -> None:
        self._surface, self._flags = surface, flags
        self.streams: dict[str, Any] = {}
        self._events: dict[str, Any] = {}

    def event(self, name: str) -> Any:
        """The vendor's event of this name; made when it is first used, as every event of the pipeline."""
        if name not in self._events:
            self._events[name] = self._surface.event(self._flags)
        return self._events[name]

    def issue(self, op: DeviceOp) -> None:
        """Record or wait."""
        stream = self.streams[op.stream]
        if isinstance(op, Record):
            self._surface.record(self.event(op.event), stream)
        elif isinstance(op, Wait):
            self._surface.wait(stream, self.event(op.event))
        elif isinstance(op, WaitStream):
            self._surface.wait_stream(stream, self.streams[op.other])

    def query(self, event: str) -> bool:
        """Ask an event."""
        return bool(self.event(event).query())

    def start(self, call: Sync) -> _Done:
        """Synchronize on an event, when the answer is asked for."""
        return _Done(self.event(call.event))


class FaultyEvent:
    """An event as the fault lets the host see it."""

    __slots__ = ("_session", "name")

    def __init__(self, session: FaultySession, name: str) -> None:
        self._session, self.name = session, name

    def synchronize(self) -> None:
        """Block as long as the fault does."""
        waiter = self._session.start(Sync(event=self.name))
        returned = waiter.returned
        assert returned, "none of these faults keeps a synchronize for ever"

    def query(self) -> bool:
        """Ask as the fault answers."""
        return self._session.query(self.name)


class FaultySurface:
    """The calls of a surface that the pipeline makes, wrong in one way; everything else is the surface's own."""

    def __init__(self, surface: VendorSurface, fault: str, flags: EventFlags) -> None:
        """``flags``: of every event made here, the fault's own ones too."""
        self._surface, self._flags = surface, flags
        self._calls = _Calls(surface, flags)
        self._session = FaultySession(cast("Session", self._calls), fault)
        self._made = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._surface, name)

    def event(self, flags: EventFlags) -> FaultyEvent:
        """An event."""
        assert flags is self._flags, "one kind of event for each surface"
        self._made += 1
        return FaultyEvent(self._session, f"e{self._made}")

    def record(self, event: FaultyEvent, stream: Any) -> None:
        """Record an event."""
        self._session.issue(Record(stream=self._name(stream), event=event.name))

    def wait(self, stream: Any, event: FaultyEvent) -> None:
        """Make a stream wait for an event."""
        self._session.issue(Wait(stream=self._name(stream), event=event.name))

    def wait_stream(self, stream: Any, other: Any) -> None:
        """Make a stream wait for another."""
        self._session.issue(WaitStream(stream=self._name(stream), other=self._name(other)))

    def current(self, stream: Any) -> AbstractContextManager[object]:
        """Make a stream current."""
        return self._surface.current(stream)

    def _name(self, stream: Any) -> str:
        name = f"s{self._surface.handle(stream)}"
        self._calls.streams[name] = stream
        return name
