"""The figures that were reported of MUSA with two steps in flight, beside what the model makes of its inputs.

Source of the reported figures: the description of pull request 263 of MooreThreads/vllm-musa.
"""

from __future__ import annotations

from typing import Final

from conformance.pipeline.model import LATE_NEXT, Seen, Shape, seen
from reports.pipeline import Published, ReportedRow

#: Two of the reported figures are inputs: the wait afterwards fixes span - (pre + post), the idle time
#: afterwards the gap. ``pre`` and ``pre + post`` are fitted to the other four. Milliseconds.
SPAN: Final = 33.3
PRE: Final = 3.8
POST: Final = 3.2
GAP: Final = 3.39
#: Host work varies; with no jitter at all the P99 is the period of the alternation, 2 % lower.
JITTER: Final = 0.15
#: By how much a figure may differ from the reported one.
WITHIN: Final = 0.02

#: What the mechanism does not explain, and what it would predict.
UNEXPLAINED: Final = (
    "TPOT 40.9 -> 31.05 ms is a ratio of 1.32; in this model the step times differ by 1.06, with the feedback of a"
    " loaded server by 1.06 to 1.12. It would take a host gap of 10 to 15 ms a step, which the reported waits exclude.",
    "TTFT 262 -> 187.56 ms: the model explains 15 to 20 ms of the 74 ms (about half a step and the host's work).",
    "Neither may be used to accept or refuse a ring on other hardware. The reported decode trace agrees with itself"
    " and with the mechanism; the reported serving row does not follow from it.",
)


def shape(ring: int) -> Shape:
    """The reported pipeline with this ring."""
    return Shape(
        in_flight=2,
        ring=ring,
        lateness=LATE_NEXT,
        span=SPAN,
        pre=PRE,
        post=POST,
        gap=GAP,
        host_jitter=JITTER,
        steps=1500,
    )


def published() -> Published:
    """The reported table and the model's."""
    before, after = seen(shape(1)), seen(shape(2))
    rows = (
        _row("event wait, the long ones, ring 1 (ms)", 55.4, before.wait_long, "fitted by pre and pre + post"),
        _row("event wait, ring 2 (ms)", 26.3, after.wait_p50, "input: fixes span - (pre + post)"),
        _row("device idle per step, ring 1 (ms)", 5.24, before.idle, "fitted by pre and pre + post"),
        _row("device idle per step, ring 2 (ms)", 3.39, after.idle, "input: fixes the gap"),
        _row("P99 inter-token latency, ring 1 (ms)", 64.7, before.itl_p99, "fitted by pre and pre + post"),
        _row("P99 inter-token latency, ring 2 (ms)", 33.5, after.itl_p99, "fitted by pre and pre + post"),
    )
    return Published(
        span_ms=SPAN,
        pre_ms=PRE,
        post_ms=POST,
        gap_ms=GAP,
        rows=rows,
        alternation=_alternation(before),
        unexplained=UNEXPLAINED,
    )


def _row(what: str, reported: float, modelled: float, note: str) -> ReportedRow:
    off = modelled / reported - 1.0
    return ReportedRow(
        what=what, reported=reported, modelled=round(modelled, 2), off=round(off, 4), note=note, held=abs(off) <= WITHIN
    )


def _alternation(before: Seen) -> str:
    return (
        f"{before.instant:.0%} of the waits with ring 1 return at once, the others take {before.wait_long:.1f} ms, in"
        f" turn; so their median says nothing (here {before.wait_p50:.1f} ms)"
    )
