"""What a host wait costs: processor time of the waiting thread, with and without the blocking flag."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from conformance.backends.api import EventFlags
from conformance.backends.extras import threads_of
from conformance.errors import Unsupported
from conformance.experiments.bench import failed, held, raised, unclear
from probes.program import Gate, Record, Sync

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conformance.backends.extras import TimedCall
    from conformance.experiments.bench import Bench
    from conformance.judgement.statements import Statement

#: Seconds for which a thread sits in synchronize.
HOLD: Final = 0.05
#: A wait spins if it uses more than this part of what a thread uses that does nothing but use its processor.
SPINS: Final = 0.25


def blocking_flag(bench: Bench) -> Iterator[Statement]:
    """The part of its wait for which each kind of event keeps a processor busy, beside a thread that only does that."""
    clause = "EVT-FLAG-1"
    busy = _busy(bench)
    parts = {flags: _part(bench, flags) for flags in (EventFlags.BLOCKING, EventFlags.DEFAULT)}
    blocking, default = parts[EventFlags.BLOCKING], parts[EventFlags.DEFAULT]
    if busy is None:
        yield unclear(clause, "control: the clock of a thread that uses its processor does not go on")
    elif blocking is None or default is None:
        yield unclear(clause, "control: synchronize is not held by the gate")
    else:
        shown = f"processor used for {blocking:.0%} of the wait, without the flag for {default:.0%}"
        yield held(clause, shown) if blocking <= SPINS * busy else failed(clause, shown, repeat=True)


def _busy(bench: Bench) -> float | None:
    """Processor time a second of a thread that does nothing else: 1 unless the machine is full."""
    with bench.session(streams=("S",)) as session:
        threads = threads_of(bench.backend, session)
        threads.prepare("busy")
        call = threads.burn("busy", HOLD)
        if bench.control(bench.until(lambda: call.returned)) and call.cpu > 0:
            return call.cpu / call.seconds
    return None


def _part(bench: Bench, flags: EventFlags) -> float | None:
    """Processor time of synchronize by its duration; None if the gate did not hold it."""
    with bench.session(streams=("S",), events=("e",), gates=("g",), flags=flags) as session:
        session.issue(Gate(stream="S", gate="g"))
        session.issue(Record(stream="S", event="e"))
        waiter = session.start(Sync(event="e"))
        if getattr(waiter, "cpu", None) is None:
            raise Unsupported("threads", f"the {bench.backend.name} backend does not tell a call's processor time")
        call = cast("TimedCall", waiter)
        bench.let_pass(HOLD)
        held_back = not call.returned and not session.ended("g")
        session.open("g")
        back = bench.until(lambda: call.returned) is not None
        raised(call)
        bench.note(f"synchronize e, {flags.value}", returned=back, seconds=call.seconds)
        return call.cpu / call.seconds if bench.control(call.seconds if held_back and back else None) else None
