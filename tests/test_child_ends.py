"""No child outlives its parent, however that ends; and what the command line and pytest make of a child."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import misbehaving
import pytest
from children import PATIENCE, alive, children, has_footer, wait_until
from helpers import Done, cli, environment, is_one_line

from conformance.runner import TEST_CHILD

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where tests and children meet; afterwards no child may be left."""
    monkeypatch.setenv(misbehaving.FOLDER, str(tmp_path))
    yield tmp_path
    wait_until(lambda: not alive(tmp_path))


def hooked(factory: str, folder: Path) -> dict[str, str]:
    """Variables for a process that runs every backend in a child made by `misbehaving`."""
    extra = {TEST_CHILD: f"misbehaving:{factory}", misbehaving.FOLDER: str(folder)}
    return environment(Path(__file__).parent, **extra)


def start(folder: Path, *arguments: object, env: dict[str, str]) -> subprocess.Popen[str]:
    """A process of its own group, as a terminal would start it."""
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        env=env,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def ended(process: subprocess.Popen[str]) -> Done:
    """What it left, once it has ended."""
    out, err = process.communicate(timeout=PATIENCE)
    return Done(process.returncode, out, err)


RUN = ("-m", "conformance", "run", "--backend", "reference", "--probe", "never", "--out")


@pytest.mark.parametrize("factory", ["hang", "hang_locked"])
def test_ctrl_c_ends_the_child_and_leaves_the_log_open(factory: str, folder: Path) -> None:
    (folder / "armed").touch()
    process = start(folder, *RUN, folder, env=hooked(factory, folder))
    wait_until((folder / "acting").exists)
    os.killpg(process.pid, signal.SIGINT)
    done = ended(process)
    assert done.code == 130
    assert is_one_line(done.err.strip())  # click first ends the line that ^C stands in
    assert not alive(folder)
    assert not has_footer(folder)
    if factory == "hang":
        assert (folder / "opened").exists()


#: A process with a child of its own; argv: the factory, the folder, and the limits of the child.
SCRIPT = """
import sys, time
from pathlib import Path
from children import NUMBERS, child, run, select
from conformance.messages import Limits
runner = child(sys.argv[1], limits=Limits(silence=float(sys.argv[3]), gate=0.5))
if sys.argv[1] != "good":
    run(runner, select(NUMBERS, probes=["never"]), NUMBERS, out=Path(sys.argv[2]))
while True:
    time.sleep(1)
"""


def test_a_killed_parent_leaves_no_child_behind(folder: Path) -> None:
    (folder / "armed").touch()
    process = start(folder, "-c", SCRIPT, "hang", folder, PATIENCE, env=hooked("hang", folder))
    wait_until((folder / "acting").exists)
    process.kill()
    assert ended(process).code == -signal.SIGKILL
    wait_until(lambda: not alive(folder))
    assert (folder / "opened").exists()
    assert not has_footer(folder)


def test_a_child_that_hears_nothing_any_more_ends_itself(folder: Path) -> None:
    (folder / "armed").touch()
    process = start(folder, "-c", SCRIPT, "hang_locked", folder, 1.0, env=hooked("hang_locked", folder))
    wait_until((folder / "acting").exists)
    process.kill()
    assert ended(process).code == -signal.SIGKILL
    wait_until(lambda: not alive(folder))


def test_a_parent_killed_between_two_cases_leaves_no_child_behind(folder: Path) -> None:
    process = start(folder, "-c", SCRIPT, "good", folder, PATIENCE, env=hooked("good", folder))
    wait_until(lambda: bool(children(folder)))
    process.kill()
    assert ended(process).code == -signal.SIGKILL
    wait_until(lambda: not alive(folder))


def test_the_command_line_runs_a_child_to_its_verdict(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TEST_CHILD, "misbehaving:gone")
    (folder / "armed").touch()
    done = cli("run", "--backend", "reference", "--probe", "never", "--depth", "quick", "--out", folder)
    assert done.code == 3, done
    assert "crash: exit code 7" in done.out
    assert has_footer(folder)
    done = cli("run", "--backend", "reference", "--gate", "kernel", "--out", folder)
    assert done.code == 2
    assert is_one_line(done.err)


@pytest.mark.parametrize(("factory", "code"), [("open_raises", 4), ("open_unavailable", 2), ("open_usage", 2)])
def test_the_command_line_says_why_there_is_no_child(
    factory: str, code: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TEST_CHILD, f"misbehaving:{factory}")
    done = cli("run", "--backend", "reference", "--out", folder)
    assert (done.code, done.out) == (code, "")
    assert is_one_line(done.err)


def test_one_item_fails_and_the_others_pass(folder: Path) -> None:
    (folder / "armed").touch()
    arguments = ("-q", "-p", "no:cacheprovider", "-p", "conformance.plugin", "--pyargs", "conformance.suite")
    process = start(
        folder, "-m", "pytest", *arguments, "-m", "reference", "-k", "reference:never", env=hooked("gone", folder)
    )
    done = ended(process)
    assert done.code == 1, done
    assert "inconclusive: crash: exit code 7" in done.out
    assert "1 failed" in done.out
    assert " passed" in done.out
    assert not alive(folder)
