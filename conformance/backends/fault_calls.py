"""Faults over an API that each change one call, and so what the host is told.

`conformance.backends.fault_layer` chooses among them, `conformance.backends.fault_operations` has those that change
what is queued.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, ClassVar, Final

from conformance.errors import DeviceError, Unsupported
from probes.program import (
    DeviceOp,
    Nop,
    Record,
    Sync,
    SyncDevice,
    SyncStream,
    WaitStream,
    is_far,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from conformance.backends.api import Clock, Request, Session, Waiter

#: Seconds by which `publishes-slowly` delays: above what is called soon, below any deadline.
SLOW: Final = 0.03
#: Seconds by which `data-trails` delays data.
TRAIL: Final = 1e-3
#: Seconds after which a call that blocks returns: above the deadline.
BLOCKED: Final = 1.2
#: Seconds that a slow query takes: above what is called at once, far below the deadline.
STALL: Final = 0.2


def extra_below(inner: Session, name: str) -> object:
    """What an experiment asks the session below for. Raises Unsupported where that has no such hook."""
    hook = getattr(inner, "extra", None)
    if hook is None:
        raise Unsupported(name, "sessions of the backend below have no hook 'extra'")
    made: object = hook(name)
    return made


class HeldCall:
    """A call that returns once all its parts have, and a condition holds."""

    def __init__(self, parts: list[Waiter], condition: Callable[[], bool]) -> None:
        self._parts, self._condition = parts, condition

    @property
    def returned(self) -> bool:
        """Have all parts returned, and does the condition hold?"""
        return all(part.returned for part in self._parts) and self._condition()

    @property
    def error(self) -> BaseException | None:
        """The first part's error."""
        return next((part.error for part in self._parts if part.error is not None), None)


class Through:
    """A session that passes every call on; a fault replaces one or two of them."""

    text: ClassVar[str]

    def __init__(self, inner: Session, request: Request, clock: Clock) -> None:
        self.inner, self.request, self.clock = inner, request, clock
        self.recorded: dict[str, str] = {}  # event -> stream of its latest record

    @classmethod
    def asked(cls, request: Request) -> Request:
        """What the session below must provide."""
        return request

    def issue(self, op: DeviceOp) -> None:
        """Queue one operation."""
        if isinstance(op, Record):
            self.recorded[op.event] = op.stream
        self.inner.issue(op)

    def handles(self) -> Mapping[str, int]:
        """The raw handle of each stream of the program."""
        below = self.inner.handles()
        return {name: below[name] for name in self.request.streams}

    def open(self, gate: str) -> None:
        """Open a gate."""
        self.inner.open(gate)

    def ended(self, gate: str) -> bool:
        """True if the gate holds no more."""
        return self.inner.ended(gate)

    def query(self, event: str) -> bool:
        """Ask the event."""
        return self.inner.query(event)

    def query_stream(self, stream: str) -> bool:
        """Ask the stream."""
        return self.inner.query_stream(stream)

    def read(self, buffer: str) -> int:
        """A load from a host buffer."""
        return self.inner.read(buffer)

    def extra(self, name: str) -> object:
        """What an experiment asks for: that of the session below."""
        return extra_below(self.inner, name)

    def calls(self, function: str) -> int:
        """How often a host function was called."""
        return self.inner.calls(function)

    def elapsed(self, start: str, end: str) -> float:
        """Seconds between two events."""
        return self.inner.elapsed(start, end)

    def destroy(self, event: str) -> None:
        """Drop the event."""
        self.inner.destroy(event)

    def start(self, call: Sync | SyncStream | SyncDevice) -> Waiter:
        """Synchronize."""
        return self.inner.start(call)

    def close(self) -> bool:
        """Close the session below."""
        return self.inner.close()

    def __getattr__(self, name: str) -> Any:
        """What the session below offers beside a session's calls."""
        return getattr(self.inner, name)


