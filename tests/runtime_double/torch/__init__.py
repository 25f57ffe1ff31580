"""As much of torch as decode_client.py and stream_threads.py use, over the stand-in runtime.

Device memory is host memory.
"""

from __future__ import annotations

import ctypes
import threading
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from api import Api

if TYPE_CHECKING:
    from collections.abc import Iterator

int32 = "int32"
_api = Api("cuda")
_words = ctypes.c_uint32


class _Current(threading.local):
    """The current streams of a thread."""

    def __init__(self) -> None:
        self.stack = [Stream()]


class Tensor:
    """Words at an address."""

    def __init__(self, words: Any, owner: Any) -> None:
        self.words, self._owner = words, owner

    def __getitem__(self, at: Any) -> Any:
        if not isinstance(at, slice):
            return self.words[at]
        part = (_words * (at.stop - at.start)).from_buffer(self._owner, 4 * at.start)
        return Tensor(part, self._owner)

    def pin_memory(self) -> Tensor:
        return self

    def copy_(self, source: Tensor, *, non_blocking: bool) -> None:
        assert non_blocking
        _api.copy(self.words, source.words, _current.stack[-1].handle)

    def fill_(self, value: int) -> None:
        _api.fill(self.words, value, _current.stack[-1].handle)

    def to(self, device: str, *, non_blocking: bool) -> Tensor:
        assert device == "cpu"
        made = zeros(len(self.words))
        made.copy_(self, non_blocking=non_blocking)
        return made


def zeros(count: int, **_: object) -> Tensor:
    words = (_words * count)()
    return Tensor(words, words)


def arange(count: int, **_: object) -> Tensor:
    words = (_words * count)(*range(count))
    return Tensor(words, words)


class Stream:
    """A stream."""

    def __init__(self) -> None:
        self.handle = _api.stream()

    def wait_stream(self, other: Stream) -> None:
        _api.wait_stream(self.handle, other.handle)

    def wait_event(self, event: Event) -> None:
        _api.wait(self.handle, event.raw)

    def synchronize(self) -> None:
        _api.must("StreamSynchronize", self.handle)


class Event:
    """An event."""

    def __init__(self, *, blocking: bool = False, enable_timing: bool = False) -> None:
        self.raw = _api.event((0 if enable_timing else 2) | blocking)

    def __del__(self) -> None:
        _api.must("EventDestroy", self.raw)

    def record(self, stream: Stream) -> None:
        _api.record(self.raw, stream.handle)

    def query(self) -> bool:
        return _api.query(self.raw)

    def synchronize(self) -> None:
        _api.sync(self.raw)

    def elapsed_time(self, end: Event) -> float:
        ms = ctypes.c_float()
        assert _api.must("EventElapsedTime", ctypes.byref(ms), self.raw, end.raw)
        return ms.value


@contextmanager
def _stream(entered: Stream) -> Iterator[None]:
    _current.stack.append(entered)
    try:
        yield
    finally:
        _current.stack.pop()


_current = _Current()
cuda = SimpleNamespace(
    Stream=Stream,
    Event=Event,
    stream=_stream,
    is_available=lambda: True,
    memory_allocated=lambda: 0,
    synchronize=lambda: _api.must("DeviceSynchronize"),
    _sleep=lambda cycles: _api.driver.double_sleep(_current.stack[-1].handle, ctypes.c_size_t(cycles)),
)
