"""The decode pipeline in real time: what its host sees, and what its device does meanwhile.

The loop is that of an engine with a queue of steps: launch until ``in_flight`` steps are open, block on the
oldest output, read it, launch the next. Waits and inter-token times are the host's, since that is what an engine
feels. What is said to be late is not: an output's lag is the number of later steps whose own event on main was
complete when the output was seen.
"""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec

from conformance.backends.api import EventFlags
from conformance.pipeline import model
from conformance.pipeline.faulty import FaultySurface
from conformance.pipeline.model import INSTANT, quantile
from conformance.pipeline.paths import OUTPUTS, PATHS, Path
from reports.pipeline import ModelRow, Row

if TYPE_CHECKING:
    from conformance.pipeline.device import Engine
    from conformance.pipeline.jobs import RowJob

#: A first sequence that is not looked at: caches fill, code is loaded.
WARM_UP_MS: Final = 0.5


@dataclass(slots=True, kw_only=True)
class Seen:
    """What one sequence showed, edges left out where they are no steady state. Seconds; device times in ms."""

    waits: list[float] = field(default_factory=list)
    lags: list[int] = field(default_factory=list)
    between: list[float] = field(default_factory=list)  # two publications
    idle: list[float] = field(default_factory=list)
    gpu: list[float] = field(default_factory=list)
    step: list[float] = field(default_factory=list)
    tpot: list[float] = field(default_factory=list)
    ttft: list[float] = field(default_factory=list)
    pre: list[float] = field(default_factory=list)
    post: list[float] = field(default_factory=list)
    queued: list[float] = field(default_factory=list)
    outputs: int = 0
    wrong: int = 0

    def add(self, other: Seen) -> None:
        """Take another sequence in."""
        for name in ("waits", "lags", "between", "idle", "gpu", "step", "tpot", "ttft", "pre", "post", "queued"):
            getattr(self, name).extend(getattr(other, name))
        self.outputs += other.outputs
        self.wrong += other.wrong


def work(engine: Engine, milliseconds: float) -> None:
    """So much of the host's time, the interpreter lock given up again and again."""
    end = engine.clock.now() + milliseconds / 1e3
    while engine.clock.now() < end:
        engine.clock.pause(0)


def run_row(engine: Engine, job: RowJob) -> Row:
    """Run a pipeline. Raises what the vendor's calls raise."""
    short = msgspec.structs.replace(job, steps=2 * job.in_flight + 4, step_ms=WARM_UP_MS, pre_ms=0.0, post_ms=0.0)
    sequence(engine, short)
    seen = Seen()
    for _ in range(job.sequences):
        seen.add(sequence(engine, job))
    return _row(job, seen)


