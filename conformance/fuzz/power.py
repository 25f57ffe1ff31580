"""How soon generated programs find each fault of the reference device: the table of docs/fuzz.md.

``python -m conformance.fuzz.power`` prints it. The device and the programs are deterministic, so the
table is the same everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
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

#: Faults that generated programs cannot show, with the reason: by the clause that catches them, or by name.
_BY_CLAUSE: Final[Mapping[str, str]] = MappingProxyType(
    {
        **dict.fromkeys(
            ("STM-CONC-1", "STM-CONC-2", "EVT-LAG-1", "EVT-QNB-1", "THR-2", "EVT-ASK-1", "EVT-FLAG-1"),
            ("its clause is a SHOULD, which fuzz counts and does not judge"),
        ),
        **dict.fromkeys(("EVT-WAIT-6", "EVT-ERR-1"), "generated programs stay on one device"),
        **dict.fromkeys(
            ("STM-LEGACY-1", "STM-LEGACY-2", "STM-NB-1", "STM-PRIO-1"),
            ("generated programs use streams of one kind, which the default stream does not order"),
        ),
        **dict.fromkeys(("HFN-ORDER-1", "HFN-BLOCK-1"), "no host function is generated"),
        **dict.fromkeys(("TIM-ERR-1", "TIM-POS-1", "TIM-BRK-1"), "no elapsed time is asked for"),
        **dict.fromkeys(
            ("CAP-1", "CAP-2", "CAP-3", "EVT-IPC-1", "THR-1", "MEM-VIS-2", "MEM-PIN-1", "STM-DESTROY-1"),
            "only an experiment shows it: no program can write it down",
        ),
    }
)
_BY_NAME: Final[Mapping[str, str]] = MappingProxyType(
    {
        "stream-sync-early": "a generated program synchronizes only what must be complete",
        "late-cross-device-wait": "generated programs stay on one device",
        "peer-copy-orders-no-data": "generated programs stay on one device",
        "large-copy-not-captured": "blocks of any size are an experiment's",
    }
)


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


def left_out(name: str) -> str:
    """Why generated programs cannot show a fault; empty if they can."""
    return _BY_NAME.get(name) or _BY_CLAUSE.get(FAULTS[name].killed_by, "")


def rows(faults: Iterable[str] = FAULTS) -> Iterator[Row]:
    """Each fault of the catalogue that is not left out."""
    for fault in faults:
        if left_out(fault):
            continue
        yield power(ReferenceBackend((fault,), alias="unnamed"), fault)


def table(found: Iterable[Row]) -> str:
    """The rows in Markdown."""
    return tabulate(
        [(row.fault, row.programs or "none", ", ".join(row.failed), row.clause, row.operations) for row in found],
        headers=("fault", "programs", "first finding", "shrunk by", "operations"),
        tablefmt="github",
        disable_numparse=True,
    )


def omissions() -> str:
    """The faults that are left out, by reason, in Markdown."""
    by_reason: dict[str, list[str]] = {}
    for name in FAULTS:
        if reason := left_out(name):
            by_reason.setdefault(reason, []).append(name)
    return "\n".join(f"- {reason}: {', '.join(f'`{n}`' for n in names)}" for reason, names in by_reason.items())


if __name__ == "__main__":
    click.echo(table(rows()))
    click.echo(omissions())
