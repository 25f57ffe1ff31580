"""Judges one program by the ordinary rules: execution, controls and proofs of `conformance.trial`.

Only what this calls non-conformant is a finding. Source: docs/rules.md 2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from conformance.numbers import DEPTHS, Depth, Numbers
from conformance.trial.case import run_case
from conformance.trial.result import result_of
from conformance.trial.state import RunState
from probes.notation import print_program
from probes.probe import Case, Probe
from probes.program import Program, SyncDevice, SyncStream
from reports.records import Verdict

if TYPE_CHECKING:
    from conformance.backends.api import Backend
    from conformance.fuzz.recipe import Choice
    from reports.records import Result


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What the ordinary rules say of a program."""

    failed: tuple[str, ...]  # clauses with a finding
    unclear: tuple[str, ...]  # clauses that are inconclusive, with the reason
    error: str  # what the backend raised
    result: Result


def numbers_for(backend: Backend) -> Numbers:
    """Once on a virtual clock; three times in real time, with the holds of a quick run."""
    return Numbers(repeat=1) if backend.clock.virtual else replace(DEPTHS[Depth.QUICK], quick=False)


def judge_program(backend: Backend, program: Program, choice: Choice, numbers: Numbers) -> Judged:
    """Run and judge a program, its controls beside it."""
    case = Case(
        variant=f"{choice.observe}-{choice.flags}",
        text=print_program(with_nudges(program)),
        observe=choice.observe,
        flags=choice.flags,
    )
    subject = next(iter(program.events), "")
    probe = Probe(
        name="fuzz", family="fuzz", question="", clauses=(), faults=(), control="", cases=(case,), subject=subject
    )
    trial = run_case(backend, probe, case, RunState(numbers))
    result = result_of(backend, trial)
    return Judged(
        failed=tuple(sorted(c.clause for c in result.clauses if c.verdict is Verdict.NON_CONFORMANT)),
        unclear=tuple(sorted(f"{c.clause} {c.reason}" for c in result.clauses if c.verdict is Verdict.INCONCLUSIVE)),
        error=trial.error or trial.missing,
        result=result,
    )


def with_nudges(program: Program) -> Program:
    """The program with a synchronize of each stream and of the device at its end: all that could publish an event."""
    ends: list[SyncStream | SyncDevice] = [SyncStream(stream=stream) for stream in program.streams]
    return Program((*program.steps, *ends, SyncDevice()))
