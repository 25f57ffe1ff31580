"""What the tests of the engine's switch share: decisions as JSON, mended by hand, and a machine of its own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from helpers import decision_file

from conformance import fingerprint, workaround
from conformance.workaround import VARIABLE
from reports.records import Outcome
from reports.store import DECISION, encode

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

#: What the reader of this machine's parts finds in these tests, whatever the backend.
HERE = {"device": "gpu", "driver": "1.0", "torch": "2.0"}

Document = dict[str, Any]


def document(outcome: Outcome = Outcome.ENABLE, *, backend: str = "cuda", **how: Any) -> Document:
    """A decision for one to four in flight as JSON, of this machine unless ``parts`` says otherwise."""
    how.setdefault("parts", HERE | {"backend": backend})
    loaded: Document = json.loads(encode(decision_file(outcome, **how)))
    loaded["header"]["backend"] = backend
    return loaded


@pytest.fixture
def own_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What it is, that no torch is installed, and an empty place for decisions."""
    monkeypatch.setattr(fingerprint, "read_here", lambda backend, *_: HERE | {"backend": backend})
    monkeypatch.setattr(workaround, "_driven", frozenset)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv(VARIABLE, raising=False)


def late_row(found: Document) -> None:
    """Undecided, and measured late with one copy stream."""
    for entry in found["decision"]["per_in_flight"]:
        entry["rings"] = [{"ring": 1, "late": True, "worst_lag_steps": 1, "reason": ""}]


def warn(found: Document) -> None:
    """With a ring that costs others."""
    for entry in found["decision"]["per_in_flight"]:
        entry["warning"] = "a ring of so many holds up an unrelated D2H copy"


def changed(found: Document, change: Callable[[Document], object]) -> Document:
    """The document after a change."""
    change(found)
    return found


def write(folder: Path, holds: Document | bytes | None) -> Path:
    """A file that holds this, or the name of none."""
    path = folder / DECISION
    if holds is not None:
        path.write_bytes(holds if isinstance(holds, bytes) else json.dumps(holds).encode())
    return path
