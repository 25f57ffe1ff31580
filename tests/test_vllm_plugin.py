"""The vLLM plugin over stand-ins of the same shape: when it acts, on what, and that nothing it does costs an engine."""

from __future__ import annotations

import functools
import json
import logging
import sys
from itertools import count
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from helpers import cli, decision_file, is_one_line

from conformance import fingerprint, vllm_plugin, workaround
from conformance.vllm_plugin import ATTRIBUTE, MODULE, RUNNER, RotatingStream, install, register
from conformance.workaround import VARIABLE, decision_path
from reports.records import Outcome
from reports.store import DECISION, encode

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HANDLES = count(1)


class Stream:
    """A stream of torch, in so far as the plugin makes and compares them."""

    def __init__(self, device: str) -> None:
        self.device, self.cuda_stream = device, next(HANDLES)


def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    """As the engine's own methods are."""

    @functools.wraps(function)
    def wrapper(*arguments: Any) -> Any:
        return function(*arguments)

    return wrapper


def config(in_flight: object = 3) -> Any:
    """An engine's configuration."""
    return SimpleNamespace(max_concurrent_batches=in_flight)


def runner_class() -> Any:
    """The shape of vLLM's second model runner: made once, read once per output at two places."""

    class GPUModelRunner:
        def __init__(self, vllm_config: Any) -> None:
            self.vllm_config = vllm_config
            self.output_copy_stream = Stream("gpu:1")
            self.main_stream = Stream("gpu:1")

        def execute_model(self) -> Any:
            return self.main_stream

        @decorated
        @decorated
        def sample_tokens(self) -> Any:
            return SimpleNamespace(main_stream=self.main_stream, copy_stream=self.output_copy_stream).copy_stream

        @decorated
        def pool(self) -> Any:
            return SimpleNamespace(copy_stream=self.output_copy_stream, main_stream=self.main_stream).copy_stream

    return GPUModelRunner


@pytest.fixture(autouse=True)
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> ModuleType:
    """The engine's module, on a machine of which nothing is known and nothing set."""
    module = ModuleType(MODULE)
    setattr(module, RUNNER, runner_class())
    monkeypatch.setitem(sys.modules, MODULE, module)
    monkeypatch.setattr(workaround, "_installed_backend", lambda: "musa")
    monkeypatch.setattr(fingerprint, "read_here", lambda backend, *_: {"backend": backend, "device": "gpu"})
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv(VARIABLE, raising=False)
    caplog.set_level(logging.DEBUG)
    return module


def decided(tmp_path: Path, outcome: Outcome, *, backend: str = "musa", device: str = "gpu") -> None:
    """Install a decision for one to four in flight."""
    parts = {"backend": backend, "device": device}
    data = json.loads(encode(decision_file(outcome, parts=parts)))
    data["header"]["backend"] = backend
    place = decision_path(backend)
    assert place is not None
    (tmp_path / "state" / "stream-conformance").mkdir(parents=True, exist_ok=True)
    (tmp_path / DECISION).write_text(json.dumps(data))
    (tmp_path / DECISION).replace(place)


def drawn(runner: Any, outputs: int = 6) -> list[int]:
    """The handles of the streams that the next outputs are copied on, sampled and pooled in turn."""
    return [(runner.pool if i % 2 else runner.sample_tokens)().cuda_stream for i in range(outputs)]


def rotates(engine: ModuleType, in_flight: object = 3) -> int:
    """How many streams the outputs of a new runner go round."""
    runner = getattr(engine, RUNNER)(config(in_flight))
    own = vars(runner)[ATTRIBUTE].cuda_stream
    seen = drawn(runner, 12)
    length = len(set(seen))
    assert seen[0] == own
    assert seen == (seen[:length] * 12)[:12]
    assert runner.main_stream.cuda_stream not in seen
    return length


def said(caplog: pytest.LogCaptureFixture, level: int = logging.WARNING) -> str:
    """The one line at this level or above."""
    (record,) = [record for record in caplog.records if record.levelno >= level]
    assert is_one_line(record.getMessage())
    assert record.name.startswith("vllm.")
    return record.getMessage()


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
    monkeypatch.setattr(sys.modules[__name__], "HANDLES", iter([main, own, 901, main, 902, 903]))
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


