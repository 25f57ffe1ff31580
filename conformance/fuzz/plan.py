"""Compiles a program into a flat list of calls and of what must be seen after them.

A plan is plain tuples of integers and texts (`marshal` carries it between processes), made ahead of
its execution. Source of what is looked at, and when: docs/rules.md 2, "Observation"; MUST and PEND are
judged, SHOULD is counted.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from conformance.fuzz.graph import Graph
from probes.program import (
    Copy,
    Destroy,
    Fill,
    Gate,
    Open,
    QueryStream,
    Record,
    Sync,
    SyncDevice,
    SyncStream,
    Wait,
    WaitStream,
    is_host,
)

if TYPE_CHECKING:
    from conformance.fuzz.recipe import Choice
    from probes.program import Program, Step

#: What an item of a plan is; its first entry.
ISSUE, OPEN, QUERY_STREAM, SYNC_STREAM, SYNC, SYNC_DEVICE, DESTROY, LOOK = range(8)
#: What a stream query must say.
BUSY, IDLE, EITHER = range(3)

Item = tuple[Any, ...]
#: (observe, flags, events that are used before they are recorded, streams, gates, items, host buffers)
Plan = tuple[str, str, tuple[str, ...], tuple[str, ...], tuple[str, ...], tuple[Item, ...], tuple[str, ...]]


def compile_plan(program: Program, choice: Choice, *, calls: bool = True) -> Plan | None:
    """The plan of a program, or None if it is not tidy (races, a host buffer written twice).

    ``calls``: with the name of each device call, for an executor that has them bound; without, only the
    range of the steps.
    """
    return _Compiler(program, choice, calls).plan()


class _Compiler:
    def __init__(self, program: Program, choice: Choice, calls: bool) -> None:
        self.program, self.choice, self.calls = program, choice, calls
        self.graph = Graph()
        self.items: list[Item] = []
        self.by_query = choice.observe == "query"
        steps = program.steps
        self.touches = Counter(s.event for s in steps if isinstance(s, (Record, Wait)))
        self.unwatched = {s.event for s in steps if isinstance(s, (Destroy, Sync))}
        self.records: Counter[str] = Counter()
        self.seen: dict[str, int] = {}  # event -> mask of the record that was owed at an earlier look
        self.asked: dict[str, int] = {}  # event -> mask of the record that a SHOULD look asked
        self.fresh: list[str] = []
        self.waited: set[str] = set()
        self.events = program.events

    def plan(self) -> Plan | None:
        steps, first = self.program.steps, 0
        self._find_fresh()
        for number, step in enumerate(steps):
            if not is_host(step):
                self.graph.feed(step)
                if isinstance(step, (Record, Wait)):
                    self.touches[step.event] -= 1
                    self.records[step.event] += isinstance(step, Record)
                continue
            if number == 0 or not is_host(steps[number - 1]):
                self._issue(first, number)
                self._look()
            first = number + 1
            self._host(step)
            self._look()
        if not self.graph.tidy:
            return None
        self._issue(first, len(steps))
        return (
            self.choice.observe,
            self.choice.flags,
            tuple(self.fresh),
            self.program.streams,
            self.program.gates,
            tuple(self.items),
            self.program.host_buffers,
        )

    def _find_fresh(self) -> None:
        """Events that are waited for before they are recorded: only these are looked at before that."""
        recorded: set[str] = set()
        for step in self.program.steps:
            if isinstance(step, Record):
                recorded.add(step.event)
            elif isinstance(step, Wait) and step.event not in recorded and step.event not in self.fresh:
                self.fresh.append(step.event)

    # ------------------------------------------------------------------ calls

    def _issue(self, first: int, last: int) -> None:
        if first < last:
            calls = _calls(self.program.steps[first:last]) if self.calls else ()
            self.items.append((ISSUE, first, last, calls))

    def _host(self, step: Step) -> None:
        graph = self.graph
        if isinstance(step, Open):
            graph.feed(step)
            self.items.append((OPEN, step.gate))
        elif isinstance(step, Destroy):
            graph.feed(step)
            self.items.append((DESTROY, step.event))
        elif isinstance(step, QueryStream):
            mask = graph.past.get(step.stream, 0)
            expected = BUSY if not graph.done(mask) else IDLE if graph.serial(mask) else EITHER
            self.items.append((QUERY_STREAM, step.stream, expected))
        elif isinstance(step, SyncStream) and graph.serial(graph.past.get(step.stream, 0)):
            self.items.append((SYNC_STREAM, step.stream))
        elif isinstance(step, Sync) and graph.serial(graph.record.get(step.event, 0)):
            self.items.append((SYNC, step.event))
        elif isinstance(step, SyncDevice) and graph.idle():
            self.items.append((SYNC_DEVICE,))

    # ------------------------------------------------------------------ looks

    def _look(self) -> None:
        graph = self.graph
        due: list[tuple[str, tuple[tuple[str, int], ...]]] = []
        again: list[str] = []
        never: list[str] = []
        pend: list[str] = []
        should: list[str] = []
        for event in self.events:
            if event in graph.destroyed:
                continue
            if not self.by_query and (event in self.unwatched or self.touches[event]):
                continue  # a helper inside synchronize and a call on the same event never meet
            mask = graph.record.get(event)
            key = event if self.by_query else f"{event}#{self.records[event]}"
            if mask is None:
                if event in self.fresh:
                    never.append(key)
            elif not graph.done(mask):
                pend.append(key)
            elif not graph.serial(mask):
                should.append(key)
            elif self.seen.get(event) == mask:
                again.append(key)
            else:
                self.seen[event] = mask
                due.append((key, graph.tokens(mask)))
        closed = tuple(graph.gate)
        early = graph.early()
        if due or again or never or pend or should or early:
            self.items.append((LOOK, tuple(due), tuple(again), tuple(never), tuple(pend), tuple(should), early, closed))


def _calls(steps: tuple[Step, ...]) -> tuple[tuple[str, int | None], ...]:
    """The calls of these operations by name; those that torch makes on the current stream are told which it is."""
    calls: list[tuple[str, int | None]] = []
    current = ""
    for step in steps:
        if isinstance(step, (Fill, Copy)) and step.stream != current:
            current = step.stream
            calls.append((f"on {current}", None))
        if isinstance(step, Fill):
            calls.append((f"fill {step.buffer}", step.value))
        elif isinstance(step, Copy):
            calls.append((f"copy {step.source} {step.target}", None))
        elif isinstance(step, Record):
            calls.append((f"record {step.stream} {step.event}", None))
        elif isinstance(step, Wait):
            calls.append((f"wait {step.stream} {step.event}", None))
        elif isinstance(step, WaitStream):
            calls.append((f"wait-stream {step.stream} {step.other}", None))
        elif isinstance(step, Gate):
            calls.append((f"gate {step.stream} {step.gate}", None))
    return tuple(calls)
