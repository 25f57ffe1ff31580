"""Faults laid over a backend at the API: the suite's power on a device that is right."""

from __future__ import annotations

import pytest

from conformance.backends.api import Backend
from conformance.backends.fault_layer import FAULTS, FaultyBackend
from conformance.backends.reference import ReferenceBackend
from conformance.backends.registry import check_faults, find, open_backend
from conformance.decision import merge_clauses, not_held
from conformance.errors import UsageError
from conformance.faults import FAULTS as CATALOGUE
from conformance.faults import fault_of
from conformance.numbers import DEPTHS, Depth, Numbers
from conformance.run import run
from conformance.runner import LocalRunner
from conformance.selection import select
from conformance.selftest import BRIEF, HALF, decisive
from reports.records import Report, Verdict

ONCE = Numbers(repeat=1)


def failed(report: Report) -> set[str]:
    return {clause for clause, verdict in merge_clauses(report.results).items() if verdict is Verdict.NON_CONFORMANT}


def outcomes(report: Report) -> set[str]:
    return {depth.outcome.value for depth in report.decision.per_in_flight if depth.in_flight >= 2}


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_found_by_its_clause_over_a_right_device(name: str) -> None:
    backend = FaultyBackend(ReferenceBackend(), (name,), alias="unnamed")
    # Two of a ring's variants do where no late event has to be told from a timely one.
    rings = HALF if CATALOGUE[name].form else BRIEF
    report = run(LocalRunner(backend, ONCE, Depth.STANDARD), decisive(ONCE, rings), ONCE, measure=False)
    fault = fault_of(name)
    assert fault is not None
    found = failed(report) | not_held(report.results)
    assert fault.killed_by in found
    assert found <= fault.allowed
    assert outcomes(report) == {fault.outcome}
    form = report.decision.form
    assert (form.value if form is not None else "") == fault.form
    assert report.header.fault == ("unnamed",)


@pytest.mark.parametrize(
    ("name", "clause", "outcome"),
    [
        ("late-next-wait", "EVT-INDEP-1", "enable"),
        ("held-by-wait", "EVT-WAIT-4", "enable"),
        ("wait-dropped", "EVT-WAIT-1", "undecided"),
    ],
)
def test_a_real_runtime_is_found_wrong_in_real_time(name: str, clause: str, outcome: str) -> None:
    found = find("opencl")
    if not found.here:
        pytest.skip(f"needs an OpenCL runtime: {found.reason}")
    numbers = DEPTHS[Depth.QUICK]
    backend: Backend = open_backend("opencl", faults=(name,))
    try:
        report = run(LocalRunner(backend, numbers, Depth.QUICK), select(numbers), numbers)
    finally:
        backend.close()
    assert clause in failed(report)
    assert outcomes(report) == {outcome}


def test_what_cannot_be_laid_over_a_backend_is_refused() -> None:
    with pytest.raises(UsageError, match="did you mean late-next-wait"):
        check_faults("cuda", ("late-nxt-wait",))
    with pytest.raises(UsageError, match="one fault"):
        check_faults("opencl", ("late-sync", "sync-noop"))
    check_faults("opencl", ("late-sync",))
    check_faults("reference", ("late-next-wait-queue", "queues-2"))
