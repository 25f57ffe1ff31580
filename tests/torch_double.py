"""torch with a vendor's module, in miniature and in real time; its driver and gates are in `torch_double_driver`.

One thread is the device: it runs the head of any stream that may run. Events keep their state in a file, so
that another process can import them. Only what the torch backend and its experiments use is here.
"""

from __future__ import annotations

import itertools
import mmap
import os
import signal
import tempfile
import threading
import time
from collections import deque
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Ways in which the double is wrong; tests set and clear them.
WRONG: set[str] = set()
#: How many streams were synchronized.
SYNCS = [0]


class AcceleratorError(RuntimeError):
    """What torch raises for the driver's errors."""


class Device:
    """All streams, and the thread that runs them."""

    def __init__(self) -> None:
        self.streams: list[Stream] = []
        self.changed = threading.Condition()
        self.current = threading.local()
        self.count = 1  # devices of the machine; one thread runs all of them
        self._thread: threading.Thread | None = None

    def put(self, stream: Stream, run: Callable[[], object], ready: Callable[[], bool] = lambda: True) -> None:
        if stream is DEFAULTS[stream.device_index] and "takes-legacy" not in WRONG:
            for graph in (tied.graph for tied in self.streams if tied.blocking and tied.graph is not None):
                graph.spoilt = True
                raise AcceleratorError("operation would make the legacy stream depend on a capturing blocking stream")
        if stream.graph is not None:
            stream.graph.operations.append((run, ready))
            return
        tied = self._tied(stream)
        own, ready = ready, lambda: own() and all(other.done >= count for other, count in tied)
        with self.changed:
            stream.put += 1
            stream.queue.append((run, ready))
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, daemon=True)
                self._thread.start()
            self.changed.notify()

    def _tied(self, stream: Stream) -> list[tuple[Stream, int]]:
        """What the legacy default stream's rule puts before the next operation."""
        if "legacy-ignored" in WRONG:
            return []
        if stream is DEFAULTS[stream.device_index]:
            return [(o, o.put) for o in self.streams if o.blocking and o.device_index == stream.device_index]
        default = DEFAULTS[stream.device_index]
        return [(default, default.put)] if stream.blocking else []

    def _serve(self) -> None:
        while True:
            moved = False
            for stream in list(self.streams):
                while stream.queue and stream.queue[0][1]():
                    stream.queue[0][0]()
                    stream.queue.popleft()
                    stream.done += 1
                    moved = True
            if not moved:
                with self.changed:
                    busy = any(stream.queue for stream in self.streams)
                    self.changed.wait(1e-4 if busy else 0.01)


DEVICE = Device()
_HANDLES = itertools.count(0x1000, 0x10)


class Stream:
    """A queue."""

    def __init__(self, device: Any = None, priority: int = 0, handle: int | None = None) -> None:
        self.cuda_stream = next(_HANDLES) if handle is None else handle
        self.device_index = _index() if device is None else device
        self.queue: deque[Any] = deque()
        self.graph: Graph | None = None
        self.blocking, self.put, self.done = False, 0, 0
        DEVICE.streams.append(self)

    def query(self) -> bool:
        if self.graph is not None:
            raise AcceleratorError("operation not permitted when stream is capturing")
        return not self.queue

    def synchronize(self) -> None:
        while not self.query():
            time.sleep(5e-5)
        SYNCS[0] += 1

    def wait_event(self, event: Event) -> None:
        if event.graph is not None and event.graph.open:
            self.graph = event.graph
            event.graph.streams.add(self)
        elif self.graph is not None:
            if "takes-outside-wait" not in WRONG:
                self.graph.spoilt = True
                raise AcceleratorError("dependency created on uncaptured work in another stream")
            return
        if event.crashes:
            os.kill(os.getpid(), signal.SIGSEGV)
        version = int(event.words[0])
        DEVICE.put(self, lambda: None, lambda: bool(event.words[1] >= version))

    def wait_stream(self, other: Stream) -> None:
        event = Event()
        event.record(other)
        self.wait_event(event)


