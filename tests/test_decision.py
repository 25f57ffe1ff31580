"""The decision table on results made by hand, and what a report on disk answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from helpers import clause, cli, core, decision_file, pipe, result

from conformance import fingerprint
from conformance.answer import answer
from conformance.decision import decide, sentence
from probes.catalogue import all_probes
from reports.records import Form, Outcome, Verdict
from reports.store import DECISION, encode

if TYPE_CHECKING:
    from pathlib import Path

    from reports.records import DepthDecision, Result

UNSAFE = ("EVT-SAFE-1", "EVT-SYNC-1", "EVT-WAIT-1", "STM-FIFO-1", "STM-WSTREAM-1", "MEM-VIS-1")

#: What each outcome is measured from, for three in flight.
TIMELY = [core(), pipe(1, 3), pipe(2, 3), pipe(3, 3)]
RING_HELPS = [core(Verdict.NON_CONFORMANT), pipe(1, 3, "late", 1), pipe(2, 3, "late", 2), pipe(3, 3)]
NO_RING_HELPS = [core(Verdict.NON_CONFORMANT), pipe(1, 3, "late", 1), pipe(3, 3, "late", 3)]


def depth(results: list[Result], n: int = 3, *, causal: bool = True) -> DepthDecision:
    """The decision for ``n`` in flight."""
    return decide(results, n, causal=causal).per_in_flight[n - 1]


def test_in_time_with_one_copy_stream_needs_no_ring() -> None:
    found = depth(TIMELY)
    assert (found.outcome, found.ring) == (Outcome.NOT_NEEDED, None)
    assert [(row.ring, row.late, row.worst_lag_steps) for row in found.rings] == [(k, False, 0) for k in (1, 2, 3)]


def test_late_with_one_and_in_time_with_n_enables_a_ring_of_n() -> None:
    found = depth(RING_HELPS)
    assert (found.outcome, found.ring) == (Outcome.ENABLE, 3)
    assert [(row.ring, row.late, row.worst_lag_steps) for row in found.rings] == [
        (1, True, 1),
        (2, True, 2),
        (3, False, 0),
    ]
    assert "theorem" not in found.reason


def test_late_with_one_and_with_n_is_ineffective() -> None:
    found = depth(NO_RING_HELPS)
    assert (found.outcome, found.ring) == (Outcome.INEFFECTIVE, None)


def test_one_late_variant_is_enough_and_an_unclear_one_does_not_hide_it() -> None:
    results = [*RING_HELPS, pipe(1, 3), pipe(1, 3, "incomplete"), pipe(1, 3, "late", 2)]
    found = depth(results)
    assert found.outcome is Outcome.ENABLE
    assert found.rings[0].worst_lag_steps == 2


def test_a_lag_without_end_is_null() -> None:
    assert (
        depth([core(Verdict.NON_CONFORMANT), pipe(1, 2, "late", 1), pipe(1, 2, "late"), pipe(2, 2)], 2)
        .rings[0]
        .worst_lag_steps
        is None
    )


def test_only_decisive_variants_count() -> None:
    assert depth([*TIMELY, pipe(1, 3, "late", 1, decisive=False)]).outcome is Outcome.NOT_NEEDED


def test_one_in_flight_follows_the_same_rule_but_for_the_core_clause() -> None:
    assert depth([core(Verdict.NON_CONFORMANT), pipe(1, 1)], 1).outcome is Outcome.NOT_NEEDED
    assert depth([core(Verdict.NON_CONFORMANT), pipe(1, 1, "late", 1)], 1).outcome is Outcome.INEFFECTIVE
    assert depth([core(), pipe(1, 1, "incomplete")], 1).outcome is Outcome.UNDECIDED


def test_each_depth_has_its_own_answer_and_two_in_flight_is_the_headline() -> None:
    results = [core(Verdict.NON_CONFORMANT), pipe(1, 2, "late", 1), pipe(2, 2), *NO_RING_HELPS[1:]]
    decision = decide(results, 4)
    assert [d.outcome for d in decision.per_in_flight] == [
        Outcome.UNDECIDED,
        Outcome.ENABLE,
        Outcome.INEFFECTIVE,
        Outcome.UNDECIDED,
    ]
    assert decision.needed is Outcome.ENABLE
    text = sentence(decision)
    assert "nable the copy-stream ring, as long as the steps in flight (2)" in text
    assert "does not help for 3 in flight" in text
    assert "a workaround that is on stays on" in text


@pytest.mark.parametrize("outcome", ["incomplete", "aliased", "control-late", "patience", "wrong-data", "gate-expired"])
@pytest.mark.parametrize("ring", [1, 3])
def test_a_pipe_that_says_nothing_leaves_its_depth_undecided_and_says_why(ring: int, outcome: str) -> None:
    found = depth([*(TIMELY if ring == 1 else RING_HELPS), pipe(ring, 3, outcome)])
    assert (found.outcome, found.ring, found.reason) == (Outcome.UNDECIDED, None, outcome)
    row = next(row for row in found.rings if row.ring == ring)
    assert (row.late, row.worst_lag_steps, row.reason) == (None, None, outcome)


@pytest.mark.parametrize("proved", ["EVT-LIVE-1", "EVT-REC-1"])
def test_a_late_control_is_excused_by_an_event_that_is_late_whatever_follows(proved: str) -> None:
    pipes = [pipe(k, 3, "control-late") for k in (1, 2, 3)]
    assert depth([core(Verdict.INCONCLUSIVE), *pipes]).outcome is Outcome.UNDECIDED
    excuse = result(clause(proved, Verdict.NON_CONFORMANT), probe="nothing-behind")
    assert depth([core(Verdict.INCONCLUSIVE), excuse, *pipes]).outcome is Outcome.INEFFECTIVE


@pytest.mark.parametrize("results", [TIMELY, RING_HELPS, NO_RING_HELPS], ids=["timely", "helps", "helps-not"])
def test_a_timed_gate_decides_nothing(results: list[Result]) -> None:
    found = depth(results, causal=False)
    assert (found.outcome, found.reason) == (Outcome.UNDECIDED, "timed-gate")


@pytest.mark.parametrize("missing", [1, 3])
def test_what_was_not_measured_decides_nothing(missing: int) -> None:
    found = depth([core(), *(pipe(k, 3) for k in (1, 2, 3) if k != missing)])
    assert (found.outcome, found.reason) == (Outcome.UNDECIDED, "not-measured")


@pytest.mark.parametrize("verdict", [None, *(v for v in Verdict if v is not Verdict.CONFORMANT)])
def test_no_ring_is_needed_only_where_the_core_clause_holds(verdict: Verdict | None) -> None:
    found = depth([*([] if verdict is None else [core(verdict)]), *TIMELY[1:]])
    assert found.outcome is Outcome.UNDECIDED
    assert "EVT-INDEP-1" in found.reason


def test_no_ring_is_needed_on_no_account_of_a_device_that_shows_no_concurrency() -> None:
    blind = result(clause("EVT-INDEP-1", Verdict.UNSUPPORTED, "concurrency"))
    assert depth([*TIMELY, blind]).outcome is Outcome.UNDECIDED


@pytest.mark.parametrize("name", UNSAFE)
def test_an_unsafe_device_gets_neither_not_needed_nor_enable(name: str) -> None:
    unsafe = result(clause(name, Verdict.NON_CONFORMANT), probe="ordering")
    for results in (TIMELY, RING_HELPS):
        found = depth([*results, unsafe])
        assert found.outcome is Outcome.UNDECIDED
        assert "unsafe" in found.reason
        assert name in found.reason
    assert depth([*NO_RING_HELPS, unsafe]).outcome is Outcome.INEFFECTIVE


def test_no_ring_is_needed_only_where_synchronize_is_in_time_too() -> None:
    late = result(clause("EVT-INDEP-3", Verdict.NON_CONFORMANT))
    found = depth([*TIMELY, late])
    assert (found.outcome, found.reason) == (Outcome.UNDECIDED, "EVT-INDEP-3 is non-conformant")
    assert depth([*RING_HELPS, late]).outcome is Outcome.ENABLE


def test_no_ring_is_needed_only_where_fewer_in_flight_are_in_time_too() -> None:
    results = [*TIMELY, pipe(1, 2, "late", 1), pipe(2, 2)]
    found = depth(results)
    assert found.outcome is Outcome.UNDECIDED
    assert "late with 2 in flight" in found.reason
    assert depth([*TIMELY, pipe(1, 2), pipe(1, 4, "late", 1), pipe(4, 4)]).outcome is Outcome.NOT_NEEDED


def test_a_pipeline_that_hung_or_crashed_leaves_its_depth_undecided() -> None:
    for reason in ("hang: no answer for 12.7 s", "crash: signal 11 (SIGSEGV)", "the item gave no answer"):
        assert depth([*TIMELY, pipe(1, 3, reason)]).outcome is Outcome.UNDECIDED


def test_other_findings_leave_the_decision_alone() -> None:
    other = result(clause("EVT-MONO-1", Verdict.NON_CONFORMANT), probe="agree")
    assert depth([*TIMELY, other]).outcome is Outcome.NOT_NEEDED


def test_a_shorter_ring_that_helps_is_shown_and_changes_nothing() -> None:
    found = depth([core(Verdict.NON_CONFORMANT), pipe(1, 3, "late", 1), pipe(2, 3), pipe(3, 3)])
    assert (found.outcome, found.ring) == (Outcome.ENABLE, 3)
    assert "inconclusive" in found.reason
    assert "theorem" in found.reason


def left_out(*names: str) -> frozenset[tuple[str, str]]:
    """Decisive cases of these probes, as left out by name."""
    return frozenset((name, case.variant) for name in names for case in all_probes()[name].cases if case.decisive)


@pytest.mark.parametrize("probe", ["publication", "ring-1-3", "ring-3-3"])
@pytest.mark.parametrize("results", [TIMELY, RING_HELPS], ids=["timely", "helps"])
def test_a_restricted_run_decides_only_if_the_decisive_variants_ran(results: list[Result], probe: str) -> None:
    found = decide(results, 3, missing=left_out(probe)).per_in_flight[2]
    assert found.outcome is Outcome.UNDECIDED
    assert "restricted" in found.reason


def test_what_was_left_out_for_another_depth_does_not_matter() -> None:
    assert decide(TIMELY, 3, missing=left_out("ring-1-2", "ring-2-2")).per_in_flight[2].outcome is Outcome.NOT_NEEDED


def test_the_form_is_the_one_that_most_variants_show() -> None:
    forms = [Form.NEXT_WAIT, Form.IDLE, Form.NEXT_WAIT]
    shown = [result(clause("EVT-INDEP-1", Verdict.NON_CONFORMANT), form=form) for form in forms]
    assert decide([*shown, *RING_HELPS], 3).form is Form.NEXT_WAIT


# What a report on disk answers.


def write(folder: Path, **how: object) -> Path:
    """decision.json with this header."""
    path = folder / DECISION
    path.write_bytes(encode(decision_file(**how)))  # type: ignore[arg-type]
    return path


@pytest.mark.parametrize("outcome", list(Outcome))
def test_a_report_of_this_machine_answers_with_its_own_entry(tmp_path: Path, outcome: Outcome) -> None:
    found = answer(write(tmp_path, outcome=outcome), 3)
    assert (found.outcome, found.in_flight, found.reason) == (outcome, 3, "measured")
    assert found.entry is not None


def test_more_in_flight_than_measured_is_undecided_and_says_what_to_do(tmp_path: Path) -> None:
    found = answer(write(tmp_path), 5)
    assert found.outcome is Outcome.UNDECIDED
    assert "up to 4" in found.reason
    assert "--max-in-flight 5" in found.reason


@pytest.mark.parametrize(
    ("how", "word"),
    [
        ({"simulated": True}, "simulated"),
        ({"fault": ("late-next-wait",)}, "late-next-wait"),
        ({"injected": ("late-idle",)}, "late-idle"),
    ],
)
def test_what_is_not_of_real_hardware_needs_allow_simulated(tmp_path: Path, how: dict[str, object], word: str) -> None:
    path = write(tmp_path, **how)
    for any_machine in (False, True):
        found = answer(path, 2, any_machine=any_machine)
        assert found.outcome is Outcome.UNDECIDED
        assert word in found.reason
    assert answer(path, 2, allow_simulated=True).outcome is Outcome.ENABLE


@pytest.mark.parametrize("name", sorted(fingerprint.read_here("reference")))
@pytest.mark.parametrize("value", ["something else", None, fingerprint.UNKNOWN])
def test_each_part_of_another_machine_is_noticed(tmp_path: Path, name: str, value: str | None) -> None:
    parts = fingerprint.read_here("reference")
    parts.pop(name) if value is None else parts.update({name: value})
    path = write(tmp_path, parts=parts)
    for allow_simulated in (False, True):
        found = answer(path, 2, allow_simulated=allow_simulated)
        assert found.outcome is Outcome.UNDECIDED
        assert name in found.reason
        assert "--any-machine" in found.reason
    assert answer(path, 2, any_machine=True).outcome is Outcome.ENABLE


def test_unknown_matches_not_even_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = fingerprint.read_here("reference") | {"driver": fingerprint.UNKNOWN}
    monkeypatch.setattr(fingerprint, "read_here", lambda *_: dict(parts))
    found = answer(write(tmp_path), 2)
    assert found.outcome is Outcome.UNDECIDED
    assert "driver" in found.reason


def test_none_matches_none(tmp_path: Path) -> None:
    assert fingerprint.read_here("reference")["torch"] == fingerprint.NONE
    assert answer(write(tmp_path), 2).outcome is Outcome.ENABLE


def test_a_report_that_cannot_be_used_is_an_answer_and_no_error(tmp_path: Path) -> None:
    found = answer(tmp_path / "nothing", 2, any_machine=True, allow_simulated=True)
    assert found.outcome is Outcome.UNDECIDED
    assert "does not exist" in found.reason


# A report of another API family than engines use.


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (Outcome.NOT_NEEDED, Outcome.UNDECIDED),
        (Outcome.INEFFECTIVE, Outcome.UNDECIDED),  # `decide --format env` would switch the ring off
        (Outcome.ENABLE, Outcome.ENABLE),
        (Outcome.UNDECIDED, Outcome.UNDECIDED),
    ],
)
@pytest.mark.parametrize("surfaces", [("generic",), ("generic", "mixed"), ()])
def test_a_report_without_the_vendors_surface_switches_nothing_off(
    tmp_path: Path, outcome: Outcome, expected: Outcome, surfaces: tuple[str, ...]
) -> None:
    found = answer(write(tmp_path, outcome=outcome, surfaces=surfaces), 3)
    assert found.outcome is expected
    if expected is not outcome:
        assert "--surface" in found.reason
        assert all(name in found.reason for name in surfaces)
    assert found.late is (outcome in (Outcome.ENABLE, Outcome.INEFFECTIVE))
    assert answer(write(tmp_path, outcome=outcome, surfaces=("vendor", *surfaces)), 3).outcome is outcome


@pytest.mark.parametrize(("outcome", "code"), [(Outcome.NOT_NEEDED, 12), (Outcome.ENABLE, 0)])
def test_a_report_without_the_vendors_surface_is_installed_only_where_it_arms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcome: Outcome, code: int
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    done = cli("decide", write(tmp_path, outcome=outcome, surfaces=("generic",)), "--install")
    assert (done.code, (tmp_path / "state").exists()) == (code, code == 0)
    assert ("--surface" in done.err) is (code == 12)


def test_no_ring_is_needed_only_where_no_event_has_a_form_of_lateness() -> None:
    late = result(clause("EVT-LIVE-1", Verdict.NON_CONFORMANT), probe="nothing-behind", form=Form.IDLE)
    found = depth([*TIMELY, late])
    assert found.outcome is Outcome.UNDECIDED
    assert "idle" in found.reason
    assert depth([core(), pipe(1, 1), late], 1).outcome is Outcome.NOT_NEEDED
    assert depth([*RING_HELPS, late]).outcome is Outcome.ENABLE
