"""Screens programs on one device and judges what is odd; only what the ordinary rules call a finding is one."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import msgspec

from conformance.errors import DeviceError, Unsupported
from conformance.execution import Setting, execute
from conformance.fuzz.careful import judge_program, numbers_for
from conformance.fuzz.messages import Caught
from conformance.fuzz.plan import LOOK, compile_plan
from conformance.fuzz.screen import EXPIRED, PATIENCE, Tally
from conformance.fuzz.session_machine import SessionScreen
from conformance.fuzz.shape import canonical, size_of, witnessed
from conformance.fuzz.shrink import Shrinker
from probes.notation import parse, print_program

if TYPE_CHECKING:
    from collections.abc import Callable

    from conformance.backends.api import Backend, Request, Session
    from conformance.fuzz.careful import Judged
    from conformance.fuzz.plan import Plan
    from conformance.fuzz.recipe import Choice, Recipe
    from probes.program import Program

#: What shows how long the device takes for an operation.
PACE: Final = "s1: fill x1 1, copy x1 -> h1, record e1\nhost: read h1"
#: Seconds until something owed is odd while a program shrinks in real time: what is left is judged in full.
GLANCE: Final = 0.05
#: Runs in which something that is too early may show while a program shrinks.
TRIES: Final = 5
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

    def run(self, plan: Plan, program: Callable[[], Program], choice: Choice, patience: float = PATIENCE) -> str:
        """The first anomaly of a program in words, or empty; after an anomaly the device is idle."""
        ...

    def fits(self, program: Program) -> bool:
        """Can the fast path run a program of these names?"""
        ...

    def by_hand(self) -> float:
        """Seconds of one round of a loop written out by hand; 0 where there is none."""
        ...


class SimpleScreen:
    """`SessionScreen` as a `Screen`."""

    def __init__(self, backend: Backend) -> None:
        self._screen = SessionScreen(backend, numbers_for(backend))
        self.tally = self._screen.tally

    def run(self, plan: Plan, program: Callable[[], Program], choice: Choice, patience: float = PATIENCE) -> str:
        """The first anomaly."""
        return self._screen.run(plan, program(), choice, patience)

    def fits(self, program: Program) -> bool:
        """A session has whatever a program names."""
        return True

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
        """How long a token takes when nothing holds it: the shortest of three, since a hiccup is no pace."""
        taken = []
        for _ in range(3):
            looks = execute(self.backend, parse(PACE), Setting(), numbers_for(self.backend))
            taken.append(max((max(look.arrived.values(), default=0.0) for look in looks), default=0.0))
        self.late_seconds = min(taken)

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

    def _screened(self, plan: Plan, program: Callable[[], Program], choice: Choice, patience: float = PATIENCE) -> str:
        failures: tuple[type[Exception], ...] = (DeviceError, Unsupported, *self.backend.vendor_errors)
        try:
            return self.screen.run(plan, program, choice, patience)
        except failures as error:
            return " ".join(f"{type(error).__name__}: {error}".split())

    def judged(self, program: Program, choice: Choice) -> Judged:
        """What the ordinary rules say of a program."""
        self.beat()
        beating = cast("Backend", _Beating(self.backend, self.beat))
        return judge_program(beating, program, choice, numbers_for(self.backend))

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
        def fails(smaller: Program, how: Choice) -> bool:
            return clause in self._sound(self.judged(smaller, how), smaller)

        small, how, tries = program, choice, 0
        if not self.backend.clock.virtual:
            # In real time a judgement takes seconds: go by the fast path, then judge what is left.
            small, how, tries = self._shrink(program, choice, partial(self._odd, caught.anomaly.split()[-1]))
            if not (fails(small, how) or fails(small, how)):
                small, how = program, choice
        if self.backend.clock.virtual or small is program:
            small, how, more = self._shrink(program, choice, fails)
            tries += more
        return msgspec.structs.replace(
            caught,
            shrunk=print_program(small),
            shrunk_observe=how.observe,
            shrunk_flags=how.flags,
            operations=size_of(small),
            clause=clause,
            tries=tries,
        )

    def _shrink(
        self, program: Program, choice: Choice, fails: Callable[[Program, Choice], bool]
    ) -> tuple[Program, Choice, int]:
        slow = self.recipe.slow_copies
        shrinker = Shrinker(program, choice, fails, seconds=self.shrink_seconds, slow_copies=slow)
        small, how = shrinker.run()
        return small, how, shrinker.tries

    def _odd(self, kind: str, program: Program, choice: Choice) -> bool:
        """Does the fast path see an anomaly of this kind: twice, and of an event with a witness, if it is lateness?"""
        self.beat()
        program = canonical(program)
        plan = compile_plan(program, choice) if self.screen.fits(program) else None
        if plan is None:
            return False
        late = kind == "late"
        for _ in range(2 if late else TRIES):
            words = self._screened(plan, lambda: program, choice, GLANCE).split()
            odd = words[-1:] == [kind] and (not late or _witness_of(plan, words[0]))
            if odd != late:
                return odd  # too early shows when the one look meets it; too late must show each time
        return late


def _witness_of(plan: Plan, event: str) -> bool:
    """Is there a token that comes with this event?"""
    return any(tokens for item in plan[5] if item[0] == LOOK for name, tokens in item[1] if name == event)


class _Beating:
    """A backend that tells of each program that begins."""

    def __init__(self, backend: Backend, beat: Callable[[], None]) -> None:
        self._backend, self._beat = backend, beat

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def session(self, request: Request) -> Session:
        """A session."""
        self._beat()
        return self._backend.session(request)
