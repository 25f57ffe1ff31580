"""The engine's switch: every row of its decision table, what damage to a report can do, and what it imports."""

from __future__ import annotations

import itertools
import json
import logging
import os
from typing import TYPE_CHECKING, Any

import pytest
from helpers import cli, decision_file, environment, is_one_line, python

from conformance import fingerprint, workaround
from conformance.workaround import VARIABLE, choose, decision_path, in_flight_of, ring_size
from reports.reading import LARGEST
from reports.records import SCHEMA_VERSION, Outcome
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


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine of its own: what it is, that no torch says what it drives, and an empty place for decisions."""
    monkeypatch.setattr(fingerprint, "read_here", lambda backend, *_: HERE | {"backend": backend})
    monkeypatch.setattr(workaround, "_installed_backend", lambda: None)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv(VARIABLE, raising=False)


# The decision table: environment x report x backend x steps in flight.

#: What a report leads to where the variable leaves it the word, up to 4 in flight and above what was measured.
ONE, ARMED, DEFAULT = "one", "armed", "default"


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


def write(folder: Path, holds: Document | bytes | None) -> Path:
    """A file that holds this, or the name of none."""
    path = folder / DECISION
    if holds is not None:
        path.write_bytes(holds if isinstance(holds, bytes) else json.dumps(holds).encode())
    return path


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


# Damage.


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value in a JSON document, containers too."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path for path in (path,) if path] + [leaf for key, v in inner for leaf in leaves(v, (*path, key))]


@pytest.mark.parametrize("value", [None, True, False, -1, 2, "x", "not-needed", [], {}, "gone"])
def test_no_damage_to_a_late_report_switches_the_ring_off(tmp_path: Path, value: object) -> None:
    path = tmp_path / DECISION
    whole = document(Outcome.ENABLE)
    whole["decision"]["form"] = "next-wait"
    late_row(whole)
    for leaf in leaves(whole):
        damaged = json.loads(json.dumps(whole))
        inner = damaged
        for key in leaf[:-1]:
            inner = inner[key]
        if value == "gone":
            del inner[leaf[-1]]
        else:
            inner[leaf[-1]] = value
        path.write_text(json.dumps(damaged))
        for n in (2, 3, 4, 9):
            assert ring_size(n, backend="cuda", report=path, environ={}) >= n, leaf


def test_a_report_that_is_cut_off_anywhere_arms(tmp_path: Path) -> None:
    whole = encode(document(Outcome.NOT_NEEDED)).rstrip()
    path = tmp_path / DECISION
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        assert ring_size(2, backend="cuda", report=path, environ={}) == 2
    path.write_bytes(whole)
    assert ring_size(2, backend="cuda", report=path, environ={}) == 1


def test_entries_that_contradict_each_other_decide_nothing(tmp_path: Path) -> None:
    whole = document(Outcome.NOT_NEEDED)
    entries = whole["decision"]["per_in_flight"]
    late_one = [{"ring": 1, "late": True}]
    contradictions: list[Callable[[], object]] = [
        lambda: entries.append(entries[1]),
        lambda: entries.pop(2),
        lambda: entries[0].update(in_flight=True),
        lambda: entries[1].update(ring=2),
        lambda: entries[3].update(outcome="enable", ring=3),
        lambda: entries[3].update(rings=late_one),
        lambda: entries[2].update(outcome="undecided", rings=late_one),
        lambda: whole["decision"].update(needed="enable"),
        lambda: whole["header"].update(complete=None),
        lambda: whole["header"].update(complete="no"),
        lambda: whole["header"].update(schema_version=True),
        lambda: whole["header"].update(schema_version=1.0),
        lambda: whole["header"].update(simulated=0),
    ]
    for contradict in contradictions:
        kept = json.dumps(whole)
        contradict()
        path = write(tmp_path, whole)
        assert ring_size(4, backend="cuda", report=path, environ={}) == 4
        assert cli("decide", path, "--in-flight", 4).code == 12
        whole.clear()
        whole.update(json.loads(kept))
        entries = whole["decision"]["per_in_flight"]


def test_a_machine_that_cannot_be_read_is_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> dict[str, str]:
        raise AttributeError("libnvidia-ml.so.1: undefined symbol: nvmlInit_v2")

    monkeypatch.setattr(fingerprint, "read_here", broken)
    for outcome, size in ((Outcome.NOT_NEEDED, 1), (Outcome.ENABLE, 2)):
        path = write(tmp_path, document(outcome))
        found = choose(2, backend="cuda", report=path, environ={})
        assert (found.size, found.source == workaround.DECIDED) == (size, False)
        assert "nvmlInit_v2" in found.reason
        done = cli("decide", path, "--in-flight", 2)
        assert done.code == 12
        assert is_one_line(done.err)


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    fifo = tmp_path / "pipe.json"
    os.mkfifo(fifo)
    large = tmp_path / "large.json"
    with large.open("wb") as file:
        file.truncate(LARGEST + 1)
    loop = tmp_path / "loop.json"
    loop.symlink_to(loop)
    for path in (fifo, large, loop, tmp_path / ("x" * 300), "/dev/zero"):
        assert ring_size(2, backend="cuda", report=path, environ={}) == 2
        assert cli("decide", path, "--in-flight", 2).code == 12
    assert ring_size(2, backend="cuda", report=tmp_path / "a\0b", environ={}) == 2


def test_a_decision_that_is_installed_and_cannot_be_read_arms(tmp_path: Path) -> None:
    place = decision_path("cuda")
    assert place == str(tmp_path / "state" / "stream-conformance" / "cuda.json")
    assert ring_size(2, backend="cuda") == 1
    folder = tmp_path / "state" / "stream-conformance"
    folder.mkdir(parents=True)
    (folder / "cuda.json").symlink_to(tmp_path / "gone")
    assert ring_size(2, backend="cuda") == 2


# Which backend, where decisions are, how deep.


@pytest.mark.parametrize(
    ("said", "installed", "expected"),
    [
        (None, None, None),
        (None, "musa", "musa"),
        ("cuda", "rocm", "rocm"),  # torch's ROCm builds call their device cuda
        ("cuda", "musa", "musa"),  # and so does torchada
        ("cuda", None, "cuda"),
        ("rocm", "cuda", "rocm"),
        ("musa", "cuda", "musa"),
    ],
)
def test_the_backend_is_told(
    monkeypatch: pytest.MonkeyPatch, said: str | None, installed: str | None, expected: str | None
) -> None:
    monkeypatch.setattr(workaround, "_installed_backend", lambda: installed)
    assert workaround.told(said) == expected
    assert ring_size(2, backend=said, environ={}) == (1 if expected in ("cuda", "rocm") else 2)


def test_where_decisions_are() -> None:
    assert decision_path("musa", {"XDG_STATE_HOME": "/s"}) == "/s/stream-conformance/musa.json"
    home = "/h/.local/state/stream-conformance/cuda.json"
    assert decision_path("cuda", {"HOME": "/h"}) == home
    assert decision_path("cuda", {"HOME": "/h", "XDG_STATE_HOME": "relative"}) == home


@pytest.mark.parametrize(
    ("pp_size", "async_scheduling", "pooling", "expected"),
    [
        (1, True, False, 2),
        (2, True, False, 3),
        (4, True, False, 5),
        (1, False, False, 1),
        (3, False, False, 3),
        (1, True, True, 1),
        (2, True, True, 2),
    ],
)
def test_how_deep_vllm_is(pp_size: int, async_scheduling: bool, pooling: bool, expected: int) -> None:
    assert in_flight_of(pp_size, async_scheduling, pooling) == expected


def test_no_steps_are_an_error() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        ring_size(0)
    with pytest.raises(ValueError, match="at least 1"):
        in_flight_of(0, True, False)


# Installing.


def test_decide_installs_what_the_engine_then_finds(tmp_path: Path) -> None:
    report = write(tmp_path, document(Outcome.ENABLE))
    assert ring_size(3, backend="cuda") == 1
    done = cli("decide", report, "--install")
    assert (done.code, done.out) == (0, "")
    assert is_one_line(done.err)
    assert str(decision_path("cuda")) in done.err
    assert ring_size(3, backend="cuda") == 3
    assert ring_size(3, backend="rocm") == 1
    newer = write(tmp_path, document(Outcome.NOT_NEEDED))
    assert cli("decide", newer, "--install", "--in-flight", 3)[:2] == (0, "not-needed\n")
    assert ring_size(3, backend="cuda") == 1
    assert [path.name for path in (tmp_path / "state" / "stream-conformance").iterdir()] == ["cuda.json"]


@pytest.mark.parametrize(
    "holds",
    [
        b"{",
        document(Outcome.NOT_NEEDED, simulated=True),
        document(Outcome.NOT_NEEDED, parts=HERE | {"backend": "cuda", "driver": "0.9"}),
        document(Outcome.UNDECIDED),
    ],
    ids=["corrupt", "simulated", "stale", "undecided"],
)
def test_what_decides_nothing_displaces_no_decision(tmp_path: Path, holds: Document | bytes) -> None:
    assert cli("decide", write(tmp_path, document(Outcome.ENABLE)), "--install").code == 0
    for more in ((), ("--any-machine", "--allow-simulated")):
        done = cli("decide", write(tmp_path, holds), "--install", *more)
        assert (done.code, done.out) == (12, "")
        assert is_one_line(done.err)
    assert ring_size(3, backend="cuda") == 3


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    done = cli("decide", write(tmp_path, document()), "--install")
    assert done.code == 2
    assert is_one_line(done.err)
    assert "XDG_STATE_HOME" in done.err


# What it costs an engine to ask.


def test_an_engine_imports_the_standard_library_and_nothing_else(tmp_path: Path) -> None:
    report = tmp_path / DECISION
    report.write_bytes(encode(decision_file(Outcome.ENABLE)))
    script = """
import sys
before = set(sys.modules)
import conformance.ring, conformance.vllm_plugin
from conformance.workaround import ring_size
print(ring_size(3, backend="reference", report=sys.argv[1]))
tops = {name.partition(".")[0] for name in set(sys.modules) - before}
print(*sorted(tops - set(sys.stdlib_module_names)))
"""
    done = python("-c", script, report, cwd=tmp_path, env=environment())
    assert done.out.splitlines() == ["3", "conformance reports"], done.err
