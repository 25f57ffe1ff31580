"""Host threads by name, for experiments on devices in real time; they are kept from one session to the next."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from conformance.backends.calls import HelperPool, yield_interpreter
from conformance.errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Callable

    from conformance.backends.calls import HelperCall

#: Seconds in which a new thread must have made its first call; no gate is closed then.
START: Final = 10.0


class HostThreads:
    """Threads of one backend. Each is made ready by ``first``, in the thread itself, before its first call."""

    def __init__(self, name: str, first: Callable[[], object]) -> None:
        self._name, self._first = name, first
        self._pools: dict[str, HelperPool] = {}

    def start(self, thread: str, function: Callable[[], object]) -> HelperCall:
        """Have ``function`` called by the thread now. A thread whose call never returned is replaced."""
        return self._pools[thread].start(function)

    def prepare(self, thread: str) -> None:
        """See that the thread is there. Raises DeviceError if it cannot be made ready, before any gate closes."""
        if thread in self._pools:
            return
        pool = self._pools[thread] = HelperPool(f"{self._name}-{thread}")
        call, began = pool.start(self._first), time.perf_counter()
        while not call.returned:
            if time.perf_counter() - began > START:
                raise DeviceError(f"{self._name}: a new host thread cannot use the device within {START:g} s")
            yield_interpreter()
        if call.error is not None:
            raise call.error

    def close(self) -> None:
        """End those that are idle."""
        for pool in self._pools.values():
            pool.close()


class SessionThreads:
    """The threads as one session has them: what they were told to do is kept in ``calls``, for its close."""

    def __init__(self, threads: HostThreads, calls: list[HelperCall]) -> None:
        self._threads, self._calls = threads, calls

    def prepare(self, *threads: str) -> None:
        """Start these threads, before any gate closes."""
        for thread in threads:
            self._threads.prepare(thread)

    def call(self, thread: str, function: Callable[[], object]) -> HelperCall:
        """Have ``function`` called by the thread now."""
        self._calls.append(self._threads.start(thread, function))
        return self._calls[-1]

    def burn(self, thread: str, seconds: float) -> HelperCall:
        """Have the thread use its processor for so long."""

        def burn() -> None:
            end = time.perf_counter() + seconds
            while time.perf_counter() < end:
                pass

        return self.call(thread, burn)