class Event:
    """Two words: how often it was recorded, and how many of these records are complete."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        self.blocking, self.graph = blocking, None
        self.device_index: int | None = None
        self.timed, self.at = enable_timing, 0.0
        self.after = -1  # how many synchronizes there had been when it was recorded
        self.path, self.crashes = "", False
        self.words: Any = np.zeros(2, np.uint64)
        if interprocess:
            number, self.path = tempfile.mkstemp()
            os.ftruncate(number, mmap.PAGESIZE)
            self._map(number)

    def _map(self, number: int) -> None:
        self.words = np.frombuffer(mmap.mmap(number, mmap.PAGESIZE), np.uint64, 2)
        os.close(number)

    def record(self, stream: Stream) -> None:
        if self.device_index not in (None, stream.device_index) and "records-anywhere" not in WRONG:
            raise RuntimeError(f"Event device {self.device_index} does not match stream's device {stream.device_index}")
        self.device_index = stream.device_index
        self.graph: Graph | None = stream.graph
        if stream.graph is not None:
            return
        self.words[0] += 1
        self.after = SYNCS[0]
        version = int(self.words[0])

        def complete() -> None:
            self.words[1] = version
            self.at = time.perf_counter()

        DEVICE.put(stream, complete)

    def query(self) -> bool:
        if self.graph is not None and "captured-query" not in WRONG:
            self.graph.spoilt = True
            raise AcceleratorError("operation not permitted on an event last recorded in a capturing stream")
        for stream in list(DEVICE.streams):
            if stream.graph is not None:
                stream.graph.check_query()
        if "publishes-at-sync" in WRONG and self.after == SYNCS[0]:
            return False
        return bool(self.words[1] >= self.words[0]) or self.graph is not None

    def synchronize(self) -> None:
        while not self.query():
            if self.blocking and "spins" not in WRONG:
                time.sleep(1e-3)

    def elapsed_time(self, other: Event) -> float:
        if not (self.words[0] and other.words[0] and self.timed and other.timed):
            raise ValueError("both events must be recorded, and made to keep a time")
        if not (self.query() and other.query()):
            raise AcceleratorError("device not ready")
        if self.device_index != other.device_index:
            raise AcceleratorError("invalid resource handle")
        return 1e3 * (other.at - self.at)

    def ipc_handle(self) -> bytes:
        return self.path.encode()

    @classmethod
    def from_ipc_handle(cls, device: Any, handle: bytes) -> Event:
        event = cls()
        wrong = os.environ.get("TORCH_DOUBLE_WRONG", "")
        if wrong != "imports-complete":
            event._map(os.open(handle.decode(), os.O_RDWR))
        event.crashes = wrong == "import-wait-crashes"
        if wrong == "import-hangs":
            event.query = lambda: time.sleep(60) or False  # type: ignore[method-assign]
        return event


#: Whether the thread is bound by the modes of captures.
MODES = threading.local()


class Graph:
    """Operations of one capture."""

    def __init__(self, stream: Stream, mode: int) -> None:
        self.operations: list[Any] = []
        self.streams, self.open, self.spoilt = {stream}, True, False
        self.mode, self.owner = mode, threading.get_ident()

    def check_query(self) -> None:
        if getattr(MODES, "relaxed", False) and "modes-ignored" not in WRONG:
            return
        strict = self.mode == 0 or (
            self.mode == 1 and (self.owner == threading.get_ident() or "modes-ignored" in WRONG)
        )
        if self.open and strict and "global-open" not in WRONG:
            self.spoilt = True
            raise AcceleratorError("operation not permitted when stream is capturing")


class Tensor:
    """Words; operations on it go to the current stream."""

    def __init__(self, words: Any, device: Any = None) -> None:
        self.words, self.device = words, device

    def __getitem__(self, key: Any) -> Any:
        return Tensor(self.words[key], self.device)

    def __eq__(self, value: object) -> Any:
        return self.words == value

    __hash__ = None  # type: ignore[assignment]

    def fill_(self, value: int) -> None:
        DEVICE.put(_current(self), lambda: self.words.fill(value))

    def zero_(self) -> Tensor:
        self.fill_(0)
        return self

    def is_pinned(self) -> bool:
        return True

    def copy_(self, source: Tensor, non_blocking: bool = False) -> None:
        def copy() -> None:
            self.words[...] = source.words

        def later() -> None:
            threading.Timer(0.05, copy).start()

        here = _current(source if source.device is not None else self)
        there = _current(self) if self.device is not None else here
        if there is not here:  # as torch does: the source's stream copies, between two waits
            here.wait_stream(there)
        DEVICE.put(here, later if "copy-elsewhere" in WRONG and self.words.size > 10_000 else copy)
        if there is not here:
            there.wait_stream(here)

    def data_ptr(self) -> int:
        return int(self.words.ctypes.data)

    def numel(self) -> int:
        return int(self.words.size)

    def element_size(self) -> int:
        return 4


def _index() -> int:
    """The current device."""
    return getattr(DEVICE.current, "index", 0)


DEFAULTS = [Stream(device=number) for number in range(2)]


def _current(tensor: Tensor | None = None) -> Stream:
    """The current stream of a tensor's device."""
    index = _index() if tensor is None or tensor.device is None else tensor.device[1]
    stream: Stream = getattr(DEVICE.current, f"stream{index}", DEFAULTS[index])
    return stream


def _set(stream: Stream) -> None:
    DEVICE.current.index = stream.device_index
    setattr(DEVICE.current, f"stream{stream.device_index}", stream)


@contextmanager
def _entered(stream: Stream) -> Iterator[None]:
    with _on(stream.device_index):
        before = _current()
        _set(stream)
        try:
            yield
        finally:
            _set(before)


@contextmanager
def _on(index: int) -> Iterator[None]:
    before = _index()
    DEVICE.current.index = index
    try:
        yield
    finally:
        DEVICE.current.index = before


module = SimpleNamespace(
    __name__="torch.cuda",
    Stream=Stream,
    ExternalStream=lambda handle, device: next(s for s in DEVICE.streams if s.cuda_stream == handle),
    Event=Event,
    stream=_entered,
    set_stream=_set,
    default_stream=lambda index: DEFAULTS[index],
    set_device=lambda index: setattr(DEVICE.current, "index", index),
    device=_on,
    device_count=lambda: DEVICE.count,
    synchronize=lambda index=0: [stream.synchronize() for stream in DEVICE.streams if stream.device_index == index],
    is_available=lambda: True,
    get_device_properties=lambda index: SimpleNamespace(major=9, minor=0, name="double", uuid=f"GPU-{index}"),
)


def _zeros(shape: Any, dtype: Any = None, device: Any = None, pin_memory: bool = False) -> Tensor:
    return Tensor(np.zeros(shape, np.uint32), device)


torch = SimpleNamespace(
    __version__="2.11.0",
    version=SimpleNamespace(cuda="13.0", hip=None),
    cuda=module,
    int32="int32",
    device=lambda kind, index: (kind, index),
    zeros=_zeros,
    empty=_zeros,
)
