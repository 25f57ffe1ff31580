"""How long an engine's ring of output copy streams must be. Standard library only, and no torch.

    from conformance.workaround import in_flight_of, ring_size

    n = in_flight_of(pp_size, async_scheduling, pooling)
    streams = CopyStreamRing(n, new_stream, length=ring_size(n, backend="musa"))

What is not known never switches the workaround off: only `off`, a decision of this machine that says `not-needed`, or
the default of a backend on which nobody has seen the defect, answers 1. See docs/engines.md.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from conformance.answer import answer
from conformance.backends.identity import torch_built_for
from reports.reading import Outcome

LOG: Final = logging.getLogger("conformance.workaround")

#: `off`, `auto` or a number of streams.
VARIABLE: Final = "STREAM_CONFORMANCE_RING"

#: Backends on which no runtime was reported to have the defect; any other is armed until a decision says otherwise.
NOT_ARMED: Final = ("cuda", "rocm")


#: What an answer rests on.
OFF: Final = "off"
SET: Final = "variable"
DECIDED: Final = "decision"
#: A report that does not decide here, or of a ring that does not help, but says late; or one that cannot be read.
KEPT: Final = "kept"
DEFAULT: Final = "default"


class Choice(NamedTuple):
    """The ring's length, what it rests on and why; ``doubt`` where a user should look."""

    size: int
    source: str
    reason: str
    doubt: bool = False


def ring_size(
    in_flight: int,
    *,
    backend: str | None = None,
    report: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] = os.environ,
) -> int:
    """The number of copy streams for ``in_flight`` steps: 1 (not armed) or at least ``in_flight``; logged with why.

    The variable STREAM_CONFORMANCE_RING comes first, then the decision in ``report`` (a run's folder or one of its
    files) or, without it, at `decision_path`, if its fingerprint is this machine's, then the backend's default.
    ``backend`` as None, or as the `cuda` of a torch that is built for another, is told by what is installed.
    Raises ValueError for less than one step in flight.
    """
    choice = choose(in_flight, backend=backend, report=report, environ=environ)
    log(LOG, in_flight, choice)
    return choice.size


def log(to: logging.Logger, in_flight: int, choice: Choice) -> None:
    """One line for one answer: a warning where a user should look."""
    level = logging.WARNING if choice.doubt else logging.INFO
    what = "one copy stream" if choice.size == 1 else f"a ring of {choice.size} copy streams"
    to.log(level, "%s for %d in flight (%s): %s", what, in_flight, choice.source, choice.reason)


def in_flight_of(pp_size: int, async_scheduling: bool, pooling: bool) -> int:
    """How many steps vLLM has in flight: its `max_concurrent_batches`.

    With asynchronous scheduling, which pooling models do not have, one more than there are pipeline stages. (Its first
    model runner has one less from two stages on: a ring may be longer than needed, never shorter.)
    """
    if pp_size < 1:
        raise ValueError(f"a pipeline has at least 1 stage, not {pp_size}")
    return pp_size + 1 if async_scheduling and not pooling else pp_size


