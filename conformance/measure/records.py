"""What records cost, and how many events may live at once."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Final

from conformance.backends.api import Request
from conformance.measure.refusal import errors_of, not_idle, refusal
from probes.program import Fill, Record

if TYPE_CHECKING:
    from conformance.backends.api import Backend
    from conformance.numbers import Numbers

#: Streams with work beside which a record is timed; records timed for each; events made at most.
STREAMS: Final = (1, 4, 8)
RECORDS: Final = 200
EVENTS: Final = 4096


def measure_record_cost(backend: Backend, numbers: Numbers) -> dict[str, str]:
    """Microseconds of the host in a record, by how many streams have had work. Raises DeviceError."""
    return {f"record beside {count} streams in use": _cost(backend, count) for count in STREAMS}


def _cost(backend: Backend, count: int) -> str:
    streams, clock, seconds = [f"S{n}" for n in range(count)], backend.clock, list[float]()
    session = backend.session(Request(streams=streams, events=("e",), gates=(), buffers=("x",)))
    idle = False
    try:
        session.issue(Record(stream="S0", event="e"))
        for _ in range(RECORDS):
            for stream in streams:
                session.issue(Fill(stream=stream, buffer="x", value=1))
            began = clock.now()
            session.issue(Record(stream="S0", event="e"))
            seconds.append(clock.now() - began)
    finally:
        idle = session.close()
    if not idle:
        raise not_idle(backend)
    return f"median {1e6 * median(seconds):.1f} us of {RECORDS}"


def measure_live_events(backend: Backend, numbers: Numbers) -> dict[str, str]:
    """How many events can be recorded and kept, up to `EVENTS`, all seen complete. Raises DeviceError."""
    events = [f"e{n}" for n in range(EVENTS)]
    session = backend.session(Request(streams=("S",), events=events, gates=(), buffers=()))
    idle, made, why = False, 0, ""
    try:
        try:
            for event in events:
                session.issue(Record(stream="S", event=event))
                made += 1
        except errors_of(backend) as error:
            why = f", then {refusal(error)}"
        clock = backend.clock
        began, polls = clock.now(), 0
        while (pending := sum(not session.query(e) for e in events[:made])) and clock.now() - began < numbers.deadline:
            clock.pause(polls)
            polls += 1
    finally:
        idle = session.close()
    if not idle:
        raise not_idle(backend)
    late = f"; {pending} of them are not seen complete within {numbers.deadline:g} s" if pending else ""
    return {"live events": f"{'' if why else 'at least '}{made}{why}{late}"}