class QueryStale(Through):
    text = "changes host query alone"

    def query(self, event: str) -> bool:
        """No, once it was recorded."""
        return event not in self.recorded and self.inner.query(event)


class QueryFlickers(Through):
    text = "changes host query alone"

    def __init__(self, inner: Session, request: Request, clock: Clock) -> None:
        super().__init__(inner, request, clock)
        self._asked: Counter[str] = Counter()

    def query(self, event: str) -> bool:
        """Every second answer of a recorded event is no."""
        self._asked[event] += 1
        return self.inner.query(event) and (event not in self.recorded or self._asked[event] % 2 == 1)


class NeverRecordedPends(Through):
    text = "changes host query and host synchronize"

    def query(self, event: str) -> bool:
        """No, before the first record."""
        return event in self.recorded and self.inner.query(event)

    def start(self, call: Sync | SyncStream | SyncDevice) -> Waiter:
        """Never returns before the first record."""
        if isinstance(call, Sync):
            event = call.event
            return HeldCall([self.inner.start(call)], lambda: event in self.recorded)
        return self.inner.start(call)


class LostEvent(Through):
    text = "changes host query and host synchronize"

    def query(self, event: str) -> bool:
        """Never, once it was recorded."""
        return event not in self.recorded and self.inner.query(event)

    def start(self, call: Sync | SyncStream | SyncDevice) -> Waiter:
        """An event's never returns."""
        lost = isinstance(call, Sync) and call.event in self.recorded
        return HeldCall([self.inner.start(call)], lambda: not lost)


class PublishesSlowly(Through):
    text = "delays host query and host synchronize by a fixed time where something stands behind the record"

    def __init__(self, inner: Session, request: Request, clock: Clock) -> None:
        super().__init__(inner, request, clock)
        self._followed: set[str] = set()
        self._since: dict[str, float] = {}

    def issue(self, op: DeviceOp) -> None:
        """Note which events have something behind them."""
        if not isinstance(op, Nop):
            behind = op.other if isinstance(op, WaitStream) else op.stream
            self._followed |= {event for event, stream in self.recorded.items() if stream in (op.stream, behind)}
        if isinstance(op, Record):
            self._followed.discard(op.event)
            self._since.pop(op.event, None)
        super().issue(op)

    def _shown(self, event: str, complete: bool) -> bool:
        if complete and event in self._followed:
            return self.clock.now() >= self._since.setdefault(event, self.clock.now()) + SLOW
        return complete

    def query(self, event: str) -> bool:
        """Yes, a while after the device says so."""
        return self._shown(event, self.inner.query(event))

    def start(self, call: Sync | SyncStream | SyncDevice) -> Waiter:
        """An event's returns a while after the device's does."""
        below = self.inner.start(call)
        if not isinstance(call, Sync):
            return below
        event = call.event
        return HeldCall([below], lambda: self._shown(event, True))


class StreamQueryEarly(Through):
    text = "changes stream query alone"

    def query_stream(self, stream: str) -> bool:
        """Always idle."""
        return True


class StreamSyncEarly(Through):
    text = "changes stream synchronize alone"

    def start(self, call: Sync | SyncStream | SyncDevice) -> Waiter:
        """A stream's returns at once."""
        return HeldCall([], lambda: True) if isinstance(call, SyncStream) else self.inner.start(call)


class StreamSyncOverwaits(Through):
    text = "changes stream synchronize alone: it waits for the program's other streams too"

    def start(self, call: Sync | SyncStream | SyncDevice) -> Waiter:
        """A stream's returns when all have run dry."""
        if isinstance(call, SyncStream):
            return HeldCall([self.inner.start(SyncStream(stream=s)) for s in self.request.streams], lambda: True)
        return self.inner.start(call)


