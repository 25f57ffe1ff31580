"""The specification as data: numbered clauses, how strongly each binds each profile, and by which document.

Imports nothing outside the standard library and this package.
"""

from __future__ import annotations

from difflib import get_close_matches
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from conformance.spec import beyond, calls, events, queues, streams, waits, work
from conformance.spec.records import PROFILES, Basis, Binding, Clause, Level, Source

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CLAUSES", "PROFILES", "Basis", "Binding", "Clause", "Level", "Source", "clause"]


def _by_id(*groups: tuple[Clause, ...]) -> Mapping[str, Clause]:
    """The clauses of all groups by id, in the order given; ValueError for an id used twice."""
    table: dict[str, Clause] = {}
    for group in groups:
        for entry in group:
            if entry.id in table:
                raise ValueError(f"clause {entry.id} is defined twice")
            table[entry.id] = entry
    return MappingProxyType(table)


#: Every clause by its id; the order is the one in which reports list them.
CLAUSES: Final = _by_id(
    events.CLAUSES, waits.CLAUSES, beyond.CLAUSES, streams.CLAUSES, queues.CLAUSES, work.CLAUSES, calls.CLAUSES
)


def clause(clause_id: str) -> Clause:
    """The clause with this id; LookupError, one line with close names, for an unknown one."""
    found = CLAUSES.get(clause_id)
    if found is None:
        close = get_close_matches(clause_id.upper(), CLAUSES, n=3)
        hint = f"did you mean {', '.join(close)}?" if close else "conformance.spec.CLAUSES lists the known ones"
        raise LookupError(f"unknown clause {clause_id!r}: {hint}")
    return found
