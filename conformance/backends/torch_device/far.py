"""A second device: one stream, a few rows of memory and a drain of its own, made when a program first asks.

Nothing is made there for a run without a program that spans two devices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from conformance.backends.api import EventFlags
from conformance.backends.torch_device.resources import WORDS, Tokens
from conformance.backends.torch_device.surfaces import VendorSurface

if TYPE_CHECKING:
    from conformance.backends.torch_device import TorchBackend

#: Streams and buffers there.
STREAMS: Final = 2
ROWS: Final = 4


class Far:
    """The device after the one in use, or the first; used and idle before any gate closes."""

    def __init__(self, backend: TorchBackend) -> None:
        module, torch, vendor = backend.module, backend.torch, backend.main_surface.vendor
        index = second_index(module, backend.index)
        device = torch.device(vendor.module, index)
        self.surface = VendorSurface(torch, module, vendor, index)
        self.memory = torch.zeros((ROWS, WORDS), dtype=torch.int32, device=device)
        self.streams = [self.surface.stream() for _ in range(STREAMS)]
        self.tokens = Tokens(torch, device, backend.clock)
        near = backend.streams(backend.main_surface)[0]
        for stream in self.streams:
            with self.surface.current(stream):
                self.memory[0].fill_(1)
                backend.memory.host[0].copy_(self.memory[0], non_blocking=True)
            for flags in EventFlags:
                event, back = self.surface.event(flags), self.surface.event(flags)
                backend.main_surface.record(event, near)
                self.surface.wait(stream, event)
                self.surface.record(back, stream)
                backend.main_surface.wait(near, back)
        self.surface.synchronize()
        backend.main_surface.synchronize()
        backend.memory.clear_host(1)

    def clear(self) -> None:
        """Zero the rows, and see that done."""
        with self.surface.current(self.streams[0]):
            self.memory.zero_()
        self.tokens.drained([(self.surface, self.streams[0])])


def second_index(module: Any, index: int) -> int:
    """Another device than ``index``; only where `missing` has nothing to say."""
    return (index + 1) % int(module.device_count())


def missing(module: Any, name: str, surface: str) -> str | None:
    """Why there is no second device to be had."""
    if surface != "vendor":
        return f"the surface {surface} drives one device"
    count = int(module.device_count())
    return None if count > 1 else f"torch.{name}.device_count() is {count}"
