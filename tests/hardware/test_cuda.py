"""What only a real NVIDIA device can show: the traps of its driver, every gate kind, and ends of processes.

pytest itself never imports torch: whatever touches the device is another process.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from children import has_footer
from helpers import Done, environment, is_one_line

from conformance.backends.fault_across import SESSIONS as ACROSS
from conformance.backends.fault_blocking import SESSIONS as BLOCKING
from conformance.backends.fault_extras import SESSIONS as EXTRAS
from conformance.backends.fault_layer import FAULTS as OVER_THE_API
from conformance.backends.gates.words import SharedWords
from conformance.backends.registry import find
from conformance.decision import not_held
from conformance.faults import FAULTS
from conformance.messages import Limits
from conformance.numbers import Numbers
from conformance.selection import select
from probes.catalogue import all_probes
from reports.records import Report, Result, Verdict
from reports.store import load_report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Begin = Callable[..., tuple[subprocess.Popen[str], int]]

CUDA = find("cuda")
pytestmark = [pytest.mark.hardware, pytest.mark.skipif(not CUDA.here, reason=CUDA.reason)]

#: Seconds that a run may take before it counts as hung; importing torch from a cold disk is in it.
PATIENCE = 180.0
LIMITS = Limits.of(Numbers())
#: The quickest run that says anything.
SHORT = ("--probe", "nothing-behind", "--repeat", "1")
#: A run of four variants, long enough to be interrupted in each of them.
LONG = ("--probe", "publication", "--variant", "*-copy-side-query", "--repeat", "500")


def start(*arguments: object, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    """This interpreter with these arguments, in a group of its own as a terminal would start it."""
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        env=environment() if env is None else env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def ended(process: subprocess.Popen[str]) -> Done:
    """What it left; killed with its group if it hangs."""
    try:
        out, err = process.communicate(timeout=PATIENCE)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    return Done(process.returncode, out, err)


def begin(out: Path, *options: object, **variables: str) -> subprocess.Popen[str]:
    """A run on the device, not waited for."""
    return start("-m", "conformance", "run", "--backend", "cuda", "--out", out, *options, env=environment(**variables))


def run(out: Path, *options: object, **variables: str) -> Done:
    """A run on the device."""
    return ended(begin(out, *options, **variables))


def until(true: Callable[[], bool], seconds: float = PATIENCE) -> None:
    """Poll until it is true; fails after so many seconds."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.002)


def failed(report: Report) -> set[str]:
    """The MUST clauses that failed."""
    return {
        c.clause for r in report.results for c in r.clauses if (c.level, c.verdict) == ("MUST", Verdict.NON_CONFORMANT)
    }


# The silent form of lazy loading, and the warm-up that keeps it out.


def look_up(when: str, loading: str | None) -> dict[str, Any]:
    """What `silent_lookup` saw; ``loading``: CUDA_MODULE_LOADING, None for the driver's own choice."""
    env = environment() | ({"CUDA_MODULE_LOADING": loading} if loading else {})
    if loading is None:
        env.pop("CUDA_MODULE_LOADING", None)
    done = ended(start(Path(__file__).with_name("silent_lookup.py"), when, env=env))
    assert done.code == 0, done
    seen: dict[str, Any] = json.loads(done.out.splitlines()[-1])
    assert seen["closed"], seen
    assert not seen["expired"], seen
    assert seen["seen_after"] is not None, seen
    return seen


def test_a_first_look_up_beside_a_closed_gate_looks_like_a_late_event() -> None:
    assert look_up("beside", None)["seen_beside"] is None


@pytest.mark.parametrize(("when", "loading"), [("before", None), ("beside", "EAGER")])
def test_looked_up_before_the_gate_closes_nothing_is_late(when: str, loading: str | None) -> None:
    seen = look_up(when, loading)["seen_beside"]
    assert seen is not None
    assert seen < 0.1


def test_the_warm_up_leaves_no_first_look_up_to_a_program(tmp_path: Path) -> None:
    env = environment()
    env.pop("CUDA_MODULE_LOADING", None)
    options = ("--probe", "publication", "--variant", "*copy-side*", "--repeat", "20")
    done = ended(start("-m", "conformance", "run", "--backend", "cuda", "--out", tmp_path, *options, env=env))
    assert done.code == 0, done
    results = load_report(tmp_path).results
    assert results
    clauses = [c for r in results for c in r.clauses if c.clause in ("EVT-INDEP-1", "EVT-INDEP-3", "EVT-LIVE-1")]
    assert clauses
    # Counts, not verdicts: one late look that later ones outvote would be the effect all the same.
    assert sum(c.counts.failed + c.counts.unclear for c in clauses) == 0


