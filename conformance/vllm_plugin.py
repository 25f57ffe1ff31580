"""The ring in an unpatched vLLM: a general plugin, which vLLM loads in each of its processes. Imports no torch.

vLLM's second model runner makes one output copy stream and reads the attribute that holds it once per output, in its
sampling and in its pooling call. The plugin puts a descriptor in the attribute's place, whose reads go round a ring.
It acts if STREAM_CONFORMANCE_RING is set, or if the installed decision of this machine says enable, never from a
default; and whatever goes wrong, the engine keeps the one stream that it made. See docs/engines.md.
"""

from __future__ import annotations

import dis
import importlib
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partialmethod
from types import CodeType, FunctionType
from typing import Any, Final

from conformance import workaround
from conformance.ring import CopyStreamRing
from conformance.workaround import VARIABLE, Choice
from reports import reading

#: Below vLLM's own logger, which is the one that it prints.
LOG: Final = logging.getLogger("vllm.stream_conformance")

MODULE: Final = "vllm.v1.worker.gpu.model_runner"
RUNNER: Final = "GPUModelRunner"
ATTRIBUTE: Final = "output_copy_stream"
#: What a runner that was patched to rotate keeps its streams in.
ROTATES: Final = "_output_copy_streams"
#: Calls that read the attribute, each once per output: sampling and pooling.
READERS: Final = 2

#: Where the functions are that a method is made of.
_INSIDE: Final[tuple[tuple[type, tuple[str, ...]], ...]] = (
    (FunctionType, ("__code__",)),
    (staticmethod, ("__func__",)),
    (classmethod, ("__func__",)),
    (property, ("fget", "fset", "fdel")),
    (cached_property, ("func",)),
    (partialmethod, ("func",)),
)
#: Where a runner keeps what its next read calls.
_NEXT: Final = "_stream_conformance_next"


def register() -> None:
    """vLLM's entry point; never raises, and without a reason to act imports nothing of vLLM."""
    try:
        if why := _idle(os.environ):
            LOG.debug("not used: %s", why)
            return
        runner = getattr(importlib.import_module(MODULE), RUNNER)
        if why := install(runner):
            LOG.warning("%s.%s is left alone: %s", MODULE, RUNNER, why)
    except Exception as error:  # noqa: BLE001 - it must never cost an engine its start
        LOG.warning("left alone, since this went wrong: %s: %s", type(error).__name__, error)


def install(runner: type) -> str:
    """Make a runner class's copy stream rotate; why not, where its shape is not the known one."""
    why = strange(runner)
    if not why:
        setattr(runner, ATTRIBUTE, RotatingStream(runner))
    return why


def acts(choice: Choice, environ: Mapping[str, str]) -> bool:
    """Does an answer make the plugin rotate? What was set does, and a decision that says enable; of what `auto` finds
    also a report that keeps the ring armed; a default never."""
    if choice.size == 1:
        return False
    return choice.source in (workaround.SET, workaround.DECIDED) or (
        choice.source == workaround.KEPT and bool(environ.get(VARIABLE, "").strip())
    )


def strange(runner: type) -> str:
    """In what a runner class is not of the known shape, or an empty text."""
    if runner.__dictoffset__ == 0:
        return "its instances have no attributes of their own"
    if any(ATTRIBUTE in vars(base) for base in runner.__mro__):
        return f"{ATTRIBUTE} is an attribute of the class already"
    reads, writes, names = _uses(runner.__mro__)
    if ROTATES in names:
        return f"it rotates already ({ROTATES})"
    if writes != Counter({"__init__": 1}):
        return f"{ATTRIBUTE} is set by {_listed(writes)}, not once by __init__"
    if len(reads) != READERS or set(reads.values()) != {1} or "__init__" in reads:
        return f"{ATTRIBUTE} is read by {_listed(reads)}, not once by each of {READERS} methods"
    return ""


