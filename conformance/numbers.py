"""Every number that a judgement depends on, in one place; each is an option of `Numbers`.

Source: docs/rules.md 2, "Numbers". Times are seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


class Depth(str, Enum):
    """How much is run."""

    QUICK = "quick"
    STANDARD = "standard"
    DEEP = "deep"


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """Deadlines, holds and counts of one run."""

    #: A MUST event that is not seen by then is late; a host call that does not return by then blocks.
    deadline: float = 1.0
    #: A query that has not come back by then did not return at once.
    at_once: float = 0.1
    #: Different holds that a late event must survive; the longest is the deadline of a first look.
    holds: tuple[float, ...] = (0.1, 0.4, 1.0)
    #: The holds once a variant of the same form is proved.
    short_holds: tuple[float, ...] = (0.05, 0.1, 0.2)
    #: A hold counts only where it is this many times the slowest control beside it.
    patience: float = 20.0
    #: Tries for a proof, over all holds.
    tries: int = 60
    #: A gate ends by itself this long after it began to hold.
    gate_limit: float = 1.9
    #: A late event must be published within this time of the gate that publishes it (or a tenth of the hold).
    window: float = 0.05
    #: How long an event that must pend is watched, and at least how many looks.
    pend_window: float = 1e-3
    pend_polls: int = 20
    #: How long the host looks for what only a concurrent device shows (SHOULD, and the control of "not happening").
    concurrency: float = 0.1
    #: Looks at each event at every host point, at least.
    polls: int = 4
    #: Repetitions of each variant.
    repeat: int = 20
    #: Steps in flight up to which rings are measured.
    max_in_flight: int = 4
    #: A harvest of the ring probe is late after this long (and `patience` times its slowest control).
    harvest: float = 0.1
    #: Only the variants that the decision needs, each late one proved once.
    quick: bool = False

    def publication_window(self, hold: float) -> float:
        """How long after an opening a publication still counts as caused by it."""
        return max(self.window, hold / 10)


#: Numbers per depth: quick watches briefly, holds briefly and repeats little; deep repeats more.
DEPTHS: Final[dict[Depth, Numbers]] = {
    Depth.QUICK: Numbers(
        repeat=3, pend_window=1e-4, pend_polls=8, holds=(0.05, 0.1, 0.2), concurrency=0.05, quick=True
    ),
    Depth.STANDARD: Numbers(),
    Depth.DEEP: Numbers(repeat=200),
}
