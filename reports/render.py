"""Renderings of a report: a summary for a terminal, and Markdown. They read records, never program text."""

from __future__ import annotations

import itertools
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from tabulate import tabulate

from reports.latency import latency_table
from reports.records import ClauseResult, Decision, Header, Mechanism, Operation, Report, Result, Verdict

#: How the terminal shows each verdict; colour codes apply only where colour is wanted.
_COLOURS: Final = {
    Verdict.CONFORMANT: "32",
    Verdict.NON_CONFORMANT: "31;1",
    Verdict.INCONCLUSIVE: "33",
    Verdict.UNSUPPORTED: "2",
    Verdict.OBSERVED: "36",
}
#: How `conformance.measure` names a row of the parked streams: `parked streams: copy, then kernel`.
PARKED: Final = "parked streams: "
ROW: Final = ", then "
_JUDGED: Final = (Verdict.CONFORMANT, Verdict.NON_CONFORMANT)


def paint(text: str, verdict: Verdict, colour: bool) -> str:
    """``text`` in the verdict's colour."""
    return f"\033[{_COLOURS[verdict]}m{text}\033[0m" if colour else text


def judged(results: Iterable[Result]) -> tuple[int, int, Counter[tuple[str, str]]]:
    """How many (clause, variant) pairs of a MUST were judged, of how many, and why the others were not."""
    done, left = 0, Counter[tuple[str, str]]()
    for result in results:
        for clause in result.clauses:
            if clause.level == "SHOULD":
                continue
            if clause.verdict in _JUDGED:
                done += 1
            else:
                left[clause.verdict.value, clause.reason] += 1
    return done, done + sum(left.values()), left


def family_of(result: Result) -> str:
    """Rings are shown as one row, each other probe as its own."""
    return "ring" if result.ring is not None or result.probe.startswith("ring-") else result.probe


def verdict_table(results: Sequence[Result]) -> list[tuple[str, Counter[Verdict]]]:
    """For each probe how many variants came out how, in the order of the run."""
    table: dict[str, Counter[Verdict]] = {}
    for result in results:
        table.setdefault(family_of(result), Counter())[result.verdict] += 1
    return list(table.items())


def decision_rows(decision: Decision) -> list[list[str]]:
    """For each depth: outcome, ring, and what each ring length did."""
    rows = []
    for depth in decision.per_in_flight:
        shown = []
        for ring in depth.rings:
            lag = "never" if ring.worst_lag_steps is None else f"{ring.worst_lag_steps} late"
            shown.append(f"{ring.ring}: {'in time' if ring.late is False else lag if ring.late else ring.reason}")
        rows.append([str(depth.in_flight), depth.outcome.value, str(depth.ring or "-"), ", ".join(shown)])
    return rows


def price_lines(decision: Decision) -> list[str]:
    """What the ring costs others, a line each; a line for each depth whose ring would hold them up. None if unknown."""
    price = decision.price
    if price is None:
        return []
    lines = []
    parks = [row for row in price.parked if row.behind == "D2H copy"]
    shown = [
        f"{row.work} "
        + (f"from {row.streams} on" if row.streams is not None else row.note or f"never (up to {row.tried})")
        for row in parks
    ]
    if shown:
        what = "streams parked in a wait with a copy behind it, until unrelated work stands still"
        lines.append(f"price: {what}: {', '.join(shown)}")
    told: list[tuple[str, tuple[tuple[int, int], ...]]] = []
    for coupling in price.couplings:
        same = (coupling.what, tuple((one, other) for one, other in coupling.pairs))
        if coupling.pairs and same not in told:  # other streams beside them changed nothing
            told.append(same)
            pairs = ", ".join(f"{i}-{j}" for i, j in coupling.pairs[:8])
            more = f" and {len(coupling.pairs) - 8} more" if len(coupling.pairs) > 8 else ""
            beside = f", beside {coupling.beside} others" if coupling.beside else ""
            lines.append(f"coupled streams ({coupling.what}{beside}): {pairs}{more} of {coupling.asked} pairs")
    lines += [f"warning ({d.in_flight} in flight): {d.warning}" for d in decision.per_in_flight if d.warning]
    return lines


