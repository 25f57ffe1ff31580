"""The wait-value gate: stream memory operations, without a kernel."""

from __future__ import annotations

import ctypes
from typing import Any, ClassVar

from conformance.backends.gates.base import Gate
from conformance.backends.gates.libraries import GateError
from conformance.backends.gates.words import ENDED, ENTERED, OPEN


class WaitValueGate(Gate):
    """Holds by a wait for OPEN to reach the ticket: no kernel, no multiprocessor, no limit in the device.

    Each closed one holds a hardware connection (of 8, usually), and later work queues up behind the last.
    """

    kind: ClassVar[str] = "wait-value"
    bound: ClassVar[str] = "supervisor"

    def prepare(self) -> None:
        """Look both functions up, so that a missing one is told before anything is queued."""
        if self.words.unseen:  # its only limit is somebody else's store
            raise GateError(f"the parent process could not open it: {self.words.unseen}")
        self.native.function("wait")
        self.native.function("write")

    def launch(self, stream: Any, ticket: int, limit_s: float) -> None:
        """Queue three operations: write ENTERED, wait for OPEN, write ENDED."""
        handle, value, flags = ctypes.c_void_p(self.native.handle(stream)), ctypes.c_uint32(ticket), ctypes.c_uint(0)
        extra = (ctypes.c_uint32(argument) for argument in self.native.vendor.wait_extra)

        def at(word: int) -> ctypes.c_void_p:
            return ctypes.c_void_p(self.device + 4 * word)

        # Armed first: if a later call fails, its wait may be queued already.
        self.watchdog.arm(self, ticket, limit_s)
        self.native.call("write", handle, at(ENTERED), value, flags)
        self.native.call("wait", handle, at(OPEN), value, flags, *extra)  # flags 0: (int)(*p - value) >= 0
        self.native.call("write", handle, at(ENDED), value, flags)
