"""The opencl backend on an installed runtime."""

from __future__ import annotations

import importlib
import subprocess
import sys
import threading
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from realtime_helpers import DEADLINE, G1, G2, WAIT_F, E, F, core, mark, never, until

from conformance import errors
from conformance.backends.api import EventFlags, Request
from conformance.backends.opencl import OpenCLBackend, find_devices, session
from conformance.errors import BackendUnavailable, DeviceError, Unsupported, UsageError
from probes.program import (
    Copy,
    DeviceOp,
    Fill,
    Gate,
    HostFn,
    Nop,
    Sync,
    SyncDevice,
    SyncStream,
    Wait,
    WaitStream,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from conformance.backends.opencl.session import OpenCLSession

    Make = Callable[..., OpenCLSession]
    Patch = Callable[[str, object], None]

#: Where `conformance` lies, for a child that must find it.
ROOT = Path(errors.__file__).parents[1]


@pytest.fixture(scope="module")
def backend() -> Iterator[OpenCLBackend]:
    try:
        made = OpenCLBackend()
    except BackendUnavailable as error:
        pytest.skip(f"needs an OpenCL runtime: {error}")
    yield made
    made.close()


@pytest.fixture
def pyopencl() -> Any:
    try:
        return importlib.import_module("pyopencl")
    except ImportError as error:  # pytest.importorskip lets a missing libOpenCL through as an error
        pytest.skip(f"needs an OpenCL runtime: pyopencl cannot be imported: {error}")


@pytest.fixture
def patch(pyopencl: Any, monkeypatch: pytest.MonkeyPatch) -> Patch:
    """Replaces a name of pyopencl."""
    return partial(monkeypatch.setattr, pyopencl)


@pytest.fixture
def make(backend: OpenCLBackend) -> Iterator[Make]:
    """Makes sessions that are closed, and proved idle, when the test ends."""
    made: list[OpenCLSession] = []

    def make(*ops: DeviceOp, **changed: Any) -> OpenCLSession:
        usual: dict[str, Any] = {"streams": ("S", "T"), "buffers": ("x", "y", "h", "hd"), "gate_limit": 2 * DEADLINE}
        made.append(backend.session(Request(events=("e", "f"), gates=("g1", "g2"), **(usual | changed))))
        for op in ops:
            made[-1].issue(op)
        return made[-1]

    yield make
    idle = [session.close() for session in made]  # every one, also after the first that is not
    assert all(idle)


def test_gate_holds_and_releases(make: Make) -> None:
    s = make(G1, *mark("S", 7), E)
    assert never(lambda: s.query("e") or s.read("h") != 0)
    assert not s.ended("g1")
    s.open("g1")
    assert s.ended("g1")
    assert until(lambda: s.query("e"))
    assert s.read("h") == 7


def test_core_program(make: Make) -> None:
    assert not make().ended("g1")  # not yet queued
    s = make(*core(1), *mark("S", 2, "y", "hd"))
    assert len(set(s.handles().values())) == 2
    assert not s.query("e")
    assert s.read("h") == 0
    s.open("g1")
    assert until(lambda: s.query("e"))
    assert s.read("h") == 1
    assert never(lambda: s.query("f") or s.read("hd") != 0)
    assert not s.ended("g2")
    s.open("g2")
    assert until(lambda: s.query("f") and s.read("hd") == 2)


def test_gate_closed_earlier_on_another_queue_holds_nothing_here(make: Make) -> None:
    s = make(G2, F, *core(3)[:4])
    s.open("g1")
    assert until(lambda: s.query("e"))
    assert s.read("h") == 3
    assert not s.query("f")
    assert not s.ended("g2")


@pytest.mark.parametrize("held", ["destroyed-event", "temporary-event", "control"])
def test_wait_outlives_its_event(make: Make, held: str) -> None:
    waits = {"destroyed-event": WAIT_F, "temporary-event": WaitStream(stream="S", other="T")}
    s = make(G2, F, waits.get(held, Nop(stream="S")))
    s.destroy("f")
    for op in mark("S", 2, "y", "hd"):
        s.issue(op)
    if held == "control":
        assert until(lambda: s.read("hd") == 2)
    else:
        assert never(lambda: s.read("hd") != 0)
    assert not s.ended("g2")
    s.open("g2")
    assert until(lambda: s.read("hd") == 2)
    with pytest.raises(Unsupported, match="unrecorded-event"):
        s.query("f")


def test_wait_is_bound_to_the_record_at_its_call(make: Make) -> None:
    s = make(Gate(stream="T", gate="g1"), F, WAIT_F, G2, F, E)
    s.open("g1")
    assert until(lambda: s.query("e"))
    assert not s.query("f")  # the second record
    assert not s.ended("g2")


@pytest.mark.parametrize("flags", [EventFlags.DEFAULT, EventFlags.TIMING])
def test_copies_in_all_directions(make: Make, flags: EventFlags) -> None:
    way = ["x", "y", "h", "x", "hd"]
    copies = [Copy(stream="S", source=source, target=target) for source, target in pairwise(way)]
    s = make(Fill(stream="S", buffer="x", value=0xFFFFFFFF), *copies, E, flags=flags)
    assert until(lambda: s.query("e"))
    assert (s.read("h"), s.read("hd")) == (0xFFFFFFFF, 0xFFFFFFFF)


def test_gate_ends_by_itself_at_its_limit(make: Make) -> None:
    s = make(G1, E, gate_limit=0.05)
    assert until(lambda: s.query("e"))
    assert s.ended("g1")
    s.open("g1")  # a status can be set once; opening an ended gate is no error


def test_limit_of_an_earlier_gate_does_not_end_a_later_one_of_its_name(make: Make) -> None:
    short = make(G1, gate_limit=0.05)
    short.open("g1")
    assert short.close()
    long = make(G1, E)
    bell = make(Gate(stream="T", gate="g1"), streams=("T",), gate_limit=0.05)  # due after the first one's limit
    assert until(lambda: bell.ended("g1"))
    assert not long.ended("g1")
    assert not long.query("e")


def test_synchronize_returns_while_a_later_gate_is_closed(make: Make) -> None:
    s = make(*core(4))
    event, device = s.start(Sync(event="e")), s.start(SyncDevice())
    assert never(lambda: event.returned)
    s.open("g1")
    assert until(lambda: event.returned)
    assert event.error is None
    assert never(lambda: device.returned)
    assert not s.ended("g2")
    stream = s.start(SyncStream(stream="T"))
    assert never(lambda: stream.returned)
    assert not s.ended("g2")
    s.open("g2")
    assert until(lambda: stream.returned and device.returned)
    assert (stream.error, device.error) == (None, None)


def test_close_opens_the_gates_while_an_exception_is_under_way(make: Make) -> None:
    s = make(*core(5))
    waiter = s.start(Sync(event="f"))
    with pytest.raises(ZeroDivisionError):  # noqa: PT012 - the close under way of an exception is the point
        try:
            raise ZeroDivisionError
        finally:
            assert s.close()
    assert waiter.returned
    assert s.close()  # again: the same answer


def test_two_hundred_sessions_stay_right(backend: OpenCLBackend, make: Make) -> None:
    def watchdogs() -> int:
        return sum(thread.name.startswith("opencl-watchdog") for thread in threading.enumerate())

    handles, before = set(), 0
    for token in range(1, 201):
        s = make(*core(token))
        handles |= set(s.handles().values())
        assert s.read("h") == 0  # not the token of the session before
        assert not s.query("e")
        s.open("g1")
        assert until(partial(s.query, "e"))
        assert s.read("h") == token
        assert not s.query("f")
        assert not s.ended("g2")
        assert s.close()
        before = before or watchdogs()
    assert len(handles) == 2
    assert watchdogs() == before  # one a backend, not one a session


def test_buffers_begin_as_zero(make: Make) -> None:
    assert make(Fill(stream="S", buffer="x", value=9)).close()
    s = make(*mark("S", 1, "y"))
    assert until(lambda: s.read("h") == 1)
    s.issue(Copy(stream="S", source="x", target="h"))
    assert until(lambda: s.read("h") == 0)


def test_a_queue_that_does_not_run_dry_is_told_and_not_used_again(
    backend: OpenCLBackend, make: Make, pyopencl: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = Request(streams=("S",), events=("e",), gates=(), buffers=("x", "h"))
    stuck = backend.session(request)
    handle = stuck.handles()["S"]
    foreign = pyopencl.UserEvent(backend._runtime.context)
    pyopencl.enqueue_barrier(pyopencl.CommandQueue.from_int_ptr(handle), wait_for=[foreign])
    for op in mark("S", 6):
        stuck.issue(op)
    with monkeypatch.context() as patch:
        patch.setattr(session, "DRAIN_LIMIT", 0.05)
        assert not stuck.close()
    s = make(*core(8))
    assert handle not in s.handles().values()
    s.open("g1")
    assert until(lambda: s.query("e"))
    assert s.read("h") == 8
    foreign.set_status(pyopencl.command_execution_status.COMPLETE)


def test_unsupported_is_raised_where_it_is_announced(backend: OpenCLBackend, make: Make) -> None:
    s = make()
    refused: dict[str, Callable[[], object]] = {
        "default-stream": lambda: make(streams=("default", "S")),
        "event-flag-blocking": lambda: make(flags=EventFlags.BLOCKING),
        "slow-copy": lambda: s.issue(Copy(stream="S", source="x", target="h", until="g1")),
        "host-copy": lambda: s.issue(Copy(stream="S", source="h", target="hd")),
        "host-fn": lambda: s.issue(HostFn(stream="S", name="n")),
        "query-stream": lambda: s.query_stream("S"),
        "unrecorded-event": lambda: s.query("e"),
    }
    for capability, call in refused.items():
        with pytest.raises(Unsupported, match=capability) as caught:
            call()
        assert caught.value.reason == backend.unsupported(capability)
    with pytest.raises(Unsupported, match="unrecorded-event"):
        s.issue(Wait(stream="S", event="e"))
    with pytest.raises(Unsupported, match="unrecorded-event"):
        s.start(Sync(event="e"))
    assert (backend.unsupported("elapsed") or "").startswith("cl")
    for capability in ("event-flag-timing", "re-record-pending", "sync-device", "wait-stream"):
        assert backend.unsupported(capability) is None


def test_what_a_report_says_of_the_device(backend: OpenCLBackend) -> None:
    info, gate = backend.device(), backend.gate()
    assert info.name in [name for _, name in find_devices()]
    assert info.capability.startswith("OpenCL ")
    assert info.lock is not None
    assert info.lock.startswith("opencl-")
    assert (gate.kind, gate.assurance, tuple(gate.tried)) == ("user-event", "causal", (("user-event", "ok"),))
    assert gate.release_us is not None
    assert gate.release_us > 0
    assert "pyopencl" in backend.software()
    chosen = OpenCLBackend(find_devices()[info.index][0])
    assert chosen.device() == info
    chosen.close()


@pytest.mark.parametrize("text", ["", "0", "0:", ":0", "0:0:0", "-1:0", "a:b", " 0:0", "0:0\n", "\u0661:0", "gpu"])
def test_malformed_device_text(text: str) -> None:
    with pytest.raises(UsageError, match="P:D"):
        OpenCLBackend(text)


@pytest.mark.parametrize("text", ["0:99", "99:0"])
def test_device_that_does_not_exist(backend: OpenCLBackend, text: str) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        OpenCLBackend(text)


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("broken", ["get_platforms", "Context", "UserEvent", "CommandQueue"])
def test_broken_driver(pyopencl: Any, patch: Patch, broken: str) -> None:
    def fail(*_: object, **__: object) -> None:
        raise pyopencl.Error(f"{broken}\nis broken")

    patch(broken, fail)
    with pytest.raises(BackendUnavailable, match="is broken") as caught:
        OpenCLBackend()
    assert "\n" not in str(caught.value)


def test_no_platform(patch: Patch) -> None:
    patch("get_platforms", list)
    for call in (OpenCLBackend, find_devices):
        with pytest.raises(BackendUnavailable, match="finds no platform"):
            call()


@pytest.mark.usefixtures("backend")
def test_one_broken_platform_hides_no_other(pyopencl: Any, patch: Patch) -> None:
    class Broken:
        def get_devices(self) -> list[Any]:
            raise pyopencl.Error("no devices today")

    working = pyopencl.get_platforms()
    patch("get_platforms", lambda: [Broken(), *working])
    assert find_devices()[0][0] == "1:0"
    OpenCLBackend().close()
    with pytest.raises(BackendUnavailable, match="no devices today"):
        OpenCLBackend("0:0")
    patch("get_platforms", lambda: [Broken()])
    for call in (OpenCLBackend, find_devices):
        with pytest.raises(BackendUnavailable, match="no devices today"):
            call()


@pytest.mark.usefixtures("backend")
def test_gates_that_do_not_hold_are_refused(pyopencl: Any, patch: Patch) -> None:
    plain = pyopencl.enqueue_barrier
    patch("enqueue_barrier", lambda queue, wait_for: plain(queue))
    with pytest.raises(BackendUnavailable, match="does not hold"):
        OpenCLBackend()


@pytest.mark.usefixtures("backend")
def test_gates_that_do_not_open_are_refused(pyopencl: Any, patch: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    complete, kept = pyopencl.command_execution_status.COMPLETE, []

    class Mute(pyopencl.UserEvent):  # type: ignore[misc]  # pyopencl is Any here
        def __init__(self, context: Any) -> None:
            super().__init__(context)
            kept.append(super().set_status)

        def set_status(self, status: int) -> None:
            raise pyopencl.Error("mute")

    patch("UserEvent", Mute)
    monkeypatch.setattr(session, "DRAIN_LIMIT", 0.05)
    with pytest.raises(BackendUnavailable, match=r"clSetUserEventStatus: .* mute"):
        OpenCLBackend()
    for set_status in kept:
        set_status(complete)


def test_event_in_an_error_state_is_an_error(make: Make, patch: Patch) -> None:
    class Failed:
        command_execution_status = -5

    patch("enqueue_marker", lambda _: Failed())
    s = make(E)
    with pytest.raises(DeviceError, match=r"clGetEventInfo: event e .* -5 \(OUT_OF_RESOURCES\)"):
        s.query("e")


def test_without_pyopencl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyopencl", None)
    with pytest.raises(BackendUnavailable, match="install pyopencl"):
        find_devices()


def test_import_of_the_backend_imports_neither_pyopencl_nor_numpy() -> None:
    code = "import sys, conformance.backends.opencl; print({'pyopencl', 'numpy'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True, cwd=ROOT
    )
    assert done.stdout.strip() == "set()"
