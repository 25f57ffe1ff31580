"""What makes a control out of a program: leaving operations out, giving a record another event,
spelling out a wait-stream.

A control keeps the indices of its program's steps and the order in which the streams are used, so
that the same host points can be compared and no stream changes its queue.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from probes.notation import lane_of
from probes.program import (
    Destroy,
    Elapsed,
    Nop,
    Open,
    Pause,
    Program,
    QueryStream,
    Read,
    Record,
    Step,
    Sync,
    SyncDevice,
    Wait,
    WaitStream,
    gate_of,
    is_host,
)


def without(program: Program, dropped: Collection[int]) -> Program:
    """``program`` without the steps of these indices.

    A wait bound to a dropped record goes with it, and so does the opening of a dropped gate.
    """
    gone = set(dropped)
    gates = {gate_of(program.steps[index]) for index in gone} - {None}
    gone |= {i for i, step in enumerate(program.steps) if isinstance(step, Open) and step.gate in gates}
    bound: dict[str, int] = {}  # event -> index of the record that a wait issued now would obey
    for index, step in enumerate(program.steps):
        if isinstance(step, Record):
            bound[step.event] = index
        elif isinstance(step, Wait) and bound.get(step.event) in gone:
            gone.add(index)
    gone |= _left_without_record(program, gone)
    return Program(tuple(_blank(step) if index in gone else step for index, step in enumerate(program.steps)))


def _left_without_record(program: Program, gone: set[int]) -> set[int]:
    """Host steps on an event whose records are all gone: they would ask what the control does not have."""
    recorded = {step.event for step in program.steps if isinstance(step, Record)}
    left = {s.event for i, s in enumerate(program.steps) if isinstance(s, Record) and i not in gone}
    lost = recorded - left
    found = set()
    for index, step in enumerate(program.steps):
        named = {step.event} if isinstance(step, (Sync, Destroy)) else set()
        if isinstance(step, Elapsed):
            named = {step.start, step.end}
        if named & lost:
            found.add(index)
    return found


def fresh_name(program: Program, wanted: str) -> str:
    """``wanted``, or the first of its numbered forms that no event of the program has."""
    taken = set(program.events)
    return next(name for name in (wanted, *(f"{wanted}{n}" for n in range(len(taken) + 1))) if name not in taken)


def _blank(step: Step) -> Step:
    # A dropped host step leaves its host point behind: looks of a program and its control are compared by index.
    return Pause() if is_host(step) else Nop(stream=lane_of(step))


def with_other_event(program: Program, records: Collection[int], name: str) -> Program:
    """``program`` with the records of these indices made on event ``name`` instead."""
    steps = list(program.steps)
    for index in records:
        step = steps[index]
        if not isinstance(step, Record):
            raise ValueError(f"step {index} is no record")
        steps[index] = Record(stream=step.stream, event=name)
    return Program(tuple(steps))


def with_plain_streams(program: Program, prefix: str) -> Program:
    """``program`` with each stream whose name begins with ``prefix`` replaced by an ordinary side stream."""
    names = {name: f"plain{number}" for number, name in enumerate(program.streams) if name.startswith(prefix)}
    return with_streams(program, names)


def with_streams(program: Program, names: Mapping[str, str]) -> Program:
    """``program`` with its streams called by other names; two may become one."""
    steps: list[Step] = []
    for step in program.steps:
        new: Step = step
        if isinstance(new, WaitStream):
            new = replace(new, other=names.get(new.other, new.other))
        if not isinstance(new, (Open, Sync, QueryStream, SyncDevice, Read, Destroy, Elapsed, Pause)):
            new = replace(new, stream=names.get(new.stream, new.stream))
        elif isinstance(new, QueryStream):
            new = QueryStream(stream=names.get(new.stream, new.stream))
        steps.append(new)
    return Program(tuple(steps))


def spelled_out(program: Program) -> tuple[Program, tuple[int, ...]]:
    """``program`` with each wait-stream written as a record and a wait on an event that is kept.

    Returns the program and, for each of its steps, the index of the step that it came from.
    """
    steps: list[Step] = []
    origin: list[int] = []
    for index, step in enumerate(program.steps):
        if isinstance(step, WaitStream):
            event = fresh_name(program, f"w{index}")
            steps += [Record(stream=step.other, event=event), Wait(stream=step.stream, event=event)]
            origin += [index, index]
        else:
            steps.append(step)
            origin.append(index)
    return Program(tuple(steps)), tuple(origin)
