"""Mixed surfaces: does a wait hold where the stream is of one API family and the event of the other?

torch has two families, the vendor's and the generic one, and nothing refuses an object of the other.
The producer records an event of its own family; only the wait crosses.
"""

from __future__ import annotations

from typing import Final

from probes.completion import HEAD, WAITER
from probes.probe import Case, Observe, Probe

_OBSERVE: Final[tuple[Observe, ...]] = ("query", "synchronize")


def _case(waits: str, on: str, observe: Observe) -> Case:
    return Case(
        variant=f"{waits}-waits-on-{on}-{observe}",
        text=HEAD + WAITER + "host: open g1",
        observe=observe,
        factors=(("waiting stream", waits), ("event", on), ("observe", observe)),
        needs=("mixed",),
        quick=True,
        families=(("S", on), ("U", waits)),
    )


PROBES: Final = (
    Probe(
        name="mixed-wait",
        family="mixed",
        question="Does a stream of one API family wait for an event of the other?",
        clauses=("EVT-WAIT-1", "EVT-WAIT-3"),
        faults=("wait-dropped",),
        control="without the wait, the consumer's token arrives while the gate is closed",
        cases=tuple(
            _case(waits, on, observe)
            for waits, on in (("generic", "vendor"), ("vendor", "generic"))
            for observe in _OBSERVE
        ),
        subject="d",
    ),
)
