"""How an output travels from the device to the host: the ring, and each workaround, by the calls of an engine.

An output is what vLLM's output classes make: one blocking event of its own, several non-blocking copies, the
record last. Each path is that of `probes.workarounds` of the same name, in real time.
"""

from __future__ import annotations

import itertools
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from conformance.backends.api import EventFlags
from conformance.errors import needed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from conformance.pipeline.device import Engine
    from conformance.pipeline.faulty import FaultySurface

#: Requests in a batch, and numbers a request has of each kind.
BATCH: Final = 8
LOGPROBS: Final = 6
#: Pinned words that a flag goes through; more than there are steps in flight.
FLAGS: Final = 16
#: How the stream is switched.
SWITCHES: Final = ("context", "set-stream")


@contextmanager
def set_stream(module: Any, stream: Any, back: Any) -> Iterator[None]:
    """The switch by two calls: cheaper than the context manager, and right only if the second is always made."""
    needed(module, "set_stream", "set-stream")
    module.set_stream(stream)
    try:
        yield
    finally:
        module.set_stream(back)


def tokens_of(engine: Engine, value: int) -> list[Any]:
    """The tensors of a step with sampled tokens: ids, log probabilities, counts."""
    torch, device = engine.torch, engine.device
    return [
        torch.full((BATCH, 1), value, dtype=torch.int64, device=device),
        torch.full((BATCH, LOGPROBS), value, dtype=torch.float32, device=device),
        torch.full((BATCH,), value, dtype=torch.int32, device=device),
    ]


def pooled_of(engine: Engine, value: int) -> list[Any]:
    """The tensors of a step with pooled outputs: one a request."""
    torch = engine.torch
    whole = torch.full((BATCH, LOGPROBS), value, dtype=torch.float32, device=engine.device)
    return [whole[request] for request in range(BATCH)]


#: What a step makes, by the kind of output.
OUTPUTS: Final[Mapping[str, Callable[[Engine, int], list[Any]]]] = MappingProxyType(
    {"tokens": tokens_of, "pooling": pooled_of}
)


@dataclass(slots=True, kw_only=True)
class Flight:
    """One output under way."""

    step: int
    tensors: list[Any]  # on the device; kept until the output was read, as engines do
    event: Any = None
    host: list[Any] = field(default_factory=list)
    ready: Any = None  # an event of the step on main, where the copy is queued later
    stream: Any = None
    flag: Any = None


class Path:
    """A ring of copy streams, one a step in turn; one stream is a ring of 1. The other paths change single steps."""

    def __init__(self, engine: Engine, surface: FaultySurface | Any, ring: int, switch: str) -> None:
        self.engine, self.surface, self.switch = engine, surface, switch
        self._turn = itertools.cycle(engine.side[:ring])

    def queue(self, step: int, tensors: list[Any]) -> Flight:
        """Queue the output of a step whose work was queued on main just now."""
        return self.copy(Flight(step=step, tensors=tensors, stream=self.next()))

    def next(self) -> Any:
        """The stream of the next step."""
        return next(self._turn)

    def copy(self, flight: Flight) -> Flight:
        """Wait for main, copy, record."""
        flight.event = self.surface.event(EventFlags.BLOCKING)
        with self.switched(flight.stream):
            self.surface.wait_stream(flight.stream, self.engine.main)
            flight.host = [tensor.to("cpu", non_blocking=True) for tensor in flight.tensors]
            self.surface.record(flight.event, flight.stream)
        return flight

    def switched(self, stream: Any) -> AbstractContextManager[object]:
        """The stream made current, in the way that was asked for."""
        if self.switch == "context":
            context: AbstractContextManager[object] = self.surface.current(stream)
            return context
        return set_stream(self.engine.surface.module, stream, self.engine.main)

    def wait(self, flight: Flight) -> None:
        """Block until the output is there."""
        flight.event.synchronize()

    def read(self, flight: Flight, value: int) -> bool:
        """Is every number of the output the step's? The device's tensors are given up."""
        right = all(number == value for tensor in flight.host for number in _numbers(tensor.tolist()))
        flight.tensors.clear()
        return right

    def after_read(self, flight: Flight) -> None:
        """What a read output allows."""


def _numbers(values: Any) -> Sequence[float]:
    if isinstance(values, list):
        return [number for value in values for number in _numbers(value)]
    return [values]


class FreshStream(Path):
    """A new stream each step."""

    def next(self) -> Any:
        """A stream of torch's pool, whichever is next there."""
        return self.engine.surface.stream()


