"""The copy-stream ring: whose turn it is, which streams count as one, and what is refused."""

from __future__ import annotations

import threading
from collections import Counter
from itertools import count
from typing import TYPE_CHECKING

import pytest
from helpers import is_one_line

from conformance.errors import UsageError
from conformance.ring import REFUSED, CopyStreamRing, RingError, handle_of

if TYPE_CHECKING:
    from collections.abc import Callable


class Stream:
    """A stream as torch shows it, in so far as a ring looks."""

    def __init__(self, handle: int) -> None:
        self.cuda_stream = handle


def streams(*handles: int) -> Callable[[], Stream]:
    """A factory of streams with these handles, over and over."""
    turn = count()
    return lambda: Stream(handles[next(turn) % len(handles)])


def handles(ring: CopyStreamRing[Stream], draws: int) -> list[int]:
    """The handles of the next streams."""
    return [ring.next().cuda_stream for _ in range(draws)]


def test_streams_come_in_turn_and_the_first_one_first() -> None:
    ring = CopyStreamRing(3, streams(5, 6, 7))
    assert len(ring) == 3
    assert handles(ring, 7) == [5, 6, 7, 5, 6, 7, 5]


@pytest.mark.parametrize(("length", "expected"), [(None, 3), (1, 1), (3, 3), (5, 5)])
def test_it_is_as_long_as_asked_for(length: int | None, expected: int) -> None:
    ring = CopyStreamRing(3, streams(*range(9)), length=length)
    assert handles(ring, 6) == [i % expected for i in range(6)]


@pytest.mark.parametrize(
    ("in_flight", "length", "words"),
    [
        (3, 2, ("too short", "make it 3, or 1")),
        (9, 8, ("too short",)),
        (0, None, ("1 at least",)),
        (2, 0, ("1 at least",)),
        (2, -2, ("1 at least",)),
    ],
)
def test_a_ring_that_is_too_short_is_refused(in_flight: int, length: int | None, words: tuple[str, ...]) -> None:
    with pytest.raises(RingError) as caught:
        CopyStreamRing(in_flight, streams(*range(9)), length=length)
    assert is_one_line(str(caught.value))
    assert all(word in str(caught.value) for word in words)


def test_a_stream_that_is_another_one_is_drawn_again() -> None:
    main = Stream(1)
    ring = CopyStreamRing(3, streams(1, 2, 2, 1, 3, 4), avoid=[main])
    assert handles(ring, 3) == [2, 3, 4]
    assert handles(CopyStreamRing(1, streams(1, 2), avoid=[main]), 2) == [2, 2]


def test_refused_streams_live_until_the_ring_is_whole() -> None:
    free = [3, 2, 1, 1]
    drawn: list[int] = []

    class Pooled(Stream):
        """A handle goes back to the pool with its stream, and is given out again first."""

        def __init__(self) -> None:
            super().__init__(free.pop())
            drawn.append(self.cuda_stream)

        def __del__(self) -> None:
            free.append(self.cuda_stream)

    ring = CopyStreamRing(3, Pooled)
    assert [stream.cuda_stream for stream in ring.streams] == [1, 2, 3]
    assert drawn == [1, 1, 2, 3]


@pytest.mark.parametrize("pool", [1, 2, 32])
def test_a_pool_that_is_too_small_is_refused_and_does_not_hang(pool: int) -> None:
    drawn: list[Stream] = []
    make = streams(*range(pool))

    def new() -> Stream:
        drawn.append(make())
        return drawn[-1]

    with pytest.raises(RingError, match=f"needs {pool + 1} different streams; new_stream gave {pool},") as caught:
        CopyStreamRing(pool + 1, new)
    assert is_one_line(str(caught.value))
    assert isinstance(caught.value, UsageError)
    assert len(drawn) == pool + REFUSED + 1
    assert len(CopyStreamRing(pool, new)) == pool


@pytest.mark.parametrize("name", ["cuda_stream", "musa_stream", "native_handle"])
def test_the_handle_is_what_torch_shows(name: str) -> None:
    shown = type("S", (), {name: 77})()
    assert handle_of(shown) == 77


def test_a_stream_without_a_handle_is_refused_unless_the_caller_reads_it() -> None:
    class Opaque:
        def __init__(self, number: int) -> None:
            self.number = number

    numbers = count()
    with pytest.raises(RingError, match="handle="):
        CopyStreamRing(2, lambda: Opaque(next(numbers)))
    with pytest.raises(RingError, match="cannot be compared"):
        CopyStreamRing(2, lambda: Opaque(next(numbers)), handle=lambda _: None)
    ring = CopyStreamRing(2, lambda: Opaque(next(numbers)), handle=lambda stream: stream.number)
    assert len(ring) == 2


def test_threads_share_the_turns_evenly() -> None:
    ring = CopyStreamRing(3, streams(0, 1, 2))
    seen: list[int] = []

    def draw() -> None:
        seen.extend(handles(ring, 3000))

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counter(seen) == {0: 4000, 1: 4000, 2: 4000}
