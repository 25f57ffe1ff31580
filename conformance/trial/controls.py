"""Runs the controls of one case, and remembers what they showed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from conformance.backends.api import Backend
from conformance.execution import Look, Observe, Setting, execute
from conformance.model import Model
from conformance.numbers import Numbers
from probes.program import Open, Program
from probes.transform import without

#: A control that is not on time by then could not make any hold count (`Numbers.patience`).
CONTROL_HOLD: Final = 0.1

#: The same in a run that has proved EVT-LIVE-1. There controls are late too, and each of them would cost its hold;
#: where one is on time after all, that is a few publication latencies, far below this.
CONTROL_HOLD_AFTER_LIVE: Final = 0.02

#: Runs of a control whose gates ended by themselves, before it counts as showing nothing.
TRIES: Final = 3


@dataclass(slots=True)
class ControlRunner:
    """The controls of one case on one device."""

    backend: Backend
    setting: Setting
    numbers: Numbers
    once_only: bool = False  # late events are not followed up
    after_live: bool = False  # the run has proved EVT-LIVE-1
    needed: float = 0.0  # seconds that a token took to come in a control: so long it must be watched for
    latest: dict[tuple[Program, Observe], Sequence[Look]] = field(default_factory=dict)
    _kept: dict[Program, Sequence[Look]] = field(default_factory=dict)
    _runs: Counter[Program] = field(default_factory=Counter)

    def run(
        self, program: Program, observe: Observe, last_look: int | None = None, *, stop_when_late: bool = False
    ) -> Sequence[Look]:
        """Run a control now, up to a look. What it shows after a gate of its own ended by itself is left out."""
        setting = replace(self._setting(observe, last_look), stop_when_late=stop_when_late)
        looks = self._sound(program, setting)
        self.latest[program, observe] = looks
        self._runs[program] += 1
        return looks

    def doubtful(self, program: Program) -> bool:
        """Has the control been run less than twice? Then its being late may have been a hiccup."""
        return self._runs[program] < 2

    def once(self, program: Program, last_look: int) -> Sequence[Look]:
        """Run a control for its tokens, the first time only: for what it shows to happen, once a case is enough."""
        return self._tokens(program, last_look, self._kept.get(program, ()))

    def once_more(self, program: Program, last_look: int) -> Sequence[Look]:
        """The same, run again: the first time may have met a hiccup."""
        return self._tokens(program, last_look, ())

    def _tokens(self, program: Program, last_look: int, kept: Sequence[Look]) -> Sequence[Look]:
        if last_look >= len(kept):
            setting = replace(self._setting(self.setting.observe, last_look), tokens_only=True)
            kept = self._kept[program] = self._sound(program, setting)
        return kept

    def _setting(self, observe: Observe, last_look: int | None) -> Setting:
        hold = min(self.setting.hold, CONTROL_HOLD_AFTER_LIVE if self.after_live else CONTROL_HOLD)
        return replace(self.setting, observe=observe, hold=hold, stop_when_late=False, last_look=last_look)

    def _sound(self, program: Program, setting: Setting) -> Sequence[Look]:
        looks: list[Look] = []
        for _ in range(TRIES):
            looks = execute(self.backend, program, setting, self.numbers)
            sound = sound_looks(program, looks)
            if sound == len(looks):
                break
            looks = looks[:sound]
        return looks


def sound_looks(program: Program, looks: Sequence[Look]) -> int:
    """How many looks were taken before any gate ended by itself."""
    opened: set[str] = set()
    done = 0
    for number, look in enumerate(looks):
        opened |= {step.gate for step in program.steps[done : look.at] if isinstance(step, Open)}
        done = look.at
        if look.ended - opened:
            return number
    return len(looks)


def own_control(program: Program, event: str) -> Program | None:
    """The first control of the ladder: without what stands behind the event's record on its own stream."""
    model = Model()
    for number, step in enumerate(program.steps):
        model.feed(step, number)
    record = model.current.get(event)
    if record is None:
        return None
    behind = {node.step for node in model.behind(record) if not node.temporary or node.kind == "wait"}
    return without(program, behind) if behind else None
