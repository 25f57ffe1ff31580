"""Backends that misbehave on request, for `test_child`: factories for `conformance.runner.TEST_CHILD`.

They wrap the backend that was asked for. A query misbehaves once the file `armed` is in the folder that
`FOLDER` names, and takes the file away; each child writes its process number to `pids` there.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conformance.backends.registry import Opening, open_as
from conformance.errors import BackendUnavailable, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from conformance.backends.api import Request

FOLDER = "STREAM_CONFORMANCE_TEST_FOLDER"
#: What `loud` prints before it goes on, and what its last line is.
MEGABYTES = 8
LAST_LINE = "the vendor's last words"


def folder() -> Path:
    """Where test and child meet."""
    return Path(os.environ[FOLDER])


def _deadlock(library: Any) -> None:
    """Never returns, whatever signal is handled; with ctypes.PyDLL it keeps the interpreter lock as well."""
    mutex = ctypes.create_string_buffer(256)
    while True:
        library.pthread_mutex_lock(mutex)


def _print(line: str, times: int = 1) -> None:
    for number in (1, 2):
        os.write(number, f"{line}\n".encode() * times)


def _loud(_: Misbehaving) -> None:
    for _round in range(MEGABYTES):
        _print("x" * 1023, 1024)
    print("by Python", flush=True)  # noqa: T201 - as a vendor does
    print(LAST_LINE, file=sys.stderr)  # noqa: T201 - the same


def _json(_: Misbehaving) -> None:
    for line in ('{"type":"result","result":{},"state":{}}', '{"type":"error","kind":"HarnessError","text":"no"}', "{"):
        _print(line)


def _last_words(_: Misbehaving) -> None:
    _print(LAST_LINE)
    os.kill(os.getpid(), signal.SIGKILL)


def _raise(_: Misbehaving) -> None:
    raise ValueError("nobody expects\nthis")


def _until_word(backend: Misbehaving) -> None:
    assert backend.opening.words is not None
    memory = mmap.mmap(backend.opening.words, mmap.PAGESIZE)
    while not memory[0]:
        time.sleep(0.001)


def _until_opened(backend: Misbehaving) -> None:
    backend.opened.wait()


def _busy(backend: Misbehaving) -> None:
    backend.busy = True


class Misbehaving:
    """A backend whose queries do something first, once `armed`."""

    def __init__(self, opening: Opening, act: Callable[[Misbehaving], object]) -> None:
        self.inner: Any = open_as(opening)
        self.opening, self.act, self.opened = opening, act, threading.Event()
        self.busy = False  # from now on no session leaves the device idle

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def open_all_gates(self) -> None:
        """Tell a query that waits for it; and that it was called."""
        (folder() / "opened").touch()
        self.opened.set()

    def session(self, request: Request) -> _Session:
        """A session whose queries misbehave."""
        return _Session(self.inner.session(request), self)


class _Session:
    def __init__(self, inner: Any, backend: Misbehaving) -> None:
        self.inner, self.backend = inner, backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def query(self, event: str) -> bool:
        """Misbehave if that is asked for, else answer."""
        try:
            (folder() / "armed").unlink()
        except FileNotFoundError:
            return bool(self.inner.query(event))
        (folder() / "acting").touch()
        self.backend.act(self.backend)
        return bool(self.inner.query(event))

    def close(self) -> bool:
        """Close; say that the device is busy if it is."""
        return bool(self.inner.close()) and not self.backend.busy


def _factory(act: Callable[[Misbehaving], object]) -> Callable[[Opening], Misbehaving]:
    def made(opening: Opening) -> Misbehaving:
        _here()
        return Misbehaving(opening, act)

    return made


def _here() -> int:
    """Write this process down; returns the number of children before it."""
    with (folder() / "pids").open("a+") as file:
        file.write(f"{os.getpid()}\n")
        file.flush()
        file.seek(0)
        return len(file.readlines()) - 1


good = _factory(lambda _: None)
hang = _factory(lambda _: _deadlock(ctypes.CDLL(None)))
hang_locked = _factory(lambda _: _deadlock(ctypes.PyDLL(None)))
killed = _factory(lambda _: os.kill(os.getpid(), signal.SIGKILL))
segfault = _factory(lambda _: ctypes.string_at(0))
gone = _factory(lambda _: os._exit(7))
leaves = _factory(lambda _: sys.exit(7))
last_words = _factory(_last_words)
raises = _factory(_raise)
loud = _factory(_loud)
json_lines = _factory(_json)
busy = _factory(_busy)
until_word = _factory(_until_word)
until_opened = _factory(_until_opened)


def open_raises(_: Opening) -> Misbehaving:
    """Cannot be opened, for no reason of ours."""
    _here()
    raise RuntimeError("no driver today")


def open_exits(_: Opening) -> Misbehaving:
    """Takes the process with it."""
    _here()
    print(LAST_LINE, file=sys.stderr)  # noqa: T201 - the same
    os._exit(9)


def open_hangs(_: Opening) -> Misbehaving:
    """Never opens."""
    _here()
    _deadlock(ctypes.PyDLL(None))
    raise AssertionError


def expects_too_much(opening: Opening) -> Misbehaving:
    """Opens only where nothing is made ready beforehand."""
    return good(opening) if not opening.expects else open_exits(opening)


def open_unavailable(_: Opening) -> Misbehaving:
    """Is not here, and says so."""
    _here()
    raise BackendUnavailable("cuda: no device; plug one in")


def open_usage(_: Opening) -> Misbehaving:
    """Was asked for something that cannot be."""
    _here()
    raise UsageError("--gate x: no such gate")


def once(opening: Opening) -> Misbehaving:
    """Opens the first time only, and dies when it is armed."""
    if _here():
        raise BackendUnavailable("the device has fallen off the bus")
    return Misbehaving(opening, lambda _: os._exit(7))
