"""Which cases a run consists of."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from conformance.errors import UsageError
from conformance.numbers import Numbers
from probes.catalogue import all_probes
from probes.probe import Case, Probe
from probes.ring import DEEPEST


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The cases of a run, in order, and what was left out by name."""

    cases: tuple[tuple[Probe, Case], ...]
    by_probe: bool = False
    by_variant: bool = False
    decisive: frozenset[tuple[str, str]] = frozenset()  # of the unrestricted run

    @property
    def restricted(self) -> bool:
        """Was anything left out by name?"""
        return self.by_probe or self.by_variant


def select(
    numbers: Numbers,
    *,
    probes: Sequence[str] = (),
    variants: Sequence[str] = (),
    surfaces: Sequence[str] = ("vendor",),
) -> Selection:
    """The cases that match, on each of these surfaces; raises UsageError for a pattern without match.

    The mixed family is the only one that the surface "mixed" has, and no other surface has it.
    """
    if not 1 <= numbers.max_in_flight <= DEEPEST:
        raise UsageError(f"--max-in-flight {numbers.max_in_flight}: give a number from 1 to {DEEPEST}")
    every = [
        (probe, case if surface == case.surface else replace(case, surface=surface))
        for surface in surfaces
        for probe in all_probes(numbers.max_in_flight).values()
        for case in probe.cases
        if (probe.family == "mixed") == (surface == "mixed") and (not numbers.quick or _in_quick(probe, case))
    ]
    chosen = _filter(every, probes, "--probe", [p.name for p, _ in every], lambda pair: pair[0].name)
    chosen = _filter(chosen, variants, "--variant", [c.variant for _, c in chosen], lambda pair: pair[1].variant)
    return Selection(
        cases=tuple(chosen),
        by_probe=bool(probes),
        by_variant=bool(variants),
        decisive=frozenset((p.name, c.variant) for p, c in every if c.decisive),
    )


def _in_quick(probe: Probe, case: Case) -> bool:
    if not case.quick:
        return False
    pipe = probe.pipes.get(case.variant)
    return pipe is None or pipe.ring in (1, pipe.in_flight)


Pair = tuple[Probe, Case]


def _filter(
    pairs: list[Pair], patterns: Sequence[str], option: str, names: list[str], name_of: Callable[[Pair], str]
) -> list[Pair]:
    if not patterns:
        return pairs
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            near = difflib.get_close_matches(pattern, sorted(set(names)), n=3, cutoff=0.5)
            meant = f"; did you mean {' or '.join(near)}?" if near else ""
            raise UsageError(f"{option} '{pattern}' matches nothing{meant} (see 'stream-conformance list')")
    return [pair for pair in pairs if any(fnmatchcase(name_of(pair), pattern) for pattern in patterns)]
