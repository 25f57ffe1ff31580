"""Hardware that hangs, crashes or lies on stdout costs one verdict, and the run goes on."""

from __future__ import annotations

import dataclasses
import errno
import json
import mmap
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import misbehaving
import msgspec
import pytest
from children import (
    HASTY,
    LATE,
    NUMBERS,
    PATIENCE,
    PATIENT,
    At,
    alive,
    child,
    children,
    has_footer,
    local,
    one_lost,
    run_with,
    some,
    timeless,
    wait_until,
)
from helpers import is_one_line

from conformance.backends.registry import Opening, find, open_as
from conformance.backends.torch_device.peers import Peer
from conformance.capture import KEPT, LINE, Capture
from conformance.decision import decide
from conformance.errors import BackendUnavailable, HarnessError, UsageError
from conformance.fuzz import supervise
from conformance.fuzz.messages import Job
from conformance.messages import Limits
from conformance.numbers import Depth
from conformance.run import run
from conformance.runner import LocalRunner
from conformance.selection import select
from conformance.shared import SharedGates
from conformance.supervisor import ChildRunner
from conformance.trial.state import RunState
from reports.records import Form, Outcome, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where tests and children meet; afterwards no child may be left."""
    monkeypatch.setenv(misbehaving.FOLDER, str(tmp_path))
    yield tmp_path
    wait_until(lambda: not alive(tmp_path))


def test_the_state_of_a_run_travels_whole() -> None:
    state = RunState(NUMBERS, proved=True, forms={Form.IDLE}, live_or_record=True, late_rings={(1, 2)})
    plain = json.loads(json.dumps(state.plain()))
    assert set(plain) == {field.name for field in dataclasses.fields(RunState)} - {"numbers"}
    assert RunState.from_plain(NUMBERS, plain) == state


@pytest.mark.parametrize("faults", [(), LATE], ids=["clean", "late"])
def test_a_child_gives_the_results_of_this_process(faults: tuple[str, ...]) -> None:
    runner = child(faults=faults)
    try:
        report = run(runner, some(), NUMBERS)
        here = LocalRunner(open_as(Opening(name="reference", faults=faults)), NUMBERS, Depth.STANDARD)
        assert msgspec.structs.replace(runner.header, started="") == msgspec.structs.replace(here.header, started="")
        assert runner.lock == here.lock
    finally:
        runner.close()
    assert timeless(report.results) == local(faults)


@pytest.mark.parametrize(
    ("factory", "reason"),
    [
        ("killed", "crash: signal 9 (SIGKILL)"),
        ("segfault", "crash: signal 11 (SIGSEGV)"),
        ("gone", "crash: exit code 7"),
        ("leaves", "crash: exit code 7"),
        ("last_words", f"crash: signal 9 (SIGKILL); {misbehaving.LAST_LINE}"),
        ("raises", "error: ValueError: nobody expects this"),
    ],
)
def test_a_crash_costs_one_verdict(factory: str, reason: str, folder: Path) -> None:
    report = run_with(child(factory, faults=LATE), folder)
    lost = one_lost(report, local(LATE))
    assert lost.reason == reason
    assert lost.clauses
    assert {(c.verdict, c.reason) for c in lost.clauses} == {(Verdict.INCONCLUSIVE, reason)}
    assert report.header.injected == (f"misbehaving:{factory}",)
    assert len(children(folder)) == 2


@pytest.mark.parametrize("factory", ["hang", "hang_locked"])
def test_a_hang_costs_one_verdict(factory: str, folder: Path) -> None:
    report = run_with(child(factory, faults=LATE), folder, hasty=HASTY)
    lost = one_lost(report, local(LATE))
    assert lost.verdict is Verdict.INCONCLUSIVE
    assert lost.reason == "hang: no answer for 0.3 s; the child was replaced"
    assert len(children(folder)) == 2


def test_a_pipeline_that_is_lost_leaves_its_depth_undecided(folder: Path) -> None:
    report = run_with(child("gone"), folder, lost="ring-1-2[default-wait-side-query]")
    lost = next(r for r in report.results if r.reason.startswith("crash"))
    assert lost.ring is not None
    assert (lost.verdict, lost.ring.outcome) == (Verdict.INCONCLUSIVE, "crash: exit code 7")
    two = next(d for d in decide(report.results, 2).per_in_flight if d.in_flight == 2)
    assert (two.outcome, two.reason) == (Outcome.UNDECIDED, "crash: exit code 7")


@pytest.mark.parametrize("factory", ["loud", "json_lines"])
def test_what_a_vendor_prints_is_no_answer(factory: str, folder: Path) -> None:
    report = run_with(child(factory), folder)
    assert timeless(report.results) == local()
    assert len(children(folder)) == 1


def test_a_child_whose_device_stays_busy_is_replaced_after_its_verdict(folder: Path) -> None:
    report = run_with(child("busy", faults=LATE), folder)
    assert timeless(report.results) == local(LATE)
    assert len(children(folder)) == 2


def test_what_a_child_prints_is_kept_short() -> None:
    capture = Capture()
    try:
        os.write(capture.file.fileno(), b"before\n" + b"x" * (2 * KEPT) + b"\n\xff last \n \n")
        assert capture.last_line() == "\N{REPLACEMENT CHARACTER} last"
        capture.trim()
        assert os.fstat(capture.file.fileno()).st_size == 0
        assert capture.last_line() == "\N{REPLACEMENT CHARACTER} last"
        os.write(capture.file.fileno(), b"later")
        assert os.fstat(capture.file.fileno()).st_size == len("later")
        assert capture.last_line() == "later"
        os.write(capture.file.fileno(), b"y" * KEPT)
        assert capture.last_line() == "y" * LINE
    finally:
        capture.close()


class _Word:
    """A memory file of one word."""

    made = 0

    def __init__(self) -> None:
        self.fd = os.memfd_create("word")
        os.ftruncate(self.fd, mmap.PAGESIZE)
        self._memory = mmap.mmap(self.fd, mmap.PAGESIZE)
        _Word.made += 1

    def open_all(self) -> None:
        """Open the one gate."""
        self._memory[0] = 1

    def close(self) -> None:
        """Close the file."""
        os.close(self.fd)


@pytest.mark.parametrize("factory", ["until_word", "until_opened"])
def test_a_silent_child_has_its_gates_opened_before_it_is_given_up(factory: str, folder: Path) -> None:
    before = _Word.made
    runner = child(factory, make_words=_Word)
    report = run_with(runner, folder, hasty=Limits(silence=0.2, gate=PATIENCE))
    assert timeless(report.results) == local()
    assert len(children(folder)) == _Word.made - before == 1


@pytest.mark.parametrize(
    ("factory", "error", "text"),
    [
        ("open_raises", HarnessError, "RuntimeError: no driver today"),
        ("open_exits", HarnessError, f"crash: exit code 9; {misbehaving.LAST_LINE}"),
        ("open_hangs", HarnessError, "hang: no answer for"),
        ("open_unavailable", BackendUnavailable, "cuda: no device; plug one in"),
        ("open_usage", UsageError, "--gate x: no such gate"),
    ],
)
def test_a_child_that_cannot_be_started(factory: str, error: type[Exception], text: str, folder: Path) -> None:
    limits = Limits(silence=PATIENCE, gate=0.1, start=1.0) if factory == "open_hangs" else PATIENT
    with pytest.raises(error) as raised:
        child(factory, limits=limits)
    assert text in str(raised.value)
    assert is_one_line(str(raised.value))
    # What is the user's to mend is not tried again. A child that hangs may do so before it is written down.
    assert len(children(folder)) in ((1,) if error is not HarnessError else (0, 1, 2) if "hang" in text else (2,))


def test_what_is_made_ready_beforehand_costs_no_run(folder: Path) -> None:
    report = run_with(child("expects_too_much", expects=("second-device",)), folder)
    assert timeless(report.results) == local()
    assert len(children(folder)) == 2


def test_a_device_that_does_not_come_back_leaves_the_rest_inconclusive(folder: Path) -> None:
    report = run_with(child("once"), folder)
    assert len(children(folder)) == 3
    at = next(n for n, r in enumerate(report.results) if r.reason == "crash: exit code 7")
    assert timeless(report.results)[:at] == local()[:at]
    rest = report.results[at + 1 :]
    assert rest
    assert {r.reason for r in rest} == {"no child: the device has fallen off the bus"}
    assert {r.verdict for r in rest} == {Verdict.INCONCLUSIVE}


def test_a_device_that_never_gave_a_verdict_ends_the_run(folder: Path) -> None:
    runner = At(child("once"), "publication[plain]", folder)
    cases = some().cases
    runner.probe = f"{cases[0][0].name}[{cases[0][1].variant}]"
    try:
        with pytest.raises(HarnessError, match="fallen off the bus"):
            run(runner, some(), NUMBERS, out=folder)
    finally:
        runner.close()
    assert not has_footer(folder)


@pytest.mark.skipif(not find("opencl").here, reason=f"needs an OpenCL runtime: {find('opencl').reason}")
@pytest.mark.parametrize("factory", ["killed", "hang"])
def test_a_real_device_goes_on_in_a_new_child(factory: str, folder: Path) -> None:
    runner = At(
        child(factory, backend="opencl"), "nothing-behind[query-default]", folder, HASTY if factory == "hang" else None
    )
    selection = select(NUMBERS, probes=("nothing-behind", "work-behind"), variants=("*query*",))
    try:
        report = run(runner, selection, NUMBERS)
    finally:
        runner.close()
    assert len(children(folder)) == 2
    for result in report.results:
        lost = (result.probe, result.variant) == ("nothing-behind", "query-default")
        assert result.reason.startswith(("crash: signal 9", "hang")) is lost
        assert lost or result.verdict is Verdict.CONFORMANT


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc/self/fd: open files are counted there")
@pytest.mark.parametrize(
    "start",
    [
        lambda: ChildRunner(Opening(name="cuda"), NUMBERS, Depth.QUICK, make_words=SharedGates),
        lambda: next(iter(supervise.run_job(Job(seed=1, size="small", last=1), Opening(name="cuda")))),
        lambda: Peer("cuda", 0, 0),
    ],
    ids=["case", "fuzz", "peer"],
)
def test_a_process_that_cannot_be_started_leaves_no_file_open(
    start: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    before = sorted(os.listdir("/proc/self/fd"))
    with pytest.raises((OSError, HarnessError), match="Cannot allocate memory"):
        start()
    assert sorted(os.listdir("/proc/self/fd")) == before
