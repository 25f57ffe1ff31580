"""The command line as a user meets it: exit codes, one-line errors, what is printed and what is imported."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from typing import TYPE_CHECKING

import pytest
from helpers import Done, cli, decision_file, environment, is_one_line, python

from conformance.backends.registry import NAMES
from conformance.faults import DECOYS, FAULTS
from conformance.spec import CLAUSES
from probes.catalogue import all_probes
from reports import store
from reports.records import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    #: Runs with these faults, once a module: what the run printed, and the folder of its report.
    Ran = Callable[..., tuple[Done, Path]]

RUN = ("run", "--backend", "reference", "--depth", "quick")
#: The shortest run.
SCOPE = (*RUN, "--probe", "scope", "--repeat", "1")


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """See `Ran`."""
    kept: dict[tuple[str, ...], tuple[Done, Path]] = {}

    def run(*faults: str) -> tuple[Done, Path]:
        if faults not in kept:
            folder = tmp_path_factory.mktemp("-".join(faults) or "clean")
            options = [option for fault in faults for option in ("--fault", fault)]
            kept[faults] = cli(*RUN, *options, "--out", folder), folder
        return kept[faults]

    return run


def decide(folder: Path, n: int, *more: str) -> Done:
    """What a simulated report answers."""
    return cli("decide", folder, "--in-flight", n, "--allow-simulated", *more)


def entry(folder: Path, n: int) -> dict[str, object]:
    """The same as data."""
    loaded = json.loads(decide(folder, n, "--format", "json").out)
    assert isinstance(loaded, dict)
    return loaded


# What a run says, and what is decided from it.


def test_a_clean_device_is_conformant_and_needs_no_ring(ran: Ran) -> None:
    done, folder = ran()
    assert (done.code, done.err) == (0, "")
    assert "verdict: conformant" in done.out
    assert "simulated" in done.out
    assert str(folder / "report.md") in done.out
    assert decide(folder, 2) == (0, "not-needed\n", "")
    assert decide(folder, 2, "--format", "env").out == "STREAM_CONFORMANCE_RING=off\n"


def test_the_reported_defect_is_found_named_and_decided(ran: Ran) -> None:
    done, folder = ran("late-next-wait")
    assert done.code == 1
    assert "EVT-INDEP-1" in done.out
    assert "form next-wait" in done.out
    assert "Enable the copy-stream ring" in done.out
    simulated = cli("decide", folder, "--in-flight", 3)
    assert (simulated.code, simulated.out) == (12, "undecided\n")
    assert is_one_line(simulated.err)
    assert "simulated" in simulated.err
    assert cli("decide", folder, "--in-flight", 3, "--format", "env").out == ""
    assert decide(folder, 3) == (10, "enable\n", "")
    assert decide(folder, 3, "--format", "env") == (10, "STREAM_CONFORMANCE_RING=3\n", "")
    assert decide(folder, 9)[:2] == (12, "undecided\n")
    assert entry(folder, 9)["outcome"] == "undecided"


def test_an_undersized_ring_is_shown_late(tmp_path: Path) -> None:
    assert cli("run", "--backend", "reference", "--fault", "late-next-wait", "--repeat", 1, "--out", tmp_path).code == 1
    found = entry(tmp_path, 3)
    assert (found["in_flight"], found["outcome"], found["ring"]) == (3, "enable", 3)
    rings = found["rings"]
    assert isinstance(rings, list)
    assert [(row["ring"], row["late"], row["worst_lag_steps"]) for row in rings] == [
        (1, True, 1),
        (2, True, 2),
        (3, False, 0),
    ]


@pytest.mark.parametrize(
    ("fault", "clause", "form", "kind", "outcome"),
    [
        ("late-any-wait", "EVT-INDEP-1", "any-wait", "publication", "enable"),
        ("late-idle", "EVT-INDEP-1", "idle", "publication", "enable"),
        ("late-never", "EVT-INDEP-1", "never", "publication", "enable"),
        ("late-sync", "EVT-LIVE-1", "sync", "publication", "ineffective"),
        ("held-by-wait", "EVT-WAIT-4", "any-wait", "execution", "enable"),
    ],
)
def test_each_late_device_is_told_apart(ran: Ran, fault: str, clause: str, form: str, kind: str, outcome: str) -> None:
    done, folder = ran(fault)
    assert done.code == 1
    line = next(line for line in done.out.splitlines() if line.startswith(clause))
    assert f"form {form}" in line
    assert f"{kind} is late" in line
    expected = {"enable": 10, "ineffective": 11}[outcome]
    assert decide(folder, 3) == (expected, f"{outcome}\n", "")
    if outcome == "ineffective":
        assert decide(folder, 3, "--format", "env").out == "STREAM_CONFORMANCE_RING=off\n"
        assert entry(folder, 3)["ring"] is None


def test_shared_queues_make_the_ring_help_for_two_and_not_for_three(ran: Ran) -> None:
    done, folder = ran("late-next-wait-queue", "queues-2")
    assert done.code == 1
    assert decide(folder, 2).out == "enable\n"
    assert decide(folder, 3) == (11, "ineffective\n", "")


def test_what_says_nothing_is_inconclusive(tmp_path: Path) -> None:
    done = cli(*RUN, "--fault", "gates-expire", "--probe", "publication", "--out", tmp_path)
    assert done.code == 3
    assert "verdict: inconclusive (gate-expired" in done.out


def test_a_report_of_another_machine_needs_any_machine(tmp_path: Path) -> None:
    found = decision_file(Outcome.ENABLE, parts={"backend": "reference", "device": "another"})
    (tmp_path / store.DECISION).write_bytes(store.encode(found))
    assert cli("decide", tmp_path, "--in-flight", 2).code == 12
    assert cli("decide", tmp_path, "--in-flight", 2, "--any-machine").code == 10


def test_launch_blocking_is_nothing_to_the_reference_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    assert cli(*SCOPE, "--out", tmp_path).code == 0


def test_all_devices_have_a_folder_each(tmp_path: Path) -> None:
    assert cli(*SCOPE, "--device", "all", "--out", tmp_path).code == 0
    assert (tmp_path / "reference-0" / store.REPORT).is_file()


# What cannot be done: one line, and nothing touched.

USAGE = {
    "backend": (("run", "--backend", "referense"), "reference"),
    "absent": (("run", "--backend", "musa"), "musa"),
    "probe": (("run", "--probe", "publicaton"), "did you mean publication"),
    "no-match": (("run", "--probe", "zzz*"), "matches nothing"),
    "variant": (("run", "--variant", "default-wait-copy-side-qery"), "did you mean default-wait-copy-side-query"),
    "fault": ((*RUN, "--fault", "late-next-wit"), "did you mean late-next-wait"),
    "fault-alone": (("run", "--fault", "late-next-wait"), "--backend"),
    "fault-opencl": (("run", "--backend", "opencl", "--fault", "fifo-violated"), "over the opencl backend"),
    "clash": ((*RUN, "--fault", "late-idle", "--fault", "late-sync"), "late-idle"),
    "aliased": ((*RUN, "--fault", "aliased-streams", "--fault", "queues-2"), "aliased-streams"),
    "gate": ((*RUN, "--gate", "kernal"), "virtual"),
    "gate-limit": ((*RUN, "--depth", "standard", "--gate-limit", "0.9"), "at least"),
    "gate-limit-nan": ((*RUN, "--gate-limit", "nan"), "--gate-limit"),
    "device": ((*RUN, "--device", "1"), "'1'"),
    "device-text": ((*RUN, "--device", "x"), "'x'"),
    "device-alone": (("run", "--device", "0"), "--backend"),
    "opencl-device": (("run", "--backend", "opencl", "--device", "zero"), "opencl"),
    "opencl-absent": (("run", "--backend", "opencl", "--device", "99:99"), "opencl"),
    "depth": (("run", "--depth", "deeper"), "deep"),
    "repeat": ((*RUN, "--repeat", "0"), "--repeat"),
    "flight-0": ((*RUN, "--max-in-flight", "0"), "1 to 16"),
    "flight-99": ((*RUN, "--max-in-flight", "99"), "1 to 16"),
    "flight-text": ((*RUN, "--max-in-flight", "two"), "two"),
    "surface": ((*RUN, "--surface", "vendr"), "vendor"),
    "option": (("run", "--bakend", "reference"), "--backend"),
    "command": (("decid",), "decide"),
    "decide-0": (("decide", ".", "--in-flight", "0"), "--in-flight"),
    "decide-text": (("decide", ".", "--in-flight", "two"), "two"),
    "decide-none": (("decide", "."), "--in-flight"),
    "format": (("decide", ".", "--in-flight", "2", "--format", "yaml"), "token"),
    "explain": (("explain", "EVT-INDP-1"), "did you mean EVT-INDEP-1"),
    "selftest": (("selftest", "late-nxt-wait"), "did you mean late-next-wait"),
}


@pytest.mark.parametrize(("arguments", "words"), USAGE.values(), ids=USAGE)
def test_a_usage_error_is_one_line_and_leaves_earlier_reports_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "out"
    out.mkdir()
    for name in store.FILES:
        (out / name).write_text(f"an earlier {name}")
    done = cli(*arguments, *(("--out", out) if arguments[0] == "run" else ()))
    assert (done.code, done.out) == (2, "")
    assert is_one_line(done.err)
    assert words in done.err
    assert {path.name: path.read_text() for path in out.iterdir()} == {n: f"an earlier {n}" for n in store.FILES}


@pytest.mark.parametrize("below", ["", "deeper"])
def test_an_out_that_cannot_be_written_is_refused_before_anything_is_run(tmp_path: Path, below: str) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    done = cli(*RUN, "--out", file / below)
    assert (done.code, done.out) == (2, "")
    assert is_one_line(done.err)
    assert "--out" in done.err
    assert file.read_text() == "mine"


def test_a_disk_that_fills_up_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store, "write_report", full)
    done = cli(*SCOPE, "--out", tmp_path)
    assert done.code == 4
    assert is_one_line(done.err)
    assert "No space" in done.err


# In a process of its own.


def test_the_exit_codes_reach_the_shell(tmp_path: Path) -> None:
    assert python("-m", "conformance", *SCOPE, "--out", "out", cwd=tmp_path).code == 0
    wrong = python("-m", "conformance", "run", "--probe", "publicaton", cwd=tmp_path)
    assert (wrong.code, wrong.out) == (2, "")
    assert is_one_line(wrong.err)
    assert python("-m", "conformance", "decide", "out", "--in-flight", "2", cwd=tmp_path).code == 12
    assert python("-m", "conformance", cwd=tmp_path).code == 2


def test_ctrl_c_keeps_the_log_and_the_run_before_and_decides_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert cli(*RUN, "--out", out).code == 0
    whole = (out / store.REPORT).read_bytes()
    # A shell that starts this in the background has its children ignore SIGINT; a user's terminal does not.
    code = """
        import runpy, signal
        signal.signal(signal.SIGINT, signal.default_int_handler)
        runpy.run_module("conformance", run_name="__main__")
    """
    command = [
        sys.executable,
        "-c",
        textwrap.dedent(code),
        "run",
        "--backend",
        "reference",
        "--depth",
        "deep",
        "--repeat",
        "100000",
    ]
    running = subprocess.Popen(
        [*command, "--out", str(out)], env=environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    log = out / store.LOG
    give_up = time.monotonic() + 60
    while not ((out / store.PREVIOUS).exists() and log.exists() and b'"case"' in log.read_bytes()):
        assert running.poll() is None
        assert time.monotonic() < give_up
        time.sleep(0.02)
    running.send_signal(signal.SIGINT)
    shown, error = running.communicate(timeout=60)
    assert (running.returncode, shown) == (130, "")
    assert is_one_line(error.strip())
    kinds = [json.loads(line)["type"] for line in log.read_text().splitlines()]
    assert kinds[0] == "header"
    assert "footer" not in kinds
    assert not (out / store.REPORT).exists()
    assert (out / store.PREVIOUS / store.REPORT).read_bytes() == whole
    for path in (out, log):
        done = decide(path, 2)
        assert (done.code, done.out) == (12, "undecided\n")
        assert "footer" in done.err


def test_colour_is_for_terminals_and_not_against_no_color(tmp_path: Path, ran: Ran) -> None:
    assert "\033" not in ran("late-next-wait")[0].out
    assert "\033" in on_a_terminal(tmp_path)
    assert "\033" not in on_a_terminal(tmp_path, NO_COLOR="1")


def on_a_terminal(folder: Path, **extra: str) -> str:
    """What a run shows on a terminal."""
    env = {name: value for name, value in environment().items() if name != "NO_COLOR"} | extra
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "conformance", *SCOPE]
    with subprocess.Popen(command, cwd=folder, env=env, stdout=theirs, stderr=subprocess.PIPE) as running:
        os.close(theirs)
        shown = b""
        try:
            while part := os.read(ours, 4096):
                shown += part
        except OSError:
            pass  # how a terminal says that nobody writes any more
    os.close(ours)
    assert running.returncode == 0
    return shown.decode()


def fake(folder: Path, name: str, text: str = "") -> Path:
    """A folder with a module of this name and content."""
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.py").write_text(textwrap.dedent(text))
    return folder


def test_what_an_engine_calls_imports_no_torch_no_runtime_and_no_numpy(tmp_path: Path) -> None:
    heavy = ("torch", "torch_musa", "pyopencl", "numpy")
    for name in heavy:
        path = fake(tmp_path / "fakes", name)
    code = f"""
        import sys
        import conformance
        from conformance.cli import main
        for arguments in ("list", "list --faults", "explain EVT-INDEP-1", "{" ".join(SCOPE)} --out out",
                          "decide out --in-flight 2", "decide out --in-flight 2 --allow-simulated"):
            main(arguments.split())
        sys.exit(", ".join(name for name in {heavy} if name in sys.modules))
    """
    done = python("-c", textwrap.dedent(code), cwd=tmp_path, env=environment(path))
    assert (tmp_path / "out" / store.DECISION).exists()
    assert done.err.splitlines()[-1] == "", done.err


def test_a_broken_opencl_driver_is_one_line(tmp_path: Path) -> None:
    text = """
        class Error(Exception):
            pass

        def get_platforms():
            raise Error("clGetPlatformIDs failed:\\nOUT_OF_HOST_MEMORY")
    """
    path = fake(fake(tmp_path / "fakes", "pyopencl", text), "numpy")
    done = python("-m", "conformance", "run", "--backend", "opencl", cwd=tmp_path, env=environment(path))
    assert (done.code, done.out) == (2, "")
    assert is_one_line(done.err)
    assert "OUT_OF_HOST_MEMORY" in done.err
    shown = python("-m", "conformance", "backends", cwd=tmp_path, env=environment(path))
    assert (shown.code, shown.err) == (0, "")
    assert any(line.startswith("opencl") and "OUT_OF_HOST_MEMORY" in line for line in shown.out.splitlines())


# What there is.


def test_backends_shows_each_with_its_device_or_the_reason() -> None:
    done = cli("backends")
    assert done.code == 0
    assert {line.split()[0] for line in done.out.splitlines()} == set(NAMES)
    assert all(len(line.split()) > 2 for line in done.out.splitlines())


def test_list_and_explain_know_every_name() -> None:
    for option, names in {
        "--probes": all_probes(),
        "--clauses": CLAUSES,
        "--faults": [*FAULTS, *DECOYS, "queues-K"],
        "--variants": [f"{probe.name}[{case.variant}]" for probe in all_probes().values() for case in probe.cases],
    }.items():
        done = cli("list", option)
        assert done.code == 0
        assert set(names) <= set(done.out.split())
    for name in (*all_probes(), *CLAUSES, *FAULTS):
        done = cli("explain", name)
        assert done.code == 0, name
        assert done.out.startswith(f"{name}: ")


@pytest.mark.parametrize("name", ["queues-2", "slow-device", "late-idle-device"])
def test_explain_knows_what_list_shows_beside_the_faults(name: str) -> None:
    done = cli("explain", name)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"{name}: ")
