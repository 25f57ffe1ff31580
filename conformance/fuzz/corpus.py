"""Programs that once failed, as texts in a folder: every later run replays them first."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from conformance.errors import UsageError
from conformance.fuzz.recipe import Choice
from probes.notation import ProgramError, digest, parse, print_program

if TYPE_CHECKING:
    from pathlib import Path

    from probes.program import Program

_COMMENT: Final = re.compile(r"#\s*(observe|flags):\s*(\S+)\s*")
_OBSERVE: Final = ("query", "synchronize")
_FLAGS: Final = ("default", "blocking", "timing")


def read_text(text: str) -> tuple[Program, Choice]:
    """A program and how it is observed, from a text with comments. Raises ProgramError."""
    said = {m[1]: m[2] for line in text.splitlines() if (m := _COMMENT.fullmatch(line.strip()))}
    observe, flags = said.get("observe", "query"), said.get("flags", "default")
    for name, value, known in (("observe", observe, _OBSERVE), ("flags", flags, _FLAGS)):
        if value not in known:
            raise ProgramError(1, 1, f"'# {name}: {value}' is none of {', '.join(known)}")
    return parse(text), Choice(observe="synchronize" if observe == "synchronize" else "query", flags=flags)


def write_text(program: Program, choice: Choice, **comments: str) -> str:
    """The text of an entry; further comments stand first."""
    lines = [f"# {name}: {value}" for name, value in comments.items()]
    lines += [f"# observe: {choice.observe}", f"# flags: {choice.flags}", print_program(program)]
    return "\n".join(lines) + "\n"


def load(folder: Path) -> tuple[str, ...]:
    """The texts of a folder, by name. Raises UsageError for one that cannot be read; none if there is no folder."""
    texts = []
    for path in sorted(folder.glob("*.txt")) if folder.is_dir() else ():
        try:
            text = path.read_text(encoding="utf-8")
            read_text(text)
        except (OSError, UnicodeDecodeError, ProgramError) as error:
            raise UsageError(f"--corpus: {path} cannot be read ({error}); mend it or take it out") from error
        texts.append(text)
    return tuple(texts)


def keep(folder: Path, program: Program, choice: Choice, **comments: str) -> Path:
    """Write an entry named by its program; the same program is written once. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{digest(program)[:16]}-{choice.observe}-{choice.flags}.txt"
    path.write_text(write_text(program, choice, **comments), encoding="utf-8")
    return path
