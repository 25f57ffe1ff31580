"""The diagnosis names what was planted, and does not see the plant; the sweep also runs in a child and by command."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import planted
import pytest
from helpers import cli, environment, is_one_line, python

from conformance.backends.reference import ReferenceBackend
from conformance.backends.registry import find
from conformance.diagnosis.factors import FACTORS, Point, covering, usual
from conformance.diagnosis.sweep import diagnose
from conformance.numbers import Numbers
from conformance.runner import TEST_CHILD
from reports.diagnosis import Diagnosis

if TYPE_CHECKING:
    from pathlib import Path

    from conformance.backends.api import Backend

START = usual(FACTORS)


def found(backend: Backend, start: Point = START) -> Diagnosis:
    return diagnose(backend, Numbers(), start, "publication", "v")


def named(diagnosis: Diagnosis) -> list[set[str]]:
    return [set(cause.levels) for cause in diagnosis.causes]


@pytest.mark.parametrize("plant", planted.PLANTS)
def test_what_was_planted_is_named(plant: str) -> None:
    wanted, condition = planted.PLANTS[plant]
    diagnosis = found(planted.PlantedBackend(condition))
    assert diagnosis.found
    assert named(diagnosis) == [wanted]
    assert diagnosis.mechanism is not None
    for row in diagnosis.rows:  # the table shows it: at no other factor does a level cure
        if row.factor not in wanted and row.level != "device" and not row.reason:
            assert (row.late, row.of) == (2, 2), row
    for factor in wanted:
        assert {row.late for row in diagnosis.rows if row.factor == factor} == {0, 2}


def test_the_way_of_asking_is_named() -> None:
    diagnosis = found(planted.PlantedBackend(lambda *_: True, planted.PlantedSync))
    assert diagnosis.causes[0].levels == {"waiter": ("synchronize",)}
    assert "in time" in diagnosis.device_waits


def test_a_natural_pair_is_named() -> None:
    diagnosis = found(ReferenceBackend(("late-blocking-sync",), alias="unnamed"))
    assert diagnosis.causes[0].levels == {"event flags": ("blocking",), "waiter": ("synchronize",)}


def test_two_causes_are_both_named() -> None:
    flags, delay = planted.PLANTS["blocking"][1], planted.PLANTS["host delay"][1]
    diagnosis = found(planted.PlantedBackend(lambda d, r: flags(d, r) or delay(d, r)))
    assert sorted(map(sorted, named(diagnosis))) == [["delay between record and wait"], ["event flags"]]


def test_where_the_sweep_begins_does_not_matter() -> None:
    wanted, condition = planted.PLANTS["blocking and delay"]
    late = {**START, "event flags": "blocking", "delay between record and wait": "5 ms"}
    assert named(found(planted.PlantedBackend(condition), late)) == [wanted]


def test_device_waits_and_events_with_nothing_behind_are_told() -> None:
    assert "late too" in found(ReferenceBackend(("late-next-wait-device",))).device_waits
    lost = found(ReferenceBackend(("late-sync",)))
    assert lost.sentence.startswith("It is late with nothing behind it, too.")
    assert lost.mechanism is not None
    assert lost.mechanism.name.value == "lost wake-up"


@pytest.mark.parametrize("faults", [(), ("queues-1",), ("slow-device",), ("wait-dropped",)])
def test_a_device_without_late_events_has_no_diagnosis(faults: tuple[str, ...]) -> None:
    diagnosis = found(ReferenceBackend(faults))
    assert not diagnosis.found
    assert not diagnosis.causes
    assert diagnosis.sentence.startswith("Nothing is late")


def test_every_pair_of_levels_is_tried() -> None:
    points = list(covering(FACTORS, START))
    for a in FACTORS:
        for b in FACTORS:
            if a.name < b.name:
                seen = {(p[a.name], p[b.name]) for p in points} | {(START[a.name], START[b.name])}
                assert seen == {(x, y) for x in a.levels for y in b.levels}
    assert len(points) < 100


@pytest.mark.parametrize(("plant", "factor"), [("timing", "event flags"), ("kept", "later wait")])
def test_what_was_planted_over_a_real_runtime_is_named_from_a_child(plant: str, factor: str, tmp_path: Path) -> None:
    reached = find("opencl")
    if not reached.here:
        pytest.skip(f"needs an OpenCL runtime: {reached.reason}")
    here = environment() | {TEST_CHILD: f"planted:{plant}"}
    here["PYTHONPATH"] += f":{planted.__file__.rpartition('/')[0]}"
    command = "import sys; from conformance.cli import main; sys.exit(main(sys.argv[1:]))"
    arguments = ("diagnose", "--backend", "opencl", "--probe", "publication", "--out", tmp_path)
    done = python("-c", command, *arguments, cwd=tmp_path, env=here)
    assert done.code == 0, done.err
    written = json.loads((tmp_path / "diagnosis.json").read_text())
    assert [set(cause["levels"]) for cause in written["causes"]] == [{factor}]
    assert written["fault"] == ["unnamed"]


def test_a_report_is_diagnosed_and_a_clean_one_has_nothing_to_diagnose(tmp_path: Path) -> None:
    for fault in ("late-next-wait", "wait-dropped"):
        run = ("run", "--backend", "reference", "--fault", fault, "--depth", "quick", "--probe", "publication")
        cli(*run, "--out", tmp_path / fault)
    done = cli("diagnose", tmp_path / "late-next-wait")
    assert done.code == 0
    assert "No factor decides" in done.out
    assert "mechanism: tail coupling" in done.out
    assert (tmp_path / "late-next-wait" / "diagnosis.json").is_file()
    clean = cli("diagnose", tmp_path / "wait-dropped")
    assert clean.code == 2
    assert "no late event" in clean.err
    assert cli("diagnose", "--backend", "reference").code == 3


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("nowhere",),
        ("nowhere", "--backend", "reference"),
        ("--backend", "referenec"),
        ("--backend", "reference", "--probe", "publicatoin"),
        ("--backend", "reference", "--variant", "x"),
        ("--backend", "reference", "--fault", "x"),
        ("--backend", "musa"),
    ],
)
def test_a_usage_error_is_one_line(arguments: tuple[str, ...]) -> None:
    done = cli("diagnose", *arguments)
    assert done.code == 2
    assert is_one_line(done.err)
