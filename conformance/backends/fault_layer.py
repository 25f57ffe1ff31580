"""Makes any backend wrong at the API, so that the suite's power is shown on real hardware.

Each fault replaces what the host asks, or what it queues; the device below stays as it is. A late
fault records an event of its own behind the later operation and lets the host see the program's event
only when that one is complete too, so it delays host query and host synchronize, and never a device wait:
waits bind to the event itself. Faults that move queued work keep operations back in the host until
the next host step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from conformance.backends.api import Backend, Clock, DeviceInfo, GateKind, Opinion, Request, Session, Waiter
from conformance.backends.fault_across import SESSIONS as ACROSS
from conformance.backends.fault_blocking import SESSIONS as BLOCKING
from conformance.backends.fault_calls import SESSIONS as CALLS
from conformance.backends.fault_calls import HeldCall, Through, extra_below
from conformance.backends.fault_captures import SESSIONS as CAPTURES
from conformance.backends.fault_extras import SESSIONS as EXTRAS
from conformance.backends.fault_operations import SESSIONS as OPERATIONS
from conformance.backends.fault_waits import SESSIONS as WAITS
from conformance.errors import Unsupported, UsageError, unknown_name
from probes.program import (
    Copy,
    DeviceOp,
    Fill,
    Gate,
    HostFn,
    Nop,
    Record,
    Sync,
    SyncDevice,
    SyncStream,
    Wait,
    WaitStream,
    is_far,
)

#: Faults that are sessions of their own.
SESSIONS: Final[Mapping[str, type[Through]]] = {
    **CALLS,
    **OPERATIONS,
    **BLOCKING,
    **EXTRAS,
    **CAPTURES,
    **ACROSS,
    **WAITS,
}

#: What each fault delays or changes, for ``explain`` and reports.
FAULTS: Final[Mapping[str, str]] = {
    "late-next-wait": "delays host query and host synchronize; device waits are in time",
    "late-any-wait": "delays host query and host synchronize; device waits are in time",
    "late-idle": "delays host query and host synchronize; device waits are in time",
    "late-sync": "delays host query and host synchronize; device waits are in time",
    "held-by-wait": "moves queued work behind a later wait: host and device see it late",
    "query-always-true": "changes host query alone",
    "query-inverted": "changes host query alone",
    "sync-noop": "changes host synchronize alone",
    "wait-dropped": "changes device waits alone, in both spellings",
    "wait-newest-record": "changes device waits alone",
    "rerecord-ignored": "changes host query, host synchronize and device waits",
    "destroy-drops-waits": "changes device waits alone",
    **{name: session.text for name, session in SESSIONS.items()},
}

#: Faults under which an event is late until its stream's tail, a record behind the last such operation, is complete.
_BEHIND: Final[Mapping[str, tuple[type, ...]]] = {
    "late-any-wait": (Wait, WaitStream),
    "late-idle": (Gate, Fill, Copy, Record, Wait, WaitStream, HostFn),
}


def check_faults(faults: tuple[str, ...], backend: str) -> None:
    """Raise UsageError for a fault that cannot be laid over a backend."""
    for fault in faults:
        if fault not in FAULTS:
            advice = f"(over the {backend} backend: {', '.join(FAULTS)})"
            raise UsageError(unknown_name("fault", fault, list(FAULTS), advice))
    if len(faults) > 1:
        raise UsageError(f"faults {', '.join(faults)}: over the {backend} backend one fault can be given at a time")


@dataclass(slots=True)
class _Recorded:
    """An event's latest record, as the fault sees it."""

    stream: str
    flushed: bool = False  # a stream or device synchronize was entered since
    shadowed: bool = False  # an event of its own was recorded behind the next wait
    tailed: bool = False  # something that delays it was queued behind it
    published: bool = False  # was seen complete when its stream's tail moved on


