"""The mechanism class of a late event, read from walks. docs/rules.md 2, "Mechanism".

The second walk asks for longer than the first took in all before it nudges, so that what only takes time is
not put down to a nudge.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from conformance.ladder.walk import Nudge, Taken, Walked, alone, walk
from conformance.model import Model
from probes.transform import without
from reports.records import LadderStep, Mechanism, MechanismClass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from conformance.backends.api import Backend
    from conformance.execution import Setting
    from conformance.numbers import Numbers
    from probes.program import Program

#: For how long the first walk asks before it nudges, in seconds.
ASK_AGAIN: Final = 0.5
ASK_AGAIN_QUICK: Final = 0.1
#: The second walk asks for so many times what the first took until the event was seen, at most for so much of a
#: gate's limit.
LONGER: Final = 1.5
OF_LIMIT: Final = 0.7
#: Walks until two of them meet the event late.
TRIES: Final = 5

#: Nudges that make a device submit what it has gathered.
_FLUSHES: Final = (Nudge.STREAM_QUERY, Nudge.OPERATION, Nudge.BESIDE)
_SYNCS: Final = (Nudge.SYNC_STREAM, Nudge.SYNC_DEVICE)


def explain(
    backend: Backend,
    program: Program,
    setting: Setting,
    numbers: Numbers,
    *,
    event: str,
    at: int,
    pauses: Mapping[int, float] | None = None,
) -> Mechanism | None:
    """What delays ``event``, owed after ``at`` steps of ``program``; None if no walk meets it late.

    Takes a few seconds at most, and every gate is closed for less than its limit. Raises what the backend raises.
    """
    again = ASK_AGAIN_QUICK if numbers.quick else ASK_AGAIN
    met: list[Walked] = []
    for _ in range(TRIES):
        walked = walk(backend, program, setting, numbers, event=event, at=at, again=again, pauses=pauses)
        if _says(walked, numbers):
            met.append(walked)
            taken = walked.publisher.at if walked.publisher is not None else again
            again = max(again, min(LONGER * taken, OF_LIMIT * numbers.gate_limit))
        if len(met) == 2:
            break
    if not met:
        return None
    shared = None
    if all(_by(w) is Nudge.LATER_GATE for w in met) and (control := _without_tail(program, event)) is not None:
        shared = alone(backend, control, setting, numbers, event=event, at=at, pauses=pauses)
    return classify(met, shared, numbers)


def unwalked(event: str, error: Exception) -> Mechanism:
    """The record of a ladder that the device did not let be walked to its end."""
    text = " ".join(f"the ladder could not be walked: {type(error).__name__}: {error}".split())
    return Mechanism(name=MechanismClass.UNCLEAR, text=text, event=event, by="")


def _without_tail(program: Program, event: str) -> Program | None:
    """The program without what stands behind the event's record, and behind the records that it waits for."""
    model = Model()
    for number, step in enumerate(program.steps):
        model.feed(step, number)
    record = model.current[event]
    awaited = [n.bound for n in model.closure(record) if n.kind == "wait" and n.bound is not None]
    behind = {
        node.step
        for head in (record, *awaited)
        for node in model.behind(head)
        if not model.captures(record, node) and not (node.temporary and node.kind == "record")
    }
    return without(program, behind) if behind else None


def _says(walked: Walked, numbers: Numbers) -> bool:
    """Does a walk say anything: was the event late, no gate ended by itself, or a call long?"""
    if _stalled(walked, numbers):
        return True
    prompt = walked.publisher is not None and walked.publisher.at < numbers.harvest and _by(walked) is Nudge.AGAIN
    return walked.late and not prompt and not walked.expired


def _by(walked: Walked) -> Nudge | None:
    return walked.publisher.nudge if walked.publisher is not None else None


def _slow(walked: Walked, numbers: Numbers) -> bool:
    """Was the event seen later than a publication window after the nudge that seems to publish it?"""
    publisher = walked.publisher
    return publisher is not None and publisher.after > 2 * numbers.publication_window(0.0)


def _stalled(walked: Walked, numbers: Numbers) -> Taken | None:
    """The nudge in which a call that must return at once did not."""
    longest = walked.longest
    return longest if longest is not None and longest.longest >= numbers.harvest else None


