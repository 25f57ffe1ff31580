"""How soon generated programs find each fault of the reference device: the table of docs/fuzz.md.

``python -m conformance.fuzz.power`` prints it. The device and the programs are deterministic, so the
table is the same everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click
from tabulate import tabulate

from conformance.backends.reference import ReferenceBackend
from conformance.faults import FAULTS
from conformance.fuzz.hunt import hunt, recipe_of
from conformance.fuzz.messages import Caught, Job, Progress

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from conformance.backends.api import Backend

#: Programs within which each fault must be found.
LIMIT: Final = 500
SEED: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What came of one fault."""

    fault: str
    programs: int  # to the first finding, that one included; 0: none within the limit
    failed: tuple[str, ...]  # by the program as it was generated
    clause: str  # by which it was shrunk
    operations: int
    shrunk: str


def power(backend: Backend, name: str, *, limit: int = LIMIT) -> Row:
    """Hunt on one device until something is found."""
    job = Job(seed=SEED, size="medium", last=limit)
    found: Caught | None = None
    programs = 0
    for message in hunt(job, backend, recipe_of(job, backend)):
        if isinstance(message, Caught) and message.failed:
            found = message
        elif isinstance(message, Progress):
            programs = message.next
    if found is None:
        return Row(fault=name, programs=0, failed=(), clause="", operations=0, shrunk="")
    return Row(
        fault=name,
        programs=programs,
        failed=found.failed,
        clause=found.clause,
        operations=found.operations,
        shrunk=found.shrunk,
    )


def rows(faults: Iterable[str] = FAULTS) -> Iterator[Row]:
    """Each fault of the catalogue; all are of MUST clauses, and all can be expressed by generated programs."""
    for fault in faults:
        yield power(ReferenceBackend((fault,), alias="unnamed"), fault)


def table(found: Iterable[Row]) -> str:
    """The rows in Markdown."""
    return tabulate(
        [(row.fault, row.programs or "none", ", ".join(row.failed), row.clause, row.operations) for row in found],
        headers=("fault", "programs", "first finding", "shrunk by", "operations"),
        tablefmt="github",
        disable_numparse=True,
    )


if __name__ == "__main__":
    click.echo(table(rows()))
