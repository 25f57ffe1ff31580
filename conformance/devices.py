"""One lock per physical device, so that two processes never probe it at the same time."""

from __future__ import annotations

import re
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from filelock import FileLock, Timeout
from platformdirs import user_cache_path

from probes.across import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from conformance.backends.api import DeviceInfo
    from probes.probe import Case


#: Seconds between two tries for a lock that is held, by who is next to get it and by who waits to be that.
POLL: Final = 0.001
LONG_POLL: Final = 0.02


class DeviceLocks:
    """The locks of a device and, for what spans two, of its second one; none for what cannot be disturbed.

    Nothing is held while a lock is waited for that is not held yet, and two are taken in the order of their
    names: so processes that have each other's device as their second one never wait for each other for ever.
    """

    def __init__(self, device: DeviceInfo) -> None:
        self._device, self._held = device, list[str]()
        self._stack = ExitStack()

    def hold(self, *, both: bool = False) -> None:
        """Wait until these are held, and no others. Keeps what is held already if it is the same and nobody waits."""
        names = {self._device.lock, self._device.second if both else None} - {None}
        wanted = sorted(name for name in names if name is not None)
        if wanted == self._held and not any(map(waited_for, wanted)):
            return
        self.release()
        for name in wanted:
            self._stack.enter_context(lock_named(name))
        self._held = wanted

    def release(self) -> None:
        """Hold nothing any more."""
        self._held = []
        self._stack.close()


@contextmanager
def lock_named(name: str | None) -> Iterator[None]:
    """Hold the lock of this name (`DeviceInfo.lock`); nothing for None.

    Whoever waits for it holds the place next to it meanwhile, or waits for that: a process that gives a lock back and
    takes it again at once, as one does case by case, lets somebody else in first.
    """
    if name is None:
        yield
        return
    lock = FileLock(_file(name), thread_local=False)
    with FileLock(_next(name), thread_local=False).acquire(poll_interval=LONG_POLL):
        lock.acquire(poll_interval=POLL)
    try:
        yield
    finally:
        lock.release()


def waited_for(name: str) -> bool:
    """Does somebody wait for the lock of this name?"""
    try:
        FileLock(_next(name)).acquire(timeout=0).lock.release()
    except Timeout:
        return True
    return False


def _file(name: str) -> Path:
    folder = user_cache_path("stream-conformance", ensure_exists=True)
    return folder / (re.sub(r"[^A-Za-z0-9.-]+", "_", name) + ".lock")


def _next(name: str) -> Path:
    return _file(f"{name}.next")


def spans_two(case: Case) -> bool:
    """Does a case use a second device where there is one?"""
    return SECOND in case.needs


@contextmanager
def device_lock(device: DeviceInfo, *, both: bool = False) -> Iterator[None]:
    """Hold a device's lock, and its second one's with ``both``."""
    locks = DeviceLocks(device)
    try:
        locks.hold(both=both)
        yield
    finally:
        locks.release()