class FreeList(Path):
    """Streams that come back when their output was read; the list grows to the steps in flight."""

    def __init__(self, engine: Engine, surface: FaultySurface | Any, ring: int, switch: str) -> None:
        super().__init__(engine, surface, ring, switch)
        self._free: list[Any] = []
        self._others = iter(engine.side)

    def next(self) -> Any:
        """A free stream, or one that was never used."""
        return self._free.pop() if self._free else next(self._others)

    def after_read(self, flight: Flight) -> None:
        """Give the stream back."""
        self._free.append(flight.stream)


class HelperWait(Path):
    """A helper stream waits for main, the copy stream for the helper."""

    def copy(self, flight: Flight) -> Flight:
        """Two waits, copy, record."""
        helper = self.engine.side[-1]
        flight.ready, flight.event = (self.surface.event(EventFlags.BLOCKING) for _ in range(2))
        self.surface.wait_stream(helper, self.engine.main)
        self.surface.record(flight.ready, helper)
        with self.switched(flight.stream):
            self.surface.wait(flight.stream, flight.ready)
            flight.host = [tensor.to("cpu", non_blocking=True) for tensor in flight.tensors]
            self.surface.record(flight.event, flight.stream)
        return flight


class DeferredWait(Path):
    """The copy is queued when the output before it was read."""

    def __init__(self, engine: Engine, surface: FaultySurface | Any, ring: int, switch: str) -> None:
        super().__init__(engine, surface, ring, switch)
        self._read, self._waiting = -1, dict[int, Flight]()

    def queue(self, step: int, tensors: list[Any]) -> Flight:
        """An event on main now; the rest once it is this output's turn."""
        flight = Flight(step=step, tensors=tensors, stream=self.next())
        flight.ready = self.surface.event(EventFlags.BLOCKING)
        self.surface.record(flight.ready, self.engine.main)
        self._waiting[step] = flight
        self._go_on()
        return flight

    def copy(self, flight: Flight) -> Flight:
        """Wait for the step's own event, copy, record."""
        flight.event = self.surface.event(EventFlags.BLOCKING)
        with self.switched(flight.stream):
            self.surface.wait(flight.stream, flight.ready)
            flight.host = [tensor.to("cpu", non_blocking=True) for tensor in flight.tensors]
            self.surface.record(flight.event, flight.stream)
        return flight

    def after_read(self, flight: Flight) -> None:
        """The next one's turn."""
        self._read = flight.step
        self._go_on()

    def _go_on(self) -> None:
        flight = self._waiting.pop(self._read + 1, None)
        if flight is not None:
            self.copy(flight)


class PinnedFlag(Path):
    """A sequence number is copied behind the data; the host polls it and asks no event. Not covered by documents."""

    def __init__(self, engine: Engine, surface: FaultySurface | Any, ring: int, switch: str) -> None:
        super().__init__(engine, surface, ring, switch)
        torch = engine.torch
        self._words = torch.zeros((FLAGS, 1), dtype=torch.int32, pin_memory=True)

    def copy(self, flight: Flight) -> Flight:
        """Wait for main, copy the data, then its number."""
        torch = self.engine.torch
        flight.flag = self._words[flight.step % FLAGS]
        flight.flag.fill_(0)
        with self.switched(flight.stream):
            self.surface.wait_stream(flight.stream, self.engine.main)
            flight.host = [tensor.to("cpu", non_blocking=True) for tensor in flight.tensors]
            number = torch.full((1,), flight.step + 1, dtype=torch.int32, device=self.engine.device)
            flight.tensors.append(number)
            flight.flag.copy_(number, non_blocking=True)
        return flight

    def wait(self, flight: Flight) -> None:
        """Poll the number, yielding the interpreter."""
        while flight.flag.item() != flight.step + 1:
            self.engine.clock.pause(0)


class StreamQuery(Path):
    """The stream is queried after the record."""

    def copy(self, flight: Flight) -> Flight:
        """Wait for main, copy, record, query."""
        super().copy(flight)
        flight.stream.query()
        return flight


class CopyOnMain(Path):
    """The copies and the record are queued on main."""

    def copy(self, flight: Flight) -> Flight:
        """Copy, record."""
        flight.event = self.surface.event(EventFlags.BLOCKING)
        flight.host = [tensor.to("cpu", non_blocking=True) for tensor in flight.tensors]
        self.surface.record(flight.event, self.engine.main)
        return flight


#: The paths by the names of `probes.workarounds`.
PATHS: Final[Mapping[str, type[Path]]] = MappingProxyType(
    {
        "one stream": Path,
        "ring": Path,
        "fresh stream": FreshStream,
        "free list": FreeList,
        "helper wait": HelperWait,
        "deferred wait": DeferredWait,
        "pinned flag": PinnedFlag,
        "stream query": StreamQuery,
        "copy on main": CopyOnMain,
    }
)
