"""What the tests of child processes share: a run in which one case misbehaves, and who is still alive."""

from __future__ import annotations

import functools
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from conformance.backends.registry import Opening, open_as
from conformance.messages import Limits
from conformance.numbers import Depth, Numbers
from conformance.run import run
from conformance.runner import LocalRunner
from conformance.selection import Selection, select
from conformance.supervisor import ChildRunner

if TYPE_CHECKING:
    from collections.abc import Callable

    from probes.probe import Case, Probe
    from reports.records import Report, Result

NUMBERS = Numbers(repeat=1, max_in_flight=2)
LATE = ("late-next-wait",)
#: So long a test waits for what must happen: never for what decides by being slow.
PATIENCE = 100.0
#: Nothing is taken for a hang.
PATIENT = Limits(silence=PATIENCE, gate=PATIENCE, start=PATIENCE)
#: What hangs is found out soon. What does not hang is never run under this.
HASTY = Limits(silence=0.2, gate=0.1, start=PATIENCE)


def wait_until(true: Callable[[], bool]) -> None:
    """Poll until it is true; fails after `PATIENCE`."""
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)


def children(folder: Path) -> list[int]:
    """Every child that opened a device, in order."""
    pids = folder / "pids"
    return [int(line) for line in pids.read_text().split()] if pids.exists() else []


def alive(folder: Path) -> list[int]:
    """The children that still run."""
    return [pid for pid in children(folder) if _runs(pid)]


def _runs(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        return (
            stat.rpartition(")")[2].split()[0] != "Z"
            and b"conformance.child" in Path(f"/proc/{pid}/cmdline").read_bytes()
        )
    except (FileNotFoundError, ProcessLookupError):
        return False


def child(
    factory: str = "",
    *,
    backend: str = "reference",
    faults: tuple[str, ...] = (),
    expects: tuple[str, ...] = (),
    **more: object,
) -> ChildRunner:
    """A runner whose child's backend is made by `misbehaving`."""
    options = {"limits": PATIENT, **more}
    return ChildRunner(
        Opening(name=backend, faults=faults, expects=expects),
        NUMBERS,
        Depth.STANDARD,
        factory=f"misbehaving:{factory}" if factory else "",
        **options,  # type: ignore[arg-type]
    )


class At:
    """A runner that misbehaves in one case, and is hasty there if what it does is to hang."""

    def __init__(self, inner: ChildRunner, probe: str, folder: Path, hasty: Limits | None = None) -> None:
        self.inner, self.probe, self.folder, self.hasty = inner, probe, folder, hasty
        self.header, self.lock, self.close = inner.header, inner.lock, inner.close

    def run(self, probe: Probe, case: Case) -> Result:
        """Arm the child for the one case."""
        if f"{probe.name}[{case.variant}]" != self.probe:
            return self.inner.run(probe, case)
        (self.folder / "armed").touch()
        before = self.inner.limits
        self.inner.limits = self.hasty or before
        try:
            return self.inner.run(probe, case)
        finally:
            self.inner.limits = before
            (self.folder / "armed").unlink(missing_ok=True)  # on a slow machine it was given up before it began


def some(*probes: str) -> Selection:
    """A few cases, late ones before and after the one that is lost."""
    probes = probes or ("publication", "agree", "never", "ring-*")
    return select(NUMBERS, probes=probes, variants=("query-*", "*default*-side-query"))


def timeless(results: tuple[Result, ...]) -> list[Result]:
    """Without what the host's clock says."""
    return [msgspec.structs.replace(result, duration_s=0.0) for result in results]


@functools.cache
def local(faults: tuple[str, ...] = ()) -> list[Result]:
    """The results of this process for `some` cases."""
    runner = LocalRunner(open_as(Opening(name="reference", faults=faults)), NUMBERS, Depth.STANDARD)
    return timeless(run(runner, some(), NUMBERS).results)


LOST = "never[query-default]"


def run_with(inner: ChildRunner, folder: Path, *, hasty: Limits | None = None, lost: str = LOST) -> Report:
    """A run that misbehaves in one case; its log must be complete."""
    runner = At(inner, lost, folder, hasty)
    try:
        report = run(runner, some(), NUMBERS, out=folder)
    finally:
        runner.close()
    lines = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    assert lines[-1]["type"] == "footer"
    assert sum(line["type"] == "result" for line in lines) == len(some().cases)
    return report


def one_lost(report: Report, expected: list[Result]) -> Result:
    """The one result that differs from those of this process."""
    found = timeless(report.results)
    names = [f"{r.probe}[{r.variant}]" for r, e in zip(found, expected, strict=True) if r != e]
    assert names == [LOST]
    return next(r for r in found if f"{r.probe}[{r.variant}]" == LOST)


def has_footer(folder: Path) -> bool:
    """Did the run get to its end?"""
    lines = (folder / "events.jsonl").read_text().splitlines()
    return bool(lines) and json.loads(lines[-1])["type"] == "footer"
