"""What the tests of real-time backends share: waiting for what must and must not happen, and a program's parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conformance.backends.calls import HostClock
from probes.program import Copy, DeviceOp, Fill, Gate, Nop, Record, Wait
from reports.records import Result, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

#: Seconds after which something that must happen counts as hung; nothing here is about speed.
DEADLINE = 20.0
#: Looks at something that must not happen; each has a control in which it does.
LOOKS = 400
#: Times that a device in real time is asked again where a busy machine may have hidden the answer. A double's streams
#: are threads: what it does too early may come after the look, and a control may come too late to count.
TRIES = 5

#: The operations that most programs begin with.
G1, E = Gate(stream="S", gate="g1"), Record(stream="S", event="e")
G2, F = Gate(stream="T", gate="g2"), Record(stream="T", event="f")
WAIT_F = Wait(stream="S", event="f")

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


def some_try(seen: Callable[[], bool]) -> bool:
    """True once ``seen`` says so, at the latest at the last of `TRIES`: is a fault found that load may hide?"""
    return any(seen() for _ in range(TRIES))


def settled(run: Callable[[Collection[str]], dict[str, Result]]) -> dict[str, Result]:
    """What came of all probes (``run(())``); those that a busy machine left unclear are run again, by name, at most
    `TRIES` times. What came out wrong stays so.
    """
    found = run(())
    for _ in range(TRIES):
        unclear = {result.probe for result in found.values() if Verdict.INCONCLUSIVE in _verdicts(result)}
        if not unclear:
            break
        found |= run(unclear)
    return found


def _verdicts(result: Result) -> set[Verdict]:
    return {result.verdict} | {clause.verdict for clause in result.clauses}


def mark(stream: str, value: int, source: str = "x", target: str = "h") -> list[DeviceOp]:
    """Work that shows on the host that it was done."""
    return [Fill(stream=stream, buffer=source, value=value), Copy(stream=stream, source=source, target=target)]


def core(token: int) -> list[DeviceOp]:
    """The program that the suite is about: a wait queued behind a record, still blocked when it completes."""
    return [G1, *mark("S", token), E, G2, F, WAIT_F, Nop(stream="S")]
