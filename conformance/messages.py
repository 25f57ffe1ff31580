"""What a parent and its child say to each other: JSON lines over two pipes of their own.

Not stdin and stdout: vendor libraries print there. Source: docs/rules.md 7.
"""

from __future__ import annotations

import os
import select
import time
from typing import Any, Final, Union

import msgspec

from conformance.backends.api import DeviceInfo
from conformance.backends.registry import Opening
from conformance.measure.found import Measurement
from conformance.numbers import Depth, Numbers
from conformance.pipeline.jobs import Job
from reports.diagnosis import Diagnosis
from reports.pipeline import Parts
from reports.records import Header, Result

#: Bytes read at once.
CHUNK: Final = 1 << 16
#: Seconds between two beats, at least: programs of the reference device take microseconds.
BEAT_EVERY: Final = 0.1


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How long a parent waits for its child; in seconds. The one place where that is said."""

    #: Without a message for so long, a child at work is taken to hang.
    silence: float
    #: What one closed gate may take to end by itself: given whenever gates were opened in the child's stead.
    gate: float
    #: Until a child has opened its device: importing torch from a cold disk and compiling kernels are in it.
    start: float = 120.0

    @classmethod
    def of(cls, numbers: Numbers) -> Limits:
        """Longer than any one look or close lasts: two deadlines, two gates that end by their limit, and slack."""
        return cls(silence=2 * numbers.deadline + 2 * numbers.gate_limit + 5.0, gate=numbers.gate_limit)

    @property
    def alone(self) -> float:
        """After so long without a beat a child ends itself: its parent would have ended it before."""
        return self.silence + 3 * self.gate


class Start(msgspec.Struct, frozen=True, kw_only=True, tag="start"):
    """To the child, first: what to open and how to run."""

    opening: Opening
    numbers: Numbers
    depth: Depth
    restricted: bool
    limits: Limits
    path: tuple[str, ...]  # the parent's sys.path
    folder: str  # the parent's working directory
    die_with_parent: bool
    factory: str = ""  # for tests: package.module:callable, see `conformance.runner`


class Run(msgspec.Struct, frozen=True, kw_only=True, tag="run"):
    """To the child: run one case, knowing what earlier cases have shown."""

    probe: str
    variant: str
    state: dict[str, Any]


class Measure(msgspec.Struct, frozen=True, kw_only=True, tag="measure"):
    """To the child: measure one part of the capabilities."""

    part: str  # one of conformance.measure.PARTS


class Drive(msgspec.Struct, frozen=True, kw_only=True, tag="drive"):
    """To the child: do one job of the decode pipeline."""

    job: Job


class Diagnose(msgspec.Struct, frozen=True, kw_only=True, tag="diagnose"):
    """To the child: sweep the factors of a late event, beginning at a point of them."""

    point: dict[str, str]
    probe: str
    variant: str


class OpenGates(msgspec.Struct, frozen=True, kw_only=True, tag="open"):
    """To the child: open every gate, and go on."""


class Stop(msgspec.Struct, frozen=True, kw_only=True, tag="stop"):
    """To the child: open every gate, and end. A pipe that closes says the same."""


class Hello(msgspec.Struct, frozen=True, kw_only=True, tag="hello"):
    """From the child: the device is open."""

    header: Header
    profile: str
    lock: DeviceInfo


class Beat(msgspec.Struct, frozen=True, kw_only=True, tag="beat"):
    """From the child: a program begins or a gate opens, so nothing hangs."""


class Done(msgspec.Struct, frozen=True, kw_only=True, tag="result"):
    """From the child: a case has its result."""

    result: Result
    state: dict[str, Any]
    spent: bool = False  # the device did not become idle, or a call never returned: use another child


class Measured(msgspec.Struct, frozen=True, kw_only=True, tag="measured"):
    """From the child: what was measured of one part."""

    measurement: Measurement
    spent: bool = False  # as in Done


class Driven(msgspec.Struct, frozen=True, kw_only=True, tag="driven"):
    """From the child: what came of a job."""

    parts: Parts
    spent: bool = False  # as in Done


class Diagnosed(msgspec.Struct, frozen=True, kw_only=True, tag="diagnosed"):
    """From the child: what came of a diagnosis."""

    diagnosis: Diagnosis
    spent: bool = False  # as in Done


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="error"):
    """From the child: something was raised that is no verdict; the child ends."""

    kind: str  # the name of one of our errors, or "unexpected"
    text: str


Request = Union[Run, Measure, Drive, Diagnose, OpenGates, Stop]
Answer = Union[Hello, Beat, Done, Measured, Driven, Diagnosed, Failed]

_START: Final = msgspec.json.Decoder(Start)
_REQUEST: Final[msgspec.json.Decoder[Request]] = msgspec.json.Decoder(Request)
_ANSWER: Final[msgspec.json.Decoder[Answer]] = msgspec.json.Decoder(Answer)


def start_of(line: bytes) -> Start:
    """The first line of a parent. Raises msgspec.DecodeError."""
    return _START.decode(line)


def request_of(line: bytes) -> Request:
    """A line of a parent. Raises msgspec.DecodeError."""
    return _REQUEST.decode(line)


def answer_of(line: bytes) -> Answer:
    """A line of a child. Raises msgspec.DecodeError."""
    return _ANSWER.decode(line)


def send(pipe: int, message: msgspec.Struct) -> None:
    """Write one message whole. Raises BrokenPipeError if nobody reads any more."""
    data = memoryview(msgspec.json.encode(message) + b"\n")
    while data:
        data = data[os.write(pipe, data) :]


class Lines:
    """The lines that arrive in a pipe."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._buffer = bytearray()
        self._poll = select.poll()
        self._poll.register(pipe, select.POLLIN)

    def next(self, seconds: float | None = None) -> bytes | None:
        """The next line, None if there is none in time. Raises EOFError once the other side has closed."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while (end := self._buffer.find(b"\n")) < 0:
            if deadline is not None:
                # Rounded up, and looked at even when the time is over: what has arrived counts.
                left = max(0.0, deadline - time.monotonic())
                if not self._poll.poll(int(1000 * left) + (left > 0)):
                    return None
            data = os.read(self._pipe, CHUNK)
            if not data:
                raise EOFError
            self._buffer += data
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line
