"""One program's streams, events, gates and buffers on a torch device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from conformance.backends.torch_device.resources import ROWS
from conformance.errors import DeviceError, HarnessError, Unsupported
from probes.program import (
    DEFAULT_STREAM,
    Copy,
    DeviceOp,
    Fill,
    Gate,
    HostFn,
    Nop,
    Record,
    Sync,
    SyncDevice,
    SyncStream,
    Wait,
    WaitStream,
    is_blocking_stream,
    is_far,
    is_high_priority,
    is_host_buffer,
    is_peer_copy,
)

if TYPE_CHECKING:
    from conformance.backends.api import Opinion, Request
    from conformance.backends.calls import HelperCall
    from conformance.backends.torch_device import TorchBackend
    from conformance.backends.torch_device.surfaces import Surface

#: What the adapter does not do, with the call that would be needed.
UNSUPPORTED: Final[Mapping[str, str]] = {
    "slow-copy": "no copy call of torch or its vendors ends when the host says so",
    "host-copy": "Tensor.copy_ between two host tensors is done by the host at once, not in stream order",
}


class TorchSession:
    """Streams and events of torch, gates of the ladder, rows of the shared memory."""

    def __init__(self, backend: TorchBackend, request: Request) -> None:
        self._backend, self._limit, self._flags = backend, request.gate_limit, request.flags
        self._second = request.second_gate
        self._surfaces: dict[str, Surface] = {
            name: backend.far().surface if is_far(name) else backend.surface_of(request.families.get(name))
            for name in request.streams
        }
        surfaces = {surface for name, surface in self._surfaces.items() if not is_far(name)}
        free = {surface: iter(backend.streams(surface)) for surface in surfaces}
        blocking = {surface: iter(backend.others(surface).blocking) for surface in surfaces}
        high = {surface: iter(backend.others(surface).high) for surface in surfaces}
        self._streams: dict[str, Any] = {}
        for name, surface in self._surfaces.items():
            if name == DEFAULT_STREAM:
                self._streams[name] = surface.default_stream()
            elif is_far(name):
                self._streams[name] = backend.far().streams[sum(map(is_far, self._streams))]
            else:
                kind = blocking if is_blocking_stream(name) else high if is_high_priority(name) else free
                self._streams[name] = next(kind[surface], None)
            if self._streams[name] is None:
                raise HarnessError(f"{backend.name}: a program with more than {len(self._streams) - 1} streams")
        host = [name for name in request.buffers if is_host_buffer(name)]
        device = [name for name in request.buffers if not is_host_buffer(name)]
        if max(len(host), len(device)) > ROWS:
            raise HarnessError(f"{backend.name}: a program with more than {ROWS} buffers of a kind")
        memory = backend.memory
        self._host = {name: memory.host[row] for row, name in enumerate(host)}
        self._words = {name: memory.words[row] for row, name in enumerate(host)}
        near, far = ([n for n in device if is_far(n) is side] for side in (False, True))
        self._device = {name: memory.device[row] for row, name in enumerate(near)}
        if far:
            self._device |= {name: backend.far().rows[row] for row, name in enumerate(far)}
            backend.far().clear(len(far))
        memory.clear_host(len(host))
        # Events belong to the family of the stream that records them; an unrecorded one to the first waiter's.
        self._events: dict[str, Any] = {}
        self._gates: dict[str, Any] = {}
        self._calls: list[HelperCall] = []
        self._closed: bool | None = None
        self._endings: list[Callable[[], object]] = []  # called once the device is idle
        if request.functions:
            backend.functions.begin(request.functions)
        backend.clear_device(len(near))

    def issue(self, op: DeviceOp) -> None:
        """Queue one operation by the calls that an engine makes."""
        if isinstance(op, Nop):
            return
        surface, stream = self._surfaces[op.stream], self._streams[op.stream]
        if isinstance(op, Gate):
            shared = self._backend.one_gate_at_a_time(second=self._second)
            if shared and not all(gate.ended() for gate in self._gates.values()):
                raise Unsupported("several-gates", "one callback thread of the driver runs all host functions")
            far = is_far(op.stream)
            taken = self._backend.far().take_gate() if far else self._backend.take_gate(second=self._second)
            gate = self._gates[op.gate] = taken
            gate.enqueue(surface.gated(stream), self._limit)
        elif isinstance(op, Fill):
            with surface.current(stream):
                self._device[op.buffer].fill_(op.value)
        elif isinstance(op, Copy):
            self._copy(op, surface, stream)
        elif isinstance(op, Record):
            surface.record(self._event(op.event, surface), stream)
        elif isinstance(op, Wait):
            surface.wait(stream, self._event(op.event, surface))
        elif isinstance(op, WaitStream):
            surface.wait_stream(stream, self._streams[op.other])
        elif isinstance(op, HostFn):
            self._host_function(op, surface.gated(stream))

    def _host_function(self, op: HostFn, stream: Any) -> None:
        functions = self._backend.functions
        if functions.missing:
            raise Unsupported("host-fn", functions.missing)
        functions.queue(stream, op.name)
        if op.until is not None:
            # Its second half: the driver's thread waits in libc until the gate is opened.
            if self._backend.one_gate_at_a_time(second=self._second) and self._gates:
                raise Unsupported("several-gates", "cuLaunchHostFunc: one callback thread runs all host functions")
            gate = self._gates[op.until] = functions.gate
            gate.enqueue(stream, self._limit)

    def _copy(self, op: Copy, surface: Surface, stream: Any) -> None:
        if op.until is not None:
            raise Unsupported("slow-copy", UNSUPPORTED["slow-copy"])
        if is_host_buffer(op.source) and is_host_buffer(op.target):
            raise Unsupported("host-copy", UNSUPPORTED["host-copy"])
        source = (self._host if is_host_buffer(op.source) else self._device)[op.source]
        target = (self._host if is_host_buffer(op.target) else self._device)[op.target]
        peer = is_peer_copy(op)
        with self._backend.far().peer_copy(surface, stream) if peer else surface.current(stream):
            target.copy_(source, non_blocking=True)

    def _event(self, name: str, surface: Surface) -> Any:
        if name not in self._events:
            self._events[name] = surface.event(self._flags)
        return self._events[name]

    def handles(self) -> Mapping[str, int]:
        """The raw handle of each stream."""
        return {name: self._surfaces[name].handle(stream) for name, stream in self._streams.items()}

    def open(self, gate: str) -> None:
        """Open a gate by a host store."""
        self._gates[gate].open()

    def ended(self, gate: str) -> bool:
        """True once the gate's word says that it holds no more."""
        return gate in self._gates and self._gates[gate].ended()

    def query(self, event: str) -> bool:
        """Ask the event."""
        return bool(self._event(event, self._backend.main_surface).query())

    def ask_below(self, event: str) -> Opinion:
        """Ask the vendor's driver or runtime about the event's raw handle."""
        return self._backend.ask_below(self._event(event, self._backend.main_surface))

    def query_stream(self, stream: str) -> bool:
        """Ask the stream."""
        return bool(self._streams[stream].query())

    def read(self, buffer: str) -> int:
        """A plain load from pinned memory."""
        return int(self._words[buffer].value)

    def calls(self, function: str) -> int:
        """How often a host function was called."""
        return self._backend.functions.calls(function)

    def elapsed(self, start: str, end: str) -> float:
        """Seconds between two events, by torch's elapsed_time; raises what that raises."""
        surface = self._backend.main_surface
        return surface.elapsed(self._event(start, surface), self._event(end, surface))

    def destroy(self, event: str) -> None:
        """Drop the last reference to the event: the vendor's event is destroyed here."""
        self._events.pop(event, None)

    def start(self, call: Sync | SyncStream | SyncDevice) -> HelperCall:
        """Synchronize in a helper thread; torch gives up the interpreter lock in each of these."""
        blocking: Callable[[], object]
        if isinstance(call, Sync):
            blocking = self._event(call.event, self._backend.main_surface).synchronize
        elif isinstance(call, SyncStream):
            blocking = self._streams[call.stream].synchronize
        else:
            blocking = self._synchronize
        helper = self._backend.helpers.start(blocking)
        self._calls.append(helper)
        return helper

    def _synchronize(self) -> None:
        """Every device that the program uses."""
        for index in sorted({surface.index for surface in self._surfaces.values()} | {self._backend.index}):
            self._backend.module.synchronize(index)

    def extra(self, name: str) -> object:
        """What an experiment asks for, before any gate closes."""
        return self._backend.beside.extra(self, name)

    def close(self) -> bool:
        """Open every gate, prove the streams idle by tokens and words, drop the events."""
        if self._closed is not None:
            return self._closed
        for gate in self._gates.values():
            gate.open()
        streams = [(self._surfaces[name], stream) for name, stream in self._streams.items()]
        self._closed = self._backend.settle(streams, list(self._gates.values()), self._calls)
        self._events.clear()
        while self._closed and self._endings:
            self._endings.pop()()
        return self._closed


def not_idle(name: str) -> DeviceError:
    """The error of a device that an earlier program left busy."""
    return DeviceError(f"{name}: an earlier program's work has not ended, so nothing more can be said in this process")
