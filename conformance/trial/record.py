"""What every record is made of: the clauses under the profile that binds the backend, and the verdict over them.

Which clauses, findings and controls a case has is for `conformance.trial.result` to say; no trial is read here.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final, Protocol

from conformance.backends.api import Opinion
from conformance.judgement.statements import CONCURRENCY, CONTRADICTIONS, RANK
from conformance.spec import CLAUSES, Basis, Level
from conformance.trial import second_opinion
from probes.notation import digest, lane_of, print_program, print_step
from probes.probe import Case, Probe
from probes.program import Nop, Pause, Program
from reports.records import (
    ClauseResult,
    Control,
    Counts,
    Finding,
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


def record(
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


def counts_of(verdicts: Counter[Verdict]) -> Counts:
    return Counts(
        tried=sum(verdicts.values()),
        held=verdicts[Verdict.CONFORMANT] + verdicts[Verdict.OBSERVED],
        failed=verdicts[Verdict.NON_CONFORMANT],
        unclear=verdicts[Verdict.INCONCLUSIVE],
    )


def bound_clause(
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


def lanes_of(program: Program) -> tuple[Operation, ...]:
    """The program's operations as data."""
    lanes = []
    for number, step in enumerate(program.steps):
        if isinstance(step, (Nop, Pause)):
            continue
        kind, *operands = print_step(step).split()
        lanes.append(Operation(lane=lane_of(step), kind=kind, operands=tuple(operands), step=number))
    return tuple(lanes)
