"""The factors of a late event, their levels, and points: one level of each."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

#: One level of each factor, by the factor's name.
Point = dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """Something about a program that may decide whether its event is late. The first level is the usual one."""

    name: str
    levels: tuple[str, ...]
    needs: Mapping[str, str] = field(default_factory=dict)  # level -> the capability that it needs


FLAGS: Final = "event flags"
WAIT: Final = "later wait"
CAPTURED: Final = "captured work"
BEHIND: Final = "behind the wait"
WAITER: Final = "waiter"
PRIORITY: Final = "priority of the stream"
PRODUCER: Final = "producer"
DELAY: Final = "delay between record and wait"
ROUND: Final = "round"
EVENT: Final = "event"
HANDLE: Final = "stream handle"
GATE: Final = "gate kind"

#: In the order in which tables show them.
FACTORS: Final = (
    Factor(
        name=FLAGS,
        levels=("default", "blocking", "timing"),
        needs={"blocking": "event-flag-blocking", "timing": "event-flag-timing"},
    ),
    Factor(
        name=WAIT,
        levels=("wait-stream", "wait", "wait, event destroyed"),
        needs={"wait-stream": "wait-stream"},
    ),
    Factor(name=CAPTURED, levels=("one copy", "kernel last", "sixteen copies")),
    Factor(name=BEHIND, levels=("gated copy", "copy", "kernel", "record", "nothing")),
    Factor(name=WAITER, levels=("query", "synchronize", "device")),
    Factor(name=PRIORITY, levels=("usual", "high"), needs={"high": "priority"}),
    Factor(name=PRODUCER, levels=("side stream", "default stream"), needs={"default stream": "default-stream"}),
    Factor(name=DELAY, levels=("none", "5 ms")),
    Factor(name=ROUND, levels=("first", "third")),
    Factor(name=EVENT, levels=("fresh", "recorded once before", "recorded 5 times before")),
    Factor(name=HANDLE, levels=("first", "sixth")),
    Factor(name=GATE, levels=("first kind", "second kind"), needs={"second kind": "second-gate"}),
)


def usual(factors: Sequence[Factor]) -> Point:
    """The first level of each factor."""
    return {factor.name: factor.levels[0] for factor in factors}


def point_of(factors: Sequence[Factor], choices: Mapping[str, str]) -> Point:
    """The point of a probe's variant, by the names under which probes choose; what has no name there is usual."""
    named = {
        FLAGS: choices.get("flags", ""),
        WAIT: choices.get("spelling", ""),
        CAPTURED: {"copy": "one copy", "fill": "kernel last"}.get(choices.get("captured", ""), ""),
        WAITER: choices.get("observe", ""),
        PRODUCER: {"side": "side stream", "default": "default stream"}.get(choices.get("main", ""), ""),
        ROUND: {"1": "first", "3": "third"}.get(choices.get("round", ""), ""),
    }
    point = usual(factors)
    levels = {factor.name: factor.levels for factor in factors}
    point |= {name: level for name, level in named.items() if level in levels.get(name, ())}
    return point


def different(point: Point, other: Point) -> tuple[str, ...]:
    """The factors in which two points differ."""
    return tuple(name for name in point if point[name] != other[name])


def covering(factors: Sequence[Factor], start: Point) -> Iterator[Point]:
    """Points that together have each pair of levels of any two factors at least once, those near ``start`` first.

    Greedy: the size is a few times the square of the most levels that a factor has.
    """
    for factor in factors:
        for level in factor.levels:
            if level != start[factor.name]:
                yield {**start, factor.name: level}
    uncovered = {
        frozenset(((a.name, x), (b.name, y)))
        for a, b in itertools.combinations(factors, 2)
        for x in a.levels
        for y in b.levels
        if x != start[a.name] and y != start[b.name]
    }
    while uncovered:
        point = dict(min(uncovered, key=sorted))
        for factor in factors:
            if factor.name not in point:
                point[factor.name] = _best(factor, point, uncovered)
        uncovered -= {frozenset(pair) for pair in itertools.combinations(point.items(), 2)}
        yield {factor.name: point[factor.name] for factor in factors}


def _best(factor: Factor, point: Point, uncovered: set[frozenset[tuple[str, str]]]) -> str:
    """The level that covers most pairs with those chosen already."""
    return max(
        factor.levels,
        key=lambda level: sum(frozenset(((factor.name, level), pair)) in uncovered for pair in point.items()),
    )
