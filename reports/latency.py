"""Histograms of latency: their buckets, and the table of a report. Reads records alone."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from tabulate import tabulate

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from reports.records import Result

#: Upper bounds of the buckets in microseconds, each four times the one before; what is not less than the last is
#: under MORE, and what was never seen under NEVER.
BOUNDS: Final = tuple(4**n for n in range(1, 11))
MORE: Final = f">={BOUNDS[-1]}"
NEVER: Final = "never"
#: Every bucket's name, in order.
BUCKETS: Final = (*(f"<{bound}" for bound in BOUNDS), MORE, NEVER)


def bucket(seconds: float | None) -> str:
    """The bucket of a time; None for something never seen."""
    if seconds is None:
        return NEVER
    return next((f"<{bound}" for bound in BOUNDS if seconds * 1e6 < bound), MORE)


def histogram(times: Counter[str]) -> dict[str, int]:
    """Counts by bucket, in the order of the buckets and without the empty ones."""
    return {name: times[name] for name in BUCKETS if times[name]}


def latency_table(results: Iterable[Result]) -> list[str]:
    """Publication latency and lag of each variant, where more than one bucket says anything; as Markdown lines."""
    rows: list[tuple[list[str], Mapping[str, int]]] = []
    for result in results:
        for what, counts in (("latency", result.histogram_us), ("lag", result.lag_histogram_us)):
            if counts:
                rows.append(([result.probe, result.variant, what], counts))
    used = [name for name in BUCKETS if any(counts.get(name) for _, counts in rows)]
    if len(used) < 2:
        return []  # a virtual clock: everything at once
    cells = [[*names, *(counts.get(name, "") for name in used)] for names, counts in rows]
    return [
        "Microseconds from the host step that makes the event owed until it is seen (latency), and from the captured",
        "work's token in host memory until then (lag), by variant.",
        "",
        tabulate(cells, ["probe", "variant", "us", *used], tablefmt="github", disable_numparse=True),
    ]
