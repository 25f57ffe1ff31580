"""Faults over an API across two devices; the devices below are right. See `conformance.backends.fault_calls`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from conformance.backends.fault_calls import Through
from conformance.backends.fault_operations import WaitOrdersNoData
from probes.program import Copy, DeviceOp, Nop, Record, Sync, Wait, WaitStream, is_far, is_peer_copy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from conformance.backends.api import Clock, Request, Session, Waiter
    from probes.program import SyncDevice, SyncStream

#: What the program below calls an event that is recorded on the wrong device.
_OTHER: Final = "other_{}"


class _Across(Through):
    def crosses(self, op: DeviceOp) -> bool:
        """Does it wait for the other device?"""
        if isinstance(op, WaitStream):
            return is_far(op.other) is not is_far(op.stream)
        return isinstance(op, Wait) and is_far(self.recorded.get(op.event, op.stream)) is not is_far(op.stream)


class CrossDeviceWaitDropped(_Across):
    text = "leaves out device waits for another device, in both spellings"

    def issue(self, op: DeviceOp) -> None:
        """Leave it out."""
        super().issue(Nop(stream=op.stream) if self.crosses(op) else op)


class LateCrossDeviceWait(_Across):
    text = "delays host query and host synchronize where the next wait is for another device; device waits are in time"

    def __init__(self, inner: Session, request: Request, clock: Clock) -> None:
        super().__init__(inner, request, clock)
        self._open: dict[str, set[str]] = {}  # stream -> events with no wait behind them yet
        self._late: dict[str, str] = {}  # event -> one recorded behind that wait

    @classmethod
    def asked(cls, request: Request) -> Request:
        """Room for one more event each."""
        return replace(request, events=[*request.events, *map(_OTHER.format, request.events)])

    def issue(self, op: DeviceOp) -> None:
        """Record once more behind such a wait, for what is pending."""
        crosses = self.crosses(op)
        super().issue(op)
        if isinstance(op, Record):
            self._open.setdefault(op.stream, set()).add(op.event)
            self._late.pop(op.event, None)
        elif isinstance(op, (Wait, WaitStream)):
            for event in sorted(self._open.pop(op.stream, set())):
                if crosses and not self.inner.query(event):
                    self._late[event] = _OTHER.format(event)
                    self.inner.issue(Record(stream=op.stream, event=self._late[event]))

    def query(self, event: str) -> bool:
        """Ask that one."""
        return self.inner.query(self._late.get(event, event))

    def start(self, call: Sync | SyncStream | SyncDevice) -> Waiter:
        """Wait for that one."""
        if isinstance(call, Sync):
            call = Sync(event=self._late.get(call.event, call.event))
        return self.inner.start(call)


class WrongDeviceAccepted(Through):
    text = "drops the error of a record on another device, and the record with it"

    def issue(self, op: DeviceOp) -> None:
        """Leave it out."""
        if isinstance(op, Record) and is_far(self.recorded.get(op.event, op.stream)) is not is_far(op.stream):
            return
        super().issue(op)


class CrossDeviceElapsed(Through):
    text = "changes the time between events of two devices: there is one"

    def elapsed(self, start: str, end: str) -> float:
        """A number."""
        if is_far(self.recorded.get(start, "")) is not is_far(self.recorded.get(end, "")):
            return 1e-3
        return self.inner.elapsed(start, end)


class PeerCopyOrdersNoData(WaitOrdersNoData):
    text = "moves a copy between devices ahead of the waits right before it: it reads what was there before"

    def issue(self, op: DeviceOp) -> None:
        """As for every copy, but for these alone."""
        if isinstance(op, Copy) and not is_peer_copy(op):
            self._flush()
        super().issue(op)


#: The faults of this module by name.
SESSIONS: Final[Mapping[str, type[Through]]] = {
    "cross-device-wait-dropped": CrossDeviceWaitDropped,
    "late-cross-device-wait": LateCrossDeviceWait,
    "peer-copy-orders-no-data": PeerCopyOrdersNoData,
    "cross-device-elapsed": CrossDeviceElapsed,
    "wrong-device-accepted": WrongDeviceAccepted,
}
