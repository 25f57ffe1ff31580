"""One shot: the core program at one point of the factors, run once, with or without what stands behind the event.

The token is read by loads from host memory, and the event is asked only as the point says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from conformance.diagnosis.programs import DEVICE_TOKEN, DEVICE_VALUE, EVENT, TOKEN, VALUE, build
from conformance.execution import request_for
from probes.program import Destroy, Open, Read, Sync, is_host

if TYPE_CHECKING:
    from collections.abc import Callable

    from conformance.backends.api import Backend, Session, Waiter
    from conformance.diagnosis.factors import Point
    from conformance.diagnosis.programs import Built
    from conformance.numbers import Numbers

#: Seconds in which what is earlier must end.
EARLIER_LIMIT: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Shot:
    """What one run showed."""

    late: bool | None  # None: it says nothing; `reason` is why
    reason: str = ""
    after: float = 0.0  # seconds from the opening until the event was seen, if it was in time


class _Shooter:
    def __init__(self, backend: Backend, session: Session, built: Built) -> None:
        self.clock, self.session, self.built = backend.clock, session, built
        self.waiter: Waiter | None = None

    def rest(self, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Let time pass until something is so; returns whether it is."""
        began, polls = self.clock.now(), 0
        while not (so := until()) and self.clock.now() - began < seconds:
            self.clock.pause(polls)
            polls += 1
        return so

    def bring(self) -> bool:
        """Queue and do everything but the last opening. False if what is earlier does not end."""
        session, steps = self.session, self.built.program.steps
        for number, step in enumerate(steps[:-1]):
            if number in self.built.pauses:
                self.rest(self.built.pauses[number])
            if not is_host(step):
                session.issue(step)  # type: ignore[arg-type]  # not a host step
            elif isinstance(step, Open):
                session.open(step.gate)
            elif isinstance(step, Destroy):
                session.destroy(step.event)
            elif isinstance(step, Read):
                buffer = step.buffer
                if not self.rest(EARLIER_LIMIT, lambda buffer=buffer: session.read(buffer) != 0):  # type: ignore[misc]
                    return False
        if self.built.setting.observe == "synchronize":
            self.waiter = session.start(Sync(event=EVENT))
        return True

    def seen(self) -> bool:
        """Is the event seen, as the point asks?"""
        if self.waiter is not None:
            if self.waiter.returned and self.waiter.error is not None:
                raise self.waiter.error
            return self.waiter.returned
        if self.built.device:
            return self.session.read(DEVICE_TOKEN) == DEVICE_VALUE
        return self.session.query(EVENT)

    def shoot(self, hold: float) -> Shot:
        """The run itself."""
        if not self.bring():
            return Shot(late=None, reason="what is earlier does not end")
        began = self.clock.now()
        self.session.open("g1")
        seen = self.rest(hold, self.seen)
        after = self.clock.now() - began
        if any(self.session.ended(gate) for gate in self.built.closed):
            return Shot(late=None, reason="a gate ended by itself")
        if not seen and self.built.device and self.session.read(TOKEN) != VALUE:
            return Shot(late=None, reason="what the stream waits for is not done")
        return Shot(late=not seen, after=after)


def shoot(backend: Backend, numbers: Numbers, point: Point, hold: float, *, control: bool = False) -> Shot:
    """Run the point once; ``control`` leaves out the later wait and what stands behind it. Raises as backends do."""
    built = build(point, control=control)
    session = backend.session(request_for(built.program, built.setting, numbers))
    try:
        return _Shooter(backend, session, built).shoot(hold)
    finally:
        session.close()
