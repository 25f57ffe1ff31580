"""Two NVIDIA devices of one host: what crosses them is judged, faults are found, and neither disturbs the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from helpers import environment, python

from conformance.backends.fault_across import SESSIONS
from conformance.backends.registry import find
from conformance.faults import fault_of
from probes.across import SECOND
from probes.catalogue import all_probes
from reports.records import Report, Verdict
from reports.store import load_report

if TYPE_CHECKING:
    from pathlib import Path

CUDA = find("cuda")
pytestmark = [
    pytest.mark.hardware,
    pytest.mark.skipif(not CUDA.here, reason=CUDA.reason),
    pytest.mark.skipif(len(CUDA.devices) < 2, reason=f"{SECOND}: {len(CUDA.devices)} NVIDIA device"),
]

CRASHES = "ipc-events-across: a wait there for an event that is complete: another process: queue: it ended by signal"

PROBES = [probe for probe in all_probes().values() if probe.family == "two devices"]
ACROSS = [part for probe in PROBES for part in ("--probe", probe.name)]
#: Those of a quick run.
QUICK = [part for probe in PROBES if any(case.quick for case in probe.cases) for part in ("--probe", probe.name)]


def run(out: Path, *options: object, codes: tuple[int, ...] = (0,)) -> None:
    done = python(
        "-m", "conformance", "run", "--backend", "cuda", *options, "--out", out, cwd=out.parent, env=environment()
    )
    assert done.code in codes, done


def broken(report: Report) -> set[str]:
    return {c.clause for r in report.results for c in r.clauses if c.verdict is Verdict.NON_CONFORMANT}


def verdicts(report: Report) -> dict[tuple[str, str], list[tuple[str, Verdict]]]:
    return {(r.probe, r.variant): [(c.clause, c.verdict) for c in r.clauses] for r in report.results}


@pytest.mark.parametrize("surface", ["vendor", "generic"])
@pytest.mark.parametrize("device", [0, 1])
def test_every_case_across_devices_is_judged(device: int, surface: str, tmp_path: Path) -> None:
    run(tmp_path / "out", "--device", device, "--surface", surface, *ACROSS)
    report = load_report(tmp_path / "out")
    assert report.verdict is Verdict.CONFORMANT
    left = {(r.probe, r.variant): r.reason for r in report.results if r.verdict is not Verdict.CONFORMANT}
    if surface == "generic":  # it has no blocking flag, and no handle for other processes
        left = {key: why for key, why in left.items() if not why.startswith(("event-flag-blocking", "ipc-events"))}
    # A driver may crash in a wait for an event of another process's device: docs/hardware.md.
    left = {key: why for key, why in left.items() if not why.startswith(CRASHES)}
    assert left == {}
    assert report.header.device.uuid
    assert report.header.device.second not in ("", report.header.device.uuid)


@pytest.mark.parametrize("name", SESSIONS)
def test_a_fault_across_devices_is_found_by_its_clause(name: str, tmp_path: Path) -> None:
    run(tmp_path / "out", "--fault", name, "--depth", "quick", *QUICK, codes=(1,))
    fault, report = fault_of(name), load_report(tmp_path / "out")
    assert fault is not None
    assert fault.killed_by in broken(report) <= fault.allowed


def test_devices_side_by_side_say_what_each_says_alone(tmp_path: Path) -> None:
    run(tmp_path / "both", "--device", "all", "--depth", "quick")
    both = [load_report(tmp_path / "both" / f"cuda-{number}") for number in range(2)]
    assert both[0].header.device.uuid != both[1].header.device.uuid
    for number in range(2):
        run(tmp_path / f"alone-{number}", "--device", number, "--depth", "quick")
        alone = load_report(tmp_path / f"alone-{number}")
        assert alone.header.device.uuid == both[number].header.device.uuid
        assert verdicts(alone) == verdicts(both[number])
        assert alone.decision == both[number].decision


def test_two_workers_use_both_devices(tmp_path: Path) -> None:
    done = python(
        *("-m", "pytest", "-p", "no:cacheprovider", "-p", "conformance.plugin", "--pyargs", "conformance.suite"),
        *("-m", "cuda", "-q", "-n", 2, "--sc-depth", "quick", "--capability-report", tmp_path / "out"),
        cwd=tmp_path,
        env=environment(),
    )
    assert done.code == 0, done.out
    report = load_report(tmp_path / "out")
    assert report.verdict is Verdict.CONFORMANT
    assert len({device.uuid for device in report.header.devices}) == 2
