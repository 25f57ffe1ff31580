"""What a torch device has for experiments: threads, blocks of any size, a kernel that stores, streams of one's own.

Graphs and the other process are in `graphs` and `peers`. Everything is made, loaded and used once before
it is handed out, since no gate is closed then.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from conformance.backends.gates import GateError, GateUnsupported
from conformance.backends.threads import HostThreads, SessionThreads
from conformance.backends.torch_device.far import missing, second_index
from conformance.backends.torch_device.graphs import DriverGraphs
from conformance.backends.torch_device.inside import Inside
from conformance.backends.torch_device.peers import Peer, TorchPeers
from conformance.backends.torch_device.surfaces import REFUSALS, external_stream
from conformance.errors import DeviceError, Unsupported, needed

if TYPE_CHECKING:
    from collections.abc import Collection

    from conformance.backends.gates import Native
    from conformance.backends.torch_device import TorchBackend
    from conformance.backends.torch_device.session import TorchSession

#: Words looked at before a whole block is: a copy that is under way is caught at its end.
SAMPLES: Final = 64
#: Threads of the kernel that stores.
STORERS: Final = 256
#: The flag of a stream that the default stream does not order: the same number on CUDA and HIP.
NON_BLOCKING: Final = 1


class Block:
    """A device tensor and a pinned host tensor of one size."""

    def __init__(self, torch: Any, device: Any, size: int) -> None:
        self.size, self.count = size, size // 4
        self.device = torch.zeros(self.count, dtype=torch.int32, device=device)
        self.host = torch.zeros(self.count, dtype=torch.int32, pin_memory=True)
        self.words = (ctypes.c_uint32 * self.count).from_address(self.host.data_ptr())

    def clear(self) -> None:
        """Zero the host part; nothing may be writing to it."""
        ctypes.memset(self.host.data_ptr(), 0, self.size)

    def holds(self, word: int) -> bool:
        """Is every host word ``word``? The last ones first."""
        step = max(1, self.count // SAMPLES)
        if any(self.words[index] != word for index in range(self.count - 1, -1, -step)):
            return False
        return bool((self.host == word).all())


class Beside:
    """What one backend keeps for experiments from session to session."""

    def __init__(self, backend: TorchBackend) -> None:
        self.backend = backend
        self.threads = HostThreads(backend.name, lambda: backend.module.set_device(backend.index))
        self.blocks: dict[int, Block] = {}
        self.storing: set[int] = set()  # sizes that the kernel has stored once
        self.peers: dict[int, Peer] = {}  # by the device of the other process's stream

    @property
    def native(self) -> Native:
        """The vendor's driver. Raises Unsupported where no gate could reach it."""
        if self.backend.ladder is None:
            raise Unsupported("driver", "the vendor's driver was not opened, since no gate works")
        return self.backend.ladder.native

    def extra(self, session: TorchSession, name: str) -> object:
        """What an experiment asks for. Raises Unsupported with the call that is missing."""
        inside = Inside(self.backend, session)
        if name == "threads":
            return SessionThreads(self.threads, inside.calls)
        if name == "block-copies":
            return TorchBlocks(self, inside)
        if name == "private-streams":
            return DriverStreams(self.native, inside)
        if name == "graph-capture":
            return DriverGraphs(self.native, inside)
        if name == "ipc-events":
            return TorchPeers(self, inside, self.backend.index)
        if name == "ipc-events-across":
            return TorchPeers(self, inside, self.backend.far().index)
        return TorchCurrentStream(inside)

    def expect(self, names: Collection[str]) -> None:
        """Start the processes that these extras need: that takes them seconds. They open no device until asked."""
        backend = self.backend
        if backend.surface == "generic":
            return
        with suppress(Unsupported, OSError, *REFUSALS):  # said again when a session asks
            if "ipc-events" in names:
                self.peer(backend.index)
            if "ipc-events-across" in names and not missing(backend.module, backend.vendor.module, backend.surface):
                self.peer(second_index(backend.module, backend.index))

    def peer(self, own: int) -> Peer:
        """The process whose stream is on device ``own``; another one where it has gone. Raises Unsupported."""
        peer = self.peers.get(own)
        if peer is not None and peer.refused:
            raise peer.refusal()
        if peer is None or peer.gone:
            peer = self.peers[own] = Peer(self.backend.name, self.backend.index, own)
        return peer

    def idle(self, inside: Inside) -> None:
        """Prove the session's streams idle. Raises DeviceError if they are not."""
        if not self.backend.settle(inside.lanes, [], []):
            raise DeviceError(f"{self.backend.name}: the device did not become idle before an experiment")

    def close(self) -> None:
        """End the threads and the other process."""
        self.threads.close()
        for peer in self.peers.values():
            peer.dismiss()  # all of them first: each takes a while to give its device back
        for peer in self.peers.values():
            peer.close()


