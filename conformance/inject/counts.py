"""Reads what the preload library counted in each process, and says why a program was not reached.

The layout is that of conformance/native/counts.c.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_MAGIC: Final = b"SCCOUNT1"
_HEAD: Final = struct.Struct("<8sq48s")
_ENTRY: Final = struct.Struct("<40sQ")
#: Effects that are no effect of a fault on the program.
_ASIDE: Final = frozenset({"waits_on_pending", "captured_calls", "failed_calls", "holds_not_made"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process that loaded the library."""

    pid: int
    command: str
    calls: dict[str, int]  # of the client, by function
    effects: dict[str, int]  # what the library did, by kind; those that are not zero
    loaded: frozenset[str]  # vendor libraries at its end
    ended: bool  # in order, so that `loaded` is known

    def plain(self) -> dict[str, object]:
        """For the log."""
        return {"pid": self.pid, "command": self.command, "calls": self.calls, "effects": self.effects}


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """All processes of a command."""

    processes: tuple[Process, ...]
    calls: dict[str, int] = field(default_factory=dict)
    effects: dict[str, int] = field(default_factory=dict)

    @property
    def reached(self) -> bool:
        """Was any event or stream call made through the library? A look-up of a function is none."""
        return any(not name.startswith("cuGetProcAddress") for name in self.calls)

    def idle_note(self) -> str:
        """What to say of a fault that changed nothing in a program that was reached; empty if it did something."""
        if self.effects.keys() - _ASIDE:
            return ""
        if count := self.effects.get("holds_not_made"):
            return f"had no effect: {count} holds could not be made (no stream memory operation, or it was refused)"
        return "had no effect: the program made no call in which it would show"

    def why_not(self, level: str) -> tuple[str, bool]:
        """Why no call came through, and whether a runtime was there to be reached at all."""
        if not self.processes:
            return "it never loaded the library: a statically linked or privileged program cannot be preloaded", False
        loaded = frozenset[str]().union(*(process.loaded for process in self.processes))
        runtimes = sorted(name for name in loaded if name != "libcuda.so")
        driver = "libcuda.so" in loaded
        if level == "runtime" and driver and not runtimes:
            return "it uses the driver API or a runtime that is linked statically; use --level driver", False
        if runtimes or (level != "runtime" and any(process.calls for process in self.processes)):
            return f"it loaded {', '.join(runtimes) or 'the driver'} and made no event or stream call", True
        if not all(process.ended for process in self.processes):
            return "it made no event or stream call, and was killed, so what it had loaded is not known", False
        return "none of its processes loaded libcudart, libamdhip64, libmusart or libcuda", False


def read(folder: Path) -> Counted:
    """What the processes counted in this folder; one that wrote no whole page is left out."""
    processes = tuple(sorted(filter(None, map(_process, folder.iterdir())), key=lambda process: process.pid))
    calls: dict[str, int] = {}
    effects: dict[str, int] = {}
    for process in processes:
        for total, part in ((calls, process.calls), (effects, process.effects)):
            for name, count in part.items():
                total[name] = total.get(name, 0) + count
    return Counted(processes=processes, calls=calls, effects=effects)


def _process(path: Path) -> Process | None:
    data = path.read_bytes()
    if len(data) < _HEAD.size or not data.startswith(_MAGIC):
        return None
    _, pid, command = _HEAD.unpack_from(data)
    end = _HEAD.size + (len(data) - _HEAD.size) // _ENTRY.size * _ENTRY.size
    entries = {_text(name): count for name, count in _ENTRY.iter_unpack(data[_HEAD.size : end])}
    effects = {name[7:]: count for name, count in entries.items() if name.startswith("effect ") and count}
    loaded = frozenset(name[7:] for name, count in entries.items() if name.startswith("loaded ") and count)
    calls = {name: count for name, count in entries.items() if " " not in name and name not in ("", "ended") and count}
    return Process(
        pid=pid,
        command=_text(command),
        calls=calls,
        effects=effects,
        loaded=loaded,
        ended=bool(entries.get("ended")),
    )


def _text(raw: bytes) -> str:
    return raw.split(b"\0", 1)[0].decode(errors="replace")
