"""A vendor's torch module in miniature, on a virtual clock: the pipeline's real-time code without a device.

Discrete events, no threads: every run is the same. The host's time passes a little with each call and in
`Clock.pause`; a call that must wait takes the clock to what it waits for. Only what the pipeline calls is here.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

#: Seconds of a host call, of a small kernel or copy on the device, and of a look that found nothing.
CALL, SMALL, PAUSE = 1e-6, 2e-6, 2e-5
#: Seconds up to which a host waits for a gate's limit.
SHORT = 0.2
#: What `_sleep` takes for a second: not what the pipeline assumes, so that it must learn.
CYCLES = 4e8


class Held(Exception):
    """The host would wait for a gate that nobody opens meanwhile."""


@dataclass(eq=False)
class Mark:
    """One record of an event."""

    at: float = math.inf

    @property
    def done(self) -> bool:
        return self.at < math.inf


@dataclass(eq=False)
class Op:
    queued: float
    lasts: float = 0.0
    after: Mark | None = None  # it begins no sooner
    effect: Callable[[float], None] = lambda at: None
    gate: Gate | None = None


@dataclass(eq=False)
class Queue:
    """One stream's operations."""

    ops: deque[Op] = field(default_factory=deque)
    last: float = 0.0

    def next_end(self) -> float:
        """When its first operation ends, as far as is known."""
        if not self.ops:
            return math.inf
        op = self.ops[0]
        begins = max(self.last, op.queued, op.after.at if op.after else 0.0)
        if op.gate is not None and begins < math.inf:
            op.gate.began = min(op.gate.began, begins)
            return max(begins, min(op.gate.opened_at, begins + op.gate.limit))
        return begins + op.lasts


class World:
    """The device, the host's clock, and the allocator of the device's memory."""

    virtual = True

    def __init__(self, *, unordered: bool = False) -> None:
        self.time = 0.0
        self.queues: dict[int, Queue] = {0: Queue()}
        self.current = 0
        self.unordered = unordered  # an event may be reported pending although a later one of its stream is complete
        self.free: dict[int, list[Block]] = {}
        self.deferred: list[tuple[Block, list[Mark]]] = []

    # the clock of `conformance.backends.api`

    def now(self) -> float:
        return self.time

    def pause(self, polls: int) -> None:
        self.advance(self.time + PAUSE)

    # the device

    def queue(self, stream: int, **op: Any) -> None:
        self.advance(self.time + CALL)
        self.queues[stream].ops.append(Op(queued=self.time, **op))

    def advance(self, until: float) -> None:
        """Let everything happen that ends by then."""
        while (queue := min(self.queues.values(), key=Queue.next_end)).next_end() <= until:
            queue.last = queue.next_end()
            queue.ops.popleft().effect(queue.last)
        self.time = max(self.time, until)

    def wait(self, done: Callable[[], bool]) -> None:
        """The host waits. Raises Held if nothing that ends by itself would let it go on."""
        self.advance(self.time + CALL)
        while not done():
            ends = min((queue.next_end() for queue in self.queues.values() if not _gated(queue)), default=math.inf)
            if ends == math.inf:
                raise Held
            self.advance(ends)

    def idle(self, stream: int) -> bool:
        return not self.queues[stream].ops

    def take(self, size: int) -> Block:
        for block, marks in list(self.deferred):
            if all(mark.done for mark in marks):
                self.deferred.remove((block, marks))
                self.free.setdefault(len(block.data), []).append(block)
        cached = self.free.get(size, [])
        return cached.pop() if cached else Block(self, [0] * size)


def _gated(queue: Queue) -> bool:
    """Held by a gate that nobody opens meanwhile; a gate of a short limit is device work, and ends."""
    gate = queue.ops[0].gate if queue.ops else None
    return gate is not None and gate.opened_at == math.inf and gate.limit > SHORT


@dataclass(eq=False)
class Block:
    """Device memory; its last tensor gives it back."""

    world: World
    data: list[float]
    used_on: list[int] = field(default_factory=list)

    def give_back(self) -> None:
        marks = []
        for stream in self.used_on:
            mark = Mark()
            self.world.queue(stream, effect=lambda at, mark=mark: setattr(mark, "at", at))
            marks.append(mark)
        self.used_on = []
        if marks:
            self.world.deferred.append((self, marks))
        else:
            self.world.free.setdefault(len(self.data), []).append(self)


class Owner:
    """Gives a block back when nothing refers to it any more."""

    def __init__(self, block: Block) -> None:
        self.block = block

    def __del__(self) -> None:
        self.block.give_back()