class RotatingStream:
    """Stands in for the attribute: each read gives the next stream of a ring that begins with the runner's own."""

    def __init__(self, runner: type) -> None:
        self._runner = runner

    def __get__(self, runner: Any, owner: type | None = None) -> Any:
        if runner is None:
            return self
        kept = vars(runner)
        if ATTRIBUTE not in kept:
            raise AttributeError(f"'{type(runner).__name__}' object has no attribute '{ATTRIBUTE}'")
        if (following := kept.get(_NEXT)) is None:
            following = kept[_NEXT] = self._begin(runner, kept[ATTRIBUTE])
        return following()

    def __set__(self, runner: Any, stream: Any) -> None:
        vars(runner)[ATTRIBUTE] = stream
        vars(runner).pop(_NEXT, None)

    def __delete__(self, runner: Any) -> None:
        if vars(runner).pop(ATTRIBUTE, None) is None:
            raise AttributeError(ATTRIBUTE)
        vars(runner).pop(_NEXT, None)

    def _begin(self, runner: Any, own: Any) -> Callable[[], Any]:
        """What gives this runner its streams, decided at its first read: by then it is whole."""
        try:
            return self._ring(runner, own) or (lambda: own)
        except Exception as error:  # noqa: BLE001 - the engine goes on with the stream that it made
            LOG.warning("one copy stream is kept, since this went wrong: %s: %s", type(error).__name__, error)
            return lambda: own

    def _ring(self, runner: Any, own: Any) -> Callable[[], Any] | None:
        if why := self._derived(type(runner)) or ("it rotates already" if ROTATES in vars(runner) else ""):
            LOG.warning("%s keeps its one copy stream: %s", type(runner).__name__, why)
            return None
        in_flight = runner.vllm_config.max_concurrent_batches
        choice = workaround.choose(in_flight)
        if not acts(choice, os.environ):
            choice = Choice(1, choice.source, f"no ring from this plugin: {choice.reason}", doubt=choice.size > 1)
            workaround.log(LOG, in_flight, choice)
            return None
        streams = _from_own(own)
        main = [stream] if (stream := vars(runner).get("main_stream")) is not None else []
        ring = CopyStreamRing(in_flight, lambda: next(streams), length=choice.size, avoid=main)
        workaround.log(LOG, in_flight, choice)
        return ring.next

    def _derived(self, kind: type) -> str:
        """In what a class derived from the known one differs, or an empty text."""
        own = kind.__mro__[: kind.__mro__.index(self._runner)]
        reads, writes, names = _uses(own)
        if ROTATES in names:
            return f"it rotates already ({ROTATES})"
        return f"{ATTRIBUTE} is also used by {_listed(reads + writes)}" if reads or writes else ""


def _idle(environ: Mapping[str, str]) -> str:
    """Why there is nothing to do, without asking the device: which steps are in flight is not known yet."""
    if word := environ.get(VARIABLE, "").strip().lower():
        return f"{VARIABLE}=off" if word == "off" else ""
    if (backend := workaround.told(None)) is None:
        return _untold(environ)
    path = workaround.installed(backend, environ)
    if path is None:
        return f"{VARIABLE} is not set and no decision is installed"
    try:
        found = reading.find(path)
    except reading.ReportError as error:
        LOG.warning("no ring from this plugin, since nobody knows what the installed decision says: %s", error)
        return "the installed decision cannot be read"
    enabled = any(depth.outcome is reading.Outcome.ENABLE for depth in found.depths.values())
    return "" if enabled else "the installed decision does not say enable"


def _untold(environ: Mapping[str, str]) -> str:
    """Why no decision was read where the backend cannot be told; said aloud where there is one to be read."""
    why = f"{VARIABLE} is not set and the backend cannot be told from the installed torch"
    if there := workaround.decisions(environ):
        LOG.warning(
            "no ring from this plugin: %s, so no installed decision is read (%s); set %s to a number",
            why,
            ", ".join(there),
            VARIABLE,
        )
    return why


def _from_own(own: Any) -> Iterator[Any]:
    """The runner's own stream, then new ones of its kind on its device."""
    yield own
    while True:
        yield type(own)(device=own.device)


def _listed(uses: Counter[str]) -> str:
    return ", ".join(sorted(uses)) or "nothing"


def _uses(classes: tuple[type, ...]) -> tuple[Counter[str], Counter[str], set[str]]:
    """Reads and writes of the attribute by method, and all names used. A name in a text counts as a read and a write:
    nobody knows what is done by it."""
    reads: Counter[str] = Counter()
    writes: Counter[str] = Counter()
    names: set[str] = set()
    for kind in classes:
        for method, value in vars(kind).items():
            for code in _codes(value):
                names.update(code.co_names, (c for c in code.co_consts if isinstance(c, str)))
                if ATTRIBUTE in code.co_consts:
                    reads[method] += 1
                    writes[method] += 1
                for step in dis.get_instructions(code):
                    if step.argval == ATTRIBUTE and step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                        reads[method] += 1
                    elif step.argval == ATTRIBUTE and step.opname in ("STORE_ATTR", "DELETE_ATTR"):
                        writes[method] += 1
    return reads, writes, names


def _codes(value: Any) -> Iterator[CodeType]:
    """The code of a method: of what a decorator wraps, of a property's functions, and of functions within."""
    todo, seen = [value], set()
    while todo:
        part = todo.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, CodeType):
            yield part
            todo += [constant for constant in part.co_consts if isinstance(constant, CodeType)]
        else:
            todo += [getattr(part, name) for kind, inner in _INSIDE if isinstance(part, kind) for name in inner]
            todo += [vars(part)["__wrapped__"]] if "__wrapped__" in getattr(part, "__dict__", ()) else []
