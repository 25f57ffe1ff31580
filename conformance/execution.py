"""Runs one program on a backend and writes down what the host saw at each host point.

Observes and never judges. It asks the model only what is worth waiting for: an event that must be
complete is waited for until the hold ends, one that must pend is watched for a while.
Source of the rules: docs/rules.md 2, "Observation", "Early" and "Not happening".
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from conformance.backends.api import Backend, EventFlags, Opinion, Request, Session, Waiter
from conformance.errors import DeviceError
from conformance.looks import Call, Look, Observe, Outcome, Seen, Setting
from conformance.model import Model, Obligation
from conformance.timekeeping import HostTimes, Time
from probes.program import (
    Destroy,
    DeviceOp,
    Elapsed,
    HostStep,
    Open,
    Program,
    QueryStream,
    Record,
    Sync,
    SyncDevice,
    SyncStream,
    Wait,
    WaitStream,
    is_far,
    is_host,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from conformance.numbers import Numbers

__all__ = ["Call", "Look", "Observe", "Observer", "Outcome", "Seen", "Setting", "execute", "request_for"]

#: How long a pending event is watched on a virtual clock: many operations of the reference device.
VIRTUAL_WATCH: Final = 1e-4

#: Device operations that must return to the host at once, whatever the device does.
MUST_NOT_BLOCK: Final = (Wait, WaitStream, Record)


class Observer:
    """Feeds a session step by step, and looks. `execute` runs a whole program; the ring probe goes on by itself."""

    def __init__(self, backend: Backend, session: Session, numbers: Numbers, setting: Setting) -> None:
        self.backend, self.session, self.numbers, self.setting = backend, session, numbers, setting
        self.model = Model()
        self.handles: dict[str, int] = dict(session.handles())
        self._waiters: dict[tuple[str, int], Waiter] = {}
        self._records: Counter[str] = Counter()
        self._unwatched: set[str] = set()
        self._issued = 0
        self._times = HostTimes()
        self._no_unrecorded = backend.unsupported("unrecorded-event") is not None

    def plan(self, program: Program) -> None:
        """Name the events that no helper thread may touch: those that the program destroys or synchronizes itself."""
        self._unwatched |= {step.event for step in program.steps if isinstance(step, (Destroy, Sync))}

    def issue(self, op: DeviceOp, number: int) -> Call | None:
        """Queue one operation. A call comes back only if the program ends with it: it blocked, or must be refused."""
        started = self.backend.clock.now()
        if self._crosses(op):
            return self._refused(op)
        self.session.issue(op)
        seconds = self.backend.clock.now() - started
        self.model.feed(op, number)
        self._issued = number + 1
        if isinstance(op, Record):
            self._records[op.event] += 1
            self._times.recorded(op.event, started)
        if isinstance(op, MUST_NOT_BLOCK) and seconds >= self.numbers.deadline:
            return Call(step=op, outcome=Outcome.BLOCKED, seconds=seconds)
        return None

    def _crosses(self, op: DeviceOp) -> bool:
        """Does it record an event of one device on a stream of the other?"""
        known = self.model.current.get(op.event) if isinstance(op, Record) else None
        return known is not None and is_far(known.stream) != is_far(op.stream)

    def _refused(self, op: DeviceOp) -> Call:
        refusals: tuple[type[Exception], ...] = (DeviceError, *self.backend.vendor_errors)
        try:
            self.session.issue(op)
        except refusals:
            return Call(step=op, outcome=Outcome.RETURNED, refused=True)
        return Call(step=op, outcome=Outcome.RETURNED, refused=False)

    def host(self, step: HostStep, number: int) -> Call:
        """Do one host step."""
        clock = self.backend.clock
        started = clock.now()
        value: bool | None = None
        outcome = Outcome.RETURNED
        waits = isinstance(step, (QueryStream, Sync, SyncStream, SyncDevice))
        patience = self._patience(step) if waits else 0.0
        time: Time | None = None
        if isinstance(step, Open):
            self._times.opened[step.gate] = started
            self.session.open(step.gate)
        elif isinstance(step, Elapsed):
            time = self._time(step)
        elif isinstance(step, Destroy):
            self.session.destroy(step.event)
            if clock.now() - started >= self.numbers.deadline:
                outcome = Outcome.BLOCKED
        elif isinstance(step, QueryStream):
            value = self.session.query_stream(step.stream)
            polls = 0
            # Where it must be idle by now, it may take its time; where it must be busy, one answer is what there is.
            while not value and self._must_return(step) and clock.now() - started < patience:
                clock.pause(polls)
                polls += 1
                value = self.session.query_stream(step.stream)
        elif isinstance(step, (Sync, SyncStream, SyncDevice)):
            waiter = self.session.start(step)
            polls = 0
            while not waiter.returned and clock.now() - started < patience:
                clock.pause(polls)
                polls += 1
            if waiter.error is not None:
                raise waiter.error
            outcome = Outcome.RETURNED if waiter.returned else Outcome.BLOCKED
        self.model.feed(step, number)
        self._issued = number + 1
        return Call(step=step, outcome=outcome, value=value, seconds=clock.now() - started, time=time)

    def _time(self, step: Elapsed) -> Time:
        """Ask for the time between two events; what the call raises is an answer."""
        kept = self.setting.flags is EventFlags.TIMING
        least, most = self._times.between(self.model, step.start, step.end)
        refusals: tuple[type[Exception], ...] = (DeviceError, *self.backend.vendor_errors)
        try:
            seconds = self.session.elapsed(step.start, step.end)
        except refusals as error:
            return Time(seconds=None, refused=f"{type(error).__name__}: {error}", kept=kept)
        return Time(seconds=seconds, kept=kept, least=least, most=most)

    def _must_return(self, step: HostStep) -> bool:
        """Is nothing left that the call may wait for, on any device?"""
        if isinstance(step, Sync):
            return self.model.obligation(step.event) in (Obligation.MUST, Obligation.NEVER)
        stream = step.stream if isinstance(step, (SyncStream, QueryStream)) else None
        return all(self.model.is_serial(n) for n in self.model.nodes if stream in (None, n.stream))

    def _patience(self, step: HostStep) -> float:
        """The deadline where a call must return; where it need not, it is only watched."""
        return self.numbers.deadline if self._must_return(step) else self.numbers.concurrency

    def _asks(self, event: str, touched_later: bool) -> bool:
        """May and should this event be looked at now?"""
        if event in self.model.destroyed:
            return False
        if event not in self.model.current and self._no_unrecorded:
            return False
        if self.setting.observe == "query":
            return True
        if event in self._unwatched:
            return False
        return not touched_later  # a helper inside synchronize and a call on the same event never meet

    def ask(self, event: str) -> bool:
        """Ask an event now, as the setting says: by query, or whether a helper has returned from synchronize."""
        if self.setting.observe == "query":
            return self.session.query(event)
        # One helper a record, inside synchronize: whether the call has returned is the observation.
        key = event, self._records[event]
        if key not in self._waiters:
            self._waiters[key] = self.session.start(Sync(event=event))
        waiter = self._waiters[key]
        if waiter.returned and waiter.error is not None:
            raise waiter.error
        return waiter.returned

    def look(
        self,
        events: Sequence[str],
        buffers: Sequence[str],
        gates: Sequence[str],
        *,
        functions: Sequence[str] = (),
        call: Call | None = None,
        touched_later: frozenset[str] = frozenset(),
        hold: float | None = None,
    ) -> Look:
        """Look at events, buffers and gates until nothing more is to be expected of them."""
        clock, model, numbers = self.backend.clock, self.model, self.numbers
        hold = self.setting.hold if hold is None else hold
        watched = [] if self.setting.tokens_only else events
        asked = [event for event in watched if self._asks(event, event in touched_later)]
        owed = {event: model.obligation(event) for event in asked}
        must = [e for e in asked if owed[e] is Obligation.MUST or owed[e] is Obligation.NEVER]
        # What must, and what should, be seen yet.
        left, hoped = set(must), {e for e in asked if owed[e] is Obligation.SHOULD}
        pending = [e for e in asked if owed[e] is Obligation.PEND]
        due = self._due(buffers)
        called = [n.function for n in model.nodes if n.function is not None and model.is_done(n)] if functions else []
        polls: dict[str, list[bool]] = {event: [] for event in asked}
        after: dict[str, float] = {}
        data: dict[str, dict[str, int]] = {}
        arrived: dict[str, float] = {}
        values = dict.fromkeys(buffers, 0)
        # What may not come yet is watched for: an event, and a token by which a dropped wait would show.
        watching = bool(pending) or any(
            node.kind == "copy" and node.buffer in buffers and not model.is_done(node) for node in model.nodes
        )
        ask = self.session.query if self.setting.observe == "query" else self.ask
        started = clock.now()
        watched_since: float | None = None
        rounds = 0
        while True:
            # The witness first, then the events: a token that is missing here may come with the event.
            for buffer in buffers:
                value = self.session.read(buffer)
                if value != values[buffer]:
                    values[buffer], arrived[buffer] = value, clock.now() - started
            for event in asked:
                seen = ask(event)
                polls[event].append(seen)
                if seen:
                    self._times.seen.setdefault(event, clock.now())
                if seen and event not in after:
                    left.discard(event)
                    hoped.discard(event)
                    after[event] = clock.now() - started
                    data[event] = {buffer: self.session.read(buffer) for buffer in buffers}
            rounds += 1
            now = clock.now() - started
            waiting = bool(left) and now < hold
            hoping = now < numbers.concurrency and (
                bool(hoped)
                or any(values[buffer] != value for buffer, value in due.items())
                or not all(self.session.calls(function) for function in called)
            )
            if not waiting and not hoping:
                if watched_since is None:
                    watched_since = now
                if rounds >= numbers.polls and (not watching or self._watched(rounds, now - watched_since)):
                    break
            clock.pause(rounds - 1)
        for buffer in buffers:
            value = self.session.read(buffer)
            if value != values[buffer]:
                values[buffer], arrived[buffer] = value, clock.now() - started
        late = [e for e in must if e not in after and owed[e] is Obligation.MUST] if self.setting.ask_below else []
        return Look(
            at=self._issued,
            call=call,
            events={
                event: _summary(answers, after.get(event), data.get(event, {})) for event, answers in polls.items()
            },
            buffers=values,
            arrived=arrived,
            called={function: self.session.calls(function) for function in functions},
            ended=frozenset(gate for gate in gates if self.session.ended(gate)),
            handles=self.handles,
            below={event: self._below(event) for event in late},
            seconds=clock.now() - started,
        )

    def _below(self, event: str) -> Opinion:
        """The second opinion on an event that is late, if it is late still once that was given."""
        ask_below = getattr(self.session, "ask_below", None)  # optional: `conformance.backends.api.AsksBelow`
        if ask_below is None:
            return Opinion(reason=f"the {self.backend.name} backend has no call below its API")
        opinion: Opinion = ask_below(event)
        if opinion.complete and self.session.query(event):
            return Opinion(reason=f"by the time that {opinion.call} was asked, the API said complete too")
        return opinion

    def _due(self, buffers: Sequence[str]) -> dict[str, int]:
        """What copies that may have happened by now leave in the host's buffers: worth a short wait, no more.

        Not where that is 0, as buffers are from the start. A control from which a wait was taken out has such copies,
        of what nothing orders before them: whatever comes, comes too early, and 0 never.
        """
        left = {
            buffer: self.model.token(node)
            for buffer in buffers
            for node in self.model.copies.get(buffer, ())
            if self.model.is_done(node)
        }
        return {buffer: value for buffer, value in left.items() if value}

    def _watched(self, rounds: int, seconds: float) -> bool:
        """Has a pending event been watched enough? A virtual clock needs no repeated looks, only the time."""
        if self.backend.clock.virtual:
            return seconds >= max(VIRTUAL_WATCH, self.setting.watch)
        return rounds >= self.numbers.pend_polls and seconds >= max(self.numbers.pend_window, self.setting.watch)


def _summary(answers: list[bool], after: float | None, data: dict[str, int]) -> Seen:
    flickered = any(a and not b for a, b in pairwise(answers))
    return Seen(
        first=answers[0],
        last=answers[-1],
        ever=any(answers),
        flickered=flickered,
        polls=len(answers),
        after=after,
        data=data,
    )


def request_for(program: Program, setting: Setting, numbers: Numbers) -> Request:
    """What a session must provide for this program."""
    return Request(
        streams=setting.order if set(program.streams) <= set(setting.order) else program.streams,
        events=program.events,
        gates=program.gates,
        buffers=program.buffers,
        functions=program.functions,
        flags=setting.flags,
        families=dict(setting.families),
        second_gate=setting.second_gate,
        gate_limit=numbers.gate_limit,
    )


def execute(backend: Backend, program: Program, setting: Setting, numbers: Numbers) -> list[Look]:
    """Run ``program`` once; returns its looks. Ends early where a call did not return by its deadline."""
    session = backend.session(request_for(program, setting, numbers))
    try:
        return _run(Observer(backend, session, numbers, setting), program)
    finally:
        session.close()


def _run(observer: Observer, program: Program) -> list[Look]:
    observer.plan(program)
    events, buffers, gates = program.events, program.host_buffers, program.gates
    functions = program.functions
    to_touch = Counter(step.event for step in program.steps if isinstance(step, (Record, Wait)))
    for step in program.steps:
        if isinstance(step, Elapsed):
            to_touch.update({step.start, step.end})
    to_open = sum(isinstance(step, Open) for step in program.steps)
    looks: list[Look] = []
    late = False

    def look(call: Call | None = None) -> None:
        nonlocal late
        hold = observer.setting.hold
        if late and to_open:
            # Between the gates that follow a late look lies one publication window; the last nudges get the whole hold.
            hold = observer.numbers.publication_window(hold)
        elif late and observer.numbers.quick:
            hold = min(hold, observer.numbers.harvest)
        later = frozenset(event for event, count in to_touch.items() if count)
        found = observer.look(events, buffers, gates, functions=functions, call=call, touched_later=later, hold=hold)
        late = late or any(
            not seen.ever and observer.model.obligation(event) is Obligation.MUST
            for event, seen in found.events.items()
        )
        looks.append(found)

    for number, step in enumerate(program.steps):
        if not is_host(step):
            blocked = observer.issue(step, number)  # type: ignore[arg-type]  # not a host step
            if isinstance(step, (Record, Wait)):
                to_touch[step.event] -= 1
            if blocked is not None:
                looks.append(Look(at=number + 1, call=blocked))
                break
            continue
        if number == 0 or not is_host(program.steps[number - 1]):
            look()
        call = observer.host(step, number)  # type: ignore[arg-type]  # a host step
        if isinstance(step, Elapsed):
            to_touch.subtract({step.start, step.end})
        to_open -= isinstance(step, Open)
        if call.outcome is Outcome.BLOCKED and isinstance(step, Destroy):
            looks.append(Look(at=number + 1, call=call))
            break
        look(call)
        if call.outcome is Outcome.BLOCKED or (late and observer.setting.stop_when_late):
            break
        if observer.setting.last_look is not None and len(looks) > observer.setting.last_look:
            break
    return looks
