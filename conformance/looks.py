"""What was seen at the host points of one program: plain records, filled by the executor and read by the judgement."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Literal

from conformance.backends.api import EventFlags, Opinion

if TYPE_CHECKING:
    from conformance.timekeeping import Time
    from probes.program import DeviceOp, HostStep

Observe = Literal["query", "synchronize"]


class Outcome(str, Enum):
    """What became of a host call."""

    RETURNED = "returned"
    BLOCKED = "blocked"  # did not return by the deadline


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What polling one event at one host point showed."""

    first: bool  # the first look
    last: bool  # the last look
    ever: bool  # any look
    flickered: bool  # a look said no after one had said yes
    polls: int
    after: float | None  # seconds from the beginning of the look to the first yes
    data: dict[str, int] = field(default_factory=dict)  # host buffers, read right after the first yes


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A host step or an operation that may block, and how it ended."""

    step: HostStep | DeviceOp
    outcome: Outcome
    value: bool | None = None  # what query-stream said
    seconds: float = 0.0
    time: Time | None = None  # of elapsed
    refused: bool | None = None  # did a call that must raise do so?


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Everything seen at one host point, after ``at`` steps of the program."""

    at: int
    call: Call | None  # the host step just done; None before the first of a run
    events: dict[str, Seen] = field(default_factory=dict)
    buffers: dict[str, int] = field(default_factory=dict)  # after the last look at the events
    arrived: dict[str, float] = field(default_factory=dict)  # seconds until a buffer held its final value
    called: dict[str, int] = field(default_factory=dict)  # how often each host function was
    ended: frozenset[str] = frozenset()  # gates that no longer hold, after everything else
    handles: dict[str, int] = field(default_factory=dict)
    below: dict[str, Opinion] = field(default_factory=dict)  # late events, as the layer below the API has them
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How a program is run: what the variant chooses, and the hold of this repetition."""

    observe: Observe = "query"
    flags: EventFlags = EventFlags.DEFAULT
    hold: float = 1.0
    stop_when_late: bool = False  # end the run at the first late look
    last_look: int | None = None  # end the run after the look of this index
    second_gate: bool = False
    watch: float = 0.0  # seconds for which what may not come yet is watched at least
    ask_below: bool = False  # ask the layer below about late events, where they are asked by query
    tokens_only: bool = False  # look at no event: for a control that shows a token arrive
    families: tuple[tuple[str, str], ...] = ()  # (stream, API family)
    order: tuple[str, ...] = ()  # streams in the order of first use, where a control must keep its program's
