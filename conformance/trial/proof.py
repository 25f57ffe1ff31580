"""The proof of a late event: three different holds, controls on time beside each, one cause.

Source: CONTRACT.md 2, "Form" and "Rate".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from conformance.execution import Look
from conformance.judgement.statements import Late, Statement
from conformance.numbers import Numbers
from probes.notation import print_step
from probes.program import Open, Program, SyncDevice, SyncStream
from reports.records import Control, Finding

#: Late observations that prove nothing (no control, no cause) before a proof is given up.
FRUITLESS: Final = 6


@dataclass(slots=True)
class Proof:
    """What was gathered about one late clause of one case."""

    clause: str
    numbers: Numbers
    holds: tuple[float, ...]
    proved: dict[float, Late] = field(default_factory=dict)
    late: int = 0
    tries: int = 0
    fruitless: int = 0
    impatient: int = 0
    controls_on_time: int = 0
    slowest_control: float = 0.0

    @property
    def complete(self) -> bool:
        """Are three holds in?"""
        return len(self.proved) >= len(self.holds)

    @property
    def given_up(self) -> bool:
        """Is nothing more to be expected?"""
        return self.tries >= self.numbers.tries or self.fruitless >= FRUITLESS

    @property
    def next_hold(self) -> float:
        """The longest hold that is not in yet; after a fruitless try, another one."""
        left = [hold for hold in self.holds if hold not in self.proved] or list(self.holds)
        return sorted(left, reverse=True)[self.fruitless % len(left)]

    @property
    def reason(self) -> str:
        """Why it is not proved."""
        return "patience" if self.impatient else "unsteady"

    def take(
        self,
        hold: float,
        statement: Statement | None,
        before: Mapping[tuple[str, str], Sequence[Look]],
        observe: str,
        reached_end: bool,
    ) -> None:
        """Take in one try: a statement if it was late, None if not; ``before`` are the controls run earlier."""
        self.tries += 1
        late = statement.late if statement is not None else None
        if late is None:
            return
        self.late += 1
        slowest = max(late.control_seconds, late.witness_seconds or 0.0)
        if late.control is not None:
            earlier = before.get((late.control.digest, observe))
            seen = earlier[late.look].events.get(late.event) if earlier and late.look < len(earlier) else None
            if seen is None or not seen.ever:
                return  # no control before it: this observation only starts the proof
            slowest = max(slowest, seen.after or 0.0)
            self.controls_on_time += 2
        self.slowest_control = max(self.slowest_control, slowest)
        if hold < self.numbers.patience * slowest:
            self.impatient += 1
            self.fruitless += 1
            return
        if hold in self.proved:
            return
        if not self._caused(late, hold, reached_end) or not self._same_cause(late):
            self.fruitless += 1
            return
        self.proved[hold] = late

    def _caused(self, late: Late, hold: float, reached_end: bool) -> bool:
        step = late.published_by
        if self.clause == "EVT-LIVE-1" and isinstance(step, Open):
            return False
        if step is None:
            return reached_end  # never: every nudge of the program was given, and each call returned
        if isinstance(step, Open):
            return late.published_after is not None and late.published_after <= self.numbers.publication_window(hold)
        return isinstance(step, (SyncStream, SyncDevice)) or not isinstance(step, Open)

    def _same_cause(self, late: Late) -> bool:
        return all(
            other.published_by == late.published_by and other.rung == late.rung for other in self.proved.values()
        )

    @property
    def first(self) -> Late:
        """A late observation that counts."""
        return next(iter(self.proved.values()))

    def finding(self, text: str) -> Finding:
        """The finding, once complete."""
        late = self.first
        cause = print_step(late.published_by) if late.published_by is not None else "nothing"
        return Finding(
            clause=self.clause,
            text=text,
            event=late.event,
            published_by=cause,
            holds_s=tuple(sorted(self.proved)),
            late=self.late,
            of=self.tries,
        )

    def control(self, text: Program | None) -> Control | None:
        """The control that was on time beside each late observation."""
        late = self.first
        if late.control is None or text is None:
            return None
        from probes.notation import print_program

        return Control(
            name=late.rung or "",
            program=print_program(text),
            on_time=self.controls_on_time,
            tried=self.controls_on_time,
            slowest_us=round(self.slowest_control * 1e6, 1),
        )
