"""The decode pipeline: the virtual clock, and the real-time code on a stand-in for torch (`fake_torch`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import fake_torch
import msgspec
import pytest
from fake_engine import engine
from helpers import cli, environment, is_one_line, python

from conformance.backends.api import GateKind
from conformance.backends.torch_device.engine import open_engine
from conformance.errors import DeviceError, Unsupported
from conformance.pipeline import forms, reported
from conformance.pipeline.bookkeeping import measure_bookkeeping
from conformance.pipeline.decode import run_row, sequence
from conformance.pipeline.device import SIDE, Busy
from conformance.pipeline.jobs import RowJob
from conformance.pipeline.model import CLEAN, LATE_ANY, LATE_NEXT, Shape, seen
from conformance.pipeline.paths import PATHS
from conformance.pipeline.plan import TABLE, checks_of, is_late
from conformance.pipeline.reads import measure_reads
from conformance.pipeline.rules import check_rules
from reports.pipeline import Finding, Parts, PipelineReport, Row

if TYPE_CHECKING:
    from pathlib import Path

    from conformance.pipeline.device import Engine


def ready(**options: Any) -> Engine:
    """An engine that knows how long its work takes."""
    made = engine(**options)
    made.busy.learn(made.main)
    return made


def row(**job: Any) -> Row:
    """One pipeline on the stand-in."""
    return run_row(ready(), RowJob(**{"steps": 20, "sequences": 2} | job))


# ---------------------------------------------------------------------- virtual clock


def test_closed_forms_hold_for_every_depth_and_ring() -> None:
    check = forms.check()
    assert check.disagreements == ()
    assert {(c.in_flight, c.ring, c.lateness) for c in check.cells} == {
        (n, k, lateness) for n in range(1, 9) for k in range(1, 10) for lateness in (LATE_NEXT, LATE_ANY)
    }
    assert len(check.cells) == 288


def test_a_wrong_closed_form_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forms, "worst_lag", lambda n, k, lateness: 0 if k >= n - 1 else k)
    assert any("n=3, k=2" in text and "worst lag" in text for text in forms.check().disagreements)


def test_the_reported_decode_trace_comes_out_and_the_serving_row_does_not() -> None:
    published = reported.published()
    assert len(published.rows) == 6
    assert all(entry.held for entry in published.rows), published.rows
    assert "50% of the waits" in published.alternation
    told = " ".join(published.unexplained)
    assert "TPOT" in told
    assert "TTFT" in told
    before, after = seen(reported.shape(1)), seen(reported.shape(2))
    assert (before.worst_lag, after.worst_lag) == (1, 0)
    # The model's step times: nowhere near the reported ratio of TPOT.
    assert 1.0 < before.step / after.step < 1.1 < 40.9 / 31.05


def test_an_undersized_ring_is_worse_than_none_behind_pipeline_stages() -> None:
    steps = {
        k: seen(Shape(in_flight=3, ring=k, lateness=LATE_NEXT, span=52.0, stages=2, pre=1, post=1)).step
        for k in (1, 2, 3)
    }
    assert steps[2] > 1.3 * steps[1] > 1.3 * steps[3]


def test_a_ring_folded_onto_one_hardware_queue_is_none() -> None:
    assert seen(Shape(in_flight=2, ring=2, lateness=LATE_NEXT, queues=1)).late == 0.5
    assert seen(Shape(in_flight=2, ring=2, lateness=LATE_NEXT, queues=2)).late == 0.0


# ---------------------------------------------------------------------- real time


@pytest.mark.parametrize("by_sleep", [True, False])
def test_the_table_is_what_the_virtual_clock_says(by_sleep: bool) -> None:
    device = ready(by_sleep=by_sleep)
    rows = [run_row(device, RowJob(fault=fault, in_flight=n, ring=k, steps=20, sequences=2)) for fault, n, k in TABLE]
    for found in rows:
        model = found.model
        assert model is not None
        assert found.wrong == 0
        assert found.gpu == pytest.approx(26.0, abs=0.05)
        assert is_late(found) is (found.fault != CLEAN and found.ring < found.in_flight)
        assert (found.worst_lag, found.late) == (model.worst_lag, pytest.approx(model.late, abs=0.01))
        for name, tolerance in (("wait_p10", 0.1), ("wait_p90", 0.1), ("itl_p99", 0.1), ("ttft", 0.1), ("idle", 0.05)):
            assert getattr(found, name) == pytest.approx(getattr(model, name), abs=tolerance), (found, name)
    alternating = next(r for r in rows if (r.fault, r.in_flight, r.ring) == (LATE_NEXT, 2, 1))
    assert alternating.alternates == 1.0
    healthy = next(r for r in rows if (r.fault, r.in_flight, r.ring) == (LATE_NEXT, 3, 1))
    assert (healthy.instant, healthy.late) == (0.0, 1.0)  # every token a step late, and the waits look healthy
    assert all(check.held for check in checks_of(Parts(rows=tuple(rows))))


def test_checks_can_fail() -> None:
    good = row()
    late = row(fault=LATE_NEXT)
    swapped = (
        msgspec.structs.replace(late, fault=CLEAN),  # a device that is late itself
        msgspec.structs.replace(good, fault=LATE_NEXT),  # a fault that does not bite
        msgspec.structs.replace(good, wrong=1),
        Row(fault="", in_flight=2, ring=1, path="ring", output="tokens", switch="context", asked=26.0, note="hang"),
    )
    for bad in swapped:
        assert any(check.decisive and not check.held for check in checks_of(Parts(rows=(bad,)))), bad
    slow = msgspec.structs.replace(good, ring=2, step=1.05 * (good.step or 0))
    clock = [check for check in checks_of(Parts(rows=(good, slow))) if not check.held]
    assert [check.decisive for check in clock] == [False]  # by the clock: told, and no verdict


@pytest.mark.parametrize("output", ["tokens", "pooling"])
@pytest.mark.parametrize("switch", ["context", "set-stream"])
def test_outputs_and_switches(output: str, switch: str) -> None:
    for fault, ring, late in ((CLEAN, 1, False), (LATE_NEXT, 1, True), (LATE_NEXT, 2, False)):
        found = row(fault=fault, ring=ring, output=output, switch=switch, step_ms=8.0)
        assert (is_late(found), found.wrong) == (late, 0)


@pytest.mark.parametrize("fault", ["wait-dropped", "sync-noop"])
@pytest.mark.parametrize("output", ["tokens", "pooling"])
def test_wrong_data_is_found(fault: str, output: str) -> None:
    found = row(fault=fault, output=output)
    assert found.wrong > 0.8 * found.outputs


def test_workarounds_in_real_time_are_in_time_where_the_gates_say_so() -> None:
    device = ready()
    late = {
        path: is_late(run_row(device, RowJob(path=path, ring=2 if path == "ring" else 1, fault=LATE_NEXT, steps=12)))
        for path in PATHS
    }
    assert {path for path, is_it in late.items() if is_it} == {"one stream", "helper wait", "stream query"}
    clean = [run_row(device, RowJob(path=path, steps=12)) for path in PATHS]
    assert not any(is_late(found) or found.wrong for found in clean)


def test_the_host_is_seen_to_queue_what_a_deferred_path_queues_late() -> None:
    deferred, ring = (row(path=path, ring=2) for path in ("deferred wait", "ring"))
    assert deferred.queue_us is not None
    assert ring.queue_us is not None
    assert deferred.queue_us > 0.5 * ring.queue_us


def test_work_of_a_chosen_length_is_learnt_or_refused() -> None:
    device = ready()
    never = Busy(device.surface, lambda stream, amount: None, "nothing")
    with pytest.raises(DeviceError, match="nothing"):
        never.learn(device.main)


class _Backend:
    """As much of a torch backend as an engine is opened from."""

    def __init__(self, kind: str) -> None:
        made = engine()
        self.torch, self.clock, self.main_surface = made.torch, made.clock, made.surface
        self.torch.device = lambda module, index: f"{module}:{index}"
        self.helpers, self.kind = made, kind
        self.given: list[Any] = []
        self.side = made.side

    def gate(self) -> GateKind:
        return GateKind(kind=self.kind, assurance="timed" if self.kind == "sleep" else "causal")

    def take_gate(self) -> fake_torch.Gate:
        return fake_torch.Gate(self.torch.world)

    def streams(self, surface: object) -> Any:
        return [*self.side, *self.side]

    def settle(self, streams: list[Any], gates: list[Any], calls: list[Any]) -> bool:
        self.given += streams
        return True


@pytest.mark.parametrize(
    ("kind", "work", "opens"),
    [
        ("kernel", "the kernel gate", True),
        ("wait-value", "torch.fake._sleep", True),
        ("sleep", "torch.fake._sleep", False),
    ],
)
def test_a_torch_backend_gives_the_work_that_its_gates_allow(kind: str, work: str, opens: bool) -> None:
    backend: Any = _Backend(kind)
    made = open_engine(backend, lambda: None)
    assert (made.busy.name, made.take is not None, made.device) == (work, opens, "cuda:0")
    handles = [made.surface.handle(stream) for stream in (made.main, *made.side)]
    assert len(set(handles)) == len(handles) == 1 + SIDE
    made.busy.learn(made.main)
    assert run_row(made, RowJob(steps=12, sequences=1)).late == 0.0
    assert made.give([made.main], [], [])
    assert [surface is made.surface for surface, _ in backend.given] == [True]


def test_an_engine_is_the_vendors_own_module() -> None:
    backend: Any = _Backend("kernel")
    backend.main_surface = object()
    with pytest.raises(Unsupported, match="--surface vendor"):
        open_engine(backend, lambda: None)


def test_a_beat_between_steps_can_end_a_sequence() -> None:
    class Stop(Exception):
        pass

    beats = 0

    def beat() -> None:
        nonlocal beats
        beats += 1
        if beats > 3:
            raise Stop

    device = ready(beat=beat)
    with pytest.raises(Stop):
        sequence(device, RowJob(steps=20))


# ---------------------------------------------------------------------- what an engine relies on


def test_rules_and_their_look_alikes() -> None:
    found = {finding.what: finding for finding in check_rules(ready(), 8)}
    assert len(found) == 6
    assert all(finding.held for finding in found.values()), found
    assert sum(finding.rule == "control" for finding in found.values()) == 2
    dropped = [f for what, f in found.items() if "record_stream" in what]
    assert [f.found for f in dropped] == ["the copy has its data", "the copy has what a later tensor wrote there"]


def test_events_that_complete_out_of_order_are_found() -> None:
    order = next(f for f in check_rules(ready(unordered=True), 8) if "issue order" in f.what)
    assert order.held is False
    assert "is not complete" in order.found
    assert any(not check.held and check.decisive for check in checks_of(Parts(findings=(order,))))


def test_without_a_gate_nothing_is_shown() -> None:
    device = ready(gates=False)
    assert {f.held for f in check_rules(device, 8) if "record_stream" in f.what} == {None}
    assert {read.waits for read in measure_reads(device, 3)} == {None}


def test_hidden_synchronizations_are_found_by_a_gate() -> None:
    waits = {read.call: read.waits for read in measure_reads(ready(), 3)}
    assert waits.pop('.to("cpu", non_blocking=True)') is False
    assert waits.pop("copy to pinned memory, record") is False
    assert len(waits) == 6
    assert set(waits.values()) == {True}


def test_bookkeeping_before_the_wait_is_hidden() -> None:
    for found in measure_bookkeeping(ready(), 10.0, (0.25, 1.0, 1.5), 12):
        assert found.before == pytest.approx(found.larger, rel=0.01)
        assert found.after == pytest.approx(found.both, rel=0.01)
        assert found.overlap == pytest.approx(1.0, abs=0.02)


# ---------------------------------------------------------------------- the command


def test_the_command_runs_every_part_in_a_child(tmp_path: Path) -> None:
    env = environment(tmp_path.parents[0], STREAM_CONFORMANCE_TEST_CHILD="fake_engine:backend")
    env["PYTHONPATH"] += ":" + str(__file__).rpartition("/")[0]
    parts = ("model", "table", "outputs", "rules", "reads", "bookkeeping", "workarounds")
    options = [word for part in parts for word in ("--part", part)]
    done = python(
        "-m", "conformance", "pipeline", "--backend", "reference", "--steps", 12, "--sequences", 1,
        "--out", tmp_path, *options, cwd=tmp_path, env=env,
    )  # fmt: skip
    assert done.code == 0, done
    report = msgspec.json.decode((tmp_path / "pipeline.json").read_bytes(), type=PipelineReport)
    assert len(report.parts.rows) == len(TABLE) + 13 + 2 * len(PATHS)
    assert report.parts.notes == ()
    assert report.header is not None
    assert report.header.injected == ("fake_engine:backend",)
    text = (tmp_path / "pipeline.md").read_text()
    for title in ("Steps of 26 ms", "What an engine relies on", "Ways of reading", "Bookkeeping", "Workarounds"):
        assert f"## {title}" in text
    assert "What the mechanism does not explain" in done.out


def test_without_hardware_it_is_the_model_and_the_gates(tmp_path: Path) -> None:
    done = cli("pipeline", "--backend", "reference", "--out", tmp_path)
    assert done.code == 0
    assert "no real-time pipeline on reference" in done.err
    report = msgspec.json.decode((tmp_path / "pipeline.json").read_bytes(), type=PipelineReport)
    assert report.parts.rows == ()
    assert report.published is not None


def test_the_model_alone_opens_no_device(tmp_path: Path) -> None:
    done = cli("pipeline", "--backend", "reference", "--part", "model", "--out", tmp_path)
    assert (done.code, "on a virtual clock alone" in done.out) == (0, True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--part", "table"), "runs in real time on a torch device"),
        (("--fault", "late-idle"), "over a pipeline there are"),
        (("--in-flight", "8", "--steps", "12"), "needs 18"),
        (("--part", "model", "--ring", "2"), "add --part row"),
        (("--backend", "no-such"), "unknown backend"),
    ],
)
def test_usage_errors(options: tuple[str, ...], words: str, tmp_path: Path) -> None:
    named = () if "--backend" in options else ("--backend", "reference")
    done = cli("pipeline", *named, *options, "--out", tmp_path)
    assert done.code == 2
    assert words in done.err
    assert is_one_line(done.err)


def test_a_part_that_was_not_done_fails_the_run() -> None:
    checks = checks_of(Parts(notes=("reads: hang",), findings=(Finding(part="rules", what="w", found="f", held=None),)))
    assert [check.held for check in checks] == [True, False]
