"""The stand-in runtime and driver as a program sees them that looks functions up by name: ctypes."""

from __future__ import annotations

import ctypes
from typing import Any, Final

NOT_READY: Final = 600
#: Vendor -> file name of its runtime's stand-in.
RUNTIMES: Final = {"cuda": "libcudart.so.13", "hip": "libamdhip64.so.7", "musa": "libmusart.so.5"}

_WORD: Final = ctypes.c_uint32


class Refused(RuntimeError):
    """A call returned something else than 0 or "not ready"."""


class Api:
    """Streams, events and words of one API family; found in LD_LIBRARY_PATH."""

    def __init__(self, family: str) -> None:
        """``family``: a vendor of `RUNTIMES`, or "cu" for the driver."""
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.family = family
        self.library = self.driver if family == "cu" else ctypes.CDLL(RUNTIMES[family])
        self._odd = {"EventDestroy": "EventDestroy_v2", "StreamDestroy": "StreamDestroy_v2"} if family == "cu" else {}
        self._odd |= {"DeviceSynchronize": "CtxSynchronize"} if family == "cu" else {}

    def code(self, name: str, *arguments: object) -> int:
        """What the call returns."""
        function = getattr(self.library, self.family + self._odd.get(name, name))
        return int(function(*arguments))

    def must(self, name: str, *arguments: object) -> bool:
        """True for 0, False for "not ready". Raises Refused for anything else."""
        code = self.code(name, *arguments)
        if code not in (0, NOT_READY):
            raise Refused(f"{self.family}{name} returned {code}")
        return code == 0

    def _make(self, library: Any, name: str, flags: int) -> ctypes.c_void_p:
        made = ctypes.c_void_p()
        if code := getattr(library, name)(ctypes.byref(made), ctypes.c_uint(flags)):
            raise Refused(f"{name} returned {code}")
        return made

    def stream(self) -> ctypes.c_void_p:
        """A new stream."""
        return self._make(
            self.library, self.family + ("StreamCreate" if self.family == "cu" else "StreamCreateWithFlags"), 1
        )

    def event(self, flags: int = 2) -> ctypes.c_void_p:
        """A new event; 1: blocking, 2: without timing."""
        return self._make(
            self.library, self.family + ("EventCreate" if self.family == "cu" else "EventCreateWithFlags"), flags
        )

    def record(self, event: ctypes.c_void_p, stream: ctypes.c_void_p) -> None:
        self.must("EventRecord", event, stream)

    def wait(self, stream: ctypes.c_void_p, event: ctypes.c_void_p) -> None:
        self.must("StreamWaitEvent", stream, event, ctypes.c_uint(0))

    def wait_stream(self, stream: ctypes.c_void_p, other: ctypes.c_void_p) -> None:
        """As torch does: an event that is gone before its wait ends."""
        event = self.event()
        self.record(event, other)
        self.wait(stream, event)
        self.must("EventDestroy", event)

    def query(self, event: ctypes.c_void_p) -> bool:
        return self.must("EventQuery", event)

    def sync(self, event: ctypes.c_void_p) -> None:
        self.must("EventSynchronize", event)

    def copy(self, target: ctypes.Array[_WORD], source: ctypes.Array[_WORD], stream: ctypes.c_void_p) -> None:
        kind = () if self.family == "cu" else (ctypes.c_int(4),)
        self.must("MemcpyAsync", target, source, ctypes.c_size_t(ctypes.sizeof(target)), *kind, stream)

    # What no fault is laid over.

    def fill(self, target: ctypes.Array[_WORD], value: int, stream: ctypes.c_void_p) -> None:
        self.driver.cuMemsetD32Async(target, ctypes.c_uint32(value), ctypes.c_size_t(1), stream)

    def gate(self, stream: ctypes.c_void_p) -> ctypes.Array[_WORD]:
        """A word; the stream goes on when it is 1."""
        word = (_WORD * 1)()
        self.driver.cuStreamWaitValue32_v2(stream, word, ctypes.c_uint32(1), ctypes.c_uint(0))
        return word

    def complete(self, event: ctypes.c_void_p) -> bool:
        """The truth."""
        return bool(self.driver.double_complete(event))
