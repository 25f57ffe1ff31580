"""What every gate kind shares: tickets, the states that the host can read, the self-check, the watchdog."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from conformance.backends.calls import yield_interpreter
from conformance.backends.gates.libraries import GateError
from conformance.backends.gates.words import ENDED, ENTERED, EXPIRED, OPEN, TICKET, WORDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from conformance.backends.gates.native import Native
    from conformance.backends.gates.words import Words

#: Seconds after which a gate ends by itself, unless a use asks for another limit.
LIMIT: Final = 2.0
#: The part of its limit after which a gate's end is that of its limit: rates are measured, and not exact.
_NEAR: Final = 0.8
#: Tries of a self-check to see a gate hold, where the host was held up until its limit had ended it.
_HOLDS: Final = 3
#: Seconds that an idle watchdog sleeps; it is woken for anything earlier.
_IDLE: Final = 3600.0


def until(seen: Callable[[], bool], limit_s: float) -> float | None:
    """Seconds until ``seen`` is true, or None after ``limit_s``. Spins, yielding the interpreter lock."""
    start = time.perf_counter()
    while not seen():
        if time.perf_counter() - start > limit_s:
            return None
        yield_interpreter()
    return time.perf_counter() - start


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckTimes:
    """Seconds that a self-check holds a gate, lets its limit be, and waits for what must happen."""

    hold_s: float = 0.02
    limit_s: float = 0.05
    patience_s: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What a gate's self-check found. ``reason`` is empty if all was well."""

    kind: str
    ok: bool
    holds: bool  # while it was closed, an event behind it stayed pending
    release_us: float | None  # from the store that opened it to the event seen; None if that never was
    limit_ms: float
    ended_ms: float  # when its limit ended it
    reusable: bool  # it held and was released once more
    reason: str


class Watchdog:
    """Ends gates that have no limit of their own. It needs the interpreter lock: a supervisor must stand behind it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        # One entry a gate, of its latest use: with one a use, thousands of old entries come due and stall arm().
        self._due: dict[Gate, tuple[float, int]] = {}
        self._wake = 0.0
        self._thread: threading.Thread | None = None
        self._closed = False

    def arm(self, gate: Gate, ticket: int, seconds: float) -> None:
        """End use ``ticket`` of ``gate`` in ``seconds`` unless it was opened; forgets the gate's earlier use."""
        with self._changed:
            if self._closed:
                raise GateError("the watchdog is closed, so nothing would end this gate")
            due = time.monotonic() + seconds
            self._due[gate] = due, ticket
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="gate-watchdog", daemon=True)
                self._thread.start()
            elif due < self._wake:
                self._changed.notify()

    def waiting(self) -> int:
        """Gates with an entry that is not yet due."""
        with self._changed:
            return len(self._due)

    def close(self) -> None:
        """End the thread; what is not yet due is dropped."""
        with self._changed:
            self._closed = True
            self._due.clear()
            self._changed.notify()

    def _watch(self) -> None:
        while True:
            with self._changed:
                gate = min(self._due, key=self._due.__getitem__, default=None)
                now = time.monotonic()
                self._wake = self._due[gate][0] if gate else now + _IDLE
                if self._closed:
                    return
                if gate is None or self._wake > now:
                    self._changed.wait(self._wake - now)
                    continue
                ticket = self._due.pop(gate)[1]
            gate.expire(ticket)  # outside the lock: a gate that is being opened may be waiting to arm


