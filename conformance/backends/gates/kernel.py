"""The kernel gate: our own one-thread kernel, compiled at run time and launched through the vendor's driver."""

from __future__ import annotations

import ctypes
import time
from importlib.resources import files
from typing import TYPE_CHECKING, Any, ClassVar, Final

from conformance.backends.calls import yield_interpreter
from conformance.backends.gates.base import Gate, until
from conformance.backends.gates.libraries import GateError
from conformance.backends.gates.words import ENDED, OPEN, POLLS, TICKET

if TYPE_CHECKING:
    from collections.abc import Callable

#: Polls a second assumed while calibrating: far below what was measured (770,000 on an H200), so that the
#: gates used for it end early rather than late.
_GUESSED_POLLS: Final = 1e5
#: The poll bound stands behind the timer: so many times the polls that the limit takes, and some.
_POLL_SLACK: Final = 8
_POLL_FLOOR: Final = 1000
#: Seconds that a calibrating gate holds, and that one must have ended in.
_CALIBRATION: Final = 0.02
_PATIENCE: Final = 2.0
#: The part of the time since before the launch for which the gate must be seen closed. A launch that blocks
#: leaves it near 0, and a limit computed from that would be endless.
_SEEN_CLOSED: Final = 0.7
#: A part that needs no better one, and the tries for it: the host may be interrupted between launch and
#: first look. A limit too short by a fifth would cost this kind its self-check, so below the third number the
#: tries go on: a host that is busy has quiet moments too.
_WELL_SEEN: Final = 0.95
_TRIES: Final = 12
_SEEN_ENOUGH: Final = 0.85
_MOST_TRIES: Final = 60


def kernel_source(timer: str) -> str:
    """The text for the run-time compiler: the vendor's NOW, then probes/kernels/gate.c."""
    text = (files("probes") / "kernels" / "gate.c").read_text(encoding="utf-8")
    return f"{timer}\n{text}"


def _limits(limit_s: float, hertz: float, polls_per_s: float) -> tuple[int, int]:
    """(ticks, polls) that end a use after ``limit_s``; without ``hertz`` the timer stands still."""
    if hertz:
        return int(limit_s * hertz), int(limit_s * polls_per_s * _POLL_SLACK) + _POLL_FLOOR
    return 2**63, int(limit_s * polls_per_s)


class KernelGate(Gate):
    """One thread polls OPEN; the device's timer ends it, and a poll count should the timer stand still."""

    kind: ClassVar[str] = "kernel"

    def prepare(self) -> None:
        """Compile and load once per device; measure timer and polls once per device."""
        self._function = self.native.kernel("gate", kernel_source(self.native.vendor.timer))
        # Kept and filled again for each launch: the driver copies them before the call returns.
        self._ticket, self._limit, self._polls = ctypes.c_uint(), ctypes.c_ulonglong(), ctypes.c_ulonglong()
        self._arguments = ctypes.c_void_p(self.device), self._ticket, self._limit, self._polls
        self._parameters = (ctypes.c_void_p * 4)(*map(ctypes.addressof, self._arguments))
        if self.native.rates is None:
            self.native.rates = self._calibrate()

    def launch(self, stream: Any, ticket: int, limit_s: float) -> None:
        """Launch one block of one thread."""
        hertz, polls_per_s = self.native.rates or (self.native.vendor.hertz, _GUESSED_POLLS)
        self._ticket.value = ticket
        self._limit.value, self._polls.value = _limits(limit_s, hertz, polls_per_s)
        handle = ctypes.c_void_p(self.native.handle(stream))
        self.native.call("launch", self._function, 1, 1, 1, 1, 1, 1, 0, handle, self._parameters, None)

    def prepared(self, stream: Any, limit_s: float, *, opened: bool = False) -> Callable[[], None]:
        """`enqueue` on this stream with this limit as one call that converts nothing any more.

        ``opened``: each use is opened before it is queued, so that it holds nothing: `ended` then says that all
        that was queued on the stream before it is done. The call raises GateError as `enqueue` does.
        """
        function, name = self.native.function("launch")
        hertz, polls_per_s = self.native.rates or (self.native.vendor.hertz, _GUESSED_POLLS)
        limit, polls = _limits(limit_s, hertz, polls_per_s)
        one, none = ctypes.c_uint(1), ctypes.c_uint(0)
        handle = ctypes.c_void_p(self.native.handle(stream))
        arguments = (self._function, one, one, one, one, one, one, none, handle, self._parameters, None)
        view, lock, word = self._view, self._lock, self._ticket
        ticket_at, ended_at, open_at = self.base + TICKET, self.base + ENDED, self.base + OPEN

        def close() -> None:
            if self._broken or (self.ticket != self.first and view[ended_at] != self.ticket):
                raise GateError(f"the {self.kind} gate cannot be used: {self._broken or 'it is in use'}")
            with lock:
                ticket = self.ticket = self.ticket + 1
                view[ticket_at] = ticket
                if opened:
                    view[open_at] = ticket
            word.value, self._limit.value, self._polls.value = ticket, limit, polls
            if code := function(*arguments):
                self._broken = f"{name} returned {code} ({self.native.error_name(code)})"
                self.open()  # part of it may be queued
                raise GateError(self._broken)

        return close

    def report(self) -> tuple[int, int]:
        """(looks at OPEN, ticks of the timer) of the last use that ended."""
        polls, ticks = (ctypes.c_uint64 * 2).from_address(self.host + 4 * POLLS)
        return polls, ticks

    def _seen_closed(self, limit_s: float) -> tuple[float, bool]:
        """Seconds to the last look that found this use still closed, and whether it ended.

        A host that is held up sees the end late: the time until it does is no measure of the gate.
        """
        start = last = now = time.perf_counter()
        while not self.ended():
            last = now  # taken before the look
            if last - start > limit_s:
                return last - start, False
            yield_interpreter()
            now = time.perf_counter()
        return last - start, True

    def _calibrate(self) -> tuple[float, float]:
        """(ticks, polls) a second by the host's clock, rounded towards shorter limits; 0 ticks for a timer
        that stands still.
        """
        stream = self.native.module.Stream()
        best, rates = 0.0, (0.0, 0.0)
        try:
            self.enqueue(stream, 0.0)  # first launch: not measured
            until(self.ended, _PATIENCE)
            for tried in range(_MOST_TRIES):
                if tried >= _TRIES and best > _SEEN_ENOUGH:
                    break
                start = time.perf_counter()
                self.enqueue(stream, _CALIBRATION)
                until(self.entered, _PATIENCE)
                closed, ended = self._seen_closed(_PATIENCE)
                whole = time.perf_counter() - start
                if not ended:
                    raise GateError(f"the kernel gate does not end ({_CALIBRATION} s asked for, {whole:.3g} s waited)")
                polls, ticks = self.report()
                if closed / whole > best:
                    best, rates = closed / whole, (ticks / whole if ticks > polls else 0.0, polls / whole)
                if best > _WELL_SEEN:
                    break
        finally:
            self.open()
        if best <= _SEEN_CLOSED:
            raise GateError(
                f"the kernel gate was seen closed for {best:.1%} of its time: its launch returns only after its end"
            )
        return rates
