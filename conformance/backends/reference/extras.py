"""What a session of the reference device gives to experiments: threads, blocks, graphs, another process, streams.

All of it goes through the session's own calls and the device's hooks, under the virtual clock; of the
faults nothing is known here.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from conformance.backends.reference import _VirtualCall
from conformance.errors import DeviceError
from probes.program import (
    DEFAULT_STREAM,
    Copy,
    DeviceOp,
    Fill,
    Record,
    Sync,
    SyncDevice,
    SyncStream,
    Wait,
    WaitStream,
    is_blocking_stream,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from conformance.backends.extras import CaptureMode
    from conformance.backends.reference.beside import BesideSession
    from conformance.backends.reference.device import Device


class Refused(DeviceError):
    """A call that a capture forbids."""


class VirtualSync(_VirtualCall):
    """A synchronize that tells what it cost."""

    def __init__(self, session: BesideSession, call: Sync | SyncStream | SyncDevice, *, imported: bool = False) -> None:
        super().__init__(session.device, call)
        self.call, self._session, self._imported = call, session, imported
        self._began = self._ended = session.device.clock
        self._done = False

    @property
    def returned(self) -> bool:
        """Would the call have returned by now?"""
        if not self._done:
            self._done = (self._imported and self._session.device.imported_complete()) or super().returned
            self._ended = self._session.device.clock
        return self._done

    @property
    def seconds(self) -> float:
        """How long the call took."""
        return self._ended - self._began

    @property
    def cpu(self) -> float:
        """Virtual seconds of processor time."""
        event = self.call.event if isinstance(self.call, Sync) else ""
        device = self._session.device
        return self.seconds if device.spins(event, event in device.blocking) else 0.0


class RefusedSync:
    """A synchronize that was refused, or should have been."""

    returned, seconds, cpu = True, 0.0, 0.0

    def __init__(self, error: Refused | None) -> None:
        self.error: BaseException | None = error


class _Made:
    """A call of another thread, made to its end before anything else happens: the clock is virtual."""

    returned = True

    def __init__(self, device: Device, thread: str, function: Callable[[], object], cpu: float = 0.0) -> None:
        self.error: BaseException | None = None
        self.cpu = cpu
        before, began, device.thread = device.thread, device.clock, thread
        try:
            function()
        except Exception as error:  # noqa: BLE001 - kept, not swallowed: whoever polls this call reads it
            self.error = error
        finally:
            device.thread, self.seconds = before, device.clock - began


class VirtualThreads:
    """Host threads that run one after the other."""

    def __init__(self, session: BesideSession) -> None:
        self._device = session.device

    def prepare(self, *threads: str) -> None:
        """They are there."""

    def call(self, thread: str, function: Callable[[], object]) -> _Made:
        """Make the call."""
        return _Made(self._device, thread, function)

    def burn(self, thread: str, seconds: float) -> _Made:
        """Let time pass in which the thread uses its processor."""
        return _Made(self._device, thread, lambda: self._device.advance(seconds), seconds)


class VirtualBlocks:
    """Blocks: buffers with a size, and kernels that write them."""

    def __init__(self, session: BesideSession) -> None:
        self._session, self._sizes = session, dict[str, int]()
        self._stored: set[str] = set()

    def make(self, name: str, size: int, *, stored: bool = False) -> None:
        """A block."""
        self._sizes[name] = size

    def fill(self, stream: str, name: str, value: int) -> None:
        """Fill the device part."""
        self._session.issue(Fill(stream=stream, buffer=name, value=value))

    def copy(self, stream: str, name: str) -> None:
        """Copy to the host part."""
        self._stored.discard(name)
        self._session.issue(Copy(stream=stream, source=name, target=f"h{name}"))

    def store(self, stream: str, name: str, value: int) -> None:
        """Store to the host part."""
        self._stored.add(name)
        self._session.issue(Fill(stream=stream, buffer=f"h{name}", value=value))

    def holds(self, name: str, value: int) -> bool:
        """Is the data there?"""
        device, host = self._session.device, f"h{name}"
        if device.read(host) != value or (name in self._stored and not device.stores_visible()):
            return False
        written = device.written.get(host)
        return not written or device.clock >= written[-1].ended + device.arrives_after(self._sizes[name])


class VirtualGraphs:
    """One graph: the operations that were issued while it was captured."""

    def __init__(self, session: BesideSession) -> None:
        self._session = session
        self.streams: set[str] = set()
        self.captured: set[str] = set()  # events whose last record lies in a capture
        self._operations: list[DeviceOp] = []
        self._spoilt = ""
        self.mode: CaptureMode = "relaxed"
        self.owner = ""  # the thread that began it

    def begin(self, stream: str, mode: CaptureMode = "relaxed") -> None:
        """Begin with one stream; others join by a wait for what it records."""
        self.mode, self.owner = mode, self._session.device.thread
        self._session.graph, self.streams, self._operations, self._spoilt = self, {stream}, [], ""

    @contextmanager
    def relaxed(self) -> Iterator[None]:
        """No mode binds the thread for a block."""
        device = self._session.device
        before, device.relaxed = device.relaxed, device.relaxed | {device.thread}
        try:
            yield
        finally:
            device.relaxed = before

    def takes(self, op: DeviceOp) -> bool:
        """Does this operation belong to the capture? Raises Refused for a wait that leads out of it."""
        if isinstance(op, Wait) and op.event in self.captured and self.streams:
            self.streams.add(op.stream)
        if op.stream not in self.streams:
            beside = op.stream == DEFAULT_STREAM and any(map(is_blocking_stream, self.streams))
            if beside and self._session.device.refuses_legacy():
                self.refuse("the default stream is used beside the capture", always=True)
            if isinstance(op, Record):
                self.captured.discard(op.event)
            return False
        outside = isinstance(op, WaitStream) or (isinstance(op, Wait) and op.event not in self.captured)
        if outside and self._session.device.refuses_outside_wait():
            self.refuse("a wait for what is not captured", always=True)
        if isinstance(op, Record):
            self.captured.add(op.event)
        self._operations.append(op)
        return True

    def refuse(self, why: str, *, always: bool = False) -> None:
        """Spoil the capture. Raises Refused."""
        if always or self._session.device.refuses_query():
            self._spoilt = why
            raise Refused(f"capture: {why}")

    def end(self, stream: str) -> None:
        """End it. Raises Refused if it was spoilt."""
        self.streams = set()
        if self._spoilt:
            raise Refused(f"capture: {self._spoilt}")

    def launch(self, stream: str) -> None:
        """Queue what was captured, under names of its own."""
        last = [op for op in self._operations if op.stream != stream]
        for op in self._operations:
            event = f"~{op.event}" if isinstance(op, (Record, Wait)) else ""
            if isinstance(op, Record):
                self._session.issue(Record(stream=op.stream, event=event))
            elif isinstance(op, Wait):
                self._session.issue(Wait(stream=op.stream, event=event))
            else:
                if op in last[:1]:  # a launch begins when its stream gets there, on whatever streams it runs
                    self._session.issue(WaitStream(stream=op.stream, other=stream))
                self._session.issue(op)

    def discard(self) -> None:
        """Forget the graph; a capture under way ends. What was recorded in it stays so until it is recorded again."""
        self.streams, self._operations = set(), []


class VirtualPeer:
    """Another process: the same devices, seen through what was imported."""

    ready = True

    def __init__(self, session: BesideSession, stream: str = "~peer") -> None:
        self._session, self._stream = session, stream

    def share(self, event: str) -> VirtualImported:
        """Open the event there."""
        return VirtualImported(self._session, event, self._stream)


class VirtualImported:
    """An event in another process."""

    def __init__(self, session: BesideSession, event: str, stream: str) -> None:
        self._session, self._event, self._stream = session, event, stream

    def query(self) -> bool:
        """Ask it there."""
        return self._session.device.imported_complete() or self._session.query(self._event)

    def synchronize(self) -> VirtualSync:
        """Enter synchronize there."""
        return VirtualSync(self._session, Sync(event=self._event), imported=True)

    def queue(self, token: int, *, behind: bool) -> None:
        """Queue a token there."""
        if behind and not self._session.device.imported_complete():
            self._session.issue(Wait(stream=self._stream, event=self._event))
        self._session.issue(Fill(stream=self._stream, buffer="~token", value=token))
        self._session.issue(Copy(stream=self._stream, source="~token", target="h~token"))

    def token(self) -> int:
        """The last token there."""
        return self._session.read("h~token")

    def close(self) -> None:
        """Nothing is held."""


class VirtualPrivateStreams:
    """Streams that can be destroyed."""

    def __init__(self, session: BesideSession) -> None:
        self._session = session

    def make(self, stream: str) -> None:
        """A stream exists once it is used."""

    def copy(self, stream: str, source: str, target: str) -> None:
        """Queue a copy."""
        self._session.issue(Copy(stream=stream, source=source, target=target))

    def destroy(self, stream: str) -> None:
        """Destroy it."""
        device = self._session.device
        device._block(lambda: device.stream_destroy_blocks(not device.stream_done(stream)))
        if device.stream_destroy_drops():
            for task in device.tasks:
                if task.stream == stream and task.started is None:
                    task.kind, task.done = "dropped", True
            device.settle()


class VirtualCurrentStream:
    """The current stream of each thread."""

    def __init__(self, session: BesideSession) -> None:
        self._session, self._current = session, dict[str, str]()

    def _key(self) -> str:
        return self._session.device.current_key(self._session.device.thread)

    def enter(self, stream: str | None) -> None:
        """Make a stream current; None: the default one."""
        self._current[self._key()] = stream or DEFAULT_STREAM

    def copy(self, source: str, target: str) -> None:
        """Copy on the current stream."""
        stream = self._current.get(self._key(), DEFAULT_STREAM)
        self._session.issue(Copy(stream=stream, source=source, target=target))
