"""What every real-time backend shares: the host's clock, blocking calls in helper threads, a watchdog."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

from conformance.loader import CDLL

if TYPE_CHECKING:
    from collections.abc import Callable

#: So many looks only yield the interpreter: what is prompt is seen at once.
EAGER_POLLS: Final = 200
#: Seconds slept after each later look, and after each look once a wait has become long: these leave
#: the processors to the device's own threads, which on a CPU device are all there is.
SHORT_PAUSE: Final = 20e-6
LONG_PAUSE: Final = 50e-6
#: From this many looks on a wait is long.
PATIENT_POLLS: Final = 1000


_LIBC: Final = CDLL(None)


def yield_interpreter() -> None:
    """Let other threads of this process and of the machine run, without sleeping.

    A foreign call gives up the interpreter lock. time.sleep(0) does too, but sleeps: 55 us on a machine with
    the usual timer slack, ten times what a device takes to publish an event. os.sched_yield keeps the lock
    before Python 3.13.
    """
    _LIBC.sched_yield()


class HostClock:
    """The host's monotonic clock."""

    virtual = False

    def now(self) -> float:
        """Seconds since an arbitrary start."""
        return time.perf_counter()

    def pause(self, polls: int) -> None:
        """Yield the interpreter; after `EAGER_POLLS` looks also the processor, for at most `LONG_PAUSE`."""
        if polls < EAGER_POLLS:
            yield_interpreter()
        else:
            time.sleep(SHORT_PAUSE if polls < PATIENT_POLLS else LONG_PAUSE)


class HelperCall:
    """A blocking call that a helper thread makes; a Waiter."""

    __slots__ = ("_error", "_function", "_returned", "cpu", "seconds")

    def __init__(self, function: Callable[[], object]) -> None:
        self._function: Callable[[], object] | None = function
        self._error: BaseException | None = None
        self._returned = False
        self.seconds = self.cpu = 0.0  # of the call, and of the processor time of its thread; known once it returned

    @property
    def returned(self) -> bool:
        """True once the call has returned or raised. Never blocks."""
        return self._returned

    @property
    def error(self) -> BaseException | None:
        """What the call raised, if it has returned that way."""
        return self._error

    def make(self) -> None:
        """Make the call; for the helper only."""
        function, self._function = self._function, None
        assert function is not None, "a helper call is made once"
        began, used = time.perf_counter(), time.thread_time()
        try:
            function()
        except BaseException as error:  # noqa: BLE001 - kept, not swallowed: whoever polls this call reads it
            self._error = error
        finally:
            self.seconds, self.cpu = time.perf_counter() - began, time.thread_time() - used
            # The call's objects go before `returned` is seen, so that a drop afterwards is the last one.
            del function

    def finish(self) -> None:
        """Say that the call has returned; for the helper only."""
        self._returned = True


class HelperPool:
    """Daemon threads that make blocking calls, reused between calls.

    A helper whose call never returns is abandoned: it is not in the list of idle ones, and the next
    call gets another. The interpreter does not wait for it on exit.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._idle: list[SimpleQueue[HelperCall | None]] = []
        self._closed = False
        self._numbers = itertools.count(1)

    def start(self, function: Callable[[], object]) -> HelperCall:
        """Have ``function`` called by a helper now."""
        call = HelperCall(function)
        try:
            inbox = self._idle.pop()
        except IndexError:
            inbox = SimpleQueue()
            name = f"{self._name}-helper-{next(self._numbers)}"
            threading.Thread(target=self._serve, args=(inbox,), name=name, daemon=True).start()
        inbox.put(call)
        return call

    def close(self) -> None:
        """End the idle helpers; a busy one ends with its call."""
        self._closed = True
        while self._idle:
            self._idle.pop().put(None)

    def _serve(self, inbox: SimpleQueue[HelperCall | None]) -> None:
        while (call := inbox.get()) is not None:
            call.make()
            if not self._closed:
                self._idle.append(inbox)  # before `returned` is seen, so that the next call finds this helper
                call.finish()
            else:
                call.finish()
                return
            del call


class Watchdog:
    """One thread that runs each action at its time: the limit of gates that the device does not bound."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._changed = threading.Condition()
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None
        self._closed = False

    def at(self, when: float, action: Callable[[], object]) -> None:
        """Run ``action`` at ``when``, in seconds of `time.perf_counter`; it must not raise.

        An entry is bound to its action's own object and is never cancelled, so an action must know
        whether it is still wanted: names used again cannot confuse it.
        """
        with self._changed:
            if self._closed:
                raise RuntimeError(f"{self._name}: the watchdog is closed, so nothing would end this gate")
            heapq.heappush(self._due, (when, next(self._numbers), action))
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name=f"{self._name}-watchdog", daemon=True)
                self._thread.start()
            elif self._due[0][0] == when:
                self._changed.notify()

    def close(self) -> None:
        """End the thread; actions that are not yet due are dropped."""
        with self._changed:
            self._closed = True
            self._due.clear()
            self._changed.notify()

    def _watch(self) -> None:
        while True:
            with self._changed:
                while not self._closed and (not self._due or self._due[0][0] > time.perf_counter()):
                    self._changed.wait(self._due[0][0] - time.perf_counter() if self._due else None)
                if self._closed:
                    return
                action = heapq.heappop(self._due)[2]
            action()
            del action
