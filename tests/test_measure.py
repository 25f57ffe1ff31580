"""Capabilities: each has a value or says why it has none, and none costs more than itself."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import misbehaving
import pytest
from children import HASTY, LATE, NUMBERS, alive, child, children, wait_until
from helpers import cli

from conformance.backends.api import GateKind
from conformance.backends.reference import ReferenceBackend
from conformance.backends.registry import find, open_backend
from conformance.errors import DeviceError
from conformance.measure import PARTS, measure, measure_part
from conformance.measure.parked import BEHIND, MOST, WORK, key_of
from conformance.numbers import Depth
from conformance.run import run
from conformance.runner import LocalRunner
from conformance.selection import select
from reports.render import markdown

if TYPE_CHECKING:
    from collections.abc import Iterator

ROWS = [key_of(behind, work) for behind in BEHIND for work in WORK]
HOOKS = ("stream handles before aliasing", '.to("cpu", non_blocking=True)', "launch-queue depth")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where tests and children meet; afterwards no child may be left."""
    monkeypatch.setenv(misbehaving.FOLDER, str(tmp_path))
    yield tmp_path
    wait_until(lambda: not alive(tmp_path))


def parked(*faults: str) -> set[str]:
    """The values of all rows of the parked streams, on the reference device."""
    found = measure_part(ReferenceBackend(faults), NUMBERS, "parked streams").values
    assert list(found) == ROWS
    return set(found.values())


def test_parked_streams_never_stop_an_independent_one_where_each_has_a_queue() -> None:
    assert parked() == {f"never (k to {MOST})"}


@pytest.mark.parametrize("queues", range(2, 8))
def test_parked_streams_fill_the_hardware_queues(queues: int) -> None:
    # The gate's stream has one queue; the free stream comes to it again once every other one is taken.
    assert parked(f"queues-{queues}") == {f"{queues - 1} streams"}


def test_one_queue_needs_no_parked_stream() -> None:
    assert parked("queues-1") == {"0 streams: the closed gate alone is enough"}


def test_more_queues_than_streams_are_never_full() -> None:
    assert parked(f"queues-{MOST + 2}") == {f"never (k to {MOST})"}
    assert parked(f"queues-{MOST + 1}") == {f"{MOST} streams"}


def test_a_gate_that_ends_by_itself_shows_nothing() -> None:
    assert parked("gates-expire") == {"unsupported: reference: the gate ended by itself in 3 of 3 tries"}


def test_an_immediate_device_has_no_latency() -> None:
    found = measure_part(ReferenceBackend(), NUMBERS, "latency").values
    assert len(found) == 6
    assert {value.partition(" us")[0] for value in found.values()} == {"median 0.0"}
    assert all(("over query" in value) is key.startswith("synchronize") for key, value in found.items())


@pytest.mark.parametrize("fault", ["lost-event", "late-sync"])
def test_an_event_that_is_never_seen_has_no_latency(fault: str) -> None:
    found = measure_part(ReferenceBackend((fault,)), NUMBERS, "latency").values
    assert all("not seen within 1 s of the opening" in value for value in found.values())


def test_an_event_seen_early_has_no_latency() -> None:
    found = measure_part(ReferenceBackend(("query-always-true",)), NUMBERS, "latency").values
    assert "was the event pending" in found["publication latency, default event"]
    assert found["synchronize wake-up, default event"].startswith("median 0.0 us")


def test_what_a_backend_has_no_hook_for_says_so() -> None:
    found = measure(ReferenceBackend(), NUMBERS).values
    for key in HOOKS:
        assert found[key] == "unsupported: the reference backend has no hook 'limits'; torch backends have it"
    assert found["gate kind virtual"] == "ok"


class _Timed(ReferenceBackend):
    def gate(self) -> GateKind:
        return GateKind(kind="sleep", assurance="timed")


def test_a_gate_that_only_time_ends_measures_nothing() -> None:
    for part in ("latency", "parked streams", "coupled streams"):
        assert "only time ends it" in measure_part(_Timed(), NUMBERS, part).values[part]


class _Broken(ReferenceBackend):
    vendor_errors = (OSError,)

    def session(self, request: Any) -> Any:
        raise OSError("vendorCreateStream: 999\nunknown")

    def limits(self) -> Any:
        raise OSError("no limits")


def test_a_vendors_error_costs_only_its_value() -> None:
    found = measure(_Broken(), NUMBERS).values
    assert found[ROWS[0]] == "unsupported: OSError: vendorCreateStream: 999 unknown"
    assert {value.partition(":")[0] for value in found.values()} == {"unsupported"}
    assert all("no limits" in found[key] for key in (*HOOKS, "gate kinds"))


