"""Faults over what only experiments ask a session for: threads, blocks, another process, streams of their own.

As in `conformance.backends.fault_calls`, the device below is right; what an experiment asks a session for
is wrapped, or given as it is.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

from conformance.backends.fault_blocking import Blocking
from conformance.backends.fault_calls import HeldCall, Through
from probes.program import DEFAULT_STREAM, Copy, DeviceOp, Record, Sync, SyncDevice, SyncStream

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from conformance.backends.api import Clock, Request, Session, Waiter

#: Bytes from which a copy goes elsewhere under one fault.
LARGE: Final = 65536


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


class StreamDestroyBlocks(Blocking):
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
    "large-copy-not-captured": LargeCopyNotCaptured,
    "kernel-store-late": KernelStoreLate,
    "records-thread-local": RecordsThreadLocal,
    "records-mixed": RecordsMixed,
    "current-stream-shared": CurrentStreamShared,
    "ipc-always-complete": IpcAlwaysComplete,
    "stream-destroy-blocks": StreamDestroyBlocks,
    "stream-destroy-drops-work": StreamDestroyDropsWork,
}
