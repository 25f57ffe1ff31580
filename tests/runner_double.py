"""What the tests of the vLLM plugin share: a runner of vLLM's shape, and an engine's module on a machine of its own."""

from __future__ import annotations

import functools
import json
import logging
import sys
from itertools import count
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from helpers import decision_file, is_one_line

from conformance import fingerprint, workaround
from conformance.vllm_plugin import ATTRIBUTE, MODULE, RUNNER
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


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> ModuleType:
    """The engine's module, on a machine of which nothing is known and nothing set."""
    module = ModuleType(MODULE)
    setattr(module, RUNNER, runner_class())
    monkeypatch.setitem(sys.modules, MODULE, module)
    monkeypatch.setattr(workaround, "_driven", lambda: frozenset({"musa"}))
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
