"""Programs: a short sequence of device operations and host steps, as plain data.

A program says nothing about devices and expects nothing: `probes.notation` gives it a text,
`probes.transform` makes its controls, the model computes what must be seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Union

#: The stream that stands for the backend's default stream; every other name is a side stream.
DEFAULT_STREAM: Final = "default"
#: Streams whose name begins so are tied to the default stream, as streams made without the non-blocking flag are.
BLOCKING_STREAM: Final = "blocking"
#: Streams whose name begins so are given the highest priority; all others have the default one.
HIGH_PRIORITY: Final = "high"
#: Streams and device buffers whose name begins so are on a second device.
FAR: Final = "far"
#: The lane of the host's steps in a program's text; no stream has this name.
HOST_LANE: Final = "host"
#: Host buffers are those whose name begins with this letter; all others live on the device.
HOST_BUFFER: Final = "h"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """Holds its stream until the host opens ``gate``, or the gate's own limit ends it."""

    stream: str
    gate: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fill:
    """Writes ``value`` into the whole of device buffer ``buffer``."""

    stream: str
    buffer: str
    value: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """Copies ``source`` to ``target``; with ``until`` it ends only when that gate opens."""

    stream: str
    source: str
    target: str
    until: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Records ``event`` on ``stream``."""

    stream: str
    event: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Makes ``stream`` wait for the latest record of ``event``."""

    stream: str
    event: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitStream:
    """Makes ``stream`` wait for everything queued so far on ``other``."""

    stream: str
    other: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFn:
    """Calls a host function, known by ``name``, in stream order; with ``until`` it returns when that gate opens."""

    stream: str
    name: str
    until: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Nop:
    """An operation that a control left out: keeps indices and the order in which streams are used."""

    stream: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """The host opens ``gate``."""

    gate: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """The observing thread synchronizes on ``event``."""

    event: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncStream:
    """The observing thread synchronizes on ``stream``."""

    stream: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryStream:
    """The host asks whether ``stream`` has finished everything queued on it."""

    stream: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncDevice:
    """The observing thread synchronizes on the device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """The host reads host buffer ``buffer`` (a host point without any other effect)."""

    buffer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Destroy:
    """The host drops ``event``."""

    event: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Elapsed:
    """The host asks for the time between two events."""

    start: str
    end: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """A host step that a control left out: only its host point remains."""


DeviceOp = Union[Gate, Fill, Copy, Record, Wait, WaitStream, HostFn, Nop]
HostStep = Union[Open, Sync, SyncStream, QueryStream, SyncDevice, Read, Destroy, Elapsed, Pause]
Step = Union[DeviceOp, HostStep]

HOST_STEPS: Final = (Open, Sync, SyncStream, QueryStream, SyncDevice, Read, Destroy, Elapsed, Pause)


def is_host(step: Step) -> bool:
    """True for a host step, False for a device operation."""
    return isinstance(step, HOST_STEPS)


@dataclass(frozen=True, slots=True)
class Program:
    """A well-formed sequence of steps in issue order.

    Raises StepError where a step could never mean anything: a buffer copied onto itself, a fill of
    a host buffer, an operation on another device's buffers alone, a gate that is opened but not queued
    or queued twice, a host function queued twice, a destroyed event that is used again.
    """

    steps: tuple[Step, ...]

    def __post_init__(self) -> None:
        check(self.steps)

    @property
    def streams(self) -> tuple[str, ...]:
        """Stream names in the order of their first use; a waited-for stream counts before its waiter."""
        names: dict[str, None] = {}
        for step in self.steps:
            if isinstance(step, WaitStream):
                names[step.other] = None
            if not isinstance(step, HOST_STEPS):
                names.setdefault(step.stream)
        return tuple(names)

    @property
    def events(self) -> tuple[str, ...]:
        """Names of the events that the program records, waits for or asks a time of, sorted."""
        names = {step.event for step in self.steps if isinstance(step, (Record, Wait))}
        for step in self.steps:
            if isinstance(step, Elapsed):
                names |= {step.start, step.end}
        return tuple(sorted(names))

    @property
    def functions(self) -> tuple[str, ...]:
        """Names of the host functions, in issue order."""
        return tuple(step.name for step in self.steps if isinstance(step, HostFn))

    @property
    def gates(self) -> tuple[str, ...]:
        """Names of the gates, in issue order."""
        return tuple(name for step in self.steps if (name := gate_of(step)) is not None)

    @property
    def buffers(self) -> tuple[str, ...]:
        """Names of all buffers, host and device, sorted."""
        names: set[str] = set()
        for step in self.steps:
            if isinstance(step, Copy):
                names |= {step.source, step.target}
            elif isinstance(step, (Fill, Read)):
                names.add(step.buffer)
        return tuple(sorted(names))

    @property
    def host_buffers(self) -> tuple[str, ...]:
        """The buffers that the host may look at."""
        return tuple(name for name in self.buffers if name.startswith(HOST_BUFFER))


def gate_of(step: Step) -> str | None:
    """The gate that ``step`` waits for, if any."""
    if isinstance(step, Gate):
        return step.gate
    return step.until if isinstance(step, (Copy, HostFn)) else None


def is_blocking_stream(name: str) -> bool:
    """True if ``name`` is a side stream that the default stream orders."""
    return name.startswith(BLOCKING_STREAM)


def is_high_priority(name: str) -> bool:
    """True if ``name`` is a stream of the highest priority."""
    return name.startswith(HIGH_PRIORITY)


def is_far(name: str) -> bool:
    """True if ``name`` is a stream, or a device buffer, of the second device."""
    return name.startswith(FAR)


def is_host_buffer(name: str) -> bool:
    """True if ``name`` is a buffer in host memory."""
    return name.startswith(HOST_BUFFER)


def is_peer_copy(step: Copy) -> bool:
    """True if a copy goes from one device to another."""
    return len({is_far(name) for name in (step.source, step.target) if not is_host_buffer(name)}) > 1


def _strange(step: Fill | Copy) -> str:
    """A buffer of another device than the stream's, if no buffer of the operation is on the stream's own."""
    named = [step.buffer] if isinstance(step, Fill) else [step.source, step.target]
    ends = [name for name in named if not is_host_buffer(name)]
    return "" if not ends or any(is_far(name) is is_far(step.stream) for name in ends) else ends[0]


class StepError(ValueError):
    """A step that could never mean anything; ``index`` says which, from 0."""

    def __init__(self, index: int, step: Step, reason: str) -> None:
        super().__init__(f"step {index + 1} ({type(step).__name__}): {reason}")
        self.index, self.reason = index, reason


def check(steps: tuple[Step, ...]) -> None:
    """Raise StepError at the first step that could never mean anything."""
    gates: set[str] = set()
    destroyed: set[str] = set()
    functions: set[str] = set()
    for index, step in enumerate(steps):
        if not isinstance(step, HOST_STEPS) and step.stream == HOST_LANE:
            raise StepError(index, step, f"no stream can be called {HOST_LANE}: that is the host's lane")
        if isinstance(step, Fill) and step.value < 0:
            raise StepError(index, step, f"{step.buffer} is filled with {step.value}; a token is 0 or more")
        gate = gate_of(step)
        if gate is not None:
            if gate in gates:
                raise StepError(index, step, f"gate {gate} is queued twice; give each gate a name of its own")
            gates.add(gate)
        if isinstance(step, HostFn):
            if step.name in functions:
                raise StepError(index, step, f"function {step.name} is queued twice; give each call a name of its own")
            functions.add(step.name)
        if isinstance(step, Open) and step.gate not in gates:
            raise StepError(index, step, f"gate {step.gate} is opened before it is queued")
        if isinstance(step, Copy) and step.source == step.target:
            raise StepError(index, step, f"{step.source} is copied onto itself")
        if isinstance(step, Fill) and is_host_buffer(step.buffer):
            raise StepError(index, step, f"{step.buffer} is a host buffer; fill a device buffer and copy it")
        if isinstance(step, (Fill, Copy)) and (strange := _strange(step)):
            raise StepError(index, step, f"{strange} is on the other device; use a stream of that one")
        if isinstance(step, WaitStream) and step.stream == step.other:
            raise StepError(index, step, f"{step.stream} waits for itself")
        if isinstance(step, Read) and not is_host_buffer(step.buffer):
            raise StepError(index, step, f"{step.buffer} is on the device; only host buffers can be read")
        used = {step.event} if isinstance(step, (Record, Wait, Sync, Destroy)) else set()
        if isinstance(step, Elapsed):
            used = {step.start, step.end}
        if gone := used & destroyed:
            raise StepError(index, step, f"event {min(gone)} was destroyed")
        if isinstance(step, Destroy):
            destroyed.add(step.event)