def findings(results: Iterable[Result]) -> list[tuple[str, str, str]]:
    """(clause, how many variants of how many, what) for each clause that failed, once."""
    failed: dict[str, list[tuple[Result, ClauseResult]]] = {}
    tried: Counter[str] = Counter()
    for result in results:
        for clause in result.clauses:
            tried[clause.clause] += clause.verdict in _JUDGED
            if clause.verdict is Verdict.NON_CONFORMANT:
                failed.setdefault(clause.clause, []).append((result, clause))
    rows = []
    for clause_id, entries in failed.items():
        result, clause = entries[0]
        texts = [f.text for f in result.findings if f.clause == clause_id]
        published = sorted({f.published_by for r, _ in entries for f in r.findings if f.clause == clause_id} - {""})
        forms = sorted({r.form.value for r, _ in entries if r.form is not None})
        mechanisms = sorted({r.mechanism.name.value for r, _ in entries if r.mechanism is not None})
        kinds = sorted({c.kind.value for _, c in entries if c.kind is not None})
        detail = "; ".join(
            [
                *texts[:1],
                *(f"{', '.join(kinds)} is late" for _ in kinds[:1]),
                *(f"form {', '.join(forms)}" for _ in forms[:1]),
                *(f"mechanism {', '.join(mechanisms)}" for _ in mechanisms[:1]),
            ]
        )
        if published and not forms:
            detail += f"; seen after {', '.join(published[:3])}"
        where = f"{len(entries)} of {tried[clause_id]} variants"
        if others := sorted({f"surface {r.surface}, subject {r.subject}" for r, _ in entries if r.surface != "vendor"}):
            where += "; " + "; ".join(others)
        rows.append((clause_id, where, detail))
    return rows


def summary(report: Report, sentence: str, where: str, *, colour: bool = False, limit: int = 6) -> str:
    """What a run found, on one screen."""
    header, results = report.header, report.results
    lines = []
    name = header.backend + (f" with {' + '.join(header.fault)}" if header.fault else "")
    facts = (header.device.name, header.device.capability, header.device.driver)
    device = " ".join(part for part in facts if part not in ("", "none"))
    gate = f"gate {header.gate.kind} ({header.gate.assurance}"
    gate += f", releases in {header.gate.release_us:.0f} us)" if header.gate.release_us is not None else ")"
    simulated = "; simulated" if header.simulated else ""
    lines.append(f"{name}: {device}; {gate}{simulated}")
    lines += no_gate(header)
    missed = {family_of(r) for r in results if any(c.held is False for c in r.clauses)}
    held = {family_of(r) for r in results if any(c.held for c in r.clauses)} - missed
    lines += _columns(verdict_table(results), held, colour)
    done, total, left = judged(results)
    lines.append(f"judged {done} of {total} (clause, variant) pairs" + (", left out:" if left else ""))
    for (verdict, reason), count in left.most_common(limit):
        lines.append(f"  {count:4d} {verdict}: {_short(reason)}")
    if len(left) > limit:
        lines.append(f"  ... and {len(left) - limit} more reasons, all in the report")
    for clause, share, detail in findings(results):
        lines.append(paint(f"{clause} fails ({share}): {detail}", Verdict.NON_CONFORMANT, colour))
    lines.append(
        "verdict: "
        + paint(report.verdict.value, report.verdict, colour)
        + (f" ({report.reason})" if report.reason else "")
    )
    lines.append("decision: " + sentence)
    lines += price_lines(report.decision)
    lines.append(f"report: {where}")
    return "\n".join(lines)


def no_gate(header: Header) -> list[str]:
    """Why each kind of gate failed, a line each, where none works: the cases only point here."""
    tried = header.gate.tried if header.gate.kind == "none" else ()
    return [f"  gates tried: {each.kind}: {_short(each.result, 160)}" for each in tried]


def _short(text: str, width: int = 96) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


def _columns(table: Sequence[tuple[str, Counter[Verdict]]], held: set[str], colour: bool) -> list[str]:
    """Probes that came out well share lines; one with a finding, or without a clear answer, has its own."""
    groups: dict[str, list[str]] = {
        "conformant": [],
        "conformant where supported": [],
        "observed, and held": [],
        "unsupported": [],
    }
    rows = []
    for probe, counts in table:
        shown = {verdict for verdict in counts if counts[verdict]}
        if shown <= {Verdict.CONFORMANT}:
            groups["conformant"].append(probe)
        elif shown == {Verdict.UNSUPPORTED}:
            groups["unsupported"].append(probe)
        elif shown <= {Verdict.OBSERVED, Verdict.UNSUPPORTED} and probe in held:
            groups["observed, and held"].append(probe)
        elif shown == {Verdict.CONFORMANT, Verdict.UNSUPPORTED}:
            groups["conformant where supported"].append(probe)
        else:
            text = ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in Verdict if counts[verdict])
            worst = next(
                v for v in (Verdict.NON_CONFORMANT, Verdict.INCONCLUSIVE, Verdict.OBSERVED, *Verdict) if counts[v]
            )
            rows.append(f"  {probe:19s} {paint(text, worst, colour)}")
    lines = []
    for label, probes in groups.items():
        if probes:
            lines += textwrap.wrap(
                f"{label}: {', '.join(_runs(probes))}",
                116,
                initial_indent="  ",
                subsequent_indent="    ",
                break_on_hyphens=False,
            )
    return lines + rows


