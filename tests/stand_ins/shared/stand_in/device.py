"""Streams and events in real time, by the rules of the suite's reference device, and wrong by its faults."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from conformance.backends.reference.device import Device, Task
from conformance.backends.reference.faults import make_device
from probes.program import BLOCKING_STREAM, DEFAULT_STREAM, Record, Wait

if TYPE_CHECKING:
    from collections.abc import Callable

#: So many tasks are kept until an idle device forgets them.
KEPT = 256
#: Streams of one priority, after which the first is given out again.
POOL = 32
#: The numbers of streams that the default one orders begin here.
BLOCKING = 1 << 20


def name_of(stream: int) -> str:
    """The name by which the reference device knows a stream, and whether the default one orders it."""
    return DEFAULT_STREAM if stream == 0 else f"{BLOCKING_STREAM}{stream}" if stream >= BLOCKING else str(stream)


@dataclass(slots=True, eq=False)
class Work(Task):
    """An operation that does something: at once when the stream reaches it, or in a thread of its own."""

    action: Callable[[], object] | None = None
    long: Callable[[], object] | None = None  # the stream goes on when it returns


class _RealTime(Device):
    """Operations take the time that they take; only threads end what is long."""

    def __init__(self) -> None:
        super().__init__()
        self.changed = threading.Condition(threading.RLock())
        self.times: dict[str, float] = {}  # when an event's latest record was reached
        self._ranks: dict[str, int] = {}
        self._idle: list[SimpleQueue[Work]] = []

    def rank(self, stream: str) -> int:
        if stream not in self._ranks:
            self._ranks[stream] = len(self._ranks)
            self._order.append(stream)  # the default stream's rule looks for its streams there
        return self._ranks[stream]

    def launch(self, work: Work) -> None:
        """Queue an operation."""
        with self.changed:
            work.index = len(self.tasks)
            if work.long is not None:
                work.gate = f"~{id(work)}"
            self._add(work)

    def _try(self, task: Task) -> bool:
        before = task.started
        moved = super()._try(task)
        if before is None and task.started is not None and isinstance(task, Work) and task.long is not None:
            self._begin(task)
        return moved

    def _timer(self, when: float, task: Task) -> None:
        pass  # nothing ends by virtual time

    def _finish(self, task: Task) -> None:
        if isinstance(task, Work) and task.action is not None:
            task.action()
        elif task.kind == "record":
            self.times[task.event] = time.perf_counter()
        super()._finish(task)

    def _block(self, held: Callable[[], bool]) -> None:
        with self.changed:
            self.changed.wait_for(lambda: not held())

    def settle(self) -> None:
        super().settle()
        self.changed.notify_all()
        if len(self.tasks) > KEPT and not self._unpublished and not any(self._queues.values()):
            self._forget()

    def _forget(self) -> None:
        for event, record in list(self.current.items()):
            if event in self.destroyed:
                del self.current[event]
            record.stream = ""  # nothing is queued behind it any more
        for used in (self.tasks, self.opened, self.gates_ended, self.destroyed):
            used.clear()
        self.flushed = 0

    def _begin(self, work: Work) -> None:
        try:
            inbox = self._idle.pop()
        except IndexError:
            inbox = SimpleQueue()
            threading.Thread(target=self._serve, args=(inbox,), name="stand-in", daemon=True).start()
        inbox.put(work)

    def _serve(self, inbox: SimpleQueue[Work]) -> None:
        while True:
            work = inbox.get()
            assert work.long is not None
            assert work.gate is not None
            work.long()
            with self.changed:
                self._idle.append(inbox)
                self.open(work.gate)


class Accelerator:
    """One device. Streams are known by number, 0 being the default one; events by name."""

    def __init__(self, faults: tuple[str, ...] = (), *, only_wrapper: bool = False) -> None:
        made = type("RealTimeDevice", (_RealTime, make_device(faults)), {})
        self.device: Any = made()
        self.only_wrapper = only_wrapper
        self._local = threading.local()
        self._pools: dict[int, int] = {}
        self._streams: dict[int, int] = {}  # raw handle -> number
        self._events = self._blocking = 0
        self.handle(0)

    def new_stream(self, priority: int = 0) -> int:
        """The next stream of the pool: the 33rd of a priority is the first."""
        level = min(max(-priority, 0), 3)
        made = self._pools[level] = self._pools.get(level, -1) + 1
        number = 1 + 2 * (made % POOL + level * POOL)
        self.handle(number)
        return number

    def new_blocking_stream(self) -> int:
        """The raw handle of a stream that the default one orders; as the driver makes it."""
        self._blocking += 1
        return self.handle(BLOCKING + self._blocking)

    def handle(self, stream: int) -> int:
        """The raw handle of a stream; 0 is the default one's."""
        if stream == 0:
            self._streams[0] = 0
            return 0
        raw = 0x7F00_0000_0000 + 16 * int(self.device.handle(name_of(stream)))
        self._streams.setdefault(raw, stream)
        return raw

    def stream_of(self, handle: int) -> int:
        """The stream that has a raw handle."""
        return self._streams[handle]

    @property
    def current(self) -> int:
        """The stream that is current in this thread."""
        return getattr(self._local, "stream", 0)

    @current.setter
    def current(self, stream: int) -> None:
        self._local.stream = stream

    def launch(self, stream: int, kind: str, action: Callable[[], object] | None = None, *, long: Any = None) -> None:
        """Queue what is done when the stream reaches it; ``long`` is done in a thread and holds the stream."""
        self.device.launch(Work(0, kind, name_of(stream), action=action, long=long))

    def new_event(self, *, blocking: bool) -> str:
        """The name of a new event."""
        with self.device.changed:
            self._events += 1
            name = f"e{self._events}"
            if blocking:
                self.device.blocking |= {name}
        return name

    def record(self, event: str, stream: int) -> None:
        """Queue a record."""
        with self.device.changed:
            self.device.issue(Record(stream=name_of(stream), event=event))

    def wait(self, event: str, stream: int) -> None:
        """Make a stream wait for the event's latest record."""
        with self.device.changed:
            self.device.issue(Wait(stream=name_of(stream), event=event))

    def query(self, event: str) -> bool:
        """What torch's event is told."""
        with self.device.changed:
            return bool(self.device.query(event))

    def query_raw(self, event: str) -> bool:
        """What the driver says of the event's raw handle."""
        with self.device.changed:
            record = self.device.current.get(event)
            return record is None or (record.done if self.only_wrapper else bool(self.device.query(event)))

    def synchronize(self, event: str) -> None:
        """Return when the event says so."""
        with self.device.changed:
            self.device.changed.wait_for(lambda: self.device.synchronize(event))

    def milliseconds(self, start: str, end: str) -> float:
        """Between two records."""
        return (self.device.times[end] - self.device.times[start]) * 1e3

    def destroy(self, event: str) -> None:
        """Drop an event, complete or not."""
        with self.device.changed:
            self.device.blocking -= {event}
            self.device.times.pop(event, None)
            self.device.destroy(event)

    def query_stream(self, stream: int) -> bool:
        """Has the stream finished?"""
        with self.device.changed:
            return bool(self.device.query_stream(name_of(stream)))

    def synchronize_stream(self, stream: int) -> None:
        """Return when the stream says that it has finished."""
        with self.device.changed:
            self.device.flush()
            self.device.changed.wait_for(lambda: self.device.synchronize_stream(name_of(stream)))

    def synchronize_device(self) -> None:
        """Return when everything is done."""
        with self.device.changed:
            self.device.flush()
            self.device.changed.wait_for(lambda: all(task.done for task in self.device.tasks))
