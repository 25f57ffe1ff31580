"""``decide``: one word for CI and for engines, from a report. Imports no torch. Exit codes: docs/rules.md 5."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import click

from conformance.answer import Answer, answer, not_of_this_machine, of_another_family
from conformance.errors import UsageError
from conformance.workaround import VARIABLE, decision_path
from reports import reading, store
from reports.reading import Outcome

CODES: Final = {Outcome.NOT_NEEDED: 0, Outcome.ENABLE: 10, Outcome.INEFFECTIVE: 11, Outcome.UNDECIDED: 12}


@click.command("decide")
@click.argument("report", type=click.Path(path_type=Path))
@click.option("--in-flight", type=click.IntRange(1), metavar="N", help="Steps in flight; needed unless --install.")
@click.option("--format", "form", type=click.Choice(["token", "json", "env"]), default="token", show_default=True)
@click.option("--any-machine", is_flag=True, help="Do not compare the report's machine with this one.")
@click.option("--allow-simulated", is_flag=True, help="Accept a report of no hardware, or of injected faults.")
@click.option("--install", is_flag=True, help="Put the decision where engines of this user look for it.")
def decide_command(
    report: Path, in_flight: int | None, form: str, any_machine: bool, allow_simulated: bool, install: bool
) -> int:
    """Say whether REPORT (a run's folder or one of its files) asks for the copy-stream ring."""
    if install and (refused := _install(report)):
        click.echo(f"undecided: not installed: {refused}", err=True)
        return CODES[Outcome.UNDECIDED]
    if in_flight is None:
        if not install:
            raise click.UsageError("--in-flight N is missing; or --install, to put the decision where engines look")
        return 0
    found = answer(report, in_flight, any_machine=any_machine, allow_simulated=allow_simulated)
    if form == "json":
        click.echo(_json(found))
    elif form == "env":
        _env(found)
    else:
        click.echo(found.outcome.value)
    if found.outcome is Outcome.UNDECIDED:
        click.echo(f"undecided: {found.reason}", err=True)
    if found.warning:
        click.echo(f"warning: {found.warning}", err=True)
    return CODES[found.outcome]


def _install(report: Path) -> str:
    """Install the report's decision; why not, if it decides nothing on this machine. Raises UsageError."""
    try:
        found = reading.find(report)
        if why := not_of_this_machine(found):
            return why
        deep = [depth for depth in found.depths.values() if depth.in_flight > 1]
        if not found.late and all(d.outcome is Outcome.UNDECIDED for d in deep):
            return "the report decides nothing for 2 in flight or more; what is installed stays"
        if not found.late and (why := next((w for depth in deep if (w := of_another_family(found, depth))), "")):
            return why
        short = store.load_decision(report)
    except reading.ReportError as error:
        return str(error)
    path = decision_path(found.backend)
    if path is None:
        raise UsageError("--install: there is no home folder; set XDG_STATE_HOME")
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        store.write_atomic(Path(path), store.encode(short))
    except OSError as error:
        raise UsageError(f"--install {path} cannot be written: {error.strerror}; set XDG_STATE_HOME") from None
    click.echo(f"installed: {path}", err=True)
    return ""


def _json(found: Answer) -> str:
    entry = dict(found.entry) if found.entry is not None else {"in_flight": found.in_flight, "rings": []}
    entry |= {"outcome": found.outcome.value, "reason": found.reason}
    if found.outcome is not Outcome.ENABLE:
        entry["ring"] = None
    return json.dumps(entry)


def _env(found: Answer) -> None:
    if found.ring is not None:
        click.echo(f"{VARIABLE}={found.ring}")
    elif found.outcome in (Outcome.NOT_NEEDED, Outcome.INEFFECTIVE):
        click.echo(f"{VARIABLE}=off")
