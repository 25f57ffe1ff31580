"""Which pairs of streams are coupled: what is parked on one holds up the other.

Two questions, for every pair and beside other streams that have had work: does a copy on i stand still while j is
parked in a wait with a copy behind it (what a ring may cost others), and is an event of i seen late when a wait is
queued on j (whether a ring helps, and the defect itself where i is j). Streams that share a queue of the
device answer alike, and which ones do may change with what else is alive. Source: docs/hardware.md.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from conformance.backends.api import Request
from conformance.errors import DeviceError
from conformance.measure.found import Measurement
from conformance.measure.parked import TRIES, Arrangement, seen, stands_still
from conformance.measure.refusal import errors_of, needs_causal, not_idle, refusal
from probes.program import Copy, Fill, Gate, Record, Wait
from reports.records import Coupling

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from conformance.backends.api import Backend
    from conformance.numbers import Numbers

#: Streams that are paired, and how many others are alive beside them.
STREAMS: Final = 6
BESIDE: Final = (0, 8)
#: Seconds for one matrix; on a slow device it ends with the pairs that were asked by then.
BUDGET: Final = 2.0
#: The two questions.
STANDS: Final = "a copy stands still"
LATE: Final = "an event is late"


def measure_coupling(backend: Backend, numbers: Numbers) -> Measurement:
    """Each matrix, and a text for each."""
    needs_causal(backend)
    couplings = []
    for beside in BESIDE:
        for what in (STANDS, LATE):
            couplings.append(_matrix(backend, numbers, what, beside))
    return Measurement(values=dict(map(_text, couplings)), couplings=tuple(couplings))


def _matrix(backend: Backend, numbers: Numbers, what: str, beside: int) -> Coupling:
    streams = [f"s{n}" for n in range(STREAMS)]
    others = [f"o{n}" for n in range(beside)]
    clock = backend.clock
    began, asked, note = clock.now(), 0, ""
    found: list[tuple[int, int]] = []
    pairs = list(itertools.product(range(STREAMS), repeat=2))
    if what == STANDS:
        pairs = [(i, j) for i, j in pairs if i != j]
    try:
        gated = set[int]()
        if what == STANDS:
            # A stream that stands still beside the closed gate alone says nothing of the parked ones.
            gated = {i for i in range(STREAMS) if _stands(backend, numbers, streams, others, i, None)}
            if gated:
                note = f"the closed gate alone holds up {', '.join(map(str, sorted(gated)))}"
                pairs = [(i, j) for i, j in pairs if i not in gated]
        for i, j in pairs:
            if not clock.virtual and clock.now() - began > BUDGET:
                note = f"{note}; out of time".removeprefix("; ")
                break
            ask: Callable[..., bool] = _stands if what == STANDS else _late
            if ask(backend, numbers, streams, others, i, j):
                found.append((i, j))
            asked += 1
    except errors_of(backend) as error:
        note = refusal(error)
    return Coupling(what=what, streams=STREAMS, beside=beside, asked=asked, pairs=tuple(found), note=note)


def _stands(
    backend: Backend, numbers: Numbers, streams: Sequence[str], others: Sequence[str], i: int, j: int | None
) -> bool:
    """Does a copy on stream i stand still while stream j is parked?"""
    parked = () if j is None else (streams[j],)
    here = Arrangement(streams=tuple(streams), parked=parked, free=streams[i], alive=tuple(others))
    return stands_still(backend, numbers, "D2H copy", "D2H copy", here)


def _late(backend: Backend, numbers: Numbers, streams: Sequence[str], others: Sequence[str], i: int, j: int) -> bool:
    """Is an event of stream i late because a wait was queued on stream j? Believed when it is seen twice."""
    return _once(backend, numbers, streams, others, i, j) and _once(backend, numbers, streams, others, i, j)


def _once(backend: Backend, numbers: Numbers, streams: Sequence[str], others: Sequence[str], i: int, j: int) -> bool:
    for _ in range(TRIES):
        late = _try(backend, numbers, streams, others, streams[i], streams[j])
        if late is not None:
            return late
    raise DeviceError(f"{backend.name}: the gate ended by itself in {TRIES} of {TRIES} tries")


def _try(
    backend: Backend, numbers: Numbers, streams: Sequence[str], others: Sequence[str], one: str, other: str
) -> bool | None:
    """None if the second gate had ended after the last look."""
    session = backend.session(
        Request(
            streams=("gate", *others, *streams),
            events=("e", "f"),
            gates=("g1", "g2"),
            buffers=("x", "y", "h", "hy"),
            gate_limit=numbers.gate_limit,
        )
    )
    try:
        for stream in others:
            session.issue(Fill(stream=stream, buffer="y", value=1))
        session.issue(Gate(stream=one, gate="g1"))
        session.issue(Fill(stream=one, buffer="x", value=1))
        session.issue(Copy(stream=one, source="x", target="h"))
        session.issue(Record(stream=one, event="e"))
        session.issue(Gate(stream="gate", gate="g2"))
        session.issue(Record(stream="gate", event="f"))
        session.issue(Wait(stream=other, event="f"))
        session.issue(Copy(stream=other, source="y", target="hy"))
        seen(backend, lambda: session.query("f"), numbers.pend_window)
        session.open("g1")
        on_time = seen(backend, lambda: session.query("e"), numbers.harvest)
        held = not session.ended("g2")
        session.open("g2")
    finally:
        idle = session.close()
    if not idle:
        raise not_idle(backend)
    return not on_time if held else None


def _text(coupling: Coupling) -> tuple[str, str]:
    alive = f"{coupling.beside} others alive" if coupling.beside else "no others alive"
    if coupling.note.startswith("unsupported"):
        return f"coupled streams, {coupling.what}, {alive}", coupling.note
    shown = ", ".join(f"{i}-{j}" for i, j in coupling.pairs) or "none"
    said = f"{shown} of {coupling.asked} pairs" + (f"; {coupling.note}" if coupling.note else "")
    return f"coupled streams, {coupling.what}, {alive}", said
