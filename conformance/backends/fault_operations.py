"""Faults over an API that change what is queued: operations left out, moved, doubled, or put on other streams.

`conformance.backends.fault_calls` has those that change what the host is told.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from conformance.backends.fault_calls import Through
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
    from collections.abc import Mapping

    from conformance.backends.api import Clock, Request, Session, Waiter

#: A stream of the program below, for what overtakes its own stream.
SPARE: Final = "spare"


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


def renamed(op: DeviceOp, names: Mapping[str, str]) -> DeviceOp:
    """The operation on the streams of these other names."""
    op = replace(op, stream=names.get(op.stream, op.stream))
    return replace(op, other=names.get(op.other, op.other)) if isinstance(op, WaitStream) else op


#: The faults of this module by name.
SESSIONS: Final[Mapping[str, type[Through]]] = {
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
}
