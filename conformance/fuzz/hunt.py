"""A hunt: the corpus first, then program after program, until enough were run or something was found."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import asdict
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final, cast

from conformance.errors import DeviceError
from conformance.fuzz import source
from conformance.fuzz.corpus import read_text
from conformance.fuzz.enumerate_programs import enumerated
from conformance.fuzz.generate import program_of
from conformance.fuzz.hunter import Hunter, SimpleScreen
from conformance.fuzz.messages import Caught, Progress
from conformance.fuzz.plan import compile_plan
from conformance.fuzz.pooled import PooledScreen, can_pool
from conformance.fuzz.recipe import SIZES, recipe_for
from conformance.fuzz.shape import canonical
from probes.program import DEFAULT_STREAM, Copy, QueryStream, Record, Wait

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from conformance.backends.api import Backend
    from conformance.backends.torch_device import TorchBackend
    from conformance.fuzz.hunter import Screen
    from conformance.fuzz.messages import Job
    from conformance.fuzz.recipe import Choice, Recipe
    from probes.program import Program

#: Seconds between two words on how far the hunt is.
TELL_EVERY: Final = 0.25
#: Programs that gave no verdict, before the hunt gives up: on such a device each costs a careful run.
UNSTEADY: Final = 200


def open_screen(backend: Backend) -> Screen:
    """The fastest fast path that the backend has."""
    if can_pool(backend):
        return PooledScreen(cast("TorchBackend", backend))
    return SimpleScreen(backend)


def hunt(
    job: Job,
    backend: Backend,
    recipe: Recipe,
    *,
    beat: Callable[[], None] = lambda: None,
    mark: Callable[[int], None] = lambda index: None,
) -> Iterator[Caught | Progress]:
    """Run a job on an open device. ``beat`` is called in long work, ``mark`` before each program.

    The last message is a `Progress` that says so. Raises what the backend raises outside a program.
    """
    screen = open_screen(backend)
    hunter = Hunter(backend, recipe, screen, job.shrink_seconds, beat, set())
    hunter.measure_pace()
    began, told = time.monotonic(), time.monotonic()
    operations: Counter[int] = Counter()
    gates: Counter[int] = Counter()
    position, sets, unsteady = job.first, set[tuple[str, ...]](), 0
    skipped = 0  # programs of the corpus that need what the backend lacks
    by_hand = aside = 0.0  # seconds of a round of the loop by hand, and those spent on it

    def progress(*, ended: bool = False) -> Progress:
        return Progress(
            next=position,
            tally=asdict(screen.tally),
            operations=dict(operations),
            gates=dict(gates),
            seconds=time.monotonic() - began - hunter.careful_seconds - aside,
            by_hand=by_hand,
            skipped=skipped,
            ended=ended,
        )

    for number, text in enumerate(job.texts):
        program, choice = read_text(text)
        program = canonical(program)
        if not possible(program, choice, recipe):
            skipped += 1
            continue
        mark(-1 - number)
        plan = compile_plan(program, choice) if screen.fits(program) else None
        caught = hunter.look(-1 - number, plan, partial(_same, program), choice)
        if caught is not None:
            yield caught
            sets |= {caught.failed} if caught.failed else set()
    by_hand = screen.by_hand()
    entries = _entries(job, recipe)
    ahead = next(entries, None)  # written before the time runs: what writes programs has started then
    began = time.monotonic()
    hunter.careful_seconds = 0.0
    for index, plan, choice, size, at_hand in chain([] if ahead is None else [ahead], entries):
        if len(sets) >= job.stop_after or unsteady >= UNSTEADY:
            break
        mark(index)
        program_again = partial(program_at, job, recipe, index) if at_hand is None else partial(_same, at_hand)
        caught = hunter.look(index, plan, program_again, choice)
        position = index + 1
        operations[size] += 1
        gates[len(plan[4]) if plan is not None else 0] += 1
        if caught is not None:
            yield caught
            if caught.failed:
                sets.add(caught.failed)
            else:
                unsteady += 1
            if not getattr(backend, "usable", True):
                raise DeviceError(f"{backend.name}: the device did not become idle after program {index}")
        if (now := time.monotonic()) - told >= TELL_EVERY:
            told = now
            yield progress()
            if job.seconds is not None and now - began >= job.seconds:
                break
    before = time.monotonic()
    by_hand = min(by_hand, screen.by_hand())
    aside = time.monotonic() - before
    yield progress(ended=True)


def possible(program: Program, choice: Choice, recipe: Recipe) -> bool:
    """Does a program need nothing that the backend lacks?"""
    recorded: set[str] = set()
    if DEFAULT_STREAM in program.streams and not recipe.default_stream:
        return False
    for step in program.steps:
        if isinstance(step, Copy) and step.until is not None and not recipe.slow_copies:
            return False
        if isinstance(step, QueryStream) and not recipe.stream_queries:
            return False
        if isinstance(step, Record):
            recorded.add(step.event)
        elif isinstance(step, Wait) and step.event not in recorded and not recipe.unrecorded:
            return False
    return choice.flags in recipe.flags


def _same(program: Program) -> Program:
    return program


def _entries(job: Job, recipe: Recipe) -> Iterator[source.Entry]:
    if job.exhaustive:
        entries = source.every(job.exhaustive, recipe.unrecorded)
        return (entry for entry in entries if job.first <= entry[0] < job.last)
    if job.workers:
        return source.ahead(recipe, job.first, job.last, job.workers)
    return source.here(recipe, job.first, job.last)


def program_at(job: Job, recipe: Recipe, index: int) -> Program:
    """The program of an index again: a plan does not carry it."""
    if job.exhaustive:
        return next(p for n, p in enumerate(enumerated(job.exhaustive, unrecorded=recipe.unrecorded)) if n == index)
    return program_of(recipe, index)[0]


def recipe_of(job: Job, backend: Backend) -> Recipe:
    """What the job's programs may contain on this backend."""
    return recipe_for(backend, job.seed, SIZES[job.size])
