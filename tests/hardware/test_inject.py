"""A preloaded fault under the real runtime: the suite finds it, an engine's loop shows it, nothing else changes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers import ROOT, Done, environment

from conformance.backends.registry import find
from conformance.decision import merge_clauses
from conformance.faults import FAULTS as CATALOGUE
from conformance.inject import FAULTS
from reports.records import Report, Verdict
from reports.store import load_report

CUDA = find("cuda")
pytestmark = [pytest.mark.hardware, pytest.mark.skipif(not CUDA.here, reason=CUDA.reason)]

#: Seconds that a command may take before it counts as hung.
PATIENCE = 240.0
#: An event that is reported before its work is done is found without its data too, where the work takes time.
WITHOUT_DATA = frozenset({"query-always-true", "sync-noop", "wait-dropped", "rerecord-ignored"})
SUITE = ("-m", "conformance", "run", "--backend", "cuda", "--depth", "quick")


def run(*arguments: object) -> Done:
    """This interpreter with these arguments; killed with its group if it hangs."""
    process = subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=PATIENCE)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    return Done(process.returncode, out, err)


def inject(*arguments: object) -> Done:
    """The command `inject`."""
    return run("-m", "conformance", "inject", *arguments)


def failed(report: Report) -> set[str]:
    """The MUST clauses that failed."""
    must = {c.clause for r in report.results for c in r.clauses if c.level == "MUST"}
    return {c for c, verdict in merge_clauses(report.results).items() if verdict is Verdict.NON_CONFORMANT} & must


@pytest.mark.parametrize("name", FAULTS)
def test_a_preloaded_fault_is_found_as_the_fault_layer_s_is(name: str, tmp_path: Path) -> None:
    fault = CATALOGUE[name]
    assert inject("--fault", name, "--", sys.executable, *SUITE, "--out", tmp_path / "inject").code == 1
    assert run(*SUITE, "--fault", name, "--out", tmp_path / "layer").code == 1
    preloaded, layer = load_report(tmp_path / "inject"), load_report(tmp_path / "layer")
    assert preloaded.header.injected == (name,)
    assert preloaded.header.fault == ()
    assert fault.killed_by in failed(preloaded)
    assert failed(preloaded) <= fault.allowed | ({"MEM-VIS-1"} if name in WITHOUT_DATA else set())
    form = preloaded.decision.form
    assert (form.value if form is not None else "") == fault.form
    assert [d.outcome for d in preloaded.decision.per_in_flight] == [d.outcome for d in layer.decision.per_in_flight]


@pytest.mark.parametrize("level", ["driver", "both"])
def test_the_driver_s_level_is_found_too(level: str, tmp_path: Path) -> None:
    options = ("--fault", "late-next-wait", "--level", level)
    assert inject(*options, "--", sys.executable, *SUITE, "--out", tmp_path).code == 1
    assert failed(load_report(tmp_path)) == {"EVT-INDEP-1"}


def test_without_a_fault_the_verdicts_are_as_they_were(tmp_path: Path) -> None:
    assert inject("--", sys.executable, *SUITE, "--out", tmp_path / "inject").code == 0
    assert run(*SUITE, "--out", tmp_path / "plain").code == 0
    preloaded, plain = load_report(tmp_path / "inject"), load_report(tmp_path / "plain")
    assert preloaded.header.injected == ("no-fault",)
    assert [r.verdict for r in preloaded.results] == [r.verdict for r in plain.results]


def decode(in_flight: int, ring: int, *options: str) -> dict[str, Any]:
    """What the engine's loop saw."""
    client = ROOT / "docs" / "decode_client.py"
    done = inject(*options, "--", sys.executable, client, "--in-flight", in_flight, "--ring", ring, "--quiet")
    assert done.code == 0, done
    said: dict[str, Any] = json.loads(done.out.splitlines()[-1])
    assert said["wrong_tokens"] == 0
    return said


@pytest.mark.parametrize(("in_flight", "short_lag"), [(2, 1), (3, 2)])
def test_the_ring_cures_the_engine_s_loop_if_it_is_long_enough(in_flight: int, short_lag: int) -> None:
    fault = ("--fault", "late-next-wait")
    assert decode(in_flight, in_flight - 1, *fault)["worst_lag_steps"] >= short_lag
    assert decode(in_flight, in_flight, *fault)["late_share"] < 0.1
    assert decode(in_flight, in_flight - 1)["late_share"] < 0.1


@pytest.mark.parametrize("name", ["late-next-wait", "late-any-wait", "late-sync"])
def test_a_program_with_threads_goes_on_and_does_not_grow(name: str) -> None:
    program = Path(__file__).with_name("stream_threads.py")
    done = inject("--fault", name, "--", sys.executable, program, "--seconds", 20)
    assert done.code == 0, done
    said = json.loads(done.out.splitlines()[-1])
    assert said["resident_kb"][1] < said["resident_kb"][0] + 20_000
    assert said["device_bytes"][1] <= said["device_bytes"][0] + (1 << 20)
