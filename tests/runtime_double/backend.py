"""The stand-in runtime as a backend, so that the whole suite runs on it: python backend.py FAMILY [GLOB...].

Prints a JSON line: the clauses that failed, those that were judged, the late form, the ring's outcomes by depth, and
what the header says was injected.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

from conformance.backends.api import Clock, DeviceInfo, EventFlags, GateKind, Request  # noqa: E402
from conformance.backends.calls import HelperCall, HelperPool, HostClock, Watchdog  # noqa: E402
from conformance.backends.registry import PROFILES  # noqa: E402
from conformance.decision import merge_clauses  # noqa: E402
from conformance.errors import Unsupported  # noqa: E402
from conformance.numbers import DEPTHS, Depth  # noqa: E402
from conformance.run import run  # noqa: E402
from conformance.runner import LocalRunner  # noqa: E402
from conformance.selection import select  # noqa: E402
from probes.program import (  # noqa: E402
    DEFAULT_STREAM,
    Copy,
    DeviceOp,
    Fill,
    Gate,
    Nop,
    Record,
    Sync,
    SyncDevice,
    SyncStream,
    Wait,
    WaitStream,
)
from reports.records import DepthDecision, Outcome, Verdict  # noqa: E402
from runtime_double.api import Api, Refused  # noqa: E402 - found by the path above

FLAGS = {EventFlags.DEFAULT: 2, EventFlags.BLOCKING: 3, EventFlags.TIMING: 0}
UNSUPPORTED = {
    "slow-copy": "none",
    "host-fn": "none",
    "elapsed": "none",
    "second-gate": "none",
    "mixed": "one API",
    "blocking-stream": "the stand-in's default stream is a stream like any other",
    "priority": "none",
    "second-device": "one device",
}


class DoubleSession:
    """One program on the stand-in."""

    def __init__(self, backend: DoubleBackend, request: Request) -> None:
        self._backend, self._api, self._request = backend, backend.api, request
        free = iter(backend.streams)
        self._streams = {
            name: ctypes.c_void_p(None) if name == DEFAULT_STREAM else next(free) for name in request.streams
        }
        self._buffers = {name: (ctypes.c_uint32 * 1)() for name in request.buffers}
        self._events: dict[str, ctypes.c_void_p] = {}
        self._gates: dict[str, ctypes.Array[ctypes.c_uint32]] = {}

    def _event(self, name: str) -> ctypes.c_void_p:
        if name not in self._events:
            self._events[name] = self._api.event(FLAGS[self._request.flags])
        return self._events[name]

    def issue(self, op: DeviceOp) -> None:
        if isinstance(op, Nop):
            return
        stream = self._streams[op.stream]
        if isinstance(op, Gate):
            word = self._gates[op.gate] = self._api.gate(stream)
            limit = time.perf_counter() + self._request.gate_limit
            self._backend.watchdog.at(limit, lambda: word.__setitem__(0, 1))
        elif isinstance(op, Fill):
            self._api.fill(self._buffers[op.buffer], op.value, stream)
        elif isinstance(op, Copy):
            self._api.copy(self._buffers[op.target], self._buffers[op.source], stream)
        elif isinstance(op, Record):
            self._api.record(self._event(op.event), stream)
        elif isinstance(op, Wait):
            self._api.wait(stream, self._event(op.event))
        elif isinstance(op, WaitStream):
            self._api.wait_stream(stream, self._streams[op.other])
        else:
            raise Unsupported("host-fn", "none")

    def handles(self) -> Mapping[str, int]:
        return {name: stream.value or 0 for name, stream in self._streams.items()}

    def open(self, gate: str) -> None:
        self._gates[gate][0] = 1

    def ended(self, gate: str) -> bool:
        return gate in self._gates and bool(self._gates[gate][0])

    def query(self, event: str) -> bool:
        return self._api.query(self._event(event))

    def query_stream(self, stream: str) -> bool:
        return self._api.must("StreamQuery", self._streams[stream])

    def read(self, buffer: str) -> int:
        return self._buffers[buffer][0]

    def destroy(self, event: str) -> None:
        self._api.must("EventDestroy", self._events.pop(event))

    def start(self, call: Sync | SyncStream | SyncDevice) -> HelperCall:
        if isinstance(call, Sync):
            event = self._event(call.event)
            return self._backend.helpers.start(lambda: self._api.sync(event))
        if isinstance(call, SyncStream):
            stream = self._streams[call.stream]
            return self._backend.helpers.start(lambda: self._api.must("StreamSynchronize", stream))
        return self._backend.helpers.start(lambda: self._api.must("DeviceSynchronize"))

    def close(self) -> bool:
        for word in self._gates.values():
            word[0] = 1
        tokens = [(ctypes.c_uint32 * 1)() for _ in self._streams]
        for token, stream in zip(tokens, self._streams.values(), strict=True):
            self._api.fill(token, 7, stream)
        deadline = time.perf_counter() + 10.0
        while any(token[0] != 7 for token in tokens):
            if time.perf_counter() > deadline:
                return False
            time.sleep(1e-4)
        for name in list(self._events):
            self.destroy(name)
        self._backend.kept.append((self._buffers, self._gates, tokens))
        return True


class DoubleBackend:
    """The stand-in runtime."""

    name, surface, simulated = "double", "vendor", True
    faults: tuple[str, ...] = ()
    profile = PROFILES["cuda"]
    vendor_errors: tuple[type[Exception], ...] = (Refused,)

    def __init__(self, family: str) -> None:
        self.api = Api(family)
        self.clock: Clock = HostClock()
        self.helpers, self.watchdog = HelperPool("double"), Watchdog("double")
        self.streams = [self.api.stream() for _ in range(12)]
        self.kept: list[Any] = []

    def device(self) -> DeviceInfo:
        return DeviceInfo(name="stand-in")

    def gate(self) -> GateKind:
        return GateKind(kind="wait-value", assurance="causal")

    def unsupported(self, capability: str) -> str | None:
        return UNSUPPORTED.get(capability)

    def software(self) -> Mapping[str, str]:
        return {}

    def session(self, request: Request) -> DoubleSession:
        return DoubleSession(self, request)

    def close(self) -> None:
        self.helpers.close()
        self.watchdog.close()


def outcome(depth: DepthDecision) -> str:
    """The outcome, and whether it is a busy machine that leaves it open."""
    busy = depth.outcome is Outcome.UNDECIDED and any(word in depth.reason for word in ("patience", "unsteady"))
    return f"{depth.outcome.value}{', busy' if busy else ''}"


def main(family: str, probes: list[str]) -> None:
    numbers = DEPTHS[Depth.QUICK]
    backend = DoubleBackend(family)
    report = run(LocalRunner(backend, numbers, Depth.QUICK), select(numbers, probes=probes), numbers)
    clauses = merge_clauses(report.results)
    failed = sorted(clause for clause, verdict in clauses.items() if verdict is Verdict.NON_CONFORMANT)
    must = {c.clause for r in report.results for c in r.clauses if c.level == "MUST"}
    said = {
        "verdict": report.verdict.value,
        "failed": [clause for clause in failed if clause in must],
        "conformant": sorted(clause for clause, verdict in clauses.items() if verdict is Verdict.CONFORMANT),
        "form": report.decision.form.value if report.decision.form is not None else "",
        "outcomes": {depth.in_flight: outcome(depth) for depth in report.decision.per_in_flight},
        "injected": report.header.injected,
        "misuse": backend.api.driver.double_misuse(),
        "reasons": sorted(r.reason for r in report.results if r.verdict is Verdict.INCONCLUSIVE),
    }
    sys.stdout.write(json.dumps(said) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
