"""The backend for accelerators without a row of their own, by torch's generic surface alone, on an NVIDIA GPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers import environment, python

from conformance.backends.registry import find

CUDA = find("cuda")
pytestmark = [pytest.mark.hardware, pytest.mark.skipif(not CUDA.here, reason=CUDA.reason)]


def test_without_a_drivers_name_triton_gates_the_generic_surface(tmp_path: Path) -> None:
    script = Path(__file__).with_name("any_accelerator.py")
    done = python(script, tmp_path / "out", cwd=tmp_path, env=environment())
    assert done.code == 0, done.err[-2000:]
    told = json.loads(done.out.splitlines()[-1])
    assert "no driver" in told["tried"]["kernel"] or "compiler" in told["tried"]["kernel"]
    if told["gate"] != "triton":
        pytest.skip(f"triton's gate does not work here, so nothing can be judged: {told['tried']['triton']}")
    assert told["verdict"] == "conformant"
