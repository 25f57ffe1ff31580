"""One walk over the nudges: the program is brought to the point at which its event is owed, and prodded there.

Each nudge is something that a right device does not need. They go from the least to the most: look again,
ask the stream, queue one more operation, open the gates, synchronize. What is seen after which of them
tells one mechanism from another; `conformance.ladder.mechanism` says how.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Final

from conformance.errors import Unsupported
from conformance.execution import Observer, Setting, request_for
from probes.program import (
    Fill,
    Gate,
    Open,
    Program,
    Record,
    SyncDevice,
    SyncStream,
    Wait,
    is_host,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from conformance.backends.api import Backend, Opinion, Request, Session
    from conformance.model import Node
    from conformance.numbers import Numbers
    from probes.program import Step

#: The first pause between two queries, in seconds; each later one is twice as long.
FIRST_PAUSE: Final = 1e-3
#: A scratch buffer, stream, gate and event of the ladder's own; no program has such names.
SCRATCH: Final = "ladder_x"
BESIDE: Final = "ladder_beside"
FOREIGN_GATE: Final = "ladder_gate"
FOREIGN_EVENT: Final = "ladder_event"
GATED: Final = "ladder_gated"
#: Streams that wait behind the foreign gate: with the gated one, one on each of up to five queues.
FOLLOWERS: Final = tuple(f"ladder_follows{n}" for n in range(4))


class Nudge(str, Enum):
    """What was done to the device, in the order in which it is done."""

    TOKEN = "token"  # a load from host memory, no call
    QUERY = "query"  # the first question
    AGAIN = "query again"
    STREAM_QUERY = "stream query"
    OPERATION = "one more operation on its stream"
    BESIDE = "one more operation on another stream"
    OTHER_GATE = "another stream's gate"
    LATER_GATE = "a later gate"
    SYNC_STREAM = "stream synchronize"
    SYNC_DEVICE = "device synchronize"


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """One nudge, and what was seen until the next."""

    nudge: Nudge
    what: str  # the call, in words: with the gate's name
    seen: bool = False
    token: bool | None = None  # None: the captured work leaves no token
    at: float = 0.0  # seconds since the event was owed
    after: float = 0.0  # seconds since this nudge was begun
    longest: float = 0.0  # the longest single call that must return at once
    note: str = ""  # why it was not made


@dataclass(slots=True, kw_only=True)
class Walked:
    """Everything that one walk showed."""

    event: str
    taken: list[Taken] = field(default_factory=list)
    driver: bool | None = None  # the driver's answer while the event was late
    awaited: bool = False  # its own work is missing, and all that it waits for through other events is there
    expired: bool = False  # a gate ended by itself: what came after says nothing

    @property
    def late(self) -> bool:
        """Was the event not seen at the first question?"""
        return not any(t.seen for t in self.taken if t.nudge is Nudge.QUERY)

    @property
    def publisher(self) -> Taken | None:
        """The nudge after which the event was seen first; None if it never was."""
        return next((t for t in self.taken if t.seen), None)

    @property
    def token_first(self) -> bool | None:
        """Was the token there before any call was made?"""
        return self.taken[0].token if self.taken else None

    @property
    def longest(self) -> Taken | None:
        """The nudge in which a call took longest."""
        return max(self.taken, key=lambda t: t.longest, default=None)


class _Walk:
    def __init__(self, backend: Backend, program: Program, setting: Setting, numbers: Numbers, event: str) -> None:
        self.backend, self.program, self.numbers, self.event = backend, program, numbers, event
        self.clock = backend.clock
        self.window = numbers.publication_window(0.0)
        self.session: Session = backend.session(_request(program, setting, numbers))
        self.observer = Observer(backend, self.session, numbers, setting)
        self.walked = Walked(event=event)
        self.by_query = setting.observe == "query"
        self.longest = 0.0
        self.owed = self.began = 0.0

    def bring(self, steps: Sequence[Step], pauses: Mapping[int, float], *, foreign: bool) -> None:
        """Issue and do the steps, looking as a run does; the last of them makes the event owed."""
        program, observer = self.program, self.observer
        observer.plan(program)
        last_run = max((n for n, s in enumerate(steps) if is_host(s) and not is_host(steps[n - 1])), default=0)
        for number, step in enumerate(steps):
            if number in pauses:
                self.rest(pauses[number])
            if not is_host(step):
                observer.issue(step, number)  # type: ignore[arg-type]  # not a host step
                continue
            if number == last_run:
                if foreign:
                    self._foreign()
                self._look(number)
            observer.host(step, number)  # type: ignore[arg-type]  # a host step
            if number + 1 < len(steps):
                self._look(number + 1)
        self.owed = self.clock.now()

    def _look(self, number: int) -> None:
        later = frozenset(s.event for s in self.program.steps[number:] if isinstance(s, (Record, Wait)))
        events, buffers = self.program.events, self.program.host_buffers
        self.observer.look(events, buffers, (), touched_later=later, hold=self.window)

    def _foreign(self) -> None:
        """Streams of our own that are held by a gate of our own, behind everything else in issue order."""
        self.session.issue(Gate(stream=GATED, gate=FOREIGN_GATE))
        self.session.issue(Record(stream=GATED, event=FOREIGN_EVENT))
        for stream in FOLLOWERS:
            # Nothing behind the wait: a parked operation would hold a hardware connection.
            self.session.issue(Wait(stream=stream, event=FOREIGN_EVENT))

    @property
    def record(self) -> Node:
        """The event's record."""
        return self.observer.model.current[self.event]

    def there(self) -> bool | None:
        """Is the captured work's token in host memory? A load, no call."""
        want = self.observer.model.tokens(self.record)
        return all(self.session.read(buffer) == value for buffer, value in want.items()) if want else None

    def ask(self) -> bool:
        """Ask as the variant asks; a query that takes its time is noticed."""
        started = self.clock.now()
        seen = self.observer.ask(self.event)
        if self.by_query:
            self.longest = max(self.longest, self.clock.now() - started)
        return seen

    def rest(self, seconds: float, until: Callable[[], bool | None] = lambda: False) -> None:
        """Let time pass without a call, until something is so."""
        began, polls = self.clock.now(), 0
        while not until() and self.clock.now() - began < seconds:
            self.clock.pause(polls)
            polls += 1

    def take(self, nudge: Nudge, what: str = "", action: Callable[[], object] | None = None) -> bool:
        """One nudge, then looks for a publication window. True if the event is seen, or nothing more can be said."""
        self.longest, note = 0.0, ""
        began = self.began = self.clock.now()
        if action is not None:
            try:
                action()
            except Unsupported as error:
                note = str(error)
            if nudge not in (Nudge.SYNC_STREAM, Nudge.SYNC_DEVICE):
                self.longest = self.clock.now() - began
        seen, polls = self.ask(), 0
        while not seen and not note and self.clock.now() - began < self.window:
            self.clock.pause(polls)
            polls += 1
            seen = self.ask()
        return self._taken(nudge, what, seen, note)

    def _taken(self, nudge: Nudge, what: str, seen: bool, note: str = "") -> bool:
        self.walked.taken.append(
            Taken(
                nudge=nudge,
                what=what or nudge.value,
                seen=seen,
                token=self.there(),
                at=self.clock.now() - self.owed,
                after=self.clock.now() - self.began,
                longest=self.longest,
                note=note,
            )
        )
        closed = set(self.program.gates) - self.observer.model.opened
        self.walked.expired |= any(self.session.ended(gate) for gate in closed)
        return seen or self.walked.expired

    def quiet(self) -> None:
        """Step 0: is the token there, before any call is made?"""
        self.began = self.owed
        self.rest(self.window, self.there)
        self._taken(Nudge.TOKEN, "", seen=False)
        model = self.observer.model
        before = [model.tokens(bound) for bound in self._awaited()]
        there = [all(self.session.read(b) == v for b, v in want.items()) for want in before if want]
        self.walked.awaited = bool(there) and all(there) and self.walked.token_first is False

    def _awaited(self) -> list[Node]:
        """The records that the event captures through waits."""
        closure = self.observer.model.closure(self.record)
        return [node.bound for node in closure if node.kind == "wait" and node.bound is not None]

    def again(self, seconds: float) -> bool:
        """The first question, then again with growing pauses."""
        self.longest, self.began = 0.0, self.clock.now()
        if self._taken(Nudge.QUERY, "", self.ask()):
            return True
        ask_below = getattr(self.session, "ask_below", None)  # optional: `conformance.backends.api.AsksBelow`
        if ask_below is not None and self.by_query:  # an event is never touched by two threads
            opinion: Opinion = ask_below(self.event)
            self.walked.driver = opinion.complete
        self.longest = 0.0
        pause, seen = FIRST_PAUSE, False
        began = self.began = self.clock.now()
        while not seen and self.clock.now() - began < seconds:
            self.rest(min(pause, began + seconds - self.clock.now()))
            pause *= 2
            seen = self.ask()
        return self._taken(Nudge.AGAIN, "", seen)

    def gates(self) -> list[tuple[Nudge, str]]:
        """The closed gates: those that nothing behind the event waits for, then the later ones.

        Behind it is what was queued later on its own stream, or on the stream of an event that it waits for,
        and a later record of such an event.
        """
        model = self.observer.model
        named = {node.event for node in model.closure(self.record) if node.kind == "wait"}
        behind = [n for node in (self.record, *self._awaited()) for n in model.behind(node)]
        behind += [n for n in model.nodes if n.kind == "record" and n.event in named]
        mine = {n.gate for later in behind for n in model.closure(later)}
        closed = [gate for gate in self.program.gates if gate not in model.opened]
        others = [(Nudge.OTHER_GATE, gate) for gate in closed if gate not in mine]
        return others + [(Nudge.LATER_GATE, gate) for gate in closed if gate in mine]

    def open(self, gate: str) -> None:
        """Open one of the program's gates."""
        self.observer.host(Open(gate=gate), len(self.program.steps))

    def synchronize(self, call: SyncStream | SyncDevice) -> None:
        """Synchronize in a helper, for a deadline at most."""
        waiter = self.session.start(call)
        self.rest(self.numbers.deadline, lambda: waiter.returned)


