"""Hypothesis strategies for well-formed programs without races.

No two operations that touch one buffer, one of them writing it, are left unordered, and each host
buffer is written once: so every token has one right value, on every legal device.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from hypothesis import strategies as st

from conformance.model import Model, Node
from probes.program import (
    DEFAULT_STREAM,
    HOST_STEPS,
    Copy,
    Destroy,
    DeviceOp,
    Elapsed,
    Fill,
    Gate,
    HostFn,
    HostStep,
    Open,
    Program,
    QueryStream,
    Read,
    Record,
    Step,
    Sync,
    SyncDevice,
    SyncStream,
    Wait,
    WaitStream,
)

if TYPE_CHECKING:
    from collections.abc import Callable

#: Programs that a property is tried on. Fewer do where another interpreter is the point, and not the property.
EXAMPLES: Final = int(os.environ.get("STREAM_CONFORMANCE_EXAMPLES", "150"))
STREAMS: Final = ("S", "T", "blocking", DEFAULT_STREAM)
EVENTS: Final = ("e", "f", "n")
DEVICE_BUFFERS: Final = ("x", "y")

#: Operations that order or hold streams are the point, so they are drawn more often than plain work.
_DEVICE: Final = ("gate", "fill", "copy", "until", "record", "record", "wait", "wait", "wait-stream", "host-fn", "held")
_HOST: Final = (
    "open",
    "open",
    "open",
    "destroy",
    "read",
    "query-stream",
    "sync",
    "sync-stream",
    "sync-device",
    "elapsed",
)


class _Writer:
    """Draws a program step by step; the happens-before graph so far says what would race."""

    def __init__(self, draw: Callable[[st.SearchStrategy[str]], str], numbers: Callable[[int], int]) -> None:
        self.draw, self.number_below = draw, numbers
        self.steps: list[Step] = []
        self.model = Model()
        self.closed: list[str] = []
        self.gates = self.hosts = self.functions = 0
        self.written: list[str] = []  # host buffers

    def one_of(self, names: tuple[str, ...] | list[str]) -> str:
        return self.draw(st.sampled_from(tuple(names)))

    def add(self, step: Step) -> None:
        self.model.feed(step, len(self.steps))
        self.steps.append(step)

    @property
    def live(self) -> list[str]:
        """The events that may still be used; `host` leaves one at least."""
        return [event for event in EVENTS if event not in self.model.destroyed]

    def ordered(self, stream: str, buffer: str, *, reads: bool) -> bool:
        """Has everything that conflicts with a use of ``buffer`` on ``stream`` happened before that use?"""
        mine = [node for node in self.model.nodes if node.stream == stream]
        past = mine[-1].ancestors if mine else 0

        def conflicts(node: Node) -> bool:
            return node.buffer == buffer or (not reads and node.kind == "copy" and node.source == buffer)

        return all(past >> node.index & 1 for node in self.model.nodes if conflicts(node))

    def gate(self) -> str:
        self.gates += 1
        self.closed.append(f"g{self.gates}")
        return self.closed[-1]

    def device(self, kind: str) -> DeviceOp | None:
        """An operation of this kind that is possible now, if there is one."""
        stream = self.one_of(STREAMS)
        event = self.one_of(self.live)
        step: DeviceOp | None = None
        if kind == "gate":
            step = Gate(stream=stream, gate=self.gate())
        elif kind == "fill":
            free = [b for b in DEVICE_BUFFERS if self.ordered(stream, b, reads=False)]
            step = Fill(stream=stream, buffer=self.one_of(free), value=self.number_below(99) + 1) if free else None
        elif kind in ("copy", "until"):
            step = self.copy(stream, slow=kind == "until")
        elif kind == "record":
            step = Record(stream=stream, event=event)
        elif kind == "wait":
            step = Wait(stream=stream, event=event)
        elif kind == "wait-stream":
            step = WaitStream(stream=stream, other=self.one_of([s for s in STREAMS if s != stream]))
        elif kind in ("host-fn", "held"):
            self.functions += 1
            step = HostFn(stream=stream, name=f"fn{self.functions}", until=self.gate() if kind == "held" else None)
        return step

    def copy(self, stream: str, *, slow: bool) -> Copy | None:
        sources = [b for b in (*DEVICE_BUFFERS, *self.written) if self.ordered(stream, b, reads=True)]
        if not sources:
            return None
        source = self.one_of(sources)
        targets = [b for b in DEVICE_BUFFERS if b != source and self.ordered(stream, b, reads=False)]
        self.hosts += 1
        target = self.one_of([f"h{self.hosts}", f"h{self.hosts}", *targets])
        if target not in DEVICE_BUFFERS:
            self.written.append(target)
        return Copy(stream=stream, source=source, target=target, until=self.gate() if slow else None)

    def host(self, kind: str) -> HostStep | None:
        """A host step of this kind that is possible now, if there is one."""
        streams = sorted({node.stream for node in self.model.nodes})
        event = self.one_of(self.live)
        step: HostStep | None = None
        if kind == "open" and self.closed:
            step = Open(gate=self.closed.pop(self.number_below(len(self.closed))))
        elif kind == "read" and self.written:
            step = Read(buffer=self.one_of(self.written))
        elif kind == "query-stream" and streams:
            step = QueryStream(stream=self.one_of(streams))
        elif kind == "sync-stream" and streams:
            step = SyncStream(stream=self.one_of(streams))
        elif kind == "sync-device":
            step = SyncDevice()
        elif kind == "sync":
            step = Sync(event=event)
        elif kind == "destroy" and len(self.live) > 1:
            step = Destroy(event=event)
        elif kind == "elapsed":
            step = Elapsed(start=event, end=self.one_of(self.live))
        return step


@st.composite
def programs(draw: st.DrawFn, *, max_steps: int = 24) -> Program:
    """Well-formed programs in every operation of the notation, without races."""
    writer = _Writer(draw, lambda n: draw(st.integers(0, n - 1)))
    size = draw(st.integers(0, max_steps))  # a list left to itself is mostly short
    for kind in draw(st.lists(st.sampled_from(_DEVICE + _DEVICE + _HOST), min_size=size, max_size=size)):
        step: Step | None = writer.host(kind) if kind in _HOST else writer.device(kind)
        if step is not None:
            writer.add(step)
    return Program(tuple(writer.steps))


@st.composite
def queued(draw: st.DrawFn) -> tuple[tuple[DeviceOp, ...], tuple[str, ...]]:
    """Device operations without any host step, and their gates in an order in which to open them."""
    program = draw(programs())
    ops = tuple(step for step in program.steps if not isinstance(step, HOST_STEPS))
    return ops, tuple(draw(st.permutations(program.gates)))
