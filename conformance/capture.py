"""What a child prints: a file that is kept short, of which the tail is told when the child dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import tempfile
from typing import Final

#: Bytes from which on a file is emptied: between two looks a child may write more.
KEPT: Final = 1 << 20
#: Bytes at the end in which the last line is looked for.
TAIL: Final = 1 << 12
#: Characters of a line that are told.
LINE: Final = 300


def how_ended(code: int) -> str:
    """How a process ended, by its return code as `subprocess` has it: ``signal 11 (SIGSEGV)``, ``exit code 3``."""
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):  # a real-time signal has no name
        return f"signal {-code} ({signal.Signals(-code).name})"
    return f"signal {-code}"


class Capture:
    """An unnamed temporary file that a child appends to."""

    def __init__(self) -> None:
        self.file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        self._last = ""
        # So that the child goes on at the new end once the file was emptied.
        flags = fcntl.fcntl(self.file, fcntl.F_GETFL)
        fcntl.fcntl(self.file, fcntl.F_SETFL, flags | os.O_APPEND)

    def trim(self) -> None:
        """Empty the file if it has grown long, but for its last line."""
        if os.fstat(self.file.fileno()).st_size > KEPT:
            self._last = self.last_line()
            os.ftruncate(self.file.fileno(), 0)

    def last_line(self) -> str:
        """The last line with anything in it, in one line of at most `LINE` characters; empty if there is none."""
        size = os.fstat(self.file.fileno()).st_size
        tail = os.pread(self.file.fileno(), TAIL, max(0, size - TAIL)).decode(errors="replace")
        lines = [" ".join(line.split()) for line in tail.splitlines()]
        return next((line for line in reversed(lines) if line), self._last)[-LINE:]

    def close(self) -> None:
        """Drop the file."""
        self.file.close()