# Variables, gates, connections.


def test_launch_blocking_is_refused(tmp_path: Path) -> None:
    done = run(tmp_path, *SHORT, CUDA_LAUNCH_BLOCKING="1")
    assert (done.code, done.out) == (2, "")
    assert is_one_line(done.err)
    assert "CUDA_LAUNCH_BLOCKING" in done.err
    done = run(tmp_path, *SHORT, CUDA_LAUNCH_BLOCKING="0")
    assert done.code == 0, done


def test_host_functions_share_a_thread_and_give_no_core_verdict(tmp_path: Path) -> None:
    done = run(tmp_path, "--gate", "host-function", "--probe", "publication", "--repeat", "1")
    assert done.code == 3, done
    assert {r.verdict for r in load_report(tmp_path).results} == {Verdict.UNSUPPORTED}


@pytest.mark.parametrize("kind", ["kernel", "triton", "wait-value"])
def test_each_gate_kind_comes_to_the_same_verdict(kind: str, tmp_path: Path) -> None:
    options = ("--gate", kind, "--probe", "publication", "--variant", "*copy-side-query*", "--repeat", "3")
    done = run(tmp_path, *options)
    assert done.code == 0, done
    report = load_report(tmp_path)
    assert (report.header.gate.kind, report.header.gate.assurance) == (kind, "causal")
    assert {r.verdict for r in report.results} == {Verdict.CONFORMANT}


@pytest.mark.parametrize("connections", ["1", "32"])
def test_the_number_of_connections_changes_no_verdict(connections: str, tmp_path: Path) -> None:
    done = run(tmp_path, "--depth", "quick", CUDA_DEVICE_MAX_CONNECTIONS=connections)
    assert done.code == 0, done
    assert load_report(tmp_path).header.fingerprint.parts["CUDA_DEVICE_MAX_CONNECTIONS"] == connections


# Faults over the API of the real device; test_experiments and test_two_devices have the others.


NAMES = [name for name in OVER_THE_API if name not in (*ACROSS, *BLOCKING, *EXTRAS)]
#: Where an event is late a quick run shows it, with its form: the probes that claim such a fault take minutes. Of
#: query-stale a quick run shows that alone, and not that two calls disagree.
LATE = [name for name in NAMES if FAULTS[name].form and name != "query-stale"]
HERE = {probe.name for probe, _ in select(Numbers()).cases}


def options_of(fault: str) -> list[str]:
    """Of a run that must find it: the probes that claim it on one surface and one device, or a quick run."""
    names = [probe.name for probe in all_probes().values() if fault in probe.faults and probe.name in HERE]
    return [part for name in names for part in ("--probe", name)] + ["--repeat", "3"] if names else ["--depth", "quick"]


@pytest.mark.parametrize("name", [name for name in NAMES if name not in LATE])
def test_a_fault_over_the_api_is_found_by_its_clause(name: str, tmp_path: Path) -> None:
    fault = FAULTS[name]
    done = run(tmp_path, *options_of(name), "--fault", name)
    report = load_report(tmp_path)
    # Probes of a SHOULD alone are observed, and judge nothing.
    assert done.code in (0, 1) or (done.code, report.reason) == (3, "nothing was judged"), done
    found = failed(report) | not_held(report.results)
    assert fault.killed_by in found <= fault.allowed


@pytest.mark.parametrize("name", LATE)
def test_a_late_event_has_its_form_and_its_decision(name: str, tmp_path: Path) -> None:
    fault = FAULTS[name]
    done = run(tmp_path, "--depth", "quick", "--fault", name)
    assert done.code == 1, done
    report = load_report(tmp_path)
    assert fault.killed_by in failed(report) <= fault.allowed
    assert report.decision.form is not None
    assert report.decision.form.value == fault.form
    for depth in (2, 3, 4):
        said = ended(start("-m", "conformance", "decide", tmp_path, "--in-flight", depth, "--allow-simulated"))
        assert said.out.split() == [fault.outcome], said


# Ends of processes.


def child_of(parent: int) -> int | None:
    """The process number of a run's child, None if there is none."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
            mine = int(fields[1]) == parent and fields[0] != "Z"
            if mine and b"conformance.child" in stat.with_name("cmdline").read_bytes():
                return int(stat.parent.name)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return None


def gone(pid: int) -> bool:
    """Has the process ended? A zombie has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def results_in(out: Path) -> int:
    """How many results the log holds."""
    log = out / "events.jsonl"
    return log.read_bytes().count(b'{"type":"result"') if log.exists() else 0


