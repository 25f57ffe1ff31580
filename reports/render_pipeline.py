"""A pipeline run as text for a terminal, and as Markdown: the same tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tabulate import tabulate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reports.pipeline import FormCheck, Parts, PipelineReport, Published, Row, WorkaroundAnswer

#: Depths and rings of the closed forms that are shown; the file has them all.
SHOWN_DEPTHS: Final = (1, 2, 3, 4, 5, 8)
SHOWN_RINGS: Final = (1, 2, 3, 4)


def text(report: PipelineReport, *, markdown: bool = False) -> str:
    """The whole report."""
    style = "github" if markdown else "simple"
    head = "# The decode pipeline" if markdown else "The decode pipeline"
    blocks = [head + (f": {_device(report)}" if report.header is not None else ", on a virtual clock alone")]
    if report.header is not None and report.header.simulated:
        blocks.append("Simulated: no hardware was used.")
    parts = report.parts
    plain = [row for row in parts.rows if row.path == "ring"]
    others = [row for row in parts.rows if row.path != "ring"]
    cured = [row for row in plain if others and row.asked == others[0].asked and row.ring == row.in_flight]
    sections: list[tuple[str, str]] = []
    for asked in dict.fromkeys(row.asked for row in plain):
        title = f"Steps of {asked:g} ms in real time (ms; in brackets the virtual clock's)"
        sections.append((title, _rows([row for row in plain if row.asked == asked], style)))
    if parts.findings:
        sections.append(("What an engine relies on", _findings(parts, style)))
    if parts.reads:
        sections.append(("Ways of reading a result", _reads(parts, style)))
    if parts.bookkeeping:
        sections.append(("Bookkeeping before or after the wait (ms a step)", _bookkeeping(parts, style)))
    if parts.answers:
        sections.append(("Workarounds", _workarounds(report, [*cured, *others], style)))
    if report.forms is not None:
        sections.append(("Closed forms, late-next-wait, n - 1 stages", _forms(report.forms, style)))
    if report.published is not None:
        sections.append(("The reported figures, two steps in flight", _published(report.published, style)))
    if report.checks:
        sections.append(("Checks", _checks(report, style)))
    for title, body in sections:
        blocks.append(f"## {title}" if markdown else f"{title}\n{'-' * len(title)}")
        blocks.append(body)
    return "\n\n".join(blocks) + "\n"


def _device(report: PipelineReport) -> str:
    assert report.header is not None, "asked for by the caller"
    header = report.header
    name = " ".join(part for part in (header.device.name, header.device.capability, header.device.driver) if part)
    return f"{header.backend}, {name}"


def _beside(value: float | None, model: float | None, digits: int = 1) -> str:
    if value is None:
        return "-"
    shown = f"{value:.{digits}f}"
    return shown if model is None else f"{shown} ({model:.{digits}f})"


def _rows(rows: Sequence[Row], style: str) -> str:
    table = []
    for row in rows:
        way = (
            row.ring if (row.output, row.switch) == ("tokens", "context") else f"{row.ring}, {row.output}, {row.switch}"
        )
        if row.note:
            table.append([row.fault or "clean", row.in_flight, way, row.note])
            continue
        model = row.model
        assert row.instant is not None, "a row without a note was measured"
        assert row.late is not None, "a row without a note was measured"
        table.append(
            [
                row.fault or "clean",
                row.in_flight,
                way,
                f"{row.wait_p10:.1f} / {row.wait_p50:.1f} / {row.wait_p90:.1f}",
                f"{row.instant:.0%}" + (f" ({model.instant:.0%})" if model else ""),
                f"{row.worst_lag}, {row.late:.0%}" + (f" ({model.worst_lag}, {model.late:.0%})" if model else ""),
                _beside(row.idle, model.idle if model else None, 3),
                _beside(row.step, model.step if model else None, 2),
                _beside(row.tpot, None, 2),
                f"{row.itl_p50:.1f}",
                _beside(row.itl_p99, model.itl_p99 if model else None),
                _beside(row.ttft, model.ttft if model else None),
                "right" if not row.wrong else f"{row.wrong} of {row.outputs} wrong",
            ]
        )
    headers = [
        "fault",
        "in flight",
        "ring",
        "event wait p10 / p50 / p90",
        "instant",
        "lag in steps, outputs late",
        "device idle a step",
        "step",
        "TPOT",
        "P50 ITL",
        "P99 ITL",
        "TTFT",
        "data",
    ]
    return tabulate(table, headers, tablefmt=style, disable_numparse=True)


def _findings(parts: Parts, style: str) -> str:
    words = {True: "yes", False: "NO", None: "not shown"}
    rows = [[f.what, f.rule, f.found, words[f.held]] for f in parts.findings]
    return tabulate(rows, ["what", "rule", "found", "as it should be"], tablefmt=style)


def _reads(parts: Parts, style: str) -> str:
    words = {True: "waits", False: "returns", None: "not shown"}
    rows = [
        [read.call, words[read.waits], "-" if read.cost_us is None else f"{read.cost_us:.1f}", read.note]
        for read in parts.reads
    ]
    headers = ["call", "behind a closed gate", "us on an idle device", ""]
    return tabulate(rows, headers, tablefmt=style, disable_numparse=True)


def _bookkeeping(parts: Parts, style: str) -> str:
    rows = [
        [b.gpu, b.host, b.after, b.both, b.before, b.larger, "-" if b.overlap is None else f"{b.overlap:.0%}"]
        for b in parts.bookkeeping
    ]
    headers = ["device G", "host C", "after the wait", "G + C", "before it", "max(G, C)", "hidden"]
    return tabulate(rows, headers, tablefmt=style, floatfmt=".2f")


def _workarounds(report: PipelineReport, rows: Sequence[Row], style: str) -> str:
    answers: dict[str, dict[str, WorkaroundAnswer]] = {}
    for answer in report.parts.answers:
        answers.setdefault(answer.workaround, {})[answer.fault] = answer
    faults = list(dict.fromkeys(answer.fault for answer in report.parts.answers))
    real = {(row.path, row.fault): row for row in rows if not row.note}
    base = real.get(("one stream", ""))
    table = []
    for workaround in report.workarounds:
        found = answers.get(workaround.name, {})
        clean = real.get((workaround.name, ""))
        late = real.get((workaround.name, "late-next-wait"))
        line = [workaround.name, *(_word(found.get(fault)) for fault in faults)]
        line.append(_data(list(found.values())))
        line.append("covered" if workaround.covered else "not covered")
        if base is not None:
            line.append("-" if clean is None or clean.queue_us is None else f"{clean.queue_us:.0f}")
            line.append("-" if clean is None or not clean.step or not base.step else f"{clean.step / base.step:.3f}")
            line.append("-" if late is None else f"{late.itl_p99:.1f}")
        table.append(line)
    headers = ["workaround", *(f"{fault or 'clean'}" for fault in faults), "data", "documents"]
    if base is not None:
        headers += ["us to queue", "step over one stream", "P99 ITL, late-next-wait"]
    depth = report.parts.answers[0].in_flight
    lines = [tabulate(table, headers, tablefmt=style, disable_numparse=True), ""]
    lines.append(f"{depth} steps in flight. In time: seen while the gates of all later steps are shown closed.")
    lines += [f"- {w.name}: {w.text}" + (f"; {w.basis}" if w.basis else "") for w in report.workarounds]
    unknown = {a.workaround: a.reason for a in report.parts.answers if a.timely is None}
    lines += [f"Not shown of '{name}': {reason}" for name, reason in unknown.items()]
    good = [w.name for w in report.workarounds if w.covered and _cures(answers.get(w.name, {}))]
    lines.append(
        "The ring stays the default. In time with right data under every lateness that a wait causes, and covered: "
        + (", ".join(good) or "none")
        + "."
    )
    return "\n".join(lines)


def _data(answers: Sequence[WorkaroundAnswer]) -> str:
    if any(answer.data is False for answer in answers):
        return "WRONG"
    return "right" if any(answer.data for answer in answers) else "-"


def _cures(answers: dict[str, WorkaroundAnswer]) -> bool:
    wanted = [a for fault, a in answers.items() if fault in ("", "late-next-wait", "late-any-wait")]
    return bool(wanted) and all(a.timely and a.data for a in wanted)


def _word(answer: WorkaroundAnswer | None) -> str:
    if answer is None:
        return "-"
    if answer.timely is None:
        return "not shown"
    return ("in time" if answer.timely else "late") + (", if streams run at once" if answer.needs_concurrency else "")


def _forms(check: FormCheck, style: str) -> str:
    cells = {
        (c.in_flight, c.ring): c
        for c in check.cells
        if c.lateness == "late-next-wait" and c.stages == max(1, c.in_flight - 1)
    }
    rows = []
    for n in SHOWN_DEPTHS:
        row = [str(n)]
        for k in SHOWN_RINGS:
            cell = cells.get((n, k))
            row.append("-" if cell is None else f"{cell.worst_lag} ({cell.mean_lag:.2f}) {cell.step_ratio:.2f}")
        rows.append(row)
    legend = "Worst lag in steps (mean lag), step time over a device in time. Timely exactly if k >= n."
    table = tabulate(rows, ["n", *(f"k={k}" for k in SHOWN_RINGS)], tablefmt=style, disable_numparse=True)
    return f"{table}\n\n{legend}"


def _published(published: Published, style: str) -> str:
    rows = [[r.what, r.reported, r.modelled, f"{r.off:+.1%}", r.note] for r in published.rows]
    table = tabulate(rows, ["figure", "reported", "model", "off", "how"], tablefmt=style, floatfmt=".2f")
    inputs = (
        f"Given: span {published.span_ms:g} ms, host {published.pre_ms:g} ms before and {published.post_ms:g} ms after"
        f" a launch, gap {published.gap_ms:g} ms: two of the figures are inputs, two numbers are fitted to the others."
    )
    lines = [table, "", f"{inputs} {published.alternation}.", "", "What the mechanism does not explain:"]
    return "\n".join([*lines, *(f"- {line}" for line in published.unexplained)])


def _checks(report: PipelineReport, style: str) -> str:
    rows = [[c.what, c.found, "yes" if c.held else "NO", "" if c.decisive else "by the clock"] for c in report.checks]
    return tabulate(rows, ["what", "found", "held", ""], tablefmt=style, disable_numparse=True)
