"""The fast path on a torch device: everything is made once and bound, and proved idle between programs.

A program costs its own calls and looks. Streams, events, buffers and kernel gates are those of one pool;
launches have their arguments converted beforehand. Between two programs a gate kernel that is open from
the start is queued on each used stream: its `ended` word says that the stream is idle, and none of the
calls under test is asked. An event is made anew only where a program drops it, or uses it unrecorded.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from conformance.backends.api import EventFlags
from conformance.errors import DeviceError
from conformance.fuzz.plan import SYNC, SYNC_STREAM
from conformance.fuzz.recipe import SIZES
from conformance.fuzz.screen import PATIENCE, Tally, screen
from probes.program import DEFAULT_STREAM

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from conformance.backends.calls import HelperCall
    from conformance.backends.gates.kernel import KernelGate
    from conformance.backends.torch_device import TorchBackend
    from conformance.fuzz.plan import Item, Plan
    from conformance.fuzz.recipe import Choice
    from probes.program import Program

#: Seconds in which streams must run dry once every gate is open.
DRAIN_LIMIT: Final = 5.0
#: Seconds after which a gate ends by itself.
GATE_LIMIT: Final = 1.9
#: Buffers of each kind: those of the largest program, and a pair for each record of one with witnesses.
ROWS: Final = 64
#: Rounds of the loop by hand whose median is told.
ROUNDS: Final = 51


def can_pool(backend: object) -> bool:
    """Is this a torch device with kernel gates, driven through the vendor's own module, without a fault over it?"""
    ladder = getattr(backend, "ladder", None)
    return getattr(ladder, "kind", "") == "kernel" and getattr(backend, "surface", "") == "vendor"


class _Calls(dict[str, Any]):
    """The calls of a plan by name, for events of one flag; bound when a name first comes up."""

    def __init__(self, screen: PooledScreen, flags: str) -> None:
        super().__init__()
        self._screen, self._flags = screen, flags

    def __missing__(self, name: str) -> Callable[..., object]:
        call = self[name] = self._screen.bind(name, self._flags)
        return call


class _Waiters(dict[str, Any]):
    """Asks whether a helper's synchronize on an event has returned: by event and count of its records."""

    def __init__(self, screen: PooledScreen, flags: str) -> None:
        super().__init__()
        self._screen, self._flags = screen, flags

    def __missing__(self, key: str) -> Callable[[], bool]:
        event, by_helper, _ = key.partition("#")
        if not by_helper:
            return self._screen.queries[self._flags][event]
        call = self[key] = self._screen.helper(self._flags, event)
        return call


