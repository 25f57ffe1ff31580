"""A preloaded fault under the real runtime: the suite finds it, an engine's loop shows it, nothing else changes."""

from __future__ import annotations

import json
import os
import signal
import statistics
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
from hardware.agreement import Difference, differences, explanation
from reports.records import Report, Verdict
from reports.store import load_report

CUDA = find("cuda")
pytestmark = [pytest.mark.hardware, pytest.mark.skipif(not CUDA.here, reason=CUDA.reason)]

#: Seconds that a command may take before it counts as hung.
PATIENCE = 240.0
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


def both(name: str, folder: Path) -> tuple[Report, Report]:
    """The suite's reports under `inject` and under the fault layer."""
    assert inject("--fault", name, "--", sys.executable, *SUITE, "--out", folder / "inject").code == 1
    assert run(*SUITE, "--fault", name, "--out", folder / "layer").code == 1
    return load_report(folder / "inject"), load_report(folder / "layer")


def unexplained(name: str, preloaded: Report, layer: Report) -> set[Difference]:
    """The results that differ and of which nothing says why."""
    return {one for one in differences(preloaded, layer) if not explanation(name, one)}


@pytest.mark.parametrize("name", FAULTS)
def test_a_preloaded_fault_is_found_as_the_fault_layer_s_is(name: str, tmp_path: Path) -> None:
    fault = CATALOGUE[name]
    preloaded, layer = both(name, tmp_path / "first")
    left = {(one.probe, one.variant, one.clause) for one in unexplained(name, preloaded, layer)}
    if left:  # a busy machine leaves a result undecided now and then: a difference is what comes again
        again = {
            (one.probe, one.variant, one.clause): one for one in unexplained(name, *both(name, tmp_path / "again"))
        }
        assert [str(again[key]) for key in left & again.keys()] == []
    assert preloaded.header.injected == (name,)
    assert preloaded.header.fault == ()
    assert fault.killed_by in failed(preloaded)
    assert failed(preloaded) <= fault.allowed
    form = preloaded.decision.form
    assert (form.value if form is not None else "") == fault.form
    assert [d.outcome for d in preloaded.decision.per_in_flight] == [d.outcome for d in layer.decision.per_in_flight]


@pytest.mark.parametrize("level", ["driver", "both"])
def test_the_driver_s_level_is_found_too(level: str, tmp_path: Path) -> None:
    options = ("--fault", "late-next-wait", "--level", level)
    assert inject(*options, "--", sys.executable, *SUITE, "--out", tmp_path).code == 1
    assert failed(load_report(tmp_path)) == {"EVT-INDEP-1"}


RESETS = """
import ctypes, torch
runtime = ctypes.CDLL(next(line.split()[-1] for line in open("/proc/self/maps") if "libcudart.so" in line))
for _ in range(3):
    streams = []
    for _ in range(2):
        streams.append(ctypes.c_void_p())
        assert runtime.cudaStreamCreateWithFlags(ctypes.byref(streams[-1]), 1) == 0
    at, event = ctypes.c_void_p(), ctypes.c_void_p()
    assert runtime.cudaMalloc(ctypes.byref(at), 1 << 26) == 0
    assert runtime.cudaEventCreateWithFlags(ctypes.byref(event), 2) == 0
    for _ in range(20):
        for one, other in (streams, streams[::-1]):
            half = ctypes.c_void_p(at.value + (1 << 25))
            assert runtime.cudaMemcpyAsync(half, at, ctypes.c_size_t(1 << 25), 3, one) == 0
            assert runtime.cudaEventRecord(event, one) == 0
            assert runtime.cudaStreamWaitEvent(other, event, 0) == 0
    assert runtime.cudaDeviceReset() == 0
print("reset")
"""


@pytest.mark.parametrize("name", ["no-fault", "late-any-wait", "held-by-wait", "wait-newest-record"])
@pytest.mark.parametrize("level", ["runtime", "both"])
def test_a_program_may_reset_the_device_and_go_on(name: str, level: str) -> None:
    fault = () if name == "no-fault" else ("--fault", name)
    done = inject("--level", level, *fault, "--", sys.executable, "-c", RESETS)
    assert (done.code, done.out) == (0, "reset\n"), done


def test_without_a_fault_the_verdicts_are_as_they_were(tmp_path: Path) -> None:
    assert inject("--", sys.executable, *SUITE, "--out", tmp_path / "inject").code == 0
    assert run(*SUITE, "--out", tmp_path / "plain").code == 0
    preloaded, plain = load_report(tmp_path / "inject"), load_report(tmp_path / "plain")
    assert preloaded.header.injected == ("no-fault",)
    assert [str(one) for one in differences(preloaded, plain)] == []


CLIENT = ROOT / "docs" / "decode_client.py"


def decode(in_flight: int, ring: int, *options: str) -> dict[str, Any]:
    """What the engine's loop saw."""
    done = inject(*options, "--", sys.executable, CLIENT, "--in-flight", in_flight, "--ring", ring, "--quiet")
    return said_by(done)


def said_by(done: Done) -> dict[str, Any]:
    """The client's line."""
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


@pytest.mark.parametrize(("step_ms", "host_ms", "steps"), [(26, 1.5, 60), (2, 0, 400)])
def test_without_a_fault_a_step_takes_as_long_as_before(step_ms: float, host_ms: float, steps: int) -> None:
    """By turns in one run, and by the device's clock: the host's load shows in neither."""
    loop = [CLIENT, "--quiet", "--host-ms", host_ms, "--step-ms", step_ms]
    cycles = said_by(run(*loop, "--steps", 8))["cycles"]
    loop += ["--steps", steps, "--cycles", cycles]
    plain, under = [], []
    for _ in range(3):
        plain.append(said_by(run(*loop))["step_ms"])
        under.append(said_by(inject("--", sys.executable, *loop))["step_ms"])
    ratio = statistics.median(under) / statistics.median(plain)
    sys.stdout.write(f"\nstep of {step_ms} ms: {plain} without, {under} under inject, ratio {ratio:.4f}\n")
    assert abs(ratio - 1) < 0.01


@pytest.mark.parametrize(
    ("name", "effect"),
    [
        ("late-next-wait", "recorded_again"),
        ("late-any-wait", "recorded_again"),
        ("late-sync", "late_returns"),
        ("held-by-wait", "held_copies"),
    ],
)
def test_a_program_with_threads_goes_on_for_a_minute_and_does_not_grow(name: str, effect: str, tmp_path: Path) -> None:
    program, log = Path(__file__).with_name("stream_threads.py"), tmp_path / "log.json"
    done = inject("--fault", name, "--log", log, "--", sys.executable, program, "--seconds", 60)
    assert done.code == 0, done
    said = json.loads(done.out.splitlines()[-1])
    assert json.loads(log.read_text())["effects"][effect] > 0, "the fault was there"
    assert said["resident_kb"][1] < said["resident_kb"][0] + 20_000
    assert said["device_bytes"][1] <= said["device_bytes"][0] + (1 << 20)