class SyncWaitsForStream(Through):
    text = "changes host synchronize alone: it synchronizes the stream that recorded the event"

    def start(self, call: Sync | SyncStream | SyncDevice) -> Waiter:
        """An event's is its stream's."""
        if isinstance(call, Sync) and call.event in self.recorded:
            call = SyncStream(stream=self.recorded[call.event])
        return self.inner.start(call)


class CompletionBeforeData(Through):
    text = "changes what the host reads: nothing, until it synchronized a stream or the device"

    def __init__(self, inner: Session, request: Request, clock: Clock) -> None:
        super().__init__(inner, request, clock)
        self._entered = False

    def read(self, buffer: str) -> int:
        """Zero until then."""
        return self.inner.read(buffer) if self._entered else 0

    def start(self, call: Sync | SyncStream | SyncDevice) -> Waiter:
        """Note it."""
        self._entered |= not isinstance(call, Sync)
        return self.inner.start(call)


class DataTrails(Through):
    text = "changes what the host reads: nothing, until a while after the data came"

    def __init__(self, inner: Session, request: Request, clock: Clock) -> None:
        super().__init__(inner, request, clock)
        self._since: dict[str, float] = {}

    def read(self, buffer: str) -> int:
        """Zero until then."""
        if not (value := self.inner.read(buffer)):
            return 0
        return value if self.clock.now() >= self._since.setdefault(buffer, self.clock.now()) + TRAIL else 0


class QuerySticks(Through):
    text = "the call that queues something next after a query that found its event pending is refused"
    _owed = False

    def query(self, event: str) -> bool:
        """Note it."""
        complete = self.inner.query(event)
        self._owed = not complete
        return complete

    def issue(self, op: DeviceOp) -> None:
        """Once refused."""
        owed, self._owed = self._owed, False
        if owed:
            raise DeviceError("not ready: left behind by a query")
        super().issue(op)


class DestroyBlocks(Through):
    text = "the call that drops an event returns only when the event is complete, or after a while"

    def destroy(self, event: str) -> None:
        """Ask until it is complete."""
        began, polls = self.clock.now(), 0
        while event in self.recorded and not self.inner.query(event) and self.clock.now() - began < BLOCKED:
            self.clock.pause(polls)
            polls += 1
        self.inner.destroy(event)


class ElapsedNegative(Through):
    text = "changes the time between events alone"

    def elapsed(self, start: str, end: str) -> float:
        """The wrong sign."""
        return -abs(self.inner.elapsed(start, end))


class ElapsedIgnoresHold(Through):
    text = "changes the time between events alone"

    def elapsed(self, start: str, end: str) -> float:
        """Nothing, where there is a time at all."""
        return 0.0 * self.inner.elapsed(start, end)


class ElapsedNoError(Through):
    text = "changes the time between events alone"

    def elapsed(self, start: str, end: str) -> float:
        """A number, whatever was asked for."""
        both = start in self.recorded and end in self.recorded and self.inner.query(start) and self.inner.query(end)
        both = both and is_far(self.recorded[start]) is is_far(self.recorded[end])
        timed = self.request.flags.value == "timing"
        return self.inner.elapsed(start, end) if both and timed else 0.0


#: The faults of this module by name.
SESSIONS: Final[Mapping[str, type[Through]]] = {
    "query-stale": QueryStale,
    "query-flickers": QueryFlickers,
    "never-recorded-pends": NeverRecordedPends,
    "lost-event": LostEvent,
    "publishes-slowly": PublishesSlowly,
    "stream-query-early": StreamQueryEarly,
    "stream-sync-early": StreamSyncEarly,
    "stream-sync-overwaits": StreamSyncOverwaits,
    "sync-waits-for-stream": SyncWaitsForStream,
    "completion-before-data": CompletionBeforeData,
    "data-trails": DataTrails,
    "query-sticks": QuerySticks,
    "destroy-blocks": DestroyBlocks,
    "elapsed-negative": ElapsedNegative,
    "elapsed-ignores-hold": ElapsedIgnoresHold,
    "elapsed-no-error": ElapsedNoError,
}
