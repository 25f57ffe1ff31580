"""Where a hunt's programs come from: written here, ahead in other processes, or enumerated.

Worker w of n writes batches w, w + n, ... and its pipe bounds how far it runs ahead; reading the pipes in
turn gives the programs in the order of their indices, whatever the workers' pace.
"""

from __future__ import annotations

import marshal
import multiprocessing
from typing import TYPE_CHECKING, Final

from conformance.fuzz.enumerate_programs import enumerated
from conformance.fuzz.generate import program_of
from conformance.fuzz.plan import compile_plan
from conformance.fuzz.recipe import Choice
from conformance.fuzz.shape import size_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection

    from conformance.fuzz.plan import Plan
    from conformance.fuzz.recipe import Recipe
    from probes.program import Program

#: Programs that travel between processes at once.
BATCH: Final = 64

#: (index, plan, choice, device operations, the program where it is at hand)
Entry = tuple[int, "Plan | None", Choice, int, "Program | None"]


def here(recipe: Recipe, first: int, last: int) -> Iterator[Entry]:
    """The programs of these indices, written in this process."""
    for index in range(first, last):
        yield _entry(recipe, index)


def every(size: int, unrecorded: bool) -> Iterator[Entry]:
    """Every program of up to ``size`` operations, in a fixed order."""
    for index, program in enumerate(enumerated(size, unrecorded=unrecorded)):
        yield index, compile_plan(program, Choice()), Choice(), size_of(program), program


def ahead(recipe: Recipe, first: int, last: int, workers: int) -> Iterator[Entry]:
    """The programs of these indices, written by ``workers`` processes."""
    context = multiprocessing.get_context("spawn")
    pipes: list[Connection] = []
    processes = []
    try:
        for worker in range(workers):
            mine, theirs = context.Pipe(duplex=False)
            process = context.Process(
                target=_write, args=(theirs, recipe, first + worker * BATCH, last, workers * BATCH), daemon=True
            )
            process.start()
            theirs.close()
            pipes.append(mine)
            processes.append(process)
        turn = 0
        for _ in range(first, last, BATCH):
            for index, observe, flags, operations, plan in marshal.loads(pipes[turn].recv_bytes()):
                yield index, plan, Choice(observe=observe, flags=flags), operations, None
            turn = (turn + 1) % workers
    finally:
        for pipe in pipes:
            pipe.close()
        for process in processes:
            process.terminate()
            process.join()


def _entry(recipe: Recipe, index: int) -> Entry:
    program, choice = program_of(recipe, index)
    return index, compile_plan(program, choice), choice, size_of(program), program


def _write(pipe: Connection, recipe: Recipe, first: int, last: int, stride: int) -> None:
    try:
        for start in range(first, last, stride):
            batch = []
            for index in range(start, min(start + BATCH, last)):
                _, plan, choice, operations, _ = _entry(recipe, index)
                batch.append((index, choice.observe, choice.flags, operations, plan))
            pipe.send_bytes(marshal.dumps(batch))
    except (BrokenPipeError, KeyboardInterrupt):
        pass  # the reader has enough