@dataclass(slots=True)
class FaultySession:
    """One program on a backend that is wrong in one way."""

    inner: Session
    fault: str
    recorded: dict[str, _Recorded] = field(default_factory=dict)
    deferred: dict[str, list[DeviceOp]] = field(default_factory=dict)

    def issue(self, op: DeviceOp) -> None:
        """Queue one operation, or keep it back, or leave it out."""
        if isinstance(op, Nop):
            return
        if self.fault == "wait-dropped" and isinstance(op, (Wait, WaitStream)):
            return
        if self.fault == "rerecord-ignored" and isinstance(op, Record) and self._again(op):
            return
        if self.fault == "held-by-wait":
            self._hold_back(op)
        elif self.fault in ("wait-newest-record", "destroy-drops-waits"):
            self._keep_waits(op)
        else:
            self._now(op)

    def _again(self, op: Record) -> bool:
        """Is it a second record, and none that the device must refuse?"""
        known = self.recorded.get(op.event)
        return known is not None and is_far(known.stream) == is_far(op.stream)

    def _now(self, op: DeviceOp) -> None:
        tails = isinstance(op, _BEHIND.get(self.fault, ()))
        if tails:
            self._before_tail(op.stream)
        self.inner.issue(op)
        if isinstance(op, Record):
            self.recorded[op.event] = _Recorded(op.stream)
        if self.fault == "late-next-wait" and isinstance(op, (Wait, WaitStream)):
            self._shadow_once(op.stream)
        if tails:
            self.inner.issue(Record(stream=op.stream, event=_tail(op.stream)))
            itself = op.event if isinstance(op, Record) else None
            for event, record in self.recorded.items():
                if record.stream == op.stream and event != itself:
                    record.tailed = True

    def _shadow_once(self, stream: str) -> None:
        for event, record in self.recorded.items():
            if record.stream == stream and not record.shadowed and not self._shown(event):
                record.shadowed = True
                self.inner.issue(Record(stream=stream, event=_shadow(event)))

    def _before_tail(self, stream: str) -> None:
        """The tail moves on: what it let the host see until now, the host goes on seeing."""
        for event, record in self.recorded.items():
            if record.stream == stream and not record.published and self._shown(event):
                record.published = True

    def _hold_back(self, op: DeviceOp) -> None:
        """Waits go ahead of the work queued before them on their stream; that follows at the next gate or host step."""
        if isinstance(op, Gate):
            self._flush(op.stream)
            self._now(op)
        elif isinstance(op, (Wait, WaitStream)):
            # What it waits for must be queued first.
            needed = [op.other] if isinstance(op, WaitStream) else self._streams_recording(op.event)
            for stream in needed:
                self._flush(stream)
            self._now(op)
        else:
            self.deferred.setdefault(op.stream, []).append(op)

    def _keep_waits(self, op: DeviceOp) -> None:
        """Waits, and what follows them on their stream, stay in the host until the next host step."""
        drops = self.fault == "destroy-drops-waits"
        if drops and isinstance(op, Record):
            # A second record must not change what an older wait obeys: that would be another fault.
            for stream in self._streams_waiting(op.event):
                self._flush(stream)
        if isinstance(op, WaitStream):
            self._flush(op.other)  # what it waits for must be queued first
        known = isinstance(op, Wait) and (op.event in self.recorded or self._kept_back(op.event))
        begins = isinstance(op, Wait) and (not drops or known)
        if begins or op.stream in self.deferred:
            self.deferred.setdefault(op.stream, []).append(op)
        else:
            self._now(op)

    def _streams_recording(self, event: str) -> list[str]:
        return [s for s, ops in self.deferred.items() if any(isinstance(o, Record) and o.event == event for o in ops)]

    def _streams_waiting(self, event: str) -> list[str]:
        return [s for s, ops in self.deferred.items() if any(isinstance(o, Wait) and o.event == event for o in ops)]

    def _flush(self, stream: str | None = None) -> None:
        for name in [stream] if stream is not None else list(self.deferred):
            for op in self.deferred.pop(name, []):
                self._now(op)

    def _host_step(self) -> None:
        """The host looks or acts: what was kept back is queued now, but for waits that a destroy may still drop."""
        if self.fault != "destroy-drops-waits":
            self._flush()

    def _kept_back(self, event: str) -> bool:
        return bool(self._streams_recording(event))

    def _shown(self, event: str) -> bool:
        """What an honest host would see, shadows included."""
        record = self.recorded.get(event)
        if record is None:
            return self.inner.query(event)
        if not self.inner.query(event):
            return False
        if record.shadowed and not self.inner.query(_shadow(event)):
            return False
        if record.tailed and not record.published and not self.inner.query(_tail(record.stream)):
            return False
        return self.fault != "late-sync" or record.flushed

    def handles(self) -> Mapping[str, int]:
        """The raw handle of each stream."""
        return self.inner.handles()

    def open(self, gate: str) -> None:
        """Open a gate."""
        self._flush()
        self.inner.open(gate)

    def ended(self, gate: str) -> bool:
        """True if the gate holds no more."""
        return self.inner.ended(gate)

    def query(self, event: str) -> bool:
        """What the fault lets the host see."""
        self._host_step()
        if self.fault == "query-always-true":
            return True
        if self._kept_back(event):
            return False
        return self._shown(event) != (self.fault == "query-inverted")

    def ask_below(self, event: str) -> Opinion:
        """What the layer below says: a fault laid over the API is not in it."""
        inner = getattr(self.inner, "ask_below", None)
        found: Opinion = inner(event) if inner is not None else Opinion(reason="the device below has no second opinion")
        return found

    def query_stream(self, stream: str) -> bool:
        """Ask the stream."""
        self._host_step()
        return self.inner.query_stream(stream)

    def read(self, buffer: str) -> int:
        """A load from a host buffer."""
        self._host_step()
        return self.inner.read(buffer)

    def extra(self, name: str) -> object:
        """What an experiment asks for: that of the session below."""
        if name == "graph-capture":
            raise Unsupported(name, f"the fault {self.fault} records events of its own, which no capture may take in")
        return extra_below(self.inner, name)

    def calls(self, function: str) -> int:
        """How often a host function was called."""
        self._host_step()
        return self.inner.calls(function)

    def elapsed(self, start: str, end: str) -> float:
        """Seconds between two events."""
        self._host_step()
        return self.inner.elapsed(start, end)

    def destroy(self, event: str) -> None:
        """Drop the event, and under one fault its waits that were kept back."""
        self._host_step()
        if self.fault == "destroy-drops-waits":
            for stream, ops in self.deferred.items():
                self.deferred[stream] = [op for op in ops if not (isinstance(op, Wait) and op.event == event)]
            self._flush()
        self.inner.destroy(event)

    def start(self, call: Sync | SyncStream | SyncDevice) -> Waiter:
        """Synchronize as the fault lets the host."""
        self._flush()
        if not isinstance(call, Sync):
            for entered in self.recorded.values():
                entered.flushed = True
            return self.inner.start(call)
        if self.fault == "sync-noop":
            return HeldCall([], lambda: True)
        parts = [self.inner.start(call)]
        record = self.recorded.get(call.event)
        if record is None:
            return parts[0]
        if record.shadowed:
            parts.append(self.inner.start(Sync(event=_shadow(call.event))))
        if record.tailed and not record.published:
            parts.append(self.inner.start(Sync(event=_tail(record.stream))))
        return HeldCall(parts, lambda: self.fault != "late-sync" or record.flushed)

    def close(self) -> bool:
        """Queue what was kept back, and close: whatever comes of the first, the gates are opened."""
        idle = False
        try:
            self._flush()
        finally:
            idle = self.inner.close()
        return idle


