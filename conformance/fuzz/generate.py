"""Random programs: well-formed, without races, every gate opened; a seed and an index give one program.

Half of a program is drawn operation by operation, half follows motifs: the shapes in which faults of
streams and events are known to show. Motifs are interleaved with each other and with the rest.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from conformance.fuzz.graph import Graph
from conformance.fuzz.recipe import HOST_BUFFERS, Choice, Recipe
from probes.program import (
    DEFAULT_STREAM,
    Copy,
    Destroy,
    Fill,
    Gate,
    Open,
    Program,
    QueryStream,
    Read,
    Record,
    Sync,
    SyncDevice,
    SyncStream,
    Wait,
    WaitStream,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from probes.program import Step

#: Operations drawn one by one, as often as they stand here. ``token`` is a copy to the host, and a fill before it
#: where nothing can be copied; ``closing`` is a gate and a record on another stream, then a wait for it.
_DRAWN: Final = (
    *("gate",) * 4,
    *("token",) * 6,
    *("record",) * 7,
    *("wait",) * 6,
    *("wait-stream",) * 3,
    *("closing",) * 3,
    "fill",
    *("move",) * 3,
)
_HOST: Final = ("query-stream", "query-stream", "sync-stream", "sync", "sync", "destroy", "destroy", "sync-device")
#: Chances: the default stream takes part; a program has motifs; a gate to open is the oldest; a host step stands
#: after an opening; operations go on after an opening; a record has a token of its own right before it.
_DEFAULT, _MOTIFS, _OLDEST, _ASIDE, _GO_ON, _WITNESSED = 0.2, 0.7, 0.75, 0.3, 0.35, 0.7

Op = tuple[str, str, str]  # kind, stream, event or other stream


def program_of(recipe: Recipe, index: int) -> tuple[Program, Choice]:
    """The program of this index, and how it is observed."""
    rng = random.Random(f"{recipe.seed}/{index}")
    return _Writer(recipe, rng, index).write(), _choice(recipe, rng)


def _choice(recipe: Recipe, rng: random.Random) -> Choice:
    observe = "synchronize" if rng.random() < recipe.synchronize else "query"
    flags = recipe.flags[0] if rng.random() < 0.5 else recipe.flags[int(rng.random() * len(recipe.flags))]
    return Choice(observe="synchronize" if observe == "synchronize" else "query", flags=flags)


class _Writer:
    def __init__(self, recipe: Recipe, rng: random.Random, index: int) -> None:
        size = recipe.size
        self.recipe, self.random = recipe, rng.random
        self.steps: list[Step] = []
        self.graph = Graph()
        self.streams = [f"s{n + 1}" for n in range(2 + int(rng.random() * (size.streams - 1)))]
        if rng.random() < _DEFAULT and recipe.default_stream:
            self.streams[-1] = DEFAULT_STREAM
        self.events = [f"e{n + 1}" for n in range(1 + int(rng.random() * size.events))]
        self.gates = min(2, size.gates - 1) + int(rng.random() * (size.gates - min(2, size.gates - 1) + 1))
        self.buffers = [f"x{n + 1}" for n in range(size.buffers)]
        self.wanted = size.least + int(rng.random() * (size.most - size.least + 1))
        self.made_gates = self.made_hosts = self.device = 0
        #: Tokens differ from program to program, so that what an earlier one left behind is never right.
        self.token = (index * 64) % (1 << 30)

    def pick(self, among: list[str]) -> str:
        return among[int(self.random() * len(among))]

    def add(self, step: Step, device: bool = True) -> None:
        self.graph.feed(step)
        self.steps.append(step)
        self.device += device

    # ------------------------------------------------------------------ the whole

    def write(self) -> Program:
        motifs = self.motifs() if self.random() < _MOTIFS else []
        while self.device < self.wanted:
            if motifs and self.random() < 0.7:
                motif = motifs[int(self.random() * len(motifs))]
                op = next(motif, None)
                if op is None:
                    motifs.remove(motif)
                    continue
                self.operation(*op)
            elif motifs and self.random() < 0.6:
                continue
            else:
                kind = _DRAWN[int(self.random() * len(_DRAWN))]
                self.operation(kind, self.pick(self.streams), "")
            if self.graph.gate and self.random() < 0.08:
                self.open_some()
        if not self.graph.gate and self.made_gates < self.gates:
            self.operation("gate", self.pick(self.streams), "")
        while self.graph.gate:
            self.open_some()
            if self.graph.gate and self.random() < _GO_ON:
                for _ in range(1 + int(self.random() * 3)):
                    self.operation(_DRAWN[int(self.random() * len(_DRAWN))], self.pick(self.streams), "")
        if not self.steps or not isinstance(self.steps[-1], Open):
            # So that the last operations are looked at.
            self.add(Read(buffer="h1") if self.made_hosts else SyncDevice(), device=False)
        return Program(tuple(self.steps))

    def open_some(self) -> None:
        gates = list(self.graph.gate)
        gate = gates[0] if self.random() < _OLDEST else self.pick(gates)
        self.add(Open(gate=gate), device=False)
        if self.random() < _ASIDE:
            self.host(_HOST[int(self.random() * len(_HOST))])

    # ------------------------------------------------------------------ one operation

    def operation(self, kind: str, stream: str, other: str) -> None:
        """Add an operation of this kind if it is possible now."""
        if kind == "gate":
            self.add_gate(stream)
        elif kind == "token":
            self.add_token(stream)
        elif kind == "fill":
            self.fill(stream)
        elif kind == "move":
            self.move(stream)
        elif kind == "wait-stream":
            others = [name for name in self.streams if name != stream]
            other = other or self.pick(others)
            if other != stream:
                self.add(WaitStream(stream=stream, other=other))
        elif kind == "closing":
            self.closing(stream)
        else:
            live = [event for event in self.events if event not in self.graph.destroyed]
            event = other or (self.pick(live) if live else "")
            if event not in live:
                return
            if kind == "record":
                self.record(stream, event)
            elif event in self.graph.record or self.recipe.unrecorded:
                self.add(Wait(stream=stream, event=event))

    def record(self, stream: str, event: str) -> None:
        if self.random() < _WITNESSED:
            self.add_token(stream)
        self.add(Record(stream=stream, event=event))

    def add_gate(self, stream: str) -> None:
        if self.made_gates < self.gates:
            self.made_gates += 1
            self.add(Gate(stream=stream, gate=f"g{self.made_gates}"))

    def fill(self, stream: str) -> str:
        free = [b for b in self.buffers if self.graph.may_write(stream, b)]
        if not free:
            return ""
        buffer = self.pick(free)
        self.token += 1
        self.add(Fill(stream=stream, buffer=buffer, value=self.token))
        return buffer

    def add_token(self, stream: str) -> None:
        if self.made_hosts >= HOST_BUFFERS:
            return
        sources = [b for b in self.buffers if self.graph.may_read(stream, b)]
        source = self.pick(sources) if sources and self.random() < 0.6 else self.fill(stream)
        if not source and not sources:
            return
        self.made_hosts += 1
        until = None
        if self.recipe.slow_copies and self.made_gates < self.gates and self.random() < 0.15:
            self.made_gates += 1
            until = f"g{self.made_gates}"
        source = source or sources[0]
        self.add(Copy(stream=stream, source=source, target=f"h{self.made_hosts}", until=until))

    def move(self, stream: str) -> None:
        """A copy between device buffers, or back from the host."""
        graph = self.graph
        hosts = [f"h{n + 1}" for n in range(self.made_hosts)] if self.random() < 0.6 else []
        sources = [b for b in hosts or self.buffers if graph.may_read(stream, b)]
        if not sources:
            return
        source = self.pick(sources)
        targets = [b for b in self.buffers if b != source and graph.may_write(stream, b)]
        if targets:
            self.add(Copy(stream=stream, source=source, target=self.pick(targets)))

    def closing(self, stream: str) -> None:
        """What may hold back an earlier event of the stream: a wait for an event behind a gate issued just now."""
        other = self.pick(self.streams)
        live = [event for event in self.events if event not in self.graph.destroyed]
        if not live:
            return
        event = self.pick(live)
        self.add_gate(other)
        self.add(Record(stream=other, event=event))
        self.add(Wait(stream=stream, event=event))

    # ------------------------------------------------------------------ host steps

    def host(self, kind: str) -> None:
        """Add a host step of this kind if it is possible now and cannot block for ever."""
        graph = self.graph
        used = [s for s in self.streams if s in graph.past]
        if kind == "query-stream" and used and self.recipe.stream_queries:
            self.add(QueryStream(stream=self.pick(used)), device=False)
        elif kind == "sync-stream":
            ready = [s for s in used if graph.serial(graph.past[s])]
            if ready:
                self.add(SyncStream(stream=self.pick(ready)), device=False)
        elif kind == "sync":
            ready = [e for e, mask in graph.record.items() if e not in graph.destroyed and graph.serial(mask)]
            if ready:
                self.add(Sync(event=self.pick(ready)), device=False)
        elif kind == "destroy":
            live = [e for e in self.events if e not in graph.destroyed and e in graph.record]
            held = [e for e in live if not graph.done(graph.record[e])]
            if held and self.random() < 0.8:
                live = held
            if live and len(graph.destroyed) + 1 < len(self.events):
                self.add(Destroy(event=self.pick(live)), device=False)
        elif kind == "sync-device" and graph.idle() and used:
            self.add(SyncDevice(), device=False)

    # ------------------------------------------------------------------ motifs

    def motifs(self) -> list[Iterator[Op]]:
        kinds = (self.core, self.again, self.chain, self.unrecorded, self.itself, self.ring, self.join, self.drop)
        return [kinds[int(self.random() * len(kinds))]() for _ in range(1 + int(self.random() * 2))]

    def two(self) -> tuple[str, str]:
        first = self.pick(self.streams)
        return first, self.pick([name for name in self.streams if name != first])

    def core(self) -> Iterator[Op]:
        """An event, then a wait behind it for something that is held."""
        stream, other = self.two()
        event, later = self.pick(self.events), self.pick(self.events)
        yield from (("gate", stream, ""), ("token", stream, ""), ("record", stream, event))
        yield from (("gate", other, ""), ("record", other, later), ("wait", stream, later), ("token", stream, ""))

    def again(self) -> Iterator[Op]:
        """One event recorded twice, with a wait between, or before the first record is done, or after."""
        stream, other = self.two()
        event, seen = self.pick(self.events), self.pick(self.events)
        if self.random() < 0.5:
            yield "gate", stream, ""
        yield "record", stream, event
        if self.random() < 0.5:
            yield "gate", other, ""
        yield from (("wait", other, event), ("token", other, ""), ("record", other, seen))
        yield from (("gate", stream, ""), ("record", stream, event))

    def chain(self) -> Iterator[Op]:
        """A token handed on from stream to stream."""
        yield "gate", self.streams[0], ""
        for before, after in zip(self.streams, self.streams[1:] + self.streams[:1]):  # noqa: B905 - same length
            event = self.pick(self.events)
            yield from (("token", before, ""), ("record", before, event), ("wait", after, event), ("token", after, ""))

    def unrecorded(self) -> Iterator[Op]:
        """A wait on an event that is recorded only later, behind a gate."""
        stream, other = self.two()
        event, seen = self.events[-1], self.pick(self.events)
        if self.random() < 0.5:
            yield "gate", stream, ""
        yield from (("wait", stream, event), ("token", stream, ""), ("record", stream, seen))
        yield from (("gate", other, ""), ("record", other, event))

    def itself(self) -> Iterator[Op]:
        """A wait on an event of the same stream."""
        stream, event = self.pick(self.streams), self.pick(self.events)
        yield from (("gate", stream, ""), ("record", stream, event), ("wait", stream, event), ("token", stream, ""))
        yield "record", stream, self.pick(self.events)

    def ring(self) -> Iterator[Op]:
        """Steps on a main stream, each copied on the next stream of a ring."""
        main, ring = self.streams[0], self.streams[1:]
        for step in range(4):
            stream = ring[step % len(ring)]
            yield from (("gate", main, ""), ("wait-stream", stream, main), ("token", stream, ""))
            yield "record", stream, self.events[step % len(self.events)]

    def join(self) -> Iterator[Op]:
        """One stream waits for all others."""
        stream = self.pick(self.streams)
        yield "gate", self.pick(self.streams), ""
        for other in self.streams:
            if other != stream:
                yield from (("token", other, ""), ("wait-stream", stream, other))
        yield from (("token", stream, ""), ("record", stream, self.pick(self.events)))

    def drop(self) -> Iterator[Op]:
        """An event that another stream waits for, and that the host then drops."""
        stream, other = self.two()
        event = self.pick(self.events)
        yield from (("gate", stream, ""), ("record", stream, event), ("wait", other, event), ("token", other, ""))
        if event in self.graph.record and event not in self.graph.destroyed and len(self.events) > 1:
            self.add(Destroy(event=event), device=False)
        yield "record", other, self.pick(self.events)
