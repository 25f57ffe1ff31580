"""The reference device's side of experiments: threads, blocks, graphs, another process, all under the virtual clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from conformance.backends.reference import ReferenceSession, _VirtualCall
from conformance.backends.reference.device import Device
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
    from conformance.backends.api import Request
    from conformance.backends.extras import CaptureMode
    from conformance.backends.reference import VirtualClock

#: Bytes from which a copy takes an engine of its own under one fault, and what such an engine does a second.
LARGE: Final = 65536
BANDWIDTH: Final = 1e10
#: Seconds that a slow query takes: more than is called at once, far below the deadline.
STALL: Final = 0.2
#: Seconds that a hung call takes: more than the deadline, less than a gate holds.
HUNG: Final = 1.2


def _stalls_once(device: Device, in_sync: bool, pending: bool) -> float:
    first, device.asked_pending = pending and not device.asked_pending, device.asked_pending or pending
    return STALL if first else 0.0


#: The faults of experiments, as in `conformance.backends.reference.faults`.
FAULTS: Final[dict[str, dict[str, Any]]] = {
    "blocking-spins": {"spins": lambda device, event, blocking: True},
    "copy-blocks-host": {"copy_blocks": lambda device, op: not device.stream_done(op.stream)},
    "query-blocks-in-sync": {"query_takes": lambda device, in_sync, pending: STALL if in_sync else 0.0},
    "query-hangs-in-sync": {"query_takes": lambda device, in_sync, pending: HUNG if in_sync else 0.0},
    "query-sticks": {"query_sticks": lambda device: True},
    "query-stalls": {"query_takes": _stalls_once},
    "record-blocks-in-sync": {"record_blocks_in_sync": lambda device: True},
    "wait-blocks-in-sync": {"wait_blocks_in_sync": lambda device: True},
    "records-mixed": {"mixes_records": lambda device: True},
    "captured-sync-returns": {"refuses_synchronize": lambda device: False},
    "stream-query-blocks-in-sync": {"stream_query_blocks": lambda device, in_sync: in_sync},
    "stream-destroy-blocks": {"stream_destroy_blocks": lambda device, pending: pending},
    "stream-destroy-drops-work": {"stream_destroy_drops": lambda device: True},
    "records-thread-local": {"recorded_elsewhere": lambda device, recorder: recorder != device.thread},
    "current-stream-shared": {"current_key": lambda device, thread: "every thread"},
    "large-copy-not-captured": {"arrives_after": lambda device, size: size / BANDWIDTH if size >= LARGE else 0.0},
    "kernel-store-late": {"stores_visible": lambda device: device.flushed > 0},
    "captured-query-succeeds": {"refuses_query": lambda device: False},
    "capture-takes-legacy": {"refuses_legacy": lambda device: False},
    "capture-mode-ignored": {"forbids_query": lambda device, mode, owner: owner != device.thread},
    "capture-global-open": {"forbids_query": lambda device, mode, owner: False},
    "capture-takes-outside-wait": {"refuses_outside_wait": lambda device: False},
    "ipc-always-complete": {"imported_complete": lambda device: True},
}


class Refused(DeviceError):
    """A call that a capture forbids."""


class _Call(_VirtualCall):
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


class _Refusal:
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


class BesideSession(ReferenceSession):
    """A session of the reference device with everything that experiments ask for."""

    def __init__(self, device: Device, clock: VirtualClock, request: Request) -> None:
        super().__init__(device, clock, request)
        self.device = device
        self.graph: VirtualGraphs | None = None
        self._recorder: dict[str, str] = {}
        self._last_record = ("", "")  # its thread and stream
        self._syncs: list[_Call] = []
        # Asked once: queries are what a run consists of.
        self._queries_take = type(device).query_takes is not Device.query_takes

    def extra(self, name: str) -> object:
        """What an experiment asks for."""
        made: dict[str, Callable[[BesideSession], object]] = {
            "threads": VirtualThreads,
            "block-copies": VirtualBlocks,
            "graph-capture": VirtualGraphs,
            "ipc-events": VirtualPeer,
            "ipc-events-across": lambda session: VirtualPeer(session, stream="far~peer"),
            "private-streams": VirtualPrivateStreams,
            "current-stream": VirtualCurrentStream,
        }
        return made[name](self)

    def issue(self, op: DeviceOp) -> None:
        """Queue one operation, or take it into the graph."""
        if self.graph is not None and self.graph.takes(op):
            return
        if self.device.owes_error:
            self.device.owes_error = False
            raise Refused("not ready: left behind by a query")
        if isinstance(op, Copy):
            copy = op
            self.device._block(lambda: self.device.copy_blocks(copy))
        elif isinstance(op, Record):
            op = self._recorded(op)
            if self.device.record_blocks_in_sync():
                self._while_synced(op.stream)
        elif isinstance(op, (Wait, WaitStream)) and self.device.wait_blocks_in_sync():
            bound = self.device.current.get(op.event) if isinstance(op, Wait) else None
            self._while_synced(op.other if isinstance(op, WaitStream) else bound.stream if bound else "")
        super().issue(op)

    def _recorded(self, op: Record) -> Record:
        """Note who records, and where; the operation as the device takes it."""
        thread, (before, stream) = self.device.thread, self._last_record
        self._recorder[op.event], self._last_record = thread, (thread, op.stream)
        mixed = before not in ("", thread) and self.device.mixes_records()
        return Record(stream=stream, event=op.event) if mixed else op

    def _while_synced(self, stream: str) -> None:
        self.device._block(lambda: self._in_sync(SyncStream(stream=stream)))

    def query(self, event: str) -> bool:
        """Ask the event."""
        if self.graph is not None and event in self.graph.captured:
            self.graph.refuse(f"event {event} was recorded in a capture")
            return True
        open_graph = self.graph if self.graph is not None and self.graph.streams else None
        if open_graph is not None and self.device.forbids_query(open_graph.mode, open_graph.owner):
            open_graph.refuse(f"query of event {event} beside a capture in mode {open_graph.mode}", always=True)
        if self._queries_take:
            self.device.advance(
                self.device.query_takes(self._in_sync(Sync(event=event)), not Device.query(self.device, event))
            )
        if event in self._recorder and self.device.recorded_elsewhere(self._recorder[event]):
            return True
        complete = super().query(event)
        self.device.owes_error = not complete and self.device.query_sticks()
        return complete

    def query_stream(self, stream: str) -> bool:
        """Ask the stream."""
        if self.graph is not None and stream in self.graph.streams:
            self.graph.refuse(f"stream {stream} is being captured")
            return True
        self.device._block(lambda: self.device.stream_query_blocks(self._in_sync(SyncStream(stream=stream))))
        return super().query_stream(stream)

    def start(self, call: Sync | SyncStream | SyncDevice) -> _Call | _Refusal:
        """Enter a synchronizing call."""
        graph = self.graph
        if graph is not None and (
            (isinstance(call, Sync) and call.event in graph.captured)
            or (isinstance(call, SyncStream) and call.stream in graph.streams)
        ):
            refused = self.device.refuses_synchronize()
            return _Refusal(Refused("synchronize: the stream or event belongs to a capture") if refused else None)
        self._syncs.append(_Call(self, call))
        return self._syncs[-1]

    def _in_sync(self, call: Sync | SyncStream) -> bool:
        return any(sync.call == call and not sync.returned for sync in self._syncs)


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

    def synchronize(self) -> _Call:
        """Enter synchronize there."""
        return _Call(self._session, Sync(event=self._event), imported=True)

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
