"""``selftest``: the kill matrix. Exit codes: 0 every device as expected and as the matrix says, 1 not, 2 usage."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click
from tabulate import tabulate
from tqdm import tqdm

from conformance import matrix
from conformance.consistency import check_names
from conformance.errors import UsageError, unknown_name
from conformance.selftest import Row, devices, selftest


@click.command("selftest")
@click.argument("faults", nargs=-1)
@click.option("--aliases", type=int, metavar="SEED", help="Run every device under a random name made from SEED.")
@click.option("--jobs", type=click.IntRange(1), help="Processes.  [one per processor]")
@click.option("--write", is_flag=True, help="Write the matrix file anew, where every device is as expected.")
def selftest_command(faults: Sequence[str], aliases: int | None, jobs: int | None, write: bool) -> int:
    """Prove on wrong devices that the suite can fail, and on legal ones that it does not."""
    check_names()
    every = devices()
    known = sorted({name for device in every for name in device})
    for name in faults:
        if name not in known:
            raise UsageError(unknown_name("fault", name, known, "(see 'stream-conformance list --faults')"))
    if write and faults:
        raise UsageError("--write makes the whole matrix: leave the names of faults out")
    total = sum(not faults or any(name in device for name in faults) for device in every)
    bar = tqdm(total=total, disable=not sys.stderr.isatty(), leave=False, unit="device")

    def told(row: Row) -> None:
        bar.set_postfix_str(row.name, refresh=False)
        bar.update()

    try:
        rows = selftest(faults, seed=aliases, jobs=jobs, told=told)
    finally:
        bar.close()
    click.echo(table(rows))
    problems = [f"{row.name}: {problem}" for row in rows for problem in row.problems]
    if not faults:
        judged, measures = matrix.blind(rows)
        problems += [f"probe {name} tests a clause that binds, and catches nothing" for name in judged]
        click.echo(f"measurements, which judge nothing: {', '.join(measures)}")
    if write and not problems:
        _write(rows)
    else:
        problems += [f"matrix: {text}" for text in matrix.differences(rows, matrix.load(), whole=not faults)]
    for problem in problems:
        click.echo(problem, err=True)
    good = sum(not row.problems for row in rows)
    click.echo(f"{good} of {len(rows)} devices as expected" + (" under random names" if aliases is not None else ""))
    return 1 if problems else 0


def _write(rows: Sequence[Row]) -> None:
    try:
        matrix.PATH.write_text(matrix.text(rows), encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"the matrix {matrix.PATH} cannot be written: {error.strerror}; --write is for a checkout"
        ) from None
    click.echo(f"wrote {matrix.PATH}")


def table(rows: Sequence[Row]) -> str:
    """The matrix for people."""
    lines = [
        [row.name, row.form or "-", "/".join(row.kinds) or "-", *row.outcomes, " ".join(row.found) or "-"]
        for row in rows
    ]
    return tabulate(lines, ["device", "form", "late", "n=2", "n=3", "n=4", "clauses found"])
