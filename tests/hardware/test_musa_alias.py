"""The musa row against a real NVIDIA GPU: torch.cuda and CUDA's libraries under MUSA's names. See musa_alias/."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import pytest
from helpers import Done, environment, is_one_line, python

from conformance.backends.gates import find_library
from conformance.backends.registry import find
from conformance.backends.vendors import VENDORS
from conformance.errors import SuiteError
from hardware.musa_alias.build import build, compiler
from reports.records import Report, Verdict
from reports.store import load_report

CUDA = find("cuda")
pytestmark = [pytest.mark.hardware, pytest.mark.skipif(not CUDA.here, reason=CUDA.reason)]
ALIAS = Path(__file__).parent / "musa_alias"


@pytest.fixture(scope="module")
def alias(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment in which torch.musa is there, over the real driver and NVRTC."""
    if compiler() is None:
        pytest.skip("needs a C compiler: MUSA's names over CUDA's libraries are compiled from C")
    cuda = VENDORS["cuda"]
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    site = str(Path(spec.origin).parents[1])
    try:
        nvrtc = find_library(
            cuda.rtc, ("nvrtcCompileProgram",), folders=cuda.folders, roots=cuda.roots, bases=[site], prefer=".13"
        )
    except SuiteError as error:
        pytest.skip(f"needs NVRTC: {error}")
    home = build(tmp_path_factory.mktemp("musa-home"))
    return environment(
        ALIAS, MUSA_HOME=str(home), ALIAS_DRIVER="libcuda.so.1", ALIAS_COMPILER=os.path.realpath(nvrtc.path)
    )


def run(alias: dict[str, str], out: Path, *options: str) -> tuple[Done, Report]:
    done = python("-m", "conformance", "run", "--backend", "musa", "--out", out, *options, cwd=out.parent, env=alias)
    assert (out / "report.json").exists(), done.err
    return done, load_report(out / "report.json")


def decided(alias: dict[str, str], out: Path, *options: str) -> Done:
    command = ("-m", "conformance", "decide", out, "--in-flight", "3", *options)
    return python(*command, cwd=out.parent, env=alias)


def test_the_musa_row_is_conformant_on_the_gpu_with_the_kernel_gate(alias: dict[str, str], tmp_path: Path) -> None:
    done, report = run(alias, tmp_path / "clean", "--depth", "quick")
    assert done.code == 0, done.out + done.err
    header = report.header
    assert (header.backend, header.simulated, header.gate.kind) == ("musa", True, "kernel")
    assert (header.gate.tried[0].kind, header.gate.tried[0].result) == ("kernel", "ok")
    assert header.gate.note == "cross-checked by wait-value"
    assert header.device.capability.startswith("mp_")
    assert "under the names of torch.musa" in header.software["stand-in"]
    assert header.software["musaDriverGetVersion"].isdecimal()
    undecided = decided(alias, tmp_path / "clean")
    assert undecided.code == 12
    assert "simulated" in undecided.err
    assert is_one_line(undecided.err)
    assert decided(alias, tmp_path / "clean", "--allow-simulated", "--any-machine").code == 0


def test_the_fault_is_found_through_musas_names_and_laid_to_the_wrapper(alias: dict[str, str], tmp_path: Path) -> None:
    done, report = run(alias, tmp_path / "late", "--depth", "quick", "--fault", "late-next-wait")
    assert done.code == 1, done.out + done.err
    late = [r for r in report.results if r.verdict is Verdict.NON_CONFORMANT]
    findings = [(r.subject, f.second_opinion) for r in late for f in r.findings if f.clause == "EVT-INDEP-1"]
    assert findings
    for subject, opinion in findings:
        # The fault lies over the API: musaEventQuery, which is CUDA's own here, knows better.
        assert subject == "wrapper"
        assert opinion == "complete by musaEventQuery on the raw handle, while the API says pending"
    enabled = decided(alias, tmp_path / "late", "--allow-simulated", "--any-machine", "--format", "json")
    assert enabled.code == 10
    told: dict[str, Any] = json.loads(enabled.out)
    assert (told["outcome"], told["ring"]) == ("enable", 3)


@pytest.mark.parametrize("kind", ["wait-value", "host-function"])
def test_the_other_kinds_of_gate_hold_through_musas_names(kind: str, alias: dict[str, str], tmp_path: Path) -> None:
    done, report = run(alias, tmp_path / kind, "--gate", kind, "--probe", "nothing-behind", "--repeat", "1")
    assert report.header.gate.kind == kind, done.err
    assert {r.verdict for r in report.results} <= {Verdict.CONFORMANT, Verdict.OBSERVED, Verdict.UNSUPPORTED}


def test_pytest_m_musa_passes(alias: dict[str, str], tmp_path: Path) -> None:
    options = ("-p", "no:cacheprovider", "-p", "conformance.plugin", "--pyargs", "conformance.suite")
    done = python("-m", "pytest", "-q", "-m", "musa", "--sc-depth", "quick", *options, cwd=tmp_path, env=alias)
    assert done.code == 0, done.out[-3000:]
    assert " passed" in done.out
