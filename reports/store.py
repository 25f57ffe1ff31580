"""Reading and writing reports. What is written appears whole or not at all; what is read is checked first.

A report's version is read before anything is validated, so that a newer report is refused by name
and never half understood.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from reports import reading
from reports.reading import DECISION as DECISION
from reports.reading import LOG as LOG
from reports.reading import REPORT as REPORT
from reports.reading import ReportError as ReportError
from reports.records import DecisionFile, Header, Report, Result

MARKDOWN: Final = "report.md"
FILES: Final = (REPORT, MARKDOWN, DECISION, LOG)
#: Where a run sets aside what an earlier one left in the same folder.
PREVIOUS: Final = "previous"


_Record = TypeVar("_Record", Report, DecisionFile)


def write_atomic(path: Path, data: bytes) -> None:
    """Write a file so that readers see the old or the new content, never a part."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def encode(record: Any) -> bytes:
    """A record as JSON in one line: indentation would double a report."""
    return msgspec.json.encode(record) + b"\n"


def write_report(folder: Path, report: Report, markdown: str) -> None:
    """Write report.json, report.md and decision.json, the decision last: it names the report's hash."""
    data = encode(report)
    write_atomic(folder / REPORT, data)
    write_atomic(folder / MARKDOWN, markdown.encode())
    short = DecisionFile(
        header=report.header,
        verdict=report.verdict,
        decision=report.decision,
        report_sha256=hashlib.sha256(data).hexdigest(),
    )
    write_atomic(folder / DECISION, msgspec.json.format(encode(short), indent=1) + b"\n")


def set_aside(folder: Path) -> None:
    """Move an earlier run's files out of the way, so that a new run that is cut off cannot pass for it."""
    found = [name for name in FILES if (folder / name).exists()]
    if not found:
        return
    aside = folder / PREVIOUS
    if REPORT not in found and (aside / REPORT).exists():
        return  # a cut-off log never displaces a whole report
    aside.mkdir(exist_ok=True)
    for name in FILES:
        with contextlib.suppress(FileNotFoundError):
            (aside / name).unlink()
    for name in found:
        os.replace(folder / name, aside / name)


class Log:
    """events.jsonl: a header, a line per case and result, a footer. Without the footer it is incomplete."""

    def __init__(self, path: Path, header: Header) -> None:
        self._file = path.open("wb")
        self._line({"type": "header", "header": header})

    def _line(self, record: dict[str, Any]) -> None:
        self._file.write(msgspec.json.encode(record) + b"\n")
        self._file.flush()

    def case(self, probe: str, variant: str) -> None:
        """A case begins."""
        self._line({"type": "case", "probe": probe, "variant": variant})

    def result(self, result: Result) -> None:
        """A case has its result."""
        self._line({"type": "result", "result": result})

    def footer(self, report: Report) -> None:
        """The run is complete."""
        self._line({"type": "footer", "header": report.header, "verdict": report.verdict, "decision": report.decision})

    def close(self) -> None:
        """Close the file; without a footer it says by itself that it is incomplete."""
        self._file.close()


def load_decision(path: Path) -> DecisionFile:
    """The decision of a run's folder, decision.json, report.json or events.jsonl. Raises ReportError."""
    file, data = reading.load(path)
    kept = {name: data[name] for name in DecisionFile.__struct_fields__ if name in data}
    return _convert(Path(file), {"report_sha256": ""} | kept, DecisionFile)


def load_report(path: Path) -> Report:
    """A whole report, from report.json or the folder that holds it. Raises ReportError."""
    file = path / REPORT if path.is_dir() else path
    report = _convert(file, reading.read_json(str(file)), Report)
    if not report.header.complete:
        raise ReportError(f"{file} is of a run that did not finish; run the suite again")
    return report


def _convert(path: Path, data: dict[str, Any], kind: type[_Record]) -> _Record:
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise ReportError(f"{path} does not fit the schema: {error}; run the suite again") from None
