"""The engine's switch: every row of its decision table, and that it and `decide` say the same."""

from __future__ import annotations

import itertools
import logging
from typing import TYPE_CHECKING

import pytest
import switch_helpers
from helpers import cli, is_one_line
from switch_helpers import HERE, Document, changed, document, late_row, warn, write

from conformance import workaround
from conformance.workaround import VARIABLE, choose, decision_path, ring_size
from reports.records import SCHEMA_VERSION, Outcome
from reports.store import encode

if TYPE_CHECKING:
    from pathlib import Path

own_machine = switch_helpers.own_machine


@pytest.fixture(autouse=True)
def here(own_machine: None) -> None:
    """A machine of its own."""


# The decision table: environment x report x backend x steps in flight.

#: What a report leads to where the variable leaves it the word, up to 4 in flight and above what was measured.
ONE, ARMED, DEFAULT = "one", "armed", "default"


def reports(backend: str) -> dict[str, tuple[Document | bytes | None, str, str]]:
    """Name -> (what the file holds, None for no file; up to 4 in flight; at 9)."""
    other = HERE | {"backend": backend, "driver": "0.9"}
    foreign = "opencl"
    needless, enable, helpless, unclear = (
        Outcome(word) for word in ("not-needed", "enable", "ineffective", "undecided")
    )
    whole = encode(document(enable, backend=backend))
    return {
        "not needed": (document(needless, backend=backend), ONE, DEFAULT),
        "enable": (document(enable, backend=backend), ARMED, ARMED),
        "ineffective": (document(helpless, backend=backend), ARMED, ARMED),
        "undecided": (document(unclear, backend=backend), DEFAULT, DEFAULT),
        "undecided, a pipeline late": (changed(document(unclear, backend=backend), late_row), ARMED, ARMED),
        "undecided, proved late": (
            changed(document(unclear, backend=backend), lambda d: d["decision"].update(form="idle")),
            ARMED,
            ARMED,
        ),
        "stale, not needed": (document(needless, backend=backend, parts=other), DEFAULT, DEFAULT),
        "stale, enable": (document(enable, backend=backend, parts=other), ARMED, ARMED),
        "foreign, not needed": (document(needless, backend=foreign), DEFAULT, DEFAULT),
        "foreign, enable": (document(enable, backend=foreign), ARMED, ARMED),
        "simulated, not needed": (document(needless, backend=backend, simulated=True), DEFAULT, DEFAULT),
        "simulated, enable": (document(enable, backend=backend, simulated=True), ARMED, ARMED),
        "injected, not needed": (document(needless, backend=backend, injected=("x",)), DEFAULT, DEFAULT),
        "fault, enable": (document(enable, backend=backend, fault=("late-sync",)), ARMED, ARMED),
        "missing": (None, ARMED, ARMED),
        "empty": (b"", ARMED, ARMED),
        "no JSON": (b"\xff\x00", ARMED, ARMED),
        "cut off": (whole[:-9], ARMED, ARMED),
        "unfinished": (
            changed(document(needless, backend=backend), lambda d: d["header"].update(complete=False)),
            ARMED,
            ARMED,
        ),
        "other schema": (
            changed(
                document(needless, backend=backend), lambda d: d["header"].update(schema_version=SCHEMA_VERSION + 1)
            ),
            ARMED,
            ARMED,
        ),
    }


BACKENDS = {None: ARMED, "cuda": ONE, "rocm": ONE, "musa": ARMED, "npu": ARMED, " CUDA ": ONE}
#: The variable -> None where the report has the word, else the least length that it asks for.
SETTINGS: dict[str | None, int | None] = {
    None: None,
    "": None,
    "auto": None,
    " AUTO\n": None,
    "2": 2,
    " 5": 5,
    "1": 0,
    "0": 0,
    "-3": 0,
    "on": 0,
    "2.5": 0,
    "\u00b2": 0,
    "9" * 5000: 0,
}


