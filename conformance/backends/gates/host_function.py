"""The host-function gate: the driver's callback thread waits in libc."""

from __future__ import annotations

import ctypes
from typing import Any, ClassVar

from conformance.backends.gates.base import Gate
from conformance.backends.gates.words import EXPIRED, OPENED, SEMAPHORES, Semaphores
from conformance.loader import CDLL


class HostFunctionGate(Gate):
    """Holds by libc's sem_wait in the driver's thread: no Python, no compiler, no limit in the device.

    There may be one such thread: a closed gate then holds every other host function of the process, and
    a second gate may be entered although it cannot be released before the first.
    """

    kind: ClassVar[str] = "host-function"
    bound: ClassVar[str] = "supervisor"
    block: ClassVar[int] = SEMAPHORES

    def prepare(self) -> None:
        """Look everything up; the semaphores are in the block."""
        self.native.function("host")
        self._semaphores = Semaphores(self._view, self.base)
        libc = CDLL(None)
        self._post = ctypes.cast(libc.sem_post, ctypes.c_void_p)
        self._wait = ctypes.cast(libc.sem_wait, ctypes.c_void_p)

    def begin(self, ticket: int) -> None:
        """Tell the supervisor which use is next, and forget a post that the last one did not need."""
        self._semaphores.begin(ticket)

    def launch(self, stream: Any, ticket: int, limit_s: float) -> None:
        """Queue three host functions: post `entered`, wait for `open`, post `ended`."""
        handle, semaphores = ctypes.c_void_p(self.native.handle(stream)), self._semaphores
        self.watchdog.arm(self, ticket, limit_s)
        self.native.call("host", handle, self._post, semaphores.entered)
        self.native.call("host", handle, self._wait, semaphores.open)
        self.native.call("host", handle, self._post, semaphores.ended)

    def open(self) -> None:
        """Post `open`, unless this process or the supervisor has done so for the current use."""
        if self.used:
            self._semaphores.release(self.ticket)

    def opened(self) -> bool:
        """True if the current use was opened, by this process or the supervisor, or expired by the watchdog."""
        return self.used and self._view[self.base + OPENED] == self.ticket

    def entered(self) -> bool:
        """True once the stream has reached the current use."""
        return self.used and self._semaphores.count(self._semaphores.entered) >= self.ticket

    def ended(self) -> bool:
        """True if the current use holds no more, or there was none."""
        return self._semaphores.count(self._semaphores.ended) >= self.ticket

    def expired(self) -> bool:
        """True if the watchdog ended the current use."""
        return self.used and self._view[self.base + EXPIRED] == self.ticket

    def expire(self, ticket: int) -> None:
        """The watchdog's action: marks first, opens then."""
        self._semaphores.release(ticket, expired=True)
