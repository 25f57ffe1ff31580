"""Devices side by side: none waits for or disturbs the other, and their locks are taken in turn."""

from __future__ import annotations

import _thread
import threading
from typing import TYPE_CHECKING

import pytest
import two_references
from children import PATIENCE, wait_until
from filelock import FileLock, Timeout
from helpers import ROOT, cli, environment, python
from two_references import case_of

from conformance import devices
from conformance.backends import registry
from conformance.backends.api import DeviceInfo
from conformance.backends.registry import Opening
from conformance.devices import DeviceLocks
from conformance.messages import Limits
from conformance.numbers import Depth, Numbers
from conformance.runner import TEST_CHILD
from conformance.side_by_side import Stopped, Turn, side_by_side
from conformance.supervisor import ChildRunner
from probes.catalogue import all_probes
from reports.records import Verdict
from reports.store import load_report

if TYPE_CHECKING:
    from pathlib import Path

    from probes.probe import Case, Probe


ONCE = Numbers(repeat=1)


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two reference devices, each in a child."""
    monkeypatch.setitem(registry._FINDERS, "reference", two_references.finder)
    monkeypatch.setenv(TEST_CHILD, "two_references:make")
    monkeypatch.setattr(devices, "user_cache_path", lambda *_, **__: tmp_path)


ALL = (
    "run",
    "--backend",
    "reference",
    "--device",
    "all",
    "--repeat",
    1,
    "--probe",
    "agree",
    "--probe",
    "across-devices",
)


def test_all_devices_run_at_the_same_time_and_the_worst_code_stands(
    two: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TWO_REFERENCES_WRONG", "query-stale")
    monkeypatch.setenv("TWO_REFERENCES_MEET", str(tmp_path))  # one after the other would never end
    done = cli(*ALL, "--out", tmp_path)
    assert done.code == 1, done
    right, wrong = (load_report(tmp_path / f"reference-{number}") for number in range(2))
    assert (right.header.device.uuid, wrong.header.device.uuid) == ("GPU-0", "GPU-1")
    assert "EVT-AGREE-1" in wrong.reason
    assert {r.verdict for r in right.results} == {Verdict.CONFORMANT}
    assert done.out.index("reference-0") < done.out.index("reference-1")


def test_an_interrupt_ends_all_of_them() -> None:
    started, ended, interrupted = threading.Barrier(3), list[int](), list[int]()
    stops = list[threading.Event]()

    class Runner:
        def interrupt(self) -> None:
            interrupted.append(1)

    def job(stop: threading.Event) -> None:
        stops.append(stop)
        started.wait(PATIENCE)
        assert stop.wait(PATIENCE)
        ended.append(1)
        raise Stopped

    def press() -> None:
        started.wait(PATIENCE)
        _thread.interrupt_main()
        while not stops[0].wait(PATIENCE / 10):  # Python drops an interrupt that meets a finalizer: so would a user
            _thread.interrupt_main()

    threading.Thread(target=press).start()
    with pytest.raises(KeyboardInterrupt):
        side_by_side([job, job], [Runner(), Runner()])
    assert (len(ended), len(interrupted)) == (2, 2)


def test_a_child_that_hangs_is_ended_from_another_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "user_cache_path", lambda *_, **__: tmp_path)
    monkeypatch.setenv("TWO_REFERENCES_MEET", str(tmp_path))
    limits = Limits(silence=PATIENCE, gate=0.1, start=PATIENCE)
    runner = ChildRunner(Opening(name="reference"), ONCE, Depth.STANDARD, limits=limits, factory="two_references:stuck")
    stop, caught = threading.Event(), list[BaseException]()

    def work() -> None:
        try:
            Turn(runner, stop).run(*case_of("query-default"))
        except Stopped as stopped:
            caught.append(stopped)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    wait_until((tmp_path / "stuck").exists)
    stop.set()
    runner.interrupt()
    thread.join(PATIENCE)
    runner.close()
    assert len(caught) == 1


def test_processes_that_have_each_others_device_as_their_second_never_wait_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "user_cache_path", lambda *_, **__: tmp_path)
    inside, worst, lock = [0], [0], threading.Lock()

    def work(own: str, other: str) -> None:
        locks = DeviceLocks(DeviceInfo(name="d", lock=own, second=other))
        for _ in range(3):
            locks.hold()
            locks.hold(both=True)
            with lock:
                inside[0] += 1
                worst[0] = max(worst[0], inside[0])
            with lock:
                inside[0] -= 1
        locks.release()

    threads = [threading.Thread(target=work, args=pair, daemon=True) for pair in (("a", "b"), ("b", "a"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads)
    assert worst == [1]


def test_who_takes_a_lock_case_by_case_lets_in_who_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "user_cache_path", lambda *_, **__: tmp_path)
    here = DeviceLocks(DeviceInfo(name="d", lock="a"))
    there = DeviceLocks(DeviceInfo(name="d", lock="b", second="a"))
    here.hold()
    waits = threading.Thread(target=there.hold, kwargs={"both": True}, daemon=True)
    waits.start()
    wait_until(lambda: devices.waited_for("a"))
    again = threading.Thread(target=here.hold, daemon=True)  # the same as it holds, and somebody waits
    again.start()
    waits.join(PATIENCE)
    assert not waits.is_alive()
    assert again.is_alive()
    there.release()
    again.join(PATIENCE)
    assert not again.is_alive()
    assert not devices.waited_for("a")
    here.release()


def test_a_case_that_spans_two_devices_holds_both_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "user_cache_path", lambda *_, **__: tmp_path)
    held = []

    class Runner:
        lock = DeviceInfo(name="d", lock="b", second="a")

        def run(self, probe: Probe, case: Case) -> None:
            held.append("".join(name for name in "ab" if taken(tmp_path / f"{name}.lock")))

    turn = Turn(Runner())  # type: ignore[arg-type]  # what a turn calls of one
    agree = all_probes()["agree"]
    for pair in ((agree, agree.cases[0]), case_of("query-default"), (agree, agree.cases[0])):
        turn.run(*pair)
    turn.close()
    assert held == ["b", "ab", "b"]
    assert not taken(tmp_path / "b.lock")


def taken(path: Path) -> bool:
    """Does anyone hold this lock?"""
    try:
        with FileLock(path, timeout=0):
            return False
    except Timeout:
        return True


def test_workers_of_pytest_take_turns_among_the_devices(tmp_path: Path) -> None:
    done = python(
        *("-m", "pytest", "-p", "no:cacheprovider", "-p", "two_references", "-p", "conformance.plugin"),
        *("--pyargs", "conformance.suite", "-m", "cuda", "-n", "2", "-k", "agree or work-behind", "--sc-repeat", "1"),
        *("--capability-report", tmp_path / "out"),
        cwd=tmp_path,
        env=environment(ROOT / "tests", **{TEST_CHILD: "two_references:make", "XDG_CACHE_HOME": str(tmp_path)}),
    )
    assert done.code == 0, done
    header = load_report(tmp_path / "out").header
    assert [device.uuid for device in header.devices] == ["GPU-0", "GPU-1"]
    assert header.device.uuid == "GPU-0"
    assert "devices: 0 (GPU-0), 1 (GPU-1)" in done.out
