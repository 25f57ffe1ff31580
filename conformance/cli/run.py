"""``run``: programs on devices, to a report. Exit codes: docs/rules.md 5."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from tqdm import tqdm

from conformance.backends.registry import (
    HARDWARE,
    NAMES,
    PROFILES,
    SURFACES,
    WITH_SURFACES,
    Opening,
    check_faults,
    find,
)
from conformance.decision import sentence
from conformance.errors import BackendUnavailable, HarnessError, UsageError
from conformance.experiments import expected
from conformance.fingerprint import set_blocking_variables
from conformance.numbers import DEPTHS, Depth, Numbers
from conformance.run import Progress, check_writable, run
from conformance.runner import Runner, SurfacesRunner, open_runner
from conformance.selection import Selection, select
from conformance.side_by_side import Interruptible, Turn, side_by_side
from reports.records import Report, Verdict
from reports.render import summary

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterable, Sequence

CODES: Final = {Verdict.CONFORMANT: 0, Verdict.NON_CONFORMANT: 1, Verdict.INCONCLUSIVE: 3}
HARNESS: Final = 4
#: With several devices the worst of these stands.
WORST: Final = (0, HARNESS, 3, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One device to run on, and where its report goes."""

    backend: str
    device: str | None
    folder: Path


@click.command("run")
@click.option("--backend", help=f"One of {', '.join(NAMES)}. Without it: every kind of hardware found, else reference.")
@click.option("--device", help="The device's number (opencl: P:D), or 'all'.")
@click.option("--surface", "surfaces", multiple=True, type=click.Choice(SURFACES), help="API surface; may be repeated.")
@click.option("--probe", "probes", multiple=True, metavar="GLOB", help="Only these probes; may be repeated.")
@click.option("--variant", "variants", multiple=True, metavar="GLOB", help="Only these variants; may be repeated.")
@click.option("--depth", type=click.Choice([d.value for d in Depth]), default=Depth.STANDARD.value, show_default=True)
@click.option("--repeat", type=click.IntRange(1), metavar="N", help="Repetitions of each variant.")
@click.option("--max-in-flight", type=int, metavar="N", help="Measure rings for up to N steps in flight.  [4]")
@click.option(
    "--fault", "faults", multiple=True, metavar="F", help="Make the device wrong in this way; may be repeated."
)
@click.option("--gate", "gate", metavar="KIND", help="Use this gate kind.")
@click.option(
    "--gate-limit", type=click.FloatRange(0.5, 60.0), metavar="S", help="A gate ends by itself after S seconds."
)
@click.option("--out", default="stream-conformance-out", type=click.Path(path_type=Path), show_default=True)
def run_command(
    backend: str | None,
    device: str | None,
    surfaces: Sequence[str],
    probes: Sequence[str],
    variants: Sequence[str],
    depth: str,
    repeat: int | None,
    max_in_flight: int | None,
    faults: Sequence[str],
    gate: str | None,
    gate_limit: float | None,
    out: Path,
) -> int:
    """Run the probes and write a report."""
    numbers = _numbers(Depth(depth), repeat, max_in_flight, gate_limit)
    surfaces = tuple(dict.fromkeys(surfaces)) or ("vendor",)
    selection = select(numbers, probes=probes, variants=variants, surfaces=surfaces)
    targets = _targets(backend, device, out)
    if other := [s for s in surfaces if s != "vendor" and any(t.backend not in WITH_SURFACES for t in targets)]:
        name = next(t.backend for t in targets if t.backend not in WITH_SURFACES)
        raise UsageError(f"--surface {other[0]}: the {name} backend has one surface, vendor; leave --surface out")
    if faults and backend is None:
        raise UsageError("--fault needs --backend: name the backend that is to be made wrong")
    code = 0
    with ExitStack() as stack:
        runners = []
        for target in targets:
            runners.append(_open(target, tuple(faults), gate, numbers, Depth(depth), selection, surfaces))
            stack.callback(runners[-1].close)
        for target in targets:
            check_writable(target.folder, "--out")
        jobs = [
            partial(_run, runner, selection, numbers, target.folder, place)
            for place, (target, runner) in enumerate(zip(targets, runners, strict=True))
        ]
        children = [runner for runner in runners if isinstance(runner, Interruptible)]
        if len(jobs) > 1 and len(children) == len(jobs):
            # Each drives its device from a process of its own, so that none is kept waiting.
            outcomes: Iterable[Report | BaseException] = side_by_side(jobs, children)
        else:
            outcomes = (job(None) for job in jobs)  # each when it is asked for
        for target, ended in zip(targets, outcomes, strict=True):
            code = max(code, _concluded(ended, target.folder), key=WORST.index)
    return code


