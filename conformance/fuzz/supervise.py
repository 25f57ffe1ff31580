"""Runs a job: the simulated and CPU devices in this process, hardware in a child that is replaced when it hangs.

A hang or a crash costs the program that ran then, which is reported with its text: the child names
each program in shared memory before it runs it. docs/rules.md 7.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import struct
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

import conformance
from conformance.backends.registry import HARDWARE, Opening, open_as
from conformance.capture import Capture, how_ended
from conformance.devices import lock_named
from conformance.errors import BackendUnavailable, HarnessError, SuiteError, UsageError
from conformance.fuzz.corpus import read_text
from conformance.fuzz.hunt import hunt, program_at, recipe_of
from conformance.fuzz.messages import Caught, Failed, Job, Progress, Ready, Start, answer_of
from conformance.messages import Lines, send
from conformance.runner import TEST_CHILD
from conformance.shared import SharedGates
from probes.notation import print_program

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conformance.fuzz.recipe import Recipe

#: Seconds without a word after which a child is taken to hang; a careful run of one program beats in between.
SILENCE: Final = 30.0
#: Seconds until a child has opened its device: importing torch and compiling kernels are in it.
OPENING: Final = 120.0
#: Seconds given for gates to end once they were all opened in the child's stead.
OPENED: Final = 4.0
#: Children in a row that are lost at once before no further one is tried.
STARTS: Final = 3
#: The mark of a child that runs no program.
NO_MARK: Final = -(1 << 62)
#: What a child may refuse by these names is the user's to mend.
REFUSALS: Final[dict[str, type[SuiteError]]] = {"UsageError": UsageError, "BackendUnavailable": BackendUnavailable}


@dataclass(frozen=True, slots=True, kw_only=True)
class LostProgram:
    """A program during which a child hung or crashed."""

    index: int
    reason: str
    text: str


def run_job(job: Job, opening: Opening) -> Iterator[Ready | Caught | Progress | LostProgram]:
    """Run a job to its end. Raises what opening the device raises, and HarnessError if no child can be kept."""
    hook = os.environ.get(TEST_CHILD, "")
    if opening.name in HARDWARE or hook:
        yield from _in_children(job, opening, hook if ":" in hook else "")
        return
    backend = open_as(opening)
    try:
        recipe = recipe_of(job, backend)
        yield Ready(device=backend.device().name, gate=backend.gate().kind, recipe=recipe)
        yield from hunt(job, backend, recipe)
    finally:
        backend.close()


def _in_children(job: Job, opening: Opening, factory: str) -> Iterator[Ready | Caught | Progress | LostProgram]:
    began, lost, found = time.monotonic(), 0, set[tuple[str, ...]]()
    while True:
        left = None if job.seconds is None else job.seconds - (time.monotonic() - began)
        child = _Child(msgspec.structs.replace(job, seconds=left), opening, factory)
        reached, recipe = job.first, None
        try:
            with contextlib.ExitStack() as stack:
                for message in child.answers():
                    if isinstance(message, Ready):
                        recipe = message.recipe
                        stack.enter_context(lock_named(message.lock))
                        child.go()
                    elif isinstance(message, Caught) and message.failed:
                        found.add(message.failed)
                    elif isinstance(message, Progress):
                        reached = message.next
                    yield message
                    if isinstance(message, Progress) and message.ended:
                        return
        except _Lost as error:
            lost += 1
            mark = child.marked()
            if recipe is None or mark == NO_MARK or lost > STARTS:
                raise HarnessError(f"{opening.name}: {error}; see what the device is doing") from None
            yield LostProgram(index=mark, reason=str(error), text=_text_of(job, recipe, mark))
            # A program of the corpus is left out by itself, one of the recipe with all before it.
            texts = () if mark >= 0 else job.texts[-mark:]
            more = max(1, job.stop_after - len(found))
            job = msgspec.structs.replace(job, texts=texts, first=max(reached, mark + 1), stop_after=more)
            found.clear()
        finally:
            child.end()


def _text_of(job: Job, recipe: Recipe, mark: int) -> str:
    if mark < 0:
        return print_program(read_text(job.texts[-1 - mark])[0])
    return print_program(program_at(job, recipe, mark))


class _Lost(Exception):
    """The child gave no answer; the text is why."""


class _Child:
    """One child process with its gate words and its mark."""

    def __init__(self, job: Job, opening: Opening, factory: str) -> None:
        self._words = SharedGates() if opening.name in HARDWARE else None
        self._mark_fd = os.memfd_create("stream-conformance-mark", os.MFD_CLOEXEC)
        os.ftruncate(self._mark_fd, mmap.PAGESIZE)
        self._mark = mmap.mmap(self._mark_fd, mmap.PAGESIZE)
        self._mark[:8] = struct.pack("q", NO_MARK)
        self._output, self._errors = Capture(), Capture()
        requests, self._requests = os.pipe()
        self._answers, answers = os.pipe()
        self._lines = Lines(self._answers)
        passed = [requests, answers, self._mark_fd]
        if self._words is not None:
            passed.append(self._words.fd)
            opening = replace(opening, words=self._words.fd)
        try:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", "conformance.fuzz.child", str(requests), str(answers)],
                cwd=Path(conformance.__file__).parents[1],
                stdin=subprocess.DEVNULL,
                stdout=self._output.file,
                stderr=self._errors.file,
                pass_fds=passed,
                start_new_session=True,
            )
        except OSError as error:
            self._close_files()
            raise HarnessError(f"no child can be started: {error}; free memory or processes") from error
        finally:
            os.close(requests)
            os.close(answers)
        start = Start(
            job=job,
            opening=opening,
            path=tuple(sys.path),
            folder=str(Path.cwd()),
            factory=factory,
            mark=self._mark_fd,
            alone=SILENCE + 3 * OPENED,
        )
        with contextlib.suppress(BrokenPipeError):
            send(self._requests, start)

    def go(self) -> None:
        """The lock is held: the child may begin."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._requests, b"{}\n")

    def marked(self) -> int:
        """The program that it ran last."""
        return int(struct.unpack("q", self._mark[:8])[0])

    def answers(self) -> Iterator[Ready | Caught | Progress]:
        """What it says, to its last word. Raises _Lost, and what it refused."""
        patience = OPENING
        while True:
            line = self._next(patience)
            patience = SILENCE
            if line == b"":
                continue  # a beat
            try:
                answer = answer_of(line)
            except msgspec.DecodeError as error:
                raise _Lost(f"crash: an answer that is none ({error})") from None
            if isinstance(answer, Failed):
                if answer.kind in REFUSALS:
                    raise REFUSALS[answer.kind](answer.text)
                raise _Lost(f"crash: {answer.kind}: {answer.text}")
            yield answer

    def _next(self, patience: float) -> bytes:
        try:
            line = self._waited(patience, opening=False)
            if line is None:
                # It may only be a gate that nobody opens.
                line = self._waited(OPENED, opening=True)
        except EOFError:
            raise _Lost(f"crash: {self._how_it_ended()}") from None
        if line is None:
            raise _Lost(f"hang: no answer for {patience + OPENED:g} s")
        return line

    def _waited(self, seconds: float, *, opening: bool) -> bytes | None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if opening and self._words is not None:
                self._words.open_all()
            self._output.trim()
            self._errors.trim()
            if (line := self._lines.next(min(left, 0.25))) is not None:
                return line
        return None

    def _how_it_ended(self) -> str:
        tail = self._errors.last_line() or self._output.last_line()
        try:
            code = self._popen.wait(OPENED)
        except subprocess.TimeoutExpired:
            return f"it closed its pipe and goes on; {tail}"
        return f"{how_ended(code)}; {tail}" if tail else how_ended(code)

    def end(self) -> None:
        """End the child and everything that it started; its gates are opened first."""
        if self._words is not None:
            self._words.open_all()
        os.close(self._requests)  # says that it is to end
        self._requests = -1
        deadline = time.monotonic() + OPENED
        while self._popen.poll() is None and time.monotonic() < deadline:
            if self._words is not None:
                self._words.open_all()
            time.sleep(0.01)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(10.0)
        self._close_files()

    def _close_files(self) -> None:
        if self._requests >= 0:
            os.close(self._requests)
        os.close(self._answers)
        self._output.close()
        self._errors.close()
        self._mark.close()
        os.close(self._mark_fd)
        if self._words is not None:
            self._words.close()
