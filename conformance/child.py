"""The child's side: opens one device, and runs the cases that its parent names. docs/rules.md 7.

Started by `conformance.supervisor` as ``python -m conformance.child REQUESTS ANSWERS`` with the numbers
of two pipes. The main thread works; a second thread listens, so that gates are opened and the process
ends even while a vendor's call does not return. A call that also keeps the interpreter lock is ended by
an alarm, whose action is the kernel's own.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
import traceback
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final, cast

from conformance.errors import SuiteError
from conformance.loader import CDLL
from conformance.messages import (
    BEAT_EVERY,
    Beat,
    Diagnose,
    Diagnosed,
    Done,
    Drive,
    Driven,
    Failed,
    Hello,
    Lines,
    Measure,
    Measured,
    OpenGates,
    Run,
    Start,
    Stop,
    request_of,
    send,
    start_of,
)
from conformance.trial.state import RunState
from probes.catalogue import all_probes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from conformance.backends.api import Backend, Session, Waiter
    from conformance.backends.api import Request as SessionRequest
    from conformance.pipeline.drive import Driver
    from probes.program import Sync, SyncDevice, SyncStream

#: Seconds between two openings of all gates while the child ends: the program that runs may close another.
OPEN_AGAIN: Final = 0.02
#: prctl: the signal that the kernel sends when the parent has died. Source: prctl(2).
PR_SET_PDEATHSIG: Final = 1


class _Stopped(BaseException):
    """The child is to end: leaves the case without a verdict, through every session's close."""


class _Beating:
    """A backend that tells of each program that begins, and of each gate that is opened."""

    def __init__(self, backend: Backend, beat: Callable[[], None]) -> None:
        self._backend, self._beat = backend, beat
        self.beat = beat  # for what takes long without a program: an experiment's other process opens the device
        self.spent = False  # a session's close said that the device did not become idle

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def session(self, request: SessionRequest) -> Session:
        """A session whose host steps beat. Raises _Stopped once the child is to end."""
        self._beat()
        return cast("Session", _BeatingSession(self._backend.session(request), self._beat, self))


class _BeatingSession:
    """A session that beats between the waits of one program: a pipeline on a slow device takes long."""

    def __init__(self, session: Session, beat: Callable[[], None], backend: _Beating) -> None:
        self._session, self._beat, self._backend = session, beat, backend
        # The same bound methods, so that nothing that is timed takes longer.
        self.issue, self.handles, self.ended = session.issue, session.handles, session.ended
        self.query, self.query_stream, self.read = session.query, session.query_stream, session.read
        self.destroy = session.destroy

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def open(self, gate: str) -> None:
        """Open a gate."""
        self._beat()
        self._session.open(gate)

    def start(self, call: Sync | SyncStream | SyncDevice) -> Waiter:
        """Make a synchronizing call."""
        self._beat()
        return self._session.start(call)

    def close(self) -> bool:
        """Close, and keep in mind whether the device became idle."""
        before, self._backend.spent = self._backend.spent, True  # until it is known better: this may raise
        idle = self._session.close()
        self._backend.spent = before or not idle
        return idle


