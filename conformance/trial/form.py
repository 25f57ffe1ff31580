"""The form of a late event: what finally publishes it, read from the two-waits program.

Source: docs/rules.md 2, "Form". One later wait cannot tell next-wait from any-wait.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from conformance.backends.api import Backend
from conformance.execution import Look, Outcome, Setting, execute
from conformance.numbers import Numbers
from conformance.trial.controls import sound_looks
from probes.program import Open, Program, Step, SyncDevice, SyncStream
from reports.records import Form

#: What the opening of each gate of the two-waits program publishes, by form.
_GATES: Final = {"g2": Form.NEXT_WAIT, "g3": Form.ANY_WAIT, "g4": Form.IDLE}


def form_of_step(step: Step | None) -> Form:
    """The form that a publication by this host step means."""
    if isinstance(step, Open):
        return _GATES.get(step.gate, Form.IDLE)
    return Form.SYNC if isinstance(step, (SyncStream, SyncDevice)) else Form.NEVER


def read_form(
    backend: Backend, program: Program, setting: Setting, numbers: Numbers, holds: tuple[float, ...]
) -> Form | None:
    """The form on which three holds agree; None if none does within the tries allowed."""
    proved: dict[Form, set[float]] = {}
    latest: set[float] = set()
    fruitless = 0
    for _ in range(numbers.tries):
        if fruitless > len(holds):
            break
        hold = max(set(holds) - latest)
        looks = execute(backend, program, replace(setting, hold=hold), numbers)
        if sound_looks(program, looks) < len(looks):
            fruitless += 1
            continue  # a gate ended by itself: what published the event cannot be read
        late, form = _read(looks, program, numbers.publication_window(hold))
        if not late:
            continue  # an intermittent defect: try again
        if form is None:
            fruitless += 1
            continue
        latest = proved.setdefault(form, set())
        latest.add(hold)
        if len(latest) == len(holds):
            return form
    return None


def _read(looks: list[Look], program: Program, window: float) -> tuple[bool, Form | None]:
    """Was e late after g1 opened; and if one gate or call published it, the form."""
    late = False
    for look in looks:
        step = look.call.step if look.call is not None else None
        seen = look.events.get("e")
        if seen is None:
            continue
        if step == Open(gate="g1"):
            late = not seen.ever
            if not late:
                return False, None
        elif late and seen.ever:
            in_time = not isinstance(step, Open) or (seen.after is not None and seen.after <= window)
            return True, form_of_step(step) if in_time else None
    host_points = sum(isinstance(step, (Open, SyncStream, SyncDevice)) for step in program.steps) + 1
    last = looks[-1].call
    every_nudge = len(looks) == host_points or (last is not None and last.outcome is Outcome.BLOCKED)
    return late, Form.NEVER if every_nudge else None
