"""The pipeline on a virtual clock: what the host sees when an event is published late.

The host launches step j (``pre`` ms to its first kernel, ``post`` ms until wait, copies and record are
queued), launches on until ``in_flight`` steps are open, and then blocks on the event of the oldest one. Step
j's copy goes to stream ``j mod ring``. Lateness as docs/rules.md 1 names it: ``late-next-wait``, an event
whose stream gets a wait before it is complete is seen when that wait is satisfied; ``late-any-wait``, it is
seen once no unsatisfied wait is left behind it. All times are in milliseconds.
"""

from __future__ import annotations

import random
import statistics
from dataclasses import dataclass, field
from typing import Final

CLEAN: Final = ""
LATE_NEXT: Final = "late-next-wait"
LATE_ANY: Final = "late-any-wait"
#: What the model knows, and so the faults whose rows it can stand beside.
LATENESS: Final = (CLEAN, LATE_NEXT, LATE_ANY)

#: A wait shorter than this part of a step returned at once.
INSTANT: Final = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One pipeline."""

    in_flight: int = 2
    ring: int = 1
    lateness: str = CLEAN
    queues: int = 0  # hardware queues that the ring's streams share in turn; 0: one each
    steps: int = 600
    span: float = 29.4  # of one step on the device, gaps within it included
    gap: float = 0.0  # the part of it in which the device is idle anyway
    pre: float = 1.5
    post: float = 1.5
    copy: float = 0.05
    wake: float = 0.05  # from an event's publication to the blocked thread running
    stages: int = 1  # stages of a pipeline-parallel engine up to the one with the output
    host_jitter: float = 0.0  # relative standard deviation of pre and post
    seed: int = 3


@dataclass(slots=True, kw_only=True)
class Trace:
    """When things happened, by step."""

    end: list[float] = field(default_factory=list)  # of the step on the device
    queued: list[float] = field(default_factory=list)  # its wait on the copy stream
    copied: list[float] = field(default_factory=list)
    visible: list[float] = field(default_factory=list)  # its event, to the host
    asked: list[float] = field(default_factory=list)  # the host began to wait for it
    published: list[float] = field(default_factory=list)  # the wait returned


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A trace in figures, its warm-up and its end left out. Lags are in steps."""

    wait_p10: float
    wait_p50: float
    wait_p90: float
    wait_long: float  # the median of the waits that are no instant returns; 0 if there are none
    instant: float  # the share of waits that returned at once
    step: float
    idle: float  # of the device, per step
    itl_p50: float
    itl_p99: float
    ttft: float
    worst_lag: int  # of an event: later steps that had ended when it was visible
    mean_lag: float
    late: float  # the share of events that are late by a step or more
    worst_output: int  # of an output: later steps that had ended when it was read, behind late ones too
    mean_output: float
    outputs_late: float


def _slot(step: int, shape: Shape) -> int:
    slot = step % shape.ring
    return slot % shape.queues if shape.queues else slot


def _next_on_stream(step: int, shape: Shape) -> int:
    later = step + 1
    while _slot(later, shape) != _slot(step, shape):
        later += 1
    return later


def _visible(step: int, trace: Trace, launched: int, shape: Shape) -> float:
    seen = trace.copied[step]
    if shape.lateness == CLEAN:
        return seen
    later = _next_on_stream(step, shape)
    while later < launched and trace.queued[later] < seen:
        seen = max(seen, trace.end[later])
        if shape.lateness == LATE_NEXT:
            break
        later = _next_on_stream(later, shape)
    return seen


def simulate(shape: Shape) -> Trace:
    """Run a pipeline to its last output."""
    trace, chance = Trace(), random.Random(shape.seed)
    stage_free = [0.0] * shape.stages
    stream_free: dict[int, float] = {}
    now, launched = 0.0, 0

    def jittered(milliseconds: float) -> float:
        if not shape.host_jitter:
            return milliseconds
        return max(0.2, 1.0 + shape.host_jitter * chance.gauss(0.0, 1.0)) * milliseconds

    for oldest in range(shape.steps):
        while launched < shape.steps and launched - oldest < shape.in_flight:
            first = now + jittered(shape.pre)
            now = first + jittered(shape.post)
            at = first
            for stage in range(shape.stages):
                at = stage_free[stage] = max(at, stage_free[stage]) + shape.span / shape.stages
            # A step cannot end before it is wholly launched.
            trace.end.append(max(at, now))
            stage_free[-1] = trace.end[-1]
            trace.queued.append(now)
            slot = _slot(launched, shape)
            trace.copied.append(max(trace.end[-1], stream_free.get(slot, 0.0)) + shape.copy)
            stream_free[slot] = trace.copied[-1]
            launched += 1
        trace.asked.append(now)
        trace.visible.append(_visible(oldest, trace, launched, shape))
        now = max(now, trace.visible[-1] + shape.wake if trace.visible[-1] > now else now)
        trace.published.append(now)
    return trace


def quantile(values: list[float], part: float) -> float:
    """The value below which ``part`` of the values lie, between two of them if need be; 0.0 of none."""
    if not values:
        return 0.0
    ordered = sorted(values)
    place = part * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def summarize(trace: Trace, shape: Shape, skip: int = 60) -> Seen:
    """A trace in figures, ``skip`` steps at each end left out."""
    # Whole bursts: the engine may run in bursts of as many steps as are in flight.
    intervals = (len(trace.published) - 2 * skip - 1) // shape.in_flight * shape.in_flight
    steps = range(skip + 1, skip + 1 + intervals)
    waits = [trace.published[step] - trace.asked[step] for step in steps]
    between = [trace.published[step] - trace.published[step - 1] for step in steps]
    lags = [_ended(trace, step, trace.visible[step]) for step in steps]
    outputs = [_ended(trace, step, trace.published[step]) for step in steps]
    stage = shape.span / shape.stages
    longer = [wait for wait in waits if wait > INSTANT * stage]
    step_time = (trace.published[steps[-1]] - trace.published[skip]) / intervals
    return Seen(
        wait_p10=quantile(waits, 0.1),
        wait_p50=quantile(waits, 0.5),
        wait_p90=quantile(waits, 0.9),
        wait_long=quantile(longer, 0.5),
        instant=1.0 - len(longer) / len(waits),
        step=step_time,
        idle=step_time - (stage - shape.gap),
        itl_p50=quantile(between, 0.5),
        itl_p99=quantile(between, 0.99),
        ttft=trace.published[0],
        worst_lag=max(lags),
        mean_lag=statistics.fmean(lags),
        late=sum(lag > 0 for lag in lags) / len(lags),
        worst_output=max(outputs),
        mean_output=statistics.fmean(outputs),
        outputs_late=sum(lag > 0 for lag in outputs) / len(outputs),
    )


def _ended(trace: Trace, step: int, by: float) -> int:
    """How many later steps had ended by then."""
    later = step + 1
    while later < len(trace.end) and trace.end[later] <= by + 1e-9:
        later += 1
    return later - step - 1


def seen(shape: Shape, skip: int = 60) -> Seen:
    """Simulate and summarize."""
    return summarize(simulate(shape), shape, skip)
