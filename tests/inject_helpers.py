"""What the tests of `inject` share: stand-in libraries and clients, compiled once, and the command in a process."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers import Done, environment

DOUBLES = Path(__file__).with_name("runtime_double")
BACKEND = DOUBLES / "backend.py"
#: Seconds after which a command counts as hung.
PATIENCE = 120.0
#: Runs of the suite until its "inconclusive" is taken for an answer.
TRIES = 5


def compile_c(target: Path, *arguments: object) -> Path:
    """Compile with the system's compiler."""
    command = ["cc", "-O1", "-pthread", *map(str, arguments), "-o", str(target), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target


def has_compiler() -> bool:
    """Is there a system compiler?"""
    return shutil.which("cc") is not None


@dataclass(frozen=True)
class Doubles:
    """A folder with stand-in libraries, two clients in C, and a cache of its own."""

    folder: Path

    @classmethod
    def make(cls, folder: Path) -> Doubles:
        """Compile all of it."""
        shared = ("-shared", "-fPIC")
        driver, runtime, client = (DOUBLES / name for name in ("driver.c", "runtime.c", "client.c"))
        compile_c(folder / "libcuda.so.1", *shared, "-Wl,-soname,libcuda.so.1", driver)
        linked = compile_c(folder / "libcudart.so.13", *shared, "-DV=cuda", "-Wl,-soname,libcudart.so.13", runtime)
        compile_c(folder / "libamdhip64.so.7", *shared, "-DV=hip", "-DHIP", runtime)
        compile_c(folder / "libmusart.so.5", *shared, "-DV=musa", runtime)
        compile_c(folder / "client", client, linked)
        compile_c(folder / "client-static", "-DV=cuda", client, runtime)
        return cls(folder)

    @property
    def client(self) -> Path:
        """Linked against the shared runtime."""
        return self.folder / "client"

    @property
    def static_client(self) -> Path:
        """With the runtime inside."""
        return self.folder / "client-static"

    def environment(self, **extra: str) -> dict[str, str]:
        """Variables under which programs find the stand-ins."""
        found = environment(DOUBLES, LD_LIBRARY_PATH=str(self.folder), XDG_CACHE_HOME=str(self.folder / "cache"))
        return found | extra

    def inject(self, *arguments: object, **extra: str) -> Done:
        """The command, in a process of its own."""
        command = [sys.executable, "-m", "conformance", "inject", *map(str, arguments)]
        done = subprocess.run(
            command,
            env=self.environment(**extra),
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def suite(self, family: str, probes: tuple[str, ...], *options: object) -> dict[str, Any]:
        """What the suite finds on the stand-in runtime, under `inject` with these options.

        On a busy machine it says that it cannot tell; then it is asked again. Any other answer counts at once.
        """
        for _ in range(TRIES):
            done = self.inject(*options, "--", sys.executable, BACKEND, family, *probes)
            assert (done.code, done.err) == (0, ""), done
            said: dict[str, Any] = json.loads(done.out)
            assert said["misuse"] == 0
            if said["verdict"] != "inconclusive" and "undecided, busy" not in said["outcomes"].values():
                break
        return said


def lines(done: Done) -> dict[str, int]:
    """What a client printed: names and numbers."""
    assert done.code == 0, done
    return {name: int(value) for name, value in (line.split() for line in done.out.splitlines())}
