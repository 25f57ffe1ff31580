"""Two devices: what crosses them is judged and each fault found; side by side none waits for or disturbs the other."""

from __future__ import annotations

import _thread
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest
import torch_double as double
import two_references
from children import PATIENCE, wait_until
from filelock import FileLock, Timeout
from helpers import ROOT, cli, environment, python
from realtime_helpers import settled, some_try
from torch_double_driver import Ladder

import conformance.backends.torch_device as torch_device
from conformance import devices
from conformance.backends import registry
from conformance.backends.api import DeviceInfo
from conformance.backends.fault_across import SESSIONS
from conformance.backends.fault_layer import FaultyBackend
from conformance.backends.reference import ReferenceBackend
from conformance.backends.reference.across import FAULTS
from conformance.backends.registry import Opening, find, open_backend
from conformance.devices import DeviceLocks
from conformance.experiments import expected
from conformance.faults import fault_of
from conformance.messages import Limits
from conformance.numbers import Depth, Numbers
from conformance.runner import TEST_CHILD, run_one
from conformance.side_by_side import Stopped, Turn, side_by_side
from conformance.supervisor import ChildRunner
from conformance.trial.state import RunState
from probes.across import SECOND
from probes.catalogue import all_probes
from probes.notation import parse
from probes.program import StepError
from reports.records import Result, Verdict
from reports.store import load_report

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from conformance.backends.api import Backend
    from probes.probe import Case, Probe

ONCE = Numbers(repeat=1)
PROBES = [probe for probe in all_probes().values() if probe.family == "two devices"]
#: Those that need no other process.
LOCAL = [probe for probe in PROBES if not probe.name.startswith("other-process")]


def results(
    backend: Backend, numbers: Numbers = ONCE, *, every: bool = True, probes: list[Probe] = PROBES
) -> dict[str, Result]:
    """What came of the cases across devices, by probe[variant]; those of a quick run with ``every`` false."""
    state = RunState(numbers)
    return {
        f"{probe.name}[{case.variant}]": run_one(backend, probe, case, state)
        for probe in probes
        for case in probe.cases
        if every or case.quick
    }


def broken(found: dict[str, Result]) -> set[str]:
    return {c.clause for r in found.values() for c in r.clauses if c.verdict is Verdict.NON_CONFORMANT}


def killers(found: dict[str, Result]) -> set[str]:
    return {name.partition("[")[0] for name, r in found.items() if r.verdict is Verdict.NON_CONFORMANT}


# What crosses devices, on the reference device's two.


def test_a_right_pair_is_conformant_in_every_variant() -> None:
    found = results(ReferenceBackend())
    assert {name: r.reason for name, r in found.items() if r.verdict is not Verdict.CONFORMANT} == {}
    said = {c.clause for r in found.values() for c in r.clauses}
    assert said >= {"EVT-WAIT-6", "EVT-ERR-1", "MEM-DEV-1", "EVT-INDEP-1", "EVT-INDEP-3", "STM-WSTREAM-1", "TIM-ERR-1"}


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_across_devices_is_caught_by_each_probe_that_says_so(name: str) -> None:
    fault, found = fault_of(name), results(ReferenceBackend((name,)))
    assert fault is not None
    assert fault.killed_by in broken(found) <= fault.allowed
    assert killers(found) >= {probe.name for probe in PROBES if name in probe.faults}


@pytest.mark.parametrize("name", SESSIONS)
def test_each_fault_over_the_api_is_caught(name: str) -> None:
    fault, found = fault_of(name), results(FaultyBackend(ReferenceBackend(), (name,), alias="unnamed"))
    assert fault is not None
    assert fault.killed_by in broken(found) <= fault.allowed
    assert killers(found) >= {probe.name for probe in PROBES if name in probe.faults}


@pytest.mark.parametrize(
    ("fault", "clause"), [("wait-stream-dropped", "STM-WSTREAM-1"), ("cross-device-wait-dropped", "EVT-WAIT-6")]
)
def test_a_spelling_that_is_dropped_is_told_from_a_wait_that_is(fault: str, clause: str) -> None:
    found = run_one(ReferenceBackend((fault,)), *case_of("to-far-wait-stream-query-default"), RunState(ONCE))
    assert broken({"": found}) == {clause, "EVT-SAFE-1"}


def case_of(variant: str) -> tuple[Probe, Case]:
    """A case across devices by its name."""
    return next((probe, case) for probe in PROBES for case in probe.cases if case.variant == variant)


