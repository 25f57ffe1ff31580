"""``pipeline``: an engine's output path, modelled and in real time. Exit codes: 0 done, 1 a check failed, 2 usage."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click
from tqdm import tqdm

from conformance.backends.registry import HARDWARE, NAMES, Opening, find
from conformance.devices import device_lock
from conformance.errors import BackendUnavailable, HarnessError, UsageError
from conformance.fingerprint import set_blocking_variables
from conformance.numbers import Depth, Numbers
from conformance.pipeline.faulty import FAULTS, check_fault
from conformance.pipeline.jobs import RowJob
from conformance.pipeline.paths import OUTPUTS, PATHS, SWITCHES
from conformance.pipeline.plan import ON_HARDWARE, PARTS, WITHOUT
from conformance.pipeline.report import run_pipeline
from conformance.private import private
from conformance.run import check_writable
from conformance.runner import TEST_CHILD, Runner, open_runner
from reports import render_pipeline, store

if TYPE_CHECKING:
    from collections.abc import Sequence

#: What makes a row of its own, where no part is named.
ROW_OPTIONS = ("in_flight", "ring", "fault", "path", "output", "switch")
DEEPEST = 8
LONGEST_RING = 11
JSON, MARKDOWN = "pipeline.json", "pipeline.md"


@click.command("pipeline")
@click.option("--backend", help=f"One of {', '.join(NAMES)}. Without it: the first hardware found, else reference.")
@click.option("--device", help="The device's number.")
@click.option("--part", "parts", multiple=True, type=click.Choice(PARTS), help="Only these parts; may be repeated.")
@click.option("--in-flight", type=click.IntRange(1, DEEPEST), metavar="N", help="Steps in flight of one row.  [2]")
@click.option("--ring", type=click.IntRange(1, LONGEST_RING), metavar="K", help="Copy streams of one row.  [1]")
@click.option("--fault", metavar="F", help=f"Make the device wrong in one row: {', '.join(FAULTS)}.")
@click.option("--path", type=click.Choice(list(PATHS)), help="A workaround in place of the ring, in one row.")
@click.option("--output", type=click.Choice(list(OUTPUTS)), help="What one row's outputs are.  [tokens]")
@click.option("--switch", type=click.Choice(SWITCHES), help="How one row switches streams.  [context]")
@click.option("--step-ms", type=click.FloatRange(0.5, 200), default=26.0, show_default=True, help="Device time a step.")
@click.option("--pre-ms", type=click.FloatRange(0, 100), default=1.5, show_default=True, help="Host time before it.")
@click.option("--post-ms", type=click.FloatRange(0, 100), default=0.5, show_default=True, help="Host time after it.")
@click.option("--steps", type=click.IntRange(8, 2000), default=40, show_default=True, help="Outputs in a sequence.")
@click.option("--sequences", type=click.IntRange(1, 100), default=3, show_default=True, help="Sequences in a row.")
@click.option("--out", default="stream-conformance-out", type=click.Path(path_type=Path), show_default=True)
def pipeline_command(
    backend: str | None,
    device: str | None,
    parts: Sequence[str],
    in_flight: int | None,
    ring: int | None,
    fault: str | None,
    path: str | None,
    output: str | None,
    switch: str | None,
    step_ms: float,
    pre_ms: float,
    post_ms: float,
    steps: int,
    sequences: int,
    out: Path,
) -> int:
    """Run the decode pipeline, and its model, and write pipeline.json and pipeline.md."""
    chosen = {"in_flight": in_flight, "ring": ring, "fault": fault, "path": path, "output": output, "switch": switch}
    given = {name: value for name, value in chosen.items() if value is not None}
    check_fault(fault or "")
    row = RowJob(step_ms=step_ms, pre_ms=pre_ms, post_ms=post_ms, steps=steps, sequences=sequences, **given)  # type: ignore[arg-type]  # each of its own type
    if 2 * row.in_flight + 2 > steps:
        raise UsageError(f"--steps {steps}: with {row.in_flight} in flight a sequence needs {2 * row.in_flight + 2}")
    name = _backend(backend)
    hardware = name in HARDWARE
    real_time = hardware or bool(os.environ.get(TEST_CHILD))  # a test's stand-in
    if parts and given and "row" not in parts:
        raise UsageError(f"--{next(iter(given)).replace('_', '-')} is of one row; add --part row, or leave --part out")
    parts = tuple(part for part in PARTS if part in parts) or (
        ("row",) if given else ON_HARDWARE if hardware else WITHOUT
    )
    if not real_time and (other := [p for p in parts if p not in WITHOUT]):
        raise UsageError(
            f"the part '{other[0]}' runs in real time on a torch device, and {name} is none; "
            f"there is no hardware here that it could use, or name it by --backend"
        )
    if hardware and (blocking := set_blocking_variables()):
        raise UsageError(f"{blocking[0]} is set: each call would wait for the device; unset it")
    check_writable(out, "--out")
    if not real_time:
        click.echo(f"no real-time pipeline on {name}: the model, and the workarounds by gates", err=True)
    bar = tqdm(disable=not sys.stderr.isatty(), leave=False, unit="job")

    def progress(done: int, total: int, what: str) -> None:
        bar.total, bar.n = total, done
        bar.set_postfix_str(what, refresh=False)
        bar.refresh()

    with ExitStack() as stack:
        stack.callback(bar.close)
        runner: Runner | None = None
        if set(parts) - {"model"}:
            runner = open_runner(Opening(name=name, device=device), Numbers(), Depth.STANDARD)
            stack.callback(runner.close)
            stack.enter_context(device_lock(runner.lock))
        report = private(run_pipeline(runner, parts, row, real_time=real_time, progress=progress))
    try:
        store.write_atomic(out / JSON, store.encode(report))
        store.write_atomic(out / MARKDOWN, render_pipeline.text(report, markdown=True).encode())
    except OSError as error:
        raise HarnessError(f"{out} cannot be written: {error}; free space or name another --out") from error
    click.echo(render_pipeline.text(report), nl=False)
    click.echo(f"\nreport: {out / MARKDOWN}")
    return 1 if any(check.decisive and not check.held for check in report.checks) else 0


def _backend(name: str | None) -> str:
    """The backend asked for, or the first hardware that is here, or the reference device."""
    if name is None:
        return next((found.name for found in map(find, HARDWARE) if found.here), "reference")
    found = find(name)
    if not found.here:
        raise BackendUnavailable(found.reason)
    return name
