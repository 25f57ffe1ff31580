"""What the ring costs per step and the switch per start, beside the usual way, measured in turn in one run."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import timeit
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from helpers import decision_file, environment

from conformance.ring import CopyStreamRing
from reports.records import Outcome
from reports.store import DECISION, encode

#: Seconds that reading a decision may add to a fresh interpreter's start, on a machine with nothing else to do.
ADDED = 0.060
#: The standard library's part of it, shown beside it.
LIBRARY = "import ctypes, enum, importlib.util, json, logging, re, typing"


def say(text: str) -> None:
    """Shown by ``pytest -s``."""
    sys.stdout.write(f"\n{text}\n")


class Indexed:
    """A runner that goes round its streams by index and modulo, the use before the step forward."""

    def __init__(self, streams: list[Any]) -> None:
        self.streams, self.index = streams, 0

    def draw(self, times: int) -> None:
        for _ in range(times):
            stream = self.streams[self.index]
            self.index = (self.index + 1) % len(self.streams)
        assert stream is not None


class Ringed:
    """A runner with a ring."""

    def __init__(self, ring: CopyStreamRing[Any]) -> None:
        self.ring = ring

    def draw(self, times: int) -> None:
        for _ in range(times):
            stream = self.ring.next()
        assert stream is not None


@pytest.mark.parametrize("length", [1, 3])
def test_a_ring_is_not_slower_than_an_index(length: int) -> None:
    numbers = count()
    ring = CopyStreamRing(length, object, handle=lambda _: next(numbers))
    ways = {"index": Indexed(list(ring.streams)).draw, "ring": Ringed(ring).draw}
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(2000):  # of some 20 us each: one that nobody interrupts is among them on any machine
        for name, draw in ways.items():
            best[name] = min(best[name], timeit.timeit(lambda draw=draw: draw(500), number=1))
    ratio = best["ring"] / best["index"]
    say(f"ring of {length}: {best['ring'] / 5e-7:.0f} ns a step, by index {best['index'] / 5e-7:.0f} ns: {ratio:.2f}")
    assert ratio < 1.1  # not slower, but for the noise of a shared machine


def test_a_fresh_process_has_its_answer_at_once(tmp_path: Path) -> None:
    report = tmp_path / DECISION
    report.write_bytes(encode(decision_file(Outcome.ENABLE)))
    script = "from conformance.workaround import ring_size; print(ring_size(3, backend='reference', report={!r}))"
    ways = {"pass": "pass", "library": LIBRARY, "answer": script.format(str(report))}
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(12):
        for name, code in ways.items():
            began = time.perf_counter()
            done = subprocess.run(
                [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True
            )
            best[name] = min(best[name], time.perf_counter() - began)
    assert done.stdout == "3\n"
    say(f"{json.dumps({name: round(seconds * 1000, 1) for name, seconds in best.items()})} ms")
    assert best["answer"] - best["pass"] < ADDED
