"""Asks the layer below the API about a late event, so that a wrapper's defect is told from a driver's.

In a repetition of its own, after the proof: the question may itself change what is seen (a driver may
catch up when it is asked), and no verdict, cause or form may rest on that. Its events are queried whatever the
case does: a helper inside synchronize would be a second thread on the event that is asked about.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from conformance.backends.api import Opinion
from conformance.execution import execute
from probes.program import Record

if TYPE_CHECKING:
    from collections.abc import Iterable

    from conformance.backends.api import Backend
    from conformance.execution import Look, Setting
    from conformance.numbers import Numbers
    from probes.program import Program

#: Repetitions in search of the late event: an intermittent defect may not show at once.
TRIES: Final = 3


def ask(backend: Backend, program: Program, setting: Setting, numbers: Numbers, event: str, hold: float) -> Opinion:
    """What the layer below says of ``event`` while the API calls it late; or why there is no answer."""
    if not any(isinstance(step, Record) and step.event == event for step in program.steps):
        return Opinion(reason="the event was never recorded, so there is no raw handle")
    asking = replace(setting, observe="query", hold=hold, ask_below=True, stop_when_late=False)
    for _ in range(TRIES):
        looks = execute(backend, program, asking, numbers)
        for opinion in _of(looks, event):
            return opinion
    by = "" if setting.observe == "query" else " by query, in which alone it can be asked about"
    return Opinion(reason=f"it was not late again in {TRIES} repetitions{by}")


def _of(looks: Iterable[Look], event: str) -> Iterable[Opinion]:
    return (look.below[event] for look in looks if event in look.below)


def subject(opinion: Opinion | None) -> str:
    """The layer that a late event is laid to: `runtime` where nobody below was asked."""
    if opinion is None or opinion.complete is None:
        return "runtime"
    return "wrapper" if opinion.complete else opinion.layer


def text(opinion: Opinion) -> str:
    """The opinion as a report says it."""
    if opinion.complete is None:
        return f"none: {opinion.reason}"
    if opinion.complete:
        return f"complete by {opinion.call} on the raw handle, while the API says pending"
    return f"pending by {opinion.call} on the raw handle too"
