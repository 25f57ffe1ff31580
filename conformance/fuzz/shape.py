"""Changes of whole programs: canonical names, witnesses, and what must be mended after steps were taken out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

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
    StepError,
    Sync,
    SyncStream,
    Wait,
    WaitStream,
    gate_of,
    is_host,
    is_host_buffer,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from probes.program import Step

#: Which fields of a step name what.
_NAMES: Final[dict[str, str]] = {
    "stream": "s",
    "other": "s",
    "event": "e",
    "gate": "g",
    "until": "g",
    "buffer": "b",
    "source": "b",
    "target": "b",
}


def size_of(program: Program) -> int:
    """Device operations."""
    return sum(not is_host(step) for step in program.steps)


def canonical(program: Program, *, values: bool = False) -> Program:
    """The program with its streams, events, gates and buffers called s1, e1, g1, x1, h1 in the order of first use.

    ``values``: filled values are numbered from 1 as well.
    """
    names: dict[tuple[str, str], str] = {}
    counts: dict[str, int] = {}
    numbers: dict[int, int] = {}

    def named(field: str, name: str) -> str:
        kind = _NAMES[field]
        if kind == "b":
            kind = "h" if is_host_buffer(name) else "x"
        if kind == "s" and name == DEFAULT_STREAM:
            return name
        if (kind, name) not in names:
            counts[kind] = counts.get(kind, 0) + 1
            names[kind, name] = f"{kind}{counts[kind]}"
        return names[kind, name]

    steps: list[Step] = []
    for step in program.steps:
        changes: dict[str, object] = {
            field: named(field, getattr(step, field)) for field in _NAMES if getattr(step, field, None) is not None
        }
        if values and isinstance(step, Fill):
            changes["value"] = numbers.setdefault(step.value, len(numbers) + 1)
        steps.append(replace(step, **changes))  # type: ignore[arg-type]  # the fields of this very step
    return Program(tuple(steps))


def witnessed(program: Program) -> Program:
    """The program with a token of its own before each record: without one a late event proves nothing."""
    steps: list[Step] = []
    for number, step in enumerate(program.steps):
        if isinstance(step, Record):
            buffer, target = f"w{number}", f"hw{number}"
            steps.append(Fill(stream=step.stream, buffer=buffer, value=number + 1))
            steps.append(Copy(stream=step.stream, source=buffer, target=target))
        steps.append(step)
    return Program(tuple(steps))


def mended(steps: Sequence[Step]) -> Program | None:
    """These steps as a program in which every gate is opened and every host step has its object; None if that is none.

    Opened by the steps where they open it, else at the end.
    """
    gates: list[str] = []
    streams: set[str] = set()
    events: set[str] = set()
    buffers: set[str] = set()
    kept: list[Step] = []
    for step in steps:
        if isinstance(step, (Gate, Copy)) and (gate := gate_of(step)) is not None:
            gates.append(gate)
        if not is_host(step):
            streams.add(step.stream)  # type: ignore[union-attr]  # a device operation
        if isinstance(step, WaitStream):
            streams.add(step.other)
        elif isinstance(step, (Record, Wait)):
            events.add(step.event)
        elif isinstance(step, Copy):
            buffers.add(step.target)
        missing = (
            (isinstance(step, Open) and step.gate not in gates)
            or (isinstance(step, (Sync, Destroy)) and step.event not in events)
            or (isinstance(step, (SyncStream, QueryStream)) and step.stream not in streams)
            or (isinstance(step, Read) and step.buffer not in buffers)
        )
        if isinstance(step, Open) and not missing:
            gates.remove(step.gate)
        if not missing:
            kept.append(step)
    kept += [Open(gate=gate) for gate in gates]
    try:
        return Program(tuple(kept))
    except StepError:
        return None
