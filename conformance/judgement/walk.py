"""The state of one judgement: the program, its looks, and the model beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from conformance.execution import Look, Observe
from conformance.judgement.statements import CONTRADICTIONS, Late, Statement
from conformance.model import Model, Node
from probes.program import Program, WaitStream
from reports.records import Kind, Verdict


class Controls(Protocol):
    """Runs controls on the same device, in the same setting."""

    once_only: bool  # late events are looked at once and not followed up
    after_live: bool  # it is proved that events are late whatever stands behind them: controls are late too
    needed: float  # seconds that a token took to come in a control, where that was longer than it was watched for

    def run(self, program: Program, observe: Observe, last_look: int) -> Sequence[Look]:
        """Run a control now, up to the look of this index."""
        ...

    def doubtful(self, program: Program) -> bool:
        """Has the control not been run twice in a row yet?"""
        ...

    def once(self, program: Program, last_look: int) -> Sequence[Look]:
        """The tokens of a control that may have been run for an earlier repetition, up to a look."""
        ...

    def once_more(self, program: Program, last_look: int) -> Sequence[Look]:
        """The same, run now."""
        ...


@dataclass(slots=True)
class Walk:
    """The state of one judgement: the model at the current look, and what was said so far."""

    program: Program
    observe: Observe
    looks: Sequence[Look]
    controls: Controls
    model: Model = field(default_factory=Model)
    said: list[Statement] = field(default_factory=list)
    seen_of: dict[str, Node] = field(default_factory=dict)  # event -> its record seen complete
    late: dict[str, tuple[Node, str, Late]] = field(default_factory=dict)
    shown_to_happen: set[tuple[int, frozenset[str], frozenset[int]]] = field(default_factory=set)
    early: set[int] = field(default_factory=set)  # records that were seen complete before they could be
    expired: set[str] = field(default_factory=set)  # gates that ended by themselves, at any look so far
    busy: set[str] = field(default_factory=set)  # streams that were reported busy while they were
    index: int = 0  # of the current look

    @property
    def look(self) -> Look:
        """The current look."""
        return self.looks[self.index]

    @property
    def by_query(self) -> bool:
        """Are events asked, or is a helper inside synchronize?"""
        return self.observe == "query"

    def say(
        self,
        clause: str,
        verdict: Verdict,
        reason: str = "",
        *,
        kind: Kind | None = None,
        event: str = "",
        held: bool | None = None,
        late: Late | None = None,
        repeat: bool = False,
        proved_closed: bool = False,
    ) -> None:
        """Add a statement; a gate that ended by itself takes its force from all but a contradiction.

        ``proved_closed`` marks an early event or token that another gate, shown closed, holds.
        """
        self.expired |= self.look.ended - self.model.opened
        spared = proved_closed or clause in CONTRADICTIONS
        if self.expired and not spared and verdict is not Verdict.UNSUPPORTED:
            verdict, reason, kind, late, held, repeat = Verdict.INCONCLUSIVE, "gate-expired", None, None, None, False
        self.said.append(
            Statement(
                clause=clause,
                verdict=verdict,
                reason=reason,
                kind=kind,
                event=event,
                look=self.index,
                held=held,
                late=late,
                repeat=repeat,
            )
        )

    def there(self, look: Look, want: dict[str, int]) -> bool:
        """Do the buffers of a look hold these tokens?"""
        return all(look.buffers.get(buffer) == value for buffer, value in want.items())

    def waits(self, record: Node) -> list[Node]:
        """The waits that a record captures."""
        return [node for node in self.model.closure(record) if node.kind == "wait"]

    def behind(self, node: Node) -> list[Node]:
        """What the program put behind a node on its stream (not what another stream's wait-stream put there)."""
        mine = []
        for other in self.model.behind(node):
            step = self.program.steps[other.step]
            if not (isinstance(step, WaitStream) and step.stream != node.stream):
                mine.append(other)
        return mine
