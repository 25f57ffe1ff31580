"""What generated programs may contain: how large they are, and what the backend can do."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from conformance.backends.api import Backend

Observe = Literal["query", "synchronize"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How large a program may be; ``least`` to ``most`` device operations are asked for."""

    name: str
    streams: int
    events: int
    gates: int
    buffers: int  # of the device; host buffers are bounded by HOST_BUFFERS
    least: int
    most: int


#: Host buffers of a program: each is written once, so that its value proves one copy.
HOST_BUFFERS: Final = 24
#: `large` is for devices without parked-stream limits. The others stay below what was measured on hardware:
#: with four streams parked before a copy to the host, one more such copy stalls (docs/hardware.md).
SIZES: Final[Mapping[str, Size]] = MappingProxyType(
    {
        size.name: size
        for size in (
            Size(name="small", streams=3, events=3, gates=2, buffers=2, least=3, most=12),
            Size(name="medium", streams=3, events=4, gates=4, buffers=3, least=8, most=22),
            Size(name="large", streams=6, events=6, gates=8, buffers=5, least=8, most=44),
        )
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """How one program is observed, and with which event flags."""

    observe: Observe = "query"
    flags: str = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Everything that decides which program a seed and an index stand for."""

    seed: int
    size: Size
    slow_copies: bool = False  # a copy may be held by a gate of its own
    unrecorded: bool = True  # an event may be waited for and asked before it is recorded
    stream_queries: bool = True
    default_stream: bool = True
    flags: tuple[str, ...] = ("default",)
    synchronize: float = 0.125  # the share of programs that are observed by synchronize


def recipe_for(backend: Backend, seed: int, size: Size) -> Recipe:
    """The recipe of all that a backend can do."""
    optional = (("blocking", "event-flag-blocking"), ("timing", "event-flag-timing"))
    return Recipe(
        seed=seed,
        size=size,
        slow_copies=backend.unsupported("slow-copy") is None,
        unrecorded=backend.unsupported("unrecorded-event") is None,
        default_stream=backend.unsupported("default-stream") is None,
        stream_queries=backend.unsupported("query-stream") is None,
        flags=("default", *(flag for flag, needs in optional if backend.unsupported(needs) is None)),
    )
