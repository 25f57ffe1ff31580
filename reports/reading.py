"""Reading a decision with the standard library alone: for an engine's start, which waits for no other import.

What a decision is read from (decision.json, report.json or events.jsonl) is checked as far as anyone who decides by
it relies on it; `reports.store` gives the same files as typed records. Source: docs/rules.md 4.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

#: Read before anything else in a report; a reader refuses every other number.
SCHEMA_VERSION: Final = 1

REPORT: Final = "report.json"
DECISION: Final = "decision.json"
LOG: Final = "events.jsonl"

#: The API family that a vendor's own module has, and that engines use; a report's `surfaces` name those it drove.
VENDOR: Final = "vendor"

#: Bytes above which a file is no report of this suite: a standard one stays under 4 MB.
LARGEST: Final = 256 << 20


class Outcome(str, Enum):
    """What the decision says about the ring at one depth."""

    NOT_NEEDED = "not-needed"
    ENABLE = "enable"
    INEFFECTIVE = "ineffective"
    UNDECIDED = "undecided"


class ReportError(Exception):
    """A report that cannot be used; one line: what, why and what to do."""


class Depth(NamedTuple):
    """What a report says of one number of steps in flight; ``entry`` is its own words."""

    in_flight: int
    outcome: Outcome
    ring: int | None
    reason: str
    late: bool  # with one copy stream: decided, or measured and not decided
    entry: Mapping[str, Any]


class Found(NamedTuple):
    """What a decision rests on, and what it is per number of steps in flight."""

    backend: str
    device: int
    surfaces: tuple[str, ...]
    simulated: bool
    fault: tuple[str, ...]
    injected: tuple[str, ...]
    parts: Mapping[str, str]
    form: str | None  # how late events were published, if any was proved late
    depths: Mapping[int, Depth]
    price: Mapping[str, Any] | None = None  # what a ring costs others, in the report's own words

    @property
    def late(self) -> bool:
        """Does it say of any depth, or of the device, that events are late?"""
        return self.form is not None or any(depth.late for depth in self.depths.values())


def find(path: str | os.PathLike[str]) -> Found:
    """The decision of a run's folder or of one of its files, checked. Raises ReportError."""
    file, data = load(path)
    try:
        return _found(data)
    except (KeyError, TypeError, ValueError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise ReportError(f"{file} does not fit the schema: {what}; run the suite again") from None


def load(path: str | os.PathLike[str]) -> tuple[str, dict[str, Any]]:
    """(file, its JSON with header, verdict and decision) of a finished run. Raises ReportError."""
    path = os.fspath(path)
    if os.path.isdir(path):
        file = next((f for n in (DECISION, REPORT, LOG) if os.path.isfile(f := os.path.join(path, n))), None)
        if file is None:
            raise ReportError(
                f"{path} holds no report: none of {DECISION}, {REPORT}, {LOG} is in it; run the suite first"
            )
        path = file
    data = _from_log(path) if path.endswith(".jsonl") else read_json(path)
    if data["header"].get("complete") is not True:
        raise ReportError(f"{path} is of a run that did not finish; run the suite again")
    return path, data


def read_json(path: str) -> dict[str, Any]:
    """A file's JSON, of this schema version. Raises ReportError."""
    text = _bytes(path)
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ReportError(f"{path} is not JSON, or was cut off ({error}); run the suite again") from None
    return _versioned(path, data)


def _bytes(path: str) -> bytes:
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            raise ReportError(f"{path} is no file; name a run's folder or one of its files")
        if status.st_size > LARGEST:
            raise ReportError(f"{path} is too large for a report ({status.st_size >> 20} MB); name a run's file")
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        raise ReportError(f"{path} does not exist; name a run's folder or one of its files") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ReportError(f"{path!r} cannot be read: {why}; check its name and its permissions") from None


def _versioned(path: str, data: Any) -> dict[str, Any]:
    header = data.get("header") if isinstance(data, dict) else None
    version = header.get("schema_version") if isinstance(header, dict) else None
    if version is None:
        raise ReportError(f"{path} is no report of this suite: it has no header with a schema_version")
    if type(version) is not int or version != SCHEMA_VERSION:
        raise ReportError(
            f"{path} has schema version {version}, this suite reads {SCHEMA_VERSION}; "
            "use the suite version that wrote it, or run again"
        )
    return dict(data)


def _from_log(path: str) -> dict[str, Any]:
    """Header, verdict and decision of a log, which only its footer holds."""
    lines = _bytes(path).splitlines()
    try:
        first, last = json.loads(lines[0]), json.loads(lines[-1])
    except (IndexError, ValueError, RecursionError):
        raise ReportError(f"{path} is cut off: its first or last line is no JSON; run the suite again") from None
    _versioned(path, first)
    if not isinstance(last, dict) or last.get("type") != "footer":
        raise ReportError(f"{path} has no footer: the run did not finish; run the suite again")
    return _versioned(path, last)


def _found(data: Mapping[str, Any]) -> Found:
    header, decision = data["header"], _is(data["decision"], dict, "decision")
    needed = Outcome(decision["needed"])
    depths: dict[int, Depth] = {}
    for entry in _is(decision["per_in_flight"], list, "per_in_flight"):
        depth = _depth(_is(entry, dict, "per_in_flight"))
        if depth.in_flight in depths:
            raise ValueError(f"{depth.in_flight} in flight is decided twice")
        depths[depth.in_flight] = depth
    parts = _is(_is(header["fingerprint"], dict, "fingerprint")["parts"], dict, "fingerprint.parts")
    form, price = decision["form"], decision.get("price")
    _check(depths, needed, form, _is(header["gate"], dict, "gate")["assurance"])
    return Found(
        backend=_is(header["backend"], str, "backend"),
        device=_is(_is(header["device"], dict, "device").get("index", 0), int, "device.index"),
        surfaces=_words(header["surfaces"], "surfaces"),
        simulated=_is(header["simulated"], bool, "simulated"),
        fault=_words(header["fault"], "fault"),
        injected=_words(header["injected"], "injected"),
        parts={name: _is(value, str, f"fingerprint part {name}") for name, value in parts.items()},
        form=None if form is None else _is(form, str, "form"),
        depths=depths,
        price=None if price is None else _is(price, dict, "price"),
    )


def _check(depths: Mapping[int, Depth], needed: Outcome, form: object, assurance: object) -> None:
    """Raise ValueError for entries that contradict each other or what the run was made with: a file that was damaged
    or mended by hand."""
    if not depths or sorted(depths) != list(range(1, len(depths) + 1)):
        raise ValueError(f"it decides for {sorted(depths)} in flight, not for 1 and all that follow")
    headline = depths[2].outcome if 2 in depths else Outcome.UNDECIDED
    if needed is not headline:
        raise ValueError(f"needed is {needed.value}, and 2 in flight are {headline.value}")
    for depth in depths.values():
        if depth.outcome is Outcome.UNDECIDED:
            continue
        if assurance != "causal":
            raise ValueError(f"{depth.in_flight} in flight are {depth.outcome.value} by gates that are {assurance}")
        if depth.outcome is not Outcome.NOT_NEEDED:
            continue
        late = [n for n in range(1, depth.in_flight) if depths[n].late]
        if late:
            raise ValueError(f"{depth.in_flight} in flight are {depth.outcome.value}, and {late[0]} late")
        if depth.in_flight > 1 and form is not None:
            raise ValueError(f"{depth.in_flight} in flight are {depth.outcome.value}, and events are late ({form})")


#: What was measured, by outcome: (ring, or None for one as long as the steps in flight; was it late?).
_MEASURED: Final[Mapping[Outcome, tuple[tuple[int | None, bool], ...]]] = {
    Outcome.NOT_NEEDED: ((1, False),),
    Outcome.ENABLE: ((1, True), (None, False)),
    Outcome.INEFFECTIVE: ((1, True), (None, True)),
}


def _depth(entry: Mapping[str, Any]) -> Depth:
    """One entry, which must not contradict itself. Raises ValueError or TypeError where it does."""
    n, outcome = _is(entry["in_flight"], int, "in_flight"), Outcome(entry["outcome"])
    ring = entry["ring"]
    _is(entry.get("warning", ""), str, "warning")
    if (outcome is Outcome.ENABLE) != (ring is not None):
        raise ValueError(f"{n} in flight is {outcome.value} with ring {ring}")
    if ring is not None and _is(ring, int, "ring") < n:
        raise ValueError(f"a ring of {ring} for {n} in flight is too short")
    rows = [_is(row, dict, "rings") for row in _is(entry["rings"], list, "rings")]
    late = {k: [row["late"] for row in rows if _is(row["ring"], int, "ring") == k] for k in (1, n)}
    for k, expected in _MEASURED.get(outcome, ()):
        if any(seen is not expected for seen in late[k or n]) or not late[k or n]:
            raise ValueError(f"{n} in flight is {outcome.value}, and with ring {k or n} late is {late[k or n]}")
    return Depth(
        in_flight=n,
        outcome=outcome,
        ring=ring,
        reason=_is(entry["reason"], str, "reason"),
        late=True in late[1] or outcome in (Outcome.ENABLE, Outcome.INEFFECTIVE),
        entry=entry,
    )


def _is(value: Any, kind: type, what: str) -> Any:
    """``value``, if it is of exactly this type: a bool is no number."""
    if type(value) is not kind:
        raise TypeError(f"{what} is {value!r:.40}, not a {kind.__name__}")
    return value


def _words(value: Any, what: str) -> tuple[str, ...]:
    return tuple(_is(word, str, what) for word in _is(value, list, what))
