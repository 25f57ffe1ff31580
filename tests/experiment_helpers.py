"""What the tests of experiments share: all of them run on a backend, and what came of it read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conformance.numbers import Numbers
from conformance.runner import run_one
from conformance.trial.state import RunState
from probes.beside import PROBES
from reports.records import Result, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from conformance.backends.api import Backend

ONCE = Numbers(repeat=1)
#: Where a wrong mode of capture is seen, and where a wrong copy of a large block is.
MODED = {f"capture-rules[other-thread-{mode}]" for mode in ("thread-local", "relaxed", "exchanged")}
LARGE = {f"block-copies[{how}-{size}]" for how in ("query", "synchronize") for size in (65536, 1 << 20, 1 << 24)}


def results(backend: Backend, names: Iterable[str] = (), numbers: Numbers = ONCE) -> dict[str, Result]:
    """What came of these probes (or of all), by probe[variant]."""
    state = RunState(numbers)
    return {
        f"{probe.name}[{case.variant}]": run_one(backend, probe, case, state)
        for probe in PROBES
        for case in probe.cases
        if not names or probe.name in names
    }


def broken(found: dict[str, Result]) -> dict[str, set[str]]:
    """Clause -> where it failed or, for a SHOULD, did not hold."""
    wrong: dict[str, set[str]] = {}
    for where, result in found.items():
        for clause in result.clauses:
            if clause.verdict is Verdict.NON_CONFORMANT or clause.held is False:
                wrong.setdefault(clause.clause, set()).add(where)
    return wrong


def assert_right(found: dict[str, Result]) -> None:
    """Every clause was judged or observed to hold, and every control that was tried did what it must."""
    for where, result in found.items():
        assert all(c.verdict is Verdict.CONFORMANT or c.held for c in result.clauses), (where, result.clauses)
        assert result.control is not None, where
        assert result.control.on_time == result.control.tried > 0, (where, result.control)
