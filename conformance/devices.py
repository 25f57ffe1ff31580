"""One lock per physical device, so that two processes never probe it at the same time."""

from __future__ import annotations

import contextlib
import re
from contextlib import AbstractContextManager

from filelock import FileLock
from platformdirs import user_cache_path

from conformance.backends.api import DeviceInfo


def device_lock(device: DeviceInfo) -> AbstractContextManager[object]:
    """The lock of a device, to be held while a case runs; nothing for a device that cannot be disturbed."""
    return lock_named(device.lock)


def lock_named(name: str | None) -> AbstractContextManager[object]:
    """The lock of this name (`DeviceInfo.lock`); nothing for None."""
    if name is None:
        return contextlib.nullcontext()
    folder = user_cache_path("stream-conformance", ensure_exists=True)
    return FileLock(folder / (re.sub(r"[^A-Za-z0-9.-]+", "_", name) + ".lock"))
