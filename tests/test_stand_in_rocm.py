"""The same for ROCm: torch.version.hip is set, the names are under torch.cuda, and the driver is HIP's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import stand_in_helpers
from stand_in_helpers import findings, report_of
from test_stand_in_musa import CLEAN, LATE, NEEDED, QUICK, check_clean, check_late

if TYPE_CHECKING:
    from pathlib import Path

stand_in = stand_in_helpers.stand_in


def test_a_clean_device_passes_through_torch_cuda(stand_in: Any, tmp_path: Path) -> None:
    done = stand_in("rocm").pytest(tmp_path, *CLEAN, *NEEDED)
    assert done.code == 0, done.out
    report = report_of(tmp_path)
    check_clean(report, "rocm")
    assert report.header.device.capability == "gfx942"
    assert report.header.device.runtime.startswith("6.4.0")


def test_a_runtime_that_publishes_late_is_found(stand_in: Any, tmp_path: Path) -> None:
    rocm = stand_in("rocm")
    done = rocm.pytest(tmp_path, *QUICK, *NEEDED, STAND_IN_FAULTS=LATE)
    assert done.code == 1
    report = report_of(tmp_path)
    check_late(report, [2], "document")
    ((result, finding),) = findings(report)
    assert (result.subject, finding.second_opinion) == ("runtime", "pending by hipEventQuery on the raw handle too")
    told = rocm.command(tmp_path, "decide", "report", "--in-flight", 2)
    assert (told.code, told.out.strip()) == (12, "undecided")
    assert "simulated" in told.err
    # sysfs shows no AMD device here, so this machine must be taken for the report's.
    told = rocm.command(tmp_path, "decide", "report", "--in-flight", 2, "--allow-simulated", "--any-machine")
    assert (told.code, told.out.strip()) == (10, "enable")
