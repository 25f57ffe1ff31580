"""Ordering: does a waiting stream really wait, and for nothing else? Each with the control that does not wait."""

from __future__ import annotations

from typing import Final

from probes.completion import HEAD, WAITER, WORK
from probes.probe import Probe, plain_cases

PROBES: Final = (
    Probe(
        name="ordering",
        family="ordering",
        question="Does work behind a wait on an event stay back until the event's work is done?",
        clauses=("EVT-WAIT-1", "EVT-WAIT-3"),
        faults=("wait-dropped", "wait-blocks-host"),
        control="without the wait, the consumer's token arrives while the gate is closed",
        cases=plain_cases(HEAD + WAITER + "host: open g1"),
        subject="d",
    ),
    Probe(
        name="ordering-stream",
        family="ordering",
        question="Does work behind a wait-stream stay back until that stream's work is done?",
        clauses=("STM-WSTREAM-1", "EVT-WAIT-3"),
        faults=("wait-stream-dropped",),
        control="without the wait-stream, the consumer's token arrives while the gate is closed",
        cases=plain_cases(HEAD + WAITER.replace("wait e", "wait-stream S") + "host: open g1", needs=("wait-stream",)),
        subject="d",
    ),
    Probe(
        name="wait-first",
        family="ordering",
        question="Does a wait bind to the record that existed when it was issued, and to no later one?",
        clauses=("EVT-WAIT-2",),
        faults=("wait-future-record",),
        control="without the wait on the unrecorded event",
        cases=plain_cases(
            WAITER.replace("wait", "gate g1, wait") + HEAD.replace("g1", "g2") + "host: open g1, open g2",
            needs=("unrecorded-event",),
        ),
        subject="d",
    ),
    Probe(
        name="self-wait",
        family="ordering",
        question="Is a wait on an event of the same stream without effect?",
        clauses=("EVT-WAIT-5",),
        faults=("self-wait-hangs",),
        control="without the wait",
        cases=plain_cases(HEAD + WAITER.replace("U", "S") + "host: open g1"),
        subject="d",
    ),
    Probe(
        name="never",
        family="ordering",
        question="Is an event that was never recorded complete, and a wait on it without effect?",
        clauses=("EVT-NEVER-1", "EVT-NEVER-2"),
        faults=("never-recorded-pends", "never-recorded-blocks"),
        control="without the wait",
        cases=plain_cases(WAITER.replace("wait e", "wait n") + "host: read hd", needs=("unrecorded-event",)),
        subject="d",
    ),
    Probe(
        name="re-record",
        family="re-record",
        question="After a second record, does the event speak of the second, and an older wait still of the first?",
        clauses=("EVT-REREC-1", "EVT-REREC-2", "EVT-WAIT-1"),
        faults=("wait-newest-record", "rerecord-ignored", "rerecord-releases-waits"),
        control="with the second record made on another event; without the wait, for its token",
        cases=plain_cases(HEAD + WAITER + f"S: gate g2, {WORK}, record e\nhost: open g1, open g2"),
        subject="d",
    ),
    Probe(
        name="destroy",
        family="destroy",
        question="Does an event that is dropped while pending return at once and keep its waits?",
        clauses=("EVT-DESTROY-1",),
        faults=("destroy-drops-waits", "destroy-blocks"),
        control="without the wait, the consumer's token arrives while the gate is closed",
        cases=plain_cases(HEAD + WAITER + "host: destroy e, open g1"),
        subject="d",
    ),
)
