"""Times between events: refused where there is none, not negative in order, and inside the host's own bracket.

Source: docs/rules.md 2, "Time".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from probes.program import is_far
from reports.records import Verdict

if TYPE_CHECKING:
    from conformance.judgement.walk import Walk
    from conformance.timekeeping import Time
    from probes.program import Elapsed

#: Seconds: the coarsest resolution that a vendor gives (a microsecond), and what a host's look may add to it.
RESOLUTION: Final = 1e-5
#: By so much may the device's clock and the host's run apart.
DRIFT: Final = 0.01


def judge_time(walk: Walk, step: Elapsed, time: Time) -> None:
    """Judge the answer to one question for a time."""
    model = walk.model
    records = [model.current.get(event) for event in (step.start, step.end)]
    if any(record is not None and record.index in walk.early for record in records):
        return  # an event that was seen before it could be complete has no time that says anything
    missing = any(record is None for record in records) or not time.kept
    across = len({is_far(record.stream) for record in records if record is not None}) > 1
    if missing or across or not all(record is not None and model.is_done(record) for record in records):
        refused = time.seconds is None
        walk.say("TIM-ERR-1", Verdict.CONFORMANT if refused else Verdict.NON_CONFORMANT, "" if refused else "a number")
        return
    start, end = records
    if start is None or end is None or time.seconds is None:
        walk.say("TIM-BRK-1", Verdict.INCONCLUSIVE, f"refused: {time.refused}")
        return
    if start.stream == end.stream and start.index < end.index:
        walk.say("TIM-POS-1", Verdict.CONFORMANT if time.seconds >= 0 else Verdict.NON_CONFORMANT)
    if time.least is not None and time.most is not None:
        inside = time.least - _slack(time.least) <= time.seconds <= time.most + _slack(time.most)
        walk.say("TIM-BRK-1", Verdict.CONFORMANT if inside else Verdict.NON_CONFORMANT, "" if inside else "outside")


def _slack(seconds: float) -> float:
    return RESOLUTION + DRIFT * abs(seconds)
