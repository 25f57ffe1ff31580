"""Kinds of faults known from public reports, each with one label: what this suite makes of it, and why.

A kind is ``killed-by`` a clause (a fault of the reference device shows it), a ``capability`` (legal, and
measured), or of a ``client`` (no device can have it). docs/catalogue.md is this table.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from conformance.errors import HarnessError
from conformance.faults import DECOYS, fault_of

if TYPE_CHECKING:
    from collections.abc import Iterator


class Label(str, Enum):
    """What becomes of a kind of fault."""

    KILLED = "killed-by"
    CAPABILITY = "capability"
    CLIENT = "client"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind: its key, what goes wrong, its label, the reference device's name for it, and the reason."""

    key: str
    effect: str
    label: Label
    device: str = ""  # a fault if it is killed, a legal device if that shows it
    reason: str

    @property
    def clause(self) -> str:
        """The clause that catches it; empty unless it is killed."""
        fault = fault_of(self.device) if self.label is Label.KILLED else None
        return fault.killed_by if fault is not None else ""


def _killed(key: str, effect: str, device: str, reason: str) -> Kind:
    return Kind(key=key, effect=effect, label=Label.KILLED, device=device, reason=reason)


def _legal(key: str, effect: str, reason: str, device: str = "") -> Kind:
    return Kind(key=key, effect=effect, label=Label.CAPABILITY, device=device, reason=reason)


def _client(key: str, effect: str, reason: str) -> Kind:
    return Kind(key=key, effect=effect, label=Label.CLIENT, reason=reason)


