"""Data: what a copy reads, across a wait and within a stream. The buffer holds an old value that tells."""

from __future__ import annotations

from typing import Final

from probes.completion import HEAD
from probes.probe import Probe, few_cases

PROBES: Final = (
    Probe(
        name="wait-data",
        family="data",
        question="Does work behind a wait read what the awaited work wrote, and nothing older?",
        clauses=("MEM-DEV-1",),
        faults=("wait-orders-no-data",),
        control="the value that the buffer held before is another one",
        cases=few_cases("S: fill x 7, gate g1, fill x 1, record e\nU: wait e, copy x -> hd, record d\nhost: open g1"),
        subject="d",
    ),
    Probe(
        name="source-order",
        family="data",
        question="Does a copy read its source in its stream's order: neither at the call nor after what comes later?",
        clauses=("STM-FIFO-1",),
        faults=("copy-reads-late", "copy-reads-at-enqueue"),
        control="the values written before and after are different ones",
        cases=few_cases(
            "S: fill x 7, gate g1, fill x 1, copy x -> h, fill x 9, copy x -> hz, record e\nhost: open g1",
            observe=("query",),
        ),
    ),
    Probe(
        name="neighbours",
        family="completion",
        question="Do records that follow each other with nothing, or with a gate, between them stay two records?",
        clauses=("EVT-SAFE-1", "EVT-SYNC-1", "EVT-LIVE-1"),
        faults=("records-coalesced",),
        control="the same events are seen once the gate is open",
        cases=few_cases(
            "S: fill x 1, copy x -> h, record e, record f, gate g1, record k, fill y 2, copy y -> hk, record l\n"
            "host: open g1"
        ),
    ),
    Probe(
        name="relayed",
        family="ordering",
        question="Does a wait reach through a record with no work of its own, only a wait, before it?",
        clauses=("EVT-WAIT-1", "STM-WSTREAM-1"),
        faults=("relayed-wait-dropped",),
        control="without the wait, the consumer's token arrives while the gate is closed",
        cases=(
            *few_cases(
                "S: gate g1, fill x 1, copy x -> h, record a\nT: wait a, record e\n"
                "U: wait e, fill y 2, copy y -> hd, record d\nhost: open g1",
                prefix="wait-",
                clauses=("EVT-WAIT-1",),
            ),
            *few_cases(
                "S: gate g1, fill x 1, copy x -> h, record a\nT: wait a\n"
                "U: wait-stream T, fill y 2, copy y -> hd, record d\nhost: open g1",
                prefix="wait-stream-",
                observe=("query",),
                needs=("wait-stream",),
                clauses=("STM-WSTREAM-1",),
            ),
        ),
        subject="d",
    ),
    Probe(
        name="tail",
        family="ordering",
        question="Does a wait cover its event alone, and not what its producer was given since?",
        clauses=("STM-CONC-1",),
        faults=("wait-covers-tail",),
        control="the same work is seen once the gate is open",
        cases=few_cases(
            "S: fill x 1, copy x -> h, record e, gate g1\nU: wait e, fill y 2, copy y -> hd, record d\nhost: open g1",
            observe=("query",),
        ),
        subject="d",
    ),
    Probe(
        name="coupling",
        family="publication",
        question="Is an event of one copy stream late because another copy stream waits?",
        clauses=("EVT-LIVE-1",),
        faults=("lost-event",),
        control="without every wait issued after the record",
        cases=tuple(
            case
            for other in (1, 2, 3)
            for case in few_cases(
                "R0: gate g1, fill x 1, copy x -> h, record e\n"
                + "".join(f"R{number}: fill y{number} 5\n" for number in range(1, other))
                + f"M: gate g2, record f\nR{other}: wait f, fill z 3, copy z -> hz\n"
                "host: open g1, open g2, sync-stream R0, sync-device",
                observe=("query",),
                prefix=f"{other}-apart-",
            )
        ),
    ),
    Probe(
        name="sync-pending",
        family="streams",
        question="Does synchronizing a stream stay inside while that stream's work is held?",
        clauses=("STM-SYNC-1",),
        faults=("stream-sync-early",),
        control="the probe scope: it comes back once its stream's work is done",
        cases=few_cases(HEAD + "host: sync-stream S, open g1", observe=("query",)),
    ),
)
