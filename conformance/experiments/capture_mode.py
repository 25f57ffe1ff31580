"""Queries from another thread while a stream is captured, by the mode of the capture: a poller beside a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from conformance.backends.extras import graphs_of, threads_of
from conformance.errors import Unsupported
from conformance.experiments.bench import failed, held, unclear
from probes.program import Fill, Record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conformance.backends.extras import CaptureMode
    from conformance.experiments.bench import Bench
    from conformance.judgement.statements import Statement

CLAUSE: Final = "CAP-3"


def capture_mode(bench: Bench) -> Iterator[Statement]:
    """Another thread asks for an event from before the capture; the control is the same capture without a question."""
    asked, spoilt = _captured(bench, ask=True)
    _, spoilt_alone = _captured(bench, ask=False)
    bench.note(f"query in another thread, {bench.choice('mode')}", returned=asked != "it does not return")
    if not bench.control(None if spoilt_alone else 0.0):
        yield unclear(CLAUSE, "control: the capture is spoilt without a query too")
    elif bench.choice("mode") == "global":
        yield held(CLAUSE) if asked == "refused" else failed(CLAUSE, f"the query is accepted: {asked}")
    elif asked.startswith("it answers") and not spoilt:  # whether the answer is right is for other clauses
        yield held(CLAUSE)
    else:
        yield failed(CLAUSE, f"the query: {asked}" + ("; the capture is spoilt" if spoilt else ""))


def _captured(bench: Bench, *, ask: bool) -> tuple[str, bool]:
    """(what became of the query, was the capture spoilt?). Raises Unsupported where a thread has no mode."""
    mode = bench.choice("mode")
    exchanged = mode == "exchanged"
    with bench.session(streams=("S", "T"), events=("outside",), buffers=("x",)) as session:
        graphs, threads = graphs_of(bench.backend, session), threads_of(bench.backend, session)
        threads.prepare("asks")
        session.issue(Record(stream="T", event="outside"))
        if not bench.control(bench.until(lambda: session.query("outside"))):
            return "it was never complete", True
        answers: list[bool] = []

        def query() -> None:
            answers.append(session.query("outside"))

        def relaxed() -> None:
            with graphs.relaxed():
                query()

        asked, spoilt = "", False
        graphs.begin("S", "global" if exchanged else cast("CaptureMode", mode))
        try:
            session.issue(Fill(stream="S", buffer="x", value=1))
            if ask:
                call = threads.call("asks", relaxed if exchanged else query)
                back = bench.until(lambda: call.returned) is not None
                if isinstance(call.error, Unsupported):
                    raise call.error
                refused = isinstance(call.error, bench.errors)
                asked = "refused" if refused else f"it answers {answers[0]}" if answers else "it does not return"
                if back and call.error is not None and not refused:
                    raise call.error
        finally:
            try:
                graphs.end("S")
            except bench.errors:
                spoilt = True
            graphs.discard()
        return asked, spoilt
