"""What a backend is: sessions that run one program's operations, and how the host may look at them.

A backend executes and answers; it expects nothing and judges nothing. Everything above this file
works on these protocols alone, so that one executor serves a virtual clock and real devices alike.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from probes.program import DeviceOp, Sync, SyncDevice, SyncStream

#: What each case says that finds no gate. Why each kind failed is long, and is in the header, once.
NO_GATE: Final = "no gate: each kind failed, as 'gates tried' says"


class EventFlags(str, Enum):
    """How a program's events are created."""

    DEFAULT = "default"
    BLOCKING = "blocking"
    TIMING = "timing"


class Clock(Protocol):
    """The time that deadlines are counted in: the host's, or a virtual one."""

    @property
    def virtual(self) -> bool:
        """True if time passes only when it is told to."""
        ...

    def now(self) -> float:
        """Seconds since an arbitrary start."""
        ...

    def pause(self, polls: int) -> None:
        """Let a little time pass after ``polls`` looks without an answer, yielding the interpreter."""
        ...


class Waiter(Protocol):
    """A host call that may block, made by a helper."""

    @property
    def returned(self) -> bool:
        """True once the call has returned. Never blocks."""
        ...

    @property
    def error(self) -> BaseException | None:
        """What the call raised, if it has returned that way."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a session must provide: names in the order in which the program first uses them."""

    streams: Sequence[str]
    events: Sequence[str]
    gates: Sequence[str]
    buffers: Sequence[str]
    functions: Sequence[str] = ()
    flags: EventFlags = EventFlags.DEFAULT
    families: Mapping[str, str] = field(default_factory=dict)  # stream -> API family, where a program mixes them
    second_gate: bool = False  # use the backend's second gate kind
    gate_limit: float = 1.9  # seconds from the moment a gate begins to hold


class Session(Protocol):
    """The streams, events, gates and buffers of one program. All calls but `start` are made by one thread."""

    def issue(self, op: DeviceOp) -> None:
        """Queue one operation; raises what the vendor's call raises."""
        ...

    def handles(self) -> Mapping[str, int]:
        """The raw handle of each stream."""
        ...

    def open(self, gate: str) -> None:
        """Open a gate by a plain host store (or this platform's nearest thing)."""
        ...

    def ended(self, gate: str) -> bool:
        """True if the gate holds no more: opened, or ended by its limit. This is the proof of a closed gate."""
        ...

    def query(self, event: str) -> bool:
        """Ask the event; a never recorded one too."""
        ...

    def query_stream(self, stream: str) -> bool:
        """Ask the stream."""
        ...

    def read(self, buffer: str) -> int:
        """The first word of a host buffer, by a plain load."""
        ...

    def calls(self, function: str) -> int:
        """How often a host function was called so far."""
        ...

    def elapsed(self, start: str, end: str) -> float:
        """Seconds between two events by the device's clock; raises what the vendor's call raises."""
        ...

    def destroy(self, event: str) -> None:
        """Drop the event."""
        ...

    def start(self, call: Sync | SyncStream | SyncDevice) -> Waiter:
        """Make a synchronizing call in a helper thread."""
        ...

    def close(self) -> bool:
        """Open every gate, let the work drain, release everything. False if the device did not become idle."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceInfo:
    """Which device a backend drives."""

    name: str
    index: int = 0
    capability: str = ""
    driver: str = "none"
    runtime: str = ""
    lock: str | None = None  # names the physical device, for the lock file; None if it cannot be disturbed
    uuid: str = ""  # as the driver tells it
    second: str | None = None  # the lock of the device that programs across devices use beside it


@dataclass(frozen=True, slots=True, kw_only=True)
class GateKind:
    """One way of holding a stream, and what came of trying it."""

    kind: str
    assurance: str  # "causal" if the host opens it, "timed" if only time ends it
    release_us: float | None = None
    second: str = ""  # the kind that cross-checks the core verdict, if there is one
    tried: Sequence[tuple[str, str]] = field(default_factory=tuple)  # (kind, "ok" or the call and its error)


class Backend(Protocol):
    """A device that programs can be run on."""

    @property
    def name(self) -> str:
        """The backend's name, as --backend takes it."""
        ...

    @property
    def profile(self) -> str:
        """The profile that binds it."""
        ...

    @property
    def surface(self) -> str:
        """vendor, generic or mixed."""
        ...

    @property
    def simulated(self) -> bool:
        """True if no hardware is used."""
        ...

    @property
    def faults(self) -> tuple[str, ...]:
        """The wrong behaviours that were asked for. Only reports show them."""
        ...

    @property
    def vendor_errors(self) -> tuple[type[Exception], ...]:
        """What the vendor's calls raise: each costs one verdict, never the run."""
        ...

    @property
    def clock(self) -> Clock:
        """The time that deadlines are counted in."""
        ...

    def device(self) -> DeviceInfo:
        """The device in use."""
        ...

    def gate(self) -> GateKind:
        """The gate kind in use."""
        ...

    def unsupported(self, capability: str) -> str | None:
        """None if the backend has the capability, else the exact call and why it cannot be made."""
        ...

    def software(self) -> Mapping[str, str]:
        """Names and versions of what stands between the suite and the device."""
        ...

    def session(self, request: Request) -> Session:
        """Streams, events, gates and buffers for one program."""
        ...

    def close(self) -> None:
        """Give the device back."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Opinion:
    """What the layer below the API says of an event's raw handle."""

    layer: str = ""  # driver or runtime
    call: str = ""  # the function that was asked
    complete: bool | None = None  # None: no answer
    reason: str = ""  # why there is none


class AsksBelow(Protocol):
    """What a session may have beside `Session`: a second opinion on an event that the API calls late."""

    def ask_below(self, event: str) -> Opinion:
        """Ask the driver or runtime itself about the raw handle of a recorded event. Raises nothing for a refusal."""
        ...


class Limits(Protocol):
    """Limits of a device that no program shows, each as a text with its unit.

    Each call is bounded, and leaves no gate closed; it raises what the backend's other calls raise.
    """

    def stream_handles_before_aliasing(self) -> str:
        """How many streams made in a row have different handles."""
        ...

    def launch_queue_depth(self) -> str:
        """How many operations can be queued behind a closed gate until a call blocks."""
        ...

    def to_cpu_non_blocking(self) -> str:
        """What `.to("cpu", non_blocking=True)` gives, and whether it returns behind a closed gate."""
        ...

    def gate_kinds(self) -> Mapping[str, str]:
        """Each gate kind with what came of trying it. To be called last: it loads code."""
        ...


class MeasuresLimits(Protocol):
    """What a backend may have beside `Backend`, for `conformance.measure`."""

    def limits(self) -> Limits:
        """Its limits. Raises DeviceError if the device is not idle."""
        ...


class OpensGates(Protocol):
    """What a backend should have beside `Backend` if it runs in a child process: docs/rules.md 7."""

    def open_all_gates(self) -> None:
        """Open every gate of every session, by stores alone.

        Called by another thread while a program runs, more than once, also before the first session and
        after the last. Never blocks, and never raises for a gate that has ended.
        """
        ...
