"""Turns what came of a case into the record that is kept: of a program, a pipeline, an experiment, or of none."""

from __future__ import annotations

from collections import Counter

from conformance.backends.api import Backend
from conformance.execution import Look
from conformance.judgement.statements import Statement
from conformance.model import Model
from conformance.spec import CLAUSES
from conformance.trial import second_opinion
from conformance.trial.case import STEADY, Repetition, Trial, failures
from conformance.trial.experiment import ExperimentRun
from conformance.trial.pipeline import PipeRun
from conformance.trial.record import Bound, bound_clause, counts_of, record
from probes.notation import print_step
from probes.probe import Case, Probe
from probes.program import Program
from reports.latency import histogram
from reports.records import (
    ClauseResult,
    Control,
    Counts,
    EventSeen,
    Finding,
    HostPoint,
    Observation,
    Result,
    RingMeasure,
    Verdict,
)


def result_of(backend: Backend, trial: Trial) -> Result:
    """The record of a case that was run, or could not be."""
    clauses: dict[str, ClauseResult] = {}
    expected = trial.probe.expected(trial.case)
    for clause in expected:
        clauses[clause] = _clause(backend, trial, clause)
    for clause, statement in trial.strongest.items():
        # What was not asked for is kept where it says something.
        if clause not in clauses and statement.verdict not in (Verdict.UNSUPPORTED, Verdict.OBSERVED):
            clauses[clause] = _clause(backend, trial, clause)
    findings = [f for f in (_finding(trial, c) for c in clauses.values()) if f is not None]
    control = next((c for c in (_control(trial, f.clause) for f in findings) if c is not None), None)
    return record(
        backend,
        trial.probe,
        trial.case,
        clauses=tuple(clauses.values()),
        findings=tuple(findings),
        control=control,
        form=trial.form,
        mechanism=trial.mechanism,
        counts=counts_of(sum(trial.verdicts.values(), Counter()) if trial.verdicts else Counter()),
        observations=_observations(trial),
        latency=histogram(trial.latency),
        lag=histogram(trial.lag),
        window=trial.window,
        seconds=trial.seconds,
        opinion=trial.opinion,
    )


def ring_result(
    backend: Backend, probe: Probe, case: Case, measure: RingMeasure, run: PipeRun, proved: bool, seconds: float
) -> Result:
    """The record of one pipeline."""
    by_query = case.observe == "query"
    safe, core = ("EVT-SAFE-1", "EVT-INDEP-1") if by_query else ("EVT-SYNC-1", "EVT-INDEP-3")
    timed = backend.gate().assurance == "timed"
    clauses: list[ClauseResult] = []

    def say(clause: str, verdict: Verdict, reason: str, counts: Counts) -> None:
        clauses.append(bound_clause(backend, case, clause, verdict, reason, counts, timed=timed))

    if run.early:
        say(safe, Verdict.NON_CONFORMANT, "early", Counts(tried=run.pended, failed=1))
    elif run.pended:
        say(safe, Verdict.CONFORMANT, "", Counts(tried=run.pended, held=run.pended))
    if measure.outcome == "late-data" and not run.early:
        # Complete at a MUST point, and its token came later. Where events are early too, that is what is wrong.
        say("MEM-VIS-1", Verdict.NON_CONFORMANT, "late-data", Counts(tried=1, failed=1))
    elif measure.outcome == "wrong-data" and not run.early:
        # The step's copy did not wait for the step: the ordering probes prove that, with their controls.
        say("EVT-WAIT-1", Verdict.INCONCLUSIVE, "wrong-data", Counts(tried=1, unclear=1))
    elif measure.outcome == "late" and not proved:
        # A harvest that is late with its control on time is a MUST event not seen; one hold is no proof of it.
        say(core, Verdict.INCONCLUSIVE, "late-in-ring", Counts(tried=1, unclear=1))
    elif measure.outcome not in ("timely", "late", "late-data", "wrong-data"):
        say(core, Verdict.INCONCLUSIVE, measure.outcome, Counts(tried=1, unclear=1))
    findings = tuple(
        Finding(
            clause=c.clause,
            text="complete, but without its token" if c.clause == "MEM-VIS-1" else "complete, but its gate is closed",
            of=run.pended,
        )
        for c in clauses
        if c.verdict is Verdict.NON_CONFORMANT
    )
    reason = "" if measure.outcome == "timely" else measure.outcome
    return record(
        backend,
        probe,
        case,
        clauses=tuple(clauses),
        findings=findings,
        ring=measure,
        reason=reason,
        verdict=Verdict.OBSERVED if measure.outcome == "late" and proved and not run.early else None,
        seconds=seconds,
    )


def experiment_result(backend: Backend, probe: Probe, case: Case, run: ExperimentRun) -> Result:
    """The record of an experiment that was run, or could not be."""
    timed = backend.gate().assurance == "timed"
    clauses = tuple(
        bound_clause(backend, case, c, *run.verdict(c), counts_of(run.verdicts.get(c, Counter())), timed=timed)
        for c in probe.expected(case)
    )
    controls = run.controls
    slowest = round(controls.slowest * 1e6, 1) if controls.on_time else None
    control = Control(
        name=probe.control, program="", on_time=controls.on_time, tried=controls.tried, slowest_us=slowest
    )
    return record(
        backend,
        probe,
        case,
        clauses=clauses,
        findings=tuple(
            Finding(
                clause=c.clause,
                text=f"{CLAUSES[c.clause].title}: {c.reason}",
                late=c.counts.failed,
                of=c.counts.tried,
            )
            for c in clauses
            if c.verdict is Verdict.NON_CONFORMANT
        ),
        control=control if controls.tried else None,
        observations=tuple(run.kept),
        seconds=run.seconds,
    )


