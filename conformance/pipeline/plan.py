"""Which jobs a pipeline run consists of, and what their results should show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from conformance.pipeline import forms
from conformance.pipeline.jobs import BookkeepingJob, CompareJob, Job, ReadsJob, RowJob, RulesJob
from conformance.pipeline.model import CLEAN, LATE_ANY, LATE_NEXT
from conformance.pipeline.paths import OUTPUTS, PATHS, SWITCHES
from conformance.pipeline.workarounds import FAULTS
from reports.pipeline import Check, Parts, Row

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: The parts of a run, in order.
PARTS: Final = ("model", "row", "table", "outputs", "rules", "reads", "bookkeeping", "workarounds")
#: What is run on hardware, and where there is none, unless parts are named.
ON_HARDWARE: Final = ("model", "table", "outputs", "rules", "reads", "bookkeeping", "workarounds")
WITHOUT: Final = ("model", "workarounds")

#: The table: fault, steps in flight, ring.
TABLE: Final = (
    *((CLEAN, n, k) for n, k in ((2, 1), (2, 2), (3, 1), (3, 3))),
    *((fault, n, k) for fault in (LATE_NEXT, LATE_ANY) for n, k in ((2, 1), (2, 2), (3, 1), (3, 2), (3, 3))),
)
#: Steps of the rows that are no part of the table: fewer, and shorter.
SHORT_MS: Final = 8.0
#: The fault under which the workarounds' cost is measured beside the clean device.
COST_FAULTS: Final = (CLEAN, LATE_NEXT)
#: The depth at which workarounds are compared.
COMPARED: Final = 2

#: A row in which so many outputs are a step late is late: a late ring shows a third at least, a hiccup one or two.
LATE_SHARE: Final = 0.15
#: By how much step times may differ that should be the same; and what "twice" is.
SAME_STEP: Final = 0.01
CURED_STEP: Final = 0.02
TWICE: Final = (1.7, 2.3)
#: How many neighbouring waits must alternate, at least, where every second one returns at once.
ALTERNATES: Final = 0.9


def jobs_of(parts: Sequence[str], row: RowJob) -> list[Job]:
    """The jobs of these parts; ``row`` has the step and the host's work, and is the job of the part "row"."""
    short = msgspec.structs.replace(row, step_ms=min(row.step_ms, SHORT_MS), sequences=1)
    jobs: list[Job] = []
    if "row" in parts:
        jobs.append(row)
    if "table" in parts:
        plain = {"path": "ring", "output": "tokens", "switch": "context"}
        jobs += [msgspec.structs.replace(row, fault=fault, in_flight=n, ring=k, **plain) for fault, n, k in TABLE]
    if "outputs" in parts:
        for output in OUTPUTS:
            for switch in SWITCHES:
                for fault, k in ((CLEAN, 1), (LATE_NEXT, 1), (LATE_NEXT, 2)):
                    jobs.append(
                        msgspec.structs.replace(
                            short, fault=fault, in_flight=2, ring=k, path="ring", output=output, switch=switch
                        )
                    )
        # The look-alike: where waits are dropped the data must be wrong, or the data check is none.
        jobs.append(msgspec.structs.replace(short, fault="wait-dropped", in_flight=2, ring=1, path="ring"))
    if "rules" in parts:
        jobs.append(RulesJob())
    if "reads" in parts:
        jobs.append(ReadsJob())
    if "bookkeeping" in parts:
        jobs.append(BookkeepingJob(step_ms=min(10.0, row.step_ms)))
    if "workarounds" in parts:
        jobs += [CompareJob(in_flight=COMPARED, fault=fault) for fault in FAULTS]
    return jobs


def cost_jobs(row: RowJob) -> list[Job]:
    """Each workaround in real time: what it costs, and its timeliness as an engine feels it."""
    short = msgspec.structs.replace(row, step_ms=min(row.step_ms, SHORT_MS), sequences=1, in_flight=COMPARED)
    return [
        msgspec.structs.replace(short, fault=fault, path=path, ring=COMPARED if path == "ring" else 1)
        for fault in COST_FAULTS
        for path in PATHS
    ]


def is_late(row: Row) -> bool:
    """Are outputs late, by the device's own events?"""
    return row.late is not None and row.late >= LATE_SHARE


