"""Compares a run under `inject` with one of the fault layer, result for result. The explained list is here.

    python tests/hardware/agreement.py FAULT INJECT-FOLDER LAYER-FOLDER

Prints each difference with its explanation, and exits with 1 if one has none. The table in docs/inject.md says the
same in words.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from reports.records import Report, Verdict
from reports.store import load_report


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """Results that may differ under a fault, and why they do; names are patterns."""

    fault: str
    probe: str
    clause: str
    why: str
    variant: str = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One (probe, variant, clause) that was judged in two ways."""

    probe: str
    variant: str
    clause: str
    inject: str  # verdict and reason; empty: no such result
    layer: str

    def __str__(self) -> str:
        return f"{self.probe} [{self.variant}] {self.clause}: inject '{self.inject}', layer '{self.layer}'"


_HELD_ON_THE_DEVICE = "the layer queues held work once another stream waits for its event; inject holds on the device"
_WHO_LOOKS_FIRST = "by when the host's call returned, it looked at the buffer before or after the copy"
_MET_FIRST = "which clause a chain without its wait breaks first depends on which stream was faster"

EXPLAINED = (
    Explained(fault="held-by-wait", probe="publication-waiter", clause="*", why=_HELD_ON_THE_DEVICE),
    Explained(fault="sync-noop", probe="*", variant="*synchronize*", clause="MEM-VIS-1", why=_WHO_LOOKS_FIRST),
    Explained(fault="sync-noop", probe="legacy-*", variant="*sync*", clause="STM-LEGACY-2", why=_WHO_LOOKS_FIRST),
    Explained(fault="wait-dropped", probe="relayed", variant="*synchronize*", clause="EVT-SYNC-1", why=_MET_FIRST),
    Explained(fault="wait-dropped", probe="work-behind", variant="*synchronize*", clause="EVT-SYNC-1", why=_MET_FIRST),
    Explained(fault="wait-dropped", probe="publication-waiter", clause="EVT-*", why=_MET_FIRST),
    Explained(fault="wait-dropped", probe="ring-*", clause="EVT-*", why=_MET_FIRST),
)


def _judged(report: Report) -> dict[tuple[str, str, str], tuple[Verdict, bool | None, str]]:
    return {(r.probe, r.variant, c.clause): (c.verdict, c.held, c.reason) for r in report.results for c in r.clauses}


def differences(inject: Report, layer: Report) -> tuple[Difference, ...]:
    """All results whose verdicts, or whose answers to a SHOULD, are not the same; also those of one run alone."""
    left, right = _judged(inject), _judged(layer)
    found = []
    for key in sorted(left.keys() | right.keys()):
        one, other = left.get(key), right.get(key)
        if one and other and one[:2] == other[:2]:
            continue
        mine, its = (f"{x[0].value} {x[2]}".strip() if x else "" for x in (one, other))
        found.append(Difference(probe=key[0], variant=key[1], clause=key[2], inject=mine, layer=its))
    return tuple(found)


def explanation(fault: str, difference: Difference) -> str:
    """Why they differ; empty if nothing in the list says so."""
    for one in EXPLAINED:
        if (
            one.fault == fault
            and fnmatchcase(difference.probe, one.probe)
            and fnmatchcase(difference.variant, one.variant)
            and fnmatchcase(difference.clause, one.clause)
        ):
            return one.why
    return ""


def main() -> int:
    """Print, and say by the exit code whether all is explained."""
    fault, *folders = sys.argv[1:]
    inject, layer = (load_report(Path(folder)) for folder in folders)
    found = differences(inject, layer)
    bare = [one for one in found if not explanation(fault, one)]
    count = len(_judged(inject))
    sys.stdout.write(f"{fault}: {len(found)} of {count} results differ, {len(bare)} of them unexplained\n")
    for one in found:
        sys.stdout.write(f"    {one}: {explanation(fault, one) or 'UNEXPLAINED'}\n")
    return 1 if bare else 0


if __name__ == "__main__":
    sys.exit(main())
