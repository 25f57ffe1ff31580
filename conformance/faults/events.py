"""The catalogue of faults: which clause must catch each one, and which clauses may fail beside it.

One name means one wrong behaviour on the reference device, in the fault layer over a real backend,
and preloaded under a program. Only the selftest reads this; no judgement ever does. Source:
docs/rules.md 1.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A named wrong behaviour."""

    name: str
    text: str
    killed_by: str
    may_fail: tuple[str, ...] = ()
    outcome: str = "not-needed"  # of the decision, for two to four steps in flight
    form: str = ""  # what must be named as publishing a late event

    @property
    def allowed(self) -> frozenset[str]:
        """Every clause that may fail under this fault."""
        return frozenset((self.killed_by, *self.may_fail))


def _fault(
    name: str, text: str, killed_by: str, may_fail: str = "", *, outcome: str = "not-needed", form: str = ""
) -> Fault:
    return Fault(
        name=name, text=text, killed_by=killed_by, may_fail=tuple(may_fail.split()), outcome=outcome, form=form
    )


_ALL: Final = (
    _fault(
        "late-next-wait",
        "an event is seen once the next wait behind it is satisfied",
        "EVT-INDEP-1",
        outcome="enable",
        form="next-wait",
    ),
    _fault(
        "late-any-wait",
        "an event is seen once no unsatisfied wait is left behind it",
        "EVT-INDEP-1",
        outcome="enable",
        form="any-wait",
    ),
    _fault(
        "late-idle",
        "an event is seen once everything behind it has finished",
        "EVT-INDEP-1",
        outcome="enable",
        form="idle",
    ),
    _fault("late-never", "an event with a wait behind it is never seen", "EVT-INDEP-1", outcome="enable", form="never"),
    _fault(
        "late-next-wait-queue",
        "as late-next-wait, per hardware queue",
        "EVT-INDEP-1",
        outcome="enable",
        form="next-wait",
    ),
    _fault(
        "late-sync",
        "an event is seen only after a stream or device synchronize",
        "EVT-LIVE-1",
        outcome="ineffective",
        form="sync",
    ),
    _fault("lost-event", "an event is never seen", "EVT-LIVE-1", outcome="ineffective", form="never"),
    _fault("late-sync-device", "as late-sync, device waits too", "EVT-LIVE-1", outcome="ineffective", form="sync"),
    _fault(
        "late-device-wait",
        "as late-next-wait, device waits too",
        "EVT-INDEP-2",
        "EVT-INDEP-1 EVT-WAIT-5",
        outcome="enable",
        form="next-wait",
    ),
    _fault(
        "late-next-wait-device",
        "as late-next-wait, device waits too",
        "EVT-INDEP-2",
        "EVT-INDEP-1 EVT-WAIT-5",
        outcome="enable",
        form="next-wait",
    ),
    _fault(
        "late-any-wait-device",
        "as late-any-wait, device waits too",
        "EVT-INDEP-2",
        "EVT-INDEP-1 EVT-WAIT-5",
        outcome="enable",
        form="any-wait",
    ),
    _fault(
        "late-never-device",
        "as late-never, device waits too",
        "EVT-INDEP-2",
        "EVT-INDEP-1 EVT-WAIT-5",
        outcome="enable",
        form="never",
    ),
    _fault(
        "late-idle-device",
        "as late-idle, device waits too",
        "EVT-INDEP-2",
        "EVT-INDEP-1 EVT-REC-1 EVT-WAIT-5",
        outcome="ineffective",
        form="idle",
    ),
    _fault(
        "late-blocking-sync",
        "synchronize on a blocking event waits for the next wait too",
        "EVT-INDEP-3",
        outcome="enable",
        form="next-wait",
    ),
    _fault(
        "deferred-record",
        "a record takes effect late and captures later work",
        "EVT-INDEP-1",
        "EVT-INDEP-2 EVT-REC-1 EVT-WAIT-5",
        outcome="ineffective",
        form="idle",
    ),
    _fault(
        "record-captures-later",
        "a record takes in the next operation of its stream",
        "EVT-REC-1",
        "EVT-INDEP-1 EVT-INDEP-2 EVT-WAIT-5",
        outcome="ineffective",
        form="next-wait",
    ),
    _fault(
        "held-by-wait",
        "queued work does not run once a pending wait stands behind it",
        "EVT-WAIT-4",
        "EVT-WAIT-5",
        outcome="enable",
        form="any-wait",
    ),
    _fault(
        "query-always-true",
        "every event is reported complete",
        "EVT-SAFE-1",
        "EVT-REREC-1 MEM-VIS-1",
        outcome="undecided",
    ),
    _fault(
        "early-at-copy-start",
        "an event is complete when the last copy starts",
        "EVT-SAFE-1",
        "EVT-SYNC-1",
        outcome="undecided",
    ),
    _fault(
        "copy-not-captured",
        "a record does not take in a copy under way",
        "EVT-SAFE-1",
        "EVT-SYNC-1",
        outcome="undecided",
    ),
    _fault(
        "wait-dropped",
        "device waits are ignored",
        "EVT-WAIT-1",
        "EVT-SAFE-1 EVT-SYNC-1 EVT-REREC-2 EVT-DESTROY-1",
        outcome="undecided",
    ),
    _fault("wait-newest-record", "a wait obeys the event's newest record", "EVT-REREC-2", "EVT-WAIT-2"),
    _fault(
        "rerecord-releases-waits",
        "a second record lets older waits go",
        "EVT-WAIT-1",
        "EVT-REREC-2 EVT-SAFE-1 EVT-SYNC-1",
        outcome="undecided",
    ),
    _fault(
        "rerecord-ignored",
        "a second record changes nothing",
        "EVT-SAFE-1",
        "EVT-REREC-1 EVT-SYNC-1",
        outcome="undecided",
    ),
    _fault(
        "query-stale",
        "query stays false for a recorded event",
        "EVT-AGREE-1",
        "EVT-LIVE-1",
        outcome="ineffective",
        form="never",
    ),
    _fault(
        "query-inverted",
        "query says the opposite",
        "EVT-SAFE-1",
        "EVT-REREC-1 EVT-MONO-1 EVT-NEVER-1 EVT-AGREE-1 EVT-LIVE-1 MEM-VIS-1",
        outcome="ineffective",
        form="never",
    ),
    _fault("query-flickers", "query of a complete event alternates", "EVT-MONO-1"),
    _fault("sync-noop", "synchronize returns at once", "EVT-SYNC-1", "EVT-REREC-1 MEM-VIS-1", outcome="undecided"),
    _fault("never-recorded-pends", "an unrecorded event is not complete", "EVT-NEVER-1"),
    _fault("never-recorded-blocks", "a wait on an unrecorded event blocks its stream", "EVT-NEVER-2"),
    _fault(
        "fifo-violated",
        "an operation overtakes the blocked head of its stream",
        "STM-FIFO-1",
        "EVT-SAFE-1 EVT-SYNC-1 EVT-WAIT-1 EVT-REREC-1 EVT-REREC-2 EVT-DESTROY-1",
        outcome="undecided",
    ),
    _fault("aliased-streams", "two stream objects are one stream", "STM-ALIAS-1", outcome="undecided"),
    _fault(
        "wait-blocks-host", "a wait call returns only when the event is complete", "EVT-WAIT-3", outcome="undecided"
    ),
    _fault(
        "record-blocks-host", "a record call returns only when its stream is idle", "EVT-REC-2", outcome="undecided"
    ),
    _fault("destroy-blocks", "destroying a pending event blocks the host", "EVT-DESTROY-1"),
    _fault(
        "destroy-drops-waits",
        "destroying an event lets its waits go",
        "EVT-DESTROY-1",
        "EVT-SAFE-1 EVT-SYNC-1",
        outcome="undecided",
    ),
    _fault(
        "completion-before-data", "an event is complete before its data is visible", "MEM-VIS-1", outcome="undecided"
    ),
    _fault("stream-query-early", "a busy stream is reported finished", "STM-QUERY-1"),
    _fault("stream-sync-overwaits", "stream synchronize waits for other streams", "STM-SYNC-1"),
    _fault("wait-future-record", "a wait on an unrecorded event binds to its next record", "EVT-WAIT-2"),
    _fault("self-wait-hangs", "a wait on an event of the same stream never ends", "EVT-WAIT-5"),
    _fault(
        "wait-stream-dropped",
        "wait_stream is ignored, wait_event is not",
        "STM-WSTREAM-1",
        "EVT-SAFE-1 EVT-SYNC-1",
        outcome="undecided",
    ),
)

FAULTS: Final[dict[str, Fault]] = {fault.name: fault for fault in _ALL}

# MEM-VIS-1 stands in three lists because, on a real device data takes its time, and an event that is
# reported complete before it is, is reported before its data too.

#: Legal devices that a careless suite would call defective: nothing may fail on them.
DECOYS: Final[dict[str, str]] = {
    "slow-device": "every operation is uniformly slow",
    "very-slow-device": "every operation takes longer than the deadline allows",
    "gates-expire": "gates end by themselves when an event is asked",
}

_QUEUES: Final = re.compile(r"queues-[1-9]\d?")


def fault_of(name: str) -> Fault | None:
    """The catalogue's entry; ``queues-K`` is one fault for any K. None for a decoy or an unknown name."""
    if _QUEUES.fullmatch(name):
        return Fault(name=name, text="streams share this many hardware queues", killed_by="STM-CONC-1")
    return FAULTS.get(name)
