"""Streams: query, synchronize, independence and identity."""

from __future__ import annotations

from typing import Final

from probes.completion import HEAD
from probes.probe import Probe, plain_cases

_WORK: Final = "S: fill x 1, copy x -> h, record e\n"

#: How many blocked streams a quick run looks beside.
_QUICK: Final = (1, 4, 7)


def _independent(blocked: int) -> Probe:
    gates = "".join(f"T{i}: gate g{i}\n" for i in range(blocked))
    return Probe(
        name=f"independent-{blocked}",
        family="streams",
        question=f"Does an independent stream run beside {blocked} blocked ones?",
        clauses=("STM-CONC-1", "STM-CONC-2"),
        faults=(*(f"queues-{k}" for k in range(1, 8) if k <= blocked), "record-takes-in-all"),
        control="the same work is seen once the gates are open",
        cases=plain_cases(
            gates + _WORK + "host: " + ", ".join(f"open g{i}" for i in range(blocked)) + ", sync-stream S, sync-device",
            quick=blocked in _QUICK,
        ),
    )


PROBES: Final = (
    Probe(
        name="stream-query",
        family="streams",
        question="Is a stream with pending work reported busy?",
        clauses=("STM-QUERY-1",),
        faults=("stream-query-early",),
        control="the same stream is asked again once its gate is open",
        cases=plain_cases(HEAD + "host: query-stream S, open g1, query-stream S", needs=("query-stream",)),
    ),
    Probe(
        name="scope",
        family="streams",
        question="Does synchronizing one stream leave another stream's work alone, and are they two streams?",
        clauses=("STM-SYNC-1", "STM-ALIAS-1"),
        faults=("stream-sync-overwaits", "aliased-streams"),
        control="without the pending operations of the other stream",
        cases=plain_cases(
            _WORK + "T: gate g2, fill q 4, copy q -> hf, record f\nhost: sync-stream S, open g2, sync-device"
        ),
    ),
    *(_independent(blocked) for blocked in range(1, 8)),
)
