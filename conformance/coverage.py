"""Clauses that no probe tests, each with the reason; every other clause has one, and the selftest checks that."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_CALLER: Final = "binds whoever calls, not the device: "

#: Clause -> why there is no probe for it.
WITHOUT_PROBE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "EVT-FLAG-2": (
            "has no program of its own: every event clause is judged with events that keep no time (variants default "
            "and blocking) and with events that do (timing), and a difference shows as that clause failing in some"
        ),
        "STM-PTDS-1": "torch is built with the legacy default stream, so no backend of this suite has such a stream",
        "HFN-RULES-1": _CALLER + "the suite's functions are libc's sem_post and sem_wait, one held at a time, bounded",
        "MEM-PAGE-1": _CALLER + "a permission; the suite's host memory is pinned, and nothing pageable is a witness",
        "MOP-1": (
            "that such a wait holds its own stream is put to the test by the gate of that kind, at every start (its "
            "self-check holds, releases and ends it) and by the probe second-gate, which runs the core program under "
            "it; that it holds no other stream, and that a write comes after earlier work, is not put to the test: no "
            "program has a stream beside such a gate that must run, and the suite queues no write"
        ),
        "MOP-2": _CALLER + "such a gate is issued after everything that must complete beside it",
    }
)


def untested(tested: set[str], clauses: Mapping[str, object]) -> list[str]:
    """Clauses with neither a probe nor a reason, in the specification's order."""
    return [clause for clause in clauses if clause not in tested and clause not in WITHOUT_PROBE]
