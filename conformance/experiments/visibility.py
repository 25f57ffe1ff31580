"""Data in host memory at the moment at which the host first sees its event complete, over sizes and writers.

Other sizes take other ways: tiny copies travel inside the command, large ones through engines of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from conformance.backends.extras import blocks_of
from conformance.experiments.bench import EXPIRED, failed, held, raised, unclear
from probes.program import Gate, Record, Sync, SyncStream

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conformance.experiments.bench import Bench
    from conformance.judgement.statements import Statement


def block(bench: Bench) -> Iterator[Statement]:
    """One block behind a gate and before a record, by a copy or by a kernel's stores."""
    (clause,) = bench.case.clauses
    size, by_kernel = int(bench.choice("bytes")), bench.choice("writer") == "kernel"
    value = 1 + bench.number % 127  # never what an earlier repetition left
    with bench.session(streams=("S",), events=("e",), gates=("g",)) as session:
        blocks = blocks_of(bench.backend, session)
        blocks.make("b", size, stored=by_kernel)
        session.issue(Gate(stream="S", gate="g"))
        if by_kernel:
            blocks.store("S", "b", value)
        else:
            blocks.fill("S", "b", value)
            blocks.copy("S", "b")
        session.issue(Record(stream="S", event="e"))
        waiter = session.start(Sync(event="e")) if bench.case.observe == "synchronize" else None

        def seen() -> bool:
            if waiter is None:
                return session.query("e")
            if waiter.returned:
                raised(waiter)
            return waiter.returned

        early, there, ended = bench.slips(seen), blocks.holds("b", value), session.ended("g")
        bench.note("(before)", events={"e": ("PEND", early)}, buffers={"b": int(there)})
        session.open("g")
        after = bench.until(seen)
        whole = blocks.holds("b", value)
        bench.note("open g", events={"e": ("MUST", after is not None)}, buffers={"b": int(whole)}, seconds=after or 0.0)
        if ended:
            yield unclear(clause, EXPIRED)
        elif early or after is None:
            yield unclear(clause, "the event is not in time" if not early else "the event is early")
        elif there:
            yield unclear(clause, "control: the data is not held by the gate")
        elif whole:
            bench.control(after)
            yield held(clause)
        else:
            late = bench.until(lambda: blocks.holds("b", value))
            if late is None:
                # Nothing was seen to arrive: a synchronize of the whole stream is the last chance.
                last = session.start(SyncStream(stream="S"))
                bench.until(lambda: last.returned)
                late = bench.until(lambda: blocks.holds("b", value), 0.0)
            if bench.control(late):
                yield failed(clause, f"the event is complete before {size} bytes are in host memory")
            else:
                yield unclear(clause, "no-witness")
