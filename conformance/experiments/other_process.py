"""An event that is shared with another process: asked, synchronized and waited for there, recorded here.

Beside each look stands the same look in this process: what is wrong here too says nothing about sharing.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from conformance.backends.extras import EndedError, peers_of
from conformance.errors import Unsupported
from conformance.experiments.bench import EXPIRED, failed, held, raised, unclear
from probes.program import Copy, Fill, Gate, Record, Sync, Wait

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from conformance.backends.api import Session
    from conformance.backends.extras import Imported, Peers
    from conformance.experiments.bench import Bench
    from conformance.judgement.statements import Statement
    from probes.probe import Case

CLAUSE: Final = "EVT-IPC-1"
ACROSS: Final = "ipc-events-across"
LATE: Final = "{} there does not see that the event is complete"
NOTHING: Final = "control: without the wait nothing arrives in the other process either"
#: Seconds in which the other process must have opened its device: it imports what this one has imported.
START: Final = 60.0

Looks = tuple["Callable[[], bool]", "Callable[[], bool]"]  # (there, here)


def shared(bench: Bench) -> Iterator[Statement]:
    """Behind a gate the event must pend in the other process, and be seen there once the gate opens."""
    buffers = ("x", "y", "h", "hy")
    with bench.session(streams=("S", "U"), events=("e",), gates=("g1", "g2"), buffers=buffers) as session:
        peers = peers_of(bench.backend, session, across=extra_of(bench.case) == ACROSS)
        _started(bench, peers)
        imported = peers.share("e")
        try:
            waits = bench.choice("look") == "wait"
            yield (_waits(bench, session, imported) if waits else None) or _shared(bench, session, imported)
        finally:
            imported.close()


def extra_of(case: Case) -> str:
    """Which extra a case needs: another process, with its stream on this device or on the other one."""
    return ACROSS if dict(case.factors).get("stream") == "far" else "ipc-events"


def _waits(bench: Bench, session: Session, imported: Imported) -> Statement | None:
    """A wait there for an event that is complete holds nothing, as the same wait here. None if that is so.

    Raises Unsupported if the call ends the other process and its stream is on another device: no document says that
    the platform has such waits. On one device that is an error, and costs the verdict.
    """
    imported.queue(1, behind=False)
    if bench.until(partial(_arrived, session, imported, 1)) is None:
        return unclear(CLAUSE, NOTHING)
    session.issue(Record(stream="S", event="e"))
    session.issue(Wait(stream="U", event="e"))
    session.issue(Fill(stream="U", buffer="x", value=3))
    session.issue(Copy(stream="U", source="x", target="h"))
    if not bench.control(bench.until(lambda: session.query("e") and session.read("h") == 3)):
        return unclear(CLAUSE, "control-late")
    try:
        imported.queue(3, behind=True)
    except EndedError as error:
        if extra_of(bench.case) != ACROSS:
            raise
        raise Unsupported(ACROSS, f"a wait there for an event that is complete: {error}") from error
    if bench.until(partial(_arrived, session, imported, 3)) is None:
        return failed(CLAUSE, LATE.format("wait"), repeat=True)
    return None


def _started(bench: Bench, peers: Peers) -> None:
    beat = getattr(bench.backend, "beat", None)  # a child tells its parent that nothing hangs

    def ready() -> bool:
        if beat is not None:
            beat()
        return peers.ready

    if bench.until(ready, START) is None:
        raise Unsupported(extra_of(bench.case), f"the other process did not open its device within {START:g} s")


def _shared(bench: Bench, session: Session, imported: Imported) -> Statement:
    gates = ("g1", "g2") if bench.choice("look") == "again" else ("g1",)
    for gate in gates:
        session.issue(Gate(stream="S", gate=gate))
        try:
            said = _seen(bench, session, imported, gate)
        finally:
            session.open(gate)  # before the other process drops the event, which may wait for it
        if said is not None:
            return said
    return held(CLAUSE)


def _seen(bench: Bench, session: Session, imported: Imported, gate: str) -> Statement | None:
    """One record behind a closed gate, there and here; None if there is nothing to say against it."""
    how = bench.choice("look")
    session.issue(Record(stream="S", event="e"))
    there, here = _looks(how, session, imported)
    if how == "wait" and bench.until(partial(_arrived, session, imported, 1), bench.numbers.concurrency) is None:
        return unclear(CLAUSE, NOTHING)
    local = bench.slips(here)
    early, ended = bench.slips(there), session.ended(gate)
    bench.note(f"{gate} closed", events={"e there": ("PEND", early), "e here": ("PEND", local)})
    if early and not ended:
        bench.control(None if local else 0.0)
        return unclear(CLAUSE, "control: early here too") if local else failed(CLAUSE, f"{how} there is early")
    session.open(gate)
    if early or ended:
        return unclear(CLAUSE, EXPIRED)
    local_after, after = bench.until(here), bench.until(there)
    bench.note(f"open {gate}", events={"e there": ("MUST", after is not None)}, seconds=after or 0.0)
    if not bench.control(local_after):
        return unclear(CLAUSE, "control-late")
    if after is None:
        return failed(CLAUSE, LATE.format(how), repeat=True)
    return None


def _arrived(session: Session, imported: Imported, token: int) -> bool:
    """Has this token arrived there? Asked beside a question to the device."""
    session.query_stream("U")
    return imported.token() == token


def _looks(how: str, session: Session, imported: Imported) -> Looks:
    """How the event is looked at there, and the same here."""
    if how == "synchronize":
        away, home = imported.synchronize(), session.start(Sync(event="e"))

        def returned() -> bool:
            if away.returned:
                raised(away)
            return away.returned

        return returned, lambda: home.returned
    if how == "wait":
        # First without the wait, so that something is seen to arrive; then behind it.
        imported.queue(1, behind=False)
        session.issue(Wait(stream="U", event="e"))
        session.issue(Fill(stream="U", buffer="y", value=2))
        session.issue(Copy(stream="U", source="y", target="hy"))
        queued = False

        def token() -> bool:
            nonlocal queued
            if not queued:
                imported.queue(2, behind=True)
                queued = True
            return _arrived(session, imported, 2)

        return token, lambda: session.read("hy") == 2
    return imported.query, lambda: session.query("e")
