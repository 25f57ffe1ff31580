"""One child process of `conformance.supervisor`: its pipes, what it prints, how long it is waited for, how it ends.

Nothing here knows what is asked of the child, or starts another in its place. docs/rules.md 7.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

import conformance
from conformance.capture import Capture, how_ended
from conformance.messages import (
    Answer,
    Beat,
    Diagnosed,
    Done,
    Driven,
    Failed,
    Hello,
    Lines,
    Measured,
    OpenGates,
    Start,
    Stop,
    answer_of,
    send,
)

if TYPE_CHECKING:
    from conformance.shared import Words

#: Seconds between two looks at what the child has printed, while it is waited for.
TRIM_EVERY: Final = 0.25
#: Seconds that a killed child is waited for: one inside its driver may not die at once, or ever.
DYING: Final = 10.0


class Lost(Exception):
    """The child gave no answer; the text is why."""


class Process:
    """One child process."""

    def __init__(self, start: Start, words: Words | None) -> None:
        self.limits, self._words = start.limits, words
        self._writing, self._closed = threading.Lock(), False
        self._output, self._errors = Capture(), Capture()
        requests, self._requests = os.pipe()
        self._answers, answers = os.pipe()
        self._lines = Lines(self._answers)
        try:
            self._popen = subprocess.Popen(
                # By name in the folder that this package is in, so that the child is of the same suite.
                [sys.executable, "-m", "conformance.child", str(requests), str(answers)],
                cwd=Path(conformance.__file__).parents[1],
                stdin=subprocess.DEVNULL,
                stdout=self._output.file,
                stderr=self._errors.file,
                pass_fds=[requests, answers, *([words.fd] if words is not None else [])],
                start_new_session=True,
            )
        except OSError as error:
            self._close_files()
            raise Lost(f"crash: {error}") from None
        except BaseException:
            self._close_files()
            raise
        finally:
            os.close(requests)
            os.close(answers)
        self.tell(start)

    def tell(self, message: msgspec.Struct) -> None:
        """Send a message; a child that has gone is found out by who waits for its answer."""
        with self._writing, contextlib.suppress(BrokenPipeError):
            if not self._closed:
                send(self._requests, message)

    def interrupt(self) -> None:
        """From any thread: open the gates, and have the child end after that."""
        if self._words is not None:
            self._words.open_all()
        self.tell(Stop())

    def answer(self, silence: float) -> Hello | Done | Measured | Driven | Diagnosed | Failed:
        """The next answer that is no beat. Raises Lost for a child that hangs or has ended."""
        while isinstance(message := self._message(silence), Beat):
            pass
        return message

    def _message(self, silence: float) -> Answer:
        message = self._within(silence)
        if message is None:
            # It may only be a gate that nobody opens: open all, in memory and by word, and wait for one to end.
            self.tell(OpenGates())
            message = self._within(self.limits.gate, opening=True)
        if message is None:
            raise Lost(f"hang: no answer for {silence + self.limits.gate:g} s")
        return message

    def _within(self, seconds: float, *, opening: bool = False) -> Answer | None:
        deadline = time.monotonic() + seconds
        while True:
            if opening and self._words is not None:
                self._words.open_all()
            self._output.trim()
            self._errors.trim()
            left = max(0.0, deadline - time.monotonic())
            try:
                line = self._lines.next(min(left, TRIM_EVERY))
            except EOFError:
                raise Lost(f"crash: {self._how_it_ended()}") from None
            if line is not None:
                try:
                    return answer_of(line)
                except msgspec.DecodeError as error:
                    raise Lost(f"crash: an answer that is none ({error})") from None
            if not left:
                return None

    def _how_it_ended(self) -> str:
        """In words. The child is not reaped yet, so that its group's number stays its own."""
        said = self._errors.last_line() or self._output.last_line()
        tail = f"; {said}" if said else ""
        status = self._wait(self.limits.gate)
        if status is None:
            return f"it closed its pipe and goes on{tail}"
        code = status.si_status if status.si_code == os.CLD_EXITED else -status.si_status
        return f"{how_ended(code)}{tail}"

    def _wait(self, seconds: float) -> Any:
        """How the child ended, without reaping it; None if it has not in time."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                status = os.waitid(os.P_PID, self._popen.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
            except ChildProcessError:
                return None  # reaped by someone else
            if status is not None or time.monotonic() >= deadline:
                return status
            time.sleep(0.005)

    def end(self, *, politely: bool) -> None:
        """End the child and everything it started. Politely: it opens its gates first, one gate limit at most."""
        try:
            if self._words is not None:
                self._words.open_all()
            if politely:
                self.tell(Stop())
                self._wait(self.limits.gate)
        finally:
            # Even if a second Ctrl-C came meanwhile. Nobody has reaped the leader, so the group is still ours.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._popen.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._popen.wait(DYING)
            self._close_files()

    def _close_files(self) -> None:
        with self._writing:
            self._closed = True
            os.close(self._requests)
        os.close(self._answers)
        self._output.close()
        self._errors.close()
        if self._words is not None:
            self._words.close()
