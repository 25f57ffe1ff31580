"""The same steps from several host threads: an event recorded in one, waited for and asked in others.

Where something is wrong, the control is the same from one thread: a device that is wrong there too says
nothing about threads.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from conformance.backends.extras import current_stream_of, threads_of
from conformance.experiments.bench import EXPIRED, failed, held, raised, unclear, unsupported
from conformance.judgement.statements import CONCURRENCY
from probes.program import DEFAULT_STREAM, Copy, Fill, Gate, Record, Sync, Wait

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from conformance.backends.api import Session
    from conformance.backends.extras import Threads
    from conformance.experiments.bench import Bench
    from conformance.judgement.statements import Statement

CLAUSE: Final = "THR-1"
#: Threads at once, and looks of each at its own event while it must pend.
THREADS: Final = 4
LOOKS: Final = 50


def hand_over(bench: Bench) -> Iterator[Statement]:
    """Recorded in one thread, waited for in a second, asked in a third, synchronized in a fourth."""
    wrong, why = _handed(bench, threaded=True)
    yield _verdict(bench, wrong, why, lambda: _handed(bench, threaded=False))


def at_once(bench: Bench) -> Iterator[Statement]:
    """Several threads at once, each with a stream and an event of its own."""
    wrong, why = _at_once(bench, threaded=True)
    yield _verdict(bench, wrong, why, lambda: _at_once(bench, threaded=False))


def _verdict(bench: Bench, wrong: str, why: str, control: Callable[[], tuple[str, str]]) -> Statement:
    if why:
        return unclear(CLAUSE, why)
    alone, unclear_alone = control()
    if unclear_alone:  # of a gate that ended by itself the control says nothing, and all of it is done again
        return unclear(CLAUSE, unclear_alone)
    if not bench.control(None if alone else 0.0):
        return unclear(CLAUSE, f"control: from one thread, {alone}")
    return failed(CLAUSE, wrong, repeat=True) if wrong else held(CLAUSE)


def _threads(bench: Bench, session: Session, *names: str) -> Threads:
    threads = threads_of(bench.backend, session)
    threads.prepare(*names)
    return threads


def _by(bench: Bench, threads: Threads | None, name: str, function: Callable[[], object]) -> None:
    """Have it done by a thread, or here. Raises what it raises; one that never returns is left to its gate's limit."""
    if threads is None:
        function()
        return
    call = threads.call(name, function)
    bench.until(lambda: call.returned, bench.numbers.gate_limit + bench.numbers.deadline)
    raised(call)


def _handed(bench: Bench, *, threaded: bool) -> tuple[str, str]:
    """(what was wrong, why that says nothing)."""
    with bench.session(
        streams=("S", "U", "V"), events=("e",), gates=("g",), buffers=("x", "y", "v", "h", "hy", "hv")
    ) as session:
        threads = _threads(bench, session, "records", "waits", "asks") if threaded else None
        answers: list[bool] = []

        def record() -> None:
            session.issue(Fill(stream="S", buffer="x", value=1))
            session.issue(Copy(stream="S", source="x", target="h"))
            session.issue(Record(stream="S", event="e"))

        def wait() -> None:
            session.issue(Wait(stream="U", event="e"))
            session.issue(Fill(stream="U", buffer="y", value=2))
            session.issue(Copy(stream="U", source="y", target="hy"))

        def ask() -> bool:
            _by(bench, threads, "asks", lambda: answers.append(session.query("e")))
            return answers[-1]

        session.issue(Gate(stream="S", gate="g"))
        _by(bench, threads, "records", record)
        _by(bench, threads, "waits", wait)
        # Not happening counts only where it happens without the wait.
        session.issue(Fill(stream="V", buffer="v", value=3))
        session.issue(Copy(stream="V", source="v", target="hv"))
        runs = bench.until(bench.arrived(session, "V", "hv", 3), bench.numbers.concurrency) is not None
        waiter = session.start(Sync(event="e"))
        early = [
            *(["another thread sees the event early"] if ask() or bench.slips(ask) else []),
            *(["synchronize returns early"] if bench.slips(lambda: waiter.returned) else []),
            *(["a wait from another thread does not hold"] if runs and session.read("hy") == 2 else []),
        ]
        ended = session.ended("g")
        bench.note("(before)", events={"e": ("PEND", bool(early))}, buffers={"hy": session.read("hy")})
        session.open("g")
        missing = [
            *(["another thread sees the event late"] if bench.until(ask) is None else []),
            *(["synchronize does not return"] if bench.until(lambda: waiter.returned) is None else []),
            *(
                ["a wait from another thread never ends"]
                if bench.until(lambda: session.read("hy") == 2) is None
                else []
            ),
        ]
        bench.note("open g", events={"e": ("MUST", not missing)}, buffers={"hy": session.read("hy")})
        return "; ".join(early + missing), EXPIRED if ended else ""


