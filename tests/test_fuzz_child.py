"""A hunt in a child: what hangs or crashes costs one program, which is named with its text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import misbehaving
import pytest

from conformance.backends.reference import ReferenceBackend
from conformance.backends.registry import Opening
from conformance.errors import BackendUnavailable, HarnessError
from conformance.fuzz import supervise
from conformance.fuzz.generate import program_of
from conformance.fuzz.messages import Caught, Job, Progress, Ready
from conformance.fuzz.recipe import SIZES, recipe_for
from conformance.runner import TEST_CHILD
from probes.notation import parse

if TYPE_CHECKING:
    from pathlib import Path

#: Programs of a run: enough that some are left after the first word on how far it is.
PROGRAMS = 1500
OPENING = Opening(name="reference")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(misbehaving.FOLDER, str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(("act", "reason"), [("hang_locked", "hang"), ("gone", "exit code 7"), ("killed", "signal 9")])
def test_a_hang_or_crash_costs_one_program_and_the_child_is_replaced(
    folder: Path, monkeypatch: pytest.MonkeyPatch, act: str, reason: str
) -> None:
    monkeypatch.setenv(TEST_CHILD, f"misbehaving:{act}")
    monkeypatch.setattr(supervise, "SILENCE", 1.0)
    monkeypatch.setattr(supervise, "OPENED", 0.5)
    job = Job(seed=7, size="small", last=PROGRAMS)
    lost: list[supervise.LostProgram] = []
    ran, ready, armed = 0, 0, False
    for message in supervise.run_job(job, OPENING):
        if isinstance(message, Progress) and not armed:
            (folder / "armed").touch()
            armed = True
        if isinstance(message, supervise.LostProgram):
            lost.append(message)
        if isinstance(message, Ready):
            ready += 1
        if isinstance(message, Progress) and message.ended:
            ran = message.next
        assert not isinstance(message, Caught)
    assert ready == 2
    assert ran == PROGRAMS
    (one,) = lost
    assert reason in one.reason
    recipe = recipe_for(ReferenceBackend(), 7, SIZES["small"])
    assert parse(one.text) == program_of(recipe, one.index)[0]


def test_a_device_that_is_not_here_or_dies_at_once_ends_the_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(seed=7, size="small", last=10)
    monkeypatch.setenv(TEST_CHILD, "misbehaving:open_unavailable")
    with pytest.raises(BackendUnavailable, match="plug one in"):
        list(supervise.run_job(job, OPENING))
    monkeypatch.setenv(TEST_CHILD, "misbehaving:open_exits")
    with pytest.raises(HarnessError, match=misbehaving.LAST_LINE):
        list(supervise.run_job(job, OPENING))
    assert folder.is_dir()
