"""What an experiment works with: a backend, one variant, and a notebook.

An experiment is a bounded procedure whose answer does not come from a program and the model: it makes
calls that a program cannot write down, and says of each clause what this repetition showed.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Final

from conformance.backends.api import EventFlags, Request
from conformance.errors import DeviceError
from conformance.execution import VIRTUAL_WATCH
from conformance.judgement.statements import Statement
from reports.records import EventSeen, HostPoint, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from conformance.backends.api import Backend, Session, Waiter
    from conformance.backends.extras import TimedCall
    from conformance.numbers import Numbers
    from probes.probe import Case

#: A gate ended by itself: the repetition is done again.
EXPIRED: Final = "gate-expired"


def held(clause: str, reason: str = "") -> Statement:
    """The clause held in this repetition."""
    return Statement(clause=clause, verdict=Verdict.CONFORMANT, reason=reason, held=True)


def failed(clause: str, reason: str, *, repeat: bool = False) -> Statement:
    """The clause was broken. ``repeat``: it rests on the host's clock, so one observation is no proof."""
    return Statement(clause=clause, verdict=Verdict.NON_CONFORMANT, reason=reason, held=False, repeat=repeat)


def unclear(clause: str, reason: str) -> Statement:
    """This repetition says nothing, and why."""
    return Statement(clause=clause, verdict=Verdict.INCONCLUSIVE, reason=reason)


def unsupported(clause: str, reason: str) -> Statement:
    """The device cannot show it, and why."""
    return Statement(clause=clause, verdict=Verdict.UNSUPPORTED, reason=reason)


@dataclass(slots=True)
class Controls:
    """What the controls of one variant did."""

    on_time: int = 0
    tried: int = 0
    slowest: float = 0.0  # seconds


@dataclass(slots=True, kw_only=True)
class Bench:
    """One repetition of one variant."""

    backend: Backend
    case: Case
    numbers: Numbers
    hold: float
    number: int  # of the repetition, from 1
    controls: Controls
    points: list[HostPoint] = field(default_factory=list)
    late_device: bool = False  # it is proved that every event here is late

    @property
    def patience(self) -> float:
        """Seconds for which something that must come is waited for: the deadline; little where nothing is in time."""
        return self.numbers.harvest if self.late_device else self.numbers.deadline

    def choice(self, factor: str) -> str:
        """What the variant chose for a factor; KeyError for a factor that it does not have."""
        return dict(self.case.factors)[factor]

    @contextmanager
    def session(
        self,
        *,
        streams: Sequence[str],
        events: Sequence[str] = (),
        gates: Sequence[str] = (),
        buffers: Sequence[str] = (),
        flags: EventFlags = EventFlags.DEFAULT,
    ) -> Iterator[Session]:
        """A session that is closed whatever happens. Raises DeviceError if the device does not become idle."""
        session = self.backend.session(
            Request(
                streams=streams,
                events=events,
                gates=gates,
                buffers=buffers,
                flags=flags,
                gate_limit=self.numbers.gate_limit,
            )
        )
        idle = False
        try:
            yield session
        finally:
            idle = session.close()
        if not idle:
            raise DeviceError(f"{self.backend.name}: the device did not become idle after its gates opened")

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """What a call that the device refuses raises."""
        return (DeviceError, *self.backend.vendor_errors)

    def until(self, seen: Callable[[], bool], seconds: float | None = None) -> float | None:
        """Seconds until ``seen``, None after ``seconds`` (by default `patience`) without; it is asked at least once."""
        clock = self.backend.clock
        limit = self.patience if seconds is None else seconds
        began, polls = clock.now(), 0
        while not seen():
            if clock.now() - began > limit:
                return None
            clock.pause(polls)
            polls += 1
        return clock.now() - began

    def arrived(self, session: Session, stream: str, buffer: str, value: int) -> Callable[[], bool]:
        """Reads a host buffer beside a question to the device: waiting on memory alone is quiet, and judges nothing."""
        asks = self.backend.unsupported("query-stream") is None

        def there() -> bool:
            if asks:
                session.query_stream(stream)
            return session.read(buffer) == value

        return there

    def slips(self, seen: Callable[[], bool]) -> bool:
        """Is something seen that must not be? Watched for the window of a pending event."""
        clock, polls = self.backend.clock, 0
        began = clock.now()
        while not seen():
            polls += 1
            passed = clock.now() - began
            if passed >= VIRTUAL_WATCH if clock.virtual else self._watched(polls, passed):
                return False
            clock.pause(polls)
        return True

    def _watched(self, polls: int, seconds: float) -> bool:
        return polls >= self.numbers.pend_polls and seconds >= self.numbers.pend_window

    def let_pass(self, seconds: float) -> None:
        """Let time pass."""
        self.until(lambda: False, seconds)

    def limit(self, clause: str) -> float:
        """Seconds from which a call is too slow for a clause: a query is to answer at once, the others by the
        deadline.
        """
        return self.numbers.at_once if clause == "EVT-QNB-1" else self.numbers.deadline

    def took(self, call: TimedCall) -> float:
        """Seconds that a call that must not block took by its own clock, since it may have held the interpreter;
        infinite if it has not returned by the deadline. Raises what the call raised.
        """
        if self.until(lambda: call.returned, self.numbers.deadline) is None:
            return inf
        if call.error is not None:
            raise call.error
        return call.seconds

    def control(self, on_time: float | None) -> bool:
        """Take a control in: its seconds, None if it did not do what it must. True if it did."""
        self.controls.tried += 1
        if on_time is not None:
            self.controls.on_time += 1
            self.controls.slowest = max(self.controls.slowest, on_time)
        return on_time is not None

    def note(
        self,
        call: str,
        *,
        returned: bool = True,
        seconds: float = 0.0,
        events: Mapping[str, tuple[str, bool]] | None = None,
        buffers: Mapping[str, int] | None = None,
        ended: Sequence[str] = (),
    ) -> None:
        """Write down a host call and what was seen after it; ``events``: (what was owed, was it seen)."""
        self.points.append(
            HostPoint(
                after_step=len(self.points),
                call=call,
                returned=returned,
                events=tuple(
                    EventSeen(event=name, owed=owed, seen=seen, polls=1)
                    for name, (owed, seen) in (events or {}).items()
                ),
                buffers=dict(buffers or {}),
                gates_ended=tuple(ended),
                waited_us=round(seconds * 1e6, 1),
            )
        )


def raised(waiter: Waiter) -> None:
    """Raise what a call that has returned raised."""
    if waiter.error is not None:
        raise waiter.error
