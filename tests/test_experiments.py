"""Experiments: what no program can write down is found on wrong devices, and right ones pass with their controls."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from experiment_helpers import LARGE, MODED, assert_right, broken, results
from helpers import cli

from conformance.backends.reference import ReferenceBackend
from conformance.backends.registry import find, open_backend
from conformance.errors import DeviceError
from conformance.experiments import EXPERIMENTS, Experiment, threads
from conformance.experiments.bench import EXPIRED, Bench, failed, held, unclear
from conformance.numbers import Numbers
from conformance.runner import TEST_CHILD, run_one
from conformance.trial import experiment
from conformance.trial.state import RunState
from probes.beside import PROBES
from reports.records import Result, Verdict
from reports.render import timeline
from reports.store import load_report

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conformance.backends.api import Backend
    from conformance.judgement.statements import Statement


def test_a_right_device_passes_with_its_controls_beside() -> None:
    found = results(ReferenceBackend())
    assert_right(found)
    assert {case.experiment for probe in PROBES for case in probe.cases} == set(EXPERIMENTS)


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


@pytest.mark.parametrize("procedure", ["_handed", "_at_once"])
def test_a_control_whose_gate_ended_by_itself_is_no_answer(procedure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, controls = getattr(threads, procedure), [0]

    def once(bench: Bench, *, threaded: bool) -> tuple[str, str]:
        if not threaded:
            controls[0] += 1
            if controls[0] == 1:
                return "another thread sees the event early", EXPIRED
        answer: tuple[str, str] = plain(bench, threaded=threaded)
        return answer

    monkeypatch.setattr(threads, procedure, once)
    found = results(ReferenceBackend(), ("threads",))
    assert {result.verdict for result in found.values()} == {Verdict.CONFORMANT}
    assert controls[0] > 1


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
