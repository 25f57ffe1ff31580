"""Proves on deliberately wrong devices that the suite can fail, and on legal ones that it does not.

Each fault of the reference device must be caught by its clause, and nothing outside its list may
fail; decoys and any number of hardware queues stay free of findings. With aliases the devices get
random names, so that nothing that decides can know a fault by its name.
"""

from __future__ import annotations

import os
import random
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from conformance.backends.reference import ReferenceBackend
from conformance.decision import merge_clauses, not_held
from conformance.faults import DECOYS, FAULTS, fault_of, others
from conformance.judgement.statements import CONCURRENCY
from conformance.numbers import Depth, Numbers
from conformance.run import run
from conformance.runner import LocalRunner
from conformance.selection import Selection, select
from conformance.trial.pipeline import LATE
from probes.catalogue import all_probes
from reports.records import ClauseResult, Report, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


#: Two faults at once: what must be found, and the outcomes for two, three and four steps in flight.
PAIRS: Final = {
    ("wait-dropped", "queues-1"): (set[str](), ("not-needed",) * 3),
    ("wait-dropped", "queues-2"): (
        {"EVT-DESTROY-1", "EVT-REREC-2", "EVT-SAFE-1", "EVT-SYNC-1", "EVT-WAIT-1", "EVT-WAIT-6"},
        ("undecided",) * 3,
    ),
    ("late-next-wait", "queues-1"): ({"EVT-INDEP-1"}, ("enable",) * 3),
    ("late-next-wait-queue", "queues-2"): ({"EVT-INDEP-1"}, ("enable", "ineffective", "ineffective")),
}

#: Legal devices that are legal under another profile only, and the SHOULD that they are seen to break there.
ELSEWHERE: Final = {"legal-rerecord": ("hip", {"EVT-REREC-2"})}

#: Legal devices on which nothing can be decided.
UNCLEAR: Final = ("very-slow-device", "gates-expire")

