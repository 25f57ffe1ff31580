"""Faults over an API that each change one call: what the host is told, or what is queued in place of what was asked.

`conformance.backends.fault_layer` chooses among them and has the faults that delay or move work.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from conformance.errors import Unsupported
from probes.program import (
    DEFAULT_STREAM,
    Copy,
    DeviceOp,
    Gate,
    HostFn,
    Nop,
    Record,
    Sync,
    SyncDevice,
    SyncStream,
    Wait,
    WaitStream,
    is_blocking_stream,
    is_far,
    is_high_priority,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from conformance.backends.api import Clock, Request, Session, Waiter

#: Seconds by which `publishes-slowly` delays: above what is called soon, below any deadline.
SLOW: Final = 0.03
#: Seconds after which a call that blocks returns: above the deadline.
BLOCKED: Final = 1.2
#: A stream of the program below, for what overtakes its own stream.
SPARE: Final = "spare"


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


class DestroyBlocks(Through):
    text = "the call that drops an event returns only when the event is complete, or after a while"

    def destroy(self, event: str) -> None:
        """Ask until it is complete."""
        began, polls = self.clock.now(), 0
        while event in self.recorded and not self.inner.query(event) and self.clock.now() - began < BLOCKED:
            self.clock.pause(polls)
            polls += 1
        self.inner.destroy(event)


class WaitStreamDropped(Through):
    text = "changes device waits alone, in the spelling wait_stream"

    def issue(self, op: DeviceOp) -> None:
        """Leave it out."""
        super().issue(Nop(stream=op.stream) if isinstance(op, WaitStream) else op)


class RelayedWaitDropped(Through):
    text = "leaves out a device wait for a record with nothing but a wait before it"

    def __init__(self, inner: Session, request: Request, clock: Clock) -> None:
        super().__init__(inner, request, clock)
        self._last: dict[str, type] = {}
        self._bare: dict[str, bool] = {}

    def issue(self, op: DeviceOp) -> None:
        """Note what stands before each record."""
        waits = (Wait, WaitStream)
        if isinstance(op, Record):
            self._bare[op.event] = issubclass(self._last.get(op.stream, Nop), waits)
        dropped = (isinstance(op, Wait) and self._bare.get(op.event, False)) or (
            isinstance(op, WaitStream) and issubclass(self._last.get(op.other, Nop), waits)
        )
        if not isinstance(op, Nop):
            self._last[op.stream] = type(op)
        super().issue(Nop(stream=op.stream) if dropped else op)


class WaitCoversTail(Through):
    text = "changes device waits alone: each is bound to a record made at the call"

    @classmethod
    def asked(cls, request: Request) -> Request:
        """Room for that record."""
        return replace(request, events=[*request.events, *(f"tail_{event}" for event in request.events)])

    def issue(self, op: DeviceOp) -> None:
        """Record anew, and wait for that."""
        if isinstance(op, Wait) and op.event in self.recorded:
            tail = f"tail_{op.event}"
            self.inner.issue(Record(stream=self.recorded[op.event], event=tail))
            op = replace(op, event=tail)
        super().issue(op)


class WaitOrdersNoData(Through):
    text = "moves a copy ahead of the waits right before it: it reads what was there before"

    def __init__(self, inner: Session, request: Request, clock: Clock) -> None:
        super().__init__(inner, request, clock)
        self._waits: dict[str, list[DeviceOp]] = {}

    def issue(self, op: DeviceOp) -> None:
        """Keep a wait until the next operation of its stream, or of the host."""
        if isinstance(op, Wait):
            self._waits.setdefault(op.stream, []).append(op)
        elif isinstance(op, Copy):
            super().issue(op)
            self._flush(op.stream)
        else:
            # A record or wait-stream elsewhere may rest on what was kept, and a second record must not change it.
            self._flush()
            super().issue(op)

    def _flush(self, stream: str | None = None) -> None:
        for name in [stream] if stream is not None else list(self._waits):
            for op in self._waits.pop(name, []):
                super().issue(op)

    def query(self, event: str) -> bool:
        """The host looks: nothing is kept any longer."""
        self._flush()
        return super().query(event)

    def read(self, buffer: str) -> int:
        """The same."""
        self._flush()
        return super().read(buffer)

    def close(self) -> bool:
        """The same."""
        try:
            self._flush()
        finally:
            idle = super().close()
        return idle


class RecordsCoalesced(Through):
    text = "changes host query and host synchronize: a record shares the signal of the one before it"

    def __init__(self, inner: Session, request: Request, clock: Clock) -> None:
        super().__init__(inner, request, clock)
        self._open: dict[str, str] = {}  # stream -> the event whose signal the next record shares
        self._shares: dict[str, str] = {}

    def issue(self, op: DeviceOp) -> None:
        """A gate or a wait does not part two records; work does."""
        if isinstance(op, Record):
            self._shares[op.event] = self._open.get(op.stream, op.event)
            self._open[op.stream] = self._shares[op.event]
        elif not isinstance(op, (Gate, Wait, WaitStream, Nop)):
            self._open.pop(op.stream, None)
        super().issue(op)

    def query(self, event: str) -> bool:
        """Ask the signal."""
        return self.inner.query(self._shares.get(event, event))

    def start(self, call: Sync | SyncStream | SyncDevice) -> Waiter:
        """Wait for the signal."""
        if isinstance(call, Sync):
            call = Sync(event=self._shares.get(call.event, call.event))
        return self.inner.start(call)


class AliasedStreams(Through):
    text = "puts what two streams are given on one"

    @classmethod
    def _one(cls, request: Request) -> dict[str, str]:
        near = [name for name in request.streams if not is_far(name)]
        return {near[1]: near[0]} if len(near) > 1 else {}

    def issue(self, op: DeviceOp) -> None:
        """Queue it on the first stream where it was for the second."""
        super().issue(renamed(op, self._one(self.request)))

    def handles(self) -> Mapping[str, int]:
        """One handle for both."""
        one, below = self._one(self.request), self.inner.handles()
        return {name: below[one.get(name, name)] for name in self.request.streams}


class _Elsewhere(Through):
    """Host functions go to a stream of their own, so they need not wait for theirs."""

    @classmethod
    def asked(cls, request: Request) -> Request:
        """One more stream."""
        return replace(request, streams=[*request.streams, SPARE]) if request.functions else request


class HostFnEarly(_Elsewhere):
    text = "queues host functions on an idle stream"

    def issue(self, op: DeviceOp) -> None:
        """Away from what it must come after; a held one stays."""
        super().issue(replace(op, stream=SPARE) if isinstance(op, HostFn) and op.until is None else op)


class HostFnAsync(_Elsewhere):
    text = "queues a held host function on an idle stream, so that nothing stands behind it"

    def issue(self, op: DeviceOp) -> None:
        """Away from what must come after it."""
        super().issue(replace(op, stream=SPARE) if isinstance(op, HostFn) and op.until is not None else op)


class HostFnTwice(Through):
    text = "queues host functions twice"

    def issue(self, op: DeviceOp) -> None:
        """Once more, unheld."""
        if isinstance(op, HostFn):
            super().issue(replace(op, until=None))
        super().issue(op)


class HostFnLost(Through):
    text = "leaves host functions out"

    def issue(self, op: DeviceOp) -> None:
        """A gate in its place, where it holds."""
        if isinstance(op, HostFn):
            op = Nop(stream=op.stream) if op.until is None else Gate(stream=op.stream, gate=op.until)
        super().issue(op)


class LegacyIgnored(Through):
    text = "gives a program non-blocking streams for blocking ones"

    @classmethod
    def names(cls, request: Request) -> dict[str, str]:
        """What each stream is called below."""
        return {name: f"plain_{name}" for name in request.streams if is_blocking_stream(name)}

    @classmethod
    def asked(cls, request: Request) -> Request:
        """Streams of the other kind."""
        below = cls.names(request)
        families = {below.get(name, name): family for name, family in request.families.items()}
        return replace(request, streams=[below.get(name, name) for name in request.streams], families=families)

    def issue(self, op: DeviceOp) -> None:
        """On the stream of the other kind."""
        super().issue(renamed(op, self.names(self.request)))

    def handles(self) -> Mapping[str, int]:
        """By the program's names."""
        below, names = self.inner.handles(), self.names(self.request)
        return {name: below[names.get(name, name)] for name in self.request.streams}

    def query_stream(self, stream: str) -> bool:
        """By the name below."""
        return self.inner.query_stream(self.names(self.request).get(stream, stream))

    def start(self, call: Sync | SyncStream | SyncDevice) -> Waiter:
        """By the name below."""
        if isinstance(call, SyncStream):
            call = SyncStream(stream=self.names(self.request).get(call.stream, call.stream))
        return self.inner.start(call)


