"""``selftest``: the kill matrix. Exit codes: 0 every device as expected, 1 not, 2 usage."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click
from tqdm import tqdm

from conformance.errors import UsageError, unknown_name
from conformance.selftest import Row, devices, matrix, selftest


@click.command("selftest")
@click.argument("faults", nargs=-1)
@click.option("--aliases", type=int, metavar="SEED", help="Run every device under a random name made from SEED.")
@click.option("--jobs", type=click.IntRange(1), help="Processes.  [one per processor]")
def selftest_command(faults: Sequence[str], aliases: int | None, jobs: int | None) -> int:
    """Prove on wrong devices that the suite can fail, and on legal ones that it does not."""
    every = devices()
    known = sorted({name for device in every for name in device})
    for name in faults:
        if name not in known:
            raise UsageError(unknown_name("fault", name, known, "(see 'stream-conformance list --faults')"))
    total = sum(not faults or any(name in device for name in faults) for device in every)
    bar = tqdm(total=total, disable=not sys.stderr.isatty(), leave=False, unit="device")

    def told(row: Row) -> None:
        bar.set_postfix_str(row.name, refresh=False)
        bar.update()

    try:
        rows = selftest(faults, seed=aliases, jobs=jobs, told=told)
    finally:
        bar.close()
    click.echo(matrix(rows))
    problems = [f"{row.name}: {problem}" for row in rows for problem in row.problems]
    for problem in problems:
        click.echo(problem, err=True)
    good = sum(not row.problems for row in rows)
    click.echo(f"{good} of {len(rows)} devices as expected" + (" under random names" if aliases is not None else ""))
    return 1 if problems else 0
