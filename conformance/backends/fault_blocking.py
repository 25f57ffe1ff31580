"""Faults over an API in which a call holds the host, or its processor, for longer than it should.

As in `conformance.backends.fault_calls`, the device below is right; each hold ends after a while by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from conformance.backends.calls import HelperPool, yield_interpreter
from conformance.backends.fault_calls import BLOCKED, STALL, HeldCall, Through
from probes.program import Copy, DeviceOp, Gate, Record, Sync, SyncDevice, SyncStream, Wait, WaitStream

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from conformance.backends.api import Clock, Request, Session, Waiter


class Blocking(Through):
    """Holds the host while something is not so, for longer than any deadline at most."""

    def __init__(self, inner: Session, request: Request, clock: Clock) -> None:
        super().__init__(inner, request, clock)
        self._gates: dict[str, list[str]] = {}  # stream -> its gates
        self._syncs: list[tuple[Sync | SyncStream | SyncDevice, Waiter]] = []

    def issue(self, op: DeviceOp) -> None:
        """Remember gates."""
        if isinstance(op, Gate):
            self._gates.setdefault(op.stream, []).append(op.gate)
        super().issue(op)

    def start(self, call: Sync | SyncStream | SyncDevice) -> Waiter:
        """Remember it."""
        self._syncs.append((call, self.inner.start(call)))
        return self._syncs[-1][1]

    def held(self, stream: str | None) -> bool:
        """Is a gate of the stream closed?"""
        return any(not self.inner.ended(gate) for gate in self._gates.get(stream or "", ()))

    def synced(self, call: Sync | SyncStream) -> bool:
        """Is a thread inside this call?"""
        return any(made == call and not waiter.returned for made, waiter in self._syncs)

    def hold(self, condition: Callable[[], bool], most: float | None = None) -> None:
        """Stay in the call while it is so, for ``most`` seconds."""
        began, polls = self.clock.now(), 0
        while condition() and self.clock.now() - began < (BLOCKED if most is None else most):
            self.clock.pause(polls)
            polls += 1


class RecordBlocksHost(Blocking):
    text = "the call that records returns only when its stream's gates are open, or after a while"

    def issue(self, op: DeviceOp) -> None:
        """Hold it."""
        if isinstance(op, Record):
            self.hold(lambda: self.held(op.stream))
        super().issue(op)


class WaitBlocksHost(Blocking):
    text = "the call that waits returns only when the gates of the awaited stream are open, or after a while"

    def issue(self, op: DeviceOp) -> None:
        """Hold it."""
        if isinstance(op, (Wait, WaitStream)):
            other = op.other if isinstance(op, WaitStream) else self.recorded.get(op.event)
            self.hold(lambda: self.held(other))
        super().issue(op)


class CopyBlocksHost(Blocking):
    text = "the call that copies returns only when its stream's gates are open, or after a while"

    def issue(self, op: DeviceOp) -> None:
        """Hold it."""
        if isinstance(op, Copy):
            self.hold(lambda: self.held(op.stream))
        super().issue(op)


class QueryBlocksInSync(Blocking):
    text = "query stays inside for a fifth of a second while another thread is in synchronize on the same event"

    def query(self, event: str) -> bool:
        """Hold it."""
        self.hold(lambda: self.synced(Sync(event=event)), STALL)
        return self.inner.query(event)


class QueryHangsInSync(Blocking):
    text = "query stays inside while another thread is in synchronize on the same event, or for a while"

    def query(self, event: str) -> bool:
        """Hold it."""
        self.hold(lambda: self.synced(Sync(event=event)))
        return self.inner.query(event)


class QueryStalls(Blocking):
    text = "the first query of a program that finds its event pending comes back after a fifth of a second"

    def __init__(self, inner: Session, request: Request, clock: Clock) -> None:
        super().__init__(inner, request, clock)
        self._stalled = False

    def query(self, event: str) -> bool:
        """Hold it, once."""
        complete = self.inner.query(event)
        if not complete and not self._stalled:
            self._stalled = True
            self.hold(lambda: True, STALL)
        return complete


class StreamQueryBlocksInSync(Blocking):
    text = "a stream's query stays inside while another thread is in synchronize on it, or for a while"

    def query_stream(self, stream: str) -> bool:
        """Hold it."""
        self.hold(lambda: self.synced(SyncStream(stream=stream)))
        return self.inner.query_stream(stream)


class RecordBlocksInSync(Blocking):
    text = "the call that records stays inside while another thread is in synchronize on its stream, or for a while"

    def issue(self, op: DeviceOp) -> None:
        """Hold it."""
        if isinstance(op, Record):
            self.hold(lambda: self.synced(SyncStream(stream=op.stream)))
        super().issue(op)


class WaitBlocksInSync(Blocking):
    text = "the call that waits stays inside while another thread synchronizes on the awaited stream, or for a while"

    def issue(self, op: DeviceOp) -> None:
        """Hold it."""
        if isinstance(op, (Wait, WaitStream)):
            other = op.other if isinstance(op, WaitStream) else self.recorded.get(op.event, "")
            self.hold(lambda: self.synced(SyncStream(stream=other)))
        super().issue(op)


class _Busy(HeldCall):
    """A call on a virtual clock that used its processor all the time."""

    def __init__(self, call: Any) -> None:
        super().__init__([call], lambda: True)
        self._call = call

    @property
    def seconds(self) -> float:
        """How long it took."""
        return float(self._call.seconds)

    cpu = seconds


class BlockingSpins(Through):
    text = "synchronize on an event with the blocking flag asks it again and again"

    def start(self, call: Sync | SyncStream | SyncDevice) -> Waiter:
        """Spin in a thread."""
        if not isinstance(call, Sync) or self.request.flags.value != "blocking":
            return self.inner.start(call)
        if self.clock.virtual:
            return _Busy(self.inner.start(call))
        event = call.event

        def spin() -> None:
            while not self.inner.query(event):
                yield_interpreter()

        pool = HelperPool("spinning")
        waiter = pool.start(spin)
        pool.close()  # the thread ends with its call
        return waiter


#: The sessions of these faults, as in `conformance.backends.fault_calls`.
SESSIONS: Final[Mapping[str, type[Through]]] = {
    "record-blocks-host": RecordBlocksHost,
    "wait-blocks-host": WaitBlocksHost,
    "copy-blocks-host": CopyBlocksHost,
    "query-blocks-in-sync": QueryBlocksInSync,
    "query-hangs-in-sync": QueryHangsInSync,
    "query-stalls": QueryStalls,
    "stream-query-blocks-in-sync": StreamQueryBlocksInSync,
    "record-blocks-in-sync": RecordBlocksInSync,
    "wait-blocks-in-sync": WaitBlocksInSync,
    "blocking-spins": BlockingSpins,
}
