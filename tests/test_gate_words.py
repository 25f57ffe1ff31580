"""Gates' words on stand-in drivers: pages, stale words, the watchdog, and the supervisor in another process."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import gate_helpers
import pytest
from driver_double import double
from gate_helpers import DEADLINE, OPENABLE, until

from conformance.backends.gates import Gate, GateError, Native, SharedWords, Words, make_fd, words
from conformance.backends.gates.host_function import HostFunctionGate
from conformance.backends.vendors import VENDORS

built, rig = gate_helpers.built, gate_helpers.rig
CHILD = Path(double.__file__).with_name("child.py")


def _semaphores(gate: Gate) -> words.Semaphores:
    assert isinstance(gate, HostFunctionGate)
    return gate._semaphores


def test_memory_that_cannot_be_registered(rig: Any) -> None:
    made = rig("musa")
    made.knob("no-register", "RUNTIME")
    ladder = made.ladder(kind="kernel")  # in torch's pinned memory
    assert ladder.words.why == "musaHostRegister returned 801 (FAKE_NOT_SUPPORTED)"
    assert ladder.tried[-1] == ("(shared page)", f"torch's pinned memory instead: {ladder.words.why}")
    fd = make_fd(16)
    try:  # a supervisor cannot see that: what only it could end is refused, what ends by itself is not
        ladder = made.ladder(kind="kernel", fd=fd)
        assert ladder.attempt("wait-value") is None
        said = dict(ladder.tried)["wait-value"]
        assert said == f"the parent process could not open it: {ladder.words.why}"
        assert ladder.attempt("host-function")  # its semaphores are in the shared file all the same
        (gate,) = ladder.take(1, "host-function")
        gate.enqueue(made.module.Stream(), 60.0)
        shared = SharedWords(fd)
        assert until(lambda: shared.closed() == [gate.base // 64])
        assert shared.open_all()
        assert until(gate.ended)
        assert ladder.close()
    finally:
        os.close(fd)


def test_blocks_run_out_and_pages_are_given_back(rig: Any) -> None:
    made = rig()
    ladder = made.ladder(kind="kernel", gates=16)
    count = ctypes.CDLL(str(made.parts["DRIVER"])).double_registered
    before = count()
    ladder.take(14)  # two were used by the self-check
    with pytest.raises(GateError, match="no gate block is left of 16; ask for more gates"):
        ladder.take(1)
    assert ladder.close()
    assert count() == before - 1


# Stale words.


@pytest.mark.parametrize("kind", OPENABLE)
def test_an_opening_of_an_earlier_use_never_opens_a_later_one(rig: Any, kind: str) -> None:
    made = rig()
    gate, stream, event = made.gate(kind), made.module.Stream(), made.module.Event()
    for ticket in (1, 2, 3):
        assert gate.enqueue(stream, 30.0) == ticket
        event.record(stream)
        assert until(gate.closed)
        if ticket > 1:  # everything that could be left over from the last use
            gate.expire(ticket - 1)
            if kind == "host-function":
                assert not _semaphores(gate).release(ticket - 1)
            else:
                gate._view[gate.base + words.OPEN] = ticket - 1
        time.sleep(0.02)
        assert gate.closed()
        assert not event.query()
        gate.open()
        gate.open()
        if kind == "host-function":
            ctypes.CDLL(None).sem_post(_semaphores(gate).open)
        assert until(event.query)
        assert until(gate.ended)
        assert not gate.expired()


@pytest.mark.parametrize("kind", OPENABLE)
def test_a_file_that_another_child_used_opens_nothing(rig: Any, kind: str) -> None:
    made, fd = rig(), make_fd(4)
    try:
        native = Native(made.vendor, torch=made.torch)
        old = Words(native, fd=fd)
        assert old.take(words.WORDS) == (0, 0)
        for index in range(words.BLOCK):  # a child that is gone left this, in whatever state
            old.view[index] = 57
        gate, stream = made.gate(kind, fd=fd), made.module.Stream()
        assert gate.first == 57
        assert not gate.closed()
        gate.enqueue(stream, 30.0)
        assert until(gate.closed)
        time.sleep(0.02)
        assert gate.closed()
        assert SharedWords(fd).closed() == [2]  # 0 and 1 were the self-check's
        gate.open()
        assert until(gate.ended)
    finally:
        os.close(fd)


# The watchdog.


@pytest.mark.parametrize("kind", ["wait-value", "host-function"])
def test_the_watchdog_marks_first_and_opens_then(rig: Any, kind: str) -> None:
    made = rig()
    gate, stream, event = made.gate(kind), made.module.Stream(), made.module.Event()
    order: list[int] = []

    class Recorder:
        def __init__(self, view: Any) -> None:
            self.view = view

        def __getitem__(self, index: int) -> int:
            return int(self.view[index])

        def __setitem__(self, index: int, value: int) -> None:
            order.append(index - gate.base)
            self.view[index] = value

    holder = _semaphores(gate) if kind == "host-function" else gate
    holder._view = Recorder(holder._view)
    gate.enqueue(stream, 0.05)
    event.record(stream)
    assert until(event.query)
    assert (gate.expired(), gate.closed(), gate.ended()) == (True, False, True)
    assert order == [words.TICKET, words.EXPIRED, words.OPENED if kind == "host-function" else words.OPEN]


def test_the_watchdog_keeps_one_entry_a_gate(rig: Any) -> None:
    made = rig()
    gates, stream = made.ladder(kind="wait-value").take(2), made.module.Stream()
    for _ in range(50):
        for gate in gates:
            gate.enqueue(stream, 600.0)
            gate.open()
            assert until(gate.ended)
    assert gates[0].watchdog.waiting() <= 4  # these two, and the self-check's two
    # An earlier limit than all those that wait is kept: the thread is woken.
    gates[0].enqueue(stream, 0.05)
    assert until(gates[0].expired)


def test_the_limit_of_a_gate_is_its_own_unless_a_use_asks(rig: Any) -> None:
    made = rig()
    for kind in OPENABLE:
        gate, stream = made.gate(kind, limit_s=0.05), made.module.Stream()
        gate.enqueue(stream)
        assert until(gate.expired)
        assert until(gate.ended)
        gate.enqueue(stream, 30.0)
        assert until(gate.closed)
        time.sleep(0.1)
        assert gate.closed()
        gate.open()


# The supervisor.


@pytest.mark.parametrize(
    ("vendor", "kind", "stopped"),
    [(vendor, kind, False) for vendor in VENDORS for kind in OPENABLE] + [("cuda", kind, True) for kind in OPENABLE],
)
def test_another_process_sees_and_opens_a_gate(rig: Any, tmp_path: Path, vendor: str, kind: str, stopped: bool) -> None:
    rig(vendor)  # skips without a compiler
    for library in double.build(vendor, tmp_path / "torch" / "lib").values():
        assert library.exists()
    fd = make_fd()
    environ = {name: value for name, value in os.environ.items() if not name.endswith(("_HOME", "_PATH"))}
    child = subprocess.Popen(
        [sys.executable, str(CHILD), vendor, kind, str(tmp_path), str(fd)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        pass_fds=(fd,),
        env=environ,
    )
    shared = SharedWords(fd)
    os.close(fd)
    try:
        assert child.stdin is not None
        assert child.stdout is not None
        # Found by the untouched record: in the wheel's folder, beside torch.
        assert child.stdout.readline() == f"ready {tmp_path}/torch/lib/{double.FILES[vendor]['DRIVER']}\n"
        assert shared.blocks() == [0, 1, 2]
        for ticket in (1, 2):
            assert shared.closed() == []
            child.stdin.write("\n")
            child.stdin.flush()
            assert child.stdout.readline() == "enqueued\n"
            assert until(lambda: shared.closed() == [2])
            assert (shared.ticket(2), shared.ended(2)) == (ticket, False)
            if stopped:
                os.kill(child.pid, signal.SIGSTOP)
            assert shared.open_all() == [2]
            assert shared.closed() == []
            assert shared.open_all() == []
            if stopped:
                os.kill(child.pid, signal.SIGCONT)
            assert until(lambda: shared.ended(2))
            assert child.stdout.readline() == "ended opened in time\n"
        assert child.stdout.readline() == "closed\n"
        assert child.wait(DEADLINE) == 0
    finally:
        child.kill()
        child.communicate()