@pytest.fixture
def mid_probe(tmp_path: Path) -> Iterator[Begin]:
    """Starts a long run and waits until it is in its second variant; nothing of it is left afterwards."""
    begun: list[subprocess.Popen[str]] = []

    def make(*options: object) -> tuple[subprocess.Popen[str], int]:
        process = begin(tmp_path, *LONG, *options)
        begun.append(process)
        until(lambda: results_in(tmp_path) >= 1 or process.poll() is not None)
        assert process.poll() is None, ended(process)
        child = child_of(process.pid)
        assert child is not None
        return process, child

    yield make
    for process in begun:
        child = child_of(process.pid)
        for pid in (process.pid, *([child] if child is not None else [])):
            if not gone(pid):
                os.killpg(pid, signal.SIGKILL)
        process.communicate()


def one_lost(out: Path, reason: str) -> Result:
    """The one result that is inconclusive; the others, before and after it, are conformant."""
    results = load_report(out).results
    lost = [r for r in results if r.verdict is not Verdict.CONFORMANT]
    assert [r.verdict for r in lost] == [Verdict.INCONCLUSIVE], [(r.variant, r.verdict, r.reason) for r in lost]
    assert lost[0] not in (results[0], results[-1])
    assert lost[0].reason.startswith(reason)
    return lost[0]


def test_a_killed_child_costs_one_verdict(mid_probe: Begin, tmp_path: Path) -> None:
    process, child = mid_probe()
    os.kill(child, signal.SIGKILL)
    done = ended(process)
    assert done.code == 3, done
    one_lost(tmp_path, "crash: signal 9 (SIGKILL)")


def gates_of(parent: int) -> SharedWords:
    """The gate words that a run shares with its child, seen from here."""
    for link in Path(f"/proc/{parent}/fd").iterdir():
        if "stream-conformance-gates" in os.readlink(link):
            fd = os.open(link, os.O_RDWR)
            try:
                return SharedWords(fd)
            finally:
                os.close(fd)
    raise AssertionError("the run has no gate words")


def stop_at_a_closed_gate(child: int, gates: SharedWords) -> int:
    """Stop the child while a gate is closed; returns the gate's block."""
    for _ in range(10_000):
        os.kill(child, signal.SIGSTOP)
        until(lambda: Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] == "T", 5.0)
        if closed := gates.closed():
            return closed[0]
        os.kill(child, signal.SIGCONT)
        time.sleep(0.001)
    raise AssertionError("no gate was ever closed")


def test_a_stopped_child_is_a_hang_whose_gates_the_parent_opens(mid_probe: Begin, tmp_path: Path) -> None:
    # wait-value: no limit in the device, and the child's own watchdog is stopped with it.
    process, child = mid_probe("--gate", "wait-value")
    gates = gates_of(process.pid)
    block, began = stop_at_a_closed_gate(child, gates), time.monotonic()
    time.sleep(Numbers().gate_limit + 0.5)
    assert block in gates.closed()
    until(lambda: gates.ended(block), LIMITS.silence + LIMITS.gate)
    assert time.monotonic() - began > LIMITS.silence / 2  # by the parent's store: nobody else was left to open it
    until(lambda: gone(child), LIMITS.silence + LIMITS.gate)
    done = ended(process)
    assert done.code == 3, done
    assert "the child was replaced" in one_lost(tmp_path, "hang: ").reason


def test_a_killed_parent_leaves_no_child_and_a_device_that_works(mid_probe: Begin, tmp_path: Path) -> None:
    process, child = mid_probe()
    process.kill()
    assert ended(process).code == -signal.SIGKILL
    until(lambda: gone(child), LIMITS.gate + 3.0)
    assert not has_footer(tmp_path)
    done = run(tmp_path / "next", *SHORT)
    assert done.code == 0, done


def test_ctrl_c_ends_with_130_and_a_log_without_a_footer(mid_probe: Begin, tmp_path: Path) -> None:
    process, child = mid_probe()
    os.killpg(process.pid, signal.SIGINT)
    done = ended(process)
    assert done.code == 130, done
    assert is_one_line(done.err.strip())
    assert not has_footer(tmp_path)
    until(lambda: gone(child), LIMITS.gate + 3.0)
