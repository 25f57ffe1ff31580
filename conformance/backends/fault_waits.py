"""Faults over an API of waits without a record, of waits that obey too much, and of what a later wait delays.

As in `conformance.backends.fault_operations`, the device below is right.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from conformance.backends.fault_across import LateCrossDeviceWait
from conformance.backends.fault_calls import HeldCall, Through
from conformance.backends.fault_operations import WaitOrdersNoData
from conformance.errors import Unsupported
from probes.program import Copy, DeviceOp, Fill, Record, Sync, SyncStream, Wait, WaitStream

if TYPE_CHECKING:
    from collections.abc import Mapping

    from conformance.backends.api import Clock, Request, Session, Waiter
    from probes.program import SyncDevice

#: Records of one event that are told apart below.
RECORDS: Final = 4


class LateNever(Through):
    text = "delays host query and host synchronize for ever; device waits are in time"

    def __init__(self, inner: Session, request: Request, clock: Clock) -> None:
        super().__init__(inner, request, clock)
        self._hidden: set[str] = set()

    def issue(self, op: DeviceOp) -> None:
        """A wait hides what is pending before it on its stream."""
        if isinstance(op, Record):
            self._hidden.discard(op.event)
        elif isinstance(op, (Wait, WaitStream)):
            self._hidden |= {e for e, s in self.recorded.items() if s == op.stream and not self.inner.query(e)}
        super().issue(op)

    def query(self, event: str) -> bool:
        """No, if it is hidden."""
        return event not in self._hidden and self.inner.query(event)

    def start(self, call: Sync | SyncStream | SyncDevice) -> Waiter:
        """Never returns for what is hidden."""
        hidden = isinstance(call, Sync) and call.event in self._hidden
        return HeldCall([self.inner.start(call)], lambda: not hidden)


class LateBlockingSync(LateCrossDeviceWait):
    text = "delays host synchronize on events with the blocking flag until the next wait behind them is satisfied"

    def crosses(self, op: DeviceOp) -> bool:
        """Every wait delays, in a program with such events."""
        return self.request.flags.value == "blocking"

    def query(self, event: str) -> bool:
        """In time."""
        return self.inner.query(event)


class NeverRecordedBlocks(Through):
    text = "keeps a wait for an event without a record, and what follows it on its stream, in the host for ever"

    def __init__(self, inner: Session, request: Request, clock: Clock) -> None:
        super().__init__(inner, request, clock)
        self._kept: dict[str, list[DeviceOp]] = {}  # stream -> what is kept, from the wait on

    def issue(self, op: DeviceOp) -> None:
        """Keep it back behind such a wait."""
        unrecorded = isinstance(op, Wait) and op.event not in self.recorded
        if op.stream in self._kept or unrecorded:
            self._kept.setdefault(op.stream, []).append(op)
            return
        super().issue(op)

    def _keeps(self, event: str) -> bool:
        return any(isinstance(op, Record) and op.event == event for ops in self._kept.values() for op in ops)

    def query(self, event: str) -> bool:
        """No, while its record is kept."""
        return not self._keeps(event) and self.inner.query(event)

    def query_stream(self, stream: str) -> bool:
        """No, while something of it is kept."""
        return stream not in self._kept and self.inner.query_stream(stream)

    def start(self, call: Sync | SyncStream | SyncDevice) -> Waiter:
        """Does not return for what is kept now."""
        if isinstance(call, Sync):
            kept = self._keeps(call.event)
        else:
            kept = call.stream in self._kept if isinstance(call, SyncStream) else bool(self._kept)
        return HeldCall([self.inner.start(call)], lambda: not kept)


class _UntilHostStep(WaitOrdersNoData):
    """Keeps operations in the host, at most until the host looks or acts."""

    def extra(self, name: str) -> object:
        """No captures: a wait that is kept is not refused there, which would be another fault."""
        if name == "graph-capture":
            raise Unsupported(name, "the fault keeps waits in the host, which no capture may miss")
        return super().extra(name)

    def open(self, gate: str) -> None:
        """Nothing is kept any longer."""
        self._flush()
        super().open(gate)

    def start(self, call: Sync | SyncStream | SyncDevice) -> Waiter:
        """The same."""
        self._flush()
        return super().start(call)

    def query_stream(self, stream: str) -> bool:
        """The same."""
        self._flush()
        return super().query_stream(stream)

    def calls(self, function: str) -> int:
        """The same."""
        self._flush()
        return super().calls(function)

    def keep(self, op: DeviceOp, *, begins: bool) -> bool:
        """Is it kept? ``begins``: also where nothing is kept on its stream yet."""
        needed = [op.other] if isinstance(op, WaitStream) else self._recording(op) if isinstance(op, Wait) else []
        for stream in needed:
            if stream != op.stream:
                self._flush(stream)  # what it waits for must be queued first
        if begins or op.stream in self._waits:
            self._waits.setdefault(op.stream, []).append(op)
            return True
        return False

    def _recording(self, wait: Wait) -> list[str]:
        kept = self._waits.items()
        return [s for s, ops in kept if any(isinstance(op, Record) and op.event == wait.event for op in ops)]


class WaitFutureRecord(_UntilHostStep):
    text = "keeps a wait for an event without a record, and what follows on its stream, until the record, if it comes"

    def issue(self, op: DeviceOp) -> None:
        """Keep it, and let it go with the record."""
        if self.keep(op, begins=isinstance(op, Wait) and op.event not in self.recorded):
            return
        Through.issue(self, op)
        if isinstance(op, Record):
            for stream, kept in list(self._waits.items()):
                if isinstance(kept[0], Wait) and kept[0].event == op.event:
                    self._flush(stream)


class RecordsMerged(_UntilHostStep):
    text = "changes device waits alone: each obeys every record of its event up to the host's next step"

    def __init__(self, inner: Session, request: Request, clock: Clock) -> None:
        super().__init__(inner, request, clock)
        self._records: Counter[str] = Counter()

    @classmethod
    def asked(cls, request: Request) -> Request:
        """Room for an event for each record."""
        more = [f"{event}_{n}" for event in request.events for n in range(RECORDS)]
        return replace(request, events=[*request.events, *more])

    def issue(self, op: DeviceOp) -> None:
        """Keep waits, and what follows them on their stream."""
        if not self.keep(op, begins=isinstance(op, Wait) and op.event in self.recorded):
            self._now(op)

    def _flush(self, stream: str | None = None) -> None:
        for name in [stream] if stream is not None else list(self._waits):
            for op in self._waits.pop(name, []):
                self._now(op)

    def _now(self, op: DeviceOp) -> None:
        if isinstance(op, Wait):
            for n in range(min(self._records[op.event], RECORDS)):
                self.inner.issue(Wait(stream=op.stream, event=f"{op.event}_{n}"))
            return
        Through.issue(self, op)
        if isinstance(op, Record):
            self.inner.issue(Record(stream=op.stream, event=f"{op.event}_{self._records[op.event] % RECORDS}"))
            self._records[op.event] += 1


class CopyReadsLate(_UntilHostStep):
    text = "moves a fill that follows a copy of the same buffer ahead of the copy"

    def issue(self, op: DeviceOp) -> None:
        """Keep a copy until the next operation, or the host's next step."""
        kept = self._waits.get(op.stream, [])
        if isinstance(op, Fill) and any(isinstance(copy, Copy) and copy.source == op.buffer for copy in kept):
            Through.issue(self, op)
            self._flush()
            return
        self._flush()
        if isinstance(op, Copy):
            self._waits[op.stream] = [op]
        else:
            Through.issue(self, op)


#: The faults of this module by name.
SESSIONS: Final[Mapping[str, type[Through]]] = {
    "late-never": LateNever,
    "late-blocking-sync": LateBlockingSync,
    "records-merged": RecordsMerged,
    "never-recorded-blocks": NeverRecordedBlocks,
    "wait-future-record": WaitFutureRecord,
    "copy-reads-late": CopyReadsLate,
}
