"""Takes the user's home path out of a whole record: a vendor's errors and a loader's list of places hold it.

Of a report, its log and whatever else is written or sent on; what was recorded by key (a folder name) stays.
"""

from __future__ import annotations

import os
from typing import Any, TypeVar

import msgspec

from conformance.fingerprint import home_free

_Record = TypeVar("_Record", bound=msgspec.Struct)


def private(record: _Record) -> _Record:
    """The record itself if none of its texts holds the home path, else a copy with ``~`` there."""
    home = os.path.expanduser("~")
    if len(home) <= 1 or msgspec.json.encode(home)[1:-1] not in msgspec.json.encode(record):
        return record
    made: _Record = msgspec.convert(_without(msgspec.to_builtins(record)), type(record))
    return made


def _without(value: Any) -> Any:
    if isinstance(value, str):
        return home_free(value)
    if isinstance(value, dict):
        return {key: _without(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without(inner) for inner in value]
    return value
