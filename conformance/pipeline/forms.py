"""The pipeline's steady state in closed form, and the check of it against the virtual clock.

n steps in flight, a ring of k, d stages up to the output. The host's own work is left out of the step time,
so the forms hold where it is well below a step. What is behind them: the next wait on the stream of step i is
that of step i + k, launched when output i + k - n was read, so it stands behind event i exactly if k < n.
"""

from __future__ import annotations

from typing import Final

from conformance.pipeline.model import CLEAN, LATE_ANY, LATE_NEXT, Shape, seen
from reports.pipeline import FormCell, FormCheck

#: Depths and rings that are checked.
DEPTHS: Final = range(1, 9)
RINGS: Final = range(1, 10)
#: By how much a simulated figure may differ: steps, a share, and a ratio that the host's work is part of.
LAG_TOLERANCE: Final = 0.03
SHARE_TOLERANCE: Final = 0.02
RATIO_TOLERANCE: Final = 0.04


def timely(n: int, k: int) -> bool:
    """Is every event seen in time? Exactly if the ring is as long as the steps in flight."""
    return k >= n


def settled(n: int, k: int) -> bool:
    """`late-next-wait` with 2k < n: every event is k steps late, and nothing drains. Longer rings run in bursts."""
    return 2 * k < n


def lag_behind(later: int, k: int, lateness: str) -> int:
    """The lag of an event behind which ``later`` steps were launched, in steps."""
    if later < k:
        return 0
    return k if lateness == LATE_NEXT else k * (later // k)


def worst_lag(n: int, k: int, lateness: str) -> int:
    """The largest lag, in steps."""
    return 0 if timely(n, k) else lag_behind(n - 1, k, lateness)


def mean_lag(n: int, k: int, lateness: str) -> float:
    """The mean lag, in steps."""
    if timely(n, k):
        return 0.0
    if lateness == LATE_NEXT and settled(n, k):
        return float(k)
    return sum(lag_behind(later, k, lateness) for later in range(n)) / n


def late_share(n: int, k: int, lateness: str) -> float:
    """The share of events that are a step late or more."""
    if timely(n, k):
        return 0.0
    return 1.0 if lateness == LATE_NEXT and settled(n, k) else (n - k) / n


def step_ratio(n: int, k: int, d: int, lateness: str) -> float:
    """The step time over that of a device whose events are in time."""
    if timely(n, k):
        return 1.0
    if lateness == LATE_NEXT and settled(n, k):
        return max(1.0, d / (n - k))
    return max(1.0, (d + worst_lag(n, k, lateness)) / n)


def check(stage_ms: float = 26.0) -> FormCheck:
    """Every cell of the grid against a simulation: both latenesses, one stage and n - 1 of them."""
    cells, disagreements = [], []
    for lateness in (LATE_NEXT, LATE_ANY):
        for many in (False, True):
            for n in DEPTHS:
                d = max(1, n - 1) if many else 1

                def shape(k: int, how: str, n: int = n, d: int = d) -> Shape:
                    return Shape(
                        in_flight=n, ring=k, lateness=how, stages=d, span=stage_ms * d, pre=1.0, post=1.0, steps=700
                    )

                clean = seen(shape(1, CLEAN)).step
                for k in RINGS:
                    found = seen(shape(k, lateness))
                    cell = FormCell(
                        in_flight=n,
                        ring=k,
                        stages=d,
                        lateness=lateness,
                        worst_lag=worst_lag(n, k, lateness),
                        mean_lag=mean_lag(n, k, lateness),
                        late_share=late_share(n, k, lateness),
                        step_ratio=step_ratio(n, k, d, lateness),
                        simulated_ratio=round(found.step / clean, 3),
                    )
                    cells.append(cell)
                    where = f"{lateness}, n={n}, k={k}, d={d}"
                    for what, form, simulated, tolerance in (
                        ("worst lag", cell.worst_lag, found.worst_lag, 0),
                        ("mean lag", cell.mean_lag, found.mean_lag, LAG_TOLERANCE),
                        ("late share", cell.late_share, found.late, SHARE_TOLERANCE),
                        ("step ratio", cell.step_ratio, found.step / clean, RATIO_TOLERANCE),
                    ):
                        if abs(form - simulated) > tolerance:
                            disagreements.append(f"{where}: {what} {form:g}, simulated {simulated:.3f}")
    return FormCheck(cells=tuple(cells), disagreements=tuple(disagreements))
