"""The vLLM plugin over stand-ins of the same shape: when it acts, and that nothing it does costs an engine."""

from __future__ import annotations

import json
import logging
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
import runner_double
from helpers import cli, decision_file
from runner_double import Stream, config, decided, drawn, rotates, said

from conformance import vllm_plugin, workaround
from conformance.vllm_plugin import ATTRIBUTE, MODULE, RUNNER, RotatingStream, install, register
from conformance.workaround import VARIABLE, decision_path
from reports.records import Outcome
from reports.store import DECISION, encode

if TYPE_CHECKING:
    from pathlib import Path

engine = runner_double.engine


@pytest.fixture(autouse=True)
def in_place(engine: ModuleType) -> None:
    """The engine's module, also where a test does not name it."""


def test_both_readers_go_round_one_ring(engine: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "3")
    register()
    runner = getattr(engine, RUNNER)(config(3))
    own = vars(runner)[ATTRIBUTE]
    assert runner.sample_tokens() is own
    second, third = runner.pool(), runner.pool()
    assert len({own.cuda_stream, second.cuda_stream, third.cuda_stream, runner.main_stream.cuda_stream}) == 4
    assert (second.device, third.device) == (own.device, own.device)
    assert [runner.sample_tokens(), runner.sample_tokens(), runner.pool()] == [own, second, third]


def test_no_stream_of_the_ring_is_the_main_one(engine: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "3")
    register()
    runner = getattr(engine, RUNNER)(config(3))
    main = runner.main_stream.cuda_stream
    own = vars(runner)[ATTRIBUTE].cuda_stream
    # As a pool gives handles out again: main's, and the runner's own.
    monkeypatch.setattr(runner_double, "HANDLES", iter([main, own, 901, main, 902, 903]))
    assert drawn(runner, 4) == [own, 901, 902, own]


