"""The engine's switch: which backend it is told, where decisions are installed, how deep, and what asking costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import switch_helpers
from helpers import cli, decision_file, environment, is_one_line, python
from switch_helpers import HERE, Document, document, write

from conformance import workaround
from conformance.workaround import decision_path, in_flight_of, ring_size
from reports.records import Outcome
from reports.store import DECISION, encode

if TYPE_CHECKING:
    from pathlib import Path

own_machine = switch_helpers.own_machine

#: As it is outside of these tests.
UNPATCHED = workaround._driven


@pytest.fixture(autouse=True)
def here(own_machine: None) -> None:
    """A machine of its own."""


# Which backend, where decisions are, how deep.


@pytest.mark.parametrize(
    ("said", "driven", "expected"),
    [
        (None, (), None),
        (None, ("musa",), "musa"),
        ("cuda", ("rocm",), "rocm"),  # torch's ROCm builds call their device cuda
        ("cuda", ("musa",), "musa"),  # and so does torchada
        ("cuda", ("cuda",), "cuda"),
        ("cuda", (), "cuda"),  # without a torch nothing contradicts it
        ("cuda", ("cuda", "musa"), None),
        ("cuda", None, None),
        (None, None, None),
        ("rocm", ("cuda",), "rocm"),
        ("musa", ("cuda", "musa"), "musa"),
    ],
)
def test_the_backend_is_told(
    monkeypatch: pytest.MonkeyPatch, said: str | None, driven: tuple[str, ...] | None, expected: str | None
) -> None:
    monkeypatch.setattr(workaround, "_driven", lambda: None if driven is None else frozenset(driven))
    assert workaround.told(said) == expected
    assert ring_size(2, backend=said, environ={}) == (1 if expected in ("cuda", "rocm") else 2)


@pytest.mark.parametrize(
    ("built", "musa", "expected"),
    [
        (None, False, set()),
        ("cuda", False, {"cuda"}),
        ("rocm", False, {"rocm"}),
        ("cuda", True, {"cuda", "musa"}),
        ("the CPU", True, {"musa"}),
        ("the CPU", False, None),  # something else stands behind torch.cuda
        ("xpu", False, None),
        ("an unknown platform", False, None),
        ("an unknown platform", True, None),
    ],
)
def test_what_the_installed_torch_drives(
    monkeypatch: pytest.MonkeyPatch, built: str | None, musa: bool, expected: set[str] | None
) -> None:
    monkeypatch.setattr(workaround, "torch_built_for", lambda: built)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object() if musa else None)
    assert UNPATCHED() == expected
    monkeypatch.setattr(workaround, "_driven", UNPATCHED)
    assert ring_size(2, backend="cuda", environ={}) == (2 if expected in ({"musa"}, {"cuda", "musa"}, None) else 1)


def test_a_torch_that_cannot_be_looked_for_leaves_the_ring_armed(monkeypatch: pytest.MonkeyPatch) -> None:
    def raising(name: str) -> None:
        raise ValueError(f"{name}.__spec__ is None")

    monkeypatch.setattr(workaround, "_driven", UNPATCHED)
    monkeypatch.setattr("importlib.util.find_spec", raising)
    assert ring_size(2, backend="cuda", environ={}) == 2


def test_a_decision_that_is_not_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli("decide", write(tmp_path, document(Outcome.NOT_NEEDED)), "--install").code == 0
    assert workaround.choose(2, backend="cuda").size == 1
    monkeypatch.setattr(workaround, "_driven", lambda: None)
    found = workaround.choose(2, backend="cuda")
    assert (found.size, found.source, found.doubt) == (2, workaround.DEFAULT, True)
    assert "cuda.json" in found.reason
    assert "cannot be told" in found.reason


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
