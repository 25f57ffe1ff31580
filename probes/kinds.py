"""Kinds of streams: the legacy default stream, blocking and non-blocking ones, and priorities."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from probes.probe import Probe, few_cases
from probes.publication import core_text

_HELD: Final = "gate g1, fill x 1, copy x -> h, record e"
_AFTER: Final = "fill y 2, copy y -> hd, record d"
_TIED: Final = ("default-stream", "blocking-stream")

_CORE: Final = core_text(captured="copy", spelling="wait", main="S", rounds=1, waiter=False)

PROBES: Final = (
    Probe(
        name="legacy-last",
        family="kinds of streams",
        question="Does the legacy default stream wait for what a blocking stream was given before?",
        # bugs: the rule that a blocking stream obeys, and one runtime did not
        clauses=("STM-LEGACY-1", "STM-LEGACY-2"),
        faults=("legacy-ignored",),
        control="the same program on a stream that the default stream does not bind: it runs",
        cases=few_cases(f"blocking: {_HELD}\ndefault: {_AFTER}\nhost: open g1", needs=_TIED),
        subject="d",
    ),
    Probe(
        name="legacy-first",
        family="kinds of streams",
        question="Does a blocking stream wait for what the legacy default stream was given before?",
        clauses=("STM-LEGACY-1",),
        faults=("legacy-ignored",),
        control="the same program on a stream that the default stream does not bind: it runs",
        cases=few_cases(f"default: {_HELD}\nblocking: {_AFTER}\nhost: open g1", needs=_TIED),
        subject="d",
    ),
    Probe(
        name="non-blocking",
        family="kinds of streams",
        question="Does a non-blocking stream run beside a blocked default stream?",
        clauses=("STM-NB-1",),
        faults=("nonblocking-obeys-legacy",),
        control="the same work is seen once the gate is open",
        cases=few_cases(
            "default: gate g1\nS: fill x 1, copy x -> h, record e\nhost: open g1",
            needs=("default-stream",),
            observe=("query",),
        ),
    ),
    Probe(
        name="priority",
        family="kinds of streams",
        question="Do streams of different priorities keep every order that streams of one keep?",
        clauses=("STM-PRIO-1", "EVT-INDEP-1"),
        faults=("priority-reorders",),
        control="the same program on streams of one priority",
        cases=(
            *few_cases(
                f"S: {_HELD}\nhigh: wait e, {_AFTER}\nhost: open g1",
                needs=("priority",),
                observe=("query",),
                prefix="consumer-",
                clauses=("STM-PRIO-1",),
            ),
            *(
                replace(case, form_text=_CORE)
                for case in few_cases(
                    _CORE.replace("copy:", "high:").replace("sync-stream copy", "sync-stream high"),
                    needs=("priority",),
                    observe=("query",),
                    prefix="core-",
                    clauses=("STM-PRIO-1", "EVT-INDEP-1"),
                )
            ),
        ),
    ),
)
