"""Moore Threads devices and driver by the vendor's management library, libmtml: no torch, no MUSA context.

Names, signatures and buffer sizes: pymtml.py of MooreThreads/mthreads-ml-py. The library is not shut
down again: the same source says that it cannot be initialized a second time. Nothing here was run on a device.
"""

from __future__ import annotations

import ctypes
import os
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final

from conformance.loader import CDLL

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
#: Devices that one machine is asked for.
_MOST: Final = 64


def identify(environ: Mapping[str, str] = os.environ) -> tuple[list[str], str]:
    """(names of the visible devices in torch's order, driver version); ``unknown`` for what cannot be read."""
    library = _open()
    if library is None:
        return [], UNKNOWN
    handle, system = ctypes.c_void_p(), ctypes.c_void_p()
    if library.mtmlLibraryInit(ctypes.byref(handle)):
        return [], UNKNOWN
    driver = ctypes.create_string_buffer(_DRIVER)
    if not library.mtmlLibraryInitSystem(handle, ctypes.byref(system)):
        library.mtmlSystemGetDriverVersion(system, driver, ctypes.c_uint(_DRIVER))
    names: list[str] = []
    for physical in _physical(environ):
        device, name = ctypes.c_void_p(), ctypes.create_string_buffer(_NAME)
        if library.mtmlLibraryInitDeviceByIndex(handle, ctypes.c_uint(physical), ctypes.byref(device)):
            break  # as MUSA does: what follows an entry that names nothing is not visible
        library.mtmlDeviceGetName(device, name, ctypes.c_uint(_NAME))
        names.append(_text(name))
    return names, _text(driver)


def _open() -> Any:
    """The library if it can be loaded and has every function, else None."""
    try:
        library = CDLL(LIBRARY)
    except OSError:
        return None
    return library if all(hasattr(library, name) for name in FUNCTIONS) else None


def _physical(environ: Mapping[str, str]) -> list[int]:
    """The numbers of the devices to ask for: MUSA_VISIBLE_DEVICES holds integers; without it all there may be."""
    chosen = environ.get("MUSA_VISIBLE_DEVICES")
    if chosen is None:
        return list(range(_MOST))
    entries = [entry.strip() for entry in chosen.split(",")]
    return [int(entry) for entry in takewhile(str.isdecimal, entries)]


def _text(buffer: ctypes.Array[ctypes.c_char]) -> str:
    return buffer.value.decode(errors="replace").strip() or UNKNOWN
