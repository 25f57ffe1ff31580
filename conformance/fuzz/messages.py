"""What a hunt is asked for and what it tells; between processes as JSON lines."""

from __future__ import annotations

from typing import Final, Union

import msgspec

from conformance.backends.registry import Opening
from conformance.fuzz.recipe import Recipe


class Job(msgspec.Struct, frozen=True, kw_only=True, tag="job"):
    """Which programs to run: texts first, then indices ``first`` to ``last`` of a recipe, or an enumeration."""

    seed: int
    size: str
    first: int = 0
    last: int = 0
    exhaustive: int = 0  # enumerate programs of this many operations instead
    texts: tuple[str, ...] = ()  # programs of the corpus, with their comments
    seconds: float | None = None  # stop after so long
    stop_after: int = 1  # stop once so many different sets of clauses were found to fail
    shrink_seconds: float = 60.0
    workers: int = 0  # processes that write and compile programs ahead; 0: in this process


class Start(msgspec.Struct, frozen=True, kw_only=True, tag="start"):
    """To a child, first."""

    job: Job
    opening: Opening
    path: tuple[str, ...]
    folder: str
    factory: str
    mark: int  # file descriptor of the memory in which the child names the program that it runs
    alone: float  # seconds without a beat after which it ends itself


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag="ready"):
    """From a child: the device is open, and this is what programs may contain there."""

    device: str
    gate: str
    recipe: Recipe
    lock: str | None = None


class Caught(msgspec.Struct, frozen=True, kw_only=True, tag="caught"):
    """A program that showed something: a finding if clauses failed, else unsteady."""

    index: int  # -1 - n: the nth text of the corpus
    anomaly: str  # what the fast path saw
    text: str
    observe: str
    flags: str
    failed: tuple[str, ...] = ()
    unclear: tuple[str, ...] = ()
    shrunk: str = ""
    shrunk_observe: str = ""
    shrunk_flags: str = ""
    operations: int = 0  # device operations of the shrunk program
    clause: str = ""  # that it was shrunk by
    tries: int = 0


class Progress(msgspec.Struct, frozen=True, kw_only=True, tag="progress"):
    """How far it is: everything below ``next`` was run."""

    next: int
    tally: dict[str, int]
    operations: dict[int, int]  # device operations of a program -> programs
    gates: dict[int, int]
    seconds: float  # spent on the programs, careful runs and shrinking left out
    by_hand: float = 0.0  # seconds of one round of the hand-written loop, where there is one
    skipped: int = 0  # programs of the corpus that need what the backend lacks
    ended: bool = False


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """From a child: something was raised that is no verdict; the child ends."""

    kind: str
    text: str


Answer = Union[Ready, Caught, Progress, Failed]
_START: Final = msgspec.json.Decoder(Start)
_ANSWER: Final[msgspec.json.Decoder[Answer]] = msgspec.json.Decoder(Answer)


def start_of(line: bytes) -> Start:
    """The first line of a parent. Raises msgspec.DecodeError."""
    return _START.decode(line)


def answer_of(line: bytes) -> Answer:
    """A line of a child. Raises msgspec.DecodeError."""
    return _ANSWER.decode(line)
