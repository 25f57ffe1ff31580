"""Waiting, for tests of real-time backends: for what must happen, and for what must not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conformance.backends.calls import HostClock

if TYPE_CHECKING:
    from collections.abc import Callable

#: Seconds after which something that must happen counts as hung; nothing here is about speed.
DEADLINE = 20.0
#: Looks at something that must not happen; each has a control in which it does.
LOOKS = 400

clock = HostClock()


def until(seen: Callable[[], bool]) -> bool:
    """True as soon as ``seen``, False at a deadline that only a hang reaches."""
    end, polls = clock.now() + DEADLINE, 0
    while not seen():
        if clock.now() > end:
            return False
        clock.pause(polls)
        polls += 1
    return True


def never(seen: Callable[[], bool]) -> bool:
    """True if ``seen`` is not once true in `LOOKS` looks."""
    for polls in range(LOOKS):
        if seen():
            return False
        clock.pause(polls)
    return True
