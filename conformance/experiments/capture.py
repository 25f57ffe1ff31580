"""Capture of streams into graphs: what is refused while a capture is under way, and a captured step replayed."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from conformance.backends.api import EventFlags
from conformance.backends.extras import graphs_of
from conformance.errors import Unsupported
from conformance.experiments.bench import EXPIRED, failed, held, raised, unclear
from probes.program import DEFAULT_STREAM, Copy, Fill, Gate, Record, Sync, SyncStream, Wait

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from conformance.backends.api import Session
    from conformance.backends.extras import Graphs
    from conformance.experiments.bench import Bench
    from conformance.judgement.statements import Statement

#: What a call answered that should have been refused.
HUNG: Final = "it does not return"
#: What the captured step copies to the host, and what lies there before.
TOKEN: Final = 5
#: A stream that the default stream orders.
TIED: Final = "blockingS"
BEFORE: Final = 9


def refused(bench: Bench) -> Iterator[Statement]:
    """One call that a capture forbids; around it the same call on what is not captured, which must be accepted."""
    (clause,) = bench.case.clauses
    legacy = bench.choice("call") == "legacy-beside"
    main = TIED if legacy else "S"
    streams = ("S", "T", *((TIED, DEFAULT_STREAM) if legacy else ()))
    with bench.session(streams=streams, events=("e", "k", "d", "outside"), buffers=("x", "h", "y", "hy")) as session:
        graphs = graphs_of(bench.backend, session)
        session.issue(Record(stream="T", event="outside"))
        if not bench.control(bench.until(lambda: session.query("outside"))):
            yield unclear(clause, "control: an event outside the capture is not complete")
            return
        graphs.begin(main)
        try:
            allowed = (Fill(stream=main, buffer="x", value=TOKEN), Copy(stream=main, source="x", target="h"))
            error = next(filter(None, (_error(bench, partial(session.issue, op)) for op in allowed)), None)
            if error is not None and legacy:
                # Then nothing can be asked beside such a capture here; on a stream of torch's own the others tell.
                raise Unsupported("graph-capture", f"a capture of a blocking stream: {error}")
            if error is not None:
                raise error
            if not legacy:
                # torch's record asks whether the current stream captures, and of the default stream the runtime
                # refuses that question itself while a stream that it binds does.
                session.issue(Record(stream=main, event="e"))
            bench.control(0.0 if session.query("outside") else None)
            answer = None if bench.choice("call") == "query-after-end" else _answer(bench, session)
        finally:
            # A capture that refused something is spoilt, and says so here once more.
            _error(bench, lambda: graphs.end(main))
        if bench.choice("call") == "query-after-end":
            # Never launched, so what the event stands for has not run: any answer but yes will do.
            answer = _answer(bench, session)
        graphs.discard()
        bench.note(bench.choice("call"), returned=answer != HUNG)
        # Refusing must not be all that is left: the event works outside, and the next capture is accepted.
        session.issue(Record(stream="T", event="e"))
        works = bench.control(bench.until(lambda: session.query("e")))
        accepted = bench.control(_forked(bench, session, graphs))
        if answer is not None and not bench.control(_honest(bench)):
            yield unclear(clause, "control: the call is wrong outside a capture too")
        elif answer is not None:
            yield failed(clause, f"{bench.choice('call')} in a capture is accepted: {answer}", repeat=answer == HUNG)
        elif works and accepted:
            yield held(clause)
        else:
            yield unclear(clause, "control: what a capture allows is refused as well")


def _answer(bench: Bench, session: Session) -> str | None:
    """What the call under test gave; None if it was refused."""
    call = bench.choice("call")
    given: list[bool] = []
    if call in ("query", "query-after-end"):
        error = _error(bench, lambda: given.append(session.query("e")))
        # After its end a capture's event may also be said to be pending: it is.
        return None if error is not None or (call != "query" and not given[0]) else f"it answers {given[0]}"
    if call == "query-stream":
        error = _error(bench, lambda: given.append(session.query_stream("S")))
        return None if error is not None else f"it answers {given[0]}"
    if call == "wait-outside":
        # With an operation behind it, by which it would be queued at the latest.
        behind = (Wait(stream="S", event="outside"), Fill(stream="S", buffer="x", value=TOKEN))
        error = next(filter(None, (_error(bench, partial(session.issue, op)) for op in behind)), None)
        return None if error is not None else "the wait is queued"
    if call == "legacy-beside":
        beside = (Record(stream=DEFAULT_STREAM, event="k"), Fill(stream=DEFAULT_STREAM, buffer="y", value=TOKEN))
        error = next(filter(None, (_error(bench, partial(session.issue, op)) for op in beside)), None)
        return None if error is not None else "a record and a fill are queued"
    waiter = session.start(Sync(event="e") if call == "synchronize" else SyncStream(stream="S"))
    if bench.until(lambda: waiter.returned) is None:
        return HUNG
    return None if isinstance(waiter.error, bench.errors) else "it returns"


def _honest(bench: Bench) -> float | None:
    """Is the same call right outside a capture, behind a closed gate? None if it is not."""
    call = bench.choice("call")
    # Behind the gate is what waits for its event, or the default stream, which waits for streams that are tied to it.
    gated, behind = (TIED, DEFAULT_STREAM) if call == "legacy-beside" else ("S", "T")
    with bench.session(
        streams=(gated, behind, "U"), events=("e",), gates=("g",), buffers=("y", "hy", "u", "hu")
    ) as session:
        session.issue(Gate(stream=gated, gate="g"))
        session.issue(Record(stream=gated, event="e"))
        if call in ("query", "query-after-end"):
            wrong = bench.slips(lambda: session.query("e"))
        elif call == "query-stream":
            wrong = bench.slips(lambda: session.query_stream("S"))
        elif call in ("wait-outside", "legacy-beside"):
            if call == "wait-outside":
                session.issue(Wait(stream=behind, event="e"))
            for stream, source, target in ((behind, "y", "hy"), ("U", "u", "hu")):
                session.issue(Fill(stream=stream, buffer=source, value=TOKEN))
                session.issue(Copy(stream=stream, source=source, target=target))
            # That nothing arrives behind the wait counts only where it arrives without one.
            runs = bench.until(bench.arrived(session, "U", "hu", TOKEN), bench.numbers.concurrency)
            wrong = runs is None or bench.slips(lambda: session.read("hy") == TOKEN)
        else:
            waiter = session.start(Sync(event="e") if call == "synchronize" else SyncStream(stream="S"))
            wrong = bench.slips(lambda: waiter.returned)
        session.open("g")
        return None if wrong else 0.0


def _error(bench: Bench, call: Callable[[], object]) -> Exception | None:
    """What the device raised. Anything else is no refusal, and goes on up."""
    try:
        call()
    except bench.errors as error:
        return error
    return None


def _capture_step(session: Session, graphs: Graphs, target: str) -> None:
    """Main fills, a copy stream that waits for it copies to the host, and main takes it in again."""
    graphs.begin("S")
    session.issue(Fill(stream="S", buffer="x", value=TOKEN))
    session.issue(Record(stream="S", event="k"))
    session.issue(Wait(stream="T", event="k"))
    session.issue(Copy(stream="T", source="x", target=target))
    session.issue(Record(stream="T", event="d"))
    session.issue(Wait(stream="S", event="d"))
    graphs.end("S")


def _forked(bench: Bench, session: Session, graphs: Graphs) -> float | None:
    """Seconds until the token of a forked and joined capture arrives when it is replayed; None if it never does."""
    try:
        _capture_step(session, graphs, "hy")
        graphs.launch("S")
        return bench.until(bench.arrived(session, "S", "hy", TOKEN))
    except bench.errors:
        return None
    finally:
        # What it launched has ended, or nothing will prove the session idle anyway.
        graphs.discard()


def replayed(bench: Bench) -> Iterator[Statement]:
    """A captured publication step is replayed, its event recorded behind it, and a later wait queued: is it in time?"""
    core, data = bench.case.clauses
    waits = bench.case.observe == "synchronize"
    look = _replayed(bench, later=True, by_query=not waits)
    if look.why:
        yield from (unclear(clause, look.why) for clause in (core, data))
        return
    if look.seen is not None:
        bench.control(look.seen)
        yield held(core)
        yield held(data) if look.whole else failed(data, "the event is complete before the replayed copy has arrived")
        return
    yield unclear(data, "the event is not in time")
    if look.witness is None:
        yield unclear(core, "no-witness")
        return
    alone = _replayed(bench, later=False, by_query=not waits)
    if not bench.control(alone.seen):
        yield unclear(core, "control-late")
    elif alone.seen is not None and bench.hold < bench.numbers.patience * alone.seen:
        yield unclear(core, "patience")
    elif look.published is None:
        yield unclear(core, "unsteady")
    elif waits and _replayed(bench, later=True, by_query=True).seen is None:
        # Not the call but the event is late: the variant by query says so, under its own clause.
        yield unclear(core, "late by query too")
    else:
        yield failed(core, "seen only when the gate of the later wait opens", repeat=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Replay:
    """What one replay showed; times are seconds."""

    why: str = ""  # why it says nothing
    seen: float | None = None  # the event, with the later wait still held
    whole: bool = False  # the token was there at that moment
    witness: float | None = None  # the token
    published: float | None = None  # the event, after the later wait's gate was opened


@contextmanager
def _step(session: Session, graphs: Graphs) -> Iterator[None]:
    _capture_step(session, graphs, "h")
    try:
        yield
    finally:
        graphs.discard()


def _replayed(bench: Bench, *, later: bool, by_query: bool) -> _Replay:
    with bench.session(
        streams=("S", "T", "U"),
        events=("k", "d", "e", "f"),
        gates=("g1", "g2"),
        buffers=("x", "h", "q", "z", "hz"),
        flags=EventFlags(bench.case.flags),
    ) as session:
        graphs = graphs_of(bench.backend, session)
        with _step(session, graphs):
            # Once before a gate closes: a first launch loads the graph.
            graphs.launch("S")
            if bench.until(bench.arrived(session, "S", "h", TOKEN)) is None:
                return _Replay(why="not-executed")
            session.issue(Fill(stream="S", buffer="q", value=BEFORE))
            session.issue(Copy(stream="S", source="q", target="h"))
            if bench.until(bench.arrived(session, "S", "h", BEFORE)) is None:
                return _Replay(why="not-executed")
            result = _publish(bench, session, graphs, later=later, by_query=by_query)
            # The graph must have run before it is given back.
            done = session.start(SyncStream(stream="S"))
            bench.until(lambda: done.returned)
            return result


def _publish(bench: Bench, session: Session, graphs: Graphs, *, later: bool, by_query: bool) -> _Replay:
    session.issue(Gate(stream="S", gate="g1"))
    graphs.launch("S")
    session.issue(Record(stream="S", event="e"))
    session.issue(Gate(stream="U", gate="g2"))
    session.issue(Record(stream="U", event="f"))
    if later:
        session.issue(Wait(stream="S", event="f"))
        session.issue(Fill(stream="S", buffer="z", value=3))
        session.issue(Copy(stream="S", source="z", target="hz"))
    waiter = None if by_query else session.start(Sync(event="e"))

    def seen() -> bool:
        if waiter is None:
            return session.query("e")
        if waiter.returned:
            raised(waiter)
        return waiter.returned

    early, there, expired = bench.slips(seen), session.read("h") != BEFORE, session.ended("g1")
    bench.note("(before)", events={"e": ("PEND", early)}, buffers={"h": session.read("h")})
    session.open("g1")
    after = bench.until(seen, bench.hold)
    whole = session.read("h") == TOKEN
    witness = bench.until(lambda: session.read("h") == TOKEN, 0.0)
    expired = expired or session.ended("g2")
    bench.note(
        "open g1", events={"e": ("MUST", after is not None)}, buffers={"h": session.read("h")}, seconds=after or 0
    )
    session.open("g2")
    published = bench.until(seen, bench.numbers.publication_window(bench.hold)) if after is None else None
    if after is None:
        bench.note("open g2", events={"e": ("MUST", published is not None)}, buffers={"h": session.read("h")})
    why = EXPIRED if expired else "the event is early" if early else "control: nothing held the step" if there else ""
    return _Replay(why=why, seen=after, whole=whole, witness=witness, published=published)