class Gate(ABC):
    """Device work that holds a stream from `enqueue` to `open`, or to its limit at the latest; one use at a time.

    Only this process's main line calls `enqueue`; `open` may come from any thread, and from the supervisor.
    """

    kind: ClassVar[str]
    bound: ClassVar[str] = "device"  # who ends it at its limit: device, supervisor (and watchdog), itself
    causal: ClassVar[bool] = True  # the host can open it
    block: ClassVar[int] = WORDS  # what its block of words is

    def __init__(self, native: Native, words: Words, watchdog: Watchdog, limit_s: float = LIMIT) -> None:
        self.native, self.words, self.limit_s = native, words, limit_s
        self.watchdog = watchdog
        place = words.place(self.block)
        self.base, self.first = words.take(self.block)
        self.ticket = self.first
        self.host, self.device = place.host + 4 * self.base, place.device + 4 * self.base
        self._view = place.view
        self._broken = ""
        # A use begins, is opened and expires under it, so that the watchdog never acts on a later use than
        # its own. Reentrant, for a signal handler that opens.
        self._lock = threading.RLock()
        self.prepare()

    def prepare(self) -> None:  # noqa: B027 - a kind that needs nothing does nothing
        """Compile, load, calibrate and launch once, so that nothing is first-time later."""

    @abstractmethod
    def launch(self, stream: Any, ticket: int, limit_s: float) -> None:
        """Queue the work of one use."""

    def enqueue(self, stream: Any, limit_s: float | None = None) -> int:
        """Close the gate on a torch stream; returns the ticket of this use.

        ``limit_s``: seconds from the moment it begins to hold (from now, if the host bounds it) after
        which it ends by itself; by default `limit_s` of the gate. Raises GateError if its last use has
        not ended, and with the vendor's call and error if queueing fails; then it cannot be used again.
        """
        if self._broken:
            raise GateError(f"the {self.kind} gate cannot be used again: {self._broken}")
        if self.used and not self.ended():
            raise GateError(f"the {self.kind} gate is in use (ticket {self.ticket}); open it and let it end")
        self.native.enter()
        with self._lock:
            self.ticket += 1
            self.begin(self.ticket)
        try:
            self.launch(stream, self.ticket, self.limit_s if limit_s is None else limit_s)
        except BaseException as error:
            self._broken = f"{type(error).__name__}: {error}"
            self.open()  # part of it may be queued
            raise
        return self.ticket

    def begin(self, ticket: int) -> None:
        """Tell the supervisor which use is next."""
        self._view[self.base + TICKET] = ticket

    @property
    def used(self) -> bool:
        """True once it was enqueued."""
        return self.ticket != self.first

    def open(self) -> None:
        """Open the current use by one host store; does nothing more if it is open."""
        with self._lock:
            self._view[self.base + OPEN] = self.ticket

    def opened(self) -> bool:
        """True if the current use was opened, by this process or the supervisor, or expired by the watchdog."""
        return self.used and self._view[self.base + OPEN] == self.ticket

    def entered(self) -> bool:
        """True once the stream has reached the current use."""
        return self.used and self._view[self.base + ENTERED] == self.ticket

    def ended(self) -> bool:
        """True if the current use holds no more, or there was none."""
        return self._view[self.base + ENDED] == self.ticket

    def idle(self) -> bool:
        """True if there is nothing to wait for: the current use has ended, or could not be queued."""
        return bool(self._broken) or self.ended()

    def expired(self) -> bool:
        """True if the current use was ended by its limit."""
        return self.used and self._view[self.base + EXPIRED] == self.ticket

    def closed(self) -> bool:
        """Proof that the stream is held now: entered, and neither opened by anyone nor ended."""
        return self.entered() and not self.opened() and not self.ended()

    def expire(self, ticket: int) -> None:
        """The watchdog's action: marks first, opens then, so that an end by limit is never taken for an opening."""
        with self._lock:
            if self.ticket == ticket and not self.opened() and not self.ended():
                self._view[self.base + EXPIRED] = ticket
                self._view[self.base + OPEN] = ticket

    def selfcheck(self, times: CheckTimes | None = None) -> Check:
        """Hold, open, let the limit end it, use it again: on a stream of its own.

        A second gate of the kind, opened at once, stands behind it and tells by its own words whether the stream
        has come by. No event is asked: a device whose events lie needs gates that work, to be found out.
        What a vendor's call raises, other than GateError, is not caught.
        """
        return _SelfCheck(self, times or CheckTimes()).run()


class _SelfCheck:
    def __init__(self, gate: Gate, times: CheckTimes) -> None:
        self.gate, self.times = gate, times
        self.stream = gate.native.module.Stream()
        self.behind = type(gate)(gate.native, gate.words, gate.watchdog, gate.limit_s)
        self.why: list[str] = []

    def run(self) -> Check:
        gate, times = self.gate, self.times
        holds, again, release_s, ended_s = False, False, None, 0.0
        try:
            self._close(0.001)  # first use: not measured
            gate.open()
            until(self._came_by, times.patience_s)
            holds, release_s = self._hold(), self._release()
            began = time.perf_counter()
            self._close(times.limit_s)
            ended_s = until(self._came_by, times.limit_s + times.patience_s) or 0.0
            # The gate may have begun before the host's call came back: too early is told by the longer of the two.
            whole_s = time.perf_counter() - began
            if not (gate.expired() and _NEAR * times.limit_s <= whole_s and ended_s <= 1.5 * times.limit_s + 0.02):
                how = f"ended it after {ended_s * 1e3:.1f} ms" if gate.expired() else "did not end it"
                self.why.append(f"its limit of {times.limit_s * 1e3:g} ms {how}")
            again = self._hold() and self._release() is not None
        except GateError as error:
            self.why.append(str(error))
        finally:
            gate.open()
            self.behind.open()
        return Check(
            kind=gate.kind,
            ok=not self.why,
            holds=holds,
            release_us=release_s * 1e6 if gate.causal and release_s is not None else None,
            limit_ms=times.limit_s * 1e3,
            ended_ms=ended_s * 1e3,
            reusable=again,
            reason="; ".join(self.why),
        )

    def _close(self, limit_s: float) -> None:
        self.gate.enqueue(self.stream, limit_s)
        self.behind.enqueue(self.stream, LIMIT if self.gate.causal else 0.0)
        self.behind.open()

    def _came_by(self) -> bool:
        """Has the stream gone past the gate?"""
        return self.behind.ended()

    def _hold(self) -> bool:
        gate, times = self.gate, self.times
        limit_s = LIMIT if gate.causal else 3 * times.hold_s
        for tried in range(_HOLDS):
            began = time.perf_counter()
            self._close(limit_s)
            if until(gate.entered, times.patience_s) is None:
                self.why.append("never entered")
                return False
            end, slipped = time.perf_counter() + times.hold_s, False
            while time.perf_counter() < end and not slipped:
                slipped = self._came_by() or not gate.closed()
            if not slipped:
                return True
            # A host that was held up for about the limit came to see the end that the limit made.
            early = time.perf_counter() - began < _NEAR * limit_s
            if early or tried == _HOLDS - 1 or until(self._came_by, limit_s) is None:
                break
        self.why.append("did not hold")
        return False

    def _release(self) -> float | None:
        self.gate.open()
        seconds = until(self._came_by, self.times.patience_s)
        if seconds is None or (self.gate.causal and self.gate.expired()):
            self.why.append("open() did not release it")
        return seconds
