"""The sleep gate: torch's own spinning kernel for a calibrated time."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from conformance.backends.gates.base import Gate
from conformance.backends.gates.libraries import GateError, GateUnsupported
from conformance.backends.gates.words import TIMED

#: Cycles asked for: by a gate's first use, which is not measured, and by each of those that are.
_FIRST: Final = 10**5
_CYCLES: Final = 10**7
#: Uses that are measured.
_MEASURED: Final = 5


class SleepGate(Gate):
    """Holds for its limit, timed with the events that are under test: lower assurance. It cannot be opened,
    and a supervisor sees nothing of it.
    """

    kind: ClassVar[str] = "sleep"
    bound: ClassVar[str] = "itself"
    causal: ClassVar[bool] = False
    block: ClassVar[int] = TIMED

    def prepare(self) -> None:
        """Make the events that time each use; measure cycles a second, once per device.

        The second fastest counts: a host that is held up between its calls makes a use longer and never shorter, and
        one time that is wrong must not make a gate that nobody can open hold for ever.
        """
        module = self.native.module
        if not hasattr(module, "_sleep"):
            raise GateUnsupported(f"{module.__name__} has no _sleep")
        self._before, self._after = module.Event(enable_timing=True), module.Event(enable_timing=True)
        stream = module.Stream()
        self._measure(stream, _FIRST)
        if self.native.cycles is None:
            self.native.cycles = sorted(self._measure(stream, _CYCLES) for _ in range(_MEASURED))[-2]

    def _measure(self, stream: Any, cycles: int) -> float:
        """Cycles a second by timing events."""
        self._sleep(stream, cycles)
        stream.synchronize()
        milliseconds = float(self._before.elapsed_time(self._after))
        if milliseconds <= 0:
            raise GateError(f"{self.native.module.__name__}._sleep({cycles}) took {milliseconds} ms by its events")
        return cycles / milliseconds * 1e3

    def launch(self, stream: Any, ticket: int, limit_s: float) -> None:
        """Record, sleep, record."""
        assert self.native.cycles is not None, "prepare has measured them"
        self._sleep(stream, int(limit_s * self.native.cycles))

    def open(self) -> None:
        """Does nothing: only time ends it."""

    def opened(self) -> bool:
        """False."""
        return False

    def entered(self) -> bool:
        """True once the stream has reached the current use."""
        return self.used and bool(self._before.query())

    def ended(self) -> bool:
        """True if the current use holds no more, or there was none."""
        return not self.used or bool(self._after.query())

    def expired(self) -> bool:
        """True once the current use has ended, which only its limit does."""
        return self.used and self.ended()

    def _sleep(self, stream: Any, cycles: int) -> None:
        with self.native.module.stream(stream):
            self._before.record(stream)
            self.native.module._sleep(cycles)
            self._after.record(stream)
