"""The copy-stream ring: one output copy stream per step in flight, in turn. Standard library only.

    ring = CopyStreamRing(n, lambda: torch.cuda.Stream(device), length=ring_size(n), avoid=[main])
    ...
    copy_stream = ring.next()          # once per output

Why it must be as long as the steps in flight, and what it costs: docs/engines.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import cycle
from typing import Any, Final, Generic, TypeVar

from conformance.errors import UsageError

S = TypeVar("S")

#: Attributes in which a torch stream, of a vendor's module or generic, shows its raw handle, the surest first.
HANDLES: Final = ("cuda_stream", "musa_stream", "npu_stream", "native_handle")

#: Streams that are drawn and refused before the ring gives up: two rounds of torch's pool of 32.
REFUSED: Final = 64


class RingError(UsageError):
    """A ring that would not do what it is for: too short, or of streams that are one."""


def handle_of(stream: Any) -> int:
    """The raw handle of a stream as torch shows it. Raises RingError for a stream that shows none."""
    for name in HANDLES:
        handle = getattr(stream, name, None)
        if isinstance(handle, int):
            return handle
    raise RingError(
        f"a {type(stream).__name__} shows no handle in any of {', '.join(HANDLES)}; "
        "pass handle=, a function from a stream to its raw handle"
    )


class CopyStreamRing(Generic[S]):
    """Distinct streams in turn, the first one first: at least as many as there are steps in flight, or one.

    `next` is to be called once per output, by the one thread that queues the outputs: that is what puts the wait of
    the next step in flight on another stream. More threads are safe under the interpreter's lock, each call then takes
    the next stream, but whose turn it is is theirs to order; without that lock (free-threaded builds) they must
    hold one of their own.
    """

    __slots__ = ("next", "streams")

    #: The next stream; after the last the first again.
    next: Callable[[], S]
    #: All of them, in their order.
    streams: tuple[S, ...]

    def __init__(
        self,
        in_flight: int,
        new_stream: Callable[[], S],
        *,
        length: int | None = None,
        avoid: Iterable[S] = (),
        handle: Callable[[S], object] = handle_of,
    ) -> None:
        """Make the streams by ``new_stream``, drawing again where a handle is taken, by another or by one to ``avoid``.

        ``length`` is `ring_size`'s answer, by default ``in_flight``: 1 is a ring that is not armed, and anything else
        below ``in_flight`` is refused, since a ring that is too short can be worse than none. Two streams are one if
        ``handle`` says the same of both. Raises RingError.
        """
        length = in_flight if length is None else length
        if in_flight < 1 or length < 1:
            raise RingError(f"a ring of {length} for {in_flight} in flight; both are 1 at least")
        if length not in (1, max(length, in_flight)):
            raise RingError(
                f"a ring of {length} is too short for {in_flight} in flight, which can be worse than none; "
                f"make it {in_flight}, or 1 to switch it off"
            )
        self.streams = _distinct(length, new_stream, avoid, handle)
        self.next = cycle(self.streams).__next__

    def __len__(self) -> int:
        return len(self.streams)

    def __repr__(self) -> str:
        return f"CopyStreamRing({list(self.streams)!r})"


def _distinct(
    length: int, new_stream: Callable[[], S], avoid: Iterable[S], handle: Callable[[S], object]
) -> tuple[S, ...]:
    taken: dict[object, S] = {}
    for stream in avoid:
        taken[_handle(stream, handle)] = stream
    streams: list[S] = []
    refused: list[S] = []  # kept alive meanwhile: a handle that was freed could come back at once
    while len(streams) < length:
        stream = new_stream()
        if (number := _handle(stream, handle)) in taken:
            refused.append(stream)
            if len(refused) > REFUSED:
                raise RingError(
                    f"a ring needs {length} different streams; new_stream gave {len(streams)}, and {len(refused)} with "
                    "a handle that is taken; shorten it to the steps in flight, or make streams outside a pool"
                )
            continue
        taken[number] = stream
        streams.append(stream)
    return tuple(streams)


def _handle(stream: S, handle: Callable[[S], object]) -> object:
    if (found := handle(stream)) is None:
        raise RingError(f"the handle of {stream!r} cannot be read, so it cannot be compared; pass another handle=")
    return found
