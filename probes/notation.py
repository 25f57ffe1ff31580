"""The text of a program: one line per run of operations, in issue order. Parse and print round-trip.

copy: gate g1, fill x 1, copy x -> h, record e
main: gate g2, record f
copy: wait f
host: open g1, open g2
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import Final

from probes.program import (
    HOST_LANE,
    Copy,
    Destroy,
    DeviceOp,
    Elapsed,
    Fill,
    Gate,
    HostFn,
    HostStep,
    Nop,
    Open,
    Pause,
    Program,
    QueryStream,
    Read,
    Record,
    Step,
    StepError,
    Sync,
    SyncDevice,
    SyncStream,
    Wait,
    WaitStream,
    is_host,
)

_NAME: Final = r"([A-Za-z]\w*)"

#: For each device operation: its operands as a pattern, how they are named in an error, its maker.
_DEVICE: Final[dict[str, tuple[str, str, Callable[..., DeviceOp]]]] = {
    "gate": (_NAME, "GATE", lambda s, g: Gate(stream=s, gate=g)),
    "fill": (_NAME + r"\s+(\d+)", "BUFFER NUMBER", lambda s, b, v: Fill(stream=s, buffer=b, value=int(v))),
    "copy": (
        _NAME + r"\s*->\s*" + _NAME + r"(?:\s+until\s+" + _NAME + ")?",
        "SOURCE -> TARGET [until GATE]",
        lambda s, a, b, g: Copy(stream=s, source=a, target=b, until=g),
    ),
    "record": (_NAME, "EVENT", lambda s, e: Record(stream=s, event=e)),
    "wait": (_NAME, "EVENT", lambda s, e: Wait(stream=s, event=e)),
    "wait-stream": (_NAME, "STREAM", lambda s, o: WaitStream(stream=s, other=o)),
    "host-fn": (
        _NAME + r"(?:\s+until\s+" + _NAME + ")?",
        "FUNCTION [until GATE]",
        lambda s, f, g: HostFn(stream=s, name=f, until=g),
    ),
}
_HOST: Final[dict[str, tuple[str, str, Callable[..., HostStep]]]] = {
    "open": (_NAME, "GATE", lambda g: Open(gate=g)),
    "sync": (_NAME, "EVENT", lambda e: Sync(event=e)),
    "sync-stream": (_NAME, "STREAM", lambda s: SyncStream(stream=s)),
    "query-stream": (_NAME, "STREAM", lambda s: QueryStream(stream=s)),
    "sync-device": ("", "nothing", SyncDevice),
    "read": (_NAME, "BUFFER", lambda b: Read(buffer=b)),
    "destroy": (_NAME, "EVENT", lambda e: Destroy(event=e)),
    "elapsed": (_NAME + r"\s+" + _NAME, "EVENT EVENT", lambda a, b: Elapsed(start=a, end=b)),
}


class ProgramError(ValueError):
    """A program text that cannot be read: says line, column and what was expected there."""

    def __init__(self, line: int, column: int, expected: str) -> None:
        super().__init__(f"line {line}, column {column}: {expected}")
        self.line, self.column, self.expected = line, column, expected


def parse(text: str) -> Program:
    """Read a program. Blank lines and lines that begin with # are skipped; raises ProgramError."""
    steps: list[Step] = []
    places: list[tuple[int, int]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        lane = re.match(rf"\s*{_NAME}:", line)
        if lane is None:
            column = len(line) - len(line.lstrip()) + 1
            raise ProgramError(number, column, "expected a stream name or 'host', then ':'")
        position = lane.end()
        for part in line[position:].split(","):
            column = position + len(part) - len(part.lstrip()) + 1
            steps.append(_step(lane[1], part.strip(), number, column))
            places.append((number, column))
            position += len(part) + 1
    try:
        return Program(tuple(steps))
    except StepError as error:
        raise ProgramError(*places[error.index], error.reason) from None


def _step(lane: str, text: str, line: int, column: int) -> Step:
    table: dict[str, tuple[str, str, Callable[..., Step]]] = {}
    table.update(_HOST if lane == HOST_LANE else _DEVICE)
    name, *rest = text.split(maxsplit=1) or [""]
    if name not in table:
        raise ProgramError(line, column, f"expected one of {', '.join(table)}")
    pattern, operands, make = table[name]
    match = re.fullmatch(pattern, rest[0].strip() if rest else "")
    if match is None:
        raise ProgramError(line, column, f"expected '{name} {operands}'")
    return make(*match.groups()) if lane == HOST_LANE else make(lane, *match.groups())


def print_step(step: Step) -> str:
    """One operation as text, without its lane."""
    if isinstance(step, Gate):
        return f"gate {step.gate}"
    if isinstance(step, Fill):
        return f"fill {step.buffer} {step.value}"
    if isinstance(step, Copy):
        return f"copy {step.source} -> {step.target}" + (f" until {step.until}" if step.until else "")
    if isinstance(step, Record):
        return f"record {step.event}"
    if isinstance(step, Wait):
        return f"wait {step.event}"
    if isinstance(step, WaitStream):
        return f"wait-stream {step.other}"
    if isinstance(step, HostFn):
        return f"host-fn {step.name}" + (f" until {step.until}" if step.until else "")
    return _print_host(step)


def _print_host(step: HostStep | Nop) -> str:
    if isinstance(step, Open):
        return f"open {step.gate}"
    if isinstance(step, Sync):
        return f"sync {step.event}"
    if isinstance(step, SyncStream):
        return f"sync-stream {step.stream}"
    if isinstance(step, QueryStream):
        return f"query-stream {step.stream}"
    if isinstance(step, SyncDevice):
        return "sync-device"
    if isinstance(step, Read):
        return f"read {step.buffer}"
    if isinstance(step, Destroy):
        return f"destroy {step.event}"
    if isinstance(step, Elapsed):
        return f"elapsed {step.start} {step.end}"
    return ""


def lane_of(step: Step) -> str:
    """The lane that a step is written in: its stream's name, or ``host``."""
    if is_host(step):
        return HOST_LANE
    return step.stream  # type: ignore[union-attr]  # every device operation has one


def print_program(program: Program) -> str:
    """The program's text; operations that a control left out do not appear."""
    lines: list[tuple[str, list[str]]] = []
    for step in program.steps:
        if isinstance(step, (Nop, Pause)):
            continue
        lane, text = lane_of(step), print_step(step)
        if lines and lines[-1][0] == lane:
            lines[-1][1].append(text)
        else:
            lines.append((lane, [text]))
    return "\n".join(f"{lane}: {', '.join(texts)}" for lane, texts in lines)


def digest(program: Program) -> str:
    """SHA-256 of the program's text, hexadecimal: the same program has the same digest anywhere."""
    return hashlib.sha256(print_program(program).encode()).hexdigest()
