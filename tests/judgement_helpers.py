"""Looks and controls made by hand, for tests of the rules of judgement."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from conformance.execution import Call, Look, Outcome, Seen
from conformance.model import host_points
from probes.notation import print_program
from probes.program import is_host

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from conformance.execution import Observe
    from probes.program import Program


@dataclass
class At:
    """What is seen at one host point: complete events, tokens, gates that ended, events that flicker."""

    seen: str = ""
    tokens: dict[str, int] = field(default_factory=dict)
    ended: str = ""
    flickers: str = ""
    came: float = 0.0  # seconds until the tokens came, of as many as the look lasted
    lasted: float = 1.0


def looks(program: Program, *rows: At) -> list[Look]:
    """Looks at a program's host points, in order."""
    made: list[Look] = []
    for at, row in zip(host_points(program.steps), rows, strict=False):
        step = program.steps[at - 1] if at else None
        first = not made or at == 0 or not is_host(program.steps[at - 1])
        call = None if first or step is None else Call(step=step, outcome=Outcome.RETURNED)
        events = {event: answer(event in row.seen.split(), event in row.flickers.split()) for event in program.events}
        buffers = {buffer: row.tokens.get(buffer, 0) for buffer in program.host_buffers}
        made.append(
            Look(
                at=at,
                call=call,
                events=events,
                buffers=buffers,
                arrived=dict.fromkeys(row.tokens, row.came),
                ended=frozenset(row.ended.split()),
                seconds=row.lasted,
            )
        )
    return made


def answer(seen: bool, flickers: bool) -> Seen:
    last, after = seen and not flickers, 0.0 if seen else None
    return Seen(first=seen, last=last, ever=seen, flickered=flickers, polls=4, after=after)


@dataclass
class Controls:
    """Answers every control by ``answer``, or with looks at which nothing is ever seen; keeps their texts."""

    answer: Callable[[Program, Observe], Sequence[Look]] | None = None
    once_only = False
    after_live = False
    needed = 0.0
    asked: list[str] = field(default_factory=list)

    def run(self, program: Program, observe: Observe, last_look: int) -> Sequence[Look]:
        self.asked.append(print_program(program))
        return never(program) if self.answer is None else self.answer(program, observe)

    def once(self, program: Program, last_look: int) -> Sequence[Look]:
        return self.run(program, "query", last_look)

    once_more = once

    def doubtful(self, program: Program) -> bool:
        return False


def never(program: Program) -> Sequence[Look]:
    """Looks at which nothing is ever seen."""
    return looks(program, *[At()] * len(host_points(program.steps)))
