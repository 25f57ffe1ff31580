"""The vLLM plugin and what it leaves alone: runners of a shape that it does not know."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import pytest
import runner_double
from runner_double import Stream, config, drawn, rotates, runner_class, said

from conformance.vllm_plugin import ATTRIBUTE, RUNNER, register
from conformance.workaround import VARIABLE

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

engine = runner_double.engine


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
