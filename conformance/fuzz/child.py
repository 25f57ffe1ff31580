"""The child's side of a hunt on hardware: opens one device, runs the job, tells what it finds. docs/rules.md 7.

Started by `conformance.fuzz.supervise` as ``python -m conformance.fuzz.child REQUESTS ANSWERS``. The main
thread works; a second one waits for the parent's pipe to close, and then opens the gates and ends the
process. A call that keeps the interpreter lock is ended by an alarm, whose action is the kernel's own.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import signal
import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any, Final, cast

from conformance.errors import SuiteError
from conformance.fuzz.hunt import hunt, recipe_of
from conformance.fuzz.messages import Failed, Ready, Start, start_of
from conformance.loader import CDLL
from conformance.messages import Lines, send
from conformance.runner import open_for_child

if TYPE_CHECKING:
    from collections.abc import Sequence

    import msgspec

    from conformance.backends.api import Backend

#: Seconds between two beats, at least.
BEAT_EVERY: Final = 0.2
#: Seconds between two openings of all gates while the child ends, and how long it may take.
OPEN_AGAIN: Final = 0.02
LEAVING: Final = 2.0
#: prctl: the signal that the kernel sends when the parent has died. Source: prctl(2).
PR_SET_PDEATHSIG: Final = 1


class Child:
    """One hunt in this process, and the parent at the other end of two pipes."""

    def __init__(self, requests: int, answers: int) -> None:
        self._lines, self._answers = Lines(requests), answers
        line = self._lines.next()
        assert line is not None, "without a time limit there is a line or an EOFError"
        self._start: Start = start_of(line)
        self._backend: Backend | None = None
        self._sending = threading.Lock()
        self._ended = threading.Event()
        self._last_beat = 0.0

    def serve(self) -> None:
        """Run the job; does not return."""
        try:
            self._settle_in()
            self._hunt()
        except SuiteError as error:
            self._say(Failed(kind=type(error).__name__, text=str(error)))
        except Exception as error:  # noqa: BLE001 - the process boundary: whatever a vendor raises costs one program
            traceback.print_exc()
            self._say(Failed(kind="unexpected", text=" ".join(f"{type(error).__name__}: {error}".split())))
        self._close()

    def _settle_in(self) -> None:
        start = self._start
        os.chdir(start.folder)
        sys.path += [entry for entry in start.path if entry not in sys.path]
        for stream in (sys.stdout, sys.stderr):
            cast("Any", stream).reconfigure(line_buffering=True)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        if sys.platform == "linux":
            CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    def _hunt(self) -> None:
        start = self._start
        signal.setitimer(signal.ITIMER_REAL, 10 * start.alone)
        backend = self._backend = open_for_child(start.opening, start.factory)
        recipe = recipe_of(start.job, backend)
        info = backend.device()
        self._say(Ready(device=info.name, gate=backend.gate().kind, recipe=recipe, lock=info.lock))
        if self._lines.next() is None:  # the parent holds the device's lock now
            return
        threading.Thread(target=self._listen, name="listener", daemon=True).start()
        mark = ctypes.c_int64.from_buffer(mmap.mmap(start.mark, mmap.PAGESIZE))

        def at(index: int) -> None:
            mark.value = index

        self._beat()
        for message in hunt(start.job, backend, recipe, beat=self._beat, mark=at):
            self._say(message)
            self._alarm()

    def _beat(self) -> None:
        """Show that nothing hangs."""
        now = time.monotonic()
        if now - self._last_beat >= BEAT_EVERY:
            self._last_beat = now
            self._alarm()
            with self._sending, contextlib.suppress(BrokenPipeError):
                os.write(self._answers, b"\n")

    def _alarm(self) -> None:
        """End this process unless this is called again in time. The kernel needs no interpreter for it."""
        signal.setitimer(signal.ITIMER_REAL, self._start.alone)

    def _say(self, message: msgspec.Struct) -> None:
        with self._sending, contextlib.suppress(BrokenPipeError):
            send(self._answers, message)

    def _listen(self) -> None:
        with contextlib.suppress(EOFError, OSError):
            while self._lines.next() is not None:
                pass
        deadline = time.monotonic() + LEAVING
        while time.monotonic() < deadline and not self._ended.wait(OPEN_AGAIN):
            self._open_gates()
        os._exit(0)

    def _open_gates(self) -> None:
        # Optional: `conformance.backends.api.OpensGates`.
        open_all = getattr(self._backend, "open_all_gates", None)
        if open_all is not None:
            open_all()

    def _close(self) -> None:
        """Give the device back and end without the interpreter's own end, where vendors' handlers may hang."""
        try:
            if self._backend is not None:
                self._backend.close()
        except Exception:  # noqa: BLE001 - the process boundary: everything is already told
            traceback.print_exc()
        self._ended.set()
        os._exit(0)


def main(arguments: Sequence[str]) -> None:
    """Serve the parent behind the two pipes; does not return."""
    requests, answers = (int(number) for number in arguments)
    for pipe in (requests, answers):
        os.set_inheritable(pipe, False)  # else a process started here would keep the pipe open
    Child(requests, answers).serve()


if __name__ == "__main__":
    main(sys.argv[1:])
