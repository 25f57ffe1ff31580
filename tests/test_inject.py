"""A wrong runtime under any program: each fault is found by the suite, and nothing else changes. No GPU."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hardware.agreement import EXPLAINED, differences, explanation
from helpers import ROOT, cli
from inject_helpers import Doubles, compile_c, has_compiler, lines
from msgspec.structs import replace

from conformance.faults import FAULTS as CATALOGUE
from conformance.inject import ASKED, FAULTS
from reports.records import Verdict
from reports.store import load_report

pytestmark = pytest.mark.skipif(not has_compiler(), reason="needs a C compiler: no cc on this machine")

NOT_READY = 600
#: The shortest choice of probes that shows a fault by its clause and names its form.
SHOWN_BY = {
    "late-next-wait": ("publication",),
    "late-any-wait": ("publication",),
    "late-sync": ("nothing-behind",),
    "held-by-wait": ("publication",),
    "query-always-true": ("re-record",),
    "sync-noop": ("re-record",),
    "wait-dropped": ("ordering",),
    "wait-newest-record": ("re-record",),
    "rerecord-ignored": ("re-record",),
}


@pytest.fixture(scope="module")
def doubles(tmp_path_factory: pytest.TempPathFactory) -> Doubles:
    """See `Doubles`."""
    return Doubles.make(tmp_path_factory.mktemp("doubles"))


# Each fault, through the suite itself. Its clients look functions up by name.


def test_every_fault_that_can_be_preloaded_is_tested_here() -> None:
    assert set(SHOWN_BY) == set(FAULTS)


@pytest.mark.parametrize(
    ("name", "family", "level"),
    [
        *((name, "cuda", "runtime") for name in SHOWN_BY),
        ("late-any-wait", "cu", "driver"),
        ("wait-newest-record", "cu", "driver"),
        ("late-next-wait", "cuda", "both"),
        ("held-by-wait", "hip", "runtime"),
        ("late-next-wait", "musa", "runtime"),
    ],
)
def test_the_suite_finds_a_preloaded_fault_by_its_clause_and_form(
    doubles: Doubles, name: str, family: str, level: str
) -> None:
    fault = CATALOGUE[name]
    said = doubles.suite(family, SHOWN_BY[name], "--fault", name, "--level", level)
    assert fault.killed_by in said["failed"]
    # An event that is reported before its work is done is found without its data too, where work takes time.
    assert set(said["failed"]) <= fault.allowed | {"MEM-VIS-1"}
    assert said["form"] == fault.form
    assert said["injected"] == [name]


def test_without_a_fault_the_whole_run_is_as_it_was(doubles: Doubles, tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    said = doubles.suite("cuda", (), "--log", log)
    assert (said["verdict"], said["failed"], said["reasons"]) == ("conformant", [], [])
    assert said["injected"] == ["no-fault"]
    written = json.loads(log.read_text())
    assert (written["complete"], written["reached"], written["effects"]) == (True, True, {})
    assert written["calls"]["cudaEventRecord"] > 0


def test_the_ring_cures_a_preloaded_late_runtime(doubles: Doubles) -> None:
    said = doubles.suite("cuda", ("publication", "ring-*"), "--fault", "late-next-wait")
    assert {said["outcomes"][n] for n in ("2", "3", "4")} == {"enable"}


# A program that calls by linked names, with a shared runtime and with a static one.


@pytest.mark.parametrize("scenario", ["core", "own"])
@pytest.mark.parametrize(
    ("fault", "complete", "first", "second"),
    [
        (None, 0, 0, 0),
        ("late-next-wait", NOT_READY, 0, 0),
        ("late-any-wait", NOT_READY, NOT_READY, 0),
    ],
)
def test_when_a_late_event_is_seen(
    doubles: Doubles, fault: str | None, complete: int, first: int, second: int, scenario: str
) -> None:
    options = ("--fault", fault) if fault else ()
    seen = lines(doubles.inject(*options, "--", doubles.client, scenario))
    assert seen["closed"] == NOT_READY
    assert (seen["complete"], seen["first"], seen["second"]) == (complete, first, second)
    assert (seen["error"], seen["misuse"]) == (0, 0)


def test_a_static_runtime_is_reached_through_the_driver_alone(doubles: Doubles) -> None:
    fault = ("--fault", "late-next-wait")
    done = doubles.inject(*fault, "--", doubles.static_client, "core")
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert "not reached" in done.err
    assert "--level driver" in done.err
    assert (
        lines(doubles.inject(*fault, "--level", "driver", "--", doubles.static_client, "core"))["complete"] == NOT_READY
    )


@pytest.mark.parametrize("fault", ["late-next-wait", "late-any-wait", "held-by-wait", "wait-newest-record"])
def test_captures_pass_through_and_are_not_spoilt_from_beside(doubles: Doubles, fault: str, tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    assert lines(doubles.inject("--fault", fault, "--log", log, "--", doubles.client, "capture")) == {
        "end": 0,
        "misuse": 0,
    }
    assert json.loads(log.read_text())["effects"]["captured_calls"] >= 4


@pytest.mark.parametrize("fault", ["late-next-wait", "late-any-wait", "late-sync", "rerecord-ignored"])
def test_threads_that_reuse_and_destroy_events(doubles: Doubles, fault: str) -> None:
    done = doubles.inject("--fault", fault, "--", doubles.client, "stress", 6, 3)
    assert (done.code, done.err) == (0, "")
    *rounds, misuse = done.out.splitlines()
    assert misuse == "misuse 0"
    living = [int(line.split()[1]) for line in rounds]
    # Events of our own are used again, so there are never more of them than the program has events at once.
    assert max(living) <= 6 * 64 + 2 * 16


def test_an_event_that_we_ask_about_is_not_destroyed_meanwhile(doubles: Doubles) -> None:
    assert lines(doubles.inject("--fault", "late-next-wait", "--", doubles.client, "destroyed")) == {"misuse": 0}


@pytest.mark.parametrize("fault", ["held-by-wait", "wait-newest-record", "late-any-wait"])
@pytest.mark.parametrize(
    ("level", "how"),
    [
        ("runtime", ()),
        ("both", ()),
        ("driver", ()),
        ("driver", ("cuCtxDestroy_v2",)),
        ("driver", ("cuDevicePrimaryCtxRelease_v2",)),
    ],
)
def test_a_program_may_reset_the_device_and_go_on(
    doubles: Doubles, fault: str, level: str, how: tuple[str, ...], tmp_path: Path
) -> None:
    log = tmp_path / "log.json"
    client = doubles.static_client if level == "driver" else doubles.client
    done = doubles.inject("--fault", fault, "--level", level, "--log", log, "--", client, "reset", *how)
    assert (done.code, done.out, done.err) == (0, "misuse 0\n" * 2, "")
    effects = json.loads(log.read_text())["effects"]
    kind = {"held-by-wait": "held_copies", "wait-newest-record": "held_waits", "late-any-wait": "recorded_again"}[fault]
    assert effects[kind] >= 3, "the fault is there after a reset as before"
    assert not effects.keys() & {"failed_calls", "holds_not_made", "expired_holds"}


def test_the_numbers_survive_an_abort_and_belong_to_each_process(doubles: Doubles, tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    done = doubles.inject("--fault", "late-next-wait", "--log", log, "--", doubles.client, "abort")
    assert done.code == 128 + 6
    assert json.loads(log.read_text())["effects"]["recorded_again"] == 1
    assert doubles.inject("--fault", "late-next-wait", "--log", log, "--", doubles.client, "fork").code == 0
    written = json.loads(log.read_text())
    assert [process["effects"]["recorded_again"] for process in written["processes"]] == [1]
    assert written["processes_without_calls"] == 1


def test_who_asks_for_the_next_function_gets_the_next(doubles: Doubles, tmp_path: Path) -> None:
    # What RTLD_NEXT means depends on the caller's place, which our own dlsym must not take.
    source = tmp_path / "other.c"
    source.write_text(
        "#define _GNU_SOURCE\n#include <dlfcn.h>\n"
        'int abs(int x) { return ((int (*)(int))dlsym(RTLD_NEXT, "abs"))(x) + 1000; }\n'
    )
    other = compile_c(tmp_path / "other.so", "-shared", "-fPIC", "-fno-builtin", source)
    code = "import ctypes; print(ctypes.CDLL(None).abs(-5), hasattr(ctypes.CDLL(None), 'cudaEventQuery'))"
    done = doubles.inject("--", sys.executable, "-c", code, LD_PRELOAD=str(other))
    assert done.out.split() == ["1005", "False"]


# The engine's call sequence.


def decode(doubles: Doubles, ring: int, *, in_flight: int = 2) -> dict[str, Any]:
    client = ROOT / "docs" / "decode_client.py"
    options = ("--quiet", "--steps", 32, "--step-ms", 20, "--in-flight", in_flight, "--ring", ring)
    done = doubles.inject("--fault", "late-next-wait", "--", sys.executable, client, *options)
    assert done.code == 0, done
    said: dict[str, Any] = json.loads(done.out)
    assert said["wrong_tokens"] == 0
    # A cycle of the stand-in is a nanosecond, by its own clock: no step is shorter than its kernel.
    assert said["step_ms"] > 0.999e-6 * said["cycles"]
    return said


def test_the_decode_client_shows_the_alternation_and_the_ring_cures_it(doubles: Doubles) -> None:
    late, cured, short = decode(doubles, 1), decode(doubles, 2), decode(doubles, 2, in_flight=3)
    # A busy machine may delay a step; that every second one is late has another cause.
    assert late["late_share"] > 0.35
    assert late["alternation"] > 2 * cured["alternation"]
    assert late["late_share"] > 2 * cured["late_share"]
    assert short["worst_lag_steps"] >= 2


# Reports.


def test_a_verdict_that_differs_between_inject_and_the_layer_is_named(tmp_path: Path) -> None:
    assert cli("run", "--backend", "reference", "--depth", "quick", "--probe", "scope", "--out", tmp_path).code == 0
    report = load_report(tmp_path)
    assert differences(report, report) == ()
    first = report.results[0]
    clause = first.clauses[0]
    other = replace(first, clauses=(replace(clause, verdict=Verdict.NON_CONFORMANT), *first.clauses[1:]))
    changed = replace(report, results=(other, *report.results[1:]))
    (one,) = differences(changed, report)
    assert (one.probe, one.variant, one.clause) == (first.probe, first.variant, clause.clause)
    assert not explanation("late-next-wait", one)
    assert len(differences(replace(report, results=report.results[1:]), report)) == len(first.clauses)
    assert {one.fault for one in EXPLAINED} <= set(FAULTS)


def test_a_report_made_under_it_says_so_and_decides_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(ASKED, "late-next-wait,sync-noop")
    assert cli("run", "--backend", "reference", "--depth", "quick", "--probe", "scope", "--out", tmp_path).code == 0
    assert load_report(tmp_path).header.injected == ("late-next-wait", "sync-noop")
    said = cli("decide", tmp_path, "--in-flight", "2", "--any-machine")
    assert said.code == 12
