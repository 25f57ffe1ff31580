"""``reproduce``: a stand-alone program and a report for the vendor, from one result of a report."""

from __future__ import annotations

import re
from pathlib import Path

import click

from conformance.errors import UsageError, unknown_name
from conformance.reproducer.check import check_of
from conformance.reproducer.script import bug_report, script
from conformance.run import check_writable
from probes.catalogue import all_probes
from reports import diagnosis
from reports.store import ReportError, load_report, write_atomic


@click.command("reproduce")
@click.argument("report", type=click.Path(path_type=Path))
@click.option("--probe", required=True, metavar="P", help="The probe.")
@click.option("--variant", required=True, metavar="V", help="The variant.")
@click.option("--out", type=click.Path(path_type=Path), help="Folder for the two files.  [the report's]")
def reproduce_command(report: Path, probe: str, variant: str, out: Path | None) -> int:
    """Write a stand-alone program that shows what a variant in REPORT shows, and a bug report for the vendor."""
    folder = report if report.is_dir() else report.parent
    try:
        whole, diagnosed = load_report(report), diagnosis.load(folder)
    except ReportError as error:
        raise UsageError(str(error)) from None
    results = {(r.probe, r.variant): r for r in reversed(whole.results)}
    if probe not in {name for name, _ in results}:
        raise UsageError(unknown_name("probe", probe, sorted({n for n, _ in results}), "(of those in the report)"))
    if (probe, variant) not in results:
        known = [v for name, v in results if name == probe]
        raise UsageError(unknown_name("variant", variant, known, f"(of {probe} in the report)"))
    result = results[probe, variant]
    known_probe = all_probes().get(probe)
    case = next((c for c in known_probe.cases if c.variant == variant), None) if known_probe is not None else None
    if case is None:
        raise UsageError(f"{probe}[{variant}] is not in this version of the suite; use the one that wrote the report")
    check = check_of(result, case)
    out = out or folder
    check_writable(out, "--out")
    name = re.sub(r"\W+", "_", f"reproduce_{probe}_{variant}")
    told = diagnosis.text(diagnosed) if diagnosed is not None else ""
    write_atomic(out / f"{name}.py", script(whole, result, case, check).encode())
    write_atomic(out / f"{name}.md", bug_report(whole, result, case, check, f"{name}.py", told).encode())
    click.echo(f"{out / name}.py\n{out / name}.md")
    return 0
