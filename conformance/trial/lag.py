"""How soon a case's event is seen, beside its control: EVT-LAG-1, a quality and no rule.

Source: docs/rules.md 2, "Numbers".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from conformance.judgement.statements import Statement
from reports.records import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from conformance.execution import Look

CLAUSE: Final = "EVT-LAG-1"
#: Seconds that are soon whatever the control takes, and so many times the slowest control is soon too.
SOON: Final = 5e-3
FACTOR: Final = 10
#: One look in so many may be late: the host has hiccups of its own.
SPARED: Final = 10


def first_seen(looks: Iterable[Look], event: str) -> float | None:
    """Seconds from a host step to the first look that showed the event complete; None if none did."""
    for look in looks:
        seen = look.events.get(event)
        if seen is not None and seen.after is not None and look.call is not None:
            return seen.after
    return None


def statement(lags: Sequence[float], controls: Sequence[float], *, late: bool) -> Statement:
    """What the lags of all repetitions say; a late event is another clause's matter."""
    if late or not lags or not controls:
        reason = "late" if late else "no-control"
        return Statement(clause=CLAUSE, verdict=Verdict.UNSUPPORTED, reason=reason)
    bound = max(SOON, FACTOR * max(controls))
    slow = sum(lag > bound for lag in lags)
    held = slow * SPARED < len(lags)
    reason = "" if held else f"not held: {slow} of {len(lags)} looks took over {bound * 1e3:.3g} ms"
    return Statement(clause=CLAUSE, verdict=Verdict.OBSERVED, reason=reason, held=held)
