"""The reference device's sessions for experiments: calls from threads, into captures and beside synchronizes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conformance.backends.reference import ReferenceSession
from conformance.backends.reference.device import Device
from conformance.backends.reference.extras import (
    Refused,
    RefusedSync,
    VirtualBlocks,
    VirtualCurrentStream,
    VirtualGraphs,
    VirtualPeer,
    VirtualPrivateStreams,
    VirtualSync,
    VirtualThreads,
)
from probes.program import Copy, DeviceOp, Record, Sync, SyncDevice, SyncStream, Wait, WaitStream

if TYPE_CHECKING:
    from collections.abc import Callable

    from conformance.backends.api import Request
    from conformance.backends.reference import VirtualClock


class BesideSession(ReferenceSession):
    """A session of the reference device with everything that experiments ask for."""

    def __init__(self, device: Device, clock: VirtualClock, request: Request) -> None:
        super().__init__(device, clock, request)
        self.device = device
        self.graph: VirtualGraphs | None = None
        self._recorder: dict[str, str] = {}
        self._last_record = ("", "")  # its thread and stream
        self._syncs: list[VirtualSync] = []
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

    def start(self, call: Sync | SyncStream | SyncDevice) -> VirtualSync | RefusedSync:
        """Enter a synchronizing call."""
        graph = self.graph
        if graph is not None and (
            (isinstance(call, Sync) and call.event in graph.captured)
            or (isinstance(call, SyncStream) and call.stream in graph.streams)
        ):
            refused = self.device.refuses_synchronize()
            return RefusedSync(Refused("synchronize: the stream or event belongs to a capture") if refused else None)
        self._syncs.append(VirtualSync(self, call))
        return self._syncs[-1]

    def _in_sync(self, call: Sync | SyncStream) -> bool:
        return any(sync.call == call and not sync.returned for sync in self._syncs)
