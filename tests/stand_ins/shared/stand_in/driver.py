"""The compiled stand-in for a vendor's driver, tied to the streams of the runtime in this process."""

from __future__ import annotations

import ctypes
import glob
import os
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from stand_in.device import Accelerator

#: What driver.c calls a short operation: it is done at once when its stream reaches it.
WRITE = 2


class Driver:
    """The libraries below ``root``/lib, if they are there: what is launched through them runs on ``accelerator``.

    ``names``: patterns of the library that has the streams, and of the one that allocates pinned memory.
    """

    def __init__(self, accelerator: Accelerator, root: str, names: tuple[str, str], allocate: str) -> None:
        self._accelerator, self._allocate = accelerator, allocate
        self._events: dict[int, str] = {}
        self.ranges: list[tuple[int, int]] = []  # (address, size) of pinned memory
        paths = [sorted(glob.glob(os.path.join(root, "lib", name))) if root else [] for name in names]
        self.lib: Any = ctypes.CDLL(paths[0][0]) if paths[0] else None
        self._memory: Any = ctypes.CDLL(paths[1][0]) if paths[1] else None
        if self.lib is not None:
            take = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)(self._take)
            ask = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(self._ask)
            make = ctypes.CFUNCTYPE(ctypes.c_void_p)(self._accelerator.new_blocking_stream)
            self._kept = take, ask, make
            self.lib.double_attach(take, ask, make)

    def _take(self, handle: int | None, task: int, what: int) -> None:
        stream = self._accelerator.stream_of(handle or 0)

        def perform() -> None:
            self.lib.double_perform(ctypes.c_void_p(task))

        if what == WRITE:
            self._accelerator.launch(stream, "gate", perform)
        else:
            self._accelerator.launch(stream, "gate", long=perform)

    def _ask(self, handle: int | None) -> int:
        event = self._events.get(handle or 0)
        return -1 if event is None else int(self._accelerator.query_raw(event))

    def enter(self) -> None:
        """Make the context current in this thread, as the runtime's own calls do."""
        if self.lib is not None:
            self.lib.double_enter()

    def sleep(self, stream: int, iterations: int) -> None:
        """Queue a kernel that counts to ``iterations``, which says nothing about the time that takes."""
        seconds = 2e-9 * iterations
        self._accelerator.launch(stream, "host-fn", long=lambda: time.sleep(seconds))

    def event(self, name: str, handle: int) -> None:
        """Let the driver know an event by its raw handle."""
        self._events[handle] = name

    def forget(self, handle: int) -> None:
        """The event is destroyed."""
        self._events.pop(handle, None)

    def pinned(self, size: int) -> ctypes.Array[ctypes.c_char]:
        """Host memory by the driver's own allocation; without a driver just memory."""
        if self._memory is None:
            memory = (ctypes.c_char * (size + 1))()
        else:
            pointer = ctypes.c_void_p()
            allocate: Callable[..., int] = self._memory[self._allocate]
            if code := allocate(ctypes.byref(pointer), ctypes.c_size_t(size + 1), ctypes.c_uint(0)):
                raise RuntimeError(f"{self._allocate} returned {code}")
            memory = (ctypes.c_char * (size + 1)).from_address(pointer.value or 0)
        self.ranges.append((ctypes.addressof(memory), size + 1))
        return memory

    def is_pinned(self, address: int) -> bool:
        """Does the driver know this address?"""
        return any(start <= address < start + size for start, size in self.ranges)