class TorchBlocks:
    """Blocks that are kept by size: one of a size is enough for a session."""

    def __init__(self, beside: Beside, inside: Inside) -> None:
        self._beside, self._inside = beside, inside
        self._blocks: dict[str, Block] = {}

    def make(self, name: str, size: int, *, stored: bool = False) -> None:
        """A block whose host part is zero."""
        beside, kept = self._beside, self._beside.blocks
        if size not in kept:
            kept[size] = Block(beside.backend.torch, beside.backend.memory.device.device, size)
            self._blocks[name] = kept[size]
            self._used(name)
        self._blocks[name] = kept[size]
        if stored and size not in beside.storing:
            try:
                self.store(self._inside.first, name, 1)
            except GateError as error:
                raise Unsupported("pinned-kernel", str(error)) from error
            beside.storing.add(size)
            beside.idle(self._inside)
        kept[size].clear()

    def _used(self, name: str) -> None:
        self.fill(self._inside.first, name, 1)
        self.copy(self._inside.first, name)
        self._beside.idle(self._inside)

    def fill(self, stream: str, name: str, value: int) -> None:
        """Queue a fill of the device part."""
        with self._inside.current(stream):
            self._blocks[name].device.fill_(_word(value))

    def copy(self, stream: str, name: str) -> None:
        """Queue a copy to the host part."""
        block = self._blocks[name]
        with self._inside.current(stream):
            block.host.copy_(block.device, non_blocking=True)

    def store(self, stream: str, name: str, value: int) -> None:
        """Queue a kernel that stores to the host part. Raises GateError if there is none."""
        native, block = self._beside.native, self._blocks[name]
        source = (files("probes") / "kernels" / "store.c").read_text(encoding="utf-8")
        function = native.kernel("store", source)
        native.enter()
        pointer = ctypes.c_void_p(block.host.data_ptr())
        with suppress(GateUnsupported):  # then one address space is assumed
            native.call("pointer", ctypes.byref(pointer), ctypes.c_void_p(block.host.data_ptr()), ctypes.c_uint(0))
        arguments = pointer, ctypes.c_uint(_word(value)), ctypes.c_uint(block.count)
        parameters = (ctypes.c_void_p * len(arguments))(*map(ctypes.addressof, arguments))
        handle = ctypes.c_void_p(native.handle(self._inside.gated(stream)))
        native.call("launch", function, 1, 1, 1, STORERS, 1, 1, 0, handle, parameters, None)

    def holds(self, name: str, value: int) -> bool:
        """Is the data there?"""
        return self._blocks[name].holds(_word(value))


class DriverStreams:
    """Streams that the driver makes and destroys; torch's own are pooled and live for ever.

    What torch copies on a stream it remembers by that stream, so these copies are the driver's.
    """

    def __init__(self, native: Native, inside: Inside) -> None:
        self._native, self._inside = native, inside
        for role in ("newstream", "dropstream", "tohost"):
            _needed(native, role, "private-streams")
        self._handles: dict[str, ctypes.c_void_p] = {}
        inside.at_end(self._destroy_rest)

    def make(self, stream: str) -> None:
        """A non-blocking stream."""
        handle = ctypes.c_void_p()
        self._native.enter()
        self._native.call("newstream", ctypes.byref(handle), ctypes.c_uint(NON_BLOCKING))
        self._handles[stream] = handle
        self._inside.adopt(stream, external_stream(self._native.module, handle.value or 0, self._inside.backend.index))

    def copy(self, stream: str, source: str, target: str) -> None:
        """Queue a copy to a host buffer."""
        device, host = self._inside.row(source), self._inside.row(target)
        self._native.enter()
        self._native.call(
            "tohost",
            ctypes.c_void_p(host.data_ptr()),
            ctypes.c_void_p(device.data_ptr()),
            ctypes.c_size_t(host.numel() * host.element_size()),
            self._handles[stream],
        )

    def destroy(self, stream: str) -> None:
        """Destroy it; the session forgets it first."""
        self._inside.forget(stream)
        handle = self._handles.pop(stream)
        self._native.enter()
        self._native.call("dropstream", handle)

    def _destroy_rest(self) -> None:
        """Those that nobody destroyed: a control keeps its stream, and an error may come before the call."""
        for stream in list(self._handles):
            self.destroy(stream)


class TorchCurrentStream:
    """torch's current stream of the calling thread."""

    def __init__(self, inside: Inside) -> None:
        self._inside = inside
        needed(inside.current_module, "set_stream", "current-stream")

    def enter(self, stream: str | None) -> None:
        """Make a stream current, from now on."""
        self._inside.make_current(stream)

    def copy(self, source: str, target: str) -> None:
        """Copy where torch's operations go."""
        self._inside.row(target).copy_(self._inside.row(source), non_blocking=True)


def _needed(native: Native, role: str, capability: str) -> None:
    """Raise Unsupported for a function that the driver does not have."""
    try:
        native.function(role)
    except GateUnsupported as error:
        raise Unsupported(capability, str(error)) from error


def _word(value: int) -> int:
    """A word of which every byte is ``value``."""
    return value * 0x01010101
