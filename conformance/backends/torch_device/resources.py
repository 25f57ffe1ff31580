"""What sessions share: streams and buffers made once, before any gate closes, and the proof that they are idle.

While a gate is closed nothing may be allocated or freed (docs/hardware.md), so all memory is two
tensors, and every session takes rows of them.
"""

from __future__ import annotations

import ctypes
import itertools
from typing import TYPE_CHECKING, Any, Final

from conformance.errors import BackendUnavailable

if TYPE_CHECKING:
    from conformance.backends.api import Clock
    from conformance.backends.torch_device.surfaces import GenericSurface, VendorSurface

#: Words of 32 bits in a buffer: 4 KiB.
WORDS: Final = 1024
#: Buffers of each kind: the deepest pipeline takes one a step.
ROWS: Final = 136
#: Side streams a family: torch's pool has 32, and its first user gets the first.
STREAMS: Final = 24
#: Seconds in which work must end once no gate holds it.
DRAIN_LIMIT: Final = 5.0


def pinned(torch: Any, rows: int, columns: int) -> Any:
    """Zeroed pinned host memory of 32-bit words, rows by columns. Raises BackendUnavailable if torch gives another.

    A copy to pageable memory may be staged, and then says nothing about when it was done.
    """
    made = torch.empty((rows, columns), dtype=torch.int32, pin_memory=True)
    if not made.is_pinned():
        raise BackendUnavailable(
            "torch.empty(..., pin_memory=True) gives memory that is_pinned() calls pageable: no copy could be watched"
        )
    return made.zero_()


class Memory:
    """Device rows, and pinned host rows that the host reads by plain loads."""

    def __init__(self, torch: Any, device: Any, rows: int = ROWS) -> None:
        self.device = torch.zeros((rows, WORDS), dtype=torch.int32, device=device)
        self.host = pinned(torch, rows, WORDS)
        base, stride = self.host.data_ptr(), WORDS * 4
        self.words = [ctypes.c_uint32.from_address(base + row * stride) for row in range(rows)]
        self._size = stride

    def clear_host(self, rows: int) -> None:
        """Zero the first host rows; nothing may be writing to them."""
        ctypes.memset(self.host.data_ptr(), 0, rows * self._size)


class Tokens:
    """Shows that streams are idle: a token sent through each arrives in pinned memory.

    Asks no event, no query and no synchronize: those are the calls under test.
    """

    def __init__(self, torch: Any, device: Any, clock: Clock) -> None:
        self._clock = clock
        self._numbers = itertools.count(1)
        self._source = torch.zeros((STREAMS * 2 + 2, 16), dtype=torch.int32, device=device)
        self._target = pinned(torch, STREAMS * 2 + 2, 16)
        base = self._target.data_ptr()
        self._words = [ctypes.c_uint32.from_address(base + row * 64) for row in range(STREAMS * 2 + 2)]

    def drained(self, streams: list[tuple[VendorSurface | GenericSurface, Any]]) -> bool:
        """True once everything queued on these streams is done; False after `DRAIN_LIMIT`."""
        token = next(self._numbers) & 0x7FFFFFFF
        for row, (surface, stream) in enumerate(streams):
            with surface.current(stream):
                self._source[row].fill_(token)
                self._target[row].copy_(self._source[row], non_blocking=True)
        began, polls = self._clock.now(), 0
        while any(self._words[row].value != token for row in range(len(streams))):
            if self._clock.now() - began > DRAIN_LIMIT:
                return False
            self._clock.pause(polls)
            polls += 1
        return True
