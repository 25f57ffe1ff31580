"""API surfaces, the second gate kind, and gates on which no verdict can rest."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from conformance.backends.api import GateKind, Request
from conformance.backends.gates import GateError
from conformance.backends.reference import ReferenceBackend, ReferenceSession
from conformance.numbers import DEPTHS, Depth, Numbers
from conformance.run import cross_checked, run
from conformance.runner import LocalRunner, Runner, SurfacesRunner
from conformance.selection import select
from reports.records import ClauseResult, Outcome, Report, Result, Verdict

QUICK = DEPTHS[Depth.QUICK]


class Surface(ReferenceBackend):
    """The reference device as if it had API surfaces; ``faults`` as given."""

    def __init__(self, surface: str, faults: tuple[str, ...] = ()) -> None:
        super().__init__(faults)
        self.surface = surface

    def unsupported(self, capability: str) -> str | None:
        return None if capability in ("mixed", "second-gate") else super().unsupported(capability)


def on_surfaces(surfaces: Sequence[str], wrong: str = "") -> tuple[Report, list[str]]:
    """A run over these surfaces, of which one drops waits; and the surfaces in the order in which they were opened."""
    opened: list[str] = []

    def opener(surface: str) -> Runner:
        opened.append(surface)
        return LocalRunner(Surface(surface, ("wait-dropped",) if surface == wrong else ()), QUICK, Depth.QUICK)

    runner = SurfacesRunner(surfaces, opener)
    return run(runner, select(QUICK, surfaces=surfaces), QUICK), opened


def test_each_surface_runs_its_own_probes() -> None:
    report, opened = on_surfaces(("vendor", "mixed"))
    assert opened == ["vendor", "mixed"]
    assert report.header.surfaces == ("vendor", "mixed")
    assert {r.probe for r in report.results if r.surface == "mixed"} == {"mixed-wait"}
    assert "mixed-wait" not in {r.probe for r in report.results if r.surface == "vendor"}


def test_a_wait_lost_between_two_families_is_a_finding_of_the_wrapper_and_changes_no_decision() -> None:
    report, _ = on_surfaces(("vendor", "mixed"), wrong="mixed")
    assert report.verdict is Verdict.NON_CONFORMANT
    bad = [r for r in report.results if r.verdict is Verdict.NON_CONFORMANT]
    assert {(r.surface, r.subject) for r in bad} == {("mixed", "wrapper")}
    assert any(f.clause == "EVT-WAIT-1" for r in bad for f in r.findings)
    assert report.decision.needed is Outcome.NOT_NEEDED


def test_a_surface_that_is_selected_counts() -> None:
    report, _ = on_surfaces(("vendor", "generic"), wrong="generic")
    assert report.decision.needed is Outcome.UNDECIDED


def core(results: Sequence[Result]) -> set[tuple[Verdict, str]]:
    return {(c.verdict, c.reason) for r in results for c in r.clauses if c.clause == "EVT-INDEP-1"}


def test_a_core_verdict_that_depends_on_the_gate_is_none() -> None:
    report, _ = on_surfaces(("vendor",))
    assert core(report.results) == {(Verdict.CONFORMANT, "")}
    assert cross_checked(report.results) == report.results

    def failing(clause: ClauseResult) -> ClauseResult:
        found = clause.clause == "EVT-INDEP-1"
        return msgspec.structs.replace(clause, verdict=Verdict.NON_CONFORMANT) if found else clause

    changed = [
        msgspec.structs.replace(r, clauses=tuple(map(failing, r.clauses))) if r.probe == "second-gate" else r
        for r in report.results
    ]
    assert core(cross_checked(changed)) == {(Verdict.INCONCLUSIVE, "gate-dependent")}


class Timed(ReferenceBackend):
    """A device whose gates only time ends."""

    def gate(self) -> GateKind:
        return GateKind(kind="sleep", assurance="timed")


class Gateless(ReferenceBackend):
    """A device on which no kind of gate works."""

    def gate(self) -> GateKind:
        return GateKind(kind="none", assurance="none", tried=(("every kind", "cuLaunchKernel returned 1"),))

    def session(self, request: Request) -> ReferenceSession:
        raise GateError("no gate: cuLaunchKernel returned 1")


@pytest.mark.parametrize(("kind", "reason"), [(Timed, "timed-gate"), (Gateless, "cuLaunchKernel returned 1")])
def test_without_a_causal_gate_nothing_passes(kind: type[ReferenceBackend], reason: str) -> None:
    numbers = Numbers(repeat=1, max_in_flight=2)
    report = run(LocalRunner(kind(), numbers, Depth.STANDARD), select(numbers), numbers)
    assert report.verdict is Verdict.INCONCLUSIVE
    assert reason in report.reason
    held = {c.clause for r in report.results for c in r.clauses if c.verdict is Verdict.CONFORMANT}
    assert held <= {"EVT-MONO-1", "EVT-AGREE-1", "EVT-NEVER-1", "STM-ALIAS-1"}  # contradictions, which need no gate
    assert {d.outcome for d in report.decision.per_in_flight} == {Outcome.UNDECIDED}
