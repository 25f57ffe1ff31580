"""What a probe is: a family of programs that ask one question, with its clauses and its faults."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal

from probes.notation import parse
from probes.program import Program

Observe = Literal["query", "synchronize"]

#: Clauses that only one way of observing puts to the test.
BY_QUERY_ONLY: Final = frozenset({"EVT-SAFE-1", "EVT-INDEP-1", "EVT-MONO-1", "EVT-AGREE-1"})
BY_SYNCHRONIZE_ONLY: Final = frozenset({"EVT-SYNC-1", "EVT-INDEP-3"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One variant of a probe: a program, and how it is run and observed."""

    variant: str
    text: str
    observe: Observe = "query"
    flags: str = "default"
    factors: tuple[tuple[str, str], ...] = ()
    needs: tuple[str, ...] = ()  # capabilities
    decisive: bool = False  # the decision needs it
    quick: bool = False  # part of a quick run
    surface: str = "vendor"  # the API surface that the run puts it on
    second_gate: bool = False  # with the backend's second gate kind
    families: tuple[tuple[str, str], ...] = ()  # (stream, API family), where a program mixes them
    form_text: str = ""  # the two-waits program under the same choice, where the choice is not the plain one
    experiment: str = ""  # the procedure that answers instead of program and model; the text shows its device part
    clauses: tuple[str, ...] = ()  # what the variant speaks about, where that is not all of the probe's

    @property
    def program(self) -> Program:
        """The program, parsed."""
        return parse(self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipe:
    """A pipeline with this ring and this number of steps in flight, under one choice of variant."""

    ring: int
    in_flight: int
    main: str
    spelling: str

    @property
    def steps(self) -> int:
        """How many steps are run: docs/rules.md 3."""
        return max(24, 8 * self.in_flight)


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A named question."""

    name: str
    family: str
    question: str
    clauses: tuple[str, ...]
    faults: tuple[str, ...]  # that it must catch on the reference device
    control: str  # what its control leaves out, in words
    cases: tuple[Case, ...]
    subject: str = "e"  # the event whose publication times are kept
    pipes: dict[str, Pipe] = field(default_factory=dict)  # variant -> pipeline, for the ring family

    def expected(self, case: Case) -> tuple[str, ...]:
        """The clauses that a case must say something about."""
        if case.clauses or case.experiment:
            return case.clauses or self.clauses
        other = BY_SYNCHRONIZE_ONLY if case.observe == "query" else BY_QUERY_ONLY
        return tuple(clause for clause in self.clauses if clause not in other)

    def __iter__(self) -> Iterator[Case]:
        return iter(self.cases)


#: How the plain families are run: observed by, event flags.
PLAIN: Final[tuple[tuple[Observe, str], ...]] = (
    ("query", "default"),
    ("synchronize", "default"),
    ("synchronize", "blocking"),
    ("query", "timing"),
)

#: What an event flag needs of a backend.
FLAG_NEEDS: Final = {"default": (), "blocking": ("event-flag-blocking",), "timing": ("event-flag-timing",)}


def few_cases(
    text: str,
    *,
    needs: tuple[str, ...] = (),
    observe: tuple[Observe, ...] = ("query", "synchronize"),
    prefix: str = "",
    clauses: tuple[str, ...] = (),
) -> tuple[Case, ...]:
    """The cases of a program that is run with default events alone, observed in each of these ways."""
    return tuple(
        Case(
            variant=f"{prefix}{how}-default",
            text=text,
            observe=how,
            factors=(("observe", how), ("flags", "default")),
            needs=needs,
            quick=True,
            clauses=clauses,
        )
        for how in observe
    )


def plain_cases(
    text: str,
    *,
    needs: tuple[str, ...] = (),
    quick: bool = True,
    observe: tuple[Observe, ...] = ("query", "synchronize"),
) -> tuple[Case, ...]:
    """The cases of a probe whose program is the same in every variant."""
    return tuple(
        Case(
            variant=f"{how}-{flags}",
            text=text,
            observe=how,
            flags=flags,
            factors=(("observe", how), ("flags", flags)),
            needs=(*needs, *FLAG_NEEDS[flags]),
            quick=quick and flags == "default",
        )
        for how, flags in PLAIN
        if how in observe
    )
