"""The proof of a late event: three different holds, controls on time beside each, one cause.

Source: docs/rules.md 2, "Form" and "Rate".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from conformance.execution import Look, Observe
from conformance.judgement.statements import Late, Statement
from conformance.numbers import Numbers
from probes.notation import print_step
from probes.program import Open, Program, Step, SyncDevice, SyncStream
from reports.records import Control, Finding

#: Clauses whose late events have a form.
WITH_FORM: Final = frozenset({"EVT-INDEP-1", "EVT-INDEP-3", "EVT-WAIT-4", "EVT-LIVE-1"})

#: The share of the nominal hold for which an event must really have been watched: later looks of a run are short.
SHORT_OF: Final = 0.9

#: Late observations that prove nothing (no control, no cause) before a proof is given up.
FRUITLESS: Final = 6


#: What published a late event, and which control was on time.
Cause = tuple[Step | None, str | None]


@dataclass(slots=True)
class Proof:
    """What was gathered about one late clause of one case."""

    clause: str
    numbers: Numbers
    holds: tuple[float, ...]
    nudged: bool = True  # the program ends with a stream and a device synchronize
    before: int = 0  # repetitions before the first late one
    by_cause: dict[Cause, dict[float, Late]] = field(default_factory=dict)
    last_cause: Cause | None = None
    late: int = 0
    tries: int = 0
    idle: int = 0  # tries in a row without a late event while another clause had one
    fruitless: int = 0
    impatient: int = 0
    controls_on_time: int = 0
    slowest_control: float = 0.0

    @property
    def proved(self) -> dict[float, Late]:
        """The cause for which most holds are in."""
        return max(self.by_cause.values(), key=len, default={})

    @property
    def complete(self) -> bool:
        """Are three holds in?"""
        return len(self.proved) >= len(self.holds)

    @property
    def given_up(self) -> bool:
        """Is nothing more to be expected?"""
        return self.tries >= self.numbers.tries or max(self.fruitless, self.idle) >= FRUITLESS

    @property
    def next_hold(self) -> float:
        """The longest hold that is not in yet for the cause seen last; after a fruitless try, another one."""
        have = self.by_cause.get(self.last_cause, {}) if self.last_cause else {}
        left = [hold for hold in self.holds if hold not in have] or list(self.holds)
        return sorted(left, reverse=True)[self.fruitless % len(left)]

    @property
    def reason(self) -> str:
        """Why it is not proved."""
        return "patience" if self.impatient else "unsteady"

    def take(
        self,
        hold: float,
        statement: Statement | None,
        before: Mapping[tuple[Program, Observe], Sequence[Look]],
        observe: Observe,
        reached_end: bool,
    ) -> None:
        """Take in one try: a statement if it was late, None if not; ``before`` are the controls run earlier."""
        self.tries += 1
        late = statement.late if statement is not None else None
        if late is None:
            return
        self.late += 1
        self.idle = 0
        slowest = max(late.control_seconds, late.witness_seconds or 0.0)
        if late.control is not None:
            earlier = before.get((late.control, observe))
            seen = earlier[late.look].events.get(late.event) if earlier and late.look < len(earlier) else None
            if seen is None or not seen.ever:
                return  # no control before it: this observation only starts the proof
            slowest = max(slowest, seen.after or 0.0)
            self.controls_on_time += 2
        self.slowest_control = max(self.slowest_control, slowest)
        if late.hold < SHORT_OF * hold or hold < self.numbers.patience * slowest:
            self.impatient += 1
            self.fruitless += 1
            return
        cause = late.published_by, late.rung
        if not self._caused(late, hold, reached_end):
            self.fruitless += 1
            return
        self.last_cause = cause
        self.by_cause.setdefault(cause, {}).setdefault(hold, late)

    def _caused(self, late: Late, hold: float, reached_end: bool) -> bool:
        """Was it published by one host step, and promptly; or by nothing, although all was done that could?"""
        step = late.published_by
        if step is None:
            return reached_end and (self.nudged or self.clause not in WITH_FORM)
        if isinstance(step, Open):
            after = late.published_after
            in_time = after is not None and after <= self.numbers.publication_window(hold)
            return in_time and self.clause != "EVT-LIVE-1"
        return isinstance(step, (SyncStream, SyncDevice))

    @property
    def first(self) -> Late:
        """A late observation that counts."""
        return next(iter(self.proved.values()))

    def finding(self, text: str, second_opinion: str = "") -> Finding:
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
            of=self.before + self.tries,
            second_opinion=second_opinion,
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
