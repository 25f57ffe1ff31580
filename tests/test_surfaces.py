"""API surfaces, the second gate kind, and gates on which no verdict can rest."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from conformance import plugin
from conformance.backends.api import GateKind, Request
from conformance.backends.gates import GateError
from conformance.backends.reference import ReferenceBackend, ReferenceSession
from conformance.errors import BackendUnavailable
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

    runner = SurfacesRunner(surfaces, opener, "reference")
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


def test_a_surface_that_cannot_be_opened_costs_its_own_cases_alone() -> None:
    def opener(surface: str) -> Runner:
        if surface == "generic":
            raise BackendUnavailable("generic: torch.Stream is not there")
        return LocalRunner(Surface(surface), QUICK, Depth.QUICK)

    surfaces = ("vendor", "generic", "mixed")
    report = run(SurfacesRunner(surfaces, opener, "reference"), select(QUICK, surfaces=surfaces), QUICK)
    verdicts = {s: {r.verdict for r in report.results if r.surface == s and r.ring is None} for s in surfaces}
    assert verdicts["generic"] == {Verdict.INCONCLUSIVE}
    assert verdicts["mixed"] == {Verdict.CONFORMANT}
    assert Verdict.INCONCLUSIVE not in verdicts["vendor"]
    assert report.verdict is Verdict.INCONCLUSIVE


def test_another_surface_settles_no_doubt_about_the_gate() -> None:
    report, _ = on_surfaces(("vendor", "generic"))

    def wrong(surface: str, probe: str) -> list[Result]:
        def failing(clause: ClauseResult) -> ClauseResult:
            found = clause.clause == "EVT-INDEP-1"
            return msgspec.structs.replace(clause, verdict=Verdict.NON_CONFORMANT) if found else clause

        return [
            msgspec.structs.replace(r, clauses=tuple(map(failing, r.clauses)), verdict=Verdict.NON_CONFORMANT)
            if (r.surface, r.probe) == (surface, probe)
            else r
            for r in report.results
        ]

    doubted = cross_checked(wrong("vendor", "second-gate"))
    assert core([r for r in doubted if r.surface == "vendor"]) == {(Verdict.INCONCLUSIVE, "gate-dependent")}
    assert core([r for r in doubted if r.surface == "generic"]) == {(Verdict.CONFORMANT, "")}
    assert all(r.verdict is not Verdict.NON_CONFORMANT for r in doubted)


def test_an_item_without_an_answer_is_not_an_item_that_was_left_out(pytestconfig: pytest.Config) -> None:
    runner = LocalRunner(ReferenceBackend(), QUICK, Depth.QUICK)
    every = select(QUICK)
    answers = [runner.run(probe, case) for probe, case in every.cases if probe.name != "publication"]
    mine = plugin.Session(pytestconfig, QUICK, Depth.QUICK, (), None)
    mine.headers["reference"] = runner.header
    mine.collected |= {f"reference:{probe.name}:{case.variant}" for probe, case in every.cases}
    report = plugin._report(mine, "reference", answers)
    assert report.verdict is Verdict.INCONCLUSIVE
    assert "the item gave no answer" in report.reason


def test_an_item_that_runs_twice_keeps_its_finding(pytestconfig: pytest.Config) -> None:
    probe, case = next((p, c) for p, c in select(QUICK).cases if p.name == "ordering")
    wrong = LocalRunner(ReferenceBackend(("wait-dropped",)), QUICK, Depth.QUICK)
    right = LocalRunner(ReferenceBackend(), QUICK, Depth.QUICK)
    mine = plugin.Session(pytestconfig, QUICK, Depth.QUICK, (), None)
    mine.headers["reference"] = right.header
    mine.collected.add(f"reference:{probe.name}:{case.variant}")
    report = plugin._report(mine, "reference", [wrong.run(probe, case), right.run(probe, case)])
    assert report.verdict is Verdict.NON_CONFORMANT