class PooledScreen:
    """Screens programs on one torch device; a `Screen`, and the `Machine` of the program that runs."""

    def __init__(self, backend: TorchBackend) -> None:
        """Takes gates from the backend's pool, and uses every call once. Raises what the backend raises."""
        self.tally = Tally()
        self._backend = backend
        self._surface = backend.main_surface
        most = max(SIZES.values(), key=lambda size: size.streams)
        side = backend.streams(self._surface)[: most.streams]
        self._streams = {DEFAULT_STREAM: self._surface.default_stream()}
        self._streams |= {f"s{number}": stream for number, stream in enumerate(side, 1)}
        handles = [self._surface.handle(stream) for stream in self._streams.values()]
        self._aliased = len(set(handles)) < len(handles)
        memory = backend.memory
        self._rows = {f"x{n + 1}": memory.device[n] for n in range(ROWS)}
        self._rows |= {f"h{n + 1}": memory.host[n] for n in range(ROWS)}
        self._words = {f"h{n + 1}": memory.words[n] for n in range(ROWS)}
        self._gates: dict[str, KernelGate] = {f"g{n + 1}": backend.take_gate() for n in range(most.gates)}  # type: ignore[misc]
        self._fences: dict[str, tuple[KernelGate, Callable[[], None]]] = {}
        for name, stream in self._streams.items():
            gate: KernelGate = backend.take_gate()  # type: ignore[assignment]  # `can_pool` says so
            self._fences[name] = gate, gate.prepared(self._surface.gated(stream), GATE_LIMIT, opened=True)
        self._events: dict[tuple[str, str], Any] = {}
        flags = [flag.value for flag in EventFlags]
        self._calls = {flag: _Calls(self, flag) for flag in flags}
        self.queries: dict[str, dict[str, Callable[[], bool]]] = {flag: {} for flag in flags}
        self._dropped = [(flag, f"e{n + 1}") for flag in flags for n in range(most.events)]
        self._fenced: tuple[str, ...] = ()
        self._helpers: list[tuple[str, str, HelperCall]] = []
        self._named = {
            f"e{n + 1}": [f"{what} {stream} e{n + 1}" for what in ("record", "wait") for stream in self._streams]
            for n in range(most.events)
        }
        # What `Machine` asks for.
        self.patience = PATIENCE
        self.query: Mapping[str, Callable[[], bool]] = self.queries["default"]
        self.read: Mapping[str, Callable[[], int]] = {n: partial(getattr, w, "value") for n, w in self._words.items()}
        self.ended: Mapping[str, Callable[[], bool]] = {name: gate.ended for name, gate in self._gates.items()}
        self.now, self.pause = time.perf_counter, backend.clock.pause
        self._bound = self._calls["default"]
        self._flags = "default"
        self._use_everything()

    # ------------------------------------------------------------------ what a plan's names mean

    def bind(self, name: str, flags: str) -> Callable[..., object]:
        """The call of this name."""
        what, *operands = name.split()
        if what == "on":
            return partial(self._backend.module.set_stream, self._streams[operands[0]])
        if what == "fill":
            fill: Callable[..., object] = self._rows[operands[0]].fill_
            return fill
        if what == "copy":
            source, target = (self._rows[operand] for operand in operands)
            return partial(target.copy_, source, True)
        stream = self._streams[operands[0]]
        if what == "record":
            return partial(self._events[flags, operands[1]].record, stream)
        if what == "wait":
            return partial(stream.wait_event, self._events[flags, operands[1]])
        if what == "wait-stream":
            return partial(stream.wait_stream, self._streams[operands[1]])
        return self._gates[operands[1]].prepared(self._surface.gated(stream), GATE_LIMIT)

    def helper(self, flags: str, event: str) -> Callable[[], bool]:
        """Whether a helper's synchronize on an event, entered now, has returned."""
        call = self._backend.helpers.start(self._events[flags, event].synchronize)
        self._helpers.append((flags, event, call))
        return partial(getattr, call, "returned")

    def _drop(self, flags: str, event: str) -> None:
        """Let go of every reference to an event: the vendor's event is destroyed here."""
        calls = self._calls[flags]
        for name in self._named[event]:
            calls.pop(name, None)
        self.queries[flags].pop(event, None)
        self._events.pop((flags, event), None)

    def _make(self, flags: str, event: str) -> None:
        made = self._surface.event(EventFlags(flags))
        self._events[flags, event] = made
        self.queries[flags][event] = made.query

    # ------------------------------------------------------------------ the machine

    def issue(self, item: Item) -> None:
        """Queue the operations of an ISSUE item."""
        bound = self._bound
        for name, value in item[3]:
            if value is None:
                bound[name]()
            else:
                bound[name](value)

    def open(self, gate: str) -> None:
        """Open a gate."""
        self._gates[gate].open()

    def destroy(self, event: str) -> None:
        """Drop the last reference to an event."""
        self._drop(self._flags, event)
        self._dropped.append((self._flags, event))

    def query_stream(self, stream: str) -> bool:
        """Ask the stream."""
        return bool(self._streams[stream].query())

    def returns(self, kind: int, name: str) -> bool:
        """Synchronize in this thread: what it waits for is done, or a gate's limit ends it, which takes too long."""
        if kind == SYNC:
            self._events[self._flags, name].synchronize()
        elif kind == SYNC_STREAM:
            self._streams[name].synchronize()
        else:
            self._surface.synchronize()
        return True

    # ------------------------------------------------------------------ programs

    def fits(self, program: Program) -> bool:
        """Has the pool everything that the program names?"""
        known = {*self._streams, *self._gates, *self._named, *self._rows}
        return known.issuperset((*program.streams, *program.gates, *program.events, *program.buffers))

    def run(self, plan: Plan, program: Callable[[], Program], choice: Choice, patience: float = PATIENCE) -> str:
        """The first anomaly, or empty. Raises DeviceError on a device that does not become idle."""
        observe, flags, fresh, streams, gates, _, hosts = plan
        self._settle()
        for made in self._dropped:
            self._make(*made)
        self._dropped.clear()
        for event in fresh:
            self._drop(flags, event)
            self._make(flags, event)
        for buffer in hosts:
            self._words[buffer].value = 0
        self._bound, self._flags, self.patience = self._calls[flags], flags, patience
        self.query = self.queries[flags] if observe == "query" else _Waiters(self, flags)
        if self._aliased:
            return "two streams are one"
        anomaly = "stopped"
        try:
            anomaly = screen(plan, self, self.tally)
        finally:
            if anomaly:
                for gate in gates:
                    self._gates[gate].open()
            for stream in streams:
                self._fences[stream][1]()
            self._fenced = streams
            if anomaly:
                self._settle()
                self._backend.module.set_stream(self._streams[DEFAULT_STREAM])
        return anomaly

    def _settle(self) -> None:
        """Wait until the fences of the last program have ended, and its helpers returned."""
        for stream in self._fenced:
            self._wait(self._fences[stream][0].ended)
        self._fenced = ()
        for flags, event, call in self._helpers:
            if self._comes(partial(getattr, call, "returned"), PATIENCE):
                if call.error is not None:
                    raise call.error
            elif (flags, event) in self._events:
                # The look has said that it is late. The helper is left to itself, and its event with it.
                self._drop(flags, event)
                self._dropped.append((flags, event))
        self._helpers.clear()

    def _wait(self, seen: Callable[[], bool]) -> None:
        if not self._comes(seen, DRAIN_LIMIT):
            self._backend.usable = False
            raise DeviceError(f"{self._backend.name}: work has not ended {DRAIN_LIMIT:g} s after its gates")

    def _comes(self, seen: Callable[[], bool], limit: float) -> bool:
        for _ in range(100):
            if seen():
                return True
        began, polls = self.now(), 0
        while not seen():
            if self.now() - began > limit:
                return False
            self.pause(polls)
            polls += 1
        return True

    def _use_everything(self) -> None:
        """Make each call once while nothing is held: no first use beside a closed gate (docs/rules.md 8)."""
        for flag, event in self._dropped:
            self._make(flag, event)
        self._dropped.clear()
        for name, stream in self._streams.items():
            self.bind(f"on {name}", "default")()
            rows = self._rows
            for source, target in (("x1", "x2"), ("x1", "h1"), ("h1", "x1")):
                rows["x1"].fill_(1)
                rows[target].copy_(rows[source], True)
            for event in self._events.values():
                event.record(stream)
                stream.wait_event(event)
                event.query()
            for other in self._streams.values():
                if other is not stream:
                    stream.wait_stream(other)
            stream.query()
        for name in self._streams:
            self._fences[name][1]()
        self._fenced = tuple(self._streams)
        self._settle()
        for gate in self._gates.values():
            for stream in self._streams.values():
                close = gate.prepared(self._surface.gated(stream), GATE_LIMIT, opened=True)
                close()
                self._wait(gate.ended)
        for call in (self._surface.synchronize, self._events["default", "e1"].synchronize):
            self._comes(partial(getattr, self._backend.helpers.start(call), "returned"), PATIENCE)

    # ------------------------------------------------------------------ the loop by hand

    def by_hand(self) -> float:
        """Seconds of one round of a fixed program of 13 operations and 2 gates, written out: the median of some.

        What an engineer would write for this one question, without a model, a plan or a proof of idleness.
        0 if it sees anything wrong: then it measures nothing.
        """
        self._settle()
        for made in self._dropped:
            self._make(*made)
        self._dropped.clear()
        taken = []
        for _ in range(ROUNDS):
            if not (seconds := self._round()):
                return 0.0
            taken.append(seconds)
        return sorted(taken)[ROUNDS // 2]

    def _round(self) -> float:
        module, rows, words = self._backend.module, self._rows, self._words
        s1, s2, s3 = (self._streams[name] for name in ("s1", "s2", "s3"))
        e1, e2, e3, e4 = (self._events["default", f"e{n}"] for n in range(1, 5))
        first, second = self._gates["g1"], self._gates["g2"]
        close_first, close_second = self._calls["default"]["gate s1 g1"], self._calls["default"]["gate s3 g2"]
        for name in ("h1", "h2", "h3"):
            words[name].value = 0
        right = True
        began = time.perf_counter()
        try:
            close_first()
            module.set_stream(s1)
            rows["x1"].fill_(1)
            rows["h1"].copy_(rows["x1"], True)
            e1.record(s1)
            s2.wait_event(e1)
            module.set_stream(s2)
            rows["h2"].copy_(rows["x1"], True)
            e2.record(s2)
            close_second()
            e3.record(s3)
            s1.wait_event(e3)
            module.set_stream(s1)
            rows["x2"].fill_(2)
            rows["h3"].copy_(rows["x2"], True)
            e4.record(s1)
            right &= not e1.query() and not e2.query()
            first.open()
            right &= _soon(lambda: e1.query() and e2.query())
            right &= words["h1"].value == words["h2"].value == 1 and not e4.query()
            second.open()
            right &= _soon(e4.query) and words["h3"].value == 2
        finally:
            first.open()
            second.open()
        taken = time.perf_counter() - began
        self._wait(first.ended)
        self._wait(second.ended)
        return taken if right else 0.0


def _soon(seen: Callable[[], bool]) -> bool:
    """Does it come within PATIENCE?"""
    until = time.perf_counter() + PATIENCE
    while not seen():
        if time.perf_counter() > until:
            return False
    return True
