"""Times between events: what is refused, the sign, and a gate held in between."""

from __future__ import annotations

from typing import Final

from probes.probe import Case, Probe

_PAIR: Final = "S: record a, gate g1, fill x 1, copy x -> h, record e\nhost: "


def _case(variant: str, text: str, *clauses: str, flags: str = "timing", needs: tuple[str, ...] = ()) -> Case:
    timed = ("event-flag-timing",) if flags == "timing" else ()
    return Case(
        variant=variant,
        text=text,
        flags=flags,
        factors=(("asked", variant), ("flags", flags)),
        needs=("elapsed", *timed, *needs),
        quick=True,
        clauses=clauses,
    )


PROBES: Final = (
    Probe(
        name="elapsed",
        family="timing",
        question="Does the time between two events contain the gate held between them, with the right sign?",
        clauses=("TIM-POS-1", "TIM-BRK-1"),
        faults=("elapsed-negative", "elapsed-ignores-hold"),
        control="the host's own clock, around both events and between them",
        cases=(_case("held", _PAIR + "open g1, elapsed a e, elapsed e a", "TIM-POS-1", "TIM-BRK-1"),),
    ),
    Probe(
        name="elapsed-refused",
        family="timing",
        question="Is there an error for events that are pending, were never recorded, or keep no time?",
        clauses=("TIM-ERR-1",),
        faults=("elapsed-no-error",),
        control="the probe elapsed: a number where both events are complete and keep their times",
        cases=(
            _case("pending", _PAIR + "elapsed a e, open g1", "TIM-ERR-1"),
            _case(
                "unrecorded",
                "S: fill x 1, copy x -> h, record e\nhost: elapsed n e",
                "TIM-ERR-1",
                needs=("unrecorded-event",),
            ),
            _case(
                "disabled",
                "S: record a, fill x 1, copy x -> h, record e\nhost: elapsed a e",
                "TIM-ERR-1",
                flags="default",
            ),
        ),
    ),
)
