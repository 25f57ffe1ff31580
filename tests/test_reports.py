"""Reports on disk: the schema, what is written whole or not at all, and what is refused with one line."""

from __future__ import annotations

import hashlib
import json
import os
import socket
from typing import TYPE_CHECKING, Any

import jsonschema
import msgspec
import pytest
from helpers import ROOT, Done, cli, is_one_line

from reports.records import SCHEMA_VERSION, Report
from reports.schema import decision_schema, report_schema
from reports.store import (
    DECISION,
    FILES,
    LOG,
    MARKDOWN,
    PREVIOUS,
    REPORT,
    ReportError,
    load_decision,
    load_report,
    set_aside,
    write_atomic,
    write_report,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

#: A run that shows a finding, a form, controls and rings in well under a second.
SHORT = ("run", "--backend", "reference", "--fault", "late-never", "--depth", "quick", "--max-in-flight", "2")


def short(folder: Path, *more: str) -> Done:
    """A short run to ``folder``."""
    return cli(*SHORT, *more, "--out", folder)


@pytest.fixture(scope="module")
def late(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a short run on a late device; not to be changed."""
    folder = tmp_path_factory.mktemp("late")
    assert short(folder).code == 1
    return folder


@pytest.fixture
def copied(late: Path, tmp_path: Path) -> Path:
    """The same, to be changed."""
    for name in FILES:
        (tmp_path / name).write_bytes((late / name).read_bytes())
    return tmp_path


def data_of(path: Path) -> Any:
    """A file's JSON."""
    return json.loads(path.read_bytes())


def numbers_of(value: Any) -> list[Any]:
    """Every number in a JSON value."""
    if isinstance(value, dict):
        return [n for v in value.values() for n in numbers_of(v)]
    if isinstance(value, list):
        return [n for v in value for n in numbers_of(v)]
    return [value] if isinstance(value, float) else []


# The schema.


def test_the_schema_takes_a_real_report_and_refuses_a_broken_one(late: Path) -> None:
    validator = jsonschema.Draft202012Validator(report_schema())
    data = data_of(late / REPORT)
    assert list(validator.iter_errors(data)) == []
    broken: tuple[Callable[[Any], object], ...] = (
        lambda d: d.pop("decision"),
        lambda d: d["header"].pop("fingerprint"),
        lambda d: d["results"][0].update(verdict="passed"),
        lambda d: d["decision"]["per_in_flight"][0].update(ring="two"),
        lambda d: d["results"][0]["lanes"][0].update(operands="x"),
    )
    for change in broken:
        changed = data_of(late / REPORT)
        change(changed)
        assert not validator.is_valid(changed)
    assert list(jsonschema.Draft202012Validator(decision_schema()).iter_errors(data_of(late / DECISION))) == []


def test_a_report_comes_back_as_it_was_written(late: Path, tmp_path: Path) -> None:
    report = load_report(late)
    assert isinstance(report, Report)
    write_report(tmp_path, report, "text")
    assert load_report(tmp_path / REPORT) == report
    assert (tmp_path / REPORT).read_bytes() == (late / REPORT).read_bytes()
    assert report.results
    assert any(result.observations and result.control for result in report.results)


def test_each_file_and_the_folder_give_the_same_decision(late: Path) -> None:
    found = [load_decision(late / name) for name in (".", DECISION, REPORT, LOG)]
    assert all(
        (f.header, f.verdict, f.decision) == (found[0].header, found[0].verdict, found[0].decision) for f in found
    )


def test_the_decision_file_is_small_and_names_its_report(late: Path) -> None:
    assert (late / DECISION).stat().st_size < 5000
    assert data_of(late / DECISION)["report_sha256"] == hashlib.sha256((late / REPORT).read_bytes()).hexdigest()


def test_never_is_null(late: Path) -> None:
    two = data_of(late / DECISION)["decision"]["per_in_flight"][1]["rings"]
    assert [(row["ring"], row["late"], row["worst_lag_steps"]) for row in two] == [(1, True, None), (2, False, 0)]


def test_a_log_has_a_header_a_line_per_case_and_result_and_a_footer(late: Path) -> None:
    kinds = [json.loads(line)["type"] for line in (late / LOG).read_text().splitlines()]
    count = len(load_report(late).results)
    assert kinds == ["header", *["case", "result"] * count, "footer"]


def test_a_standard_report_is_small_and_tells_nothing_of_who_ran_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.setenv("USER", "someone")
    monkeypatch.setenv("CUDA_CACHE_PATH", "/home/someone/cache")
    assert cli("run", "--backend", "reference", "--out", tmp_path / "out").code == 0
    data = data_of(tmp_path / "out" / REPORT)
    assert data["header"]["environment"]["CUDA_CACHE_PATH"] == "~/cache"
    assert all(abs(number) < 1e300 for number in numbers_of(data))  # false for NaN too
    for name in FILES:
        text = (tmp_path / "out" / name).read_text()
        assert len(text) < 4_000_000
        assert "Infinity" not in text
        assert "NaN" not in text
        assert "someone" not in text
        assert str(ROOT) not in text
        assert f'"{socket.gethostname()}' not in text


def test_a_standard_report_is_small_where_most_goes_wrong(tmp_path: Path) -> None:
    assert cli("run", "--backend", "reference", "--fault", "fifo-violated", "--out", tmp_path).code == 1
    assert (tmp_path / REPORT).stat().st_size < 4_000_000


# Written whole or not at all.


@pytest.mark.parametrize("call", ["replace", "fsync"])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    path = tmp_path / REPORT
    write_atomic(path, b"old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(OSError, match="No space"):
        write_atomic(path, b"new")
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == [REPORT]


def test_other_users_can_read_what_is_written(late: Path) -> None:
    assert all((late / name).stat().st_mode & 0o044 == 0o044 for name in FILES)


# A run before this one.


def test_a_new_run_sets_an_earlier_one_aside(copied: Path) -> None:
    before = {name: (copied / name).read_bytes() for name in FILES}
    assert short(copied, "--probe", "scope").code == 0
    assert {name: (copied / PREVIOUS / name).read_bytes() for name in FILES} == before
    assert [result.probe for result in load_report(copied).results] == ["scope"] * 2
    assert load_report(copied / PREVIOUS) == load_report(copied / PREVIOUS / REPORT)


def test_a_log_that_was_cut_off_never_displaces_a_whole_report(copied: Path) -> None:
    whole = (copied / REPORT).read_bytes()
    set_aside(copied)
    for _ in range(2):  # two runs in a row that were killed
        (copied / LOG).write_text('{"type":"header"}\n')
        set_aside(copied)
        assert (copied / PREVIOUS / REPORT).read_bytes() == whole
    assert short(copied, "--probe", "scope").code == 0
    assert (copied / PREVIOUS / REPORT).read_bytes() == whole


def test_a_run_that_was_cut_off_does_not_pass_for_the_one_before(copied: Path) -> None:
    set_aside(copied)
    (copied / LOG).write_bytes(b"".join((copied / PREVIOUS / LOG).read_bytes().splitlines(keepends=True)[:9]))
    with pytest.raises(ReportError, match="footer"):
        load_decision(copied)


# What is refused.


def changed(path: Path, change: Callable[[Any], object]) -> None:
    """Change a file's JSON."""
    data = data_of(path)
    change(data)
    path.write_text(json.dumps(data))


def cut(path: Path, left_out: int) -> None:
    """Leave the last bytes out."""
    path.write_bytes(path.read_bytes()[:-left_out])


def no_footer(path: Path) -> None:
    """Leave the last line out."""
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))


def folder_instead(path: Path) -> None:
    """A folder of that name."""
    path.unlink()
    path.mkdir()


def in_log(number: int, change: Callable[[Any], object]) -> Callable[[Path], None]:
    """Change one line of a log."""

    def apply(path: Path) -> None:
        lines = path.read_text().splitlines()
        data = json.loads(lines[number])
        change(data)
        lines[number] = json.dumps(data)
        path.write_text("\n".join(lines) + "\n")

    return apply


def newer(data: Any) -> None:
    """Another schema, in which nothing is where this one has it."""
    data["header"] = {"schema_version": SCHEMA_VERSION + 1}


REFUSED: list[tuple[str, str, Callable[[Path], object], tuple[str, ...]]] = [
    ("missing", DECISION, lambda p: p.unlink(), ("does not exist", "name a")),
    ("no-json", DECISION, lambda p: p.write_text("nonsense"), ("not JSON", "again")),
    ("binary", DECISION, lambda p: p.write_bytes(b"\xff\x00\xfe"), ("not JSON", "again")),
    ("empty", REPORT, lambda p: p.write_bytes(b""), ("not JSON", "again")),
    ("cut-off", REPORT, lambda p: cut(p, 100), ("cut off", "again")),
    ("deep", REPORT, lambda p: p.write_text("[" * 100_000), ("not JSON", "again")),
    (
        "newer-decision",
        DECISION,
        lambda p: changed(p, newer),
        (f"schema version {SCHEMA_VERSION + 1}", "suite version"),
    ),
    ("newer-report", REPORT, lambda p: changed(p, newer), (f"schema version {SCHEMA_VERSION + 1}", "suite version")),
    ("newer-log", LOG, in_log(0, newer), (f"schema version {SCHEMA_VERSION + 1}", "suite version")),
    ("no-header", DECISION, lambda p: changed(p, lambda d: d.pop("header")), ("no header",)),
    ("list", DECISION, lambda p: p.write_text("[]"), ("no header",)),
    ("no-version", REPORT, lambda p: changed(p, lambda d: d["header"].pop("schema_version")), ("schema_version",)),
    ("half-header", REPORT, lambda p: changed(p, lambda d: d["header"].pop("backend")), ("backend", "again")),
    ("unfinished", REPORT, lambda p: changed(p, lambda d: d["header"].update(complete=False)), ("finish", "again")),
    (
        "unknown-word",
        DECISION,
        lambda p: changed(p, lambda d: d["decision"].update(needed="maybe")),
        ("maybe", "again"),
    ),
    ("no-footer", LOG, no_footer, ("footer", "again")),
    ("cut-in-a-line", LOG, lambda p: cut(p, 300), ("cut off", "again")),
    ("empty-log", LOG, lambda p: p.write_bytes(b""), ("cut off", "again")),
    ("log-without-header", LOG, in_log(0, lambda d: d.pop("header")), ("no header",)),
    ("half-footer", LOG, in_log(-1, lambda d: d["header"].pop("backend")), ("backend", "again")),
    ("directory", MARKDOWN, folder_instead, ("holds no report", "run the suite")),
]


@pytest.mark.parametrize(("name", "change", "words"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_what_cannot_be_used_is_refused_in_one_line(
    copied: Path, name: str, change: Callable[[Path], object], words: tuple[str, ...]
) -> None:
    change(copied / name)
    with pytest.raises(ReportError) as caught:
        load_decision(copied / name)
    text = str(caught.value)
    assert is_one_line(text)
    assert all(word in text for word in (name, *words)), text
    done = cli("decide", copied / name, "--in-flight", 2, "--allow-simulated")
    assert (done.code, done.out) == (12, "undecided\n")
    assert is_one_line(done.err)


def test_a_report_of_the_wrong_kind_is_no_whole_report(late: Path) -> None:
    with pytest.raises(ReportError):
        load_report(late / DECISION)


def test_records_take_no_unknown_verdict() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({}, Report)
