"""The decode pipeline on a real NVIDIA device; what decides is events, gates and data, never the host's clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from helpers import python

from conformance.backends.registry import find
from conformance.pipeline.plan import TABLE, is_late
from reports.pipeline import PipelineReport

if TYPE_CHECKING:
    from pathlib import Path

CUDA = find("cuda")
pytestmark = [pytest.mark.hardware, pytest.mark.skipif(not CUDA.here, reason=CUDA.reason)]


def pipeline(out: Path, *options: object) -> PipelineReport:
    """A run on the device in which every check held that decides."""
    done = python("-m", "conformance", "pipeline", "--backend", "cuda", "--out", out, *options, cwd=out)
    assert done.code == 0, done
    return msgspec.json.decode((out / "pipeline.json").read_bytes(), type=PipelineReport)


def test_a_ring_as_long_as_the_steps_in_flight_cures_and_a_shorter_one_does_not(tmp_path: Path) -> None:
    report = pipeline(tmp_path, "--part", "table", "--sequences", 1)
    rows = report.parts.rows
    assert [(row.fault, row.in_flight, row.ring) for row in rows] == list(TABLE)
    for row in rows:
        assert is_late(row) is (row.fault != "" and row.ring < row.in_flight), row


def test_every_other_part(tmp_path: Path) -> None:
    parts = ("outputs", "rules", "reads", "bookkeeping", "workarounds")
    report = pipeline(tmp_path, *(word for part in parts for word in ("--part", part)))
    waits = {read.call: read.waits for read in report.parts.reads}
    assert waits['.to("cpu", non_blocking=True)'] is False
    assert waits["tolist() of the device tensor"] is True
    late = {(a.workaround, a.fault) for a in report.parts.answers if a.timely is False}
    assert ("one stream", "late-next-wait") in late
    assert not any(name == "ring" and fault != "late-sync" for name, fault in late)
