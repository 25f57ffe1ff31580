"""Faults over an API that only experiments meet: calls that block, threads, blocks, captures, another process.

As in `conformance.backends.fault_calls`, the device below is right; what an experiment asks a session for
is wrapped, or given as it is.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

from conformance.backends.calls import HelperPool, yield_interpreter
from conformance.backends.fault_calls import BLOCKED, STALL, HeldCall, Through
from probes.program import DEFAULT_STREAM, Copy, DeviceOp, Gate, Record, Sync, SyncDevice, SyncStream, Wait, WaitStream

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from conformance.backends.api import Clock, Request, Session, Waiter

#: Bytes from which a copy goes elsewhere under one fault.
LARGE: Final = 65536


class _Blocking(Through):
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


class RecordBlocksHost(_Blocking):
    text = "the call that records returns only when its stream's gates are open, or after a while"

    def issue(self, op: DeviceOp) -> None:
        """Hold it."""
        if isinstance(op, Record):
            self.hold(lambda: self.held(op.stream))
        super().issue(op)


class WaitBlocksHost(_Blocking):
    text = "the call that waits returns only when the gates of the awaited stream are open, or after a while"

    def issue(self, op: DeviceOp) -> None:
        """Hold it."""
        if isinstance(op, (Wait, WaitStream)):
            other = op.other if isinstance(op, WaitStream) else self.recorded.get(op.event)
            self.hold(lambda: self.held(other))
        super().issue(op)


class CopyBlocksHost(_Blocking):
    text = "the call that copies returns only when its stream's gates are open, or after a while"

    def issue(self, op: DeviceOp) -> None:
        """Hold it."""
        if isinstance(op, Copy):
            self.hold(lambda: self.held(op.stream))
        super().issue(op)


class QueryBlocksInSync(_Blocking):
    text = "query stays inside for a fifth of a second while another thread is in synchronize on the same event"

    def query(self, event: str) -> bool:
        """Hold it."""
        self.hold(lambda: self.synced(Sync(event=event)), STALL)
        return self.inner.query(event)


class QueryHangsInSync(_Blocking):
    text = "query stays inside while another thread is in synchronize on the same event, or for a while"

    def query(self, event: str) -> bool:
        """Hold it."""
        self.hold(lambda: self.synced(Sync(event=event)))
        return self.inner.query(event)


class QueryStalls(_Blocking):
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


class StreamQueryBlocksInSync(_Blocking):
    text = "a stream's query stays inside while another thread is in synchronize on it, or for a while"

    def query_stream(self, stream: str) -> bool:
        """Hold it."""
        self.hold(lambda: self.synced(SyncStream(stream=stream)))
        return self.inner.query_stream(stream)


class RecordBlocksInSync(_Blocking):
    text = "the call that records stays inside while another thread is in synchronize on its stream, or for a while"

    def issue(self, op: DeviceOp) -> None:
        """Hold it."""
        if isinstance(op, Record):
            self.hold(lambda: self.synced(SyncStream(stream=op.stream)))
        super().issue(op)


class WaitBlocksInSync(_Blocking):
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


class Wrapped:
    """What an experiment was given, with some calls replaced."""

    def __init__(self, inner: Any, session: Any) -> None:
        self.inner, self.session = inner, session

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class Wrapping(Through):
    """Gives one extra wrapped."""

    name: str
    wrapper: type[Wrapped]

    def extra(self, name: str) -> object:
        """Wrapped if it is the one, or the one across devices."""
        made = super().extra(name)
        return self.wrapper(made, self) if name.startswith(self.name) else made


class _LargeElsewhere(Wrapped):
    def make(self, name: str, size: int, *, stored: bool = False) -> None:
        """Keep the size in mind."""
        self.inner.make(name, size, stored=stored)
        self.large = size >= LARGE
        self.kept: Callable[[], object] | None = None

    def copy(self, stream: str, name: str) -> None:
        """A large one is kept in the host."""
        if self.large:
            self.kept = lambda: self.inner.copy(stream, name)
        else:
            self.inner.copy(stream, name)

    def holds(self, name: str, value: int) -> bool:
        """Once a gate was opened, the copy follows the first look."""
        there = bool(self.inner.holds(name, value))
        if self.kept is not None and self.session.opened:
            self.kept()
            self.kept = None
        return there


class LargeCopyNotCaptured(Wrapping):
    text = "queues a large copy to the host behind the record that should have taken it in"
    name, wrapper = "block-copies", _LargeElsewhere
    opened = False

    def open(self, gate: str) -> None:
        """Note it."""
        self.opened = True
        self.inner.open(gate)


class _StoresLate(Wrapped):
    stored = False

    def store(self, stream: str, name: str, value: int) -> None:
        """Note it."""
        self.stored = True
        self.inner.store(stream, name, value)

    def holds(self, name: str, value: int) -> bool:
        """Not before a stream was synchronized."""
        return (self.session.entered or not self.stored) and self.inner.holds(name, value)


class KernelStoreLate(Wrapping):
    text = "changes what the host finds of a kernel's stores: nothing, until it synchronized a stream or the device"
    name, wrapper = "block-copies", _StoresLate
    entered = False

    def start(self, call: Sync | SyncStream | SyncDevice) -> Waiter:
        """Note it."""
        self.entered |= not isinstance(call, Sync)
        return self.inner.start(call)


class Named(Wrapped):
    def call(self, thread: str, function: Callable[[], object]) -> Any:
        """Let the fault know which thread calls."""

        def named() -> object:
            here = self.session.here
            before, here.thread = getattr(here, "thread", ""), thread
            try:
                return function()
            finally:
                here.thread = before

        return self.inner.call(thread, named)


class RecordsThreadLocal(Wrapping):
    text = "query in a thread that did not record the event says that it is complete"
    name, wrapper = "threads", Named

    def __init__(self, inner: Session, request: Request, clock: Clock) -> None:
        super().__init__(inner, request, clock)
        self.here = threading.local()
        self._recorders: dict[str, str] = {}

    def issue(self, op: DeviceOp) -> None:
        """Remember who records."""
        if isinstance(op, Record):
            self._recorders[op.event] = getattr(self.here, "thread", "")
        super().issue(op)

    def query(self, event: str) -> bool:
        """Yes to anyone else."""
        here = getattr(self.here, "thread", "")
        return self._recorders.get(event, here) != here or self.inner.query(event)


class RecordsMixed(Wrapping):
    text = "queues a record that follows one of another thread on that one's stream"
    name, wrapper = "threads", Named

    def __init__(self, inner: Session, request: Request, clock: Clock) -> None:
        super().__init__(inner, request, clock)
        self.here = threading.local()
        self._lock = threading.Lock()
        self._last = ("", "")

    def issue(self, op: DeviceOp) -> None:
        """Elsewhere, if a thread other than the last one records."""
        if isinstance(op, Record):
            thread = getattr(self.here, "thread", "")
            with self._lock:
                (before, stream), self._last = self._last, (thread, op.stream)
            if before not in ("", thread):
                op = Record(stream=stream, event=op.event)
        super().issue(op)


class _Shared(Wrapped):
    stream = DEFAULT_STREAM

    def enter(self, stream: str | None) -> None:
        """For every thread."""
        self.stream = stream or DEFAULT_STREAM

    def copy(self, source: str, target: str) -> None:
        """On whatever any thread entered last."""
        self.session.inner.issue(Copy(stream=self.stream, source=source, target=target))


class CurrentStreamShared(Wrapping):
    text = "a thread's current stream is every thread's"
    name, wrapper = "current-stream", _Shared


class _Lying(Wrapped):
    def share(self, event: str) -> object:
        """The event there is not what it is here."""
        return _Complete(self.inner.share(event), self.session)


class _Complete(Wrapped):
    def query(self) -> bool:
        """Yes."""
        return True

    def synchronize(self) -> Waiter:
        """Returns."""
        return HeldCall([], lambda: True)

    def queue(self, token: int, *, behind: bool) -> None:
        """Never behind anything."""
        self.inner.queue(token, behind=False)


class IpcAlwaysComplete(Wrapping):
    text = "another process takes a shared event for complete: query, synchronize and device waits"
    name, wrapper = "ipc-events", _Lying


class _Slow(Wrapped):
    def destroy(self, stream: str) -> None:
        """Stay in the call while the stream is held."""
        self.session.hold(lambda: self.session.held(stream))
        self.inner.destroy(stream)


class StreamDestroyBlocks(_Blocking):
    text = "the call that destroys a stream returns only when its gates are open, or after a while"

    def extra(self, name: str) -> object:
        """Its own streams are slow to go."""
        made = super().extra(name)
        return _Slow(made, self) if name == "private-streams" else made


class _Dropping(Wrapped):
    def copy(self, stream: str, source: str, target: str) -> None:
        """Kept in the host, so that it can be lost."""
        self.session.kept[stream] = lambda: self.inner.copy(stream, source, target)

    def destroy(self, stream: str) -> None:
        """Lost."""
        self.session.kept.pop(stream, None)
        self.inner.destroy(stream)


class StreamDestroyDropsWork(Wrapping):
    text = "copies of a stream that was destroyed meanwhile are never queued"
    name, wrapper = "private-streams", _Dropping

    def __init__(self, inner: Session, request: Request, clock: Clock) -> None:
        super().__init__(inner, request, clock)
        self.kept: dict[str, Callable[[], object]] = {}

    def open(self, gate: str) -> None:
        """What was kept and not lost is queued now."""
        for stream in list(self.kept):
            self.kept.pop(stream)()
        self.inner.open(gate)


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
    "large-copy-not-captured": LargeCopyNotCaptured,
    "kernel-store-late": KernelStoreLate,
    "records-thread-local": RecordsThreadLocal,
    "records-mixed": RecordsMixed,
    "current-stream-shared": CurrentStreamShared,
    "ipc-always-complete": IpcAlwaysComplete,
    "stream-destroy-blocks": StreamDestroyBlocks,
    "stream-destroy-drops-work": StreamDestroyDropsWork,
}