def skipped_ring(backend: Backend, probe: Probe, case: Case, reason: str, seconds: float = 0.0) -> Result:
    """The record of a pipeline that was not run, with why."""
    clause = "EVT-SAFE-1" if case.observe == "query" else "EVT-SYNC-1"
    result = bound_clause(backend, case, clause, Verdict.UNSUPPORTED, reason, Counts())
    return record(backend, probe, case, clauses=(result,), reason=reason, seconds=seconds)


def lost_result(backend: Bound, probe: Probe, case: Case, reason: str, seconds: float = 0.0) -> Result:
    """The record of a case that was begun and gave no answer: everything that was expected of it is inconclusive."""
    lost = Counts(tried=1, unclear=1)
    clauses = [bound_clause(backend, case, c, Verdict.INCONCLUSIVE, reason, lost) for c in probe.expected(case)]
    pipe = probe.pipes.get(case.variant)
    ring = None
    if pipe is not None:
        ring = RingMeasure(
            ring=pipe.ring, in_flight=pipe.in_flight, outcome=reason, steps=pipe.steps, decisive=case.decisive
        )
    return record(backend, probe, case, clauses=tuple(clauses), counts=lost, ring=ring, reason=reason, seconds=seconds)


def _clause(backend: Backend, trial: Trial, clause: str) -> ClauseResult:
    statement = trial.strongest.get(clause)
    verdict, reason, counts = Verdict.INCONCLUSIVE, "not-reached", Counts()
    if statement is not None:
        counts = counts_of(trial.verdicts[clause])
        verdict, reason = _proved(trial, clause, statement)
    elif (alias := trial.strongest.get("STM-ALIAS-1")) is not None and alias.reason == "aliased":
        reason = "aliased"
    # What was proved before the device refused stays proved.
    if trial.missing and verdict is not Verdict.NON_CONFORMANT:
        verdict, reason = Verdict.UNSUPPORTED, trial.missing
    elif trial.error and verdict is not Verdict.NON_CONFORMANT:
        verdict, reason = Verdict.INCONCLUSIVE, f"error: {trial.error}"
    kind = statement.kind if statement is not None and verdict is Verdict.NON_CONFORMANT else None
    held = statement.held if statement is not None else None
    timed = backend.gate().assurance == "timed"
    return bound_clause(backend, trial.case, clause, verdict, reason, counts, kind, held, timed=timed)


def _proved(trial: Trial, clause: str, statement: Statement) -> tuple[Verdict, str]:
    """A late event is a finding only once its proof is complete."""
    proof = trial.proofs.get(clause)
    if statement.repeat and failures(trial, clause) < STEADY:
        return Verdict.INCONCLUSIVE, "unsteady"
    if statement.late is None or proof is None:
        return statement.verdict, statement.reason
    if proof.complete:
        return Verdict.NON_CONFORMANT, statement.kind.value if statement.kind else ""
    return Verdict.INCONCLUSIVE, proof.reason


def _finding(trial: Trial, clause: ClauseResult) -> Finding | None:
    if clause.verdict is not Verdict.NON_CONFORMANT:
        return None
    statement = trial.strongest[clause.clause]
    text = CLAUSES[clause.clause].title
    proof = trial.proofs.get(clause.clause)
    if proof is not None and proof.complete:
        opinion = second_opinion.text(trial.opinion) if trial.opinion is not None else ""
        return proof.finding(text, opinion)
    return Finding(
        clause=clause.clause,
        text=f"{text}: {clause.reason}" if clause.reason else text,
        event=statement.event,
        late=clause.counts.failed,
        of=clause.counts.tried,
    )


def _control(trial: Trial, clause: str) -> Control | None:
    proof = trial.proofs.get(clause)
    return proof.control(proof.first.control) if proof is not None and proof.complete else None


def _observations(trial: Trial) -> tuple[Observation, ...]:
    kept = dict(trial.kept)
    if trial.slowest is not None:
        kept.setdefault(trial.slowest[1].number, (trial.slowest[1], "slowest"))
    return tuple(_observation(trial.program, repetition, why) for _, (repetition, why) in sorted(kept.items()))


def _observation(program: Program, repetition: Repetition, why: str) -> Observation:
    model, fed = Model(), 0
    points = []
    for look in repetition.looks:
        for number in range(fed, look.at):
            model.feed(program.steps[number], number)
        fed = look.at
        points.append(_point(model, look))
    return Observation(repetition=repetition.number, why=why, hold_s=repetition.hold, points=tuple(points))


def _point(model: Model, look: Look) -> HostPoint:
    return HostPoint(
        after_step=look.at,
        call=print_step(look.call.step) if look.call is not None else "",
        returned=look.call is None or look.call.outcome.value == "returned",
        events=tuple(
            EventSeen(
                event=event,
                owed=model.obligation(event).value,
                seen=seen.ever,
                polls=seen.polls,
                after_us=None if seen.after is None else round(seen.after * 1e6, 1),
            )
            for event, seen in look.events.items()
        ),
        buffers=dict(look.buffers),
        gates_ended=tuple(sorted(look.ended)),
        waited_us=round(look.seconds * 1e6, 1),
    )
