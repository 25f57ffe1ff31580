"""``diagnose``: which factors decide that an event is late. 0 diagnosed, 3 nothing late, 2 usage."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from conformance.backends.registry import HARDWARE, NAMES, Opening, check_faults, check_name, find
from conformance.devices import device_lock
from conformance.diagnosis.factors import FACTORS, point_of
from conformance.errors import BackendUnavailable, UsageError, unknown_name
from conformance.fingerprint import set_blocking_variables
from conformance.numbers import DEPTHS, Depth
from conformance.private import private
from conformance.run import check_writable
from conformance.runner import open_runner
from probes.catalogue import all_probes
from reports import diagnosis
from reports.records import Verdict
from reports.store import ReportError, load_report

if TYPE_CHECKING:
    from collections.abc import Sequence

    from probes.probe import Case, Probe
    from reports.records import Report, Result

NOTHING_LATE: Final = 3


@click.command("diagnose")
@click.argument("report", required=False, type=click.Path(path_type=Path))
@click.option("--backend", help=f"Without REPORT: one of {', '.join(NAMES)}.")
@click.option("--device", help="The device's number (opencl: P:D).")
@click.option("--probe", metavar="P", help="The probe whose late event is diagnosed.  [the report's first late one]")
@click.option("--variant", metavar="V", help="The variant to begin with.  [the probe's first late or decisive one]")
@click.option("--fault", "faults", multiple=True, metavar="F", help="Without REPORT: a fault of the device.")
@click.option("--gate", metavar="KIND", help="Use this gate kind.")
@click.option("--out", type=click.Path(path_type=Path), help="Folder for diagnosis.json.  [the report's]")
def diagnose_command(
    report: Path | None,
    backend: str | None,
    device: str | None,
    probe: str | None,
    variant: str | None,
    faults: Sequence[str],
    gate: str | None,
    out: Path | None,
) -> int:
    """Sweep the factors of a late event on the device of REPORT (a run's folder or report.json), or of --backend."""
    surface = "vendor"
    if (report is None) == (backend is None):
        raise UsageError("diagnose needs a REPORT or --backend, one of the two")
    if report is not None:
        if faults:
            raise UsageError("--fault: the report says with what it was made; leave --fault out")
        out = out or (report if report.is_dir() else report.parent)
        whole = _load(report)
        late = _late_of(whole, probe, variant)
        backend, faults, surface = whole.header.backend, whole.header.fault, late.surface
        probe, variant = late.probe, late.variant
        if whole.header.injected:
            click.echo(f"note: the report was made under {', '.join(whole.header.injected)}; so must this be", err=True)
    assert backend is not None
    check_name(backend)
    chosen, case = _case(probe or "publication", variant)
    if out is not None:
        check_writable(out, "--out")
    found = private(_run(backend, device, surface, tuple(faults), gate, chosen, case))
    click.echo(diagnosis.text(found))
    if out is not None:
        click.echo(f"diagnosis: {diagnosis.write(out, found)}")
    return 0 if found.found else NOTHING_LATE


def _load(path: Path) -> Report:
    try:
        return load_report(path)
    except ReportError as error:
        raise UsageError(str(error)) from None


def is_late(result: Result) -> bool:
    """Has the result a late event, proved or not?"""
    proved = any(c.verdict is Verdict.NON_CONFORMANT and c.kind is not None for c in result.clauses)
    return proved or result.form is not None or result.mechanism is not None


def _late_of(report: Report, probe: str | None, variant: str | None) -> Result:
    """The first late result of these names on one API family. Raises UsageError if there is none."""
    late = [
        result
        for result in report.results
        if is_late(result)
        and result.surface != "mixed"
        and probe in (None, result.probe)
        and variant in (None, result.variant)
    ]
    if not late:
        asked = f" of {probe or 'any probe'}[{variant or 'any variant'}]" if probe or variant else ""
        raise UsageError(f"the report has no late event{asked}; run the suite again, or name --backend and --probe")
    return late[0]


def _case(name: str, variant: str | None) -> tuple[Probe, Case]:
    probes = all_probes()
    if name not in probes:
        raise UsageError(unknown_name("probe", name, list(probes), "(see 'stream-conformance list')"))
    cases = {case.variant: case for case in probes[name].cases}
    if variant is None:
        return probes[name], next((case for case in cases.values() if case.decisive), next(iter(cases.values())))
    if variant not in cases:
        raise UsageError(unknown_name("variant", variant, list(cases), "(see 'stream-conformance list --variants')"))
    return probes[name], cases[variant]


def _run(
    backend: str, device: str | None, surface: str, faults: tuple[str, ...], gate: str | None, probe: Probe, case: Case
) -> diagnosis.Diagnosis:
    found = find(backend)
    if not found.here:
        raise BackendUnavailable(found.reason)
    if backend in HARDWARE and (blocking := set_blocking_variables()):
        raise UsageError(f"{blocking[0]} is set: a closed gate would hold the host; unset it")
    check_faults(backend, faults)
    numbers = DEPTHS[Depth.STANDARD]
    opening = Opening(
        name=backend, device=device, surface=surface, faults=faults, gate=gate, gate_limit=numbers.gate_limit
    )
    runner = open_runner(opening, numbers, Depth.STANDARD)
    try:
        with device_lock(runner.lock):
            choices = {**dict(case.factors), "observe": case.observe, "flags": case.flags}
            return runner.diagnose(point_of(FACTORS, choices), probe.name, case.variant)
    finally:
        runner.close()
