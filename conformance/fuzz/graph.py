"""The model in integers: what is owed at a host point, by bit masks over the operations issued so far.

The same rules as `conformance.model` (docs/rules.md 9), for programs that are `tidy`: no races, and each
host buffer written once. A node is in Done* exactly if no closed gate is among its ancestors, and in
Serial exactly if no closed gate was issued before it. A property test holds the two models together.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from probes.program import (
    BLOCKING_STREAM,
    Copy,
    Destroy,
    Fill,
    Gate,
    HostFn,
    Open,
    Record,
    Wait,
    WaitStream,
    is_host_buffer,
)

if TYPE_CHECKING:
    from probes.program import Program, Step


@dataclass(slots=True)
class Graph:
    """What was issued so far. A mask holds a node's ancestors and the node itself."""

    count: int = 0  # nodes issued
    past: dict[str, int] = field(default_factory=dict)  # stream -> mask of its last node
    record: dict[str, int] = field(default_factory=dict)  # event -> mask of its latest record
    gate: dict[str, int] = field(default_factory=dict)  # gate -> its node's bit, until it is opened
    closed: int = 0  # bits of the nodes that closed gates hold
    destroyed: set[str] = field(default_factory=set)
    writers: dict[str, int] = field(default_factory=dict)  # buffer -> bits of the nodes that write it
    readers: dict[str, int] = field(default_factory=dict)
    values: dict[str, list[tuple[int, int]]] = field(default_factory=dict)  # buffer -> (bit, value) of each write
    hosts: list[tuple[str, int, int, int]] = field(default_factory=list)  # (buffer, bit, mask, value) of each copy
    tidy: bool = True  # no race so far, no host buffer written twice, no stream that the default one orders

    def feed(self, step: Step) -> None:
        """Take in one step."""
        kind = type(step)
        if kind is Record:
            self.record[step.event] = self._node(step.stream)  # type: ignore[union-attr]  # a Record
        elif kind is Wait:
            self._node(step.stream, self.record.get(step.event, 0))  # type: ignore[union-attr]  # a Wait
        elif kind is Gate:
            self._hold(step.gate, self._node(step.stream))  # type: ignore[union-attr]  # a Gate
        elif isinstance(step, Copy):
            self._copy(step)
        elif isinstance(step, Fill):
            mask = self._node(step.stream)
            self._write(step.buffer, mask, step.value)
        elif isinstance(step, Open):
            self.closed &= ~self.gate.pop(step.gate, 0)
        elif isinstance(step, WaitStream):
            self._node(step.stream, self._node(step.other))
        elif isinstance(step, Destroy):
            self.destroyed.add(step.event)
        elif isinstance(step, HostFn):
            mask = self._node(step.stream)
            if step.until is not None:
                self._hold(step.until, mask)

    def done(self, mask: int) -> bool:
        """Is the node in Done*?"""
        return not mask & self.closed

    def serial(self, mask: int) -> bool:
        """Is the node in Serial? Its own bit is the highest of its mask."""
        return not self.closed & ((1 << mask.bit_length()) - 1)

    def idle(self) -> bool:
        """Is every node done on any device?"""
        return not self.closed

    def tokens(self, mask: int) -> tuple[tuple[str, int], ...]:
        """What host buffers must hold once this record is complete."""
        return tuple((buffer, value) for buffer, bit, _, value in self.hosts if mask & bit)

    def early(self) -> tuple[tuple[str, int], ...]:
        """What host buffers may not hold yet."""
        closed = self.closed
        return tuple((buffer, value) for buffer, _, mask, value in self.hosts if mask & closed and value)

    def may_write(self, stream: str, buffer: str) -> bool:
        """Has everything that uses the buffer happened before the stream's next operation?"""
        used = self.writers.get(buffer, 0) | self.readers.get(buffer, 0)
        return not used & ~self.past.get(stream, 0)

    def may_read(self, stream: str, buffer: str) -> bool:
        """Was it written, all of it before the stream's next operation?"""
        written = self.writers.get(buffer, 0)
        return bool(written) and not written & ~self.past.get(stream, 0)

    def _node(self, stream: str, more: int = 0) -> int:
        if stream.startswith(BLOCKING_STREAM):
            self.tidy = False  # what the default stream orders has more edges than these
        mask = self.past[stream] = self.past.get(stream, 0) | more | 1 << self.count
        self.count += 1
        return mask

    def _hold(self, gate: str, mask: int) -> None:
        bit = 1 << (mask.bit_length() - 1)
        self.gate[gate] = bit
        self.closed |= bit

    def _copy(self, step: Copy) -> None:
        mask = self._node(step.stream)
        value = next((v for bit, v in reversed(self.values.get(step.source, ())) if mask & bit), 0)
        if self.writers.get(step.source, 0) & ~mask:
            self.tidy = False
        self.readers[step.source] = self.readers.get(step.source, 0) | 1 << (mask.bit_length() - 1)
        self._write(step.target, mask, value)
        if step.until is not None:
            self._hold(step.until, mask)

    def _write(self, buffer: str, mask: int, value: int) -> None:
        bit = 1 << (mask.bit_length() - 1)
        writers = self.writers.get(buffer, 0)
        if (writers | self.readers.get(buffer, 0)) & ~mask:
            self.tidy = False
        if is_host_buffer(buffer):
            self.tidy = self.tidy and not writers
            self.hosts.append((buffer, bit, mask, value))
        self.writers[buffer] = writers | bit
        self.values.setdefault(buffer, []).append((bit, value))


def proving(program: Program) -> bool:
    """Does every token of the program prove its copy: no races, each host buffer written once, and never with 0?

    Buffers hold 0 at the start, so a 0 shows nothing.
    """
    graph = Graph()
    for step in program.steps:
        graph.feed(step)
    return graph.tidy and all(value for _, _, _, value in graph.hosts)
