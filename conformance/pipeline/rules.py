"""What an engine relies on beside the events: of the device, and of itself (a client rule).

Each has its look-alike that must come out the other way, so that none of them can pass for want of trying.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from conformance.backends.api import EventFlags
from conformance.backends.gates.base import until
from conformance.errors import DeviceError, needed
from conformance.pipeline.paths import set_stream
from reports.pipeline import Finding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from conformance.pipeline.device import Engine

#: Seconds of device work between two timing events.
PIECE: Final = 5e-4
#: Timing events of a step, as an engine's step timing takes them.
MARKS: Final = 4
#: Numbers in a tensor that is dropped, tensors of that size in the allocator's cache, and the gate's limit.
SIZE: Final = 1 << 14
SPARE: Final = 3
LIMIT: Final = 1.0

PART: Final = "rules"
DEVICE: Final = "of the device"
CLIENT: Final = "of the client"
CONTROL: Final = "control"


class _Inside(Exception):
    """Raised inside a switched stream."""


def check_rules(engine: Engine, steps: int) -> tuple[Finding, ...]:
    """All of them. Raises what the vendor's calls raise."""
    return (*_switches(engine), _issue_order(engine, steps), *_dropped(engine))


@contextmanager
def _unguarded(module: Any, stream: Any, back: Any) -> Iterator[None]:
    """Two calls, the second of which an exception leaves out."""
    module.set_stream(stream)
    yield
    module.set_stream(back)


def _switches(engine: Engine) -> list[Finding]:
    surface, main, other = engine.surface, engine.main, engine.side[0]
    module = surface.module
    for name in ("set_stream", "current_stream"):
        needed(module, name, "stream switches")
    ways: list[tuple[str, Callable[[], AbstractContextManager[object]], bool]] = [
        ("the context manager", lambda: surface.current(other), True),
        ("two set_stream calls, the second in finally", lambda: set_stream(module, other, main), True),
        ("two set_stream calls without finally", lambda: _unguarded(module, other, main), False),
    ]
    found = []
    for what, switch, restores in ways:
        try:
            try:
                with switch():
                    raise _Inside
            except _Inside:
                back = surface.handle(module.current_stream()) == surface.handle(main)
        finally:
            module.set_stream(main)
        found.append(
            Finding(
                part=PART,
                what=f"an exception inside {what}",
                found="main is current again" if back else "the copy stream stays current",
                held=back is restores,
                rule=CLIENT if restores else CONTROL,
            )
        )
    return found


def _issue_order(engine: Engine, steps: int) -> Finding:
    """One synchronize on the last of many events of a stream: all before it must be complete."""
    surface, main = engine.surface, engine.main
    marks = [surface.event(EventFlags.TIMING) for _ in range(steps * MARKS)]
    for mark in marks:
        surface.record(mark, main)
        engine.busy(main, PIECE)
    last = surface.event(EventFlags.TIMING)
    surface.record(last, main)
    pending = not last.query()
    last.synchronize()
    late = [number for number, mark in enumerate(marks) if not mark.query()]
    ends = [*marks[1:], last]
    backwards = [] if late else [n for n, mark in enumerate(marks) if mark.elapsed_time(ends[n]) < 0]
    wrong = late or backwards
    text = f"{len(marks)} events, {'pending' if pending else 'complete'} at first, one synchronize"
    if wrong:
        text += f": event {wrong[0]} {'is not complete' if late else 'lies after the next one'}"
    return Finding(
        part=PART,
        what="events of one stream complete in issue order",
        found=text,
        held=None if not pending and not wrong else not wrong,
        rule=DEVICE,
    )


def _dropped(engine: Engine) -> list[Finding]:
    """A tensor is dropped while a copy of it is queued: whose data arrives?"""
    findings = []
    for keeps in (True, False):
        what = "a device tensor dropped after queuing its copy, " + ("with" if keeps else "without") + " record_stream"
        right = _whose_data(engine, keeps=keeps)
        held: bool | None = right if keeps else True
        found = "the copy has its data" if right else "the copy has what a later tensor wrote there"
        if not keeps and right:
            held, found = None, "its memory was not given out again meanwhile: nothing shown"
        if right is None:
            held, found = None, "no gate that the host can open held: nothing shown"
        findings.append(Finding(part=PART, what=what, found=found, held=held, rule=CLIENT if keeps else CONTROL))
    return findings


def _whose_data(engine: Engine, *, keeps: bool) -> bool | None:
    if engine.take is None:
        return None
    torch, surface, main, copy = engine.torch, engine.surface, engine.main, engine.side[0]

    def tensor(value: int) -> Any:
        return torch.full((SIZE,), value, dtype=torch.int32, device=engine.device)

    host = torch.zeros((SIZE,), dtype=torch.int32, pin_memory=True)
    spare = [tensor(0) for _ in range(SPARE)]
    with surface.current(copy):
        surface.wait_stream(copy, main)
        host.copy_(spare[0], non_blocking=True)  # everything once before a gate closes
    done = surface.event(EventFlags.DEFAULT)
    surface.record(done, main)
    del spare
    _idle(engine)
    gate = engine.take()
    try:
        gate.enqueue(surface.gated(copy), LIMIT)
        if until(gate.entered, LIMIT) is None:
            raise DeviceError("a gate on an idle stream is not entered")
        dropped = tensor(1)
        with surface.current(copy):
            surface.wait_stream(copy, main)
            host.copy_(dropped, non_blocking=True)
        if keeps:
            dropped.record_stream(copy)
        del dropped
        others = [tensor(2) for _ in range(SPARE)]
        surface.record(done, main)
        held = until(done.query, LIMIT / 2) is not None and gate.closed()
    finally:
        gate.open()
        idle = engine.give([main, copy], [gate], [])
    if not idle:
        raise DeviceError("the device did not become idle after its gate opened")
    del others
    return all(number == 1 for number in host.tolist()) if held else None


def _idle(engine: Engine) -> None:
    if not engine.give([engine.main, *engine.side], [], []):
        raise DeviceError("the device did not become idle")
