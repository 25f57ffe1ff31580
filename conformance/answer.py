"""What a report on disk answers for one number of steps in flight, on this machine. Standard library only.

`decide` and the engine's `ring_size` both ask here, so that they cannot disagree. A report that cannot decide is an
answer too: undecided, with the reason. Source: docs/rules.md 3 and 5.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from conformance import fingerprint
from reports.reading import VENDOR, Depth, Found, Outcome, ReportError, find


class Answer(NamedTuple):
    """An outcome, why, and the report's own entry if there is one."""

    in_flight: int
    outcome: Outcome
    reason: str
    entry: Mapping[str, Any] | None = None
    readable: bool = True  # False: there is no report, or it cannot be read, and nobody knows what it says
    late: bool = False  # the report says late: of this depth where it is decided, else of any depth or of the device

    @property
    def ring(self) -> int | None:
        """The ring's length where the outcome is enable."""
        return self.entry["ring"] if self.entry is not None and self.outcome is Outcome.ENABLE else None

    @property
    def warning(self) -> str:
        """What that ring would do to others, or an empty text."""
        return str(self.entry.get("warning", "")) if self.entry is not None and self.ring is not None else ""


def answer(
    path: str | os.PathLike[str],
    in_flight: int,
    *,
    any_machine: bool = False,
    allow_simulated: bool = False,
    backend: str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Answer:
    """The answer of the report at ``path``; never raises for a report that cannot be used.

    With ``backend`` a report of another one is of another machine.
    """
    try:
        found = find(path)
    except ReportError as error:
        return Answer(in_flight, Outcome.UNDECIDED, str(error), readable=False)
    depth = found.depths.get(in_flight)
    late = found.late if depth is None or depth.outcome is Outcome.UNDECIDED else depth.late

    def undecided(reason: str) -> Answer:
        return Answer(in_flight, Outcome.UNDECIDED, reason, late=late)

    if not allow_simulated and (why := _not_hardware(found)):
        return undecided(f"{why} (--allow-simulated accepts it)")
    if backend is not None and found.backend != backend:
        return undecided(f"the report is of backend {found.backend}, and this is {backend}; run the suite on it")
    if not any_machine and (why := _other_machine(found, environ)):
        return undecided(f"{why} (--any-machine accepts it)")
    if depth is None:
        measured = max(found.depths, default=0)
        return undecided(f"the report measured up to {measured} in flight; run again with --max-in-flight {in_flight}")
    if why := of_another_family(found, depth):
        return undecided(why)
    return Answer(in_flight, depth.outcome, depth.reason, {**depth.entry, "price": found.price}, late=late)


def not_of_this_machine(found: Found, environ: Mapping[str, str] = os.environ) -> str:
    """Why a report says nothing of this machine's hardware, or an empty text."""
    return _not_hardware(found) or _other_machine(found, environ)


def of_another_family(found: Found, depth: Depth) -> str:
    """Why an outcome that can switch the ring off does not count for an engine on the vendor's own API; or nothing.

    What is late in another family of calls may be late in this one too, so `enable` counts.
    """
    if VENDOR in found.surfaces or depth.outcome not in (Outcome.NOT_NEEDED, Outcome.INEFFECTIVE):
        return ""
    return (
        f"{depth.outcome.value} by the surface {', '.join(found.surfaces) or 'none'} alone, and engines use the"
        " vendor's; run again without --surface"
    )


def _not_hardware(found: Found) -> str:
    """Why the report is of no real device, or an empty text."""
    if found.simulated:
        return "the report is simulated: no hardware was used"
    if found.fault:
        return f"the report is of an injected fault, {', '.join(found.fault)}"
    if found.injected:
        return f"the runtime was preloaded with {', '.join(found.injected)}"
    return ""


def _other_machine(found: Found, environ: Mapping[str, str]) -> str:
    """Why this machine is not the report's, or an empty text."""
    there = found.parts
    try:
        here = fingerprint.read_here(found.backend, found.device, environ)
    except (OSError, ImportError, AttributeError) as error:  # a vendor's library that is not what it should be
        return f"nobody knows whether the report is of this machine ({type(error).__name__}: {error})"
    different = fingerprint.differences(there, here)
    if not different:
        return ""
    name = different[0]
    return (
        f"the report is of another machine: {', '.join(different)} differ "
        f"({name}: '{there.get(name, '')}' there, '{here.get(name, '')}' here); run the suite here"
    )
