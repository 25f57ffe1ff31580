"""Runs a command under the preload library, and writes down what the library did."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from conformance.errors import UsageError
from conformance.inject import ASKED, COUNTS, NO_FAULT
from conformance.inject.build import Level, library
from conformance.inject.counts import Counted, read

#: Passed on to the command; those that a terminal sends to the whole group are not.
FORWARDED: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
FROM_TERMINAL: Final = (signal.SIGINT, signal.SIGQUIT)
#: What a shell adds to the number of the signal that ended a command.
KILLED: Final = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a command ended, and what was counted in its processes."""

    code: int  # its exit code; 128 and the signal's number if one ended it
    counted: Counted


def check_command(command: Sequence[str]) -> None:
    """Raise UsageError for a command that is not there."""
    if shutil.which(command[0]) is None:
        raise UsageError(f"command '{command[0]}' was not found, or may not be run; name a program after --")


class Log:
    """The file that says what was done; there from the beginning, marked as not complete."""

    def __init__(self, path: Path, faults: Sequence[str], level: Level, command: Sequence[str]) -> None:
        """Raises UsageError if it cannot be written."""
        self._path = path
        self._head = {"faults": list(faults), "level": level, "command": list(command)}
        try:
            self._write({"complete": False})
        except OSError as error:
            raise UsageError(f"--log {path}: {error.strerror or error}; name a file that can be written") from None

    def finish(self, ended: Ended, note: str) -> None:
        """Write all that was counted. Raises OSError."""
        counted = ended.counted
        active = [process.plain() for process in counted.processes if process.calls]
        self._write(
            {
                "complete": True,
                "exit_code": ended.code,
                "reached": counted.reached,
                "note": note,
                "calls": counted.calls,
                "effects": counted.effects,
                "processes": active,
                "processes_without_calls": len(counted.processes) - len(active),
            }
        )

    def _write(self, more: Mapping[str, object]) -> None:
        text = json.dumps({"schema_version": 1, **self._head, **more}, indent=1) + "\n"
        handle, name = tempfile.mkstemp(prefix=f".{self._path.name}.", dir=self._path.parent)
        try:
            with open(handle, "w", encoding="utf-8") as file:
                file.write(text)
            os.chmod(name, 0o644)
            os.replace(name, self._path)
        except BaseException:
            os.unlink(name)
            raise


def launch(command: Sequence[str], faults: Sequence[str], level: Level) -> Ended:
    """Run the command under the library. Raises UsageError if the library or the command cannot be started."""
    preload = str(library(level))
    with tempfile.TemporaryDirectory(prefix="stream-conformance-inject-") as folder:
        environ = dict(os.environ)
        environ["LD_PRELOAD"] = " ".join(filter(None, (preload, environ.get("LD_PRELOAD"))))
        environ[ASKED], environ[COUNTS] = ",".join(faults) or NO_FAULT, folder
        try:
            process = subprocess.Popen(list(command), env=environ)
        except OSError as error:
            raise UsageError(
                f"command '{command[0]}' cannot be run: {error.strerror}; name a program after --"
            ) from None
        with _forwarding(process):
            code = process.wait()
        return Ended(code=code if code >= 0 else KILLED - code, counted=read(Path(folder)))


@contextmanager
def _forwarding(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Meanwhile signals are the command's affair: handlers, since what is ignored would be ignored by it too."""
    before = {number: signal.signal(number, lambda *_: None) for number in FROM_TERMINAL}
    before |= {number: signal.signal(number, lambda got, _: process.send_signal(got)) for number in FORWARDED}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
