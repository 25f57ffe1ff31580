"""The oracle: what must be seen of a program at each host point, and what must not.

Denotational: a happens-before graph over the operations issued so far, and two sets of it,
`Done*` (maximal concurrency) and `Serial` (one in-order queue). There is no scheduler here, and
nothing is shared with the reference device. Source: docs/rules.md 9, "Happens-before and the
two completion sets"; theorems 1 (append invariance) and 2 (sandwich) are property tests.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from probes.program import (
    DEFAULT_STREAM,
    Copy,
    Destroy,
    DeviceOp,
    Fill,
    HostFn,
    Nop,
    Open,
    Record,
    Step,
    Wait,
    WaitStream,
    gate_of,
    is_blocking_stream,
    is_far,
    is_host,
    is_host_buffer,
)


class Obligation(str, Enum):
    """What the specification demands of an event at a host point."""

    NEVER = "NEVER"  # never recorded: complete at once
    PEND = "PEND"  # captured work cannot be complete: must not be seen complete
    MUST = "MUST"  # complete on any device, even one with a single queue
    SHOULD = "SHOULD"  # complete if the device runs streams concurrently, which nobody guarantees


@dataclass(slots=True, eq=False)
class Node:
    """One operation that was issued. Every edge points from a smaller to a larger index."""

    index: int
    step: int  # index of the program's step that it came from
    kind: str  # gate, fill, copy, record, wait, host-fn
    stream: str
    event: str | None = None
    gate: str | None = None
    buffer: str | None = None  # what a fill or copy writes
    source: str | int | None = None  # what a copy reads; a fill's value
    function: str | None = None  # what a host-fn calls
    bound: Node | None = None  # the record that a wait obeys, bound when it was issued
    temporary: bool = False  # belongs to the event that a wait-stream makes for itself
    preds: tuple[Node, ...] = ()
    tied: tuple[Node, ...] = ()  # those of preds that only the legacy default stream's rule makes so
    ancestors: int = 0  # bit set of indices, itself included
    untied: int = 0  # the same without that rule
    needs: int = 0  # bit set of the indices of preds
    born: int = 0  # bit set of the nodes in Done* when it was issued


@dataclass(slots=True)
class Model:
    """The happens-before graph of the steps fed so far."""

    nodes: list[Node] = field(default_factory=list)
    current: dict[str, Node] = field(default_factory=dict)  # event -> its latest record
    opened: set[str] = field(default_factory=set)
    destroyed: set[str] = field(default_factory=set)
    copies: dict[str, list[Node]] = field(default_factory=dict)  # target -> the copies to it, in issue order
    done: int = 0  # Done*: bit set of indices
    _last: dict[str, Node] = field(default_factory=dict)
    _first_closed: int = 0  # Serial: every node below this index is openable
    _pending: list[Node] = field(default_factory=list)

    def feed(self, step: Step, number: int) -> None:
        """Take in step ``number`` of a program; host steps other than open and destroy change nothing."""
        if isinstance(step, Open):
            self.opened.add(step.gate)
            self._settle()
        elif isinstance(step, Destroy):
            self.destroyed.add(step.event)
        elif not is_host(step):
            self._issue(step, number)  # type: ignore[arg-type]  # not a host step

    def _issue(self, op: DeviceOp, number: int) -> None:
        if isinstance(op, Nop):
            return
        if isinstance(op, WaitStream):
            # wait-stream is a record and a wait, nothing else (STM-WSTREAM-1).
            record = self._add(Node(len(self.nodes), number, "record", op.other, event=f"~{number}", temporary=True))
            self._add(
                Node(len(self.nodes), number, "wait", op.stream, event=f"~{number}", bound=record, temporary=True)
            )
            return
        node = Node(len(self.nodes), number, "gate", op.stream, gate=gate_of(op))
        if isinstance(op, Fill):
            node.kind, node.buffer, node.source = "fill", op.buffer, op.value
        elif isinstance(op, Copy):
            node.kind, node.buffer, node.source = "copy", op.target, op.source
            self.copies.setdefault(op.target, []).append(node)
        elif isinstance(op, Record):
            node.kind, node.event = "record", op.event
        elif isinstance(op, Wait):
            node.kind, node.event, node.bound = "wait", op.event, self.current.get(op.event)
        elif isinstance(op, HostFn):
            node.kind, node.function = "host-fn", op.name
        self._add(node)
        if node.kind == "record":
            self.current[node.event or ""] = node

    def _add(self, node: Node) -> Node:
        node.born = self.done
        before = self._last.get(node.stream)
        own = tuple(pred for pred in (before, node.bound) if pred is not None)
        node.tied = self._ties(node.stream)
        node.preds = own + node.tied
        node.ancestors = node.untied = 1 << node.index
        for pred in node.preds:
            node.ancestors |= pred.ancestors
            node.needs |= 1 << pred.index
        for pred in own:
            node.untied |= pred.untied
        self._last[node.stream] = node
        self.nodes.append(node)
        self._pending.append(node)
        self._settle()
        return node

    def _ties(self, stream: str) -> tuple[Node, ...]:
        """The default stream comes after what blocking streams were given before it, and before what comes later."""
        if stream == DEFAULT_STREAM:
            return tuple(last for name, last in self._last.items() if is_blocking_stream(name))
        last = self._last.get(DEFAULT_STREAM)
        return (last,) if is_blocking_stream(stream) and last is not None else ()

    def _settle(self) -> None:
        done, opened, left = self.done, self.opened, []
        for node in self._pending:
            if (node.gate is None or node.gate in opened) and not node.needs & ~done:
                done |= 1 << node.index
            else:
                left.append(node)
        self.done, self._pending = done, left
        while self._first_closed < len(self.nodes) and self.openable(self.nodes[self._first_closed]):
            self._first_closed += 1

    def openable(self, node: Node) -> bool:
        """True if no gate, or an opened one, stands before the node."""
        return node.gate is None or node.gate in self.opened

    def is_done(self, node: Node) -> bool:
        """True if the node is in Done*."""
        return bool(self.done >> node.index & 1)

    def is_serial(self, node: Node) -> bool:
        """True if the node is in Serial: done even on a device with one in-order queue."""
        return node.index < self._first_closed

    def obligation(self, event: str) -> Obligation:
        """What is demanded of ``event`` now."""
        record = self.current.get(event)
        return Obligation.NEVER if record is None else self.obligation_of(record)

    def obligation_of(self, node: Node) -> Obligation:
        """What is demanded of a node now."""
        if not self.is_done(node):
            return Obligation.PEND
        return Obligation.MUST if self.is_serial(node) else Obligation.SHOULD

    def closure(self, node: Node) -> list[Node]:
        """The node and everything that happens before it, in issue order."""
        return [other for other in self.nodes[: node.index + 1] if node.ancestors >> other.index & 1]

    def holding(self, node: Node) -> list[Node]:
        """The closed gates that the node stands behind, in issue order."""
        return [other for other in self.closure(node) if not self.openable(other)]

    def held_by_ties(self, node: Node) -> bool:
        """Is it the legacy default stream's rule alone that holds the node back?"""
        holding = self.holding(node)
        return bool(holding) and not any(node.untied >> other.index & 1 for other in holding)

    def captures(self, record: Node, node: Node) -> bool:
        """True if ``node`` happens before ``record``."""
        return bool(record.ancestors >> node.index & 1)

    def token(self, node: Node) -> int:
        """The value that a fill or copy writes (defined for programs without races)."""
        if isinstance(node.source, int):
            return node.source
        return self._value(node.source or "", node)

    def _value(self, buffer: str, reader: Node) -> int:
        for other in reversed(self.nodes[: reader.index]):
            if other.buffer == buffer and reader.ancestors >> other.index & 1:
                return self.token(other)
        return 0

    def tokens(self, record: Node) -> dict[str, int]:
        """What host buffers must hold once the record is complete: buffer name -> value.

        A buffer that something outside the record's past writes too is left out, and so is a copy whose
        source is written in no order with it: their values prove nothing.
        """
        inside = {
            node.buffer: node
            for node in self.closure(record)
            if node.kind == "copy" and node.buffer is not None and is_host_buffer(node.buffer)
        }
        outside = {node.buffer for node in self.nodes if node.buffer is not None and not self.captures(record, node)}
        return {
            buffer: self.token(node)
            for buffer, node in inside.items()
            if buffer not in outside and not self._races(node)
        }

    def telling(self, node: Node) -> bool:
        """Would the value of this pending copy, seen in its buffer, show that the copy was done?"""
        value = self.token(node)
        others = (n for n in self.nodes if n.buffer == node.buffer and n is not node)
        return value != 0 and not self._races(node) and all(self.token(n) != value for n in others)

    def _races(self, node: Node) -> bool:
        """Does anything write the copy's source, or its target, in no order with it?"""
        return any(
            n.buffer in (node.source, node.buffer)
            and n is not node
            and not self.captures(node, n)
            and not self.captures(n, node)
            for n in self.nodes
            if n.buffer is not None
        )

    def behind(self, node: Node) -> list[Node]:
        """What was issued after the node on its own stream, in issue order."""
        return [other for other in self.nodes[node.index + 1 :] if other.stream == node.stream]


def crosses(wait: Node) -> bool:
    """Does a wait obey a record of another device?"""
    return wait.bound is not None and is_far(wait.bound.stream) is not is_far(wait.stream)


def host_points(steps: tuple[Step, ...]) -> list[int]:
    """The number of steps done at each host point: before the first host step of a run, after each one."""
    points: list[int] = []
    for index, step in enumerate(steps):
        if is_host(step):
            if index == 0 or not is_host(steps[index - 1]):
                points.append(index)
            points.append(index + 1)
    return points


__all__ = ["Model", "Node", "Obligation", "crosses", "host_points"]
