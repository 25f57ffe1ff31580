"""How soon the host sees an event after its gate opens: by query, and by a synchronize that sleeps or spins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from conformance.backends.api import EventFlags, Request
from conformance.errors import DeviceError
from conformance.measure.refusal import errors_of, needs_causal, not_idle, refusal
from probes.program import Gate, Record, Sync

if TYPE_CHECKING:
    from conformance.backends.api import Backend, Session
    from conformance.numbers import Numbers

#: Uses of a gate behind each figure; a virtual clock shows the same each time.
USES: Final = 200
VIRTUAL_USES: Final = 10
#: Uses before those that count: the first ones start helper threads and load code.
WARM_UP: Final = 3
#: Gates in one session: below what any backend has at once.
BATCH: Final = 50
#: Seconds that a gate is closed, so that the device is inside it, and a helper inside its call, when it opens.
HOLD: Final = 5e-4
#: Seconds for one figure; a slow device gets fewer uses.
BUDGET: Final = 1.0
#: Looks in a row that only yield the interpreter: for about a millisecond a sleep would coarsen the figure.
EAGER: Final = 2000


def measure_latency(backend: Backend, numbers: Numbers) -> dict[str, str]:
    """For each event flag the time from opening a gate to a query's yes and to synchronize's return, in us."""
    needs_causal(backend)
    found: dict[str, str] = {}
    for flags in EventFlags:
        queried: float | None = None
        for name, by_query in (("publication latency", True), ("synchronize wake-up", False)):
            key = f"{name}, {flags.value} event"
            try:
                if flags is EventFlags.BLOCKING and (why := backend.unsupported("event-flag-blocking")) is not None:
                    found[key] = f"unsupported: {why}"
                    continue
                microseconds = sorted(1e6 * seconds for seconds in _sample(backend, numbers, flags, by_query=by_query))
            except errors_of(backend) as error:
                found[key] = refusal(error)
                continue
            median = _quantile(microseconds, 0.5)
            found[key] = f"median {median:.1f} us, p99 {_quantile(microseconds, 0.99):.1f} us"
            if by_query:
                queried = median
            elif queried is not None:
                found[key] += f", {median - queried:+.1f} us over query"
            found[key] += f" ({len(microseconds)} uses)"
    return found


def _quantile(ordered: list[float], part: float) -> float:
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def _sample(backend: Backend, numbers: Numbers, flags: EventFlags, *, by_query: bool) -> list[float]:
    """Seconds of each use. Raises DeviceError if none succeeds, or one is not seen by the deadline."""
    clock = backend.clock
    began = clock.now()
    wanted = VIRTUAL_USES if clock.virtual else USES
    taken: list[float] = []
    uses = 0
    # The uses are bounded too: where each is seen early, a virtual clock stands still.
    while len(taken) < wanted and uses < 2 * wanted + WARM_UP and clock.now() - began < BUDGET:
        gates = [f"g{number}" for number in range(BATCH)]
        session = backend.session(
            Request(streams=("s",), events=("e",), gates=gates, buffers=(), flags=flags, gate_limit=numbers.gate_limit)
        )
        try:
            for gate in gates:
                seconds = _use(backend, session, gate, numbers.deadline, by_query=by_query)
                uses += 1
                if seconds is not None and uses > WARM_UP:
                    taken.append(seconds)
                if len(taken) >= wanted or clock.now() - began >= BUDGET:
                    break
        finally:
            idle = session.close()
        if not idle:
            raise not_idle(backend)
    if not taken:
        raise DeviceError(f"{backend.name}: in none of {uses} uses was the event pending until its gate was opened")
    return taken


def _use(backend: Backend, session: Session, gate: str, deadline: float, *, by_query: bool) -> float | None:
    """Seconds from just before the gate is opened until the event is seen; None if it was seen, or the gate
    ended, before.
    """
    clock = backend.clock
    session.issue(Gate(stream="s", gate=gate))
    session.issue(Record(stream="s", event="e"))
    waiter = None if by_query else session.start(Sync(event="e"))

    def seen() -> bool:
        if waiter is None:
            return session.query("e")
        if waiter.returned and waiter.error is not None:
            raise waiter.error
        return waiter.returned

    closed, polls = clock.now(), 0
    while clock.now() - closed < HOLD:
        if seen():
            return None
        clock.pause(polls)
        polls += 1
    if session.ended(gate):
        return None
    opened, polls = clock.now(), 0
    session.open(gate)
    while not seen():
        if clock.now() - opened > deadline:
            how = "query" if by_query else "synchronize"
            raise DeviceError(f"{how}: the event is not seen within {deadline:g} s of the opening of its gate")
        clock.pause(polls if clock.virtual or polls > EAGER else 0)
        polls += 1
    return clock.now() - opened