def choose(
    in_flight: int,
    *,
    backend: str | None = None,
    report: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Choice:
    """As `ring_size`, with what the answer rests on, and nothing logged."""
    if in_flight < 1:
        raise ValueError(f"at least 1 step is in flight, not {in_flight}")
    word = environ.get(VARIABLE, "").strip().lower()
    if word == "off":
        return Choice(1, OFF, f"{VARIABLE}=off")
    if word not in ("", "auto"):
        return _number(word, in_flight)
    name = told(backend)
    path = report if report is not None else installed(name, environ)
    if path is None:
        if name is None and (there := decisions(environ)):
            return _default(in_flight, None, f"not read, though installed: {', '.join(there)}", doubt=True)
        return _default(in_flight, name, "no decision is installed")
    found = answer(path, in_flight, backend=name, environ=environ)
    if found.outcome is Outcome.NOT_NEEDED:
        if name is None:  # it may be of another device of this machine than the engine's
            return _default(in_flight, None, f"not needed by the report: {found.reason}")
        return Choice(1, DECIDED, found.reason)
    if found.ring is not None:
        reason = f"{found.reason}; {found.warning}" if found.warning else found.reason
        return Choice(max(found.ring, in_flight), DECIDED, reason, doubt=bool(found.warning))
    if found.outcome is Outcome.INEFFECTIVE:
        return Choice(in_flight, KEPT, f"late, and kept though it does not help: {found.reason}", doubt=True)
    if not found.readable:
        return Choice(in_flight, KEPT, f"armed, since nobody knows what the report says: {found.reason}", doubt=True)
    if found.late:
        return Choice(in_flight, KEPT, f"the report says late, and does not decide here: {found.reason}", doubt=True)
    return _default(in_flight, name, f"the report does not decide: {found.reason}")


def told(backend: str | None) -> str | None:
    """The backend by the suite's name, or None where it cannot be told.

    torch's ROCm builds, and torchada over MUSA, call their devices `cuda` too: what is installed says which it is.
    """
    name = None if backend is None else backend.strip().lower()
    if name not in (None, "cuda"):
        return name
    driven = _driven()
    return None if driven is None or len(driven) > 1 else next(iter(driven), name)


def decision_path(backend: str, environ: Mapping[str, str] = os.environ) -> str | None:
    """Where this user's decision for a backend is installed: BACKEND.json in the state folder of the XDG Base
    Directory Specification, $XDG_STATE_HOME/stream-conformance or ~/.local/state/stream-conformance; None without a
    home."""
    folder = _folder(environ)
    return None if folder is None else os.path.join(folder, f"{backend}.json")


def decisions(environ: Mapping[str, str] = os.environ) -> list[str]:
    """The names of this user's installed decisions, of whatever backend."""
    try:
        return sorted(name for name in os.listdir(_folder(environ) or os.devnull) if name.endswith(".json"))
    except (OSError, ValueError):
        return []


def _folder(environ: Mapping[str, str]) -> str | None:
    state = environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):  # the specification: a relative path is ignored
        home = environ.get("HOME", "") or os.path.expanduser("~")
        if not os.path.isabs(home):
            return None
        state = os.path.join(home, ".local", "state")
    return os.path.join(state, "stream-conformance")


def _number(word: str, in_flight: int) -> Choice:
    """What the variable asks for, never a ring that is too short: that can be worse than none."""
    if not re.fullmatch(r"[+-]?[0-9]{1,4}", word):
        reason = f"armed, since {VARIABLE}={word:.40} is neither off nor auto nor a number"
        return Choice(in_flight, SET, reason, doubt=True)
    number = int(word)
    if number < in_flight:
        reason = f"{VARIABLE}={number} is too short and was raised; {VARIABLE}=off switches the ring off"
        return Choice(in_flight, SET, reason, doubt=True)
    return Choice(number, SET, f"{VARIABLE}={number}")


def _default(in_flight: int, name: str | None, why: str, *, doubt: bool = False) -> Choice:
    if name in NOT_ARMED:
        return Choice(1, DEFAULT, f"{why}; the default of {name} is not armed")
    of = "the backend cannot be told" if name is None else f"the default of {name} is armed"
    return Choice(in_flight, DEFAULT, f"{why}; {of}", doubt=doubt)


def installed(name: str | None, environ: Mapping[str, str]) -> str | None:
    """The installed decision's path, if anything is there, readable or not."""
    if name is None or not name.isidentifier() or (path := decision_path(name, environ)) is None:
        return None
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError):
        pass  # there may be one: reading it will say what is wrong
    return path


def _driven() -> frozenset[str] | None:
    """The backends that the installed torch may drive, without importing it; empty without a torch, and None where
    nobody can tell: it cannot be looked for, or its build is for none whose devices it calls `cuda`."""
    try:
        built = torch_built_for()
        musa = importlib.util.find_spec("torch_musa") is not None
    except (ImportError, ValueError):  # a stand-in without a specification
        return None
    kinds = {"musa"} if musa else set()
    if built in NOT_ARMED:
        return frozenset({*kinds, built})
    if built is None or (musa and built == "the CPU"):  # a plugin adds its device to a build for the CPU
        return frozenset(kinds)
    return None  # with such a torch something else must stand behind the name
