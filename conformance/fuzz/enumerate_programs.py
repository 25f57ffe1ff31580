"""Every program up to a size, up to renaming.

An operation is a gate, a record (with a token of its own before it, so that its lateness is provable), a
wait or a wait-stream; all are issued, then the gates are opened in every order. At most `STREAMS` streams
and `EVENTS` events. Streams and events are numbered in the order of first use, so that no two programs
differ by names alone; waits on events that are never recorded later either are kept, and so are self-waits.
"""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING, Final

from probes.program import Copy, Fill, Gate, Open, Program, Read, Record, Wait, WaitStream

if TYPE_CHECKING:
    from collections.abc import Iterator

    from probes.program import Step

STREAMS: Final = 3
EVENTS: Final = 2

Shape = tuple[tuple[str, int, int], ...]  # (kind, stream, event or other stream)


def enumerated(size: int, *, unrecorded: bool = True) -> Iterator[Program]:
    """Programs of 1 to ``size`` operations; without ``unrecorded`` those that wait before any record are left out."""
    for length in range(1, size + 1):
        for shape in _shapes(length, (), 0, 0):
            if not any(kind == "record" for kind, _, _ in shape):
                continue  # nothing is owed in it
            if not unrecorded and _waits_first(shape):
                continue
            steps, gates = _steps(shape)
            for order in permutations(gates):
                opened: list[Step] = [Open(gate=gate) for gate in order]
                yield Program((*steps, *(opened or [Read(buffer="h1")])))


def _shapes(left: int, sofar: Shape, streams: int, events: int) -> Iterator[Shape]:
    if not left:
        yield sofar
        return
    for stream in range(min(streams + 1, STREAMS)):
        used = max(streams, stream + 1)
        yield from _shapes(left - 1, (*sofar, ("gate", stream, 0)), used, events)
        for event in range(min(events + 1, EVENTS)):
            known = max(events, event + 1)
            for kind in ("record", "wait"):
                yield from _shapes(left - 1, (*sofar, (kind, stream, event)), used, known)
        for other in range(streams):
            if other != stream:
                yield from _shapes(left - 1, (*sofar, ("wait-stream", stream, other)), used, events)


def _waits_first(shape: Shape) -> bool:
    recorded: set[int] = set()
    for kind, _, event in shape:
        if kind == "wait" and event not in recorded:
            return True
        if kind == "record":
            recorded.add(event)
    return False


def _steps(shape: Shape) -> tuple[list[Step], list[str]]:
    steps: list[Step] = []
    gates: list[str] = []
    tokens = 0
    for kind, stream, other in shape:
        name = f"s{stream + 1}"
        if kind == "gate":
            gates.append(f"g{len(gates) + 1}")
            steps.append(Gate(stream=name, gate=gates[-1]))
        elif kind == "record":
            tokens += 1
            steps.append(Fill(stream=name, buffer=f"x{tokens}", value=tokens))
            steps.append(Copy(stream=name, source=f"x{tokens}", target=f"h{tokens}"))
            steps.append(Record(stream=name, event=f"e{other + 1}"))
        elif kind == "wait":
            steps.append(Wait(stream=name, event=f"e{other + 1}"))
        else:
            steps.append(WaitStream(stream=name, other=f"s{other + 1}"))
    return steps, gates
