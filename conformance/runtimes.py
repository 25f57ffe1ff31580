"""Which runtime a vendor's torch is likely to load here, told by its files: for a fingerprint. Standard library only.

No package has to say what a toolkit's version is, and the names of its libraries may stay the same over versions. So a
library outside the wheels is told by its name and the checksum of what is in it; one inside a wheel goes by that
wheel's version, which is a part of its own. Source: docs/rules.md 4, "fingerprint".
"""

from __future__ import annotations

import fnmatch
import glob
import os
import sys
import zlib
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

UNKNOWN: Final = "unknown"

#: Where the loader looks by itself; Debian's folders carry the machine's name.
SYSTEM: Final = ("/usr/local/lib", "/usr/lib64", "/usr/lib", "/usr/lib/*-linux-gnu")


class Files(NamedTuple):
    """The libraries of one vendor's runtime, and where they lie. The folders are those of backends/vendors.py."""

    names: tuple[str, ...]
    wheels: tuple[str, ...]  # below an entry of sys.path
    roots: tuple[str, ...]  # of toolkits; skipped where a variable in them is not set


#: By backend. What lies below HIP is where its streams are, so it counts too; MUSA's has the driver's version.
RUNTIMES: Final[Mapping[str, Files]] = {
    "cuda": Files(
        ("libcudart.so*", "libcudart-*.so*"),
        ("nvidia/*/lib", "torch/lib"),
        ("$CUDA_HOME/lib64", "$CUDA_PATH/lib64", "/usr/local/cuda/lib64"),
    ),
    "rocm": Files(
        ("libamdhip64.so*", "libhsa-runtime64.so*"),
        ("torch/lib", "_rocm_sdk_*/lib"),
        ("$ROCM_PATH/lib", "$HIP_PATH/lib", "/opt/rocm/lib"),
    ),
    "musa": Files(
        ("libmusart.so*",),
        ("torch_musa/lib", "torch/lib"),
        ("$MUSA_HOME/lib", "$MUSA_PATH/lib", "/usr/local/musa/lib"),
    ),
}


def runtime(
    backend: str,
    environ: Mapping[str, str] = os.environ,
    path: list[str] | None = None,
    system: Iterable[str] = SYSTEM,
) -> str:
    """Every library of this backend's runtime that its torch could load; ``unknown`` where there is none, or one that
    cannot be read.

    Which of several is loaded is the loader's choice, so each counts: a change of any is another machine.
    """
    files = RUNTIMES[backend]
    wheels = [
        os.path.join(entry or ".", below) for entry in (sys.path if path is None else path) for below in files.wheels
    ]
    toolkits = [root for root in (_filled(root, environ) for root in files.roots) if root]
    loader = [entry for entry in environ.get("LD_LIBRARY_PATH", "").replace(";", ":").split(":") if entry]
    packed = {os.path.realpath(found) for found in _within(wheels, files.names)}
    loose = {os.path.realpath(found) for found in _within([*loader, *toolkits, *system], files.names)} - packed
    try:
        told = {f"{os.path.basename(file)} {_checksum(file)}" for file in loose}
    except OSError:
        return UNKNOWN
    told |= {f"{os.path.basename(file)} of a wheel" for file in packed}
    return ", ".join(sorted(told)) or UNKNOWN


def _filled(root: str, environ: Mapping[str, str]) -> str:
    """A toolkit's folder with its variable's value; empty where that is not set."""
    if not root.startswith("$"):
        return root
    name, _, below = root[1:].partition("/")
    value = environ.get(name, "")
    return os.path.join(value, below) if value else ""


def _within(places: Iterable[str], names: tuple[str, ...]) -> set[str]:
    """The files of these names in these folders, links among them."""
    found: set[str] = set()
    for place in places:
        for folder in glob.glob(place) if "*" in place else [place]:
            try:
                listed = os.listdir(folder)
            except OSError:
                continue
            found.update(os.path.join(folder, file) for name in names for file in fnmatch.filter(listed, name))
    return found


def _checksum(file: str) -> str:
    """CRC-32 of what is in a file: tells a replaced one apart, and guards against nobody."""
    crc = 0
    with open(file, "rb") as opened:
        while part := opened.read(1 << 20):
            crc = zlib.crc32(part, crc)
    return f"{crc:08x}"