@pytest.mark.parametrize("state", [*reports("cuda"), None])
@pytest.mark.parametrize("installed", [False, True], ids=["path", "installed"])
def test_the_decision_table(tmp_path: Path, state: str | None, installed: bool) -> None:
    rows = 0
    for backend, default in BACKENDS.items():
        name = (backend or "cuda").strip().lower()
        holds, few, many = reports(name)[state] if state is not None else (None, DEFAULT, DEFAULT)
        report = None
        if installed:
            if backend is None:
                continue  # no place is known
            if holds is None:  # a missing file is no decision there
                few = many = DEFAULT
            place = decision_path(name)
            assert place is not None
            folder = tmp_path / "state" / "stream-conformance"
            folder.mkdir(parents=True, exist_ok=True)
            write(folder, holds).replace(place) if holds is not None else None
        elif state is not None:
            report = write(tmp_path, holds)
        for (setting, least), n in itertools.product(SETTINGS.items(), (1, 2, 3, 9)):
            environ = {"XDG_STATE_HOME": str(tmp_path / "state")} | ({} if setting is None else {VARIABLE: setting})
            word = few if n <= 4 else many
            # What a report does not need can be another device's than the engine's, if that cannot be told.
            armed = (default if word == DEFAULT or backend is None else word) == ARMED
            expected = max(n, least) if least is not None else n if armed else 1
            found = ring_size(n, backend=backend, report=report, environ=environ)
            assert found == expected, (state, backend, setting, n)
            assert ring_size(n, backend=backend, report=report, environ=environ | {VARIABLE: "Off "}) == 1
            rows += 1
    assert rows


def test_every_answer_is_logged_once_with_its_reason(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    cases: list[tuple[dict[str, str], Document | bytes | None, int, str]] = [
        ({VARIABLE: "off"}, None, logging.INFO, "STREAM_CONFORMANCE_RING=off"),
        ({VARIABLE: "2"}, None, logging.WARNING, "too short and was raised"),
        ({VARIABLE: "yes"}, None, logging.WARNING, "neither off nor auto"),
        ({}, document(Outcome.NOT_NEEDED), logging.INFO, "measured"),
        ({}, document(Outcome.ENABLE), logging.INFO, "measured"),
        ({}, changed(document(), warn), logging.WARNING, "holds up an unrelated D2H copy"),
        ({}, document(Outcome.UNDECIDED), logging.INFO, "the default of cuda is not armed"),
        ({}, document(Outcome.INEFFECTIVE), logging.WARNING, "does not help"),
        ({}, document(simulated=True), logging.WARNING, "says late, and does not decide here"),
        ({}, b"{", logging.WARNING, "nobody knows what the report says"),
    ]
    for environ, holds, level, words in cases:
        caplog.clear()
        size = ring_size(3, backend="cuda", report=write(tmp_path, holds), environ=environ)
        (record,) = caplog.records
        assert record.levelno == level
        text = record.getMessage()
        assert words in text
        assert is_one_line(text)
        assert (f"ring of {size}" if size > 1 else "one copy stream") in text


# What decide says and what the engine gets can never differ.


@pytest.mark.parametrize("state", reports("cuda"))
def test_decide_and_the_engine_never_disagree(tmp_path: Path, state: str) -> None:
    path = write(tmp_path, reports("cuda")[state][0])
    own = "opencl" if state.startswith("foreign") else "cuda"
    for n in (1, 2, 3, 4, 9):
        said = cli("decide", path, "--in-flight", n)
        env = cli("decide", path, "--in-flight", n, "--format", "env").out
        for backend in (own, "musa", None):
            found = choose(n, backend=backend, report=path, environ={})
            if backend == own:
                assert (found.source == workaround.DECIDED) == (said.code in (0, 10)), found
            if found.source == workaround.DECIDED:
                assert (said.code, found.size) in ((0, 1), (10, n))
                assert env == f"{VARIABLE}={'off' if said.code == 0 else n}\n"
            elif said.code != 0 or backend != own:
                # What decide does not call decided is not decided here either, and what it calls late stays armed.
                assert found.size == (
                    1 if found.source == workaround.DEFAULT and backend in workaround.NOT_ARMED else n
                )
                assert said.code == 12 or found.size == n
