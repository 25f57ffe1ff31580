"""The record of a diagnosis, its file, and its text. Imports nothing that runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from tabulate import tabulate

from reports.records import Mechanism
from reports.store import ReportError, encode, write_atomic

if TYPE_CHECKING:
    from pathlib import Path

FILE: Final = "diagnosis.json"


class FactorRow(msgspec.Struct, frozen=True, kw_only=True):
    """One level of one factor, everything else as at the point diagnosed."""

    factor: str
    level: str
    here: bool  # the level of the point itself
    late: int = 0
    of: int = 0
    reason: str = ""  # why it was not tried, or says nothing


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """A smallest set of factors that decides: late at these levels, in time as soon as one of them changes."""

    levels: dict[str, tuple[str, ...]]  # factor -> the levels at which it is late


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """Which factors decide that an event is late."""

    backend: str
    device: str
    fault: tuple[str, ...]
    probe: str
    variant: str
    found: bool  # was any point late?
    sentence: str
    point: dict[str, str] = {}
    causes: tuple[Cause, ...] = ()
    rows: tuple[FactorRow, ...] = ()
    device_waits: str = ""  # what a stream that waits for the event sees
    mechanism: Mechanism | None = None
    points: int = 0
    shots: int = 0
    seconds: float = 0.0


def write(folder: Path, diagnosis: Diagnosis) -> Path:
    """Write diagnosis.json into a folder."""
    path = folder / FILE
    write_atomic(path, msgspec.json.format(encode(diagnosis), indent=1) + b"\n")
    return path


def load(folder: Path) -> Diagnosis | None:
    """The diagnosis in a folder, None if there is none. Raises ReportError for one that cannot be read."""
    path = folder / FILE
    if not path.is_file():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=Diagnosis)
    except (msgspec.DecodeError, OSError) as error:
        raise ReportError(f"{path} cannot be read ({error}); run 'stream-conformance diagnose' again") from None


def text(diagnosis: Diagnosis) -> str:
    """The sentence, the mechanism and the table, as plain text."""
    fault = f" with {' + '.join(diagnosis.fault)}" if diagnosis.fault else ""
    lines = [
        f"{diagnosis.backend}{fault}: {diagnosis.device}; {diagnosis.probe}[{diagnosis.variant}]",
        diagnosis.sentence,
    ]
    if diagnosis.device_waits:
        lines.append(diagnosis.device_waits)
    if diagnosis.mechanism is not None:
        lines.append(f"mechanism: {diagnosis.mechanism.name.value}: {diagnosis.mechanism.text}")
    if diagnosis.rows:
        rows = [
            [row.factor, row.level + (" *" if row.here else ""), row.reason or f"late {row.late} of {row.of}"]
            for row in diagnosis.rows
        ]
        lines += ["", tabulate(rows, ["factor", "level (* the point diagnosed)", "event"], disable_numparse=True)]
    lines.append(f"{diagnosis.points} points, {diagnosis.shots} runs, {diagnosis.seconds:.1f} s")
    return "\n".join(lines)
