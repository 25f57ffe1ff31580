"""Completion with nothing, with work, or with a copy behind the record; agreement of query and synchronize."""

from __future__ import annotations

from typing import Final

from probes.probe import Probe, plain_cases

#: The captured work, behind a gate and with a token that the host can read.
HEAD: Final = "S: gate g1, fill x 1, copy x -> h, record e\n"
#: A stream that waits for it on the device, with a token of its own.
WAITER: Final = "U: wait e, fill y 2, copy y -> hd, record d\n"
#: Work for the stream after the record.
WORK: Final = "fill z 3, copy z -> hz"

PROBES: Final = (
    Probe(
        name="nothing-behind",
        family="completion",
        question="Is an event with nothing behind it seen complete, with its data, and never before?",
        clauses=("EVT-LIVE-1", "EVT-SAFE-1", "EVT-SYNC-1", "EVT-MONO-1", "MEM-VIS-1", "STM-FIFO-1"),
        faults=(
            "late-sync",
            "late-sync-device",
            "lost-event",
            "query-stale",
            "completion-before-data",
            "fifo-violated",
        ),
        control="none exists: nothing stands behind the record that could be left out",
        cases=plain_cases(HEAD + "host: open g1, sync-stream S, sync-device"),
    ),
    Probe(
        name="agree",
        family="completion",
        question="Do query and synchronize say the same of one event?",
        clauses=("EVT-AGREE-1", "EVT-MONO-1"),
        faults=("query-stale", "query-flickers", "query-inverted"),
        control="a contradiction needs none",
        cases=plain_cases(HEAD + "host: open g1, sync e, sync e", observe=("query",)),
    ),
    Probe(
        name="work-behind",
        family="completion",
        question="Is an event seen in time although work queued behind it on its stream is blocked?",
        clauses=("EVT-REC-1", "EVT-REC-2", "EVT-INDEP-1", "EVT-INDEP-2", "EVT-INDEP-3", "EVT-LAG-1"),
        faults=(
            "record-captures-later",
            "late-idle",
            "deferred-record",
            "late-idle-device",
            "record-blocks-host",
            "publishes-slowly",
        ),
        control="without the operations issued after the record on its own stream",
        cases=plain_cases(HEAD + WAITER + f"S: gate g2, {WORK}\nhost: open g1, open g2, sync-stream S, sync-device"),
    ),
    Probe(
        name="copy-behind",
        family="completion",
        question="Is an event seen in time although a copy queued behind it on its stream has not ended?",
        clauses=("EVT-REC-1", "EVT-INDEP-1", "EVT-INDEP-2", "EVT-INDEP-3"),
        faults=("late-idle", "deferred-record"),
        control="without the operations issued after the record on its own stream",
        cases=plain_cases(
            HEAD + WAITER + f"S: {WORK} until g2\nhost: open g1, open g2, sync-stream S, sync-device",
            needs=("slow-copy",),
        ),
    ),
    Probe(
        name="slow-copy",
        family="completion",
        question="Does an event stay pending while the copy that it captured is still under way?",
        clauses=("EVT-SAFE-1", "EVT-SYNC-1"),
        faults=("early-at-copy-start", "copy-not-captured"),
        control="the same event is seen once the copy has ended",
        cases=plain_cases("S: fill x 1, copy x -> h until g1, record e\nhost: open g1", needs=("slow-copy",)),
    ),
)
