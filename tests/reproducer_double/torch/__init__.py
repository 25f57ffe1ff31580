"""A torch that runs on the stand-in driver of tests/driver_double: as much of it as a reproducer uses.

`FAKE_LIBRARIES` names the folder with the libraries, `FAKE_DEFECT` what is wrong with the device.
"""

from __future__ import annotations

import ctypes
import os
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_FOLDER = Path(os.environ["FAKE_LIBRARIES"])
_DEFECT = os.environ.get("FAKE_DEFECT", "")
_lib = ctypes.CDLL(str(_FOLDER / "libcuda.so.1"))
_rtc = ctypes.CDLL(str(_FOLDER / "libnvrtc.so.13"))
_lib.double_stream.restype = _lib.double_event.restype = ctypes.c_void_p
_lib.double_done.restype = ctypes.c_ulonglong
_pointer, _number = ctypes.c_void_p, ctypes.c_ulonglong
_CALL = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_kept: list[Any] = []

version = SimpleNamespace(cuda="13.0", hip=None)
int32 = "int32"


class Stream:
    def __init__(self) -> None:
        self.cuda_stream = _lib.double_stream()
        self.recorded: list[Event] = []

    def synchronize(self) -> None:
        _lib.double_sync(_pointer(self.cuda_stream))

    def wait_event(self, event: Event) -> None:
        if _DEFECT != "wait-dropped":
            _lib.double_wait(_pointer(self.cuda_stream), _pointer(event.raw), _number(event.version))
        if _DEFECT == "late-next-wait":
            for earlier in {id(e): e for e in self.recorded if not e.query()}.values():
                earlier.record(self)
            self.recorded.clear()

    def wait_stream(self, other: Stream) -> None:
        event = Event()
        event.record(other)
        self.wait_event(event)
        _kept.append(event)


class Event:
    def __init__(self, *, enable_timing: bool = False, blocking: bool = False) -> None:
        self.raw, self.version = _lib.double_event(), 0

    def record(self, stream: Stream) -> None:
        self.version += 1
        _lib.double_record(_pointer(self.raw), _number(self.version), _pointer(stream.cuda_stream))
        stream.recorded.append(self)

    def query(self) -> bool:
        return _DEFECT == "query-always-true" or bool(_lib.double_done(_pointer(self.raw)) >= self.version)

    def synchronize(self) -> None:
        while not self.query():
            time.sleep(1e-4)


class Tensor:
    def __init__(self, count: int) -> None:
        self.words = (ctypes.c_uint32 * count)()

    def data_ptr(self) -> int:
        return ctypes.addressof(self.words)

    def fill_(self, value: int) -> None:
        _queue(lambda _: self.words.__setitem__(0, value))

    def copy_(self, source: Tensor, *, non_blocking: bool) -> None:
        assert non_blocking
        _queue(lambda _: self.words.__setitem__(0, source.words[0]))


def _queue(function: Any) -> None:
    called = _CALL(function)
    _kept.append(called)
    _lib.double_host(_pointer(_current[-1].cuda_stream), called, None)


def zeros(count: int, *, dtype: str, pin_memory: bool = False, device: str = "cpu") -> Tensor:
    assert dtype == int32
    return Tensor(count)


@contextmanager
def _entered(stream: Stream) -> Iterator[None]:
    _current.append(stream)
    try:
        yield
    finally:
        _current.pop()


_default = Stream()
_current = [_default]
cuda = SimpleNamespace(
    Stream=Stream,
    Event=Event,
    stream=_entered,
    default_stream=lambda: _default,
    is_available=lambda: _DEFECT != "no device",
    synchronize=_lib.double_enter,
    current_device=lambda: 0,
    get_device_properties=lambda _: SimpleNamespace(major=9, minor=0),
)