def test_each_runner_has_its_own_ring_as_long_as_it_is_deep(
    engine: ModuleType, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(VARIABLE, "2")
    register()
    first, second = (getattr(engine, RUNNER)(config(2)) for _ in range(2))
    assert not set(drawn(first)) & set(drawn(second))
    assert rotates(engine, 2) == 2
    caplog.clear()
    assert rotates(engine, 4) == 4  # raised
    assert "too short" in said(caplog)


# When it acts.


@pytest.mark.parametrize(
    ("setting", "outcome", "device", "expected"),
    [
        # Set: by the variable's order, but for a default.
        ("3", None, "gpu", 3),
        ("7", Outcome.NOT_NEEDED, "gpu", 7),
        ("auto", Outcome.ENABLE, "gpu", 3),
        ("auto", Outcome.NOT_NEEDED, "gpu", 1),
        ("auto", Outcome.ENABLE, "an older one", 3),  # kept: what was on stays on
        ("auto", Outcome.UNDECIDED, "gpu", 1),
        ("auto", None, "gpu", 1),  # MUSA's default is armed, and is a default
        # Not set: a decision of this machine that says enable, and nothing else.
        (None, Outcome.ENABLE, "gpu", 3),
        (None, Outcome.ENABLE, "an older one", 1),
        (None, Outcome.INEFFECTIVE, "gpu", 1),
        (None, Outcome.NOT_NEEDED, "gpu", 1),
        (None, Outcome.UNDECIDED, "gpu", 1),
        (None, None, "gpu", 1),
        # Off.
        ("off", Outcome.ENABLE, "gpu", 1),
        (" OFF ", None, "gpu", 1),
    ],
)
def test_when_it_acts(
    engine: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    setting: str | None,
    outcome: Outcome | None,
    device: str,
    expected: int,
) -> None:
    if setting is not None:
        monkeypatch.setenv(VARIABLE, setting)
    if outcome is not None:
        decided(tmp_path, outcome, device=device)
    register()
    assert rotates(engine) == expected


def test_what_was_not_measured_as_deep_stays_as_it_is(engine: ModuleType, tmp_path: Path) -> None:
    decided(tmp_path, Outcome.ENABLE)
    register()
    assert rotates(engine, 4) == 4
    assert rotates(engine, 9) == 1


def test_a_decision_that_is_installed_as_the_manual_says_makes_it_act(engine: ModuleType, tmp_path: Path) -> None:
    report = tmp_path / DECISION
    data = json.loads(encode(decision_file(Outcome.ENABLE, parts={"backend": "musa", "device": "gpu"})))
    data["header"]["backend"] = "musa"
    report.write_text(json.dumps(data))
    assert cli("decide", report, "--install").code == 0
    register()
    assert rotates(engine) == 3


@pytest.mark.parametrize("setting", ["off", None])
def test_without_a_reason_it_imports_nothing_of_the_engine(
    monkeypatch: pytest.MonkeyPatch, setting: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    class Untouched(ModuleType):
        def __getattr__(self, name: str) -> Any:
            raise AssertionError(name)

    monkeypatch.setitem(sys.modules, MODULE, Untouched(MODULE))
    if setting is not None:
        monkeypatch.setenv(VARIABLE, setting)
    register()
    assert {record.levelno for record in caplog.records} == {logging.DEBUG}


# Whatever goes wrong, the engine has the stream that it made.


class NoSecond(Stream):
    """A stream of which there can be no second."""

    made = 0

    def __init__(self, device: str) -> None:
        super().__init__(device)
        type(self).made += 1
        if self.made > 1:
            raise RuntimeError("out of streams")


class NoHandle:
    """A stream that shows no handle."""

    device = "gpu"

    def __init__(self, device: str) -> None:
        pass


@pytest.mark.parametrize(
    ("stream", "in_flight", "words"),
    [
        (NoSecond, 3, "out of streams"),
        (NoHandle, 3, "shows no handle"),
        (lambda device: object(), 3, "shows no handle"),
        (Stream, None, "TypeError"),
        (Stream, 0, "at least 1"),
    ],
)
def test_an_error_at_the_first_read_costs_nothing(
    engine: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    stream: Any,
    in_flight: object,
    words: str,
) -> None:
    monkeypatch.setenv(VARIABLE, "3")
    register()
    runner = getattr(engine, RUNNER)(config(in_flight))
    del runner.main_stream
    runner.main_stream = None
    runner.output_copy_stream = own = stream("gpu")
    assert all(output is own for output in (runner.sample_tokens(), runner.pool(), runner.sample_tokens()))
    assert words in said(caplog)


@pytest.mark.parametrize("broken", ["missing", "no-runner", "raises"])
def test_an_engine_that_cannot_be_imported_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, broken: str
) -> None:
    class Broken(ModuleType):
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError("no driver")

    modules = {"missing": None, "no-runner": ModuleType(MODULE), "raises": Broken(MODULE)}
    monkeypatch.setitem(sys.modules, MODULE, modules[broken])
    monkeypatch.setenv(VARIABLE, "3")
    register()
    assert "left alone" in said(caplog)


def test_a_decision_that_cannot_be_read_is_said_and_changes_nothing(
    engine: ModuleType, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    decided(tmp_path, Outcome.ENABLE)
    place = decision_path("musa")
    assert place is not None
    with open(place, "w") as file:
        file.write("{")
    register()
    assert ATTRIBUTE not in vars(getattr(engine, RUNNER))
    assert "nobody knows" in said(caplog)


@pytest.mark.parametrize("there", [True, False])
def test_a_backend_that_cannot_be_told_is_said_and_not_that_nothing_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, there: bool
) -> None:
    if there:
        decided(tmp_path, Outcome.ENABLE)
    monkeypatch.setattr(workaround, "_driven", lambda: None)
    caplog.clear()
    register()
    text = said(caplog, logging.WARNING if there else logging.DEBUG)
    assert "the backend cannot be told" in text
    assert "no decision is installed" not in text
    assert ("musa.json" in text) is there
    assert {record.levelno for record in caplog.records} == (
        {logging.WARNING, logging.DEBUG} if there else {logging.DEBUG}
    )


def test_the_attribute_is_one_as_before(engine: ModuleType) -> None:
    kind = getattr(engine, RUNNER)
    assert install(kind) == ""
    assert isinstance(getattr(kind, ATTRIBUTE), RotatingStream)
    runner = kind(config())
    assert hasattr(runner, ATTRIBUTE)
    del runner.output_copy_stream
    assert not hasattr(runner, ATTRIBUTE)
    with pytest.raises(AttributeError, match=ATTRIBUTE):
        del runner.output_copy_stream
    runner.output_copy_stream = first = Stream("gpu")
    assert runner.pool() is first
    runner.output_copy_stream = second = Stream("gpu")
    assert runner.pool() is second


def test_it_is_what_vllm_loads() -> None:
    tomllib = pytest.importorskip("tomllib" if sys.version_info >= (3, 11) else "tomli")
    from helpers import ROOT

    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    module, _, name = points["vllm.general_plugins"]["stream_conformance"].partition(":")
    assert getattr(sys.modules[module], name) is vllm_plugin.register
