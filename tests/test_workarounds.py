"""Workarounds by gates on the reference device, and the price of the ring in a decision."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from helpers import cli

from conformance.backends.reference import ReferenceBackend
from conformance.decision import decide
from conformance.measure.coupling import LATE, STANDS, STREAMS, measure_coupling
from conformance.measure.found import Measurement
from conformance.numbers import Numbers
from conformance.pipeline.workarounds import FAULTS, compare
from conformance.price import SETTINGS, priced
from probes.workarounds import WORKAROUNDS
from reports.records import Decision, DepthDecision, Outcome, ParkedRow
from reports.render import price_lines
from reports.store import load_decision

if TYPE_CHECKING:
    from pathlib import Path

    from reports.pipeline import WorkaroundAnswer

NUMBERS = Numbers()
EVERY = set(WORKAROUNDS)
#: Those that are late, by fault: the rest is in time.
LATE_ONES = {
    "": set[str](),
    "late-next-wait": {"one stream", "helper wait", "stream query"},
    "late-any-wait": {"one stream", "helper wait", "stream query"},
    "late-idle": {"one stream", "helper wait", "stream query", "copy on main"},
    "late-sync": EVERY - {"pinned flag"},
}


def answers(n: int, fault: str, *faults: str) -> dict[str, WorkaroundAnswer]:
    """Every workaround on a device with this fault, by name."""
    backend = ReferenceBackend(faults)
    return {answer.workaround: answer for answer in compare(backend, NUMBERS, n, fault)}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("n", [2, 3])
def test_each_workarounds_answer(fault: str, n: int) -> None:
    found = answers(n, fault)
    assert set(found) == EVERY
    assert {name for name, answer in found.items() if answer.timely is False} == LATE_ONES[fault]
    for answer in found.values():
        # Publication is what is late: where an output is not seen, its data is there all the same.
        assert answer.data is True, answer
        assert answer.timely is not None, answer


def test_one_in_flight_has_nothing_behind_an_event() -> None:
    for fault in FAULTS:
        late = {name for name, answer in answers(1, fault).items() if answer.timely is False}
        assert late == (LATE_ONES[fault] if fault == "late-sync" else set()), fault


def test_work_that_does_not_run_helps_no_flag() -> None:
    """Held work is late execution: then the data is not there either, and polling it in memory is no way out."""
    found = answers(2, "held-by-wait")
    assert found["pinned flag"].timely is False
    assert "is not there either" in found["pinned flag"].reason
    assert found["ring"].timely is True


def test_wrong_and_early_data_are_told() -> None:
    dropped = answers(2, "wait-dropped")
    assert dropped["ring"].data is False
    assert "before its step's gate opened" in answers(2, "query-always-true")["one stream"].reason


def test_a_deferred_copy_needs_streams_that_run_at_once() -> None:
    assert answers(2, "")["deferred wait"].needs_concurrency is False
    assert answers(3, "")["deferred wait"].needs_concurrency is True
    assert not any(a.needs_concurrency for name, a in answers(3, "").items() if name != "deferred wait")
    one_queue = {a.workaround: a for a in compare(ReferenceBackend(("queues-1",)), NUMBERS, 3, "")}
    assert (one_queue["deferred wait"].timely, one_queue["ring"].timely) == (False, True)


def test_a_gate_that_ends_by_itself_answers_nothing() -> None:
    found = compare(ReferenceBackend(("gates-expire",)), NUMBERS, 2, "")
    by_event = [answer for answer in found if answer.workaround != "pinned flag"]
    assert {(answer.timely, answer.reason) for answer in by_event} == {(None, "gate-expired")}


def test_only_what_documents_cover_is_named() -> None:
    assert {name for name, workaround in WORKAROUNDS.items() if not workaround.covered} == {"pinned flag"}


def test_the_tables_last_line_names_the_ring_first(tmp_path: Path) -> None:
    done = cli("pipeline", "--backend", "reference", "--part", "workarounds", "--out", tmp_path)
    line = next(line for line in done.out.splitlines() if line.startswith("The ring stays the default"))
    assert line.endswith("covered: ring, fresh stream, free list, deferred wait, copy on main.")


# ---------------------------------------------------------------------- the price


def coupled(*faults: str) -> dict[tuple[str, int], set[tuple[int, int]]]:
    """The coupled pairs, by question and by how many other streams are alive."""
    found = measure_coupling(ReferenceBackend(faults), NUMBERS)
    assert len(found.values) == len(found.couplings) == 4
    return {(c.what, c.beside): set(c.pairs) for c in found.couplings}


def test_no_pair_is_coupled_where_each_stream_has_a_queue() -> None:
    assert all(pairs == set() for pairs in coupled().values())


def test_the_defect_is_the_diagonal() -> None:
    found = coupled("late-next-wait")
    diagonal = {(i, i) for i in range(STREAMS)}
    assert (found[LATE, 0], found[LATE, 8]) == (diagonal, diagonal)
    assert found[STANDS, 0] == set()


@pytest.mark.parametrize("queues", [3, 5])
def test_shared_queues_are_the_classes_of_coupled_streams(queues: int) -> None:
    found = coupled("late-next-wait-queue", f"queues-{queues}")
    for beside in (0, 8):
        # The gate's stream and the others come first; the rest takes the queues in turn.
        queue = {i: (1 + beside + i) % queues for i in range(STREAMS)}
        free = [i for i in range(STREAMS) if queue[i]]
        assert found[STANDS, beside] == {
            (i, j) for i in free for j in range(STREAMS) if i != j and queue[i] == queue[j]
        }
        assert found[LATE, beside] == {(i, j) for i in queue for j in queue if queue[i] == queue[j]}


def enabled(ring: int) -> Decision:
    """A decision that asks for this ring."""
    depth = DepthDecision(in_flight=ring, outcome=Outcome.ENABLE, ring=ring, reason="", rings=())
    return Decision(needed=Outcome.ENABLE, form=None, per_in_flight=(depth,))


def parks(copy: int | None, kernel: int | None) -> Measurement:
    """What parked copies hold up."""
    rows = (("D2H copy", copy), ("kernel", kernel))
    return Measurement(
        parked=tuple(ParkedRow(behind="D2H copy", work=work, streams=k, tried=k or 20) for work, k in rows)
    )


@pytest.mark.parametrize("backend", ["cuda", "rocm", "musa", "opencl"])
def test_a_ring_that_holds_up_others_is_warned_of_with_the_setting(backend: str) -> None:
    short, long = (priced(enabled(n), backend, parks(4, None)).per_in_flight[0].warning for n in (3, 4))
    assert short == ""
    assert "a ring of 4 parks as many streams, and that holds up an unrelated D2H copy from 4 on" in long
    assert "kernel" not in long
    assert (SETTINGS[backend].split()[0] if backend in SETTINGS else "") in long
    assert ("so set it" in long) is (backend in SETTINGS)


def test_nothing_is_warned_of_that_a_ring_does_not_cause() -> None:
    for measured in (parks(None, None), parks(0, 0), None):
        assert priced(enabled(4), "cuda", measured).per_in_flight[0].warning == ""
    unneeded = decide((), 4)
    assert priced(unneeded, "cuda", parks(1, 1)).per_in_flight == unneeded.per_in_flight


def test_the_price_is_in_every_place(tmp_path: Path) -> None:
    faults = ("--fault", "late-next-wait", "--fault", "queues-4")
    done = cli("run", "--backend", "reference", *faults, "--repeat", 1, "--max-in-flight", 3, "--out", tmp_path)
    assert done.code == 1
    found = load_decision(tmp_path).decision
    assert found.price is not None
    assert {(row.behind, row.work): row.streams for row in found.price.parked}["D2H copy", "D2H copy"] == 3
    warned = {depth.in_flight: bool(depth.warning) for depth in found.per_in_flight}
    assert warned == {1: False, 2: False, 3: True}
    lines = price_lines(found)
    text = (tmp_path / "report.md").read_text()
    assert all(line in done.out and line in text for line in lines)
    assert lines[-1].startswith("warning (3 in flight): a ring of 3 parks")
    said = cli("decide", tmp_path, "--in-flight", 3, "--format", "json", "--allow-simulated")
    assert "warning: a ring of 3 parks" in said.err
    entry = json.loads(said.out)
    assert entry["warning"].startswith("a ring of 3")
    assert entry["price"]["couplings"]
    quiet = cli("decide", tmp_path, "--in-flight", 2, "--allow-simulated")
    assert (quiet.code, quiet.out, quiet.err) == (10, "enable\n", "")
