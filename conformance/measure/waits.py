"""For how much of a wait each synchronizing call keeps a processor busy, behind a closed gate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from conformance.backends.api import EventFlags, Request
from conformance.errors import DeviceError, Unsupported
from conformance.measure.refusal import errors_of, needs_causal, not_idle, refusal
from probes.program import Gate, Record, Sync, SyncDevice, SyncStream

if TYPE_CHECKING:
    from conformance.backends.api import Backend
    from conformance.numbers import Numbers

#: Seconds for which a call is held.
HOLD: Final = 0.05
_CALLS: Final[dict[str, tuple[EventFlags, Sync | SyncStream | SyncDevice]]] = {
    "event synchronize": (EventFlags.DEFAULT, Sync(event="e")),
    "event synchronize, blocking flag": (EventFlags.BLOCKING, Sync(event="e")),
    "stream synchronize": (EventFlags.DEFAULT, SyncStream(stream="s")),
    "device synchronize": (EventFlags.DEFAULT, SyncDevice()),
}


def measure_waits(backend: Backend, numbers: Numbers) -> dict[str, str]:
    """The part of its time for which each call uses a processor, in percent. Raises Unsupported for timed gates."""
    needs_causal(backend)
    found: dict[str, str] = {}
    for name, (flags, call) in _CALLS.items():
        try:
            found[f"processor used, {name}"] = f"{_part(backend, numbers, flags, call):.0%} of the wait"
        except errors_of(backend) as error:
            found[f"processor used, {name}"] = refusal(error)
    return found


def _part(backend: Backend, numbers: Numbers, flags: EventFlags, call: Sync | SyncStream | SyncDevice) -> float:
    clock = backend.clock
    session = backend.session(
        Request(streams=("s",), events=("e",), gates=("g",), buffers=(), flags=flags, gate_limit=numbers.gate_limit)
    )
    idle = False
    try:
        session.issue(Gate(stream="s", gate="g"))
        session.issue(Record(stream="s", event="e"))
        waiter = session.start(call)
        began, polls = clock.now(), 0
        while clock.now() - began < HOLD:
            clock.pause(polls)
            polls += 1
        held = not waiter.returned and not session.ended("g")
        session.open("g")
        opened, polls = clock.now(), 0
        while not waiter.returned and clock.now() - opened < numbers.deadline:
            clock.pause(polls)
            polls += 1
        if waiter.error is not None:
            raise waiter.error
        if not held or not waiter.returned:
            raise DeviceError("the call is not held by the gate, or does not return after it")
        cpu, seconds = getattr(waiter, "cpu", None), getattr(waiter, "seconds", None)
        if cpu is None or seconds is None:
            raise Unsupported("threads", f"the {backend.name} backend does not tell a call's processor time")
    finally:
        idle = session.close()
    if not idle:
        raise not_idle(backend)
    return float(cpu / seconds)