def _request(program: Program, setting: Setting, numbers: Numbers) -> Request:
    """What the program needs, and what the ladder needs beside it; its streams come last in the order of use."""
    request = request_for(program, setting, numbers)
    return replace(
        request,
        streams=(*request.streams, BESIDE, GATED, *FOLLOWERS),
        events=(*request.events, FOREIGN_EVENT),
        gates=(*request.gates, FOREIGN_GATE),
        buffers=(*request.buffers, SCRATCH),
    )


def walk(
    backend: Backend,
    program: Program,
    setting: Setting,
    numbers: Numbers,
    *,
    event: str,
    at: int,
    again: float,
    pauses: Mapping[int, float] | None = None,
) -> Walked:
    """Bring ``program`` to the host point after ``at`` steps, at which ``event`` is owed, and nudge until it is seen.

    ``again`` is for how many seconds it is asked before anything else is done; ``pauses`` are seconds before steps.
    Raises what the backend raises.
    """
    walking = _Walk(backend, program, setting, numbers, event)
    try:
        walking.bring(program.steps[:at], pauses or {}, foreign=False)
        _nudge(walking, again)
    finally:
        walking.session.close()
    return walking.walked


def _nudge(walking: _Walk, again: float) -> None:
    stream = walking.record.stream
    issue = walking.session.issue
    walking.quiet()
    if walking.again(again):
        return
    if walking.take(Nudge.STREAM_QUERY, "", lambda: walking.session.query_stream(stream)):
        return
    if walking.take(Nudge.OPERATION, "", lambda: issue(Fill(stream=stream, buffer=SCRATCH, value=1))):
        return
    if walking.take(Nudge.BESIDE, "", lambda: issue(Fill(stream=BESIDE, buffer=SCRATCH, value=2))):
        return
    for nudge, gate in walking.gates():
        if walking.take(nudge, f"open {gate}", partial(walking.open, gate)):
            return
    if walking.take(Nudge.SYNC_STREAM, "", lambda: walking.synchronize(SyncStream(stream=stream))):
        return
    walking.take(Nudge.SYNC_DEVICE, "", lambda: walking.synchronize(SyncDevice()))


def alone(
    backend: Backend,
    control: Program,
    setting: Setting,
    numbers: Numbers,
    *,
    event: str,
    at: int,
    pauses: Mapping[int, float] | None = None,
) -> Walked:
    """A walk of the program without what stands behind the event, beside streams that a foreign gate holds.

    If the event is late here too, opening that gate tells whether it is those streams that delay it.
    """
    walking = _Walk(backend, control, setting, numbers, event)
    try:
        walking.bring(control.steps[:at], pauses or {}, foreign=True)
        walking.quiet()
        if not walking.again(numbers.harvest):
            opened = f"open {FOREIGN_GATE}"
            if not walking.take(Nudge.OTHER_GATE, opened, lambda: walking.session.open(FOREIGN_GATE)):
                for nudge, gate in walking.gates():
                    if walking.take(nudge, f"open {gate}", partial(walking.open, gate)):
                        break
    finally:
        walking.session.close()
    return walking.walked
