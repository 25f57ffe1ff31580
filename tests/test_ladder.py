"""The ladder names the mechanism behind a late event, and says nothing where nothing is late."""

from __future__ import annotations

import odd_devices as odd
import pytest

from conformance.backends.api import Backend
from conformance.backends.fault_layer import FaultyBackend
from conformance.backends.reference import ReferenceBackend
from conformance.backends.registry import find, open_backend
from conformance.numbers import DEPTHS, Depth, Numbers
from conformance.run import finish
from conformance.runner import LocalRunner
from conformance.selection import select
from reports.latency import BUCKETS
from reports.records import Mechanism, Report
from reports.render import markdown, summary

ONCE = Numbers(repeat=1)


def report_of(backend: Backend, *probes: str, depth: Depth = Depth.STANDARD, variants: str = "*") -> Report:
    numbers = ONCE if depth is Depth.STANDARD else DEPTHS[depth]
    selection = select(numbers, probes=probes or ("publication",), variants=(variants,))
    runner = LocalRunner(backend, numbers, depth, selection)
    return finish(runner.header, [runner.run(*pair) for pair in selection.cases], selection, numbers)


def mechanisms(report: Report) -> list[Mechanism]:
    return [result.mechanism for result in report.results if result.mechanism is not None]


def reference(*faults: str) -> Backend:
    return ReferenceBackend(faults, alias="unnamed" if faults else None)


@pytest.mark.parametrize(
    ("backend", "name", "by"),
    [
        (reference("late-next-wait"), "tail coupling", "open g2"),
        (reference("late-any-wait"), "tail coupling", "open g2"),
        (reference("late-idle"), "tail coupling", "open g3"),
        (reference("late-sync"), "lost wake-up", "stream synchronize"),
        (reference("late-never"), "lost wake-up", ""),
        (reference("lost-event"), "lost wake-up", ""),
        (reference("late-next-wait", "queues-1"), "tail coupling", "open g2"),
        (reference("late-next-wait-queue", "queues-2"), "shared queue", "open g2"),
        (odd.OddBackend(odd.ParkedQueue), "shared queue", "open g2"),
        (reference("held-by-wait"), "execution held", "open g2"),
        (odd.OddBackend(odd.LockedQuery), "lock stall", None),
        (odd.OddBackend(odd.ImpatientLock), "lock stall", None),
        (odd.OddBackend(odd.SubmitsOnStreamQuery), "batching", "stream query"),
        (odd.OddBackend(odd.SubmitsOnTenth), "batching", "one more operation on another stream"),
        (odd.OddBackend(odd.SubmitsByTimer), "batching", None),
        (odd.OddBackend(odd.Gathers), "batching", "stream synchronize"),
        (odd.SecondOpinion(driver_late=False), "wrapper", "open g2"),
        (odd.SecondOpinion(driver_late=True), "tail coupling", "open g2"),
        (FaultyBackend(ReferenceBackend(), ("late-next-wait",), alias="unnamed"), "wrapper", "open g2"),
        (FaultyBackend(ReferenceBackend(), ("late-sync",), alias="unnamed"), "wrapper", "stream synchronize"),
        (FaultyBackend(ReferenceBackend(), ("held-by-wait",), alias="unnamed"), "execution held", "open g2"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else value,
)
def test_each_mechanism_is_named(backend: Backend, name: str, by: str | None) -> None:
    found = mechanisms(report_of(backend, variants="default-wait-copy-side-query"))
    assert [m.name.value for m in found] == [name]
    assert by is None or found[0].by == by


def test_an_event_that_waits_for_the_next_operation_is_gathered_not_coupled() -> None:
    found = mechanisms(
        report_of(odd.OddBackend(odd.SubmitsOnNextOperation), "nothing-behind", variants="query-default")
    )
    assert [(m.name.value, m.by) for m in found] == [("batching", "one more operation on its stream")]


def test_a_device_wait_that_is_late_is_coupled_to_the_tail_of_what_it_waits_for() -> None:
    found = mechanisms(report_of(reference("late-next-wait-device"), "publication-waiter"))
    assert {m.name.value for m in found} == {"tail coupling"}


@pytest.mark.parametrize(
    "backend",
    [
        reference(),
        reference("queues-1"),
        reference("slow-device"),
        reference("gates-expire"),
        odd.OddBackend(odd.SubmitsOnQuery),
    ],
    ids=["clean", "one queue", "slow", "gates end", "submits on query"],
)
def test_what_is_not_late_has_no_mechanism(backend: Backend) -> None:
    assert mechanisms(report_of(backend, "publication", "nothing-behind", variants="*query*")) == []


def test_a_device_that_is_merely_slow_is_not_put_down_to_a_nudge() -> None:
    found = mechanisms(report_of(reference("very-slow-device"), "publication", variants="default-wait-fill-side-query"))
    assert all(m.name.value == "unclear" or "slow" in m.text for m in found)


def test_the_ladder_is_walked_once_for_each_form_and_way_of_asking() -> None:
    report = report_of(reference("late-next-wait"), "publication", "two-waits")
    assert [r.variant for r in report.results if r.mechanism] == [
        "default-wait-stream-copy-side-query",
        "default-wait-stream-copy-side-synchronize",
    ]
    assert "mechanism tail coupling" in summary(report, "", "")
    text = markdown(report, "")
    assert "mechanism: tail coupling" in text
    assert "a later gate: open g2" in text


def test_a_real_runtime_has_a_mechanism_and_histograms() -> None:
    found = find("opencl")
    if not found.here:
        pytest.skip(f"needs an OpenCL runtime: {found.reason}")
    backend = open_backend("opencl", faults=("late-next-wait",))
    try:
        report = report_of(backend, "publication", "agree", depth=Depth.QUICK, variants="*default*")
    finally:
        backend.close()
    assert "tail coupling" in {m.name.value for m in mechanisms(report)}
    timely = [r for r in report.results if r.probe == "agree" and r.histogram_us]
    assert timely
    for result in timely:
        assert sum(result.histogram_us.values()) == sum(result.lag_histogram_us.values()) == DEPTHS[Depth.QUICK].repeat
        assert len(result.histogram_us) <= len(BUCKETS)
    assert "## Latency" in markdown(report, "")
