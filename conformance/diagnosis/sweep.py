"""The sweep: find a late point, reduce it, and see which of its factors decide.

A point is late if two runs of it are, for different holds, and its control is in time; what is neither always
late nor always in time is called unsteady and decides nothing.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from conformance.diagnosis import factors as at
from conformance.diagnosis.factors import FACTORS, Factor, Point, covering, different
from conformance.diagnosis.programs import EVENT, build
from conformance.diagnosis.shot import shoot
from conformance.errors import DeviceError, Unsupported
from conformance.ladder.mechanism import explain
from reports.diagnosis import Cause, Diagnosis, FactorRow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conformance.backends.api import Backend
    from conformance.numbers import Numbers
    from reports.records import Mechanism

#: Holds of the runs of a point, in seconds; at least `patience` times the slowest control.
HOLDS: Final = (0.06, 0.1, 0.08, 0.12)
#: Runs that say the same, until they are believed; runs in all.
STEADY: Final = 2
#: Runs that say nothing until a point is given up.
FRUITLESS: Final = 3
#: Points at which a cause is put to the test with every other factor drawn anew.
CHECKS: Final = 5
#: Causes that are looked for: a device that is late for several reasons.
CAUSES: Final = 3
#: Why a late run says nothing.
CONTROL_LATE: Final = "its control is late too"
#: Of the level of a waiting stream: what it sees is said apart, since it is no property of the host's question.
DEVICE: Final = "device"


@dataclass(slots=True)
class Measured:
    """What the runs of one point showed."""

    late: int = 0
    of: int = 0
    reason: str = ""

    @property
    def is_late(self) -> bool:
        """Late, every time."""
        return not self.reason and self.of > 0 and self.late == self.of

    @property
    def in_time(self) -> bool:
        """In time, every time."""
        return not self.reason and self.of > 0 and self.late == 0


@dataclass(slots=True)
class Sweep:
    """All points of one device that were measured."""

    backend: Backend
    numbers: Numbers
    factors: tuple[Factor, ...] = ()
    left_out: list[FactorRow] = field(default_factory=list)
    known: dict[tuple[str, ...], Measured] = field(default_factory=dict)
    shots: int = 0
    slowest: float = 0.0  # of a control, in seconds
    alone: bool = False  # the event is late with nothing behind it too: no control can be in time

    def __post_init__(self) -> None:
        kept = []
        for factor in FACTORS:
            levels = []
            for level in factor.levels:
                reason = self.backend.unsupported(factor.needs[level]) if level in factor.needs else None
                if reason is None:
                    levels.append(level)
                else:
                    row = FactorRow(factor=factor.name, level=level, here=False, reason=f"unsupported: {reason}")
                    self.left_out.append(row)
            kept.append(Factor(name=factor.name, levels=tuple(levels)))
        self.factors = tuple(kept)

    def measure(self, point: Point) -> Measured:
        """What a point does; each is measured once."""
        key = tuple(point[factor.name] for factor in self.factors)
        if key not in self.known:
            failures: tuple[type[Exception], ...] = (DeviceError, *self.backend.vendor_errors)
            try:
                self.known[key] = self._measure(point)
            except Unsupported as error:
                self.known[key] = Measured(reason=f"unsupported: {error.reason}")
            except failures as error:
                self.known[key] = Measured(reason=" ".join(f"error: {type(error).__name__}: {error}".split()))
        return self.known[key]

    def _measure(self, point: Point) -> Measured:
        found, fruitless, why = Measured(), 0, ""
        for hold in HOLDS + HOLDS:
            shot = shoot(self.backend, self.numbers, point, self._hold(hold))
            self.shots += 1
            if shot.late is None or (shot.late and not self._control_in_time(point)):
                fruitless, why = fruitless + 1, shot.reason or CONTROL_LATE
                if fruitless >= FRUITLESS:
                    return Measured(late=found.late, of=found.of, reason=why)
                continue
            found.of += 1
            found.late += shot.late
            agreed = found.late in (0, found.of)
            if (agreed and found.of >= STEADY) or found.of >= 2 * STEADY:
                break
        return found

    def _hold(self, hold: float) -> float:
        return min(max(hold, self.numbers.patience * self.slowest), self.numbers.deadline)

    def _control_in_time(self, point: Point) -> bool:
        """Is the same program in time without the later wait? Run again for each late run."""
        if self.alone:
            return True
        control = shoot(self.backend, self.numbers, point, self._hold(HOLDS[-1]), control=True)
        self.shots += 1
        if control.late is False:
            self.slowest = max(self.slowest, control.after)
        return control.late is False

    def find(self, start: Point) -> Point | None:
        """A late point: the start, one beside it, or one of a set that has every pair of levels."""
        if self.measure(start).reason == CONTROL_LATE:
            self.alone = True
            self.known.clear()
        if self.measure(start).is_late:
            return start
        return next((point for point in covering(self.factors, start) if self.measure(point).is_late), None)

    def reduce(self, late: Point, base: Point) -> Point:
        """The late point, as near to the one in time as it can be and stay late."""
        moved = True
        while moved:
            moved = False
            for name in different(late, base):
                nearer = {**late, name: base[name]}
                if self.measure(nearer).is_late:
                    late, moved = nearer, True
        return late

    def flips(self, late: Point) -> dict[str, dict[str, Measured]]:
        """Each factor's levels, everything else as at a late point."""
        return {
            factor.name: {level: self.measure({**late, factor.name: level}) for level in factor.levels}
            for factor in self.factors
        }

    def cause(self, flips: dict[str, dict[str, Measured]]) -> Cause:
        """The factors of which another level cures, with the levels that do not."""
        levels = {}
        for name, by_level in flips.items():
            cured = [level for level, m in by_level.items() if m.in_time and (name, level) != (at.WAITER, DEVICE)]
            if cured:
                levels[name] = tuple(level for level, m in by_level.items() if m.is_late)
        return Cause(levels=levels)

    def redrawn(self, late: Point, kept: dict[str, str], rng: random.Random) -> Iterator[Point]:
        """Points that have these levels, and every other factor drawn anew."""
        for _ in range(CHECKS):
            drawn = {f.name: rng.choice([lv for lv in f.levels if lv != DEVICE]) for f in self.factors}
            yield {**late, **drawn, **kept}


