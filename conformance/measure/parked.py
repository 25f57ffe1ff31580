"""How many streams may be parked in a wait until an independent stream stands still.

Vendors map streams onto a few hardware queues, and a wait at a queue's head holds back whatever is
behind it. No vendor guarantees concurrency between streams, so this is a capability and no finding;
it bounds how long a ring may be before it does harm. Source: docs/hardware.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from conformance.backends.api import Request
from conformance.errors import DeviceError
from conformance.measure.found import Measurement
from conformance.measure.refusal import errors_of, needs_causal, not_idle, refusal
from probes.program import Copy, Fill, Gate, Record, Wait
from reports.records import ParkedRow
from reports.render import PARKED, ROW

if TYPE_CHECKING:
    from collections.abc import Callable

    from conformance.backends.api import Backend, Session
    from conformance.numbers import Numbers
    from probes.program import DeviceOp

#: What stands behind each parked wait, and what the independent stream gets.
BEHIND: Final = ("record", "D2H copy", "kernel")
WORK: Final = ("D2H copy", "kernel")
#: Parked streams at most: a torch backend has 24 side streams, and two more are needed.
MOST: Final = 20
#: Tries of one number until the gate of one was not ended by its limit.
TRIES: Final = 3
#: Seconds for one row; on a slow device it ends with what was shown by then.
BUDGET: Final = 0.8
#: The note of a row that ended early.
OUT_OF_TIME: Final = "out of time"
#: What the independent copy carries.
TOKEN: Final = 7


def key_of(behind: str, work: str) -> str:
    """The name of a row; `reports.render` makes a table of them."""
    return f"{PARKED}{behind}{ROW}{work}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """The streams of one try, in an order that no try changes: which of them are parked, and which one is free."""

    streams: tuple[str, ...]
    parked: tuple[str, ...]
    free: str
    alive: tuple[str, ...] = ()  # have had work

    @classmethod
    def of(cls, parked: int) -> Arrangement:
        """So many parked streams, and one more that is free."""
        names = tuple(f"p{n}" for n in range(1, parked + 1))
        return cls(streams=(*names, "free"), parked=names, free="free")


def measure_parked(backend: Backend, numbers: Numbers) -> Measurement:
    """For each row the least number of parked streams beside which the independent work stands still."""
    needs_causal(backend)
    rows = []
    for behind in BEHIND:
        for work in WORK:
            try:
                rows.append(_row(backend, numbers, behind, work))
            except errors_of(backend) as error:
                rows.append(ParkedRow(behind=behind, work=work, streams=None, tried=0, note=refusal(error)))
    return Measurement(values={key_of(row.behind, row.work): _text(row) for row in rows}, parked=tuple(rows))


def _text(row: ParkedRow) -> str:
    if row.streams is not None:
        return f"{row.streams} streams" if row.streams else "0 streams: the closed gate alone is enough"
    if row.note and row.note != OUT_OF_TIME:
        return row.note
    return f"never (k to {row.tried}{', then out of time' if row.note else ''})"


def _row(backend: Backend, numbers: Numbers, behind: str, work: str) -> ParkedRow:
    # Upwards, and not by halves: a number at which the work runs costs a millisecond or two, one at which
    # it stands still costs the whole wait; and nothing says that what runs beside k runs beside k - 1.
    began = backend.clock.now()
    for parked in range(MOST + 1):
        if backend.clock.now() - began > BUDGET:
            return ParkedRow(behind=behind, work=work, streams=None, tried=parked - 1, note=OUT_OF_TIME)
        if stands_still(backend, numbers, behind, work, Arrangement.of(parked)):
            return ParkedRow(behind=behind, work=work, streams=parked, tried=parked)
    return ParkedRow(behind=behind, work=work, streams=None, tried=MOST)


def stands_still(backend: Backend, numbers: Numbers, behind: str, work: str, here: Arrangement) -> bool:
    """One run is proof that the work runs; that it does not is believed when it is seen twice of three times."""
    first = _ran(backend, numbers, behind, work, here)
    if first or _ran(backend, numbers, behind, work, here):
        # Once not seen and once seen: the third decides.
        return not first and not _ran(backend, numbers, behind, work, here)
    return True


def _ran(backend: Backend, numbers: Numbers, behind: str, work: str, here: Arrangement) -> bool:
    """Did the work run while the gate was shown closed? Raises DeviceError if no try had a closed gate."""
    for _ in range(TRIES):
        ran = _try(backend, numbers, behind, work, here)
        if ran is not None:
            return ran
    raise DeviceError(f"{backend.name}: the gate ended by itself in {TRIES} of {TRIES} tries")


def _try(backend: Backend, numbers: Numbers, behind: str, work: str, here: Arrangement) -> bool | None:
    """One try; None if the gate had ended after the last look."""
    parked = here.parked
    session = backend.session(
        Request(
            streams=("gate", *here.alive, *here.streams),
            events=("e", "f", *(f"e{n}" for n in parked)),
            gates=("g",),
            buffers=("x", "y", "h", "hy", *(f"x{n}" for n in parked), *(f"h{n}" for n in parked)),
            gate_limit=numbers.gate_limit,
        )
    )
    try:
        # What the independent copy carries is there before the gate closes, and so is a first use of the stream.
        for stream in (*here.alive, here.free):
            session.issue(Fill(stream=stream, buffer="y", value=TOKEN))
        session.issue(Copy(stream=here.free, source="y", target="h"))
        if not seen(backend, lambda: session.read("h") == TOKEN, numbers.deadline):
            raise DeviceError(f"{backend.name}: a copy on an idle device does not arrive in {numbers.deadline:g} s")
        session.issue(Gate(stream="gate", gate="g"))
        session.issue(Record(stream="gate", event="e"))
        for stream in parked:
            session.issue(Wait(stream=stream, event="e"))
            session.issue(_behind(behind, stream))
        # So long the waits have to arrive in the device; what is queued at once might overtake them.
        seen(backend, lambda: session.query("e"), numbers.pend_window)
        done = _work(session, work, here.free)
        ran = seen(backend, done, numbers.concurrency)
        held = not session.ended("g")
        session.open("g")
        if not ran and held and not seen(backend, done, numbers.deadline):
            raise DeviceError(f"{backend.name}: the {work} was not seen after the gate had opened either")
    finally:
        idle = session.close()
    if not idle:
        raise not_idle(backend)
    return ran if held else None


def _behind(kind: str, stream: str) -> DeviceOp:
    if kind == "record":
        return Record(stream=stream, event=f"e{stream}")
    if kind == "kernel":
        return Fill(stream=stream, buffer=f"x{stream}", value=1)
    return Copy(stream=stream, source=f"x{stream}", target=f"h{stream}")


def _work(session: Session, kind: str, free: str) -> Callable[[], bool]:
    """Queue the independent work; returns how it is seen: a copy by its token, a kernel by an event behind it."""
    if kind == "kernel":
        session.issue(Fill(stream=free, buffer="x", value=TOKEN))
        session.issue(Record(stream=free, event="f"))
        return lambda: session.query("f")
    session.issue(Copy(stream=free, source="y", target="hy"))
    return lambda: session.read("hy") == TOKEN


def seen(backend: Backend, true: Callable[[], bool], seconds: float) -> bool:
    """Poll until it is true; False after so many seconds."""
    began, polls = backend.clock.now(), 0
    while not true():
        if backend.clock.now() - began > seconds:
            return False
        backend.clock.pause(polls)
        polls += 1
    return True
