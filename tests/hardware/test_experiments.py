"""Experiments on a real NVIDIA device: all of them are answered, and what is laid over the API is found."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from helpers import environment, python

from conformance.backends.fault_blocking import SESSIONS as BLOCKING
from conformance.backends.fault_extras import SESSIONS as EXTRAS
from conformance.backends.registry import find
from conformance.faults import fault_of
from probes.beside import PROBES
from reports.records import Report, Verdict
from reports.store import load_report

if TYPE_CHECKING:
    from pathlib import Path

CUDA = find("cuda")
pytestmark = [pytest.mark.hardware, pytest.mark.skipif(not CUDA.here, reason=CUDA.reason)]

NAMES = [probe.name for probe in PROBES]


def run(out: Path, probes: list[str], *options: object) -> tuple[int, Report]:
    chosen = [part for name in probes for part in ("--probe", name)]
    done = python(
        "-m", "conformance", "run", "--backend", "cuda", *chosen, *options, "--out", out, cwd=out, env=environment()
    )
    report = load_report(out)
    # Probes of a SHOULD alone are observed, and judge nothing.
    assert done.code in (0, 1) or (done.code, report.reason) == (3, "nothing was judged"), done
    return done.code, report


def broken(report: Report) -> set[str]:
    return {
        c.clause for r in report.results for c in r.clauses if c.verdict is Verdict.NON_CONFORMANT or c.held is False
    }


def test_every_experiment_is_answered(tmp_path: Path) -> None:
    code, report = run(tmp_path, NAMES)
    assert code == 0
    for result in report.results:
        assert all(c.verdict is Verdict.CONFORMANT or c.held for c in result.clauses), (result.probe, result.clauses)
        assert result.control is not None
        assert result.control.on_time == result.control.tried
    assert {r.experiment for r in report.results} == {case.experiment for probe in PROBES for case in probe.cases}


@pytest.mark.parametrize("name", [*BLOCKING, *EXTRAS])
def test_a_fault_over_the_api_is_found_by_its_clause(name: str, tmp_path: Path) -> None:
    fault = fault_of(name)
    assert fault is not None
    probes = [probe.name for probe in PROBES if name in probe.faults]
    _, report = run(tmp_path, probes, "--fault", name, "--repeat", 3)
    assert fault.killed_by in broken(report)
    assert broken(report) <= fault.allowed
