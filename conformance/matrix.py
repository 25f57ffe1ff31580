"""The kill matrix as a file: which device is caught by which clauses and probes, and what is decided on it.

It is made by ``selftest --write`` and compared by every other selftest, so that a check that has become
blind, or sees more than it should, shows as a changed line.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from conformance.errors import HarnessError
from conformance.spec import CLAUSES, Level
from probes.catalogue import all_probes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from conformance.selftest import Row

#: The file, in the package.
PATH: Final = Path(__file__).with_name("matrix.tsv")
_COLUMNS: Final = ("device", "caught", "measured", "form", "late", "n=2", "n=3", "n=4", "probes")
_NONE: Final = "-"
#: What catches nothing, and why that is so.
BLIND: Final[Mapping[str, str]] = {
    "neighbours, EVT-LIVE-1": "what makes it fail is proved on a smaller program first, and here only glanced at",
}


def line(row: Row) -> str:
    """One device as a line; clauses that bind are caught, those that only should hold are measured."""
    measured = [clause for clause in row.found if clause not in row.caught]
    probes = _shortened(row.killers)
    fields = (row.name, *map(_joined, (row.caught, measured)), row.form or _NONE, _joined(row.kinds), *row.outcomes)
    return "\t".join((*fields, _joined(probes)))


def text(rows: Iterable[Row]) -> str:
    """The whole file."""
    return "\n".join(("\t".join(_COLUMNS), *map(line, rows))) + "\n"


def load() -> Mapping[str, str]:
    """The lines of the file by device; HarnessError where it cannot be read."""
    try:
        lines = PATH.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise HarnessError(f"the matrix {PATH} cannot be read: {error.strerror}; selftest --write makes it") from None
    return {entry.split("\t", 1)[0]: entry for entry in lines[1:]}


def differences(rows: Sequence[Row], known: Mapping[str, str], *, whole: bool) -> list[str]:
    """Where devices came out otherwise than the file says; with ``whole``, also what only one side has."""
    found = []
    for row in rows:
        if row.name not in known:
            found.append(f"{row.name}: is not in the matrix")
        elif known[row.name] != line(row):
            before, now = known[row.name].split("\t"), line(row).split("\t")
            changed = [f"{column} {a} -> {b}" for column, a, b in zip(_COLUMNS, before, now, strict=False) if a != b]
            found.append(f"{row.name}: {'; '.join(changed)}")
    if whole:
        here = {row.name for row in rows}
        found += [f"{name}: is in the matrix, and no device" for name in known if name not in here]
    return found


def blind(rows: Sequence[Row]) -> tuple[list[str], list[str]]:
    """Over the whole matrix: what catches nothing, and the probes that only measure.

    The first are a probe and a clause that binds (``probe, CLAUSE``) and a variant of an experiment and its
    clause (``probe[variant], CLAUSE``), but for `BLIND`.
    """
    where = {entry for row in rows for entry in row.where}
    seen = {(probe, clause) for probe, _, clause in where}
    judged, measures = [], []
    for probe in all_probes().values():
        if probe.family == "mixed" or all(case.second_gate for case in probe.cases):
            continue  # the reference device has one surface and one kind of gate
        binding = [clause for clause in probe.clauses if _binds(clause)]
        judged += [f"{probe.name}, {clause}" for clause in binding if (probe.name, clause) not in seen]
        judged += [
            f"{probe.name}[{case.variant}], {clause}"
            for case in probe.cases
            if case.experiment
            for clause in case.clauses or probe.clauses
            if (probe.name, case.variant, clause) not in where
        ]
        if not binding:
            measures.append(probe.name)
    return [name for name in judged if name not in BLIND], measures


def _binds(clause: str) -> bool:
    return CLAUSES[clause].binding("reference").level is Level.MUST


def _shortened(probes: Iterable[str]) -> list[str]:
    """Rings and rows of blocked streams as one name each: ring, independent."""
    return sorted({name.partition("-")[0] if name[-1:].isdigit() else name for name in probes})


def _joined(names: Iterable[str]) -> str:
    return " ".join(names) or _NONE
