"""What the tests on stand-ins share: the compiled libraries, and the suite as a user runs it on one of them."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from driver_double import double
from helpers import Done, environment, python

from conformance.backends.identity import torch_built_for
from reports.records import Finding, Report, Result, Verdict
from reports.store import load_report

if TYPE_CHECKING:
    from collections.abc import Callable

STAND_INS = Path(__file__).parent / "stand_ins"
#: The variable that says where a vendor's toolkit is, and what is put on the path for an arrangement of names.
HOME = {"musa": "MUSA_HOME", "rocm": "ROCM_PATH"}
ARRANGEMENTS = {"musa": ("musa",), "torchada": ("musa", "torchada"), "rocm": ("rocm",)}


@dataclass(frozen=True)
class StandIn:
    """One arrangement of names, on the libraries below a folder."""

    arrangement: str
    root: Path

    @property
    def backend(self) -> str:
        """The backend that it plays."""
        return "rocm" if self.arrangement == "rocm" else "musa"

    def environment(self, **extra: str) -> dict[str, str]:
        """This process's variables, with the stand-in importable and its libraries where the vendor's would be."""
        path = [STAND_INS / name for name in (*ARRANGEMENTS[self.arrangement], "shared")]
        variables = {HOME[self.backend]: str(self.root), "LD_LIBRARY_PATH": str(self.root / "lib")}
        if self.arrangement == "torchada":
            variables["STAND_IN_TORCHADA"] = "1"
        return environment(*path, **(variables | extra))

    def pytest(self, folder: Path, *arguments: object, **extra: str) -> Done:
        """``pytest -m BACKEND`` on the conformance items, with a report in ``folder``."""
        quiet = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-rf", "--color=no")
        suite = ("-p", "conformance.plugin", "--pyargs", "conformance.suite", "-m", self.backend)
        report = ("--capability-report", folder / "report")
        return python(*quiet, *suite, *report, *arguments, cwd=folder, env=self.environment(**extra))

    def command(self, folder: Path, *arguments: object, **extra: str) -> Done:
        """The command line."""
        return python("-m", "conformance", *arguments, cwd=folder, env=self.environment(**extra))

    def script(self, name: str, *arguments: object, **extra: str) -> list[dict[str, Any]]:
        """What a script of tests/stand_ins prints, line by line."""
        done = python(STAND_INS / name, *arguments, cwd=self.root, env=self.environment(**extra))
        assert done.code == 0, done.err
        return [json.loads(line) for line in done.out.splitlines()]


@pytest.fixture(scope="session")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., StandIn]:
    """Stand-ins by arrangement; ``without`` are parts that the driver's stand-in is compiled without."""
    if double.compiler() is None:
        pytest.skip("needs a C compiler: the stand-in driver is compiled from C")
    if importlib.util.find_spec("torch") is None:
        pytest.skip("needs torch")
    version = tuple(int(part) for part in importlib.metadata.version("torch").split(".")[:2])
    if version < (2, 10):
        pytest.skip(f"needs torch 2.10 or later, whose backends can be written in Python: this is {version}")
    made: dict[tuple[str, tuple[str, ...]], Path] = {}

    def make(arrangement: str, without: tuple[str, ...] = ()) -> StandIn:
        vendor = "rocm" if arrangement == "rocm" else "musa"
        if vendor == "musa" and importlib.util.find_spec("torch_musa") is not None:
            pytest.skip("the stand-in never stands beside a real torch_musa")
        if vendor == "rocm" and torch_built_for() != "the CPU":
            pytest.skip(f"torch is built for {torch_built_for()}: the stand-in for ROCm needs a CPU build")
        if (vendor, without) not in made:
            root = tmp_path_factory.mktemp(f"{vendor}-toolkit")
            double.build(vendor, root / "lib", without=without)
            made[vendor, without] = root
        return StandIn(arrangement, made[vendor, without])

    return make


def report_of(folder: Path) -> Report:
    """The report that a run left there."""
    return load_report(folder / "report")


def findings(report: Report) -> list[tuple[Result, Finding]]:
    """Everything proved."""
    return [(r, f) for r in report.results if r.verdict is Verdict.NON_CONFORMANT for f in r.findings]
