"""Builds alias.c into the libraries that the row `musa` of the table looks for."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
#: Part -> file name.
LIBRARIES = {"DRIVER": "libmusa.so.1", "RUNTIME": "libmusart.so.5", "COMPILER": "libmtrtc.so.1"}


def compiler() -> str | None:
    """A C compiler, if there is one."""
    return next((name for name in ("cc", "gcc", "clang", "nvcc") if shutil.which(name)), None)


def build(home: Path) -> Path:
    """The libraries in ``home``/lib; returns ``home``, which is what MUSA_HOME is to be."""
    cc = compiler()
    assert cc is not None
    folder = home / "lib"
    folder.mkdir(parents=True, exist_ok=True)
    pic = ["-Xcompiler", "-fPIC"] if cc == "nvcc" else ["-fPIC", "-Wall", "-Werror"]
    for part, name in LIBRARIES.items():
        command = [cc, "-O1", "-shared", *pic, f"-D{part}", "-o", str(folder / name), str(HERE / "alias.c"), "-ldl"]
        subprocess.run(command, check=True, capture_output=True, text=True)
    return home
