"""``decide``: one word for CI and for engines, from a report. Imports no torch. Exit codes: docs/rules.md 5."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import click
import msgspec

from conformance.answer import Answer, answer
from reports.records import Outcome

CODES: Final = {Outcome.NOT_NEEDED: 0, Outcome.ENABLE: 10, Outcome.INEFFECTIVE: 11, Outcome.UNDECIDED: 12}


@click.command("decide")
@click.argument("report", type=click.Path(path_type=Path))
@click.option("--in-flight", type=click.IntRange(1), required=True, metavar="N", help="Steps in flight.")
@click.option("--format", "form", type=click.Choice(["token", "json", "env"]), default="token", show_default=True)
@click.option("--any-machine", is_flag=True, help="Do not compare the report's machine with this one.")
@click.option("--allow-simulated", is_flag=True, help="Accept a report of no hardware, or of injected faults.")
def decide_command(report: Path, in_flight: int, form: str, any_machine: bool, allow_simulated: bool) -> int:
    """Say whether REPORT (a run's folder or one of its files) asks for the copy-stream ring."""
    found = answer(report, in_flight, any_machine=any_machine, allow_simulated=allow_simulated)
    if form == "json":
        click.echo(_json(found))
    elif form == "env":
        _env(found)
    else:
        click.echo(found.outcome.value)
    if found.outcome is Outcome.UNDECIDED:
        click.echo(f"undecided: {found.reason}", err=True)
    return CODES[found.outcome]


def _json(found: Answer) -> str:
    entry = msgspec.to_builtins(found.entry) if found.entry is not None else {"in_flight": found.in_flight, "rings": []}
    entry |= {"outcome": found.outcome.value, "reason": found.reason}
    if found.outcome is not Outcome.ENABLE:
        entry["ring"] = None
    return json.dumps(entry)


def _env(found: Answer) -> None:
    if found.outcome is Outcome.ENABLE and found.entry is not None:
        click.echo(f"STREAM_CONFORMANCE_RING={found.entry.ring}")
    elif found.outcome in (Outcome.NOT_NEEDED, Outcome.INEFFECTIVE):
        click.echo("STREAM_CONFORMANCE_RING=off")