def sequence(engine: Engine, job: RowJob) -> Seen:
    """One request of ``steps`` outputs from an idle device to its last output."""
    raw, main, now = engine.surface, engine.main, engine.clock.now
    # One faulty surface a sequence: a fault keeps every event that it knows.
    surface = FaultySurface(raw, job.fault, EventFlags.BLOCKING) if job.fault else raw
    path: Path = PATHS[job.path](engine, surface, job.ring, job.switch)
    make = OUTPUTS[job.output]
    starts = [raw.event(EventFlags.TIMING) for _ in range(job.steps)]
    ends = [raw.event(EventFlags.TIMING) for _ in range(job.steps)]
    seen, open_steps, published = Seen(), deque[Any](), list[float]()
    began = now()
    launched = 0
    # Without the edges, and in whole bursts: a late pipeline runs in bursts of as many steps as are in flight.
    steady = range(job.in_flight, job.in_flight + (job.steps - 2 * job.in_flight) // job.in_flight * job.in_flight)

    def launch(step: int) -> None:
        before = now()
        work(engine, job.pre_ms)
        first = now()
        raw.record(starts[step], main)
        engine.busy(main, job.step_ms / 1e3)
        tensors = make(engine, step + 1)
        raw.record(ends[step], main)
        work(engine, job.post_ms)
        queue = now()
        open_steps.append(path.queue(step, tensors))
        done = now()
        seen.pre.append(first - before)
        seen.post.append(done - first)
        seen.queued.append(done - queue)

    for oldest in range(job.steps):
        while launched < job.steps and launched - oldest < job.in_flight:
            launch(launched)
            launched += 1
        engine.beat()
        flight = open_steps.popleft()
        asked = now()
        path.wait(flight)
        returned = now()
        lag = sum(1 for _ in itertools.takewhile(lambda step: ends[step].query(), range(oldest + 1, launched)))
        seen.wrong += not path.read(flight, oldest + 1)
        after = now()
        path.after_read(flight)
        seen.queued[oldest] += now() - after
        published.append(returned)
        if oldest in steady:
            seen.waits.append(returned - asked)
            seen.lags.append(lag)
            seen.between.append(published[-1] - published[-2])
    ends[-1].synchronize()
    seen.outputs = job.steps
    seen.ttft.append(published[0] - began)
    seen.tpot.append((published[-1] - published[0]) / (job.steps - 1))
    seen.idle = [ends[step - 1].elapsed_time(starts[step]) for step in steady]
    seen.gpu = [starts[step].elapsed_time(ends[step]) for step in steady]
    seen.step = [ends[steady[0] - 1].elapsed_time(ends[steady[-1]]) / len(steady)]
    return seen


def _row(job: RowJob, seen: Seen) -> Row:
    def ms(values: list[float], part: float) -> float:
        return round(1e3 * quantile(values, part), 3)

    gpu = quantile(seen.gpu, 0.5)
    instant = [1e3 * wait <= INSTANT * gpu for wait in seen.waits]
    changes = [a != b for a, b in itertools.pairwise(instant)]
    pre, post = ms(seen.pre, 0.5), ms(seen.post, 0.5)
    return Row(
        fault=job.fault,
        in_flight=job.in_flight,
        ring=job.ring,
        path=job.path,
        output=job.output,
        switch=job.switch,
        asked=job.step_ms,
        outputs=seen.outputs,
        wrong=seen.wrong,
        wait_p10=ms(seen.waits, 0.1),
        wait_p50=ms(seen.waits, 0.5),
        wait_p90=ms(seen.waits, 0.9),
        instant=round(sum(instant) / len(instant), 3),
        alternates=round(sum(changes) / len(changes), 3),
        worst_lag=max(seen.lags),
        mean_lag=round(sum(seen.lags) / len(seen.lags), 3),
        late=round(sum(lag > 0 for lag in seen.lags) / len(seen.lags), 3),
        gpu=round(gpu, 3),
        step=round(sum(seen.step) / len(seen.step), 4),
        idle=round(sum(seen.idle) / len(seen.idle), 4),
        tpot=round(1e3 * sum(seen.tpot) / len(seen.tpot), 3),
        itl_p50=ms(seen.between, 0.5),
        itl_p99=ms(seen.between, 0.99),
        ttft=ms(seen.ttft, 0.5),
        pre=pre,
        post=post,
        queue_us=round(1e6 * quantile(seen.queued, 0.5), 1),
        model=_modelled(job, gpu, pre, post),
    )


def _modelled(job: RowJob, gpu: float, pre: float, post: float) -> ModelRow | None:
    """The virtual clock's row for the same step and host work; none for what it does not model."""
    if job.path not in ("ring", "one stream") or job.fault not in model.LATENESS:
        return None
    shape = model.Shape(
        in_flight=job.in_flight, ring=job.ring, lateness=job.fault, span=gpu, pre=pre, post=post, steps=200
    )
    seen = model.seen(shape, skip=40)
    return ModelRow(
        wait_p10=round(seen.wait_p10, 3),
        wait_p50=round(seen.wait_p50, 3),
        wait_p90=round(seen.wait_p90, 3),
        instant=round(seen.instant, 3),
        worst_lag=seen.worst_output,
        mean_lag=round(seen.mean_output, 3),
        late=round(seen.outputs_late, 3),
        step=round(seen.step, 3),
        idle=round(seen.idle, 4),
        itl_p50=round(seen.itl_p50, 3),
        itl_p99=round(seen.itl_p99, 3),
        ttft=round(seen.ttft, 3),
    )
