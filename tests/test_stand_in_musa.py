"""The whole way on a machine without a device: ``pytest -m musa`` on a stand-in for torch_musa and its driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import stand_in_helpers
from helpers import is_one_line
from stand_in_helpers import findings, report_of

from conformance.judgement.statements import CONCURRENCY
from reports.records import Form, Outcome, Verdict

if TYPE_CHECKING:
    from pathlib import Path

stand_in = stand_in_helpers.stand_in

#: Standard depth for what is right, quick for what is late.
CLEAN = ("--sc-repeat", 3)
QUICK = ("--sc-depth", "quick")
#: What a decision for two in flight needs, where every other probe runs under other names.
PROBES = "publication or second-gate or ring"
NEEDED = ("-k", PROBES, "--sc-max-in-flight", 2)
LATE = "late-next-wait"
#: Clauses of about two thousand that a busy machine may leave without a second stream beside the first.
FEW = 5
#: What the stand-ins have not, and how the reason begins; everything else is judged.
LEFT_OUT = {
    "slow-copy": "no copy call of torch or its vendors",
    "graph-capture": "muStreamBeginCapture_v2: not exported by ",
    "pinned-kernel": "/",  # its compiler knows one kernel
    "ipc-events": "NotImplementedError: torch.Event ipc is not supported yet",
    "second-device": "torch.musa.device_count() is 1",
    "private-streams": "muStreamDestroy_v2 or muStreamDestroy: not exported by ",
}
COMPLETE_BELOW = "complete by musaEventQuery on the raw handle, while the API says pending"


def judged(report: Any, clause: str) -> set[Verdict]:
    return {c.verdict for result in report.results for c in result.clauses if c.clause == clause}


def check_late(report: Any, depths: list[int], basis: str = "torch") -> None:
    """EVT-INDEP-1 of the form next-wait, and a ring that is as long as there are steps in flight."""
    (result, finding), *more = findings(report)
    assert not more
    assert (finding.clause, finding.published_by) == ("EVT-INDEP-1", "open g2")
    assert (result.probe, result.form, result.basis) == ("publication", Form.NEXT_WAIT, basis)
    assert {c.basis for c in result.clauses if c.clause == "EVT-INDEP-1"} == {basis}
    assert report.decision.needed is Outcome.ENABLE
    deep = [d for d in report.decision.per_in_flight if d.in_flight > 1]
    assert [(d.in_flight, d.outcome, d.ring) for d in deep] == [(n, Outcome.ENABLE, n) for n in depths]


def check_clean(report: Any, backend: str) -> set[str]:
    """Conformant by gates that the host opens, of three kinds, said to be simulated, and nothing else left out."""
    assert (report.verdict, report.reason) == (Verdict.CONFORMANT, "")
    assert report.decision.needed is Outcome.NOT_NEEDED
    verdicts = judged(report, "EVT-INDEP-1")
    assert Verdict.CONFORMANT in verdicts
    assert verdicts <= {Verdict.CONFORMANT, Verdict.UNSUPPORTED}  # a case has a slow copy, which torch has not
    header = report.header
    assert (header.backend, header.simulated, header.fault, header.injected) == (backend, True, (), ())
    assert (header.gate.kind, header.gate.assurance) == ("kernel", "causal")
    tried = {tried.kind: tried.result for tried in header.gate.tried}
    assert tried == {"kernel": "ok", "wait-value": "ok", "host-function": "ok"}
    assert "not a device" in header.software["stand-in"]
    unsupported = [c.reason for r in report.results for c in r.clauses if c.verdict is Verdict.UNSUPPORTED]
    # Its streams are threads: a busy machine may keep one waiting for as long as a device has to show that it runs
    # streams beside each other. Where that were not so at all, hundreds would say it.
    assert unsupported.count(CONCURRENCY) <= FEW
    unsupported = [reason for reason in unsupported if reason != CONCURRENCY]
    left_out: dict[str, set[str]] = {}
    for capability, _, why in (reason.partition(": ") for reason in unsupported):
        left_out.setdefault(capability, set()).add(why)
    assert left_out.keys() <= LEFT_OUT.keys()
    for capability, reasons in left_out.items():
        wanted = LEFT_OUT[capability] if backend == "musa" else LEFT_OUT[capability].replace("torch.musa", "torch.cuda")
        for why in reasons:
            assert why.startswith(wanted), (capability, why)
    return set(left_out)


def test_a_clean_device_passes_through_torch_musa(stand_in: Any, tmp_path: Path) -> None:
    musa = stand_in("musa")
    done = musa.pytest(tmp_path, *CLEAN, "--sc-max-in-flight", 2)
    assert done.code == 0, done.out
    assert "failed" not in done.out
    report = report_of(tmp_path)
    # Of the unrestricted run: every capability of the list is asked for, and none more is missing.
    assert check_clean(report, "musa") == LEFT_OUT.keys()
    legacy = {c.verdict for r in report.results if r.probe.startswith("legacy") for c in r.clauses}
    assert legacy == {
        Verdict.CONFORMANT,
        Verdict.OBSERVED,
    }  # on streams that the driver made: torch.musa.ExternalStream
    assert report.header.software["torch_musa"] == "2.7.1+standin"
    assert (report.header.device.name, report.header.device.driver) == ("stand-in device", "0.0.0-standin")
    assert report.header.environment["MUSA_HOME"]
    told = musa.command(tmp_path, "decide", "report", "--in-flight", 2)
    assert (told.code, told.out.strip()) == (12, "undecided")
    assert "simulated" in told.err


def test_a_runtime_that_publishes_late_is_found_and_decides_only_if_simulation_is_allowed(
    stand_in: Any, tmp_path: Path
) -> None:
    musa = stand_in("musa")
    done = musa.pytest(tmp_path, *QUICK, "-k", PROBES, STAND_IN_FAULTS=LATE)
    assert done.code == 1
    assert "EVT-INDEP-1" in done.out
    report = report_of(tmp_path)
    check_late(report, [2, 3, 4])
    # Nobody told the suite: the runtime is what is wrong, and what lies below torch says so too.
    assert (report.header.fault, report.header.injected, report.header.simulated) == ((), (), True)
    ((result, finding),) = findings(report)
    assert (result.subject, finding.second_opinion) == ("runtime", "pending by musaEventQuery on the raw handle too")
    told = musa.command(tmp_path, "decide", "report", "--in-flight", 2)
    assert (told.code, told.out.strip()) == (12, "undecided")
    assert is_one_line(told.err)
    assert "the report is simulated: no hardware was used" in told.err
    told = musa.command(tmp_path, "decide", "report", "--in-flight", 3, "--allow-simulated", "--format", "env")
    assert (told.code, told.out.strip()) == (10, "STREAM_CONFORMANCE_RING=3")


def test_a_fault_laid_over_torch_musa_is_found_and_is_not_the_drivers(stand_in: Any, tmp_path: Path) -> None:
    probes = (word for probe in ("publication", "second-gate", "ring-*") for word in ("--probe", probe))
    shallow = ("--depth", "quick", *probes, "--max-in-flight", 2, "--out", "report")
    done = stand_in("musa").command(tmp_path, "run", "--backend", "musa", "--fault", LATE, *shallow)
    assert done.code == 1, done.err
    report = report_of(tmp_path)
    check_late(report, [2])
    assert report.header.fault == (LATE,)
    ((result, finding),) = findings(report)
    assert (result.subject, finding.second_opinion) == ("wrapper", COMPLETE_BELOW)


def test_torchadas_names_change_nothing(stand_in: Any, tmp_path: Path) -> None:
    done = stand_in("torchada").pytest(tmp_path, *CLEAN, *NEEDED)
    assert done.code == 0, done.out
    check_clean(report_of(tmp_path), "musa")


def test_torchadas_names_hide_nothing(stand_in: Any, tmp_path: Path) -> None:
    # Without torch's autoloading as well: the plugin is then imported by name. And the driver is not to blame here.
    how = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "STAND_IN_FAULTS": LATE, "STAND_IN_SUBJECT": "wrapper"}
    done = stand_in("torchada").pytest(tmp_path, *QUICK, *NEEDED, **how)
    assert done.code == 1
    report = report_of(tmp_path)
    check_late(report, [2])
    assert report.header.environment["TORCH_DEVICE_BACKEND_AUTOLOAD"] == "0"
    ((result, finding),) = findings(report)
    assert (result.subject, finding.second_opinion) == ("wrapper", COMPLETE_BELOW)


def test_waits_that_end_with_their_temporary_event_are_found(stand_in: Any, tmp_path: Path) -> None:
    # torch_musa's wait_stream destroys its event while it is pending, so such a driver loses order there too.
    probes = ("--probe", "destroy", "--probe", "ordering", "--probe", "ordering-stream")
    arguments = ("run", "--backend", "musa", "--depth", "quick", *probes, "--out", "report")
    done = stand_in("musa").command(tmp_path, *arguments, STAND_IN_FAULTS="destroy-drops-waits")
    assert done.code == 1, done.err
    found = {(result.probe, finding.clause) for result, finding in findings(report_of(tmp_path))}
    assert ("destroy", "EVT-DESTROY-1") in found
    assert ("ordering-stream", "STM-WSTREAM-1") in found
    assert "ordering" not in {probe for probe, _ in found}  # the legal look-alike: a wait on a kept event holds


def test_without_any_gate_the_run_is_inconclusive(stand_in: Any, tmp_path: Path) -> None:
    musa = stand_in("musa")
    home = tmp_path / "home"
    home.mkdir()
    nothing = {"MUSA_HOME": str(home), "LD_LIBRARY_PATH": "", "STAND_IN_WITHOUT": "_sleep", "HOME": str(home)}
    arguments = ("run", "--backend", "musa", "--depth", "quick", "--out", "report")
    done = musa.command(tmp_path, *arguments, **nothing)
    assert done.code == 3, done.err
    report = report_of(tmp_path)
    assert report.verdict is Verdict.INCONCLUSIVE
    assert report.header.gate.kind == "none"
    assert report.decision.needed is Outcome.UNDECIDED
    said = {tried.kind: tried.result for tried in report.header.gate.tried}
    assert said["sleep"] == "torch.musa has no _sleep"
    assert said["kernel"].startswith("no libmtrtc.so* could be used. Tried ")
    for kind in ("wait-value", "host-function"):
        assert "no libmusa.so* could be used. Tried " in said[kind], said[kind]
    assert judged(report, "EVT-INDEP-1") == {Verdict.INCONCLUSIVE, Verdict.UNSUPPORTED}
    # Every place that was tried is told, once and not in each case, and the user's home is in none of it.
    assert "toolkit: nothing in ~/lib" in said["kernel"]
    assert "gates tried: sleep: torch.musa has no _sleep" in done.out
    for file in (tmp_path / "report").iterdir():
        text = file.read_text()
        assert str(home) not in text, file.name
        assert text.count("no libmtrtc.so* could be used") <= {"events.jsonl": 2}.get(file.name, 1), file.name


def test_an_api_family_that_the_device_does_not_have_is_told_in_one_line(stand_in: Any, tmp_path: Path) -> None:
    # torch's own Event asks a backend's C++ guard, which one written in Python does not have.
    arguments = ("run", "--backend", "musa", "--surface", "generic", "--depth", "quick", "--out", "report")
    done = stand_in("musa").command(tmp_path, *arguments)
    assert done.code == 2
    assert is_one_line(done.err)
    assert done.err.startswith("error: musa: torch.Stream and torch.Event do not work on this device (RuntimeError: ")
    assert "use --surface vendor" in done.err


def test_a_plugin_that_cannot_be_imported_is_told_and_is_no_pass(stand_in: Any, tmp_path: Path) -> None:
    musa = stand_in("musa")
    done = musa.pytest(tmp_path, STAND_IN_BROKEN="1")
    assert done.code == 1
    assert "passed" not in done.out.splitlines()[-1]
    assert "absent-musa" in done.out
    done = musa.command(tmp_path, "run", "--backend", "musa", "--out", "out", STAND_IN_BROKEN="1")
    assert done.code == 2
    assert is_one_line(done.err)
    assert "Failed to load the backend extension: torch_musa" in done.err
    assert "caused by ImportError: libmusart.so.5: cannot open shared object file" in done.err


def test_the_stand_in_does_not_stand_beside_a_real_one(stand_in: Any, tmp_path: Path) -> None:
    real = tmp_path / "torch_musa" / "__init__.py"
    real.parent.mkdir()
    real.write_text("raise AssertionError('the stand-in comes first on the path')\n")
    musa = stand_in("musa")
    found = musa.environment(TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    found["PYTHONPATH"] += f":{tmp_path}"
    done = stand_in_helpers.python("-c", "import torch_musa", cwd=musa.root, env=found)
    assert done.code == 1
    assert f"a real one is installed: {real}" in done.err


def test_the_backend_keeps_clear_of_torch_musas_traps(stand_in: Any) -> None:
    lines = stand_in("musa").script("quirks.py", TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    seen = {name: value for line in lines for name, value in line.items()}
    # Streams: the pool holds 32, the default one's handle is 0, and no two of the backend's are one.
    assert seen["handles"]
    assert (seen["default handle"], seen["limit"]) == (0, "32 streams")
    # The gate holds torch's own operations and events; the driver agrees, whose "not ready" has a number of its own.
    pending, complete = [False, False, 0, False], [True, 7, True]
    assert seen["programs"] == [[pending, complete]] * 2
    # _sleep counts iterations, at no clock's rate: it is measured on every run, or its self-check would fail.
    assert seen["kinds"]["sleep"].startswith("ok")
    # No copy of the backend blocks; a strided one would, and is counted.
    assert seen["blocking copies"] == 0
    assert seen["blocking copies after a strided one"] == 1
    assert seen["to cpu"].startswith("pinned, returned in")
    # What the vendor's calls do with these costs order or a traceback: the runs above pass only without them.
    assert seen["unrecorded"] == [0, True, True]
    assert "garbage" in seen["generic stream"]
    assert "synchronizing all streams" in seen["accelerator"]
    assert seen["properties"].startswith("TypeError")
