"""Compiles the preload library on demand, once for each content, compiler and driver."""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import Final, Literal

from platformdirs import user_cache_path

from conformance.errors import UsageError
from conformance.loader import CDLL

Level = Literal["runtime", "driver", "both"]

#: The sources of every level, and of each.
COMMON: Final = ("counts.c", "lookup.c", "state.c", "holds.c", "faults.c")
BY_LEVEL: Final[dict[Level, tuple[str, ...]]] = {
    "runtime": ("runtime.c",),
    "driver": ("driver.c",),
    "both": ("runtime.c", "driver.c"),
}
#: -O2 is needed: the last call of our dlsym must become a jump.
FLAGS: Final = ("-std=gnu11", "-O2", "-shared", "-fPIC", "-pthread", "-fvisibility=hidden", "-Wl,-Bsymbolic")
#: The driver's soname, which the second level's library takes.
SONAME: Final = "libcuda.so.1"
#: Seconds that a compiler may take.
PATIENCE: Final = 120.0
#: Characters that the loader takes for the end of a name in LD_PRELOAD.
_ENDS: Final = (" ", ":", "\t", "\n")


def library(level: Level) -> Path:
    """The preload library for a level: from the user's cache, or compiled into it.

    Raises UsageError if there is no compiler or driver, if the compiler fails, or if no folder can be written.
    """
    command = _compiler()
    driver = "" if level == "runtime" else real_driver()
    source = files("conformance") / "native"
    names = (*COMMON, *BY_LEVEL[level])
    digest = hashlib.sha256()
    for part in (*command, *FLAGS, level, driver, platform.machine(), *platform.libc_ver()):
        digest.update(part.encode() + b"\0")
    for name in ("inject.h", *names):
        digest.update((source / name).read_bytes())
    folder = user_cache_path("stream-conformance")
    target = folder / f"inject-{level}-{digest.hexdigest()[:16]}.so"
    if any(end in str(target) for end in _ENDS):
        raise UsageError(f"'{folder}': LD_PRELOAD takes no space and no colon; set XDG_CACHE_HOME to another folder")
    if target.is_file():
        return target
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="inject-", dir=folder) as work:
            here = Path(work)
            for name in ("inject.h", *names):
                (here / name).write_bytes((source / name).read_bytes())
            _compile(command, here, names, level, driver)
            os.replace(here / "made.so", target)  # whoever else compiles it makes the same
    except OSError as error:
        raise UsageError(
            f"{folder}: the library cannot be kept: {error}; set XDG_CACHE_HOME to another folder"
        ) from None
    return target


def _compiler() -> list[str]:
    named = os.environ.get("CC", "")
    try:
        command = shlex.split(named)
    except ValueError:
        command = [named]
    if not command:
        command = [next((name for name in ("cc", "gcc", "clang") if shutil.which(name)), "cc")]
    if shutil.which(command[0]) is None:
        raise UsageError(f"no C compiler: '{command[0]}' was not found; install gcc or clang, or name one in CC")
    return command


def _compile(command: list[str], here: Path, names: tuple[str, ...], level: Level, driver: str) -> None:
    levels = [f"-D{part}" for part, on in (("RUNTIME", level != "driver"), ("DRIVER", level != "runtime")) if on]
    behind: list[str] = []
    if driver:
        # Its soname is ours, so a dependency of that name would be met by ourselves: an empty library with the
        # real one's path as soname makes the linker write down the path.
        (here / "empty.c").write_text("", encoding="utf-8")
        _run([*command, "-shared", f"-Wl,-soname,{driver}", "-o", "real.so", "empty.c"], here)
        behind = [f"-Wl,-soname,{SONAME}", "-Wl,--no-as-needed", "./real.so"]
    _run([*command, *FLAGS, *levels, "-o", "made.so", *names, *behind, "-ldl"], here)


def _run(command: list[str], here: Path) -> None:
    try:
        done = subprocess.run(
            command, cwd=here, capture_output=True, text=True, timeout=PATIENCE, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"the C compiler '{command[0]}' cannot be used: {error}; name another one in CC") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        said = next((line for line in lines if "error" in line.lower()), lines[-1] if lines else "no word")
        raise UsageError(f"the C compiler '{command[0]}' failed: {said[:300]}; name another one in CC")


def real_driver() -> str:
    """The path of the driver's library that the loader finds. Raises UsageError if there is none."""
    try:
        CDLL(SONAME)
    except OSError as error:
        raise UsageError(f"no {SONAME} to link behind the second level ({error}); use --level runtime") from None
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        paths = [line.split(None, 5)[5].rstrip("\n") for line in maps if "/libcuda.so" in line]
    return os.path.realpath(paths[0])
