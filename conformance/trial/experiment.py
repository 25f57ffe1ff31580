"""Repeats one experiment and accounts for it, under the rules of every other case. docs/rules.md 2."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from conformance.backends.api import NO_GATE
from conformance.errors import DeviceError, Unsupported
from conformance.experiments import EXPERIMENTS
from conformance.experiments.bench import EXPIRED, Bench, Controls
from conformance.judgement.statements import Statement, stronger
from conformance.numbers import DEPTHS, Depth
from conformance.trial.case import AGAIN, IN_VAIN, KEPT, STEADY
from reports.records import Observation, Verdict

if TYPE_CHECKING:
    from conformance.backends.api import Backend
    from conformance.trial.state import RunState
    from probes.probe import Case, Probe

#: Repetitions of a standard run: an experiment's own number of them is meant beside these.
STANDARD: Final = DEPTHS[Depth.STANDARD].repeat


@dataclass(slots=True)
class ExperimentRun:
    """Everything that came of one experiment under one variant."""

    verdicts: dict[str, Counter[Verdict]] = field(default_factory=dict)
    strongest: dict[str, Statement] = field(default_factory=dict)
    controls: Controls = field(default_factory=Controls)
    kept: list[Observation] = field(default_factory=list)
    missing: str = ""  # the capability that the backend lacks, with the call
    error: str = ""  # what the device raised
    seconds: float = 0.0

    def verdict(self, clause: str) -> tuple[Verdict, str]:
        """The clause's verdict and its reason."""
        statement = self.strongest.get(clause)
        verdict, reason = Verdict.INCONCLUSIVE, "not-reached"
        if statement is not None:
            verdict, reason = statement.verdict, statement.reason
            if statement.repeat and self.verdicts[clause][Verdict.NON_CONFORMANT] < STEADY:
                verdict, reason = Verdict.INCONCLUSIVE, "unsteady"
        # What was proved before the device refused stays proved.
        if self.missing and verdict is not Verdict.NON_CONFORMANT:
            return Verdict.UNSUPPORTED, self.missing
        if self.error and verdict is not Verdict.NON_CONFORMANT:
            return Verdict.INCONCLUSIVE, f"error: {self.error}"
        return verdict, reason


def run_experiment(backend: Backend, probe: Probe, case: Case, state: RunState) -> ExperimentRun:
    """Run a variant to its verdict; never raises for an error of the device or its vendor."""
    began, run = time.perf_counter(), ExperimentRun()
    errors: tuple[type[Exception], ...] = (DeviceError, *backend.vendor_errors)
    try:
        for capability in case.needs:
            if (reason := backend.unsupported(capability)) is not None:
                raise Unsupported(capability, reason)
        gate = backend.gate()
        if gate.assurance == "causal":
            _repeat(backend, case, state, run)
        elif gate.assurance != "timed":
            raise DeviceError(NO_GATE)
    except Unsupported as error:
        # A capability is missing from the first repetition on, or it is no lack of one.
        run.missing, run.error = ("", str(error)) if run.verdicts else (str(error), "")
    except errors as error:
        run.error = " ".join(f"{type(error).__name__}: {error}".split())
    run.seconds = time.perf_counter() - began
    return run


def _repeat(backend: Backend, case: Case, state: RunState, run: ExperimentRun) -> None:
    experiment = EXPERIMENTS[case.experiment]
    # Deeper runs repeat more in the same measure.
    wanted = max(1, min(state.numbers.repeat, experiment.most * max(1, state.numbers.repeat // STANDARD)))
    number = failing = vain = 0
    while number < wanted or (_unsteady(run) and number < wanted + 2 * STEADY):
        number += 1
        # A first look has the longest hold; what looks late is looked at with the others too.
        hold = state.holds[(failing - 1) % len(state.holds)]
        statements = _one(backend, case, state, run, number, hold)
        bad = any(s.verdict is Verdict.NON_CONFORMANT for s in statements.values())
        failing += bad
        for clause, statement in statements.items():
            run.verdicts.setdefault(clause, Counter())[statement.verdict] += 1
            known = run.strongest.get(clause)
            run.strongest[clause] = statement if known is None else stronger(known, statement)
        # What a device does not show waits in vain each time; on one that is known to be late, once is enough.
        vain += any(s.verdict is Verdict.INCONCLUSIVE and s.reason != EXPIRED for s in statements.values())
        if (
            failing >= STEADY
            or (failing and not _unsteady(run))
            or (not failing and vain >= (1 if state.proved else IN_VAIN))
        ):
            return


def _unsteady(run: ExperimentRun) -> bool:
    """Was something seen that rests on the host's clock, and not often enough yet?"""
    return any(s.repeat and run.verdicts[c][Verdict.NON_CONFORMANT] < STEADY for c, s in run.strongest.items())


def _one(
    backend: Backend, case: Case, state: RunState, run: ExperimentRun, number: int, hold: float
) -> dict[str, Statement]:
    """One repetition, done again where a gate ended by itself: clause -> the strongest statement."""
    found: dict[str, Statement] = {}
    for _ in range(AGAIN):
        bench = Bench(
            backend=backend,
            case=case,
            numbers=state.looking,
            hold=hold,
            number=number,
            controls=run.controls,
            late_device=state.live,
        )
        found = {}
        for statement in EXPERIMENTS[case.experiment].run(bench):
            known = found.get(statement.clause)
            found[statement.clause] = statement if known is None else stronger(known, statement)
        if not any(statement.reason == EXPIRED for statement in found.values()):
            break
    bad = any(s.verdict in (Verdict.NON_CONFORMANT, Verdict.INCONCLUSIVE) for s in found.values())
    if number == 1 or (bad and len(run.kept) <= KEPT):
        why = "failing" if bad else "first"
        run.kept.append(Observation(repetition=number, why=why, hold_s=hold, points=tuple(bench.points)))
    return found
