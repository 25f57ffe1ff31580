"""The engine's switch and reports that were damaged, contradict themselves or are no files."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
import switch_helpers
from helpers import cli, is_one_line
from switch_helpers import document, write

from conformance import fingerprint, workaround
from conformance.workaround import choose, decision_path, ring_size
from reports.reading import LARGEST
from reports.records import Outcome
from reports.store import DECISION, encode

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

own_machine = switch_helpers.own_machine


@pytest.fixture(autouse=True)
def here(own_machine: None) -> None:
    """A machine of its own."""


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value in a JSON document, containers too."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path for path in (path,) if path] + [leaf for key, v in inner for leaf in leaves(v, (*path, key))]


@pytest.mark.parametrize("value", [None, True, False, -1, 2, "x", "not-needed", [], {}, "gone"])
def test_no_damage_to_a_late_report_switches_the_ring_off(tmp_path: Path, value: object) -> None:
    path = tmp_path / DECISION
    whole = document(Outcome.ENABLE)
    whole["decision"]["form"] = "next-wait"
    assert choose(2, backend="cuda", report=write(tmp_path, whole), environ={}).source == workaround.DECIDED
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
        # Against what was measured.
        lambda: entries[3].update(rings=[]),
        lambda: entries[3].update(rings=[{"ring": 1, "late": None}]),
        lambda: entries[3].update(rings=[{"ring": 4, "late": False}]),
        lambda: entries[3]["rings"].append({"ring": 1, "late": None}),
        lambda: whole["decision"].update(form="next-wait"),
        lambda: whole["header"]["gate"].update(assurance="timed"),
        lambda: whole["header"]["gate"].update(assurance="none"),
        lambda: whole["header"]["gate"].pop("assurance"),
        lambda: whole["header"].pop("gate"),
        lambda: whole["header"].pop("surfaces"),
        lambda: whole["header"].update(surfaces="vendor"),
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


@pytest.mark.parametrize("outcome", [Outcome.ENABLE, Outcome.INEFFECTIVE])
def test_what_asks_for_an_order_must_have_been_measured_too(tmp_path: Path, outcome: Outcome) -> None:
    def said() -> tuple[int, str]:
        done = cli("decide", write(tmp_path, whole), "--in-flight", 4, "--format", "env")
        assert ring_size(4, backend="cuda", report=tmp_path / DECISION, environ={}) == 4
        return done.code, done.out

    whole = document(outcome)
    whole["decision"]["form"] = "next-wait"  # late, and so it may be
    assert said()[0] in (10, 11)
    entry = whole["decision"]["per_in_flight"][3]
    first, full = [{"ring": 1, "late": True}], [{"ring": 4, "late": outcome is Outcome.INEFFECTIVE}]
    entry["rings"] = [*first, *full]
    assert said()[0] in (10, 11)
    for rings in ([], first, full, [{"ring": 1, "late": False}, *full], [*first, {"ring": 4, "late": None}]):
        entry["rings"] = rings
        assert said() == (12, "")
    entry["rings"] = [*first, *full]
    whole["header"]["gate"]["assurance"] = "timed"
    assert said() == (12, "")


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