#: Clauses whose probes see nothing happen, and need a control in which it does.
ORDERING: Final = ("EVT-WAIT-1", "EVT-WAIT-6", "EVT-REREC-2", "EVT-DESTROY-1", "STM-WSTREAM-1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What came of one device."""

    faults: tuple[str, ...]
    form: str
    kinds: tuple[str, ...]
    outcomes: tuple[str, ...]  # for two, three and four in flight
    caught: tuple[str, ...]  # clauses that failed
    found: tuple[str, ...]  # these, and SHOULD clauses not held
    killers: tuple[str, ...]  # probes that saw a failure, or a SHOULD that does not hold
    problems: tuple[str, ...]
    #: Where a clause failed: (probe, variant, clause); the variant is left empty where it is no experiment.
    where: frozenset[tuple[str, str, str]] = frozenset()

    @property
    def name(self) -> str:
        """The device's name in the matrix."""
        return " + ".join(self.faults) or "(clean)"


def devices() -> list[tuple[str, ...]]:
    """Every device of the matrix."""
    queues = [(f"queues-{k}",) for k in range(1, 8)]
    return [(), *((name,) for name in FAULTS), *((name,) for name in DECOYS), *queues, *PAIRS]


#: All of the ring's variants.
EVERY: Final = frozenset(case.variant for case in all_probes(1)["ring-1-1"].cases)
#: Those that do for a device whose fault is not about events and waits.
BRIEF: Final = frozenset({"default-wait-stream-side-query", "blocking-wait-default-synchronize"})
#: The level of each of the ring's four factors that counts for `HALF`.
COUNTED: Final = {"flags": "blocking", "spelling": "wait-stream", "main": "default", "observe": "synchronize"}
#: A half fraction (resolution IV) of these four factors of two levels, an odd number of counted levels: any three of
#: them meet at each of their levels. What shows at four levels at once alone, it may miss; `WHOLE` has them all.
HALF: Final = frozenset(
    case.variant
    for case in all_probes(1)["ring-1-1"].cases
    if sum(COUNTED[factor] == level for factor, level in case.factors) % 2 == 1
)
#: The devices that every variant of the ring is run on: the right one, and those of the report that began all this.
WHOLE: Final = ((), ("late-next-wait",), ("late-any-wait",))
#: Devices that are the same to every variant of the ring, and take long over each.
SLOW: Final = ("slow-device", "very-slow-device")


def run_device(faults: tuple[str, ...], alias: str | None = None) -> Row:
    """Run one device, once each variant: the device is deterministic. See `decisive` for which."""
    numbers = Numbers(repeat=1)
    profile = ELSEWHERE[faults[0]][0] if faults and faults[0] in ELSEWHERE else "reference"
    runner = LocalRunner(ReferenceBackend(faults, alias=alias, profile=profile), numbers, Depth.STANDARD)
    elsewhere = {fault.name for fault in others.FAULTS} | {"batch-timer", "priorities-ignored", "legal-rerecord", *SLOW}
    brief = bool(faults) and all(name in elsewhere for name in faults)
    rings = BRIEF if brief else EVERY if faults in WHOLE else HALF
    report = run(runner, decisive(numbers, rings), numbers, measure=False)
    return _row(faults, report)


def decisive(numbers: Numbers, rings: frozenset[str]) -> Selection:
    """What a quick run has, and beside it the two-waits program and the plain variants; of each ring these variants."""
    every = select(numbers)
    plain = {"query-default", "synchronize-default", "synchronize-blocking"}
    plain |= {"copy-far-wait-stream-synchronize-blocking"}
    return Selection(
        cases=tuple(
            (p, c)
            for p, c in every.cases
            if (c.variant in rings if p.family == "ring" else c.quick)
            or c.experiment
            or p.name == "two-waits"
            or c.variant in plain
        )
    )


def _row(faults: tuple[str, ...], report: Report) -> Row:
    merged = merge_clauses(report.results)
    failed = {clause for clause, verdict in merged.items() if verdict is Verdict.NON_CONFORMANT}
    found = failed | not_held(report.results)
    kinds = {c.kind.value for r in report.results for c in r.clauses if c.kind is not None}
    outcomes = tuple(d.outcome.value for d in report.decision.per_in_flight if d.in_flight >= 2)
    form = report.decision.form.value if report.decision.form else ""
    seen_by = [
        r.probe
        for r in report.results
        if any(_fails(c) for c in r.clauses) or (r.ring is not None and r.ring.outcome == LATE)
    ]
    killers = tuple(dict.fromkeys(seen_by))
    return Row(
        faults=faults,
        form=form,
        kinds=tuple(sorted(kinds)),
        outcomes=outcomes,
        caught=tuple(sorted(failed)),
        found=tuple(sorted(found)),
        killers=killers,
        where=frozenset(
            (r.probe, r.variant if r.experiment else "", c.clause)
            for r in report.results
            for c in r.clauses
            if _fails(c)
        ),
        problems=(*_problems(faults, report, failed, found, form, outcomes), *_overlooked(faults, killers)),
    )


def _fails(clause: ClauseResult) -> bool:
    return clause.verdict is Verdict.NON_CONFORMANT or clause.held is False


def _overlooked(faults: tuple[str, ...], killers: tuple[str, ...]) -> Iterable[str]:
    """Probes that say that they catch a fault, and did not."""
    if len(faults) == 1:
        for probe in all_probes().values():
            blind = probe.family == "mixed" or all(case.second_gate for case in probe.cases)
            if faults[0] in probe.faults and probe.name not in killers and not blind:
                yield f"is not seen by {probe.name}, which should catch it"


def _problems(
    faults: tuple[str, ...], report: Report, failed: set[str], found: set[str], form: str, outcomes: tuple[str, ...]
) -> Iterable[str]:
    if faults in PAIRS:
        expected, expected_outcomes = PAIRS[faults]
        if failed != expected:
            yield f"failed {sorted(failed)}, expected {sorted(expected)}"
        if outcomes != expected_outcomes:
            yield f"decided {outcomes}, expected {expected_outcomes}"
    elif not faults or faults[0] in DECOYS:
        yield from _clean(faults, report, found, outcomes)
    else:
        fault = fault_of(faults[0])
        if fault is None:
            yield "is in no catalogue"
            return
        if fault.killed_by not in found:
            yield f"is not killed by {fault.killed_by}"
        if outside := sorted(found - fault.allowed):
            yield f"makes {', '.join(outside)} fail, which are not in its list"
        if outcomes != (fault.outcome,) * 3:
            yield f"decided {outcomes}, expected {fault.outcome}"
        if form != fault.form:
            yield f"form '{form}', expected '{fault.form}'"
    if "queues-1" in faults and "late-next-wait" not in faults:
        yield from _one_queue(report)
    yield from _ring_theorem(report)


def _clean(faults: tuple[str, ...], report: Report, found: set[str], outcomes: tuple[str, ...]) -> Iterable[str]:
    if faults and faults[0] in ELSEWHERE:
        found = found ^ ELSEWHERE[faults[0]][1]
    if found:
        yield f"is legal, but {', '.join(sorted(found))} fail"
    expected = "undecided" if faults and faults[0] in UNCLEAR else "not-needed"
    if outcomes != (expected,) * 3:
        yield f"decided {outcomes}, expected {expected}"
    verdict = Verdict.CONFORMANT if expected == "not-needed" else Verdict.INCONCLUSIVE
    if report.verdict is not verdict:
        yield f"verdict {report.verdict.value} ({report.reason}), expected {verdict.value}"


def _one_queue(report: Report) -> Iterable[str]:
    """On one queue nothing shows the thing happen, so nothing can be said about its not happening."""
    for result in report.results:
        for clause in () if result.experiment else result.clauses:
            if clause.clause in ORDERING and (clause.verdict, clause.reason) != (Verdict.UNSUPPORTED, CONCURRENCY):
                yield f"{result.probe}: {clause.clause} is {clause.verdict.value} on one queue"


def _ring_theorem(report: Report) -> Iterable[str]:
    for depth in report.decision.per_in_flight:
        late = {row.ring: row.late for row in depth.rings}
        if late.get(1) and any(late[k] is False for k in late if 1 < k < depth.in_flight):
            yield f"a ring shorter than {depth.in_flight} is in time although one stream is late"


def selftest(
    names: Sequence[str] = (),
    *,
    seed: int | None = None,
    jobs: int | None = None,
    told: Callable[[Row], None] | None = None,
) -> list[Row]:
    """Run the matrix; with a seed every device goes by a random alias."""
    chosen = [d for d in devices() if not names or any(name in d for name in names)]
    aliases: list[str | None] = [None] * len(chosen)
    if seed is not None:
        rng = random.Random(seed)
        aliases = [f"device-{rng.getrandbits(40):010x}" if faults else None for faults in chosen]
    rows = []
    with ProcessPoolExecutor(max_workers=jobs or os.cpu_count() or 1) as pool:
        for row in pool.map(run_device, chosen, aliases):
            rows.append(row)
            if told is not None:
                told(row)
    return rows