def classify(met: list[Walked], shared: Walked | None, numbers: Numbers) -> Mechanism:
    """The class that one or two walks show. ``shared`` is the walk without its own stream's later operations."""
    first = met[0]
    name, text = _class(met, shared, numbers)
    publisher = first.publisher
    return Mechanism(
        name=name,
        text=text if len(met) == 2 else f"{text} (met once in {TRIES} walks)",
        event=first.event,
        by=publisher.what if publisher is not None else "",
        driver=first.driver,
        steps=tuple(
            LadderStep(
                nudge=taken.nudge.value,
                what=taken.what,
                seen=taken.seen,
                token=taken.token,
                at_us=round(taken.at * 1e6, 1),
                longest_call_us=round(taken.longest * 1e6, 1),
                note=taken.note,
            )
            for taken in first.taken
        ),
    )


def _class(met: list[Walked], shared: Walked | None, numbers: Numbers) -> tuple[MechanismClass, str]:
    stalls = [_stalled(walked, numbers) for walked in met]
    if all(stalls) and (stall := stalls[0]) is not None:
        long = f"a call at '{stall.what}' took {stall.longest * 1e3:.0f} ms and must return at once"
        return MechanismClass.LOCK_STALL, f"{long}: the host is held in the call, whatever became of the event"
    if any(walked.driver for walked in met):
        name, text = _by_walks(met, shared, numbers)
        below = "the layer below the API reports the event complete, and the API does not"
        return MechanismClass.WRAPPER, f"{below}; to the API it looks like {name.value}: {text}"
    return _by_walks(met, shared, numbers)


def _by_walks(met: list[Walked], shared: Walked | None, numbers: Numbers) -> tuple[MechanismClass, str]:
    by = [walked.publisher.what if walked.publisher is not None else "nothing" for walked in met]
    if any(_by(walked) is Nudge.AGAIN for walked in met):
        times = [walked.publisher.at for walked in met if walked.publisher is not None]
        seen = f"seen {times[-1] * 1e3:.0f} ms after it was owed, with no nudge but to be asked"
        return MechanismClass.BATCHING, f"{seen}: a timer, or a device that is slow here"
    if len(set(by)) > 1:
        return MechanismClass.UNCLEAR, f"published by {by[0]} in one walk, and by {by[1]} in another"
    if any(_slow(walked, numbers) for walked in met):
        return MechanismClass.UNCLEAR, f"seen only long after a {by[0]}: a device that is slow here"
    return _by_publisher(met[0], shared)


def _by_publisher(walked: Walked, shared: Walked | None) -> tuple[MechanismClass, str]:
    publisher, held = walked.publisher, walked.token_first is False
    late = "its captured work is not done" if held else "its token is in host memory"
    if publisher is None:
        if held:
            return MechanismClass.EXECUTION_HELD, "its captured work is not done, and no nudge gets it done"
        return MechanismClass.LOST_WAKE_UP, "its token is in host memory, and no nudge gets the event seen"
    what = publisher.what
    if publisher.nudge in _FLUSHES:
        return MechanismClass.BATCHING, f"{late} until {what} lets it go"
    if publisher.nudge in _SYNCS:
        if held:
            return MechanismClass.BATCHING, f"{late} until a {what} submits it"
        return MechanismClass.LOST_WAKE_UP, f"{late}; the event is seen only after a {what}"
    if publisher.nudge is Nudge.OTHER_GATE or (shared is not None and _delayed_by_others(shared)):
        gate = shared.publisher.what if shared is not None and shared.publisher is not None else what
        return (
            MechanismClass.SHARED_QUEUE,
            f"{late}; {gate} publishes it, for which nothing behind it on its own stream waits",
        )
    if walked.awaited:
        what_for = "what it waits for is done"
        return MechanismClass.TAIL_COUPLING, f"{what_for}; a waiting stream sees that only after {what}, which is later"
    if held:
        return MechanismClass.EXECUTION_HELD, f"{late} until {what}, which stands behind it on its stream"
    return MechanismClass.TAIL_COUPLING, f"{late}; the event is seen only after {what}, which stands behind it"


def _delayed_by_others(shared: Walked) -> bool:
    return shared.late and not shared.expired and _by(shared) in (Nudge.OTHER_GATE, Nudge.LATER_GATE)