def _runs(names: Sequence[str]) -> list[str]:
    """Numbered names in a row as one: independent-1 to -7."""
    shown: list[str] = []
    for base, group in itertools.groupby(names, lambda name: name.rstrip("0123456789")):
        members = list(group)
        shown.append(members[0] if len(members) == 1 else f"{members[0]} to {members[-1].removeprefix(base)}")
    return shown


def timeline(result: Result) -> str:
    """The first failing observation, else the first kept, host point by host point."""
    chosen = next((o for o in result.observations if o.why == "failing"), None)
    chosen = chosen or next(iter(result.observations), None)
    lines = [_lanes(result.lanes), ""]
    if chosen is not None:
        rows = []
        for point in chosen.points:
            call = point.call or "(before)"
            events = ", ".join(
                f"{e.event}:{e.owed}{'' if e.seen == (e.owed != 'PEND') else ' SEEN' if e.seen else ' not seen'}"
                for e in point.events
            )
            tokens = ", ".join(f"{k}={v}" for k, v in point.buffers.items())
            returned = "" if point.returned else " did not return"
            rows.append([call + returned, events, tokens, ", ".join(point.gates_ended), f"{point.waited_us:.0f}"])
        lines.append(
            tabulate(rows, ["after", "events (owed, and if other, what was seen)", "host buffers", "ended gates", "us"])
        )
    for finding in result.findings:
        late = f", {finding.late} of {finding.of} tries" if finding.of else ""
        cause = f", seen after {finding.published_by}" if finding.published_by else ""
        holds = f", holds {', '.join(f'{h:g}' for h in finding.holds_s)} s" if finding.holds_s else ""
        lines.append(f"{finding.clause}: {finding.text} (event {finding.event or '-'}{late}{cause}{holds})")
        if finding.second_opinion:
            lines.append(f"second opinion, subject {result.subject}: {finding.second_opinion}")
    if result.control is not None:
        lines.append(f"control '{result.control.name}', on time {result.control.on_time} of {result.control.tried}:")
        lines += ["    " + line for line in result.control.program.splitlines()]
    if result.mechanism is not None:
        lines += ["", *ladder(result.mechanism)]
    return "\n".join(lines)


def ladder(mechanism: Mechanism) -> list[str]:
    """The nudges that a late event was given, and the class that they show."""
    by = mechanism.by or "nothing"
    lines = [f"mechanism: {mechanism.name.value} (event {mechanism.event}, seen after: {by}): {mechanism.text}"]
    if mechanism.driver is not None:
        lines.append(f"the driver, asked while it was late: {'complete' if mechanism.driver else 'not complete'}")
    rows = [
        [
            step.what if step.nudge == "token" or step.what == step.nudge else f"{step.nudge}: {step.what}",
            step.note or ("seen" if step.seen else "-"),
            {True: "there", False: "missing", None: "none"}[step.token],
            f"{step.at_us:.0f}",
            f"{step.longest_call_us:.0f}",
        ]
        for step in mechanism.steps
    ]
    return [*lines, tabulate(rows, ["nudge", "event", "token", "us since owed", "longest call, us"])]


def _lanes(lanes: Sequence[Operation]) -> str:
    runs: list[tuple[str, list[str]]] = []
    for op in lanes:
        text = " ".join((op.kind, *op.operands))
        if runs and runs[-1][0] == op.lane:
            runs[-1][1].append(text)
        else:
            runs.append((op.lane, [text]))
    return "\n".join(f"    {lane}: {', '.join(texts)}" for lane, texts in runs)