def test_what_one_queue_cannot_show_is_no_pass() -> None:
    found = results(ReferenceBackend(("queues-1",)), every=False)
    assert broken(found) == set()
    across = [c for r in found.values() for c in r.clauses if c.clause == "EVT-WAIT-6"]
    assert {(c.verdict, c.reason) for c in across} == {(Verdict.UNSUPPORTED, "concurrency")}


@pytest.mark.parametrize("text", ["S: fill farx 1", "far: copy x -> h", "S: copy farx -> fary"])
def test_an_operation_on_another_devices_buffers_alone_is_no_program(text: str) -> None:
    with pytest.raises((StepError, ValueError), match="on the other device"):
        parse(text)
    parse("S: copy farx -> y, copy y -> h\nfar: copy x -> fary")


# torch's adapter, on a double of torch that copies between devices as torch does.


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    monkeypatch.setitem(sys.modules, "torch", double.torch)  # type: ignore[arg-type]  # a stand-in
    monkeypatch.setattr(torch_device, "Ladder", Ladder)
    monkeypatch.setattr(double.DEVICE, "count", 2)
    backend = torch_device.TorchBackend("cuda", "1")
    yield backend
    backend.close()
    double.WRONG.clear()


def test_the_torch_backend_drives_two_devices(pair: Backend) -> None:
    assert (pair.device().lock, pair.device().second) == ("cuda-GPU-1", "cuda-GPU-0")
    found = settled(lambda names: results(pair, every=False, probes=[p for p in LOCAL if not names or p.name in names]))
    assert {name: r.reason for name, r in found.items() if r.verdict is not Verdict.CONFORMANT} == {}


def test_a_second_device_that_is_expected_is_made_ready_before_a_case_holds_two_locks(pair: Any) -> None:
    probe, case = case_of("to-far-wait-stream-query-default")
    before = len(double.DEVICE.streams)
    pair.expect(expected([case]))
    made = len(double.DEVICE.streams)
    assert made > before
    run_one(pair, probe, case, RunState(ONCE))
    assert len(double.DEVICE.streams) == made


@pytest.mark.parametrize("name", SESSIONS)
def test_a_fault_over_the_torch_backend_is_found_in_real_time(name: str, pair: Backend) -> None:
    # The double's streams are threads, which a busy machine keeps waiting: a hold counts if it is twenty times that.
    numbers = Numbers(repeat=1, deadline=1.0, holds=(0.3, 0.5, 0.8))
    # What a fault leaves alone is seen where time is virtual; here each late answer costs seconds.
    probes = [probe for probe in PROBES if name in probe.faults]
    fault, wrong = fault_of(name), FaultyBackend(pair, (name,))
    assert fault is not None

    def found() -> bool:
        seen = broken(results(wrong, numbers, every=False, probes=probes))
        assert seen <= fault.allowed
        return fault.killed_by in seen

    assert some_try(found)


def test_a_runtime_that_records_anywhere_is_found(pair: Backend) -> None:
    double.WRONG.add("records-anywhere")
    asked = case_of("query-default")
    assert some_try(lambda: broken({"": run_one(pair, *asked, RunState(ONCE))}) == {"EVT-ERR-1"})


def test_with_one_device_nothing_is_judged_and_nothing_made(pair: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(double.DEVICE, "count", 1)
    alone = torch_device.TorchBackend("cuda")
    made = len(double.DEVICE.streams)
    try:
        found = results(alone)
    finally:
        alone.close()
    assert {(r.verdict, r.reason) for r in found.values()} == {
        (Verdict.UNSUPPORTED, f"{SECOND}: torch.cuda.device_count() is 1")
    }
    assert len(double.DEVICE.streams) == made
    assert alone.device().second is None


def test_a_second_device_that_stays_busy_ends_the_use_of_both(pair: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair.far()._tokens, "drained", lambda streams: False)
    result = run_one(pair, *case_of("to-far-wait-stream-query-default"), RunState(ONCE))
    assert (result.verdict, pair.usable) == (Verdict.INCONCLUSIVE, False)
    assert "an earlier program's work has not ended" in result.reason


def test_a_second_device_that_does_not_work_is_a_capability_that_is_missing(
    pair: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(Ladder, "elsewhere", refuse)
    assert pair.unsupported(SECOND) == "RuntimeError: out of memory"
    assert {r.verdict for r in results(pair, every=False).values()} == {Verdict.UNSUPPORTED}


def test_opencl_has_one_device_and_says_so() -> None:
    here = find("opencl")
    if not here.here:
        pytest.skip(f"needs an OpenCL runtime: {here.reason}")
    backend = open_backend("opencl")
    try:
        found = results(backend, every=False)
    finally:
        backend.close()
    assert {r.verdict for r in found.values()} == {Verdict.UNSUPPORTED}


# Devices side by side.


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
