"""Host calls that must return although a gate is closed, and although another thread waits for the same thing.

A call is made by a thread of its own, so that one that blocks is seen to block. The control for
"it returned" is a synchronize that, behind the same gate, has not.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from conformance.backends.extras import private_streams_of, threads_of
from conformance.experiments.bench import EXPIRED, failed, held, raised, unclear
from probes.program import Copy, Fill, Gate, Record, Sync, SyncStream, Wait, WaitStream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from conformance.backends.api import Session, Waiter
    from conformance.experiments.bench import Bench
    from conformance.judgement.statements import Statement

#: What a private stream's copy carries.
TOKEN: Final = 7
#: The call under test by the variant's name for it, all of them behind a closed gate on S.
CALLS: Final[dict[str, Callable[[Session], object]]] = {
    "record": lambda s: s.issue(Record(stream="S", event="f")),
    "wait": lambda s: s.issue(Wait(stream="T", event="e")),
    "wait-stream": lambda s: s.issue(WaitStream(stream="T", other="S")),
    "copy-to-host": lambda s: s.issue(Copy(stream="S", source="x", target="h")),
    "copy-to-device": lambda s: s.issue(Copy(stream="S", source="h", target="y")),
    "query": lambda s: s.query("e"),
    "query-stream": lambda s: s.query_stream("S"),
    "destroy": lambda s: s.destroy("e"),
}
#: Calls about an event that is pending. For the others none is recorded: that might be what blocks.
PENDING: Final = ("wait", "query", "destroy")


def behind_gate(bench: Bench) -> Iterator[Statement]:
    """One call while a gate is closed."""
    (clause,) = bench.case.clauses
    took, why = _made(bench, bench.choice("call"))
    if why:
        yield unclear(clause, why)
    elif took >= bench.limit(clause):
        yield failed(clause, f"the call does not return {_while(bench, clause)} the gate is closed", repeat=True)
    else:
        yield held(clause)


def beside_sync(bench: Bench) -> Iterator[Statement]:
    """One call while a gate is closed and another thread is inside synchronize; the control is the same without it."""
    call = bench.choice("call")
    alone, why = _made(bench, call)
    took = 0.0
    slow = alone >= min(map(bench.limit, bench.case.clauses))
    if bench.control(None if slow or why else 0.0):
        took, why = _made(bench, call, synchronize=True)
    elif slow and not why:
        why = "control: the call blocks without another thread too"
    for clause in bench.case.clauses:
        if why:
            yield unclear(clause, why)
        elif took >= bench.limit(clause):
            where = f"{_while(bench, clause)} another thread is in synchronize"
            yield failed(clause, f"the call does not return {where}", repeat=True)
        else:
            yield held(clause)


def _while(bench: Bench, clause: str) -> str:
    return f"within {bench.limit(clause):g} s while"


def after_query(bench: Bench) -> Iterator[Statement]:
    """A query finds its event pending: is the next call refused that is accepted without the query?"""
    clause = "EVT-ASK-1"
    error, why = _queued(bench, ask=True)
    alone, alone_why = _queued(bench, ask=False) if error else ("", "")
    if why or alone_why:
        yield unclear(clause, why or alone_why)
    elif not bench.control(None if alone else 0.0):
        yield unclear(clause, f"control: the call fails without a query too: {alone}")
    else:
        yield failed(clause, f"after a query the next call fails: {error}") if error else held(clause)


def _queued(bench: Bench, *, ask: bool) -> tuple[str, str]:
    """(what the calls after the query raised; why that says nothing)."""
    with bench.session(streams=("S", "T"), events=("e", "f"), gates=("g",), buffers=("x", "h")) as session:
        session.issue(Gate(stream="S", gate="g"))
        session.issue(Record(stream="S", event="e"))
        early = ask and session.query("e")
        error = ""
        try:
            session.issue(Fill(stream="T", buffer="x", value=TOKEN))
            session.issue(Copy(stream="T", source="x", target="h"))
            session.issue(Record(stream="T", event="f"))
        except bench.errors as refused:
            error = " ".join(f"{type(refused).__name__}: {refused}".split())
        ended = session.ended("g")
        bench.note("query e, fill, copy, record" if ask else "fill, copy, record", events={"e": ("PEND", early)})
        session.open("g")
        return error, EXPIRED if ended else "control: the event is early" if early else ""


def _made(bench: Bench, name: str, *, synchronize: bool = False) -> tuple[float, str]:
    """Make the call: (seconds that it took, infinite by the deadline; why that says nothing)."""
    clock = bench.backend.clock
    with bench.session(streams=("S", "T"), events=("e", "f"), gates=("g",), buffers=("x", "y", "h")) as session:
        threads = threads_of(bench.backend, session)
        threads.prepare("caller")
        session.issue(Gate(stream="S", gate="g"))
        if name in PENDING:
            session.issue(Record(stream="S", event="e"))
        if name == "destroy":
            session.issue(Wait(stream="T", event="e"))
        waiter = None
        if synchronize:
            waiter = session.start(Sync(event="e") if name == "query" else SyncStream(stream="S"))
            if bench.slips(partial(_returned, waiter)):
                raised(waiter)
                return 0.0, "control: synchronize returned behind the gate"
        began = clock.now()
        call = threads.call("caller", lambda: CALLS[name](session))
        took = bench.took(call)
        came, seconds, ended = took < bench.numbers.deadline, clock.now() - began, session.ended("g")
        bench.note(f"{name}, gate closed" + (", a thread in synchronize" if waiter else ""), returned=came)
        if came and waiter is None:
            # Only now, so that what synchronize locks does not disturb the call.
            waiter = session.start(SyncStream(stream="S"))
        waits = waiter is None or not bench.slips(partial(_returned, waiter))
        session.open("g")
        back = waiter is None or bench.until(partial(_returned, waiter)) is not None
        bench.note("open g", returned=back and bench.until(lambda: call.returned) is not None, seconds=seconds)
        if not came:
            return took, ""
        bench.control(0.0 if waits and back else None)
        if ended:
            return took, EXPIRED
        return took, "" if waits and back else "control: synchronize is not held by the gate"


def _returned(call: Waiter) -> bool:
    return call.returned


def destroy_stream(bench: Bench) -> Iterator[Statement]:
    """A stream is destroyed with a copy behind a closed gate: the call returns, and the copy is done all the same."""
    blocked, arrived, why = _destroyed(bench, destroy=True)
    clause = "STM-DESTROY-1"
    if blocked:
        yield failed(clause, "destroying a stream with pending work does not return", repeat=True)
    elif why:
        yield unclear(clause, why)
    elif arrived:
        bench.control(0.0)  # it was held by the gate before
        yield held(clause)
    else:
        _, kept, _ = _destroyed(bench, destroy=False)
        if bench.control(0.0 if kept else None):
            yield failed(clause, "the work of a destroyed stream is lost", repeat=True)
        else:
            yield unclear(clause, "control: the copy does not arrive on a stream that is kept either")


def _destroyed(bench: Bench, *, destroy: bool) -> tuple[bool, bool, str]:
    """(did the call block?, did the copy arrive after the opening?, why that says nothing)."""
    with bench.session(streams=("T",), gates=("g",), buffers=("x", "h", "hx")) as session:
        threads = threads_of(bench.backend, session)
        threads.prepare("caller")
        private = private_streams_of(bench.backend, session)
        private.make("P")
        session.issue(Fill(stream="T", buffer="x", value=TOKEN))
        session.issue(Copy(stream="T", source="x", target="hx"))
        if bench.until(bench.arrived(session, "T", "hx", TOKEN)) is None:
            return False, False, "not-executed"
        session.issue(Gate(stream="P", gate="g"))
        private.copy("P", "x", "h")
        call = threads.call("caller", (lambda: private.destroy("P")) if destroy else (lambda: None))
        came = bench.took(call) < bench.numbers.deadline
        early, ended = bench.slips(lambda: session.read("h") == TOKEN), session.ended("g")
        bench.note("destroy stream P" if destroy else "(kept)", returned=came, buffers={"h": session.read("h")})
        session.open("g")
        bench.until(lambda: call.returned)
        arrived = bench.until(bench.arrived(session, "T", "h", TOKEN))
        bench.note("open g", buffers={"h": session.read("h")}, seconds=arrived or 0.0)
        if came and ended:
            return False, False, EXPIRED
        if came and early:
            return False, False, "control: the copy is not held by the gate"
        return not came, arrived is not None, ""
