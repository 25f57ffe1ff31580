"""The command `inject` as a user meets it: what it refuses, what it returns, and what it keeps."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers import cli, environment, is_one_line
from inject_helpers import has_compiler

from conformance.inject import ASKED
from conformance.inject.build import COMMON, library

needs_compiler = pytest.mark.skipif(not has_compiler(), reason="needs a C compiler: no cc on this machine")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty user cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "stream-conformance"


@pytest.mark.parametrize(
    ("arguments", "variables", "said"),
    [
        (("--fault", "late-nxt-wait", "--", "true"), {}, "did you mean late-next-wait"),
        (("--fault", "late-idle", "--", "true"), {}, "can be preloaded: late-next-wait"),
        (("--fault", "late-next-wait", "--fault", "late-any-wait", "--", "true"), {}, "one of them"),
        (("--", "no-such-program-here"), {}, "'no-such-program-here' was not found"),
        ((), {}, "COMMAND"),
        (("--log", "/no/such/folder/log.json", "--", "true"), {}, "/no/such/folder/log.json"),
        (("--level", "driver", "--", "true"), {}, "--level runtime"),
        (("--", "true"), {"CC": "no-such-compiler -O1"}, "'no-such-compiler' was not found"),
        (("--", "true"), {"CC": "false"}, "'false' failed"),
        (("--", "true"), {ASKED: "late-sync"}, "late-sync"),
    ],
)
def test_what_cannot_be_run_is_one_line_and_code_2(
    arguments: tuple[str, ...], variables: dict[str, str], said: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if said == "--level runtime" and Path("/proc/driver/nvidia/version").exists():
        pytest.skip("needs a machine without the driver: libcuda.so.1 is here")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    done = cli("inject", *arguments)
    assert (done.code, done.out) == (2, "")
    assert is_one_line(done.err)
    assert said in done.err
    assert not list(cache.glob("*")), "nothing half made is left"


@pytest.mark.parametrize("folder", ["a folder", "file"])
def test_a_cache_that_cannot_be_used_is_one_line(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / folder))
    done = cli("inject", "--", "true")
    assert done.code == 2
    assert is_one_line(done.err)
    assert "XDG_CACHE_HOME" in done.err


def inject(*arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, since COMMAND writes to the real streams."""
    command = [sys.executable, "-m", "conformance", "inject", *map(str, arguments)]
    env = environment(**variables)
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=120)


@needs_compiler
def test_the_code_is_the_commands_and_an_unreached_success_is_2(cache: Path, tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    done = inject("--fault", "sync-noop", "--log", log, "--", sys.executable, "-c", "print('its own')")
    assert (done.returncode, done.stdout) == (2, "its own\n")
    assert is_one_line(done.stderr)
    assert "not reached" in done.stderr
    written = json.loads(log.read_text())
    assert (written["exit_code"], written["reached"], written["complete"]) == (0, False, True)
    assert inject("--", sys.executable, "-c", "raise SystemExit(7)").returncode == 7
    assert inject("--", "sh", "-c", "kill -9 $$").returncode == 128 + 9


@needs_compiler
def test_a_signal_to_it_reaches_the_command(cache: Path, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    code = (
        "import pathlib, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))\n"
        f"pathlib.Path({str(ready)!r}).touch()\n"
        "time.sleep(60)"
    )
    command = [sys.executable, "-m", "conformance", "inject", "--", sys.executable, "-c", code]
    process = subprocess.Popen(command, env=environment(), stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while not ready.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 9
    finally:
        process.kill()


@needs_compiler
def test_the_library_is_compiled_once_for_each_content(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "from conformance.inject.build import library; print(library('runtime'))"
    started = [
        subprocess.Popen([sys.executable, "-c", code], env=environment(), stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    paths = {process.communicate(timeout=120)[0].strip() for process in started}
    assert len(paths) == 1
    assert [str(path) for path in cache.iterdir()] == list(paths)
    made = cache / Path(paths.pop()).name
    before = made.stat()
    assert library("runtime") == made
    assert made.stat().st_mtime_ns == before.st_mtime_ns
    monkeypatch.setenv("CC", "cc -g")
    assert library("runtime") != made


def test_the_sources_are_all_there() -> None:
    folder = Path(sys.modules["conformance"].__file__ or "").parent / "native"
    named = {*COMMON, "runtime.c", "driver.c", "inject.h"}
    assert {path.name for path in folder.iterdir()} == named