def diagnose(backend: Backend, numbers: Numbers, start: Point, probe: str, variant: str) -> Diagnosis:
    """Which factors decide that the event of the core program is late on this device, beginning at a point."""
    began = time.perf_counter()
    sweep = Sweep(backend, numbers)
    start = {f.name: start[f.name] if start[f.name] in f.levels else f.levels[0] for f in sweep.factors}
    late = sweep.find(start)
    causes: list[Cause] = []
    point: Point = {}
    rows: list[FactorRow] = []
    waits, mechanism = "", None
    if late is not None:
        point = sweep.reduce(late, start) if sweep.measure(start).in_time else late
        flips = sweep.flips(point)
        causes, steady = _causes(sweep, start, point, flips)
        rows = _rows(flips, point, sweep.left_out)
        waits = _device_waits(flips.get(at.WAITER, {}).get(DEVICE))
        mechanism = _mechanism(backend, numbers, point)
        sentence = "It is late with nothing behind it, too. " * sweep.alone + _sentence(causes, steady)
    else:
        sentence = f"Nothing is late at any of the {len(sweep.known)} points tried."
        if reasons := sorted({m.reason for m in sweep.known.values() if m.reason}):
            sentence += f" Some say nothing: {'; '.join(reasons[:3])}."
    return Diagnosis(
        backend=backend.name,
        device=backend.device().name,
        fault=backend.faults,
        probe=probe,
        variant=variant,
        found=late is not None,
        sentence=sentence,
        point=point,
        causes=tuple(causes),
        rows=tuple(rows),
        device_waits=waits,
        mechanism=mechanism,
        points=len(sweep.known),
        shots=sweep.shots,
        seconds=round(time.perf_counter() - began, 2),
    )


def _causes(
    sweep: Sweep, start: Point, point: Point, flips: dict[str, dict[str, Measured]]
) -> tuple[list[Cause], bool]:
    """The causes, each put to the test: sufficient with everything else drawn anew, and needed. Whether all held."""
    rng = random.Random(0)
    causes: list[Cause] = []
    steady = True
    while len(causes) < CAUSES:
        cause = sweep.cause(flips)
        causes.append(cause)
        if not cause.levels:
            # Late whatever one factor is: is it in time anywhere?
            other = next((p for p in sweep.redrawn(point, {}, rng) if sweep.measure(p).in_time), None)
            steady &= other is None
            break
        for drawn in sweep.redrawn(point, {name: point[name] for name in cause.levels}, rng):
            steady &= not sweep.measure(drawn).in_time
        # Late without it too? Then there is another cause.
        cured = {
            name: next(lv for lv, m in by.items() if m.in_time and (name, lv) != (at.WAITER, DEVICE))
            for name, by in flips.items()
            if name in cause.levels
        }
        others = (p for p in sweep.redrawn(point, cured, rng) if sweep.measure(p).is_late)
        if (another := next(others, None)) is None:
            break
        base = {**start, **cured}
        if not sweep.measure(base).in_time:
            break
        point = sweep.reduce(another, base)
        flips = sweep.flips(point)
    return causes, steady


def _rows(flips: dict[str, dict[str, Measured]], point: Point, left_out: list[FactorRow]) -> list[FactorRow]:
    rows = []
    for name, by_level in flips.items():
        for level, m in by_level.items():
            here = point[name] == level
            rows.append(FactorRow(factor=name, level=level, here=here, late=m.late, of=m.of, reason=m.reason))
        rows += [row for row in left_out if row.factor == name]
    return rows


def _device_waits(measured: Measured | None) -> str:
    if measured is None or measured.reason:
        return ""
    if measured.in_time:
        return "A stream that waits for the event is in time: only the host sees it late."
    return "A stream that waits for the event is late too." if measured.is_late else ""


def _sentence(causes: list[Cause], steady: bool) -> str:
    if not causes or not causes[0].levels:
        if steady:
            return "No factor decides: the event is late at every level of each of them."
        return "No single factor decides, and the event is not always late: it takes more than one of them to cure it."
    said = [
        " and ".join(f"{name} is {' or '.join(levels)}" for name, levels in cause.levels.items()) for cause in causes
    ]
    text = f"Late if {'; or if '.join(said)}; else in time."
    return text if steady else text + " Not at every point that was drawn at random: something else matters too."


def _mechanism(backend: Backend, numbers: Numbers, point: Point) -> Mechanism | None:
    """The ladder's class at the point that was diagnosed."""
    built = build({**point, at.WAITER: "query"} if point[at.WAITER] == DEVICE else point)
    program = built.program
    return explain(
        backend,
        program,
        built.setting,
        numbers,
        event=EVENT,
        at=len(program.steps),
        pauses=built.pauses,
    )
