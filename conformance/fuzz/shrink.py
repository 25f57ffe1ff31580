"""Shrinks a failing program to a smallest one that still fails by the same clause.

Delta debugging over steps, then over names: two streams become one, two events become one. What is
tried is well-formed and tidy, and each try is a whole judgement. Deterministic for a deterministic device.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from conformance.fuzz.graph import proving
from conformance.fuzz.recipe import Choice
from conformance.fuzz.shape import canonical, mended, size_of
from probes.notation import print_program
from probes.program import (
    Copy,
    Destroy,
    Elapsed,
    Gate,
    Open,
    Program,
    Read,
    Record,
    Sync,
    Wait,
    WaitStream,
    gate_of,
    is_host,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from probes.program import Step


class Shrinker:
    """One program on its way down. ``fails`` judges a candidate; ``seconds`` bounds the whole."""

    def __init__(
        self,
        program: Program,
        choice: Choice,
        fails: Callable[[Program, Choice], bool],
        *,
        seconds: float,
        slow_copies: bool = False,
    ) -> None:
        self.program, self.choice = program, choice
        self._fails, self._until = fails, time.monotonic() + seconds
        self._slow = slow_copies
        self._tried: set[str] = set()
        self.tries = 0

    def run(self) -> tuple[Program, Choice]:
        """The smallest program found, with canonical names, and how it is observed."""
        self._plain_choice()
        while self._pass():
            pass
        self._take(canonical(self.program, values=True))
        return self.program, self.choice

    def _pass(self) -> bool:
        """One round of everything; True if anything became smaller."""
        before = self._weight(self.program)
        chunk = max(1, len(self.program.steps) // 2)
        while chunk:
            self._remove(chunk)
            chunk //= 2
        self._remove_gates()
        self._fold_gates()
        self._merge("stream")
        self._merge("event")
        self._open_earlier()
        return self._weight(self.program) < before and time.monotonic() < self._until

    @staticmethod
    def _weight(program: Program) -> tuple[int, int, int]:
        return size_of(program), len(program.steps), len(program.streams) + len(program.events)

    def _plain_choice(self) -> None:
        for choice in (Choice(), replace(self.choice, flags="default"), replace(self.choice, observe="query")):
            if choice != self.choice and self._try(self.program, choice):
                self.choice = choice
                return

    def _remove(self, chunk: int) -> None:
        start = len(self.program.steps) - chunk
        while start >= -chunk + 1:
            steps = self.program.steps
            self._take_steps([*steps[: max(0, start)], *steps[max(0, start) + chunk :]])
            start -= chunk

    def _remove_gates(self) -> None:
        for gate in self.program.gates:
            self._take_steps([s for s in self.program.steps if gate_of(s) != gate and s != Open(gate=gate)])

    def _fold_gates(self) -> None:
        """A gate and the next copy of its stream become a copy that ends when the gate opens."""
        if not self._slow:
            return
        for gate in self.program.gates:
            steps = list(self.program.steps)
            at = next((n for n, s in enumerate(steps) if isinstance(s, Gate) and s.gate == gate), None)
            if at is None:
                continue
            stream = steps[at].stream  # type: ignore[union-attr]  # a Gate
            behind = range(at + 1, len(steps))
            for number in behind:
                copy = steps[number]
                if isinstance(copy, Copy) and copy.stream == stream:
                    if copy.until is None:
                        steps[number] = replace(copy, until=gate)
                        self._take_steps(steps[:at] + steps[at + 1 :])
                    break

    def _merge(self, field: str) -> None:
        names = self.program.streams if field == "stream" else self.program.events
        for gone in reversed(names):
            for kept in names:
                if kept != gone:
                    steps = [_renamed(step, field, gone, kept) for step in self.program.steps]
                    self._take_steps([s for s in steps if not (isinstance(s, WaitStream) and s.stream == s.other)])

    def _open_earlier(self) -> None:
        """A host step may become unnecessary where the openings follow each other: all operations first."""
        steps = self.program.steps
        device = [s for s in steps if not is_host(s)]
        self._take_steps([*device, *(s for s in steps if is_host(s))], anyway=True)

    def _take_steps(self, steps: Sequence[Step], *, anyway: bool = False) -> None:
        program = mended(steps)
        if program is not None and (anyway or self._weight(program) < self._weight(self.program)):
            self._take(program)

    def _take(self, program: Program) -> None:
        if self._try(program, self.choice):
            self.program = program

    def _try(self, program: Program, choice: Choice) -> bool:
        key = f"{choice}\n{print_program(program)}"
        if key in self._tried or time.monotonic() >= self._until or not program.steps:
            return False
        self._tried.add(key)
        if not proving(program):
            return False
        self.tries += 1
        return self._fails(program, choice)


def _renamed(step: Step, field: str, gone: str, kept: str) -> Step:
    changes: dict[str, str] = {}
    if field == "stream":
        changes = {name: kept for name in ("stream", "other") if getattr(step, name, None) == gone}
    elif isinstance(step, (Record, Wait, Sync, Destroy)) and step.event == gone:
        changes = {"event": kept}
    if isinstance(step, (Elapsed, Read)):
        return step
    return replace(step, **changes) if changes else step  # type: ignore[arg-type]  # fields of this very step
