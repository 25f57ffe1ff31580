"""As much of torch as docs/decode_client.py uses, over the stand-in runtime: device memory is host memory."""

from __future__ import annotations

import ctypes
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from api import Api

if TYPE_CHECKING:
    from collections.abc import Iterator

int32 = "int32"
_api = Api("cuda")
_words = ctypes.c_uint32


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
        _kept.append((self, source))
        _api.copy(self.words, source.words, _current[-1].handle)

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


class Event:
    """An event."""

    def __init__(self, *, blocking: bool) -> None:
        self._event = _api.event(2 | blocking)

    def __del__(self) -> None:
        _api.must("EventDestroy", self._event)

    def record(self, stream: Stream) -> None:
        _api.record(self._event, stream.handle)

    def synchronize(self) -> None:
        _api.sync(self._event)


@contextmanager
def _stream(entered: Stream) -> Iterator[None]:
    _current.append(entered)
    try:
        yield
    finally:
        _current.pop()


_kept: list[object] = []
_current = [Stream()]
cuda = SimpleNamespace(
    Stream=Stream,
    Event=Event,
    stream=_stream,
    is_available=lambda: True,
    synchronize=lambda: _api.must("DeviceSynchronize"),
    _sleep=lambda cycles: _api.driver.double_sleep(_current[-1].handle, ctypes.c_size_t(cycles)),
)