KINDS: Final = (
    _killed(
        "F-TAIL",
        "an event waits until nothing blocked stands behind it",
        "late-any-wait",
        "the defect this suite was made for: later work has no say",
    ),
    _killed(
        "F-BATCH sync",
        "a signal leaves when the host synchronizes",
        "late-sync",
        "the work is done and its token is there, so the event is complete by definition",
    ),
    _killed(
        "F-BATCH next",
        "a signal leaves with the next operation",
        "batch-until-next-operation",
        "the same: with nothing more queued it would never be seen",
    ),
    _legal(
        "F-BATCH query",
        "work is kept back until the host asks for anything",
        "no document bounds the start of work, and the host does ask",
        "batch-query",
    ),
    _legal("F-BATCH timer", "work is kept back for a while", "no document bounds the start of work", "batch-timer"),
    _killed(
        "F-SLOT overwrite",
        "an earlier waiter obeys the newest record",
        "wait-newest-record",
        "a wait is bound when it is issued",
    ),
    _killed("F-SLOT merge", "an earlier waiter obeys every record", "records-merged", "a wait is bound when issued"),
    _killed(
        "F-LAZYREC",
        "a record is issued late and covers later work",
        "deferred-record",
        "a record takes in the past and nothing else",
    ),
    _client(
        "F-HOL",
        "a list of events is scanned up to the first unfinished one",
        "the scan is in the program that keeps the list: each event says the truth",
    ),
    _client(
        "F-IDLEPOLL",
        "nobody asks while the scheduler is idle",
        "a device cannot make its user ask; with the host asking, nothing is late",
    ),
    _killed(
        "F-DONE",
        "query and synchronize report complete at once",
        "query-always-true",
        "early by one observation, with a gate shown shut",
    ),
    _killed("F-INVERT", "query says the opposite", "query-inverted", "early while it pends, late when it is done"),
    _killed(
        "F-COALESCE",
        "neighbouring records share a signal",
        "records-coalesced",
        "the later of two records with a gate between them is early",
    ),
    _killed(
        "F-ENGINE",
        "copies run on an engine that records do not cover",
        "large-copy-not-captured",
        "the event is complete, and the token is not there",
    ),
    _killed(
        "F-FINISH0",
        "a host wait returns at once",
        "stream-sync-early",
        "it comes back with a gate of its stream shown shut",
    ),
    _killed(
        "F-NOWAIT",
        "a stream wait is dropped",
        "wait-dropped",
        "the consumer's token is there with the producer's gate shown shut",
    ),
    _killed(
        "F-NOWAIT bare",
        "a wait on a record without work of its own is dropped",
        "relayed-wait-dropped",
        "the same, through a record with only a wait before it",
    ),
    _killed(
        "F-TAILWAIT",
        "a wait covers its producer's tail",
        "wait-covers-tail",
        "cannot be told from a shared queue where the tail was queued before the wait: measured, as a SHOULD",
    ),
    _killed(
        "F-FUTUREWAIT",
        "a wait blocks on a record still to come",
        "wait-future-record",
        "a wait is bound when it is issued",
    ),
    _legal("F-QUEUES", "streams share k hardware queues", "no vendor promises concurrency", "queues-2"),
    _killed(
        "F-PARKQ",
        "a blocked wait stops what was queued before it",
        "held-by-wait",
        "within a stream; where streams share a queue, later work of both may stop: that is F-QUEUES",
    ),
    _legal("F-POOL", "stream handles repeat after k", "torch's pool does after 32: measured, and checked per program"),
    _legal(
        "F-FIFOENG",
        "copies go through n engines in strict order",
        "no vendor promises that copies of two streams run side by side; the part 'coupled streams' measures which "
        "streams hold up each other's copies",
        "queues-1",
    ),
    _legal("F-PRIO0", "priorities do nothing", "a hint, by every document", "priorities-ignored"),
    _legal("F-DEPTH", "enqueue blocks beyond n pending operations", "queues are finite: the depth is measured"),
    _killed(
        "F-DEVSYNC",
        "stream synchronize waits for the device",
        "stream-sync-overwaits",
        "it does not come back with its own stream done",
    ),
    _killed(
        "F-NULL",
        "the default stream's rule is not kept",
        "legacy-ignored",
        "the default stream's token is there with a blocking stream's gate shown shut",
    ),
    _legal(
        "F-ALLSYNC",
        "every operation is synchronous",
        "legal and useless: a gate then blocks its own launch, and the run says that no gate works",
    ),
    _killed(
        "F-LOCK",
        "query waits for the lock of a synchronize",
        "query-blocks-in-sync",
        "the call comes back only after a tenth of a second",
    ),
    _legal(
        "F-LOADSYNC",
        "the first launch of a kernel waits for the device",
        "documented for lazy loading: everything is loaded before the first gate closes",
    ),
    _legal("F-FREESYNC", "freeing memory waits for the device", "documented: nothing is freed while a gate is shut"),
    _legal(
        "F-CBLOCK",
        "one host function holds the others",
        "documented: functions may be serialized, so one is held at a time",
    ),
    _killed(
        "F-DESTROYBLK",
        "dropping a pending event blocks",
        "destroy-blocks",
        "the call does not come back by the deadline",
    ),
    _killed(
        "F-LOSTSIG",
        "the signal of a record is lost",
        "late-never",
        "never seen, by three holds, a stream and a device synchronize",
    ),
    _killed(
        "F-ORPHAN",
        "work or event is lost with its stream",
        "stream-destroy-drops-work",
        "the token never arrives, and does without the destroy",
    ),
    _killed("F-LOST", "an event never completes", "lost-event", "its token is there, and it is never seen"),
    _killed(
        "F-RINGWRAP",
        "a record takes over an older one's slot",
        "event-slot-reused",
        "the new event shows what the old one left: early",
    ),
    _legal("F-EVMAX", "there is a largest number of events", "resources are finite: 'live events' measures up to 4096"),
    _killed("F-WRONGDEV", "recording on another device is accepted", "wrong-device-accepted", "no error comes back"),
    _killed(
        "F-STICKY",
        "a query's 'not ready' makes a later call fail",
        "query-sticks",
        "the next call raises what it does not raise without the query",
    ),
    _killed("F-ELAPSED skew", "times run backwards", "elapsed-negative", "the sign, within one stream"),
    _killed(
        "F-ELAPSED host",
        "times are those of the host's calls",
        "elapsed-ignores-hold",
        "the time leaves out a gate held between the events",
    ),
    _killed(
        "F-ELAPSED devices",
        "there is a time between events of two devices",
        "cross-device-elapsed",
        "a number comes back where two devices share no clock",
    ),
    _killed("F-ELAPSED unchecked", "there is a time where there is none", "elapsed-no-error", "a number comes back"),
    _legal(
        "F-SPIN",
        "host waits or idle threads use the processor",
        "no document promises a figure: 'processor used' measures it",
    ),
    _legal(
        "F-RECCOST",
        "a record costs more with more streams",
        "no document promises a figure: 'record cost' measures 1, 4 and 8",
    ),
    _killed(
        "F-SRCNOW",
        "a copy reads its source when it is queued",
        "copy-reads-at-enqueue",
        "the token is the one that the buffer held before",
    ),
    _killed(
        "F-SRCLATE",
        "a copy reads its source after later work wrote it",
        "copy-reads-late",
        "the token is the one that was written later",
    ),
    _client(
        "F-SRCANY",
        "a source is changed while its copy is pending, in no order with it",
        "the program races: no value would be wrong",
    ),
    _killed(
        "F-VIS",
        "an event is complete before its data is visible",
        "completion-before-data",
        "the host finds an old token right after it saw the event complete",
    ),
    _killed("F-SCRIBBLE", "a copy overwrites what it should not", "memory-scribbled", "a token that nothing wrote"),
    _killed("F-CAP", "a rule of captures is not kept", "captured-query-succeeds", "the call comes back with success"),
)


def check() -> None:
    """Raise HarnessError for a kind that is given twice, or names a device that there is not."""
    seen: set[str] = set()
    for kind in KINDS:
        if kind.key in seen:
            raise HarnessError(f"kind {kind.key} is in the catalogue twice")
        seen.add(kind.key)
        if kind.label is Label.KILLED and fault_of(kind.device) is None:
            raise HarnessError(
                f"kind {kind.key} names fault {kind.device}, which the catalogue of faults does not have"
            )
        if kind.label is Label.CAPABILITY and kind.device and kind.device not in DECOYS and not fault_of(kind.device):
            raise HarnessError(f"kind {kind.key} names device {kind.device}, which is no legal device")


def page() -> str:
    """The table as a page of Markdown."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "# Kinds of faults"
    yield ""
    yield "Made from `conformance/catalogue.py`. Each kind comes from public reports; `killed-by` names the clause that"
    yield "catches it, with the fault of the reference device that shows so (`stream-conformance selftest`)."
    yield ""
    yield "| kind | what goes wrong | label | shown by | why |"
    yield "|---|---|---|---|---|"
    for kind in KINDS:
        label = f"{kind.label.value} {kind.clause}".strip()
        yield f"| {kind.key} | {kind.effect} | {label} | {kind.device or '-'} | {kind.reason} |"