def _concluded(ended: Report | BaseException, folder: Path) -> int:
    """Say what came of a device; its exit code. Raises what is no error of one device among several."""
    if isinstance(ended, HarnessError):
        click.echo(f"error: {' '.join(str(ended).split())}", err=True)
        return HARNESS
    if isinstance(ended, BaseException):
        raise ended
    click.echo(summary(ended, sentence(ended.decision), str(folder / "report.md"), colour=wants_colour()))
    return CODES[ended.verdict]


def _numbers(depth: Depth, repeat: int | None, max_in_flight: int | None, gate_limit: float | None) -> Numbers:
    numbers = DEPTHS[depth]
    if repeat is not None:
        numbers = replace(numbers, repeat=repeat)
    if max_in_flight is not None:
        numbers = replace(numbers, max_in_flight=max_in_flight)
    if gate_limit is not None:
        needed = numbers.holds[-1] + 2 * numbers.publication_window(numbers.holds[-1])
        if not gate_limit >= needed:  # a NaN is refused too
            raise UsageError(
                f"--gate-limit {gate_limit:g}: a gate is closed for up to {needed:g} s; give at least that"
            )
        numbers = replace(numbers, gate_limit=gate_limit)
    return numbers


def _targets(backend: str | None, device: str | None, out: Path) -> list[Target]:
    """The devices of this run. Raises UsageError for one asked for by name that is not here."""
    if backend is None:
        if device is not None and device != "all":
            raise UsageError(f"--device {device} needs --backend: say whose device it is")
        names = [found for found in map(find, HARDWARE) if found.here]
        if not names:
            return [Target(backend="reference", device=None, folder=out)]
        return [
            Target(backend=found.name, device=index, folder=out / f"{found.name}-{index}")
            for found in names
            for index, _ in (found.devices if device == "all" else found.devices[:1])
        ]
    found = find(backend)
    if not found.here:
        raise BackendUnavailable(found.reason)
    if device == "all":
        return [
            Target(backend=backend, device=index, folder=out / f"{backend}-{index.replace(':', '-')}")
            for index, _ in found.devices
        ]
    return [Target(backend=backend, device=device, folder=out)]


def _open(
    target: Target,
    faults: tuple[str, ...],
    gate: str | None,
    numbers: Numbers,
    depth: Depth,
    selection: Selection,
    surfaces: Sequence[str],
) -> Runner:
    if target.backend in HARDWARE and (blocking := set_blocking_variables()):
        raise UsageError(
            f"{blocking[0]} is set: each call would wait for the device, "
            "and a closed gate would hold the host; unset it"
        )
    check_faults(target.backend, faults)

    def opener(surface: str) -> Runner:
        opening = Opening(
            name=target.backend,
            device=target.device,
            surface=surface,
            faults=faults,
            gate=gate,
            gate_limit=numbers.gate_limit,
            expects=expected(case for _, case in selection.cases),
        )
        return open_runner(opening, numbers, depth, selection)

    several = len(surfaces) > 1
    opened: Runner = SurfacesRunner(surfaces, opener, PROFILES[target.backend]) if several else opener(surfaces[0])
    if gate is not None and opened.header.gate.kind not in (gate, "none"):
        kind = opened.header.gate.kind
        opened.close()
        raise UsageError(f"--gate {gate}: the {target.backend} backend has no such gate kind; it has {kind}")
    return opened


def _run(
    runner: Runner, selection: Selection, numbers: Numbers, folder: Path, place: int, stop: threading.Event | None
) -> Report:
    quiet = not sys.stderr.isatty()
    bar = tqdm(total=len(selection.cases), disable=quiet, leave=False, unit="case", position=place)

    def progress(done: int, total: int, name: str) -> None:
        bar.n = done
        bar.set_postfix_str(name, refresh=False)
        bar.refresh()

    told: Progress = progress
    turn = Turn(runner, stop)
    try:
        return run(turn, selection, numbers, out=folder, progress=told)
    except OSError as error:
        raise HarnessError(
            f"the report in {folder} cannot be written: {error}; free space or name another --out"
        ) from error
    finally:
        turn.close()
        bar.close()


def wants_colour() -> bool:
    """Colour only on a terminal, and never against NO_COLOR (no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")
