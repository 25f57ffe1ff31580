"""A run: every selected case on one device, its log, and the report with verdict and decision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from conformance.decision import decide, merge_clauses, sentence
from conformance.errors import UsageError
from conformance.header import now
from conformance.numbers import Depth
from conformance.price import priced
from conformance.private import private
from conformance.trial.record import merge
from reports import store
from reports.records import ClauseResult, Header, Report, Result, Verdict
from reports.render import markdown

if TYPE_CHECKING:
    from pathlib import Path

    from conformance.measure.found import Measurement
    from conformance.numbers import Numbers
    from conformance.runner import Runner
    from conformance.selection import Selection

#: The clause that the decision rests on.
CORE: Final = "EVT-INDEP-1"

#: Is told the number of cases done, and of how many.
Progress = Callable[[int, int, str], None]


def run_verdict(results: Sequence[Result], *, core_left_out: bool, causal: bool) -> tuple[Verdict, str]:
    """The run's verdict and why. Source: docs/rules.md 2, "Verdicts"."""
    must = [c for r in results for c in r.clauses if c.level == "MUST"]
    failed = sorted({c.clause for c in must if c.verdict is Verdict.NON_CONFORMANT})
    if failed:
        return Verdict.NON_CONFORMANT, ", ".join(failed)
    unclear = sorted({c.reason for c in must if c.verdict is Verdict.INCONCLUSIVE})
    if unclear:
        return Verdict.INCONCLUSIVE, ", ".join(unclear[:3])
    if not any(c.verdict is Verdict.CONFORMANT for c in must):
        return Verdict.INCONCLUSIVE, "nothing was judged"
    if not causal:
        return Verdict.INCONCLUSIVE, "timed-gate"
    core = merge_clauses(results).get("EVT-INDEP-1")
    if not core_left_out and core is not Verdict.CONFORMANT:
        return Verdict.INCONCLUSIVE, "EVT-INDEP-1 was not judged conformant"
    return Verdict.CONFORMANT, ""


def capabilities_of(results: Sequence[Result]) -> dict[str, str]:
    """What was measured rather than judged."""
    found: dict[str, str] = {}
    beside = 0
    asked = 0
    for result in results:
        if result.probe.startswith("independent-"):
            asked = max(asked, int(result.probe.rpartition("-")[2]))
            if all(c.held is not False for c in result.clauses):
                beside = max(beside, int(result.probe.rpartition("-")[2]))
    spelled = _late_by_spelling(results)
    if any(late for _, late in spelled.values()):
        shares = [f"{spelling} {late} of {judged}" for spelling, (judged, late) in spelled.items() if judged]
        found["late by the spelling of the wait"] = f"{', '.join(shares)} variants of publication"
    if asked:
        found["streams that may be blocked before an independent one stops"] = (
            f"more than {beside}" if beside == asked else str(beside)
        )
    return found


def _late_by_spelling(results: Sequence[Result]) -> dict[str, tuple[int, int]]:
    """(judged, late) of the publication probe by spelling: wait_stream's temporary event is destroyed while pending."""
    found = {}
    for spelling, temporary in (("wait_stream (a temporary event)", True), ("wait_event (an event kept alive)", False)):
        verdicts = [
            clause.verdict
            for result in results
            if result.probe == "publication" and ("-wait-stream-" in result.variant) is temporary
            for clause in result.clauses
            if clause.clause in (CORE, "EVT-INDEP-3")
        ]
        late = verdicts.count(Verdict.NON_CONFORMANT)
        found[spelling] = (late + verdicts.count(Verdict.CONFORMANT), late)
    return found


def cross_checked(results: Sequence[Result]) -> Sequence[Result]:
    """Where two kinds of gate lead to different core verdicts on a surface, the verdict depends on the gate: none."""
    judged = (Verdict.CONFORMANT, Verdict.NON_CONFORMANT)
    core: dict[tuple[str, str, str], Verdict] = {}
    for result in results:
        for clause in result.clauses:
            if clause.clause == CORE and clause.verdict in judged:
                core[result.surface, result.probe, result.variant] = clause.verdict
    doubtful = {
        surface
        for (surface, probe, variant), verdict in core.items()
        if probe == "second-gate" and core.get((surface, "publication", variant), verdict) is not verdict
    }

    def doubted(clause: ClauseResult) -> ClauseResult:
        if clause.clause != CORE or clause.verdict not in judged:
            return clause
        return msgspec.structs.replace(clause, verdict=Verdict.INCONCLUSIVE, reason="gate-dependent", kind=None)

    def checked(result: Result) -> Result:
        clauses = tuple(map(doubted, result.clauses))
        if result.surface not in doubtful or clauses == result.clauses:
            return result
        findings = tuple(finding for finding in result.findings if finding.clause != CORE)
        return msgspec.structs.replace(
            result, clauses=clauses, verdict=merge(clauses), reason="gate-dependent", findings=findings, form=None
        )

    return [checked(result) for result in results] if doubtful else results


def finish(
    header: Header,
    results: Sequence[Result],
    selection: Selection,
    numbers: Numbers,
    measured: Measurement | None = None,
) -> Report:
    """The report of a run that got to its end; ``measured`` is what its runner measured, if it was asked."""
    causal = header.gate.assurance == "causal"
    without_core = not any(p.name == "publication" for p, _ in selection.cases)
    left_out = without_core and (selection.by_probe or all(c.surface == "mixed" for _, c in selection.cases))
    results = cross_checked(results)
    verdict, reason = run_verdict(results, core_left_out=left_out, causal=causal)
    missing = selection.decisive - {(p.name, c.variant) for p, c in selection.cases}
    decision = decide(results, numbers.max_in_flight, causal=causal, missing=missing)
    ended = msgspec.structs.replace(header, ended=now(), complete=True)
    report = Report(
        header=ended,
        verdict=verdict,
        reason=reason,
        results=tuple(results),
        capabilities=capabilities_of(results) | (measured.values if measured is not None else {}),
        decision=priced(decision, header.backend, measured),
    )
    return private(report)


def check_writable(folder: Path, option: str) -> None:
    """Raise UsageError, before anything is run, if no files can be written to ``folder``."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".writable"
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        why = error.strerror or str(error)
        raise UsageError(f"{option} {folder} cannot be written: {why}; name a folder that can") from None


def run(
    runner: Runner,
    selection: Selection,
    numbers: Numbers,
    *,
    out: Path | None = None,
    progress: Progress | None = None,
    measure: bool = True,
) -> Report:
    """Run every case, log each as it ends, and write the report to ``out`` if that is given.

    ``measure``: the device's capabilities too, unless the run is quick or a part; they decide no verdict.
    """
    header = msgspec.structs.replace(runner.header, started=now())
    log = None
    if out is not None:
        store.set_aside(out)
        log = store.Log(out / store.LOG, header)
    results: list[Result] = []
    try:
        for number, (probe, case) in enumerate(selection.cases):
            if progress is not None:
                progress(number, len(selection.cases), f"{probe.name}[{case.variant}]")
            if log is not None:
                log.case(probe.name, case.variant)
            result = private(runner.run(probe, case))
            results.append(result)
            if log is not None:
                log.result(result)
        measured: Measurement | None = None
        if measure and header.depth != Depth.QUICK.value and not selection.restricted:
            if progress is not None:
                progress(len(selection.cases), len(selection.cases), "capabilities")
            measured = runner.measure()
        report = finish(header, results, selection, numbers, measured)
        if log is not None and out is not None:
            store.write_report(out, report, markdown(report, sentence(report.decision)))
            log.footer(report)
    finally:
        if log is not None:
            log.close()
    return report
