"""The rules of judgement (docs/rules.md 2) on hand-made looks and on devices that are wrong only sometimes."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from judgement_helpers import At, Controls, looks, never

from conformance.backends.reference import ReferenceBackend, ReferenceSession
from conformance.backends.reference.faults import make_device
from conformance.decision import merge_clauses
from conformance.execution import Look
from conformance.judgement.judge import judge
from conformance.judgement.statements import CONCURRENCY, CONTRADICTIONS, Late, Statement, stronger
from conformance.model import host_points
from conformance.numbers import Numbers
from conformance.run import run_verdict
from conformance.trial.case import run_case
from conformance.trial.proof import Proof
from conformance.trial.result import result_of
from conformance.trial.state import RunState
from probes.catalogue import all_probes
from probes.notation import parse, print_program
from probes.program import Open, Program
from reports.records import ClauseResult, Form, Kind, Result, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from conformance.backends.api import Request
    from conformance.execution import Observe

FAILS, HOLDS, UNCLEAR = Verdict.NON_CONFORMANT, Verdict.CONFORMANT, Verdict.INCONCLUSIVE
UNSUPPORTED = Verdict.UNSUPPORTED

#: The program that the suite is about, and what remains of it in the first control.
CORE = """copy: gate g1, fill x 1, copy x -> h, record e
main: gate g2, record f
copy: wait f
host: open g1, open g2, sync-stream copy"""
OWN = CORE.replace("copy: wait f\n", "")


def judged(text: str, *rows: At, observe: Observe = "query", controls: Controls | None = None) -> dict[str, Statement]:
    """The strongest statement about each clause."""
    program, found = parse(text), dict[str, Statement]()
    for statement in judge(program, observe, looks(program, *rows), controls or Controls()):
        found[statement.clause] = stronger(found.get(statement.clause, statement), statement)
    return found


def said(statements: dict[str, Statement], clause: str) -> tuple[Verdict, str]:
    return statements[clause].verdict, statements[clause].reason


def on_time(program: Program, observe: Observe) -> Sequence[Look]:
    """A control whose event comes when g1 opens."""
    return looks(program, At(), *[At("e", {"h": 1}, "g1")] * len(host_points(program.steps)))


def only(text: str) -> Controls:
    """Only the control with exactly this text is on time."""
    return Controls(lambda program, by: on_time(program, by) if print_program(program) == text else never(program))


@pytest.mark.parametrize(("observe", "clause"), [("query", "EVT-SAFE-1"), ("synchronize", "EVT-SYNC-1")])
def test_early_needs_a_closed_gate_and_then_one_look(observe: Observe, clause: str) -> None:
    early, pending = At("e", {"h": 1}), At()
    assert said(judged(CORE, early, observe=observe), clause) == (FAILS, "early")
    assert said(judged(CORE, replace(early, ended="g1"), observe=observe), clause) == (UNCLEAR, "gate-expired")
    assert said(judged(CORE, pending, observe=observe), clause) == (HOLDS, "")
    assert said(judged(CORE, replace(pending, ended="g1"), observe=observe), clause) == (UNCLEAR, "gate-expired")


def test_early_is_proved_by_any_closed_gate_that_holds_the_event() -> None:
    text = "T: gate g2, record f\nS: gate g1, wait f, record e\nhost: open g1, open g2"
    assert said(judged(text, At("e", ended="g1")), "EVT-SAFE-1") == (FAILS, "early")
    assert said(judged(text, At("e", ended="g1 g2")), "EVT-SAFE-1") == (UNCLEAR, "gate-expired")
    # A gate that holds something else proves nothing.
    other = "S: gate g1, record e\nT: gate g2\nhost: open g1, open g2"
    assert said(judged(other, At("e", ended="g1")), "EVT-SAFE-1") == (UNCLEAR, "gate-expired")


def test_an_early_second_record_fails_both_clauses() -> None:
    text = "S: gate g1, record e, gate g2, record e\nhost: open g1, open g2"
    statements = judged(text, At(), At("e", ended="g1"))
    assert (said(statements, "EVT-SAFE-1"), said(statements, "EVT-REREC-1")) == ((FAILS, "early"), (FAILS, "early"))
    assert "EVT-REREC-1" not in judged(text, At("e"))  # the first is not complete either


def test_an_early_token_names_what_should_have_held_it() -> None:
    text = "S: gate g1, record e\nU: wait e, fill y 2, copy y -> hd\nhost: open g1"
    assert said(judged(text, At(tokens={"hd": 2})), "EVT-WAIT-1") == (FAILS, "early")
    assert said(judged(text, At(tokens={"hd": 2}, ended="g1")), "EVT-WAIT-1") == (UNCLEAR, "gate-expired")
    assert said(judged(CORE, At(tokens={"h": 1})), "STM-FIFO-1") == (FAILS, "early")


def test_late_with_its_control_on_time_is_the_core_finding() -> None:
    controls = only(OWN)
    late = At(tokens={"h": 1}, ended="g1")
    statement = judged(CORE, At(), late, At("e f", {"h": 1}, "g1 g2"), controls=controls)["EVT-INDEP-1"]
    assert (statement.verdict, statement.kind) == (FAILS, Kind.PUBLICATION)
    assert statement.late is not None
    assert (statement.late.rung, statement.late.published_by) == ("own", Open(gate="g2"))
    # The same look with g2 no longer closed proves nothing.
    expired = judged(CORE, At(), replace(late, ended="g1 g2"), controls=controls)["EVT-INDEP-1"]
    assert (expired.verdict, expired.reason, expired.late) == (UNCLEAR, "gate-expired", None)


def test_a_gate_that_ended_before_it_was_opened_leaves_nothing_conformant() -> None:
    """The captured work may have been done before the wait was queued: blind to a defect that latches."""
    statements = judged(CORE, At(ended="g1"), At("e", {"h": 1}, "g1"), At("e f", {"h": 1}, "g1 g2"))
    assert said(statements, "EVT-INDEP-1") == (UNCLEAR, "gate-expired")


def test_late_without_a_control_on_time_is_not_the_core_finding() -> None:
    statements = judged(CORE, At(), At(tokens={"h": 1}, ended="g1"))
    assert said(statements, "EVT-INDEP-1") == (UNCLEAR, "control-late")
    assert said(statements, "EVT-LIVE-1") == (FAILS, "publication")
    missing = judged(CORE, At(), At(ended="g1"))  # not even the work was seen: nothing at all can be said
    assert said(missing, "EVT-INDEP-1") == (UNCLEAR, "control-late")
    assert said(missing, "EVT-LIVE-1") == (UNCLEAR, "not-executed")


def test_late_without_a_readable_copy_has_no_witness() -> None:
    text = CORE.replace(", copy x -> h", "")
    statements = judged(text, At(), At(ended="g1"), controls=Controls(on_time))
    assert said(statements, "EVT-INDEP-1") == (UNCLEAR, "no-witness")
    assert FAILS not in {s.verdict for s in statements.values()}


def test_late_work_is_another_clause_than_a_late_event() -> None:
    statements = judged(CORE, At(), At(ended="g1"), controls=Controls(on_time))
    assert said(statements, "EVT-WAIT-4") == (FAILS, "execution")
    assert "EVT-INDEP-1" not in statements


def test_late_for_synchronize_only() -> None:
    late = At(tokens={"h": 1}, ended="g1")

    def sync_only(program: Program, observe: Observe) -> Sequence[Look]:
        waits = "wait f" in print_program(program)
        return looks(program, *[At()] * 5) if waits and observe == "synchronize" else on_time(program, observe)

    statements = judged(CORE, At(), late, observe="synchronize", controls=Controls(sync_only))
    assert said(statements, "EVT-INDEP-3") == (FAILS, "publication")
    both = only(OWN)
    statements = judged(CORE, At(), late, observe="synchronize", controls=both)
    assert said(statements, "EVT-INDEP-1") == (FAILS, "publication")


def test_contradictions_survive_a_gate_that_ended() -> None:
    taken_back = judged(CORE, At(), At("e", {"h": 1}, "g1 g2", flickers="e"))
    assert said(taken_back, "EVT-MONO-1") == (FAILS, "")
    assert said(taken_back, "EVT-INDEP-1") == (UNCLEAR, "gate-expired")
    between = judged(CORE, At(), At("e", {"h": 1}, "g1 g2"), At("", {"h": 1}, "g1 g2"))
    assert said(between, "EVT-MONO-1") == (FAILS, "")
    never = judged("S: gate g1, wait n, record e\nhost: open g1", At("", ended="g1"))
    assert said(never, "EVT-NEVER-1") == (FAILS, "")
    disagree = judged("S: gate g1, record e\nhost: open g1, sync e", At(), At("", ended="g1"), At("", ended="g1"))
    assert said(disagree, "EVT-AGREE-1") == (FAILS, "")


def test_should_is_held_by_the_token_too() -> None:
    text = "T: gate g2\nS: fill x 1, copy x -> h, record e\nhost: open g2"
    free = Controls(lambda program, _: looks(program, At("e", {"h": 1}), At("e", {"h": 1})))
    for row, held, record_held in (
        (At("e", {"h": 1}), True, True),
        (At("", {"h": 1}), True, False),
        (At(), False, None),
    ):
        statements = judged(text, row, controls=free)
        assert (statements["STM-CONC-1"].verdict, statements["STM-CONC-1"].held) == (Verdict.OBSERVED, held)
        assert statements["STM-CONC-2"].held is record_held


def test_what_does_not_come_beside_no_other_stream_either_is_no_lack_of_concurrency() -> None:
    text = "T: gate g2\nS: fill x 1, copy x -> h, record e\nhost: open g2"
    assert said(judged(text, At()), "STM-CONC-1") == (UNSUPPORTED, "control-late")


def test_not_happening_needs_a_control_in_which_it_happens() -> None:
    text = "S: gate g1, record e\nU: wait e, fill y 2, copy y -> hd\nhost: open g1"

    def happens(program: Program, observe: Observe) -> Sequence[Look]:
        return looks(program, At(tokens={"hd": 2}), At(tokens={"hd": 2}))

    controls = Controls(happens)
    assert said(judged(text, At(), controls=controls), "EVT-WAIT-1") == (HOLDS, "")
    assert set(controls.asked) == {"S: gate g1, record e\nU: fill y 2, copy y -> hd\nhost: open g1"}
    assert said(judged(text, At()), "EVT-WAIT-1") == (UNSUPPORTED, CONCURRENCY)


def test_what_was_watched_for_less_than_it_takes_to_come_is_not_held_back() -> None:
    text = "S: gate g1, record e\nU: wait e, fill y 2, copy y -> hd\nhost: open g1"

    def slowly(program: Program, observe: Observe) -> Sequence[Look]:
        return looks(program, At(tokens={"hd": 2}, came=0.002), At(tokens={"hd": 2}))

    controls = Controls(slowly)
    assert said(judged(text, At(lasted=0.001), controls=controls), "EVT-WAIT-1") == (UNCLEAR, "patience")
    assert controls.needed == 0.002
    assert said(judged(text, At(lasted=0.003), controls=Controls(slowly)), "EVT-WAIT-1") == (HOLDS, "")


def merged(*verdicts: tuple[str, Verdict, str]) -> Verdict:
    """One clause over results of these probes."""
    results = [
        SimpleNamespace(
            probe=probe,
            clauses=(ClauseResult(clause="EVT-WAIT-1", level="MUST", basis="", verdict=verdict, reason=reason),),
        )
        for probe, verdict, reason in verdicts
    ]
    return merge_clauses(results)["EVT-WAIT-1"]  # type: ignore[arg-type]  # what the merge reads of a result


def test_missing_concurrency_outranks_conformant_within_one_probe() -> None:
    missing = ("ordering", UNSUPPORTED, CONCURRENCY)
    assert merged(("ordering", HOLDS, ""), missing) is UNSUPPORTED
    assert merged(missing, ("ordering", HOLDS, "")) is UNSUPPORTED
    assert merged(("re-record", HOLDS, ""), missing) is HOLDS  # another probe showed it happen
    assert merged(("ordering", UNSUPPORTED, "flag"), ("ordering", HOLDS, "")) is HOLDS
    assert merged(missing, ("ordering", UNCLEAR, "gate-expired")) is UNCLEAR
    assert merged(missing, ("ordering", FAILS, "early"), ("re-record", HOLDS, "")) is FAILS


PLAIN = "default-wait-copy-side-query"
LATE = ("late-next-wait",)


class Fickle(ReferenceBackend):
    """A device that picks its faults anew for each run of the core program; other programs meet ``else_``."""

    def __init__(self, pick: Callable[[int], tuple[str, ...]], else_: tuple[str, ...] = (), **hooks: Any) -> None:
        super().__init__()
        self.pick, self.else_, self.hooks = pick, else_, hooks
        self.tries = 0
        self.requests: list[Request] = []

    def session(self, request: Request) -> ReferenceSession:
        self.requests.append(request)
        core = set(request.gates) == {"g1", "g2", "g3"}
        self.tries += core
        faults = self.pick(self.tries) if core else self.else_
        kind = type("Fickle", (make_device(faults),), self.hooks)
        return ReferenceSession(kind(request.streams, request.gate_limit), self.clock, request)


def tried(backend: ReferenceBackend, name: str = "publication", state: RunState | None = None) -> Result:
    """The plain case of a probe, run to its verdict."""
    probe = all_probes()[name]
    case = next((case for case in probe if case.variant == PLAIN), probe.cases[0])
    return result_of(backend, run_case(backend, probe, case, state or RunState(Numbers())))


def clause_of(result: Result, clause: str) -> ClauseResult:
    return next(c for c in result.clauses if c.clause == clause)


def test_an_event_late_once_is_unsteady_with_counts() -> None:
    backend = Fickle(lambda number: LATE if number == 5 else ())
    result = tried(backend)
    core = clause_of(result, "EVT-INDEP-1")
    assert (core.verdict, core.reason, result.findings) == (UNCLEAR, "unsteady", ())
    assert (core.counts.failed, core.counts.tried) == (1, backend.tries)
    assert 60 <= backend.tries < 70


def test_an_event_late_every_third_try_is_proved_with_its_rate() -> None:
    backend = Fickle(lambda number: () if number % 3 else LATE, else_=LATE)
    result = tried(backend)
    assert clause_of(result, "EVT-INDEP-1").verdict is FAILS
    (finding,) = result.findings
    assert (finding.holds_s, finding.published_by, result.form) == (Numbers().holds, "open g2", Form.NEXT_WAIT)
    assert (finding.late, finding.of) == (3, 9)
    # The layer below is asked afterwards, in repetitions that prove nothing: the third of them is late again.
    assert backend.tries == 9 + 3


def test_published_by_different_gates_is_not_proved() -> None:
    causes = {1: ("late-next-wait",), 2: ("late-idle",), 3: ("late-idle",)}
    core = clause_of(tried(Fickle(lambda number: causes.get(number, ()))), "EVT-INDEP-1")
    assert (core.verdict, core.reason, core.counts.failed) == (UNCLEAR, "unsteady", 3)


def test_one_stray_cause_does_not_spoil_the_proof() -> None:
    backend = Fickle(lambda number: LATE if number == 1 else ("late-idle",), ("late-idle",))
    assert clause_of(tried(backend), "EVT-INDEP-1").verdict is FAILS  # three holds, each published by g3


def late(gate: str | None = "g2", *, after: float = 0.0, control: float = 0.0, rung: str = "own") -> Statement:
    """A late event that this gate published."""
    found = Late(
        event="e",
        look=0,
        rung=rung,
        control=None,
        control_seconds=control,
        witness_seconds=0.0,
        published_by=Open(gate=gate) if gate else None,
        published_after=after if gate else None,
        hold=1.0,
    )
    return Statement(clause="EVT-INDEP-1", verdict=FAILS, late=found)


def proof(*tries: tuple[float, Statement], end: bool = True) -> Proof:
    made = Proof("EVT-INDEP-1", Numbers(), Numbers().holds)
    for hold, statement in tries:
        made.take(hold, statement, {}, "query", end)
    return made


def test_a_proof_needs_three_different_holds() -> None:
    assert proof((0.1, late()), (0.4, late()), (1.0, late())).complete
    assert not proof(*[(1.0, late())] * 60).complete
    assert not proof(*[(1.0, late()), (0.4, late())] * 30).complete


def test_what_does_not_follow_one_gate_is_no_proof() -> None:
    for other in (late("g3"), late(None), late(after=0.2), late(rung="others")):
        made = proof((1.0, late()), (0.4, late()), (0.1, other))
        assert (made.complete, made.reason) == (False, "unsteady")
    assert proof((1.0, late(None)), (0.4, late(None)), (0.1, late(None))).complete  # never
    assert not proof((1.0, late(None)), (0.4, late(None)), (0.1, late(None)), end=False).complete  # not every nudge


def test_a_hold_that_the_control_is_too_slow_for_does_not_count() -> None:
    slow = late(control=0.006)
    made = proof((0.1, slow), (0.4, slow), (1.0, slow))
    assert (sorted(made.proved), made.complete, made.reason) == ([0.4, 1.0], False, "patience")
    assert proof((0.1, late(control=0.004)), (0.4, slow), (1.0, slow)).complete


def test_a_late_event_on_a_very_slow_device_is_patience() -> None:
    backend = Fickle(lambda _: LATE, else_=LATE, operation=0.025)
    core = clause_of(tried(backend), "EVT-INDEP-1")
    assert (core.verdict, core.reason) == (UNCLEAR, "patience")
    # What was seen in time is not changed by patience.
    assert clause_of(tried(Fickle(lambda _: (), operation=0.025)), "EVT-INDEP-1").verdict is HOLDS


@pytest.mark.parametrize("name", ["publication", "publication-waiter", "nothing-behind", "work-behind", "re-record"])
def test_no_slowness_is_a_finding(name: str) -> None:
    for operation in (0.005, 0.02, 0.04, 0.3, 0.7):
        backend = Fickle(lambda _: (), operation=operation)
        assert tried(backend, name, RunState(Numbers(repeat=2))).verdict is not FAILS, operation


def test_quick_proves_the_first_late_variant_and_looks_once_at_the_rest() -> None:
    backend, state = Fickle(lambda _: LATE, else_=LATE), RunState(Numbers(quick=True))
    assert clause_of(tried(backend, state=state), "EVT-INDEP-1").verdict is FAILS
    tries = backend.tries
    again = clause_of(tried(backend, state=state), "EVT-INDEP-1")
    assert (again.verdict, again.reason, backend.tries) == (UNCLEAR, "not-repeated", tries + 1)


def test_controls_keep_the_order_of_streams() -> None:
    backend = Fickle(lambda _: LATE, else_=LATE)
    tried(backend, state=RunState(Numbers(), forms={Form.NEXT_WAIT}))
    # The ladder of nudges puts streams of its own last.
    core = [tuple(request.streams)[:2] for request in backend.requests if "g4" not in request.gates]
    assert len(core) > 6
    assert set(core) == {("copy", "main")}


@pytest.mark.parametrize("limit", [1e-9, 5e-6])
def test_gates_that_open_by_themselves_prove_nothing(limit: float) -> None:
    backend, state = ReferenceBackend(), RunState(Numbers(repeat=1, gate_limit=limit))
    plain = [(probe, case) for probe in all_probes(1).values() if not probe.pipes for case in probe.cases[:4]]
    results = [result_of(backend, run_case(backend, probe, case, state)) for probe, case in plain]
    assert run_verdict(results, core_left_out=False, causal=True)[0] is UNCLEAR
    held = {c.clause for r in results if "gate" in r.program for c in r.clauses if c.verdict is HOLDS}
    assert held <= CONTRADICTIONS