class Gate:
    """A gate as the ladder's are."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.opened_at = self.limit = self.began = math.inf
        self.used = False

    def idle(self) -> bool:
        self._world.advance(self._world.time)
        ends = min(self.began + self.limit, max(self.began, self.opened_at))
        return not self.used or ends <= self._world.time

    def enqueue(self, stream: Stream, limit_s: float) -> None:
        assert self.idle(), "a gate that is in use, as the ladder's would say"
        self.used = True
        self.opened_at, self.limit, self.began = math.inf, limit_s, math.inf
        self._world.queue(stream.number, gate=self)

    def open(self) -> None:
        self.opened_at = min(self.opened_at, self._world.time)
        self._world.advance(self._world.time)

    def entered(self) -> bool:
        self._world.advance(self._world.time + CALL)
        return self.began <= self._world.time

    def closed(self) -> bool:
        return self.entered() and self.opened_at == math.inf and self._world.time < self.began + self.limit


class Stream:
    def __init__(self, world: World, number: int) -> None:
        self._world, self.number = world, number
        world.queues.setdefault(number, Queue())

    @property
    def cuda_stream(self) -> int:
        return 0x100 * self.number

    def wait_event(self, event: Event) -> None:
        if event.mark is not None:
            self._world.queue(self.number, after=event.mark)

    def wait_stream(self, other: Stream) -> None:
        event = Event(self._world)
        event.record(other)
        self.wait_event(event)

    def query(self) -> bool:
        self._world.advance(self._world.time + CALL)
        return self._world.idle(self.number)

    def synchronize(self) -> None:
        self._world.wait(lambda: self._world.idle(self.number))


class Event:
    def __init__(self, world: World, enable_timing: bool = False, blocking: bool = False) -> None:
        self._world, self._timing, self.mark = world, enable_timing, None
        self._asked = 0

    mark: Mark | None

    def record(self, stream: Stream) -> None:
        mark = self.mark = Mark()
        self._world.queue(stream.number, effect=lambda at: setattr(mark, "at", at))

    def query(self) -> bool:
        self._world.advance(self._world.time + CALL)
        self._asked += 1
        if self._world.unordered and self._timing and self._asked == 1:
            return False
        return self.mark is None or self.mark.at <= self._world.time

    def synchronize(self) -> None:
        self._world.wait(lambda: self.mark is None or self.mark.at <= self._world.time)

    def elapsed_time(self, end: Event) -> float:
        assert self._timing, "made without timing"
        assert self.mark is not None, "never recorded"
        assert end.mark is not None, "never recorded"
        assert self.mark.done, "not complete"
        assert end.mark.done, "not complete"
        return 1e3 * (end.mark.at - self.mark.at)


class Host:
    """A tensor in host memory."""

    def __init__(self, torch: Torch, data: list[float], shape: Sequence[int]) -> None:
        self._torch, self.data, self.shape = torch, data, tuple(shape)

    def __getitem__(self, row: int) -> Host:
        return Host.over(self, row)

    @classmethod
    def over(cls, whole: Host, row: int) -> Host:
        """One row of a column: it shares the memory."""
        part = cls(whole._torch, whole.data, (1,))
        part._row = row
        return part

    _row: int | None = None

    def fill_(self, value: float) -> None:
        self.data[self._row or 0] = value

    def copy_(self, source: Tensor, non_blocking: bool) -> None:
        assert non_blocking
        start, block = self._row or 0, source.block  # not the tensor: a queued copy keeps nothing alive

        def arrive(at: float) -> None:
            self.data[start : start + len(block.data)] = block.data

        self._torch.world.queue(self._torch.world.current, lasts=SMALL, effect=arrive)

    def item(self) -> float:
        return self.data[self._row or 0]

    def tolist(self) -> list[float]:
        return list(self.data)


class Tensor:
    """A tensor on the device."""

    def __init__(self, torch: Torch, block: Block, owner: Owner, shape: Sequence[int]) -> None:
        self._torch, self.block, self._owner, self.shape = torch, block, owner, tuple(shape)

    def to(self, device: str, non_blocking: bool) -> Host:
        host = Host(self._torch, [0] * len(self.block.data), self.shape)
        host.copy_(self, non_blocking=non_blocking)
        return host

    def _waited(self) -> list[float]:
        world = self._torch.world
        number = world.current
        world.wait(lambda: world.idle(number))
        return list(self.block.data)

    def cpu(self) -> Host:
        return Host(self._torch, self._waited(), self.shape)

    tolist = nonzero = _waited

    def item(self) -> float:
        return self._waited()[0]

    def __getitem__(self, row: int) -> Tensor:
        return self

    def record_stream(self, stream: Stream) -> None:
        self.block.used_on.append(stream.number)


class Module:
    """torch.cuda."""

    __name__ = "torch.fake"

    def __init__(self, world: World) -> None:
        self._world = world
        self._turn = itertools.cycle(range(1, 33))

    def Stream(self, device: int | None = None, priority: int = 0) -> Stream:
        return Stream(self._world, next(self._turn))

    def Event(self, enable_timing: bool = False, blocking: bool = False) -> Event:
        return Event(self._world, enable_timing, blocking)

    def default_stream(self, device: int | None = None) -> Stream:
        return Stream(self._world, 0)

    def current_stream(self) -> Stream:
        return Stream(self._world, self._world.current)

    def set_stream(self, stream: Stream) -> None:
        self._world.current = stream.number

    @contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        before, self._world.current = self._world.current, stream.number
        try:
            yield
        finally:
            self._world.current = before

    def _sleep(self, cycles: int) -> None:
        self._world.queue(self._world.current, lasts=cycles / CYCLES)


class Torch:
    """torch."""

    int32, int64, float32 = "int32", "int64", "float32"

    def __init__(self, world: World) -> None:
        self.world, self.cuda = world, Module(world)

    def full(self, shape: Sequence[int], value: float, dtype: str, device: str) -> Tensor:
        block = self.world.take(math.prod(shape))

        def fill(at: float) -> None:
            block.data[:] = [value] * len(block.data)

        self.world.queue(self.world.current, lasts=SMALL, effect=fill)
        return Tensor(self, block, Owner(block), shape)

    def zeros(self, shape: Sequence[int], dtype: str, pin_memory: bool) -> Host:
        assert pin_memory
        return Host(self, [0] * math.prod(shape), shape)

    def tensor(self, values: list[float], device: str) -> Tensor:
        made = self.full((len(values),), values[0], "int64", device)
        made._waited()  # from pageable memory
        return made