@pytest.mark.skipif(not find("opencl").here, reason=f"needs an OpenCL runtime: {find('opencl').reason}")
def test_a_real_device_says_something_for_each() -> None:
    backend = open_backend("opencl")
    try:
        found = measure(backend, NUMBERS).values
    finally:
        backend.close()
    for key in ROWS:
        assert re.match(r"never \(k to \d+|\d+ streams", found[key]), (key, found[key])
    assert re.match(r"median [\d.]+ us, p99 [\d.]+ us \(\d+ uses\)", found["publication latency, default event"])
    assert re.match(r"median [\d.]+ us", found["synchronize wake-up, default event"])
    assert "clEnqueueMarkerWithWaitList" in found["publication latency, blocking event"]
    assert all(found[key].startswith("unsupported: ") for key in HOOKS)
    assert found["gate kind user-event"].startswith("ok, releases in ")


def test_a_child_measures_what_this_process_does(folder: Path) -> None:
    runner = child("good", faults=("queues-3",))
    try:
        assert runner.measure() == measure(ReferenceBackend(("queues-3",)), NUMBERS)
    finally:
        runner.close()
    assert len(children(folder)) == 1


@pytest.mark.parametrize(
    ("factory", "reason"),
    [
        ("hang", "hang: no answer for 0.3 s; the child was replaced"),
        ("hang_locked", "hang: no answer for 0.3 s; the child was replaced"),
        ("gone", "crash: exit code 7"),
        ("raises", "error: ValueError: nobody expects this"),
    ],
)
def test_a_hang_or_crash_costs_only_its_part(factory: str, reason: str, folder: Path) -> None:
    runner = child(factory, faults=LATE)
    try:
        patient = runner.limits
        if factory.startswith("hang"):
            runner.limits = HASTY
        (folder / "armed").touch()
        lost = runner.measure_part("latency")
        (folder / "armed").unlink(missing_ok=True)  # on a slow machine it was given up before it began
        runner.limits = patient
        assert lost.values == {"latency": reason}
        whole = runner.measure()
    finally:
        runner.close()
    assert whole == measure(ReferenceBackend(LATE), NUMBERS)
    assert len(children(folder)) == 2


def test_a_child_that_cannot_be_replaced_measures_nothing_more(folder: Path) -> None:
    runner = child("once")
    try:
        (folder / "armed").touch()
        found = runner.measure().values
    finally:
        runner.close()
    assert found.pop("latency") == "crash: exit code 7"
    assert list(found) == list(PARTS)[1:]
    assert all(value.startswith("not measured: ") and "fallen off the bus" in value for value in found.values())


def test_a_wait_that_spins_shows_in_its_call() -> None:
    def used(*faults: str) -> list[str]:
        return list(measure_part(ReferenceBackend(faults), NUMBERS, "processor used").values.values())

    assert used() == ["100% of the wait", "0% of the wait", "100% of the wait", "100% of the wait"]
    assert used("blocking-spins") == ["100% of the wait"] * 4
    assert all(value.startswith("unsupported") for value in used("sync-noop")[:2])


def test_events_are_counted_up_to_the_first_that_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def live(backend: ReferenceBackend) -> str:
        return measure_part(backend, NUMBERS, "live events").values["live events"]

    assert live(ReferenceBackend()) == "at least 4096"
    assert live(ReferenceBackend(("lost-event",))) == ("at least 4096; 4096 of them are not seen complete within 1 s")
    few = ReferenceBackend()
    plain = few.session

    def session(request: Any) -> Any:
        made: Any = plain(request)
        issue, left = made.issue, [7]

        def limited(op: Any) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise DeviceError("no more events")
            issue(op)

        made.issue = limited
        return made

    monkeypatch.setattr(few, "session", session)
    assert live(few) == "7, then unsupported: no more events"
    assert set(measure_part(ReferenceBackend(), NUMBERS, "record cost").values.values()) == {"median 0.0 us of 200"}


def test_a_whole_run_has_them_and_its_report_shows_them(tmp_path: Path) -> None:
    assert cli("run", "--backend", "reference", "--repeat", 1, "--max-in-flight", 2, "--out", tmp_path).code == 0
    text = (tmp_path / "report.md").read_text()
    assert re.search(r"\| behind the wait +\| independent D2H copy +\| independent kernel +\|", text)
    assert re.search(rf"\| record +\| never \(k to {MOST}\) +\| never \(k to {MOST}\) +\|", text)
    assert re.search(r"\| publication latency, default event +\| median 0.0 us", text)


@pytest.mark.parametrize("restricted", [True, False])
def test_a_restricted_or_quick_run_measures_nothing(restricted: bool) -> None:
    depth = Depth.STANDARD if restricted else Depth.QUICK
    runner = LocalRunner(ReferenceBackend(), NUMBERS, depth)
    selection = select(NUMBERS, probes=("never",))
    if not restricted:
        selection = type(selection)(cases=selection.cases)
    report = run(runner, selection, NUMBERS)
    assert not report.capabilities
    assert "## Capabilities" not in markdown(report, "")
