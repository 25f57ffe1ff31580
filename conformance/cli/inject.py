"""``inject``: any command under a runtime that is wrong on request. Exit code: the command's, 2 for usage."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, get_args

import click

from conformance.errors import UsageError
from conformance.inject import ASKED, FAULTS, check_faults
from conformance.inject.build import Level
from conformance.inject.launch import Log, check_command, launch

USAGE: Final = 2


@click.command("inject", context_settings={"allow_interspersed_args": False})
@click.option(
    "--fault", "faults", multiple=True, metavar="F", help=f"One of {', '.join(FAULTS)}; may be repeated. None: count."
)
@click.option(
    "--level",
    type=click.Choice(get_args(Level)),
    default="runtime",
    show_default=True,
    help="Over the runtime's calls, or (CUDA only) the driver's, which a static runtime uses too.",
)
@click.option("--log", type=click.Path(path_type=Path), metavar="FILE", help="Write as JSON what was called and done.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True)
def inject_command(faults: Sequence[str], level: Level, log: Path | None, command: Sequence[str]) -> int:
    """Run COMMAND on a runtime that is wrong in this way: inject --fault late-next-wait -- python engine.py"""
    faults = tuple(dict.fromkeys(faults))
    check_faults(faults)
    if ASKED in os.environ:
        raise UsageError(f"this runs under inject already ({os.environ[ASKED]}); give all faults to one inject")
    check_command(command)
    written = Log(log, faults, level, command) if log is not None else None
    ended = launch(command, faults, level)
    note, there = "", True
    if not ended.counted.reached:
        why, there = ended.counted.why_not(level)
        note = f"the program was not reached: {why}"
    elif faults and (why := ended.counted.idle_note()):
        note = f"{', '.join(faults)} {why}"
    if written is not None:
        try:
            written.finish(ended, note)
        except OSError as error:
            raise UsageError(f"--log {log}: {error.strerror or error}; name a file that can be written") from None
    if note:
        click.echo(f"inject: {note}", err=True)
    return ended.code or (0 if there else USAGE)
