"""Host functions: called in stream order, once, and holding what stands behind them."""

from __future__ import annotations

from typing import Final

from probes.probe import Probe, few_cases

_COPY: Final = "fill x 1, copy x -> h"

PROBES: Final = (
    Probe(
        name="host-function",
        family="host functions",
        question="Is a host function called once, after what was queued before it, and before an event behind it?",
        clauses=("HFN-ORDER-1",),
        faults=("hostfn-early", "hostfn-twice", "hostfn-lost"),
        control="without the gate, the function is called at the same host point",
        cases=few_cases(f"S: gate g1, {_COPY}, host-fn f, record e\nhost: open g1", needs=("host-fn",)),
    ),
    Probe(
        name="host-function-held",
        family="host functions",
        question="Does what is queued behind a host function wait until the function has returned?",
        clauses=("HFN-BLOCK-1", "HFN-ORDER-1"),
        faults=("hostfn-async",),
        control="without the function, the token arrives at the same host point",
        cases=few_cases(f"S: host-fn f until g1, {_COPY}, record e\nhost: open g1", needs=("host-fn",)),
    ),
)
