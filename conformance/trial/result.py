"""Turns what came of a case into the record that is kept, under the profile that binds the backend."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final, Protocol

from conformance.backends.api import Backend, Opinion
from conformance.execution import Look
from conformance.judgement.statements import CONCURRENCY, CONTRADICTIONS, RANK, Statement
from conformance.model import Model
from conformance.spec import CLAUSES, Basis, Level
from conformance.trial import second_opinion
from conformance.trial.case import STEADY, Repetition, Trial, failures
from conformance.trial.experiment import ExperimentRun
from conformance.trial.pipeline import PipeRun
from probes.notation import digest, lane_of, print_program, print_step
from probes.probe import Case, Probe
from probes.program import Nop, Pause, Program
from reports.latency import histogram
from reports.records import (
    ClauseResult,
    Control,
    Counts,
    EventSeen,
    Finding,
    HostPoint,
    Kind,
    Mechanism,
    Observation,
    Operation,
    Result,
    RingMeasure,
    Verdict,
)

#: Verdicts that say something about a clause.
JUDGED: Final = (Verdict.CONFORMANT, Verdict.NON_CONFORMANT)


class Bound(Protocol):
    """What a record must know of a backend: which profile binds it, and through which surface it was driven."""

    @property
    def profile(self) -> str:
        """The profile."""
        ...

    @property
    def surface(self) -> str:
        """vendor, generic or mixed."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundTo:
    """A `Bound` where there is no backend left to ask."""

    profile: str
    surface: str


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
    return _record(
        backend,
        trial.probe,
        trial.case,
        clauses=tuple(clauses.values()),
        findings=tuple(findings),
        control=control,
        form=trial.form,
        mechanism=trial.mechanism,
        counts=_counts(sum(trial.verdicts.values(), Counter()) if trial.verdicts else Counter()),
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
        clauses.append(_bound(backend, case, clause, verdict, reason, counts, timed=timed))

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
    return _record(
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
        _bound(backend, case, c, *run.verdict(c), _counts(run.verdicts.get(c, Counter())), timed=timed)
        for c in probe.expected(case)
    )
    controls = run.controls
    slowest = round(controls.slowest * 1e6, 1) if controls.on_time else None
    control = Control(
        name=probe.control, program="", on_time=controls.on_time, tried=controls.tried, slowest_us=slowest
    )
    return _record(
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
    result = _bound(backend, case, clause, Verdict.UNSUPPORTED, reason, Counts())
    return _record(backend, probe, case, clauses=(result,), reason=reason, seconds=seconds)


def lost_result(backend: Bound, probe: Probe, case: Case, reason: str, seconds: float = 0.0) -> Result:
    """The record of a case that was begun and gave no answer: everything that was expected of it is inconclusive."""
    lost = Counts(tried=1, unclear=1)
    clauses = [_bound(backend, case, c, Verdict.INCONCLUSIVE, reason, lost) for c in probe.expected(case)]
    pipe = probe.pipes.get(case.variant)
    ring = None
    if pipe is not None:
        ring = RingMeasure(
            ring=pipe.ring, in_flight=pipe.in_flight, outcome=reason, steps=pipe.steps, decisive=case.decisive
        )
    return _record(backend, probe, case, clauses=tuple(clauses), counts=lost, ring=ring, reason=reason, seconds=seconds)


def _record(
    backend: Bound,
    probe: Probe,
    case: Case,
    *,
    clauses: tuple[ClauseResult, ...],
    findings: tuple[Finding, ...] = (),
    control: Control | None = None,
    form: object = None,
    mechanism: Mechanism | None = None,
    counts: Counts | None = None,
    observations: tuple[Observation, ...] = (),
    latency: dict[str, int] | None = None,
    lag: dict[str, int] | None = None,
    window: float = 0.0,
    seconds: float = 0.0,
    ring: RingMeasure | None = None,
    reason: str = "",
    verdict: Verdict | None = None,
    opinion: Opinion | None = None,
) -> Result:
    program = case.program
    # What was not asked for counts where it says that something is wrong; it never makes a pass.
    asked = set(probe.expected(case))
    unwelcome = (Verdict.NON_CONFORMANT, Verdict.INCONCLUSIVE)
    merged = merge(tuple(c for c in clauses if c.clause in asked or c.verdict in unwelcome))
    failing = [c for c in clauses if c.verdict is Verdict.NON_CONFORMANT]
    strongest = next(iter(failing or [c for c in clauses if c.verdict is merged]), None)
    return Result(
        probe=probe.name,
        variant=case.variant,
        surface=backend.surface,
        subject="wrapper" if backend.surface == "mixed" else second_opinion.subject(opinion),
        clauses=clauses,
        level=Level.MUST.value if any(c.level == Level.MUST.value for c in clauses) else Level.SHOULD.value,
        basis=strongest.basis if strongest is not None else "",
        verdict=verdict or merged,
        reason=reason or (strongest.reason if strongest is not None else ""),
        form=form,  # type: ignore[arg-type]  # a Form or None
        kind=next((c.kind for c in failing if c.kind is not None), None),
        counts=counts or (clauses[0].counts if clauses else Counts()),
        findings=findings,
        program=print_program(program),
        digest=digest(program),
        lanes=lanes_of(program),
        observations=observations,
        histogram_us=latency or {},
        lag_histogram_us=lag or {},
        control=control,
        window_us=round(window * 1e6, 1),
        duration_s=round(seconds, 4),
        ring=ring,
        experiment=case.experiment,
        mechanism=mechanism,
    )


def merge(clauses: tuple[ClauseResult, ...]) -> Verdict:
    """The verdict over several clauses or variants; nothing at all is unsupported."""
    if not clauses:
        return Verdict.UNSUPPORTED
    ordering = any(c.verdict is Verdict.UNSUPPORTED and c.reason == CONCURRENCY for c in clauses)
    strongest = max((c.verdict for c in clauses), key=RANK.index)
    if ordering and strongest is Verdict.CONFORMANT and len({c.clause for c in clauses}) == 1:
        return Verdict.UNSUPPORTED
    return strongest


def _counts(verdicts: Counter[Verdict]) -> Counts:
    return Counts(
        tried=sum(verdicts.values()),
        held=verdicts[Verdict.CONFORMANT] + verdicts[Verdict.OBSERVED],
        failed=verdicts[Verdict.NON_CONFORMANT],
        unclear=verdicts[Verdict.INCONCLUSIVE],
    )


def _clause(backend: Backend, trial: Trial, clause: str) -> ClauseResult:
    statement = trial.strongest.get(clause)
    verdict, reason, counts = Verdict.INCONCLUSIVE, "not-reached", Counts()
    if statement is not None:
        counts = _counts(trial.verdicts[clause])
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
    return _bound(backend, trial.case, clause, verdict, reason, counts, kind, held, timed=timed)


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


def _bound(
    backend: Bound,
    case: Case,
    clause: str,
    verdict: Verdict,
    reason: str,
    counts: Counts,
    kind: Kind | None = None,
    held: bool | None = None,
    *,
    timed: bool = False,
) -> ClauseResult:
    """The clause's level and basis under the backend's profile; only a MUST keeps a verdict that decides."""
    binding = CLAUSES[clause].binding(backend.profile)
    level, basis = binding.level, binding.basis
    if level is Level.NONE:
        verdict, reason, kind, held = Verdict.UNSUPPORTED, f"profile {backend.profile}: {binding.note}", None, None
    elif case.observe in binding.exempt:
        verdict, kind = Verdict.UNSUPPORTED, None
        reason = f"profile {backend.profile}: {binding.note or f'nothing is promised to a {case.observe}'}"
    elif timed and verdict is not Verdict.UNSUPPORTED and clause not in CONTRADICTIONS:
        verdict, reason, kind = Verdict.INCONCLUSIVE, "timed-gate", None
    elif level is Level.SHOULD and verdict in JUDGED:
        held, verdict = verdict is Verdict.CONFORMANT, Verdict.OBSERVED
    return ClauseResult(
        clause=clause,
        level=level.value,
        basis=(basis if level is not Level.NONE else Basis.DOCUMENT).value,
        verdict=verdict,
        reason=reason,
        held=held if verdict is Verdict.OBSERVED else None,
        kind=kind,
        counts=counts,
    )


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


def lanes_of(program: Program) -> tuple[Operation, ...]:
    """The program's operations as data."""
    lanes = []
    for number, step in enumerate(program.steps):
        if isinstance(step, (Nop, Pause)):
            continue
        kind, *operands = print_step(step).split()
        lanes.append(Operation(lane=lane_of(step), kind=kind, operands=tuple(operands), step=number))
    return tuple(lanes)


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
