"""Runs one plan and looks for anything that should not be: the fast path, which decides nothing.

What it calls an anomaly goes to `careful`, which judges the program by the ordinary rules. One look after
all MUST events of a host point were seen, events that must pend and tokens that may not be there after
that, and the words of the closed gates last: they are the proof. Source: docs/rules.md 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from conformance.fuzz.plan import (
    BUSY,
    DESTROY,
    IDLE,
    ISSUE,
    LOOK,
    OPEN,
    QUERY_STREAM,
    SYNC,
    SYNC_DEVICE,
    SYNC_STREAM,
)
from conformance.numbers import Numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from conformance.fuzz.plan import Item, Plan

#: Seconds after which a MUST event is late, and a call that must return blocks: the deadline of every judgement.
PATIENCE: Final = Numbers().deadline
#: Looks without an answer before the clock is asked and time is let pass.
SPIN: Final = 50


class Machine(Protocol):
    """The calls of one program, bound: names as they stand in its plan."""

    patience: float  # seconds until something owed is late: PATIENCE, or less where the careful path decides anyway
    query: Mapping[str, Callable[[], bool]]
    read: Mapping[str, Callable[[], int]]
    ended: Mapping[str, Callable[[], bool]]

    def issue(self, item: Item) -> None:
        """Queue the operations of an ISSUE item."""
        ...

    def open(self, gate: str) -> None:
        """Open a gate."""
        ...

    def destroy(self, event: str) -> None:
        """Drop an event."""
        ...

    def query_stream(self, stream: str) -> bool:
        """Ask a stream."""
        ...

    def returns(self, kind: int, name: str) -> bool:
        """Does this synchronize (SYNC, SYNC_STREAM, SYNC_DEVICE), which must return, do so in time?"""
        ...

    def now(self) -> float:
        """Seconds."""
        ...

    def pause(self, polls: int) -> None:
        """Let a little time pass."""
        ...


@dataclass(slots=True)
class Tally:
    """What the fast path counted."""

    programs: int = 0
    must: int = 0  # events that were owed and seen
    pend: int = 0  # events that had to pend and did
    should: int = 0
    held: int = 0  # of `should`, those that were seen complete
    expired: int = 0  # programs in which a gate ended by itself

    def add(self, other: Tally) -> None:
        """Take in another tally."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


#: The anomaly of a program whose gate ended by itself: it proves nothing, and is run again.
EXPIRED: Final = "gate-expired"


def screen(plan: Plan, machine: Machine, tally: Tally) -> str:
    """Run a plan; the first anomaly in words, or empty. Leaves gates closed at an anomaly: the caller opens them."""
    tally.programs += 1
    for item in plan[5]:
        kind = item[0]
        if kind == LOOK:
            anomaly = _look(item, machine, tally)
            if anomaly:
                tally.expired += anomaly == EXPIRED
                return anomaly
        elif kind == OPEN:
            machine.open(item[1])
        else:
            began = machine.now()
            if kind == ISSUE:
                machine.issue(item)
            elif anomaly := _host(item, machine):
                return anomaly
            if machine.now() - began >= machine.patience:
                return "a call blocked"
    return ""


def _look(item: Item, machine: Machine, tally: Tally) -> str:
    query, read, ended = machine.query, machine.read, machine.ended
    _, due, again, never, pend, should, early, closed = item
    for event, tokens in due:
        ask = query[event]
        if not ask() and not _comes(ask, machine):
            return f"{event} is late"
        for buffer, value in tokens:
            if read[buffer]() != value:
                return f"{buffer} is not there though {event} is complete"
    for event in again:
        if not query[event]():
            return f"{event} was owed before and is not complete"
    for event in never:
        ask = query[event]
        if not ask() and ("#" not in event or not _comes(ask, machine)):
            return f"{event} was never recorded and is not complete"
    anomaly = ""
    for event in pend:
        if query[event]():
            anomaly = anomaly or f"{event} is early"
    for buffer, value in early:
        if read[buffer]() == value:
            anomaly = anomaly or f"{buffer} is early"
    for gate in closed:
        if ended[gate]():
            return EXPIRED
    for event in should:
        tally.held += query[event]()
    tally.must += len(due) + len(again)
    tally.pend += len(pend)
    tally.should += len(should)
    return anomaly


def _comes(ask: Callable[[], bool], machine: Machine) -> bool:
    """Does an event that is owed come in time?"""
    for _ in range(SPIN):
        if ask():
            return True
    began, polls = machine.now(), 0
    while not ask():
        if machine.now() - began >= machine.patience:
            return False
        machine.pause(polls)
        polls += 1
    return True


def _host(item: Item, machine: Machine) -> str:
    kind = item[0]
    if kind == QUERY_STREAM:
        _, stream, expected = item
        says = machine.query_stream(stream)
        if says and expected == BUSY:
            return f"stream {stream} says that it is finished"
        if not says and expected == IDLE and not _comes(lambda: machine.query_stream(stream), machine):
            return f"stream {stream} does not finish"
    elif kind == DESTROY:
        machine.destroy(item[1])
    elif kind in (SYNC, SYNC_STREAM, SYNC_DEVICE):
        name = item[1] if len(item) > 1 else ""
        if not machine.returns(kind, name):
            return f"synchronize on {name or 'the device'} does not return"
        if kind == SYNC and not machine.query[name]():
            return f"synchronize on {name} returned and it is not complete"
    return ""
