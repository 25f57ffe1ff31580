"""What several test files share: the command line in this process and in another, and results made by hand."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

from conformance import fingerprint
from conformance.cli import main
from reports.records import (
    SCHEMA_VERSION,
    ClauseResult,
    Counts,
    Decision,
    DecisionFile,
    DepthDecision,
    Device,
    Fingerprint,
    Form,
    Gate,
    Header,
    Outcome,
    Result,
    RingMeasure,
    RingRow,
    Verdict,
)

ROOT = Path(__file__).parents[1]


class Done(NamedTuple):
    """What a command left."""

    code: int
    out: str
    err: str


def cli(*arguments: object) -> Done:
    """The command line in this process."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main([str(argument) for argument in arguments])
    return Done(code, out.getvalue(), err.getvalue())


def environment(*path: Path, **extra: str) -> dict[str, str]:
    """This process's variables, with the checkout (behind ``path``) importable and no pytest worker's own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV"))}
    return kept | {"PYTHONPATH": os.pathsep.join(map(str, (*path, ROOT)))} | extra


def python(*arguments: object, cwd: Path, env: dict[str, str] | None = None) -> Done:
    """This interpreter with these arguments, in another process."""
    ended = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env=environment() if env is None else env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return Done(ended.returncode, ended.stdout, ended.stderr)


def is_one_line(text: str) -> bool:
    """One line that says something, and no traceback."""
    return len(text.splitlines()) == 1 and bool(text.strip()) and "Traceback" not in text


def clause(name: str, verdict: Verdict = Verdict.CONFORMANT, reason: str = "") -> ClauseResult:
    """One clause of a result."""
    return ClauseResult(clause=name, level="MUST", basis="document", verdict=verdict, reason=reason)


def result(
    *clauses: ClauseResult, probe: str = "publication", ring: RingMeasure | None = None, form: Form | None = None
) -> Result:
    """A result as a run would record it; only what a decision reads is filled."""
    return Result(
        probe=probe,
        variant="v",
        surface="vendor",
        subject="runtime",
        clauses=clauses,
        level="MUST",
        basis="document",
        verdict=max((c.verdict for c in clauses), default=Verdict.UNSUPPORTED, key=list(Verdict).index),
        reason="",
        form=form,
        kind=None,
        counts=Counts(),
        findings=(),
        program="",
        digest="",
        lanes=(),
        observations=(),
        histogram_us={},
        control=None,
        window_us=0.0,
        duration_s=0.0,
        ring=ring,
    )


def core(verdict: Verdict = Verdict.CONFORMANT) -> Result:
    """What came of the core question."""
    return result(clause("EVT-INDEP-1", verdict))


def pipe(
    ring: int, in_flight: int, outcome: str = "timely", lag: int | None = None, *, decisive: bool = True
) -> Result:
    """What one pipeline measured."""
    measure = RingMeasure(ring=ring, in_flight=in_flight, outcome=outcome, steps=24, lag_steps=lag, decisive=decisive)
    return result(clause("EVT-SAFE-1"), probe=f"ring-{ring}-{in_flight}", ring=measure)


def measured_rings(outcome: Outcome, n: int) -> tuple[RingRow, ...]:
    """What a run measured that came to this outcome for n in flight; an undecided one measured nothing."""
    late: dict[Outcome, dict[int, bool]] = {
        Outcome.NOT_NEEDED: {1: False},
        Outcome.ENABLE: {1: True, n: False},
        Outcome.INEFFECTIVE: {1: True, n: True},
    }
    rows = late.get(outcome, {})
    return tuple(RingRow(ring=k, late=is_late, worst_lag_steps=int(is_late)) for k, is_late in rows.items())


def decision_file(
    outcome: Outcome = Outcome.ENABLE,
    *,
    simulated: bool = False,
    fault: tuple[str, ...] = (),
    injected: tuple[str, ...] = (),
    parts: dict[str, str] | None = None,
    surfaces: tuple[str, ...] = ("vendor",),
) -> DecisionFile:
    """A decision for one to four in flight, of this machine unless ``parts`` says otherwise."""
    if parts is None:
        parts = fingerprint.read_here("reference")
    header = Header(
        schema_version=SCHEMA_VERSION,
        suite_version="0",
        started="2026-01-01T00:00:00Z",
        ended="2026-01-01T00:00:01Z",
        complete=True,
        backend="reference",
        surfaces=surfaces,
        device=Device(name="reference device"),
        software={},
        environment={},
        gate=Gate(kind="virtual", assurance="causal"),
        simulated=simulated,
        fault=fault,
        injected=injected,
        fingerprint=Fingerprint(digest=fingerprint.digest(parts), parts=parts),
        depth="standard",
    )
    depths = []
    for n in range(1, 5):
        # A ring of one is no other than one stream: it cannot be late and in time.
        of = Outcome.NOT_NEEDED if outcome is Outcome.ENABLE and n == 1 else outcome
        ring = n if of is Outcome.ENABLE else None
        rings = measured_rings(of, n)
        depths.append(DepthDecision(in_flight=n, outcome=of, ring=ring, reason="measured", rings=rings))
    decision = Decision(needed=outcome, form=None, per_in_flight=tuple(depths))
    return DecisionFile(header=header, verdict=Verdict.CONFORMANT, decision=decision, report_sha256="")
