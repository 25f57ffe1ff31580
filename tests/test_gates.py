"""Gates on stand-in drivers: one code path for three tables of names, and what it says when something is missing."""

from __future__ import annotations

import ctypes
import importlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from driver_double import double

from conformance import errors
from conformance.backends.gates import (
    KINDS,
    Check,
    CheckTimes,
    Gate,
    GateError,
    GateUnsupported,
    Ladder,
    Native,
    SharedWords,
    Words,
    find_library,
    make_fd,
    triton_gate,
    words,
)
from conformance.backends.gates.base import Watchdog
from conformance.backends.gates.host_function import HostFunctionGate
from conformance.backends.gates.kernel import KernelGate, kernel_source
from conformance.backends.vendors import VENDORS, Vendor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Seconds after which something that must happen counts as hung; nothing here is about speed.
DEADLINE = 20.0
#: Long enough that a busy machine's lateness is not taken for a wrong limit.
TIMES = CheckTimes(hold_s=0.01, limit_s=0.3, patience_s=DEADLINE)
#: The kinds that the stand-ins can run.
RUNNABLE = ["kernel", "wait-value", "host-function", "sleep"]
OPENABLE = RUNNABLE[:-1]
ROOT = Path(errors.__file__).parents[1]
CHILD = Path(double.__file__).with_name("child.py")


def until(seen: Callable[[], bool]) -> bool:
    end = time.monotonic() + DEADLINE
    while not seen():
        if time.monotonic() > end:
            return False
        time.sleep(0.0005)
    return True


def _semaphores(gate: Gate) -> words.Semaphores:
    assert isinstance(gate, HostFunctionGate)
    return gate._semaphores


@dataclass
class Rig:
    """A vendor's record that leads to one set of stand-ins, and those stand-ins."""

    vendor: Vendor
    torch: Any
    module: Any
    parts: dict[str, Path]
    set_knobs: list[tuple[Any, str]]

    def ladder(self, **options: Any) -> Ladder:
        return Ladder(self.vendor, torch=self.torch, **({"times": TIMES} | options))

    def gate(self, kind: str, **options: Any) -> Gate:
        return self.ladder(kind=kind, **options).take(1)[0]

    def knob(self, name: str, part: str = "DRIVER") -> None:
        lib = ctypes.CDLL(str(self.parts[part]))
        assert lib.double_knob(name.encode(), 1) == 0
        self.set_knobs.append((lib, name))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, Path]]:
    if double.compiler() is None:
        pytest.skip("needs a C compiler: the stand-in driver is compiled from C")
    done: dict[tuple[str, tuple[str, ...]], dict[str, Path]] = {}

    def build(vendor: str, without: tuple[str, ...] = ()) -> dict[str, Path]:
        if (vendor, without) not in done:
            # Each set has file names of its own: what the process has loaded is looked at first.
            tag = "-".join(["double", *without, ""]).lower()
            done[vendor, without] = double.build(vendor, tmp_path_factory.mktemp(vendor), tag, without)
        return done[vendor, without]

    return build


@pytest.fixture
def rig(built: Callable[..., dict[str, Path]], tmp_path: Path) -> Iterator[Callable[..., Rig]]:
    set_knobs: list[tuple[Any, str]] = []

    def make(name: str = "cuda", *, without: tuple[str, ...] = (), major: int = 9, **changed: Any) -> Rig:
        parts, vendor = built(name, without), VENDORS[name]
        files = {part: (path.name,) for part, path in parts.items()}
        vendor = replace(
            vendor,
            **{
                "driver": files["DRIVER"],
                "runtime": files.get("RUNTIME", ()),
                "rtc": files["RTC"],
                "folders": (),
                "roots": (str(parts["DRIVER"].parent),),
            }
            | changed,
        )
        module = double.make_module(parts["DRIVER"], vendor.stream_handle, vendor.event_handle, major)
        return Rig(vendor, double.make_torch(tmp_path, vendor.module, module), module, parts, set_knobs)

    yield make
    for lib, name in set_knobs:
        lib.double_knob(name.encode(), 0)


# Every kind, every vendor.


