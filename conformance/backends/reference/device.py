"""The reference device: queues that run to quiescence under a virtual clock.

Operational where the model is denotational, and written without it: operations sit in hardware
queues, a queue's head starts when it may, and completions push the next ones. The methods of the
first block are the hooks that a fault replaces, one method a fault.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from conformance.backends.reference.hooks import Beside
from probes.program import (
    DEFAULT_STREAM,
    Copy,
    DeviceOp,
    Fill,
    Gate,
    HostFn,
    Nop,
    Record,
    Wait,
    WaitStream,
    is_blocking_stream,
    is_far,
    is_high_priority,
)

#: How long an operation takes, in virtual seconds: queues run to quiescence at once. A slow device stretches it.
OPERATION: Final = 0.0

#: A host call that nothing lets go returns after this long, in virtual seconds: nobody waits so long.
FOREVER: Final = 3600.0


@dataclass(slots=True, eq=False)
class Task:
    """One queued operation."""

    index: int
    kind: str  # gate, fill, copy, record, wait, host-fn
    stream: str
    event: str = ""
    gate: str | None = None
    target: str = ""
    source: str | int = 0
    function: str = ""
    bound: Task | None = None  # the record that a wait obeys
    temporary: bool = False  # made by a wait-stream
    tied: tuple[Task, ...] = ()  # what the legacy default stream's rule puts before it
    started: float | None = None
    done: bool = False
    ended: float = 0.0  # when it was done
    queued: float = 0.0  # when it was queued
    published: bool = False  # a record that the host may see


class Device(Beside):
    """A device with any number of hardware queues. Time passes only in `advance`."""

    window = 1  # how many unfinished operations of a queue may be tried; 1 is first in, first out
    operation = OPERATION
    functions_hold = True  # a host function that has not returned holds its stream
    lingers = False  # publication may need time alone, so it is looked for whenever time passes

    def __init__(self, order: Iterable[str] = (), gate_limit: float = 1.9) -> None:
        self.tasks: list[Task] = []
        self.current: dict[str, Task] = {}
        self.opened: set[str] = set()
        self.gates_ended: set[str] = set()
        self.destroyed: set[str] = set()
        self.memory: dict[str, int] = {}
        self.written: dict[str, list[Task]] = {}  # buffer -> what wrote it, in the order of its doing so
        self.called: Counter[str] = Counter()  # host functions
        self.timed = False  # events keep their times
        self.submitted = 0  # operations below this index were handed to the device, where that takes a call
        self.flushed = 0  # records below this index were pending or done at a stream or device synchronize
        self.clock = 0.0
        self.gate_limit = gate_limit
        self.blocking: frozenset[str] = frozenset()  # events made with the blocking flag
        self.asked: dict[str, int] = {}
        self._order = list(order)
        self._queues: dict[Any, list[Task]] = {}
        self._gated: dict[str, list[Task]] = {}
        self._prioritised = False
        self._last: dict[str, Task] = {}  # stream -> what was queued on it last
        self._unpublished: list[Task] = []
        self._timers: list[tuple[float, int, Task]] = []
        self._counter = itertools.count()

    # ------------------------------------------------------------------ hooks

    def queue_of(self, stream: str) -> Any:
        """The hardware queue of a stream."""
        return stream

    def handle(self, stream: str) -> int:
        """The raw handle of a stream."""
        return 0x1000 + self.rank(stream)

    def bind(self, wait: Task) -> Task | None:
        """Which record a wait obeys."""
        return wait.bound

    def satisfied(self, wait: Task) -> bool:
        """May the stream go past this wait?"""
        bound = self.bind(wait)
        return bound is None or bound.done

    def publish(self, record: Task) -> bool:
        """May the host see this record complete now? Once published, it stays."""
        return record.done

    def record(self, task: Task) -> None:
        """Take a record in as its event's latest."""
        self.current[task.event] = task

    def query(self, event: str) -> bool:
        """What the host is told about an event."""
        return event not in self.current or self.current[event].published

    def synchronize(self, event: str) -> bool:
        """Would a host synchronize on the event return now?"""
        return event not in self.current or self.current[event].published

    def query_stream(self, stream: str) -> bool:
        """What the host is told about a stream."""
        return self.stream_done(stream)

    def synchronize_stream(self, stream: str) -> bool:
        """Would a host synchronize on the stream return now?"""
        return self.stream_done(stream)

    def read(self, buffer: str) -> int:
        """What the host finds in a buffer."""
        return self.memory.get(buffer, 0)

    def load(self, task: Task, buffer: str) -> int:
        """What a copy finds in its source."""
        return self.memory.get(buffer, 0)

    def ties(self, stream: str) -> list[str]:
        """The streams whose work so far comes before the next operation of this one, by the default stream's rule."""
        if stream == DEFAULT_STREAM:
            return [other for other in self._order if is_blocking_stream(other)]
        return [DEFAULT_STREAM] if is_blocking_stream(stream) else []

    def priority(self, stream: str) -> int:
        """A stream's priority: a lower number is tried first."""
        return -1 if is_high_priority(stream) else 0

    def width(self, stream: str) -> int:
        """How many unfinished operations at the head of a stream's queue may be tried."""
        return self.window

    def queued(self, task: Task) -> None:
        """An operation was queued."""

    def call(self, task: Task) -> None:
        """A host function begins."""
        self.called[task.function] += 1

    def times(self, start: str, end: str) -> str:
        """Why there is no time between two events; empty if there is one."""
        for event in (start, end):
            if event not in self.current:
                return f"event {event} was never recorded"
            if not self.timed:
                return f"event {event} keeps no time"
            if not self.current[event].published:
                return f"event {event} is not ready"
        devices = {is_far(self.current[event].stream) for event in (start, end)}
        if len(devices) > 1 and self.refuses_time_across():
            return f"events {start} and {end} are of two devices"
        return ""

    def elapsed(self, start: str, end: str) -> float:
        """Seconds from one event to another."""
        if start not in self.current or end not in self.current:
            return 0.0
        return self.current[end].ended - self.current[start].ended

    def wait_blocks(self, op: Wait | WaitStream) -> bool:
        """Does this wait hold the host back now?"""
        return False

    def record_blocks(self, op: Record) -> bool:
        """Does this record hold the host back now?"""
        return False

    def refuses(self, op: Record) -> bool:
        """Is the event of another device than the stream?"""
        known = self.current.get(op.event)
        return known is not None and is_far(known.stream) != is_far(op.stream)

    def destroy_blocks(self, event: str) -> bool:
        """Does dropping the event hold the host back now?"""
        return False

    def ready(self, task: Task) -> bool:
        """May this operation start?"""
        if task.tied and not all(other.done for other in task.tied):
            return False
        return task.kind != "wait" or self.satisfied(task)

    # ------------------------------------------------------------------ what the hooks may ask

    def later(self, task: Task, *kinds: str) -> list[Task]:
        """What was queued behind a task on its stream, of these kinds."""
        rest = itertools.islice(self.tasks, task.index + 1, None)
        return [other for other in rest if other.stream == task.stream and (not kinds or other.kind in kinds)]

    def stream_done(self, stream: str) -> bool:
        """Has the stream finished everything queued on it?"""
        handle = self.handle(stream)
        return all(task.done for task in self.tasks if self.handle(task.stream) == handle)

    @property
    def streams(self) -> list[str]:
        """The streams in the order of first use."""
        return list(self._order)

    def rank(self, stream: str) -> int:
        """The stream's place in the order of first use."""
        if stream not in self._order:
            self._order.append(stream)
        return self._order.index(stream)

    # ------------------------------------------------------------------ operation

    def issue(self, op: DeviceOp) -> None:
        """Queue an operation; a wait that blocks the host lets time pass until it no longer does."""
        if isinstance(op, (Wait, WaitStream)):
            self._block(lambda: self.wait_blocks(op))
        elif isinstance(op, Record):
            self._block(lambda: self.record_blocks(op))
        if isinstance(op, Nop):
            return
        if isinstance(op, WaitStream):
            event = f"~{len(self.tasks)}"
            self._add(Task(len(self.tasks), "record", op.other, event=event, temporary=True))
            bound = self.current[event]
            self._add(Task(len(self.tasks), "wait", op.stream, event=event, bound=bound, temporary=True))
            return
        task = Task(len(self.tasks), "host-fn", op.stream)
        if isinstance(op, Gate):
            task.kind, task.gate = "gate", op.gate
        elif isinstance(op, Fill):
            task.kind, task.target, task.source = "fill", op.buffer, op.value
        elif isinstance(op, Copy):
            task.kind, task.target, task.source, task.gate = "copy", op.target, op.source, op.until
        elif isinstance(op, Record):
            task.kind, task.event = "record", op.event
        elif isinstance(op, Wait):
            task.kind, task.event, task.bound = "wait", op.event, self.current.get(op.event)
        elif isinstance(op, HostFn):
            task.function, task.gate = op.name, op.until
        self._add(task)

    def _add(self, task: Task) -> None:
        last = {stream: self._last[stream] for stream in self.ties(task.stream) if stream in self._last}
        task.tied = tuple(last.values())
        task.queued = self.clock
        self.tasks.append(task)
        if task.gate is not None:
            self._gated.setdefault(task.gate, []).append(task)
        self._last[task.stream] = task
        self._prioritised |= is_high_priority(task.stream)
        self._queues.setdefault(self.queue_of(task.stream), []).append(task)
        self.queued(task)
        if task.kind == "record":
            self._unpublished.append(task)
            self.record(task)
        self.settle()

    def open(self, gate: str) -> None:
        """The host opens a gate."""
        self.opened.add(gate)
        if any(task.done for task in self._gated.get(gate, ())):
            self.gates_ended.add(gate)  # it held nothing any more
        self.settle()

    def destroy(self, event: str) -> None:
        """The host drops an event."""
        self._block(lambda: self.destroy_blocks(event))
        self.destroyed.add(event)
        self.settle()

    def flush(self) -> None:
        """A stream or device synchronize was entered: some defects publish then."""
        self.submit()
        self.flushed = len(self.tasks)
        self.settle()

    def submit(self) -> None:
        """Some call hands the device what was queued: only a device that batches its work waits for one."""
        if self.submitted < len(self.tasks):
            self.submitted = len(self.tasks)
            self.settle()

    def _block(self, held: Callable[[], bool]) -> None:
        # The host sits in the call: time passes until the device lets it go (a gate's limit does in the end).
        while held() and self._timers:
            self.advance(self._timers[0][0] - self.clock)
        if held():
            self.advance(FOREVER)

    def advance(self, seconds: float) -> None:
        """Let virtual time pass; operations and gate limits that end meanwhile end in their order."""
        end = self.clock + seconds
        while self._timers and self._timers[0][0] <= end:
            when, _, task = heapq.heappop(self._timers)
            self.clock = max(self.clock, when)
            if task.done:
                continue
            if task.gate is not None and task.gate not in self.opened:
                if self.clock < (task.started or 0.0) + self.gate_limit:
                    continue  # not opened and not at its limit: `settle` sets a timer when it opens
                self.gates_ended.add(task.gate)
            self._finish(task)
            self.settle()
        self.clock = end
        if self.lingers:
            self.settle()

    def settle(self) -> None:
        """Start what may start, to quiescence; completions follow as time passes."""
        moved = True
        while moved:
            moved = False
            for queue in self._by_priority():
                while queue and queue[0].done:
                    queue.pop(0)
                if not queue:
                    continue
                width = self.width(queue[0].stream)
                for task in queue[:1] if width == 1 else [task for task in queue if not task.done][:width]:
                    moved |= self._try(task)
            if self._unpublished:
                for task in list(filter(self.publish, self._unpublished)):
                    task.published = moved = True
                    self._unpublished.remove(task)

    def _by_priority(self) -> list[list[Task]]:
        """Queues, those of streams of high priority first: it is seen in nothing but the order of what may happen."""
        if not self._prioritised:
            return list(self._queues.values())
        return sorted(self._queues.values(), key=lambda queue: self.priority(queue[0].stream) if queue else 0)

    def _try(self, task: Task) -> bool:
        """Start a task, or let a started one go on. True if it completed."""
        if task.started is None:
            if not self.ready(task):
                return False
            task.started = self.clock
            if task.function:
                self.call(task)
            if task.gate is not None:
                self._timer(self.clock + self.gate_limit, task)
            elif self.operation:
                self._timer(self.clock + self.operation, task)
        holds = task.gate is not None and (self.functions_hold or not task.function)
        if holds and task.gate not in self.opened and task.gate not in self.gates_ended:
            return False
        if task.gate is None and self.clock < task.started + self.operation:
            return False
        self._finish(task)
        return True

    def _timer(self, when: float, task: Task) -> None:
        heapq.heappush(self._timers, (when, next(self._counter), task))

    def _finish(self, task: Task) -> None:
        task.done, task.ended = True, self.clock
        if task.gate is not None and (self.functions_hold or not task.function or task.gate in self.opened):
            self.gates_ended.add(task.gate)
        if task.kind in ("fill", "copy"):
            source = task.source
            self.memory[task.target] = source if isinstance(source, int) else self.load(task, source)
            self.written.setdefault(task.target, []).append(task)
