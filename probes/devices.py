"""Two devices: what must be refused across them."""

from __future__ import annotations

from typing import Final

from probes.probe import Case, Probe, few_cases

_NEEDS: Final = ("second-device",)

PROBES: Final = (
    Probe(
        # rapidsai/rmm#1306: an event of another device was recorded, and the error dropped.
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
    Probe(
        # ROCm/hip#1992: a time between the clocks of two devices, which have nothing to do with each other.
        name="time-across",
        family="two devices",
        question="Is there an error for the time between events of two devices?",
        clauses=("TIM-ERR-1",),
        faults=("cross-device-elapsed", "elapsed-no-error"),
        control="the probe elapsed: a number where both events are of one device",
        cases=(
            Case(
                variant="complete",
                text=(
                    "S: fill x 1, copy x -> h, record a\nfar: fill farx 2, copy farx -> hf, record e\n"
                    "host: sync-stream S, sync-stream far, elapsed a e"
                ),
                flags="timing",
                factors=(("flags", "timing"),),
                needs=(*_NEEDS, "elapsed", "event-flag-timing"),
                quick=True,
            ),
        ),
    ),
)