@pytest.mark.parametrize("kind", RUNNABLE)
@pytest.mark.parametrize("vendor", VENDORS)
def test_each_kind_holds_opens_and_ends_under_each_table_of_names(rig: Any, vendor: str, kind: str) -> None:
    ladder = rig(vendor).ladder(kind=kind)
    assert ladder.tried == ((kind, "ok"),)
    assert ladder.check.holds
    assert ladder.check.reusable
    assert 240 <= ladder.check.ended_ms <= 470
    assert (ladder.check.release_us is not None) == ladder.causal == (kind != "sleep")
    assert ladder.assurance == ("timed" if kind == "sleep" else "causal")
    assert ladder.close()


def test_the_first_kind_that_works_is_used(rig: Any) -> None:
    ladder = rig().ladder()
    assert (ladder.kind, ladder.tried) == ("kernel", (("kernel", "ok"),))
    assert ladder.native.found["code"] == ("GetCUBIN", "--gpu-architecture=sm_90")
    # A second kind, to cross-check the first.
    assert ladder.attempt("host-function")
    assert ladder.tried == (("kernel", "ok"), ("host-function", "ok"))
    assert [gate.kind for gate in ladder.take(2, "host-function")] == ["host-function"] * 2
    assert ladder.kind == "kernel"


def test_gates_are_independent_and_hold_what_is_behind_them(rig: Any) -> None:
    made = rig()
    ladder = made.ladder()
    first, second = ladder.take(2)
    streams, events = [made.module.Stream() for _ in range(2)], [made.module.Event() for _ in range(2)]
    for gate, stream, event in zip((first, second), streams, events, strict=True):
        assert not gate.closed()
        assert gate.enqueue(stream, 30.0) == 1
        event.record(stream)
    assert until(first.closed)
    assert until(second.closed)
    with pytest.raises(GateError, match=r"the kernel gate is in use \(ticket 1\)"):
        first.enqueue(streams[0])
    second.open()
    assert until(events[1].query)
    assert (second.opened(), second.ended(), second.expired(), second.closed()) == (True, True, False, False)
    assert first.closed()
    assert not events[0].query()
    first.open()
    assert until(events[0].query)
    assert first.enqueue(streams[0], 30.0) == 2
    assert ladder.close()


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_driver_is_asked_itself_about_an_event(rig: Any, vendor: str) -> None:
    made = rig(vendor)
    gate, stream, event = made.gate("kernel"), made.module.Stream(), made.module.Event()
    gate.enqueue(stream, 30.0)
    event.record(stream)
    assert gate.native.query_event(event) is False
    gate.open()
    assert until(lambda: gate.native.query_event(event))


def test_a_new_thread_gets_the_context(rig: Any) -> None:
    made = rig()
    gate, stream = made.gate("kernel"), made.module.Stream()
    tickets: list[int] = []
    thread = threading.Thread(target=lambda: tickets.append(gate.enqueue(stream, 30.0)))
    thread.start()
    thread.join(DEADLINE)
    assert tickets == [1]
    assert until(gate.closed)
    gate.open()


def test_the_kernel_and_the_words_agree() -> None:
    text = kernel_source("#define NOW(t)")
    assert text.startswith("#define NOW(t)\n/*")
    used = {name: int(index) for index, name in re.findall(r"w ?(?:\[|\+ )(\d+)\D.*?/\* ([A-Z]+)", text)}
    assert used == {name: getattr(words, name) for name in ("OPEN", "ENTERED", "EXPIRED", "POLLS", "TICKS", "ENDED")}


def test_importing_gates_imports_no_vendor_package() -> None:
    code = "import sys, conformance.backends.gates; print(sorted({'torch', 'triton', 'numpy'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert found.stdout.strip() == "[]"


# What is missing or wrong.


