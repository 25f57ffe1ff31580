"""A whole pipeline run: its jobs, one after the other, and the report of what came of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from conformance import __version__
from conformance.header import now
from conformance.pipeline import forms, reported
from conformance.pipeline.plan import checks_of, cost_jobs, jobs_of
from probes.workarounds import WORKAROUNDS
from reports.pipeline import PIPELINE_SCHEMA, Check, Parts, PipelineReport, WorkaroundText

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from conformance.pipeline.jobs import RowJob
    from conformance.runner import Runner


def run_pipeline(
    runner: Runner | None,
    parts: Sequence[str],
    row: RowJob,
    *,
    real_time: bool,
    progress: Callable[[int, int, str], None],
) -> PipelineReport:
    """Do the parts; ``runner`` may be None if "model" is the only one. ``real_time``: also what workarounds cost."""
    started, found = now(), Parts()
    jobs = jobs_of(parts, row)
    if "workarounds" in parts and real_time:
        jobs += cost_jobs(row)
    for number, job in enumerate(jobs):
        progress(number, len(jobs), type(job).__name__.removesuffix("Job").lower())
        assert runner is not None, "a run with jobs has a device"
        found += runner.drive(job)
    model = "model" in parts
    published, checked = (reported.published(), forms.check()) if model else (None, None)
    checks = list(checks_of(found))
    if published is not None and checked is not None:
        text = f"{len(checked.cells)} cells, {len(checked.disagreements)} disagree"
        held = not checked.disagreements
        checks.append(Check(what="closed forms against the virtual clock", found=text, held=held, decisive=True))
        off = [entry.what for entry in published.rows if not entry.held]
        text = f"{len(published.rows)} figures, {len(off)} off by more than {reported.WITHIN:.0%}"
        checks.append(Check(what="the reported decode trace", found=text, held=not off, decisive=True))
    header = None
    if runner is not None:
        header = msgspec.structs.replace(runner.header, started=started, ended=now(), complete=True)
    texts = tuple(
        WorkaroundText(name=w.name, text=w.text, covered=w.covered, basis=w.basis) for w in WORKAROUNDS.values()
    )
    return PipelineReport(
        schema_version=PIPELINE_SCHEMA,
        suite_version=__version__,
        started=started,
        ended=now(),
        header=header,
        step_ms=row.step_ms,
        parts=found,
        checks=tuple(checks),
        workarounds=texts if found.answers else (),
        published=published,
        forms=checked,
    )
