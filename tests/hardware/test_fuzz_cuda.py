"""Generated programs on a real NVIDIA device: a right runtime survives, faults over its API are found."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from helpers import cli

from conformance.backends.registry import find
from conformance.fuzz.corpus import load

if TYPE_CHECKING:
    from pathlib import Path

CUDA = find("cuda")
pytestmark = [pytest.mark.hardware, pytest.mark.skipif(not CUDA.here, reason=CUDA.reason)]


def test_a_right_runtime_survives_and_nothing_stays_open(tmp_path: Path) -> None:
    done = cli("fuzz", "--backend", "cuda", "--seed", 5, "--programs", 3000, "--out", tmp_path)
    assert done.code == 0, done
    said = json.loads((tmp_path / "fuzz.json").read_text())
    tally = said["progress"][0]["tally"]
    assert tally["programs"] == 3000
    assert min(tally["must"], tally["pend"]) > 5000
    assert tally["expired"] == 0
    assert said["progress"][0]["by_hand"] > 0  # the loop by hand ran beside it
    assert not said["unsteady"]
    assert not said["lost"]


@pytest.mark.parametrize("fault", ["late-next-wait", "wait-dropped", "rerecord-ignored", "sync-noop"])
def test_a_fault_over_the_api_is_found_and_shrunk(tmp_path: Path, fault: str) -> None:
    done = cli(
        "fuzz", "--backend", "cuda", "--fault", fault, "--programs", 2000, "--shrink-seconds", 8, "--out", tmp_path
    )
    assert done.code == 1, done
    assert len(load(tmp_path / "corpus")) == 1
    # And the program that was kept is no reproach to the right device.
    replayed = cli("fuzz", "--backend", "cuda", "--programs", 1, "--out", tmp_path)
    assert replayed.code == 0, replayed