# What it leaves alone.


def changed(**methods: Any) -> Any:
    """The runner with more or other methods."""
    known = runner_class()
    for name, method in methods.items():
        setattr(known, name, method)
    return known


def rotating_init(self: Any, vllm_config: Any) -> None:
    self.vllm_config = vllm_config
    self.output_copy_stream = Stream("gpu")
    self._output_copy_streams = [self.output_copy_stream, Stream("gpu")]
    self.main_stream = Stream("gpu")


def slotted() -> Any:
    """The shape without a place for attributes."""

    class GPUModelRunner:
        __slots__ = ("main_stream", "other", "vllm_config")
        __init__, sample_tokens, pool = (vars(runner_class())[name] for name in ("__init__", "sample_tokens", "pool"))

    return GPUModelRunner


STRANGE: dict[str, tuple[Callable[[], Any], str]] = {
    "rotating": (lambda: changed(__init__=rotating_init), "rotates already"),
    "third-reader": (lambda: changed(embed=lambda self: self.output_copy_stream), "embed"),
    "one-reader": (lambda: changed(pool=lambda self: self.main_stream), "sample_tokens"),
    "reads-twice": (lambda: changed(pool=lambda self: (self.output_copy_stream, self.output_copy_stream)), "pool"),
    "hidden-reader": (lambda: changed(embed=lambda self: [getattr(self, "output_copy_stream")]), "embed"),  # noqa: B009
    "reader-within": (lambda: changed(embed=lambda self: lambda: self.output_copy_stream), "embed"),
    "property-reads": (lambda: changed(copy=property(lambda self: self.output_copy_stream)), "copy"),
    "cached-reads": (lambda: changed(copy=functools.cached_property(lambda self: self.output_copy_stream)), "copy"),
    "set-elsewhere": (lambda: changed(reset=lambda self: setattr(self, "output_copy_stream", None)), "reset"),
    "never-set": (lambda: changed(__init__=lambda self, vllm_config: None), "set by nothing"),
    "property": (lambda: changed(output_copy_stream=property(lambda self: None)), "attribute of the class already"),
    "slots": (slotted, "no attributes of their own"),
    "empty": (lambda: type("GPUModelRunner", (), {}), "set by nothing"),
}


@pytest.mark.parametrize("name", STRANGE)
def test_a_shape_that_it_does_not_know_is_left_alone(
    name: str, engine: ModuleType, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    make, why = STRANGE[name]
    kind = make()
    before = dict(vars(kind))
    setattr(engine, RUNNER, kind)
    monkeypatch.setenv(VARIABLE, "3")
    register()
    assert dict(vars(kind)) == before
    assert "left alone" in said(caplog)
    assert why in said(caplog)


def test_loaded_twice_it_acts_once(engine: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "3")
    register()
    register()
    assert rotates(engine) == 3


def test_a_derived_runner_is_looked_at_too(
    engine: ModuleType, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(VARIABLE, "3")
    register()
    known = getattr(engine, RUNNER)

    class Plain(known):  # type: ignore[misc]
        def load_model(self) -> None:
            """Nothing of interest."""

    class Own(known):  # type: ignore[misc]
        def sample_tokens(self) -> Any:
            return self.output_copy_stream

    class Replaced(known):  # type: ignore[misc]
        def __init__(self, vllm_config: Any) -> None:
            super().__init__(vllm_config)
            self.output_copy_stream = Stream("other")

    assert len(set(drawn(Plain(config())))) == 3
    for kind, word in ((Own, "sample_tokens"), (Replaced, "__init__")):
        caplog.clear()
        runner = kind(config())
        assert set(drawn(runner)) == {vars(runner)[ATTRIBUTE].cuda_stream}
        assert word in said(caplog)


def test_a_runner_that_somebody_made_rotate_is_left_alone(
    engine: ModuleType, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(VARIABLE, "3")
    register()
    runner = getattr(engine, RUNNER)(config())
    runner._output_copy_streams = [Stream("gpu")]
    assert set(drawn(runner)) == {vars(runner)[ATTRIBUTE].cuda_stream}
    assert "rotates already" in said(caplog)


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
