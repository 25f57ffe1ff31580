"""What the real-time pipeline needs of a torch device, and device work of a chosen length.

A backend that has it offers it as `engine()`. Nothing here asks the host's clock for how long the device
worked: that is what timing events are for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from conformance.backends.api import EventFlags
from conformance.errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from conformance.backends.api import Clock
    from conformance.backends.torch_device.surfaces import VendorSurface

#: Work that is asked for while its length is learnt, and how often; in seconds.
LEARN: Final = 2e-3
LESSONS: Final = 8
#: A piece of work of which so much or so little was done needs another lesson.
CLOSE: Final = (0.9, 1.1)
#: Seconds after which a piece of work that should have made room for another has hung.
FULL: Final = 5.0
#: Streams beside main that the pipelines use at most: rings of as many, and a helper.
SIDE: Final = 12


class Held(Protocol):
    """A gate as `conformance.backends.gates` has it."""

    def enqueue(self, stream: Any, limit_s: float) -> object:
        """Hold the stream until opened, or for its limit."""
        ...

    def open(self) -> None:
        """Open it by a host store."""
        ...

    def entered(self) -> bool:
        """Has the stream reached it?"""
        ...

    def closed(self) -> bool:
        """Proof that it holds now."""
        ...


class Call(Protocol):
    """A call that a helper thread makes."""

    @property
    def returned(self) -> bool:
        """Has it returned?"""
        ...

    @property
    def error(self) -> BaseException | None:
        """What it raised."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """One device: streams that are distinct, work of a chosen length, gates, and the proof that it is idle."""

    torch: Any
    device: Any  # for tensors
    surface: VendorSurface
    main: Any
    side: Sequence[Any]
    busy: Busy
    clock: Clock
    take: Callable[[], Held] | None  # a gate that the host opens; None: there is none here
    give: Callable[[Sequence[Any], Sequence[Held], Sequence[Call]], bool]  # back, once streams and calls are done
    start: Callable[[Callable[[], object]], Call]  # in a helper thread
    beat: Callable[[], None]  # shows that nothing hangs


class Busy:
    """Queues device work of a chosen length."""

    def __init__(self, surface: VendorSurface, queue: Callable[[Any, float], None], name: str) -> None:
        """``queue(stream, amount)`` queues about ``amount`` seconds of it; how much that really is, is learnt."""
        self._surface, self._queue, self.name = surface, queue, name
        self._scale = 1.0

    def __call__(self, stream: Any, seconds: float) -> None:
        """Queue so many seconds of work."""
        self._queue(stream, seconds * self._scale)

    def learn(self, stream: Any, seconds: float = LEARN) -> float:
        """Learn the length of a piece of work by timing events; returns what the last lesson took over what was asked.

        Raises DeviceError if no lesson was close.
        """
        before, after = self._surface.event(EventFlags.TIMING), self._surface.event(EventFlags.TIMING)
        part: float = 0.0
        for lesson in range(LESSONS):
            self._surface.record(before, stream)
            self(stream, seconds)
            self._surface.record(after, stream)
            after.synchronize()
            part = float(before.elapsed_time(after)) / (1e3 * seconds)
            if part <= 0:
                break
            self._scale /= min(max(part, 1e-3), 1e3)
            if lesson and CLOSE[0] <= part <= CLOSE[1]:
                return part  # the first one may have loaded code
        raise DeviceError(f"{self.name}: {seconds * 1e3:g} ms of work took {part:.3g} times as long, and stays so")


def busy_by_gates(surface: VendorSurface, gates: Sequence[Any], name: str, clock: Clock) -> Busy:
    """Work that is a gate kernel whose own limit ends it: exact, by the device's timer, whatever its clock rate is."""
    turn = [0]

    def queue(stream: Any, seconds: float) -> None:
        gate = gates[turn[0] % len(gates)]
        turn[0] += 1
        # A host that runs ahead, by a defect or by design, waits here as it does for a launch queue that is full.
        began, polls = clock.now(), 0
        while not gate.idle() and clock.now() - began < FULL:
            clock.pause(polls)
            polls += 1
        gate.enqueue(surface.gated(stream), seconds)

    return Busy(surface, queue, name)


def busy_by_sleep(surface: VendorSurface) -> Busy:
    """Work that is torch's own spinning kernel: a billion cycles are taken for a second until it is learnt."""

    def queue(stream: Any, seconds: float) -> None:
        with surface.current(stream):
            surface.module._sleep(int(seconds * 1e9))

    return Busy(surface, queue, f"{surface.module.__name__}._sleep")
