"""What ``make report`` shows: both verdicts and both decisions on one screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from conformance import tour
from conformance.backends.registry import Found
from reports.records import Outcome
from reports.store import load_decision

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The backends beside the reference device that seem to be here; none unless a test adds one."""
    here: set[str] = set()

    def find(name: str) -> Found:
        return Found(name=name, devices=(("0", "a device"),) if name in here else (), reason=f"{name}: not here")

    monkeypatch.setattr(tour, "find", find)
    return here


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Exit codes of runs by what their command line names, instead of runs; the contrast's is 1."""
    codes = {tour.CONTRAST: 1}

    def main(arguments: Sequence[str]) -> int:
        return next((code for word, code in codes.items() if any(word in a for a in arguments)), 0)

    monkeypatch.setattr(tour, "main", main)
    return codes


def test_both_verdicts_and_decisions_are_on_one_screen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tour.tour(tmp_path) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert len(shown.out.splitlines()) <= 50
    clean, _, late = shown.out.partition("for contrast")
    assert "verdict: conformant" in clean
    assert "not needed" in clean
    assert "verdict: non-conformant (EVT-INDEP-1)" in late
    assert "form next-wait" in late
    assert "Enable the copy-stream ring" in late
    assert load_decision(tmp_path / "reference").decision.needed is Outcome.NOT_NEEDED
    assert load_decision(tmp_path / tour.CONTRAST).decision.needed is Outcome.ENABLE
    for name in ("reference", tour.CONTRAST):
        assert str(tmp_path / name / "report.md") in shown.out


def test_the_defect_on_purpose_is_no_failure_but_its_absence_is(
    tmp_path: Path, stub: dict[str, int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert tour.tour(tmp_path) == 0
    stub[tour.CONTRAST] = 0
    assert tour.tour(tmp_path) == 4
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize(
    ("codes", "worst"),
    [((0, 0), 0), ((0, 3), 3), ((3, 1), 1), ((1, 3), 1), ((4, 0), 4), ((0, 4), 4), ((4, 3), 3)],
)
def test_the_worst_of_the_real_devices_stands(
    tmp_path: Path, machine: set[str], stub: dict[str, int], codes: tuple[int, int], worst: int
) -> None:
    machine.add("opencl")
    stub |= {str(tmp_path / "reference"): codes[0], "opencl": codes[1]}
    assert tour.tour(tmp_path) == worst


def test_hardware_that_is_here_is_what_is_run(tmp_path: Path, machine: set[str], stub: dict[str, int]) -> None:
    machine.update(("musa", "opencl"))
    stub |= {"opencl": 4, str(tmp_path / "reference"): 4}
    stub[str(tmp_path)] = 3
    assert tour.tour(tmp_path) == 3


def test_a_runtime_that_is_here_and_does_not_work_is_no_traceback(
    tmp_path: Path, machine: set[str], stub: dict[str, int]
) -> None:
    machine.add("opencl")
    stub["opencl"] = 2  # `run --backend opencl` of a runtime whose gate self-check fails
    assert tour.tour(tmp_path) != 0


def test_ctrl_c_ends_the_tour(tmp_path: Path, stub: dict[str, int]) -> None:
    stub[str(tmp_path / "reference")] = 130
    assert tour.tour(tmp_path) == 130
