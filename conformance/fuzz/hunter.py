"""Screens programs on one device and judges what is odd; only what the ordinary rules call a finding is one."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from conformance.errors import DeviceError
from conformance.execution import Setting, execute
from conformance.fuzz.careful import judge_program, numbers_for
from conformance.fuzz.messages import Caught
from conformance.fuzz.screen import EXPIRED, Tally
from conformance.fuzz.session_machine import SessionScreen
from conformance.fuzz.shape import size_of, witnessed
from conformance.fuzz.shrink import Shrinker
from probes.notation import parse, print_program

if TYPE_CHECKING:
    from collections.abc import Callable

    from conformance.backends.api import Backend
    from conformance.fuzz.careful import Judged
    from conformance.fuzz.plan import Plan
    from conformance.fuzz.recipe import Choice, Recipe
    from probes.program import Program

#: What shows how long the device takes for an operation.
PACE: Final = "s1: fill x1 1, copy x1 -> h1, record e1\nhost: query-stream s1"
#: Clauses that other clauses' defects bring along: a program is shrunk by another one if there is one.
_LAST: Final = ("EVT-LIVE-1", "EVT-REREC-1")
#: Clauses of events that came too late or not at all: on a device that is slow itself they prove nothing.
_LATE: Final = frozenset(
    [
        "EVT-LIVE-1",
        "EVT-INDEP-1",
        "EVT-INDEP-2",
        "EVT-INDEP-3",
        "EVT-WAIT-2",
        "EVT-WAIT-4",
        "EVT-WAIT-5",
        "EVT-NEVER-2",
        "EVT-REREC-2",
        "EVT-REC-1",
        "STM-SYNC-1",
        "EVT-DESTROY-1",
    ]
)


class Screen(Protocol):
    """The fast path on one device."""

    tally: Tally

    def run(self, plan: Plan, program: Callable[[], Program], choice: Choice) -> str:
        """The first anomaly of a program in words, or empty; after an anomaly the device is idle."""
        ...

    def by_hand(self) -> float:
        """Seconds of one round of a loop written out by hand; 0 where there is none."""
        ...


class SimpleScreen:
    """`SessionScreen` as a `Screen`."""

    def __init__(self, backend: Backend) -> None:
        self._screen = SessionScreen(backend, numbers_for(backend))
        self.tally = self._screen.tally

    def run(self, plan: Plan, program: Callable[[], Program], choice: Choice) -> str:
        """The first anomaly."""
        return self._screen.run(plan, program(), choice)

    def by_hand(self) -> float:
        """There is none: a session a program is what is measured here."""
        return 0.0


@dataclass(slots=True)
class Hunter:
    """One device under generated programs."""

    backend: Backend
    recipe: Recipe
    screen: Screen
    shrink_seconds: float
    beat: Callable[[], None]
    known: set[str]  # clauses that were found to fail: shrunk once each
    late_seconds: float = 0.0  # how long a token takes on the idle device
    careful_seconds: float = 0.0  # spent on judging and shrinking

    def measure_pace(self) -> None:
        """How long a token takes when nothing holds it."""
        looks = execute(self.backend, parse(PACE), Setting(), numbers_for(self.backend))
        self.late_seconds = max((max(look.arrived.values(), default=0.0) for look in looks), default=0.0)

    def look(self, index: int, plan: Plan | None, program: Callable[[], Program], choice: Choice) -> Caught | None:
        """Run a program; what it showed, or None if every look was as it must be.

        A program without a plan is judged at once. A gate that ended by itself is one try: it is done again.
        """
        if plan is not None:
            anomaly = self._screened(plan, program, choice)
            if anomaly == EXPIRED:
                anomaly = self._screened(plan, program, choice)
            if not anomaly:
                return None
        else:
            anomaly = "not tidy: judged without the fast path"
        began = time.monotonic()
        caught = self._judge(index, anomaly, program(), choice)
        self.careful_seconds += time.monotonic() - began
        return caught if plan is not None or caught.failed or caught.unclear else None

    def _screened(self, plan: Plan, program: Callable[[], Program], choice: Choice) -> str:
        failures: tuple[type[Exception], ...] = (DeviceError, *self.backend.vendor_errors)
        try:
            return self.screen.run(plan, program, choice)
        except failures as error:
            return " ".join(f"{type(error).__name__}: {error}".split())

    def judged(self, program: Program, choice: Choice) -> Judged:
        """What the ordinary rules say of a program."""
        self.beat()
        return judge_program(self.backend, program, choice, numbers_for(self.backend))

    def _judge(self, index: int, anomaly: str, program: Program, choice: Choice) -> Caught:
        judged = self.judged(program, choice)
        if not self._sound(judged, program) and any("no-witness" in reason for reason in judged.unclear):
            # The same with a token before each record: without one a late event proves nothing.
            other = witnessed(program)
            if self._sound(again := self.judged(other, choice), other):
                program, judged = other, again
        failed = self._sound(judged, program)
        unclear = judged.unclear or ((judged.error,) if judged.error else ())
        if not failed and judged.failed:
            unclear = (*unclear, *(f"{clause} patience" for clause in judged.failed))
        caught = Caught(
            index=index,
            anomaly=anomaly,
            text=print_program(program),
            observe=choice.observe,
            flags=choice.flags,
            failed=failed,
            unclear=unclear,
        )
        clauses = sorted(failed, key=lambda clause: (clause in _LAST, clause))
        if not clauses or set(clauses) <= self.known:
            return caught
        self.known |= set(clauses)
        return self._shrunk(caught, program, choice, clauses[0])

    def _sound(self, judged: Judged, program: Program) -> tuple[str, ...]:
        """The failed clauses, without those that a device proves nothing about because it is slow itself."""
        deadline = numbers_for(self.backend).deadline
        slow = self.late_seconds * max(20, size_of(program)) >= deadline
        return tuple(clause for clause in judged.failed if not (slow and clause in _LATE))

    def _shrunk(self, caught: Caught, program: Program, choice: Choice, clause: str) -> Caught:
        shrinker = Shrinker(
            program,
            choice,
            lambda smaller, how: clause in self._sound(self.judged(smaller, how), smaller),
            seconds=self.shrink_seconds,
            slow_copies=self.recipe.slow_copies,
        )
        small, how = shrinker.run()
        return msgspec.structs.replace(
            caught,
            shrunk=print_program(small),
            shrunk_observe=how.observe,
            shrunk_flags=how.flags,
            operations=size_of(small),
            clause=clause,
            tries=shrinker.tries,
        )