def _at_once(bench: Bench, *, threaded: bool) -> tuple[str, str]:
    names = [f"{n}" for n in range(THREADS)]
    with bench.session(
        streams=[f"S{n}" for n in names], events=[f"e{n}" for n in names], gates=[f"g{n}" for n in names]
    ) as session:
        threads = _threads(bench, session, *names) if threaded else None
        early: set[str] = set()
        late: set[str] = set()
        opened: list[str] = []
        for n in names:
            session.issue(Gate(stream=f"S{n}", gate=f"g{n}"))

        def begin(n: str) -> None:
            session.issue(Record(stream=f"S{n}", event=f"e{n}"))
            if sum(session.query(f"e{n}") for _ in range(LOOKS)):  # every look is made
                early.add(n)

        def look(n: str) -> None:
            # Beside a gate that was opened: an event that another thread's record took over shows by its gate.
            if n not in opened and sum(session.query(f"e{n}") for _ in range(LOOKS)):
                early.add(n)

        def finish(n: str) -> None:
            if bench.until(lambda: session.query(f"e{n}")) is None:
                late.add(n)

        _together(bench, threads, names, begin)
        ended = any(session.ended(f"g{n}") for n in names)
        bench.note("(before)", events={f"e{n}": ("PEND", n in early) for n in names})
        for n in names if bench.number % 2 else reversed(names):
            session.open(f"g{n}")
            opened.append(n)
            bench.until(partial(session.query, f"e{n}"), bench.numbers.concurrency)
            _together(bench, threads, names, look)
            ended = ended or any(session.ended(f"g{m}") for m in names if m not in opened)
        _together(bench, threads, names, finish)
        bench.note("open all", events={f"e{n}": ("MUST", n not in late) for n in names})
        wrong = ["an event is seen early"] * bool(early) + ["an event is seen late"] * bool(late)
        return "; ".join(wrong), EXPIRED if ended else ""


def _together(bench: Bench, threads: Threads | None, names: list[str], function: Callable[[str], None]) -> None:
    if threads is None:
        for name in names:
            function(name)
        return
    calls = [threads.call(name, partial(function, name)) for name in names]
    bench.until(lambda: all(call.returned for call in calls), bench.numbers.gate_limit + bench.numbers.deadline)
    for call in calls:
        raised(call)


def current_stream(bench: Bench) -> Iterator[Statement]:
    """One thread's current stream is held; what another thread queues without naming a stream must not be."""
    with bench.session(
        streams=("S", "T", DEFAULT_STREAM), gates=("g",), buffers=("x", "hx", "ha", "hb", "hc")
    ) as session:
        threads = _threads(bench, session, "enters", "other")
        current = current_stream_of(bench.backend, session)
        session.issue(Fill(stream="T", buffer="x", value=1))
        session.issue(Copy(stream="T", source="x", target="hx"))
        if bench.until(bench.arrived(session, "T", "hx", 1)) is None:
            yield unclear(CLAUSE, "not-executed")
            return
        session.issue(Gate(stream="S", gate="g"))
        try:
            _by(bench, threads, "enters", lambda: current.enter("S"))
            _by(bench, threads, "other", lambda: current.copy("x", "hb"))
            _by(bench, threads, "enters", lambda: current.copy("x", "ha"))
            # The control: the default stream, which the other thread must have used, by its name.
            session.issue(Copy(stream=DEFAULT_STREAM, source="x", target="hc"))
            yield _current(bench, session)
        finally:
            session.open("g")
            _by(bench, threads, "enters", lambda: current.enter(None))


def _current(bench: Bench, session: Session) -> Statement:
    named = bench.until(bench.arrived(session, "T", "hc", 1), bench.numbers.concurrency)
    other = bench.until(bench.arrived(session, "T", "hb", 1), bench.numbers.concurrency) is not None
    held_back, ended = not bench.slips(lambda: session.read("ha") == 1), session.ended("g")
    bench.note("copies", buffers={name: session.read(name) for name in ("ha", "hb", "hc")})
    session.open("g")
    arrived = bench.until(lambda: session.read("ha") == 1 and session.read("hb") == 1)
    bench.note("open g", buffers={name: session.read(name) for name in ("ha", "hb", "hc")}, seconds=arrived or 0.0)
    if ended:
        return unclear(CLAUSE, EXPIRED)
    if not bench.control(arrived if held_back else None):
        return unclear(CLAUSE, "control: the stream that was entered did not hold the copy")
    if named is None:
        return unsupported(CLAUSE, CONCURRENCY)
    return held(CLAUSE) if other else failed(CLAUSE, "a thread's current stream is another thread's too", repeat=True)