def checks_of(parts: Parts) -> tuple[Check, ...]:
    """What the rows, findings and answers should show. What rests on the host's clock decides nothing."""
    found: list[Check] = []
    for row in parts.rows:
        found += _row_checks(row)
    for asked in sorted({row.asked for row in parts.rows}):
        found += _compared([row for row in parts.rows if row.asked == asked])
    for finding in parts.findings:
        held = finding.held is not False
        found.append(Check(what=f"{finding.what} ({finding.rule})", found=finding.found, held=held, decisive=True))
    for answer in parts.answers:
        # One that cannot be asked on this device fails nothing, unless its data was wrong.
        if answer.fault == CLEAN and (answer.timely is not None or answer.data is False):
            good = bool(answer.timely and answer.data)
            text = "in time, right data" if good else answer.reason
            what = f"workaround '{answer.workaround}', clean"
            found.append(Check(what=what, found=text, held=good, decisive=True))
    found += [Check(what="measured", found=note, held=False, decisive=True) for note in parts.notes]
    return tuple(found)


def name_of(row: Row) -> str:
    """A row in words."""
    way = f"ring {row.ring}" if row.path in ("ring", "one stream") else row.path
    other = "".join(f", {word}" for word in (row.output, row.switch) if word not in ("tokens", "context"))
    return f"{row.fault or 'clean'}, {row.in_flight} in flight, {way}{other}, {row.asked:g} ms"


def _row_checks(row: Row) -> Iterable[Check]:
    name = name_of(row)
    if row.note:
        yield Check(what=name, found=row.note, held=False, decisive=True)
        return
    if row.fault in ("wait-dropped", "sync-noop"):
        text = f"{row.wrong} of {row.outputs} outputs"
        yield Check(what=f"{name}: wrong data is found", found=text, held=row.wrong > 0, decisive=True)
        return
    if row.wrong:
        yield Check(what=f"{name}: data", found=f"{row.wrong} of {row.outputs} wrong", held=False, decisive=True)
    if row.path != "ring":
        return
    timely = row.fault == CLEAN or forms.timely(row.in_flight, row.ring)
    text = (
        f"{row.late:.0%} of the outputs are late, by {row.worst_lag} steps at most" if row.late else "no output is late"
    )
    yield Check(
        what=f"{name}: {'in time' if timely else 'late'}", found=text, held=is_late(row) is not timely, decisive=True
    )


def _compared(rows: Sequence[Row]) -> Iterable[Check]:
    """Rows beside each other: by the device's events where they are step times, else by the host's clock."""
    table = {
        (row.fault, row.in_flight, row.ring): row
        for row in rows
        if row.path == "ring" and (row.output, row.switch) == ("tokens", "context") and not row.note
    }
    for n in sorted({n for _, n, _ in table}):
        clean, ring = table.get((CLEAN, n, 1)), table.get((CLEAN, n, n))
        if clean and ring and clean.step and ring.step and n > 1:
            ratio = ring.step / clean.step
            yield _near(f"clean, {n} in flight, {ring.asked:g} ms: step time, ring {n} over ring 1", ratio, SAME_STEP)
        for fault in (LATE_NEXT, LATE_ANY):
            cured = table.get((fault, n, n))
            if clean and cured and clean.step and cured.step and n > 1:
                ratio = cured.step / clean.step
                yield _near(
                    f"{fault}, {n} in flight, {cured.asked:g} ms: step time, ring {n} over clean", ratio, CURED_STEP
                )
    clean = table.get((CLEAN, 2, 1))
    for fault in (LATE_NEXT, LATE_ANY):
        late = table.get((fault, 2, 1))
        if not clean or not late or not clean.itl_p99 or late.itl_p99 is None or late.alternates is None:
            continue
        ratio = late.itl_p99 / clean.itl_p99
        held = TWICE[0] <= ratio <= TWICE[1]
        yield Check(
            what=f"{fault}, 2 in flight, {late.asked:g} ms: P99 ITL over clean, about 2",
            found=f"{ratio:.2f}",
            held=held,
            decisive=False,
        )
        text = f"{late.alternates:.0%} of neighbouring waits"
        yield Check(
            what=f"{fault}, 2 in flight, {late.asked:g} ms: waits alternate",
            found=text,
            held=late.alternates >= ALTERNATES,
            decisive=False,
        )


def _near(what: str, ratio: float, within: float) -> Check:
    return Check(
        what=f"{what}, 1.00 within {within:.0%}", found=f"{ratio:.4f}", held=abs(ratio - 1.0) <= within, decisive=False
    )
