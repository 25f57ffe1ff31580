"""Two devices: what crosses them is judged, and each fault found."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch_double as double
from realtime_helpers import settled, some_try
from torch_double_driver import Ladder
from two_references import case_of

import conformance.backends.torch_device as torch_device
from conformance.backends.fault_across import SESSIONS
from conformance.backends.fault_layer import FaultyBackend
from conformance.backends.reference import ReferenceBackend
from conformance.backends.reference.across import FAULTS
from conformance.backends.registry import find, open_backend
from conformance.experiments import expected
from conformance.faults import fault_of
from conformance.numbers import Numbers
from conformance.runner import run_one
from conformance.trial.state import RunState
from probes.across import SECOND
from probes.catalogue import all_probes
from probes.notation import parse
from probes.program import StepError
from reports.records import Result, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conformance.backends.api import Backend
    from probes.probe import Probe

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