class Child:
    """One device in this process, and the parent at the other end of two pipes."""

    def __init__(self, requests: int, answers: int) -> None:
        self._lines, self._answers = Lines(requests), answers
        self._sending = threading.Lock()
        self._inbox: SimpleQueue[Run | Measure | Drive | Diagnose | None] = SimpleQueue()
        self._backend: Backend | None = None
        self._driver: Driver | None = None
        self._stopping = threading.Event()
        self._ended = threading.Event()
        self._last_beat = 0.0
        line = self._lines.next()
        assert line is not None, "without a time limit there is a line or an EOFError"
        self._start: Start = start_of(line)

    def serve(self) -> None:
        """Open the device and run cases until the parent says stop or has gone, or something unexpected happens."""
        self._settle_in()
        threading.Thread(target=self._listen, name="child-listener", daemon=True).start()
        try:
            self._open()
            while (request := self._inbox.get()) is not None:
                if isinstance(request, Measure):
                    self._measure(request)
                elif isinstance(request, Drive):
                    self._drive(request)
                elif isinstance(request, Diagnose):
                    self._diagnose(request)
                else:
                    self._run(request)
        except _Stopped:
            pass
        except SuiteError as error:
            self._say(Failed(kind=type(error).__name__, text=str(error)))
        except Exception as error:  # noqa: BLE001 - the process boundary: whatever a vendor raises costs one verdict
            traceback.print_exc()
            text = " ".join(f"{type(error).__name__}: {error}".split())
            self._say(Failed(kind="unexpected", text=text))
        self._close()

    def _settle_in(self) -> None:
        start = self._start
        os.chdir(start.folder)
        sys.path += [entry for entry in start.path if entry not in sys.path]
        # The tail of what is printed is part of the reason if this process dies, so it must not sit in a buffer.
        for stream in (sys.stdout, sys.stderr):
            cast("Any", stream).reconfigure(line_buffering=True)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=self._leave, daemon=True).start())
        if start.die_with_parent and sys.platform == "linux":
            # A second line behind the pipe, which a process forked off by the parent may keep open.
            CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)

    def _open(self) -> None:
        from conformance.header import make_header
        from conformance.runner import marked, open_for_child

        start = self._start
        self._alarm(start.limits.start + 3 * start.limits.gate)
        backend = self._backend = open_for_child(start.opening, start.factory)
        header = marked(make_header(backend, start.depth, restricted=start.restricted), start.factory)
        self._beating = _Beating(backend, self._beat)
        self._probes = all_probes(start.numbers.max_in_flight)
        self._alarm(0.0)
        self._say(Hello(header=header, profile=backend.profile, lock=backend.device()))

    def _run(self, request: Run) -> None:
        from conformance.runner import run_one

        probe = self._probes[request.probe]
        case = next(case for case in probe.cases if case.variant == request.variant)
        state = RunState.from_plain(self._start.numbers, request.state)
        self._beat()
        result = run_one(cast("Backend", self._beating), probe, case, state)
        self._alarm(0.0)
        spent = self._beating.spent or not getattr(self._backend, "usable", True)
        self._say(Done(result=result, state=state.plain(), spent=spent))

    def _measure(self, request: Measure) -> None:
        from conformance.measure import measure_part

        assert self._backend is not None, "opened before the first request"
        self._beat()
        # No beats meanwhile: a part is shorter than the silence that is allowed, and what is timed is not disturbed.
        backend = _Beating(self._backend, self._check)
        measurement = measure_part(cast("Backend", backend), self._start.numbers, request.part)
        self._alarm(0.0)
        spent = backend.spent or not getattr(self._backend, "usable", True)
        self._say(Measured(measurement=measurement, spent=spent))

    def _drive(self, request: Drive) -> None:
        from conformance.pipeline.drive import Driver

        assert self._backend is not None, "opened before the first request"
        if self._driver is None:
            # Not the beating backend: the jobs beat themselves, between steps that are timed.
            self._driver = Driver(self._backend, self._start.numbers, self._beat)
        self._beat()
        parts = self._driver.drive(request.job)
        self._alarm(0.0)
        spent = self._driver.spent or not getattr(self._backend, "usable", True)
        self._say(Driven(parts=parts, spent=spent))

    def _diagnose(self, request: Diagnose) -> None:
        from conformance.diagnosis.sweep import diagnose

        self._beat()
        backend = cast("Backend", self._beating)
        found = diagnose(backend, self._start.numbers, request.point, request.probe, request.variant)
        self._alarm(0.0)
        spent = self._beating.spent or not getattr(self._backend, "usable", True)
        self._say(Diagnosed(diagnosis=found, spent=spent))

    def _check(self) -> None:
        """Raise _Stopped once the child is to end."""
        if self._stopping.is_set():
            raise _Stopped

    def _beat(self) -> None:
        """Show that nothing hangs. Raises _Stopped once the child is to end."""
        self._check()
        now = time.monotonic()
        if now - self._last_beat >= BEAT_EVERY:
            self._last_beat = now
            self._alarm(self._start.limits.alone)
            self._say(Beat())

    def _alarm(self, seconds: float) -> None:
        """End this process unless this is called again in time; 0: no more. The kernel needs no interpreter for it."""
        signal.setitimer(signal.ITIMER_REAL, seconds)

    def _say(self, message: Hello | Beat | Done | Measured | Driven | Diagnosed | Failed) -> None:
        # A parent that has gone is noticed by the listener; there is nobody to say anything to.
        with self._sending, contextlib.suppress(BrokenPipeError):
            send(self._answers, message)

    def _listen(self) -> None:
        try:
            while (line := self._lines.next()) is not None:
                request = request_of(line)
                if isinstance(request, Stop):
                    break
                if isinstance(request, OpenGates):
                    self._open_gates()
                else:
                    self._inbox.put(request)
        except EOFError:
            pass
        except Exception:  # noqa: BLE001 - the process boundary: a listener that died would leave an orphan
            traceback.print_exc()
        self._leave()

    def _leave(self) -> None:
        """Open the gates until the main thread has ended, one gate limit at most; then end the process."""
        self._stopping.set()
        self._inbox.put(None)
        deadline = time.monotonic() + self._start.limits.gate
        while True:
            self._open_gates()
            left = deadline - time.monotonic()
            if left <= 0 or self._ended.wait(min(OPEN_AGAIN, left)):
                os._exit(0)

    def _open_gates(self) -> None:
        # Optional: `conformance.backends.api.OpensGates`. Asked for by name, since a wrapped backend delegates it.
        open_all = getattr(self._backend, "open_all_gates", None)
        if open_all is not None:
            try:
                open_all()
            except Exception:  # noqa: BLE001 - the process boundary: nothing may keep this process from ending
                traceback.print_exc()

    def _close(self) -> None:
        """Give the device back and end without the interpreter's own end, where vendors' handlers may hang."""
        self._alarm(self._start.limits.alone)
        try:
            if self._backend is not None:
                self._backend.close()
        except Exception:  # noqa: BLE001 - the process boundary: every verdict is already told
            traceback.print_exc()
        self._ended.set()
        os._exit(0)


def main(arguments: Sequence[str]) -> None:
    """Serve the parent behind the two pipes; does not return."""
    requests, answers = (int(number) for number in arguments)
    for pipe in (requests, answers):
        os.set_inheritable(pipe, False)  # else a compiler that a vendor starts would keep the pipe open
    Child(requests, answers).serve()


if __name__ == "__main__":
    main(sys.argv[1:])
