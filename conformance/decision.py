"""From measured pipelines to the decision on the ring, per number of steps in flight.

Pure: reads results, touches no device. Source: docs/rules.md 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from conformance.judgement.statements import CONCURRENCY, RANK
from reports.records import Decision, DepthDecision, Form, Outcome, Result, RingRow, Verdict

#: Findings after which neither "not needed" nor "enable" can be relied on.
UNSAFE: Final = ("EVT-SAFE-1", "EVT-SYNC-1", "EVT-WAIT-1", "STM-FIFO-1", "STM-WSTREAM-1", "MEM-VIS-1")

#: Findings that excuse a pipe's late control: the event is late whatever the next steps queue.
EXCUSE: Final = ("EVT-LIVE-1", "EVT-REC-1")


def merge_clauses(results: Iterable[Result]) -> dict[str, Verdict]:
    """Each clause's verdict over all results: the worst stands, and within one probe
    ``unsupported, concurrency`` outranks ``conformant``."""
    per_probe: dict[tuple[str, str], list[tuple[Verdict, str]]] = {}
    for result in results:
        for clause in result.clauses:
            per_probe.setdefault((clause.clause, result.probe), []).append((clause.verdict, clause.reason))
    merged: dict[str, Verdict] = {}
    for (clause_id, _), verdicts in per_probe.items():
        verdict = max((v for v, _ in verdicts), key=RANK.index)
        if verdict is Verdict.CONFORMANT and (Verdict.UNSUPPORTED, CONCURRENCY) in verdicts:
            verdict = Verdict.UNSUPPORTED
        merged[clause_id] = max(merged.get(clause_id, Verdict.UNSUPPORTED), verdict, key=RANK.index)
    return merged


def not_held(results: Iterable[Result]) -> set[str]:
    """The SHOULD clauses that were seen not to hold."""
    return {c.clause for r in results for c in r.clauses if c.held is False}


def decide(
    results: Sequence[Result],
    max_in_flight: int,
    *,
    causal: bool = True,
    missing: frozenset[tuple[str, str]] = frozenset(),
) -> Decision:
    """The decision for one to ``max_in_flight`` steps in flight; ``missing`` are decisive cases left out by name.

    What a mixture of two API families does is no property of the device, and changes no decision.
    """
    results = [result for result in results if result.surface != "mixed"]
    verdicts = merge_clauses(results)
    form = worst_form([result.form for result in results if result.form is not None])
    depths = tuple(_depth(n, results, verdicts, form, causal, missing) for n in range(1, max_in_flight + 1))
    needed = next((d.outcome for d in depths if d.in_flight == 2), Outcome.UNDECIDED)
    return Decision(needed=needed, form=form, per_in_flight=depths)


def worst_form(forms: Sequence[Form]) -> Form | None:
    """The form that most variants show; where they tie, the later publication."""
    order = list(Form)
    return max(set(forms), key=lambda form: (forms.count(form), order.index(form))) if forms else None


def _depth(
    n: int,
    results: Sequence[Result],
    verdicts: Mapping[str, Verdict],
    form: Form | None,
    causal: bool,
    missing: frozenset[tuple[str, str]],
) -> DepthDecision:
    excused = any(verdicts.get(clause) is Verdict.NON_CONFORMANT for clause in EXCUSE)
    rows = {k: _row(k, n, results, excused) for k in range(1, n + 1)}
    measured = tuple(row for row in rows.values() if row is not None)
    one, full = rows[1], rows[n]

    def decided(outcome: Outcome, reason: str, ring: int | None = None) -> DepthDecision:
        return DepthDecision(in_flight=n, outcome=outcome, ring=ring, reason=reason, rings=measured)

    if one is None or full is None:
        return decided(Outcome.UNDECIDED, "not-measured")
    if not causal:
        return decided(Outcome.UNDECIDED, "timed-gate")
    left_out = {probe for probe, _ in missing}
    if left_out & {"publication", f"ring-1-{n}", f"ring-{n}-{n}"}:
        return decided(Outcome.UNDECIDED, "restricted: decisive variants were left out")
    if one.late and full.late:
        return decided(Outcome.INEFFECTIVE, f"late with one copy stream, and late with {n}" + _theorem(rows, n))
    unsafe = [clause for clause in UNSAFE if verdicts.get(clause) is Verdict.NON_CONFORMANT]
    if unsafe:
        return decided(Outcome.UNDECIDED, f"unsafe: {', '.join(unsafe)}")
    if one.late is None or full.late is None:
        return decided(Outcome.UNDECIDED, one.reason if one.late is None else full.reason)
    if one.late:
        return decided(
            Outcome.ENABLE, f"late with one copy stream, in time with {n}" + _theorem(rows, n) + _without(n, results), n
        )
    core = verdicts.get("EVT-INDEP-1")
    if n >= 2 and core is not Verdict.CONFORMANT:
        return decided(Outcome.UNDECIDED, f"EVT-INDEP-1 is {core.value if core else 'not judged'}")
    if n >= 2 and verdicts.get("EVT-INDEP-3") is Verdict.NON_CONFORMANT:  # an engine waits by synchronize
        return decided(Outcome.UNDECIDED, "EVT-INDEP-3 is non-conformant")
    if n >= 2 and form is not None:  # proved of some event, whichever clause it failed
        return decided(Outcome.UNDECIDED, f"in time with one copy stream, and events are late ({form.value})")
    earlier = [m for m in range(1, n) if (row := _row(1, m, results, excused)) is not None and row.late]
    if earlier:  # a pipeline of n fills up and runs empty through every smaller number
        return decided(Outcome.UNDECIDED, f"in time with one copy stream, and late with {earlier[0]} in flight")
    return decided(Outcome.NOT_NEEDED, "in time with one copy stream" + _without(n, results))


def _without(n: int, results: Sequence[Result]) -> str:
    """The decisive variants that this backend does not have: the decision rests on the others, and says so."""
    lacking = {
        reason.partition(":")[0]
        for result in results
        if result.probe in (f"ring-1-{n}", f"ring-{n}-{n}") and result.ring is None
        for reason in [result.reason]
        if not reason.startswith("ring ")  # was late already in another variant
    }
    return f", over the variants that this backend has (not: {', '.join(sorted(lacking))})" if lacking else ""


def _theorem(rows: Mapping[int, RingRow | None], n: int) -> str:
    """A shorter ring that helps contradicts the ring theorem: shown, and changes nothing."""
    helped = [k for k in range(2, n) if (row := rows[k]) is not None and row.late is False]
    return f"; inconclusive, theorem: a ring of {helped[0]} was in time too" if helped else ""


def _row(k: int, n: int, results: Sequence[Result], excused: bool) -> RingRow | None:
    """What ring k did with n in flight, over the decisive variants; None if it was not measured."""
    measures = [r.ring for r in results if r.ring and (r.ring.ring, r.ring.in_flight) == (k, n) and r.ring.decisive]
    if not measures:
        return None
    late = [m for m in measures if m.outcome == "late" or (excused and m.outcome == "control-late")]
    if late:
        lags = [m.lag_steps for m in late]
        worst = None if any(lag is None for lag in lags) else max(lag for lag in lags if lag is not None)
        return RingRow(ring=k, late=True, worst_lag_steps=worst)
    unclear = [m.outcome for m in measures if m.outcome != "timely"]
    if unclear:
        return RingRow(ring=k, late=None, worst_lag_steps=None, reason=unclear[0])
    return RingRow(ring=k, late=False, worst_lag_steps=0)


def sentence(decision: Decision) -> str:
    """The decision in one sentence."""
    by_outcome: dict[Outcome, list[DepthDecision]] = {}
    for depth in decision.per_in_flight:
        if depth.in_flight >= 2:
            by_outcome.setdefault(depth.outcome, []).append(depth)

    def depths(outcome: Outcome) -> str:
        return ", ".join(str(d.in_flight) for d in by_outcome[outcome])

    parts = []
    if Outcome.NOT_NEEDED in by_outcome:
        parts.append(f"the copy-stream ring is not needed for {depths(Outcome.NOT_NEEDED)} in flight")
    if Outcome.ENABLE in by_outcome:
        parts.append(
            f"enable the copy-stream ring, as long as the steps in flight ({depths(Outcome.ENABLE)}):"
            " events are late on one copy stream and in time on that many"
        )
    if Outcome.INEFFECTIVE in by_outcome:
        parts.append(f"a ring does not help for {depths(Outcome.INEFFECTIVE)} in flight: events stay late")
    if Outcome.UNDECIDED in by_outcome:
        why = by_outcome[Outcome.UNDECIDED][0].reason
        parts.append(f"undecided for {depths(Outcome.UNDECIDED)} in flight ({why}); a workaround that is on stays on")
    text = "; ".join(parts) or "nothing was measured"
    return text[0].upper() + text[1:] + "."
