"""The catalogue of faults: which clause must catch each one, and which clauses may fail beside it.

One name means one wrong behaviour on the reference device, in the fault layer over a real backend,
and preloaded under a program. Only the selftest reads this; no judgement ever does. Source:
docs/rules.md 1.
"""

from __future__ import annotations

import re
from typing import Final

from conformance.faults import events, others
from conformance.faults.record import Fault

__all__ = ["DECOYS", "FAULTS", "Fault", "fault_of"]

FAULTS: Final[dict[str, Fault]] = {fault.name: fault for fault in (*events.FAULTS, *others.FAULTS)}

# MEM-VIS-1 stands in three lists because, on a real device data takes its time, and an event that is
# reported complete before it is, is reported before its data too.

#: Legal devices that a careless suite would call defective: nothing may fail on them.
DECOYS: Final[dict[str, str]] = {
    "slow-device": "every operation is uniformly slow",
    "very-slow-device": "every operation takes longer than the deadline allows",
    "gates-expire": "gates end by themselves when an event is asked",
    "batch-query": "work is kept back until the host asks for anything",
    "batch-timer": "work is kept back for a millisecond",
    "priorities-ignored": "priorities do nothing",
    "legal-rerecord": "a record takes earlier waits with it while the one that they obey is pending (profile hip)",
}

_QUEUES: Final = re.compile(r"queues-[1-9]\d?")


def fault_of(name: str) -> Fault | None:
    """The catalogue's entry; ``queues-K`` is one fault for any K. None for a decoy or an unknown name."""
    if _QUEUES.fullmatch(name):
        # Beside one queue the default stream's gate holds everything, and a record is told from nothing.
        return Fault(
            name=name,
            text="streams share this many hardware queues",
            killed_by="STM-CONC-1",
            may_fail=("STM-NB-1", "STM-CONC-2"),
        )
    return FAULTS.get(name)
