"""The user's home path is in nothing that is written."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from conformance.backends.api import GateKind
from conformance.backends.reference import ReferenceBackend
from conformance.numbers import DEPTHS, Depth
from conformance.private import private
from conformance.run import finish, run
from conformance.runner import LocalRunner
from conformance.selection import select

HOME = "/home/some body"
QUICK = DEPTHS[Depth.QUICK]


class Homely(ReferenceBackend):
    """A backend whose errors and versions name files of the user's."""

    vendor_errors = (OSError,)

    def gate(self) -> GateKind:
        made = super().gate()
        return GateKind(kind=made.kind, assurance=made.assurance, tried=(("kernel", f"nothing in {HOME}/lib"),))

    def software(self) -> dict[str, str]:
        return {"torch": f"2.13, {HOME}"}

    def unsupported(self, capability: str) -> str | None:
        return (
            f"{HOME}/lib/libcuda.so: not exported" if capability == "second-gate" else super().unsupported(capability)
        )

    def session(self, request: object) -> object:  # type: ignore[override]
        raise OSError(f"{HOME}/lib/libcuda.so: no such file")


def test_no_file_of_a_run_holds_the_home_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", HOME)
    report = run(LocalRunner(Homely(), QUICK, Depth.QUICK), select(QUICK), QUICK, out=tmp_path)
    assert {tried.result for tried in report.header.gate.tried} == {"nothing in ~/lib"}
    reasons = {c.reason for r in report.results for c in r.clauses}
    assert {"second-gate: ~/lib/libcuda.so: not exported", "error: OSError: ~/lib/libcuda.so: no such file"} <= reasons
    files = {file.name: file.read_text() for file in tmp_path.iterdir()}
    assert len(files) == 4
    assert [name for name, text in files.items() if "some body" in text] == []
    # Under pytest the results come together at the end, and no log is written.
    runner, selection = LocalRunner(Homely(), QUICK, Depth.QUICK), select(QUICK)
    raw = [runner.run(probe, case) for probe, case in selection.cases]
    assert b"some body" in msgspec.json.encode(raw)
    assert b"some body" not in msgspec.json.encode(finish(runner.header, raw, selection, QUICK))


def test_a_record_without_it_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    report = run(LocalRunner(ReferenceBackend(), QUICK, Depth.QUICK), select(QUICK), QUICK)
    assert private(report) is report
    monkeypatch.setenv("HOME", "/")  # a user without a home: every path would begin with it
    assert private(report) is report
    monkeypatch.setenv("HOME", "reference device")
    changed = private(report)
    assert changed.header.device.name == "~"
    assert (changed.decision, len(changed.results)) == (report.decision, len(report.results))