class NonblockingObeysLegacy(LegacyIgnored):
    text = "gives a program with the default stream blocking streams for non-blocking ones"

    @classmethod
    def names(cls, request: Request) -> dict[str, str]:
        """Every side stream becomes one that the default stream orders."""
        if DEFAULT_STREAM not in request.streams:
            return {}
        side = [name for name in request.streams if name != DEFAULT_STREAM and not is_blocking_stream(name)]
        return {name: f"blocking_{name}" for name in side}


class PriorityReorders(WaitOrdersNoData):
    text = "moves work of prioritised streams ahead of the waits before it"

    def issue(self, op: DeviceOp) -> None:
        """Keep a wait until the host's next step."""
        if isinstance(op, Wait) and is_high_priority(op.stream):
            self._waits.setdefault(op.stream, []).append(op)
        else:
            Through.issue(self, op)


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


def renamed(op: DeviceOp, names: Mapping[str, str]) -> DeviceOp:
    """The operation on the streams of these other names."""
    op = replace(op, stream=names.get(op.stream, op.stream))
    return replace(op, other=names.get(op.other, op.other)) if isinstance(op, WaitStream) else op


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
    "completion-before-data": CompletionBeforeData,
    "destroy-blocks": DestroyBlocks,
    "wait-stream-dropped": WaitStreamDropped,
    "relayed-wait-dropped": RelayedWaitDropped,
    "wait-covers-tail": WaitCoversTail,
    "wait-orders-no-data": WaitOrdersNoData,
    "records-coalesced": RecordsCoalesced,
    "aliased-streams": AliasedStreams,
    "hostfn-early": HostFnEarly,
    "hostfn-async": HostFnAsync,
    "hostfn-twice": HostFnTwice,
    "hostfn-lost": HostFnLost,
    "legacy-ignored": LegacyIgnored,
    "nonblocking-obeys-legacy": NonblockingObeysLegacy,
    "priority-reorders": PriorityReorders,
    "elapsed-negative": ElapsedNegative,
    "elapsed-ignores-hold": ElapsedIgnoresHold,
    "elapsed-no-error": ElapsedNoError,
}
