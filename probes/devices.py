"""Two devices: a wait that reaches across, and a record that must be refused."""

from __future__ import annotations

from typing import Final

from probes.completion import HEAD
from probes.probe import Probe, few_cases

_NEEDS: Final = ("second-device",)

PROBES: Final = (
    Probe(
        name="across-devices",
        family="two devices",
        question="Does work of one device behind a wait for an event of another stay back until that is complete?",
        clauses=("EVT-WAIT-6",),
        faults=("cross-device-wait-dropped",),
        control="without the wait, the consumer's token arrives while the gate is closed",
        cases=few_cases(
            HEAD + "far: wait e, fill fary 2, copy fary -> hd, record d\nhost: open g1",
            needs=_NEEDS,
        ),
        subject="d",
    ),
    Probe(
        name="wrong-device",
        family="two devices",
        question="Is recording an event of one device on a stream of another refused?",
        clauses=("EVT-ERR-1",),
        faults=("wrong-device-accepted",),
        control="the same event is recorded on a stream of its own device before",
        cases=few_cases(
            "S: fill x 1, copy x -> h, record e, record k\nfar: record e", needs=_NEEDS, observe=("query",)
        ),
        subject="k",
    ),
)
