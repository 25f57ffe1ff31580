"""What gates need of libraries and compilers: where they are looked for, and what is said when something is missing."""

from __future__ import annotations

import ctypes
import re
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import gate_helpers
import pytest
from gate_helpers import Rig, until

from conformance.backends.gates import KINDS, GateError, GateUnsupported, Native, Words, find_library, triton_gate
from conformance.backends.gates.base import Watchdog

built, rig = gate_helpers.built, gate_helpers.rig


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


def test_a_missing_driver_costs_the_kinds_that_call_it_and_names_what_was_searched(rig: Any, tmp_path: Path) -> None:
    made = rig(driver=("libnone-driver.so*",))
    made.vendor = replace(made.vendor, roots=(*made.vendor.roots, str(tmp_path), "$NO_SUCH_VARIABLE/lib"))
    ladder = made.ladder()
    assert (ladder.kind, ladder.assurance) == ("sleep", "timed")
    tried = dict(ladder.tried)
    searched = "no libnone-driver.so* could be used. Tried already loaded: nothing; wheels: nothing"
    names = {"kernel": "cuModuleLoadData", "wait-value": "cuStreamWaitValue32_v2", "host-function": "cuLaunchHostFunc"}
    for kind, name in names.items():
        assert tried[kind].startswith(name)
        assert searched in tried[kind]
        assert f"{tmp_path}; loader: libnone-driver.so: cannot open" in tried[kind]
    assert "NO_SUCH_VARIABLE" not in str(tried)


def test_a_function_that_is_missing_costs_no_other_kind(rig: Any) -> None:
    made = rig()
    absent = made.vendor.symbols | {"launch": ("cuNoSuchLaunch",)}
    made.vendor = replace(made.vendor, symbols=absent)
    ladder = made.ladder()
    assert ladder.kind == "wait-value"
    assert dict(ladder.tried)["kernel"] == f"cuNoSuchLaunch: not exported by {made.parts['DRIVER']}"


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
