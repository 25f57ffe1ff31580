"""What a report on disk answers for one number of steps in flight, on this machine.

A report that cannot decide is an answer too: undecided, with the reason. Source: docs/rules.md 3 and 5.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from conformance import fingerprint
from reports.records import DecisionFile, DepthDecision, Outcome
from reports.store import ReportError, load_decision


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An outcome, why, and the report's own entry if there is one."""

    in_flight: int
    outcome: Outcome
    reason: str
    entry: DepthDecision | None = None


def answer(path: Path, in_flight: int, *, any_machine: bool = False, allow_simulated: bool = False) -> Answer:
    """The answer of the report at ``path``; never raises for a report that cannot be used."""

    def undecided(reason: str) -> Answer:
        return Answer(in_flight=in_flight, outcome=Outcome.UNDECIDED, reason=reason)

    try:
        found = load_decision(path)
    except ReportError as error:
        return undecided(str(error))
    header = found.header
    if not allow_simulated:
        if header.simulated:
            return undecided("the report is simulated: no hardware was used (--allow-simulated accepts it)")
        if header.fault:
            return undecided(
                f"the report is of an injected fault, {', '.join(header.fault)} (--allow-simulated accepts it)"
            )
        if header.injected:
            return undecided(
                f"the runtime was preloaded with {', '.join(header.injected)} (--allow-simulated accepts it)"
            )
    if not any_machine and (why := _other_machine(found)):
        return undecided(why)
    entry = next((depth for depth in found.decision.per_in_flight if depth.in_flight == in_flight), None)
    if entry is None:
        measured = max((depth.in_flight for depth in found.decision.per_in_flight), default=0)
        return undecided(f"the report measured up to {measured} in flight; run again with --max-in-flight {in_flight}")
    return Answer(in_flight=in_flight, outcome=entry.outcome, reason=entry.reason, entry=entry)


def _other_machine(found: DecisionFile) -> str:
    """Why this machine is not the report's, or an empty text."""
    there = found.header.fingerprint.parts
    here = fingerprint.read_here(found.header.backend, found.header.device.index)
    different = fingerprint.differences(there, here)
    if not different:
        return ""
    name = different[0]
    return (
        f"the report is of another machine: {', '.join(different)} differ "
        f"({name}: '{there.get(name, '')}' there, '{here.get(name, '')}' here); run the suite here, or --any-machine"
    )