def _shadow(event: str) -> str:
    return f"{event}_shadow"


def _tail(stream: str) -> str:
    return f"tail_of_{stream}"


class FaultyBackend:
    """A backend with one fault laid over it; everything else is the backend's own."""

    def __init__(self, inner: Backend, faults: tuple[str, ...], *, alias: str | None = None) -> None:
        check_faults(faults, inner.name)
        self.inner, self._fault = inner, faults[0]
        self.name, self.profile, self.surface = inner.name, inner.profile, inner.surface
        self.simulated, self.vendor_errors = inner.simulated, inner.vendor_errors
        self.faults = faults if alias is None else (alias,)
        self.clock: Clock = inner.clock

    @property
    def usable(self) -> bool:
        """Can more programs be run on the device below?"""
        return bool(getattr(self.inner, "usable", True))

    def device(self) -> DeviceInfo:
        """The device below."""
        return self.inner.device()

    def gate(self) -> GateKind:
        """The gates below."""
        return self.inner.gate()

    def unsupported(self, capability: str) -> str | None:
        """What the backend below cannot do."""
        return self.inner.unsupported(capability)

    def software(self) -> Mapping[str, str]:
        """The software below."""
        return self.inner.software()

    def session(self, request: Request) -> FaultySession | Through:
        """A session below, with room for shadows."""
        if (wrong := SESSIONS.get(self._fault)) is not None:
            return wrong(self.inner.session(wrong.asked(request)), request, self.clock)
        events = [*request.events, *map(_shadow, request.events), *map(_tail, request.streams)]
        return FaultySession(self.inner.session(replace(request, events=events)), self._fault)

    def open_all_gates(self) -> None:
        """Open every gate below, where the backend can do that from any thread."""
        open_all = getattr(self.inner, "open_all_gates", None)
        if open_all is not None:
            open_all()

    def close(self) -> None:
        """Give the device back."""
        self.inner.close()
