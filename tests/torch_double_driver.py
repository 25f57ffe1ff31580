"""The driver and the gates of `torch_double`: calls by role, on the streams and graphs of the double itself."""

from __future__ import annotations

import ctypes
import threading
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch_double as double

from conformance.backends.gates import GateError, GateUnsupported


class Gate:
    """Holds a stream until it is opened, or its limit ends it."""

    kind = "double"

    def __init__(self) -> None:
        self._opened = self._ended = True

    def enqueue(self, stream: double.Stream, limit: float) -> None:
        self._opened = self._ended = False
        end = time.perf_counter() + limit

        def over() -> None:
            self._ended = True

        double.DEVICE.put(stream, over, lambda: self._opened or time.perf_counter() > end)

    def open(self) -> None:
        self._opened = True
        with double.DEVICE.changed:
            double.DEVICE.changed.notify()

    def ended(self) -> bool:
        return self._opened or self._ended

    def idle(self) -> bool:
        return self._ended


def _value(argument: Any) -> int:
    return int(getattr(argument, "value", argument) or 0)


class Native:
    """The driver's calls, by role."""

    module = double.module

    def __init__(self) -> None:
        self.graphs: dict[int, double.Graph] = {}
        self.made: list[int] = []  # streams of the driver's that are not blocking, and those destroyed
        self.dropped: list[int] = []

    def enter(self) -> None:
        """There is one context."""

    def function(self, role: str) -> tuple[Any, str]:
        if not hasattr(self, f"do_{role}"):
            raise GateUnsupported(f"{role}: not exported by the double")
        return getattr(self, f"do_{role}"), role

    def handle(self, stream: double.Stream) -> int:
        return stream.cuda_stream

    def version(self, role: str) -> str:
        return "the double"

    def query_event(self, event: double.Event) -> bool:
        self.function("eventquery")
        return event.query()

    def kernel(self, name: str, source: str) -> str:
        assert f"void {name}(" in source
        return name

    def call(self, role: str, *arguments: Any) -> None:
        self.function(role)[0](*arguments)

    def do_newstream(self, handle: Any, flags: Any) -> None:
        made = double.Stream()
        made.blocking = _value(flags) == 0
        if not made.blocking:
            self.made.append(made.cuda_stream)
        handle._obj.value = made.cuda_stream

    def do_host(self, handle: Any, function: Any, argument: Any) -> None:
        call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(_value(function))
        stream = double.Stream() if "host-early" in double.WRONG else self._stream(handle)
        double.DEVICE.put(stream, lambda: call(_value(argument)))

    def do_dropstream(self, handle: Any) -> None:
        stream = self._stream(handle)
        self.dropped.append(stream.cuda_stream)
        if "destroy-waits" in double.WRONG:
            stream.synchronize()
        if "destroy-drops" in double.WRONG:
            while len(stream.queue) > 1:  # what has begun goes on
                stream.queue.pop()

    def do_tohost(self, target: Any, source: Any, size: Any, handle: Any) -> None:
        to, of, count = _value(target), _value(source), _value(size)
        double.DEVICE.put(self._stream(handle), lambda: ctypes.memmove(to, of, count))

    def do_launch(self, function: str, *rest: Any) -> None:
        parameters, handle = rest[-2], rest[-3]
        out = ctypes.c_void_p.from_address(parameters[0]).value or 0
        value, count = (ctypes.c_uint.from_address(parameters[n]).value for n in (1, 2))
        words = (ctypes.c_uint32 * count).from_address(out)

        def store() -> None:
            np.frombuffer(words, np.uint32).fill(value)

        def later() -> None:
            threading.Timer(0.05, store).start()

        double.DEVICE.put(self._stream(handle), later if "stores-late" in double.WRONG else store)

    def do_capture(self, handle: Any, mode: Any) -> None:
        stream = self._stream(handle)
        stream.graph = double.Graph(stream, _value(mode))

    def do_exchange(self, mode: Any) -> None:
        before, double.MODES.relaxed = getattr(double.MODES, "relaxed", False), mode._obj.value == 2
        mode._obj.value = 2 if before else 0

    def do_endcapture(self, handle: Any, graph: Any) -> None:
        stream = self._stream(handle)
        made = stream.graph
        assert made is not None
        made.open = False
        for joined in made.streams:
            joined.graph = None
        if made.spoilt:
            raise GateError("endcapture returned 901 (invalidated)")
        graph._obj.value = id(made)
        self.graphs[id(made)] = made

    def do_instantiate(self, executable: Any, graph: Any, flags: Any) -> None:
        executable._obj.value = _value(graph)

    def do_launchgraph(self, executable: Any, handle: Any) -> None:
        stream = self._stream(handle)
        for run, _ in self.graphs[_value(executable)].operations:
            double.DEVICE.put(stream, run)

    def do_dropexec(self, executable: Any) -> None:
        """Nothing is kept."""

    def do_dropgraph(self, graph: Any) -> None:
        self.graphs.pop(_value(graph))

    def _stream(self, handle: Any) -> double.Stream:
        return next(stream for stream in double.DEVICE.streams if stream.cuda_stream == _value(handle))


class Ladder:
    """One kind of gate."""

    kind, assurance = "double", "causal"
    tried = (("double", "ok"), ("host-function", "ok"))
    check = SimpleNamespace(release_us=1.0)

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.native, self._gates = Native(), list[Gate]()

    def attempt(self, kind: str) -> bool:
        """The gate holds as a host function would."""
        return kind == "host-function"

    def take(self, count: int, kind: str | None = None) -> list[Gate]:
        self._gates += (made := [Gate() for _ in range(count)])
        return made

    def elsewhere(self, index: int, count: int) -> list[Gate]:
        return self.take(count)

    def open_all(self) -> None:
        for gate in self._gates:
            gate.open()

    def close(self) -> None:
        self.open_all()
