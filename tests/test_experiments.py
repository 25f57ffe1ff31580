"""Experiments: what no program can write down is found on wrong devices, and right ones pass with their controls."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch_double as double
from helpers import cli

import conformance.backends.torch_device as torch_device
from conformance.backends.fault_layer import FaultyBackend
from conformance.backends.reference import ReferenceBackend
from conformance.backends.registry import find, open_backend
from conformance.errors import DeviceError
from conformance.experiments import EXPERIMENTS, Experiment, expected
from conformance.experiments.bench import EXPIRED, Bench, failed, held, unclear
from conformance.numbers import Numbers
from conformance.runner import TEST_CHILD, run_one
from conformance.trial import experiment
from conformance.trial.state import RunState
from probes.beside import PROBES
from probes.catalogue import all_probes
from reports.records import Result, Verdict
from reports.render import timeline
from reports.store import load_report

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from conformance.backends.api import Backend
    from conformance.judgement.statements import Statement

ONCE = Numbers(repeat=1)
#: Times that a real-time device is looked at for a fault that a busy machine may hide.
LOOKS = 5


def results(backend: Backend, names: Iterable[str] = (), numbers: Numbers = ONCE) -> dict[str, Result]:
    """What came of these probes (or of all), by probe[variant]."""
    state = RunState(numbers)
    return {
        f"{probe.name}[{case.variant}]": run_one(backend, probe, case, state)
        for probe in PROBES
        for case in probe.cases
        if not names or probe.name in names
    }


def broken(found: dict[str, Result]) -> dict[str, set[str]]:
    """Clause -> where it failed or, for a SHOULD, did not hold."""
    wrong: dict[str, set[str]] = {}
    for where, result in found.items():
        for clause in result.clauses:
            if clause.verdict is Verdict.NON_CONFORMANT or clause.held is False:
                wrong.setdefault(clause.clause, set()).add(where)
    return wrong


def assert_right(found: dict[str, Result]) -> None:
    """Every clause was judged or observed to hold, and every control that was tried did what it must."""
    for where, result in found.items():
        assert all(c.verdict is Verdict.CONFORMANT or c.held for c in result.clauses), (where, result.clauses)
        assert result.control is not None, where
        assert result.control.on_time == result.control.tried > 0, (where, result.control)


def test_a_right_device_passes_with_its_controls_beside() -> None:
    found = results(ReferenceBackend())
    assert_right(found)
    assert {case.experiment for probe in PROBES for case in probe.cases} == set(EXPERIMENTS)


MODED = {f"capture-rules[other-thread-{mode}]" for mode in ("thread-local", "relaxed", "exchanged")}
LARGE = {f"block-copies[{how}-{size}]" for how in ("query", "synchronize") for size in (65536, 1 << 20, 1 << 24)}


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("large-copy-not-captured", {"MEM-VIS-1": LARGE}),  # and not the small ones, which go another way
        ("current-stream-shared", {"THR-1": {"threads[current-stream]"}}),
        ("records-thread-local", {"THR-1": {"threads[hand-over]"}}),
        ("query-blocks-in-sync", {"EVT-QNB-1": {"beside-sync[query]"}}),  # for 0.2 s: too long for a query alone
        ("query-stalls", {"EVT-QNB-1": {"host-calls[query]"}}),
        ("captured-sync-returns", {"CAP-1": {"capture-rules[synchronize]", "capture-rules[synchronize-stream]"}}),
        ("capture-takes-legacy", {"CAP-2": {"capture-rules[legacy-beside]"}}),
        ("capture-mode-ignored", {"CAP-3": MODED}),
        ("capture-global-open", {"CAP-3": {"capture-rules[other-thread-global]"}}),
        ("query-sticks", {"EVT-ASK-1": {"after-query[queue]"}}),
        ("records-mixed", {"THR-1": {"threads[at-once]"}}),
        ("record-blocks-in-sync", {"THR-2": {"beside-sync[record]"}}),
        ("wait-blocks-in-sync", {"THR-2": {"beside-sync[wait]"}}),
        ("late-blocking-sync", {"EVT-INDEP-3": {"replayed[synchronize-blocking]"}}),
        ("late-next-wait", {"EVT-INDEP-1": {"replayed[query-default]"}}),
        # Blocks without another thread as well, so nothing is said about threads.
        ("record-blocks-host", {"EVT-REC-2": {"host-calls[record]"}}),
        # Wrong in this process too, so nothing is said about another one.
        ("query-always-true", {}),
        ("sync-noop", {}),
    ],
)
def test_a_wrong_device_is_found_where_it_is_wrong(fault: str, expected: dict[str, set[str]]) -> None:
    assert broken(results(ReferenceBackend((fault,)))) == expected


def test_on_hip_the_rules_of_captures_decide_nothing() -> None:
    found = results(ReferenceBackend(("captured-query-succeeds",), profile="hip"), ("capture-rules",))
    (said,) = found["capture-rules[query]"].clauses
    assert (said.verdict, said.held) == (Verdict.OBSERVED, False)


def test_a_device_with_one_queue_says_nothing_of_what_needs_two() -> None:
    found = results(ReferenceBackend(("queues-1",)), ("threads", "stream-destroy", "other-process"))
    assert broken(found) == {}
    assert found["threads[current-stream]"].reason == "concurrency"


# Repetition and reasons.


def one(backend: Backend, run: Any, *, repeat: int, monkeypatch: pytest.MonkeyPatch) -> Result:
    """A made-up procedure in place of an experiment."""
    probe = next(p for p in PROBES if p.name == "stream-destroy")
    table = {probe.cases[0].experiment: Experiment(run=run)}
    monkeypatch.setattr(experiment, "EXPERIMENTS", table)
    return run_one(backend, probe, probe.cases[0], RunState(Numbers(repeat=repeat)))


@pytest.mark.parametrize(("every", "verdict", "failures"), [(1, "non-conformant", 3), (9, "inconclusive", 1)])
def test_what_rests_on_the_hosts_clock_needs_three_observations(
    every: int, verdict: str, failures: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(bench: Bench) -> Iterator[Statement]:
        yield (
            failed("STM-DESTROY-1", "slow", repeat=True) if bench.number % every == 1 % every else held("STM-DESTROY-1")
        )

    result = one(ReferenceBackend(), run, repeat=2, monkeypatch=monkeypatch)
    assert (result.verdict.value, result.counts.failed) == (verdict, failures)
    assert result.reason == ("slow" if every == 1 else "unsteady")


def test_a_repetition_whose_gate_ended_by_itself_is_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = Counter[int]()

    def run(bench: Bench) -> Iterator[Statement]:
        tries[bench.number] += 1
        bench.note("a look")
        yield unclear("STM-DESTROY-1", EXPIRED) if tries[bench.number] < 3 else held("STM-DESTROY-1")

    result = one(ReferenceBackend(), run, repeat=2, monkeypatch=monkeypatch)
    assert result.verdict is Verdict.CONFORMANT
    assert tries == {1: 3, 2: 3}
    assert "a look" in timeline(result)


def test_what_the_device_raises_costs_one_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(bench: Bench) -> Iterator[Statement]:
        raise DeviceError("call: error 700")
        yield held("STM-DESTROY-1")

    result = one(ReferenceBackend(), run, repeat=1, monkeypatch=monkeypatch)
    assert (result.verdict, result.reason) == (Verdict.INCONCLUSIVE, "error: DeviceError: call: error 700")


class Bare:
    """A backend whose sessions offer nothing beside the protocol, or whose gates only time ends."""

    def __init__(self, assurance: str = "causal") -> None:
        self._inner, self._assurance = ReferenceBackend(), assurance

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def gate(self) -> Any:
        return SimpleNamespace(assurance=self._assurance, tried=(("kernel", "no compiler"),))

    def session(self, request: Any) -> Any:
        return SimpleNamespace(close=lambda: True)


def test_a_backend_without_what_an_experiment_needs_says_so() -> None:
    bare: Any = Bare()
    found = results(bare, ("threads", "capture-rules"))
    assert {result.verdict for result in found.values()} == {Verdict.UNSUPPORTED}
    assert found["capture-rules[query]"].reason == (
        "graph-capture: sessions of the reference backend have no hook 'extra'"
    )


def test_gates_that_only_time_ends_prove_nothing() -> None:
    timed: Any = Bare("timed")
    found = results(timed, ("host-calls", "stream-destroy"))
    assert {c.reason for result in found.values() for c in result.clauses} == {"timed-gate"}
    none: Any = Bare("none")
    assert results(none, ("stream-destroy",))["stream-destroy[pending-copy]"].reason.endswith(
        "no gate: each kind failed, as 'gates tried' says"
    )


# In a child, on the command line, in a report.


def test_experiments_run_in_a_child_and_stand_in_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TEST_CHILD, "1")
    chosen = ("--probe", "other-process", "--probe", "host-calls", "--variant", "w*", "--repeat", 1)
    done = cli("run", "--backend", "reference", "--fault", "ipc-always-complete", *chosen, "--out", tmp_path)
    assert done.code == 1, done
    report = load_report(tmp_path)
    assert {(r.probe, r.variant, r.verdict.value) for r in report.results} == {
        ("other-process", "wait", "non-conformant"),
        ("host-calls", "wait", "conformant"),
        ("host-calls", "wait-stream", "conformant"),
    }
    assert {r.experiment for r in report.results} == {"shared", "behind-gate"}
    assert "wait there is early" in (tmp_path / "report.md").read_text()
    assert "host-calls[copy-to-device]" in cli("list", "--variants").out


# A real runtime.


def test_a_real_runtime_in_real_time() -> None:
    here = find("opencl")
    if not here.here:
        pytest.skip(f"needs an OpenCL runtime: {here.reason}")
    backend = open_backend("opencl")
    try:
        found = results(backend)
    finally:
        backend.close()
    assert broken(found) == {}
    said = {where: result.verdict for where, result in found.items()}
    assert Verdict.INCONCLUSIVE not in said.values(), found
    for where in (
        "host-calls[record]",
        "host-calls[destroy]",
        "block-copies[synchronize-16777216]",
        "threads[at-once]",
    ):
        assert said[where] is Verdict.CONFORMANT
    assert found["beside-sync[query]"].clauses[0].held is True
    assert found["stream-destroy[pending-copy]"].clauses[0].held is True


# The torch backend, on a double of torch.


@pytest.fixture
def torch_backend(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Backend]:
    """The backend on the double, which the other process finds under the name of torch too."""
    (tmp_path / "torch.py").write_text("import sys, torch_double\nsys.modules[__name__] = torch_double.torch\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "torch", double.torch)  # type: ignore[arg-type]  # a stand-in
    monkeypatch.setattr(torch_device, "Ladder", double.Ladder)
    backend = torch_device.TorchBackend("cuda")
    yield backend
    backend.close()
    double.WRONG.clear()


def test_the_torch_backend_has_all_of_it(torch_backend: Backend) -> None:
    assert_right(results(torch_backend))


STORES = {f"kernel-stores[{how}-{size}]" for how in ("query", "synchronize") for size in (4, 16384)}
REFUSALS = {f"capture-rules[{call}]" for call in ("query", "synchronize", "query-after-end")}


@pytest.mark.parametrize(
    ("wrong", "probe", "expected"),
    [
        ("copy-elsewhere", "block-copies", {"MEM-VIS-1": LARGE}),
        ("stores-late", "kernel-stores", {"MEM-VIS-2": STORES}),
        ("captured-query", "capture-rules", {"CAP-1": REFUSALS}),
        ("takes-outside-wait", "capture-rules", {"CAP-2": {"capture-rules[wait-outside]"}}),
        ("takes-legacy", "capture-rules", {"CAP-2": {"capture-rules[legacy-beside]"}}),
        ("global-open", "capture-rules", {"CAP-3": {"capture-rules[other-thread-global]"}}),
        ("modes-ignored", "capture-rules", {"CAP-3": MODED - {"capture-rules[other-thread-relaxed]"}}),
        ("destroy-waits", "stream-destroy", {"STM-DESTROY-1": {"stream-destroy[pending-copy]"}}),
        ("destroy-drops", "stream-destroy", {"STM-DESTROY-1": {"stream-destroy[pending-copy]"}}),
    ],
)
def test_the_torch_backend_finds_a_wrong_runtime(
    wrong: str, probe: str, expected: dict[str, set[str]], torch_backend: Backend
) -> None:
    double.WRONG.add(wrong)
    numbers = Numbers(repeat=1, deadline=0.3)
    assert any(broken(results(torch_backend, (probe,), numbers)) == expected for _ in range(LOOKS))


@pytest.mark.parametrize(
    ("fault", "probe", "clauses"),
    [
        ("stream-query-blocks-in-sync", "beside-sync", {"THR-2"}),
        ("records-mixed", "threads", {"THR-1"}),
        ("captured-sync-returns", "capture-rules", {"CAP-1"}),
        ("query-sticks", "after-query", {"EVT-ASK-1"}),
        ("capture-mode-ignored", "capture-rules", {"CAP-3"}),
        ("capture-takes-legacy", "capture-rules", {"CAP-2"}),
        ("copy-blocks-host", "host-calls", {"MEM-PIN-1"}),
        ("large-copy-not-captured", "block-copies", {"MEM-VIS-1"}),
        ("current-stream-shared", "threads", {"THR-1"}),
        ("records-thread-local", "threads", {"THR-1"}),
        ("captured-query-succeeds", "capture-rules", {"CAP-1"}),
        ("ipc-always-complete", "other-process", {"EVT-IPC-1"}),
    ],
)
def test_a_fault_over_the_torch_backend_is_found_in_real_time(
    fault: str, probe: str, clauses: set[str], torch_backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("conformance.backends.fault_extras.BLOCKED", 0.3)
    wrong = FaultyBackend(torch_backend, (fault,))
    numbers = Numbers(repeat=1, deadline=0.2)
    # On a busy machine a look may say nothing. Who spins is not asked here: these threads share one processor.
    assert any(set(broken(results(wrong, (probe,), numbers))) == clauses for _ in range(LOOKS))


@pytest.mark.parametrize(("wrong", "made"), [("", 1), ("destroy-drops", 6)])
def test_no_private_stream_outlives_its_experiment(wrong: str, made: int, torch_backend: Backend) -> None:
    double.WRONG.add(wrong)
    native: Any = torch_backend.ladder.native  # type: ignore[attr-defined]  # of the torch backend
    results(torch_backend, ("stream-destroy",), Numbers(repeat=1, deadline=0.3))
    # With the work lost each of three observations has its control, whose stream the experiment keeps.
    assert len(native.made) == made
    assert native.made == native.dropped


@pytest.mark.parametrize(("fault", "where"), [("query-blocks-in-sync", "beside-sync"), ("query-stalls", "host-calls")])
def test_a_query_that_is_slow_and_still_in_time_for_the_deadline_is_seen(
    fault: str, where: str, torch_backend: Backend
) -> None:
    found = results(FaultyBackend(torch_backend, (fault,)), (where,))
    assert broken(found) == {"EVT-QNB-1": {f"{where}[query]"}}


def test_a_flag_that_an_event_takes_and_ignores_is_observed(
    torch_backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    double.WRONG.add("spins")
    # As torch's generic surface has it: no program is given such an event, and the probe asks for one all the same.
    refusals = {"event-flag-blocking": "torch.Event(blocking=True) is accepted and ignored"}
    monkeypatch.setattr(torch_backend, "unsupported", refusals.get)
    found = results(torch_backend, ("blocking-flag",))
    assert broken(found) == {"EVT-FLAG-1": {"blocking-flag[synchronize]"}}


def test_another_process_that_is_told_a_lie_is_found_out(
    torch_backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_DOUBLE_WRONG", "imports-complete")
    found = results(torch_backend, ("other-process",))
    assert broken(found) == {"EVT-IPC-1": set(found)}


def test_another_process_that_cannot_open_the_device_is_a_capability_that_is_missing(
    torch_backend: Backend, tmp_path: Path
) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libcuda.so.1 is gone')\n")
    found = results(torch_backend, ("other-process",))
    reasons = {result.reason for result in found.values()}
    assert {result.verdict for result in found.values()} == {Verdict.UNSUPPORTED}
    assert all("could not open the device" in reason and "libcuda.so.1 is gone" in reason for reason in reasons)


def test_a_call_that_ends_the_other_process_is_a_capability_that_is_missing(
    torch_backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As a wait for another process's event does across devices on one driver; nothing is said of what it waits for.
    monkeypatch.setenv("TORCH_DOUBLE_WRONG", "import-wait-crashes")
    found = {result.variant: result for result in results(torch_backend, ("other-process",)).values()}
    assert found["wait"].verdict is Verdict.UNSUPPORTED
    said = "a wait there for an event that is complete: another process: queue: it ended by signal 11 (SIGSEGV)"
    assert found["wait"].reason == f"ipc-events: {said}"
    assert {found[look].verdict for look in ("query", "synchronize")} == {Verdict.CONFORMANT}


def test_another_process_is_started_when_it_is_expected(torch_backend: Any) -> None:
    assert expected(all_probes()["other-process"].cases) == ("ipc-events",)
    assert expected(all_probes()["other-process-across"].cases) == ("ipc-events-across",)
    assert expected(all_probes()["threads"].cases) == ()
    torch_backend.beside.expect(("ipc-events", "ipc-events-across"))
    (started,) = torch_backend.beside.peers.values()  # one device: there is no second one for the other
    results(torch_backend, ("other-process",))
    assert list(torch_backend.beside.peers.values()) == [started]


def test_another_process_that_stops_answering_costs_one_verdict(
    torch_backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_DOUBLE_WRONG", "import-hangs")
    monkeypatch.setattr("conformance.backends.torch_device.peers.ANSWER", 0.3)
    monkeypatch.setattr("conformance.backends.torch_device.peers.ENDING", 0.1)
    probe = next(p for p in PROBES if p.name == "other-process")
    result = run_one(torch_backend, probe, probe.cases[0], RunState(ONCE))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "query: no answer within 0.3 s" in result.reason
    monkeypatch.setenv("TORCH_DOUBLE_WRONG", "")
    assert run_one(torch_backend, probe, probe.cases[0], RunState(ONCE)).verdict is Verdict.CONFORMANT