def markdown(report: Report, sentence: str) -> str:
    """The report for people, as Markdown."""
    header, results = report.header, report.results
    name = header.backend + (f" with {' + '.join(header.fault)}" if header.fault else "")
    out = [f"# Stream and event conformance: {name}", ""]
    if header.simulated:
        out += ["**Simulated**: no hardware was used.", ""]
    facts = [
        ("device", " ".join(p for p in (header.device.name, header.device.capability, header.device.uuid) if p)),
        *([("second device", header.device.second)] if header.device.second else []),
        *([("devices", ", ".join(f"{d.index}: {d.uuid or d.name}" for d in header.devices))] if header.devices else []),
        ("driver", header.device.driver),
        ("runtime", header.device.runtime),
        ("software", ", ".join(f"{k} {v}" for k, v in header.software.items()) or "-"),
        (
            "gate",
            f"{header.gate.kind}, {header.gate.assurance}"
            + (f", releases in {header.gate.release_us:.1f} us" if header.gate.release_us is not None else "")
            + (f", {header.gate.note}" if header.gate.note else ""),
        ),
        ("gates tried", "; ".join(f"{tried.kind}: {tried.result}" for tried in header.gate.tried)),
        ("depth", header.depth),
        ("run", f"{header.started} to {header.ended or 'cut off'}, suite {header.suite_version}"),
        ("fingerprint", header.fingerprint.digest[:16]),
    ]
    out += [tabulate(facts, ["what", "value"], tablefmt="github"), ""]
    out += [f"Verdict: **{report.verdict.value}**" + (f" ({report.reason})" if report.reason else "") + ".", ""]
    out += ["## Decision", "", sentence, ""]
    out += [
        tabulate(decision_rows(report.decision), ["in flight", "outcome", "ring", "rings measured"], tablefmt="github"),
        "",
    ]
    if priced := price_lines(report.decision):
        out += [*(f"- {line}" for line in priced), ""]
    if rows := findings(results):
        out += ["## Findings", "", tabulate(rows, ["clause", "where", "what"], tablefmt="github"), ""]
    out += ["## Verdicts", ""]
    table = [[probe, *(counts[v] or "" for v in Verdict)] for probe, counts in verdict_table(results)]
    out += [tabulate(table, ["probe", *(v.value for v in Verdict)], tablefmt="github"), ""]
    done, total, left = judged(results)
    out += [f"Judged {done} of {total} (clause, variant) pairs of a MUST."]
    if left:
        out += ["", "Left out:", ""]
        out += _left_out(results)
    if report.capabilities:
        out += ["", "## Capabilities", "", *_capabilities(report.capabilities)]
    for result in _worth_showing(results):
        out += ["", f"### {result.probe}, {result.variant}", "", "```", timeline(result), "```"]
    if latencies := latency_table(results):
        out += ["", "## Latency", "", *latencies]
    return "\n".join(out) + "\n"


def _capabilities(capabilities: Mapping[str, str]) -> list[str]:
    """One table, and where parked streams were measured a second one of them."""
    parked: dict[str, dict[str, str]] = {}
    others = []
    for key, value in sorted(capabilities.items()):
        if key.startswith(PARKED) and ROW in key:
            behind, _, work = key.removeprefix(PARKED).partition(ROW)
            parked.setdefault(behind, {})[work] = value
        else:
            others.append((key, value))
    out = [tabulate(others, ["capability", "value"], tablefmt="github", disable_numparse=True)] if others else []
    if parked:
        works = sorted({work for row in parked.values() for work in row})
        rows = [[behind, *(row.get(work, "-") for work in works)] for behind, row in parked.items()]
        out += [
            "",
            "Streams parked in a wait, with an operation behind it, until an independent stream stands still:",
            "",
        ]
        headers = ["behind the wait", *(f"independent {work}" for work in works)]
        out += [tabulate(rows, headers, tablefmt="github", disable_numparse=True)]
    return out


def _left_out(results: Iterable[Result]) -> list[str]:
    groups: dict[tuple[str, str], dict[str, set[str]]] = {}
    for result in results:
        for clause in result.clauses:
            if clause.level != "SHOULD" and clause.verdict not in _JUDGED:
                group = groups.setdefault((clause.verdict.value, clause.reason), {})
                group.setdefault(clause.clause, set()).add(f"{result.probe}[{result.variant}]")
    lines = []
    for (verdict, reason), clauses in groups.items():
        lines.append(f"- {verdict}: {reason}")
        for clause_id, variants in sorted(clauses.items()):
            names = sorted(variants)
            more = f" and {len(names) - 4} more" if len(names) > 4 else ""
            lines.append(f"  - {clause_id}: {', '.join(names[:4])}{more}")
    return lines


def _worth_showing(results: Sequence[Result]) -> list[Result]:
    """One result for each clause that failed, and one for each reason of an inconclusive one."""
    seen: set[str] = set()
    chosen = []
    for result in results:
        keys = {c.clause for c in result.clauses if c.verdict is Verdict.NON_CONFORMANT}
        keys |= {f"? {c.reason}" for c in result.clauses if c.verdict is Verdict.INCONCLUSIVE}
        if result.mechanism is not None:
            keys.add(f"! {result.mechanism.name.value} {result.form}")
        if keys - seen:
            seen |= keys
            chosen.append(result)
    return chosen
