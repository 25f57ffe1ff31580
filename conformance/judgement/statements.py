"""What one repetition says about one clause, and how statements merge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from probes.program import Program, Step
from reports.records import Kind, Verdict

#: Contradictions: one observation is proof, whatever the gates did meanwhile.
CONTRADICTIONS: Final = frozenset({"EVT-MONO-1", "EVT-AGREE-1", "EVT-NEVER-1", "STM-ALIAS-1"})

#: Within a probe the later entry wins.
RANK: Final = (
    Verdict.UNSUPPORTED,
    Verdict.OBSERVED,
    Verdict.CONFORMANT,
    Verdict.INCONCLUSIVE,
    Verdict.NON_CONFORMANT,
)

#: No control showed the thing happen, because the device runs no second stream meanwhile.
CONCURRENCY: Final = "concurrency"


@dataclass(frozen=True, slots=True, kw_only=True)
class Late:
    """A MUST event that was not seen: what put it on time, and what published it in the end."""

    event: str
    look: int  # index of the look at which it was owed
    rung: str | None  # the control that was on time; None if no control was
    control: Program | None
    control_seconds: float  # the slowest publication in the control, from its look's beginning
    witness_seconds: float | None  # until the captured tokens were there; None: they were not
    published_by: Step | None  # the host step after which it was seen; None: never
    published_after: float | None  # seconds from that step
    hold: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One clause, one look, one verdict of one repetition."""

    clause: str
    verdict: Verdict
    reason: str = ""
    kind: Kind | None = None
    event: str = ""
    look: int = 0
    held: bool | None = None  # for a SHOULD
    late: Late | None = None
    repeat: bool = False  # rests on the host's clock alone, so that one observation is no proof


def stronger(a: Statement, b: Statement) -> Statement:
    """The statement that stands when both speak of one clause in one repetition or probe."""
    return a if _weight(a) >= _weight(b) else b


def _weight(statement: Statement) -> tuple[int, int]:
    if statement.reason == CONCURRENCY and statement.verdict is Verdict.UNSUPPORTED:
        # An ordering half whose control never showed the thing happen is not covered by the other half.
        return RANK.index(Verdict.CONFORMANT), 1
    return RANK.index(statement.verdict), int(statement.held is False)
