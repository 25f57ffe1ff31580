"""The JSON Schema of a report, made from the records: they are its only source."""

from __future__ import annotations

from typing import Any

import msgspec

from reports.records import DecisionFile, Report


def report_schema() -> dict[str, Any]:
    """JSON Schema of report.json."""
    return msgspec.json.schema(Report)


def decision_schema() -> dict[str, Any]:
    """JSON Schema of decision.json."""
    return msgspec.json.schema(DecisionFile)
