"""Moore Threads devices and driver by the vendor's management library, libmtml: no torch, no MUSA context.

Names, signatures and buffer sizes: pymtml.py of MooreThreads/mthreads-ml-py. The library is not shut
down again: the same source says that it cannot be initialized a second time. Nothing here was run on a device.
"""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

LIBRARY: Final = "libmtml.so"
UNKNOWN: Final = "unknown"
#: Every function that is called.
FUNCTIONS: Final = (
    "mtmlLibraryInit",
    "mtmlLibraryInitSystem",
    "mtmlSystemGetDriverVersion",
    "mtmlLibraryInitDeviceByIndex",
    "mtmlDeviceGetName",
)
#: Bytes that the library asks for.
_DRIVER: Final = 80
_NAME: Final = 32


def identify(index: int, environ: Mapping[str, str] = os.environ) -> tuple[str, str]:
    """(device name, driver version); ``unknown`` for what cannot be read."""
    library = _open()
    if library is None:
        return UNKNOWN, UNKNOWN
    handle, system, device = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    if library.mtmlLibraryInit(ctypes.byref(handle)):
        return UNKNOWN, UNKNOWN
    name, driver = ctypes.create_string_buffer(_NAME), ctypes.create_string_buffer(_DRIVER)
    if not library.mtmlLibraryInitSystem(handle, ctypes.byref(system)):
        library.mtmlSystemGetDriverVersion(system, driver, ctypes.c_uint(_DRIVER))
    physical = _physical(index, environ)
    if physical is not None and not library.mtmlLibraryInitDeviceByIndex(
        handle, ctypes.c_uint(physical), ctypes.byref(device)
    ):
        library.mtmlDeviceGetName(device, name, ctypes.c_uint(_NAME))
    return _text(name), _text(driver)


def _open() -> Any:
    """The library if it can be loaded and has every function, else None."""
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError:
        return None
    return library if all(hasattr(library, name) for name in FUNCTIONS) else None


def _physical(index: int, environ: Mapping[str, str]) -> int | None:
    """The device behind the number that torch gives: MUSA_VISIBLE_DEVICES holds integers. None if it names none."""
    chosen = environ.get("MUSA_VISIBLE_DEVICES")
    if chosen is None:
        return index
    entries = [entry.strip() for entry in chosen.split(",")]
    return int(entries[index]) if index < len(entries) and entries[index].isdecimal() else None


def _text(buffer: ctypes.Array[ctypes.c_char]) -> str:
    return buffer.value.decode(errors="replace").strip() or UNKNOWN
