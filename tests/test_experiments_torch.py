"""Experiments on the torch backend, over a double of torch in real time: a wrong runtime and a wrong API are found."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch_double as double
from experiment_helpers import LARGE, MODED, ONCE, assert_right, broken, results
from realtime_helpers import settled, some_try
from torch_double_driver import Ladder

import conformance.backends.torch_device as torch_device
from conformance.backends.extras import peers_of
from conformance.backends.fault_layer import FaultyBackend
from conformance.experiments import expected, other_process
from conformance.numbers import Numbers
from conformance.runner import run_one
from conformance.trial.state import RunState
from probes.beside import PROBES
from probes.catalogue import all_probes
from reports.records import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conformance.backends.api import Backend


@pytest.fixture
def torch_backend(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Backend]:
    """The backend on the double, which the other process finds under the name of torch too."""
    (tmp_path / "torch.py").write_text("import sys, torch_double\nsys.modules[__name__] = torch_double.torch\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "torch", double.torch)  # type: ignore[arg-type]  # a stand-in
    monkeypatch.setattr(torch_device, "Ladder", Ladder)
    backend = torch_device.TorchBackend("cuda")
    yield backend
    backend.close()
    double.WRONG.clear()


def test_the_torch_backend_has_all_of_it(torch_backend: Backend) -> None:
    assert_right(settled(lambda names: results(torch_backend, names)))


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
    assert some_try(lambda: broken(results(torch_backend, (probe,), numbers)) == expected)


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
    monkeypatch.setattr("conformance.backends.fault_blocking.BLOCKED", 0.3)
    wrong = FaultyBackend(torch_backend, (fault,))
    numbers = Numbers(repeat=1, deadline=0.2)
    # Who spins is not asked here: these threads share one processor.
    assert some_try(lambda: set(broken(results(wrong, (probe,), numbers))) == clauses)


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


ENDED = "another process: queue: it ended by signal 11 (SIGSEGV)"


def test_a_call_that_ends_the_other_process_costs_one_verdict(
    torch_backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_DOUBLE_WRONG", "import-wait-crashes")
    found = {result.variant: result for result in results(torch_backend, ("other-process",)).values()}
    assert (found["wait"].verdict, found["wait"].reason) == (Verdict.INCONCLUSIVE, f"error: EndedError: {ENDED}")
    assert {found[look].verdict for look in ("query", "synchronize")} == {Verdict.CONFORMANT}


def test_where_the_other_process_is_on_another_device_that_is_a_capability_that_is_missing(
    torch_backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As one driver does with such a wait, of an event in whatever state: nothing is said of what it would wait for.
    monkeypatch.setenv("TORCH_DOUBLE_WRONG", "import-wait-crashes")
    monkeypatch.setattr(other_process, "extra_of", lambda case: other_process.ACROSS)
    monkeypatch.setattr(other_process, "peers_of", lambda backend, session, across: peers_of(backend, session))
    found = {result.variant: result for result in results(torch_backend, ("other-process",)).values()}
    said = f"ipc-events-across: a wait there for an event that is complete: {ENDED}"
    assert (found["wait"].verdict, found["wait"].reason) == (Verdict.UNSUPPORTED, said)


def test_another_process_is_started_when_it_is_expected(torch_backend: Any) -> None:
    assert expected(all_probes()["other-process"].cases) == ("ipc-events",)
    assert expected(all_probes()["other-process-across"].cases) == ("ipc-events-across", "second-device")
    assert expected(all_probes()["threads"].cases) == ()
    torch_backend.expect(("ipc-events", "ipc-events-across", "second-device"))
    (started,) = torch_backend.beside.peers.values()  # one device: there is no second one for the other
    time.sleep(1.5)
    assert started._lines.next(0.0) is None  # it has opened no device: gates may be closed meanwhile
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