def test_without_a_compiler_the_next_kind_is_used_and_every_place_is_named(rig: Any, tmp_path: Path) -> None:
    made = rig(rtc=("libnone-nvrtc.so.*", "libnone-nvrtc.so"), folders=("nvidia/*/lib",), roots=(str(tmp_path),))
    made.vendor = replace(made.vendor, roots=(str(made.parts["DRIVER"].parent), str(tmp_path / "toolkit")))
    ladder = made.ladder()
    tried = dict(ladder.tried)
    assert ladder.kind == "wait-value"
    assert list(tried) == ["kernel", "triton", "wait-value"]
    assert tried["kernel"].startswith("no libnone-nvrtc.so.* or libnone-nvrtc.so could be used. Tried ")
    for place in ("already loaded: nothing", f"{tmp_path}/nvidia/*/lib", str(tmp_path / "toolkit"), "loader: libnone"):
        assert place in tried["kernel"]


def test_a_failing_compile_is_told_with_its_log(rig: Any) -> None:
    made = rig("rocm")
    made.knob("rtc-fail", "RTC")
    with pytest.raises(GateError) as failed:
        made.ladder(kind="kernel")
    said = str(failed.value)
    assert "no gate works on rocm: kernel: " in said
    assert f"{made.parts['RTC']} did not compile gate.cu" in said
    log = "hiprtcCompileProgram returned 6: gate.cu(3): error: made up"
    assert f"with --offload-arch=gfx942: {log} | with no options: {log}" in said


@pytest.mark.parametrize(("vendor", "code"), [("cuda", "GetPTX"), ("musa", "GetFatBin")])
def test_an_unknown_architecture_is_left_to_the_driver(rig: Any, vendor: str, code: str) -> None:
    ladder = rig(vendor, major=99).ladder(kind="kernel")
    assert ladder.native.found["code"] == (code,)


def test_a_gate_ends_though_the_timer_stands_still(rig: Any) -> None:
    made = rig()
    made.knob("frozen")
    ladder = made.ladder(kind="kernel")
    assert ladder.native.rates is not None
    assert ladder.native.rates[0] == 0.0
    assert ladder.native.rates[1] > 0


def test_a_launch_that_blocks_is_refused(rig: Any) -> None:
    made = rig()
    made.knob("block")
    with pytest.raises(GateError, match="its launch returns only after its end"):
        made.ladder(kind="kernel")


