"""Where an engine does its bookkeeping: before the wait it hides behind the device's step, after it it does not.

One step in flight: launch, and then work and wait, or wait and work. Before the wait a step takes the larger of
the device's time G and the host's C, after it their sum. The step time is the device's, by its events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from conformance.backends.api import EventFlags
from conformance.pipeline.decode import work
from conformance.pipeline.model import quantile
from conformance.pipeline.paths import OUTPUTS, Path
from reports.pipeline import Bookkeeping

if TYPE_CHECKING:
    from conformance.pipeline.device import Engine


def measure_bookkeeping(
    engine: Engine, step_ms: float, parts: tuple[float, ...], steps: int
) -> tuple[Bookkeeping, ...]:
    """One row for each part of a step that the host works. Raises what the vendor's calls raise."""
    rows = []
    _steps(engine, 0.5, 0.0, 4, before=True)
    for part in parts:
        gpu, after = _steps(engine, step_ms, part * step_ms, steps, before=False)
        _, before = _steps(engine, step_ms, part * step_ms, steps, before=True)
        host = part * step_ms
        shorter, larger = min(gpu, host), max(gpu, host)
        rows.append(
            Bookkeeping(
                gpu=round(gpu, 3),
                host=round(host, 3),
                after=round(after, 3),
                before=round(before, 3),
                both=round(gpu + host, 3),
                larger=round(larger, 3),
                overlap=round(1.0 - (before - larger) / shorter, 3) if shorter else None,
            )
        )
    return tuple(rows)


def _steps(engine: Engine, step_ms: float, host_ms: float, steps: int, *, before: bool) -> tuple[float, float]:
    """(the device's own time of a step, the step time), in milliseconds."""
    surface, main = engine.surface, engine.main
    path = Path(engine, surface, 1, "context")
    starts = [surface.event(EventFlags.TIMING) for _ in range(steps)]
    ends = [surface.event(EventFlags.TIMING) for _ in range(steps)]
    for step in range(steps):
        surface.record(starts[step], main)
        engine.busy(main, step_ms / 1e3)
        tensors = OUTPUTS["tokens"](engine, step + 1)
        surface.record(ends[step], main)
        flight = path.queue(step, tensors)
        if before:
            work(engine, host_ms)
        path.wait(flight)
        path.read(flight, step + 1)
        if not before:
            work(engine, host_ms)
        engine.beat()
    ends[-1].synchronize()
    gpu = [start.elapsed_time(end) for start, end in zip(starts, ends, strict=True)]
    return quantile(gpu, 0.5), ends[0].elapsed_time(ends[-1]) / (steps - 1)
