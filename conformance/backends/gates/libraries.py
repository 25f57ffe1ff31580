"""Finding a vendor's shared library, and saying every place that was tried when there is none."""

from __future__ import annotations

import ctypes
import ctypes.util
import fnmatch
import glob
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from conformance.errors import DeviceError
from conformance.loader import CDLL

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class GateError(DeviceError):
    """A gate, or a call that it needs, failed; the text is the call and its error."""


class GateUnsupported(GateError):
    """A gate kind, library or function that cannot exist here; the text says what was tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """A loaded library, with where it was found and by which step of the search."""

    handle: ctypes.CDLL
    path: str
    how: str


def find_library(
    patterns: Sequence[str],
    needs: Sequence[str],
    *,
    folders: Sequence[str] = (),
    roots: Sequence[str] = (),
    bases: Sequence[str] = (),
    prefer: str = "",
) -> Library:
    """The first library of a matching name that exports one of ``needs``.

    Looked at in this order: what the process has loaded already (torch's own choice, hence first),
    wheels (``folders`` below ``bases`` and then below the entries of sys.path), toolkits (``roots``, those
    whose variables are set), the loader. Within a step, names that end in ``prefer`` go first.

    Raises GateUnsupported, listing every place tried.
    """
    sites = dict.fromkeys([*bases, *(entry or "." for entry in sys.path)])
    wheels = [os.path.join(site, folder) for site in sites for folder in folders]
    tools = [root for root in map(os.path.expandvars, roots) if "$" not in root]
    steps: list[tuple[str, Callable[[str], list[str]], list[str]]] = [
        ("already loaded", _loaded, []),
        ("wheels", lambda pattern: _below(wheels, pattern), wheels),
        ("toolkit", lambda pattern: _below(tools, pattern), tools),
        ("loader", _by_loader, []),
    ]
    tried: list[str] = []
    for how, where, places in steps:
        found = dict.fromkeys(path for pattern in patterns for path in where(pattern))
        for path in sorted(found, key=lambda path: not path.endswith(prefer)):
            try:
                handle = CDLL(path)
            except OSError as error:
                tried.append(f"{how}: {error}")
                continue
            if any(hasattr(handle, name) for name in needs):
                return Library(handle=handle, path=path, how=how)
            tried.append(f"{how}: {path} has no {' or '.join(needs)}")
        if not found:
            tried.append(f"{how}: nothing" + (f" in {', '.join(places)}" if places else ""))
    raise GateUnsupported(f"no {' or '.join(patterns)} could be used. Tried {'; '.join(tried)}")


def _loaded(pattern: str) -> list[str]:
    """Paths of the shared objects in this process whose names match.

    The map has real file names: libcuda.so.580.159, never libcuda.so.1.
    """
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        paths = {line.split(None, 5)[5].rstrip("\n") for line in maps if "/" in line}
    return sorted(path for path in paths if fnmatch.fnmatch(os.path.basename(path), pattern))


def _below(places: Sequence[str], pattern: str) -> list[str]:
    return [path for place in places for path in sorted(glob.glob(os.path.join(place, pattern)))]


def _by_loader(pattern: str) -> list[str]:
    """Names for dlopen: what the loader's cache has, and the plain name."""
    stem = pattern.split(".so", maxsplit=1)[0]
    plain = pattern if "*" not in pattern else f"{stem}.so"
    return [name for name in (ctypes.util.find_library(stem.removeprefix("lib")), plain) if name]