def test_an_interrupted_calibration_is_not_taken(rig: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = rig()
    launch, uses = KernelGate.launch, [0]

    def slow(gate: KernelGate, *args: Any) -> None:
        launch(gate, *args)
        uses[0] += 1
        if uses[0] == 2:  # the first that is measured: seen closed for a quarter less than it was
            time.sleep(0.005)

    monkeypatch.setattr(KernelGate, "launch", slow)
    ladder = made.ladder(kind="kernel")
    assert ladder.native.rates is not None
    assert ladder.native.rates[0] == pytest.approx(1e9, rel=0.2)
    assert uses[0] > 2


def test_a_limit_that_a_busy_host_saw_late_is_looked_at_again(rig: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, checks = Gate.selfcheck, [0]

    def selfcheck(gate: Gate, times: CheckTimes | None = None) -> Check:
        checks[0] += 1
        check = plain(gate, times)
        return replace(check, ok=False, reason="its limit", **worse) if checks[0] == 1 else check

    monkeypatch.setattr(Gate, "selfcheck", selfcheck)
    worse: dict[str, Any] = {}
    assert rig().ladder(kind="kernel").tried == (("kernel", "ok"),)
    checks[0], worse = 0, {"holds": False}  # this is no matter of time
    with pytest.raises(GateError, match="kernel: self-check: its limit"):
        rig().ladder(kind="kernel")


def test_a_variable_that_makes_launches_block_is_refused(rig: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for vendor in VENDORS:
        made = rig(vendor)
        for name in made.vendor.blocking:
            with monkeypatch.context() as patch:
                patch.setenv(name, "1")
                with pytest.raises(GateError, match=f"{name}=1 is set: a closed gate would block its own launch"):
                    made.ladder()
                patch.setenv(name, "0")
                assert made.ladder(kind="host-function").close()


def test_a_missing_function_costs_its_kind_and_is_named(rig: Any) -> None:
    made = rig(without=("NO_WAIT",))
    ladder = made.ladder(kind="host-function")
    assert ladder.attempt("wait-value") is None
    names = "cuStreamWaitValue32_v2 or cuStreamWaitValue32"
    assert dict(ladder.tried)["wait-value"] == f"{names}: not exported by {made.parts['DRIVER']}"
    with pytest.raises(GateError, match="the wait-value gate does not work here: cuStreamWaitValue32_v2"):
        ladder.take(1, "wait-value")
    with pytest.raises(GateError, match=re.escape("nvrtcGetCUBIN: not exported | with no options: nvrtcGetPTXSize")):
        rig(without=("NO_CODE",)).ladder(kind="kernel")


def test_a_refused_call_is_told_with_its_error(rig: Any) -> None:
    made = rig()
    made.knob("fail-wait")
    said = r"wait-value: self-check: cuStreamWaitValue32_v2 returned 801 \(FAKE_NOT_SUPPORTED\)"
    with pytest.raises(GateError, match=said):
        made.ladder(kind="wait-value")


def test_a_gate_whose_launch_failed_holds_nothing_and_is_not_used_again(rig: Any) -> None:
    made = rig()
    gate, stream, event = made.gate("wait-value"), made.module.Stream(), made.module.Event()
    made.knob("fail-wait")
    with pytest.raises(GateError, match="returned 801"):
        gate.enqueue(stream)
    event.record(stream)
    assert until(event.query)
    assert gate.idle()
    with pytest.raises(GateError, match="cannot be used again: GateError: cuStreamWaitValue32_v2 returned 801"):
        gate.enqueue(stream)


def test_a_missing_driver_names_what_was_searched(rig: Any, tmp_path: Path) -> None:
    made = rig(driver=("libnone-driver.so*",), roots=(str(tmp_path), "$NO_SUCH_VARIABLE/lib"))
    with pytest.raises(GateUnsupported) as failed:
        made.ladder()
    said = str(failed.value)
    assert said.startswith("no libnone-driver.so* could be used. Tried already loaded: nothing; wheels: nothing")
    assert f"toolkit: nothing in {tmp_path}; loader: libnone-driver.so: cannot open" in said
    assert "NO_SUCH_VARIABLE" not in said


def test_the_search_names_libraries_that_do_not_fit_and_goes_on(rig: Any, tmp_path: Path) -> None:
    made = rig()
    here = made.parts["DRIVER"].parent
    (tmp_path / "libdouble-search.so.1").write_text("not a library")
    (tmp_path / "libdouble-search.so.2").write_bytes(made.parts["RTC"].read_bytes())
    with pytest.raises(GateUnsupported) as failed:
        find_library(("libdouble-search.so.*",), ("cuInit", "cuLaunchKernel"), folders=("",), bases=[str(tmp_path)])
    assert "libdouble-search.so.1: file too short" in str(failed.value)
    assert f"{tmp_path}/libdouble-search.so.2 has no cuInit or cuLaunchKernel" in str(failed.value)
    # The control: the same name, exported. Version .2 is asked for, and found as loaded already.
    found = find_library(("libdouble-search.so.*",), ("nvrtcCompileProgram",), roots=(str(tmp_path),), prefer=".2")
    assert (found.path, found.how) == (f"{tmp_path}/libdouble-search.so.2", "already loaded")
    found = find_library((made.parts["DRIVER"].name,), ("cuLaunchKernel",), roots=(str(here),))
    assert found.path == str(made.parts["DRIVER"])


def test_an_unknown_kind_names_the_nearest(rig: Any) -> None:
    with pytest.raises(errors.UsageError, match="unknown gate kind 'kernl'; did you mean kernel"):
        rig().ladder(kind="kernl")
    assert list(KINDS) == ["kernel", "triton", "wait-value", "host-function", "sleep"]


def test_no_kind_works_names_each(rig: Any) -> None:
    made = rig(without=("NO_WAIT",))
    made.knob("block")
    del made.module._sleep
    made.vendor = replace(made.vendor, symbols={**made.vendor.symbols, "host": ("cuNoSuchHost",)})
    with pytest.raises(GateError) as failed:
        made.ladder()
    for kind in KINDS:
        assert f"{kind}: " in str(failed.value)
    assert "cuNoSuchHost: not exported" in str(failed.value)
    assert "torch.double has no _sleep" in str(failed.value)


def test_memory_that_cannot_be_registered(rig: Any) -> None:
    made = rig("musa")
    made.knob("no-register", "RUNTIME")
    ladder = made.ladder(kind="kernel")  # in torch's pinned memory
    assert ladder.words.why == "musaHostRegister returned 801 (FAKE_NOT_SUPPORTED)"
    fd = make_fd(8)
    try:  # but a supervisor cannot see that
        with pytest.raises(GateError, match="musaHostRegister returned 801"):
            made.ladder(kind="kernel", fd=fd)
    finally:
        os.close(fd)


def test_blocks_run_out_and_pages_are_given_back(rig: Any) -> None:
    made = rig()
    ladder = made.ladder(kind="kernel", gates=16)
    count = ctypes.CDLL(str(made.parts["DRIVER"])).double_registered
    before = count()
    ladder.take(15)  # one was used by the self-check
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
        assert SharedWords(fd).closed() == [1]  # 0 was the self-check's
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
    assert gates[0].watchdog.waiting() <= 3  # these two, and the self-check's
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
        assert shared.blocks() == [0, 1]
        for ticket in (1, 2):
            assert shared.closed() == []
            child.stdin.write("\n")
            child.stdin.flush()
            assert child.stdout.readline() == "enqueued\n"
            assert until(lambda: shared.closed() == [1])
            assert (shared.ticket(1), shared.ended(1)) == (ticket, False)
            if stopped:
                os.kill(child.pid, signal.SIGSTOP)
            assert shared.open_all() == [1]
            assert shared.closed() == []
            assert shared.open_all() == []
            if stopped:
                os.kill(child.pid, signal.SIGCONT)
            assert until(lambda: shared.ended(1))
            assert child.stdout.readline() == "ended opened in time\n"
        assert child.stdout.readline() == "closed\n"
        assert child.wait(DEADLINE) == 0
    finally:
        child.kill()
        child.communicate()


# Triton and NVRTC.


class Pointer:
    """A pointer in a kernel that Python itself runs."""

    def __init__(self, view: Any, index: int) -> None:
        self.view, self.index = view, index

    def __add__(self, words: int) -> Pointer:
        return Pointer(self.view, self.index + words)


class Number(int):
    """An integer argument of such a kernel."""

    def to(self, _: object) -> Number:
        return self


@pytest.fixture
def fake_triton(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A Triton that runs kernels in Python on the stand-in's streams; returns the options of each jit."""
    options: list[Any] = []

    def store(to: Pointer, value: int, **_: object) -> None:
        to.view[to.index] = value

    def jit(**chosen: Any) -> Any:
        options.append(chosen)
        return lambda function: SimpleNamespace(function=function)

    language = ModuleType("triton.language")
    load = SimpleNamespace(
        int64=None,
        constexpr=bool,
        store=store,
        atomic_xchg=store,
        atomic_add=lambda at, _, sem, scope: at.view[at.index] if (sem, scope) == ("acquire", "sys") else None,
    )
    vars(language).update(vars(load))
    triton, timers = ModuleType("triton"), ModuleType("triton.language.extra.cuda")
    vars(triton).update(jit=jit, language=language)
    vars(timers)["globaltimer"] = time.perf_counter_ns
    for module in (triton, language, timers):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(triton_gate, "_kernels", {})
    monkeypatch.setattr(triton_gate, "tl", None)
    monkeypatch.setattr(triton_gate, "triton_now", None)
    return options


@pytest.fixture
def triton_rig(rig: Any, fake_triton: list[Any], monkeypatch: pytest.MonkeyPatch) -> Rig:
    """A rig whose driver's threads run a Triton kernel's own Python text."""
    made: Rig = rig()
    driver = ctypes.CDLL(str(made.parts["DRIVER"]))
    entered: list[Any] = []
    keep: list[Any] = []
    enter, define = made.module.stream, triton_gate._kernel

    def stream(of: Any) -> Any:
        entered.append(of)
        return enter(of)

    def launcher(module: str, function: str) -> Any:
        kernel = define(module, function)

        def launch(block: tuple[Any, int], *args: int, num_warps: int) -> None:
            assert num_warps == 1
            numbers = [Number(argument) for argument in args[:-1]]
            run = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(
                lambda _: kernel.function(Pointer(*block), *numbers, args[-1])
            )
            keep.append(run)
            driver.double_host(ctypes.c_void_p(entered[-1].raw), run, None)

        return {(1,): launch}

    monkeypatch.setattr(made.module, "stream", stream)
    monkeypatch.setattr(triton_gate, "_kernel", launcher)
    monkeypatch.setattr(Words, "tensor", lambda self, base: (self.view, base))
    return made


def test_the_triton_gate_holds_opens_and_ends(triton_rig: Rig, fake_triton: list[Any]) -> None:
    ladder = triton_rig.ladder(kind="triton")
    assert ladder.tried == (("triton", "ok"),)
    assert fake_triton == [{"do_not_specialize": ["ticket", "limit_us", "per_us", "max_polls"]}]
    assert ladder.close()


def test_the_triton_gate_is_bounded_by_polls_where_there_is_no_timer(triton_rig: Rig) -> None:
    vendor = replace(triton_rig.vendor, triton_timer=replace(triton_rig.vendor.triton_timer, function=""))
    native = Native(vendor, torch=triton_rig.torch)
    native.rates = (0.0, 1e4)
    gate = KINDS["triton"](native, Words(native), Watchdog())
    stream = triton_rig.module.Stream()
    gate.enqueue(stream, 0.01)
    assert until(gate.ended)
    assert gate.expired()
    gate.enqueue(stream, 6000.0)
    assert until(gate.closed)
    gate.open()
    assert until(gate.ended)
    assert not gate.expired()


def test_without_triton_the_reason_is_the_import(rig: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(GateError, match="triton: import triton: "):
        rig().ladder(kind="triton")


def test_nvrtc_compiles_the_kernel(rig: Any) -> None:
    real = VENDORS["cuda"]
    made = rig(rtc=real.rtc, folders=real.folders)
    made.vendor = replace(made.vendor, roots=(*made.vendor.roots, *real.roots))
    native = Native(made.vendor, torch=made.torch)
    try:
        image = native.compile(kernel_source(real.timer), "gate.cu")
    except GateUnsupported as error:
        pytest.skip(f"needs an NVRTC library: {error}")
    assert native.found["code"] == ("GetCUBIN", "--gpu-architecture=sm_90")
    assert image.raw.startswith(b"\x7fELF")
    with pytest.raises(GateError, match=r"nvrtcCompileProgram returned \d+: .*gate\.cu\(\d+\): error"):
        native.compile(kernel_source("#define NOW(t) no_such(t)"), "gate.cu")


def test_triton_compiles_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        triton = importlib.import_module("triton")
        compiler = importlib.import_module("triton.compiler")
        target = importlib.import_module("triton.backends.compiler").GPUTarget
    except ImportError as error:
        pytest.skip(f"needs triton: {error}")
    monkeypatch.setattr(triton_gate, "_kernels", {})
    polls = {"ptx": "ld.global.sys.acquire.b32", "amdgcn": "buffer_inv sc0 sc1"}
    for vendor, device, code in (("cuda", ("cuda", 90, 32), "ptx"), ("rocm", ("hip", "gfx942", 64), "amdgcn")):
        triton_gate._kernels.clear()
        timer = VENDORS[vendor].triton_timer
        kernel = triton_gate._kernel(timer.module, timer.function)
        types = dict.fromkeys(("ticket", "limit_us", "per_us", "max_polls"), "i32")
        source = compiler.ASTSource(kernel, {"w": "*i32", **types, "timed": "constexpr"}, {(5,): True})
        text = triton.compile(source, target=target(*device)).asm[code]
        # One poll, in the loop: a second one before it would have AMD's polling lane never return to the loop.
        assert text.count(polls[code]) == 1
        loop = text.index("in Loop" if code == "amdgcn" else "$L__BB0_2:")
        assert text.index(polls[code]) > loop
