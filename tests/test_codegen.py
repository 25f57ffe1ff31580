"""The gates' code for devices that are not here: compiled, and its assembly read. `make codegen` runs these alone.

What a gate must have in its code: a poll of the host's word inside the loop, with system scope. One poll before the
loop and none in it would never see the host's store.
"""

from __future__ import annotations

import importlib
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from conformance.backends.gates import GateError, GateUnsupported, Native, triton_gate
from conformance.backends.gates.kernel import kernel_source
from conformance.backends.vendors import VENDORS, Build

CUDA = VENDORS["cuda"]
#: The word is read as the host writes it: a volatile load, which PTX gives the scope of the system.
POLL = re.compile(r"ld\.(volatile|relaxed\.sys|mmio\.relaxed\.sys)\.global\.u32|ld\.volatile\.u32")


def native(major: int, builds: tuple[Build, ...] = CUDA.builds) -> Native:
    """The run-time compiler for a device of this capability; there need be no driver."""
    module = SimpleNamespace(
        synchronize=lambda: None,
        current_device=lambda: 0,
        get_device_properties=lambda _: SimpleNamespace(major=major, minor=0),
    )
    torch = SimpleNamespace(__file__=triton_gate.__file__, version=SimpleNamespace(cuda="13.0"), cuda=module)
    return Native(replace(CUDA, builds=builds), torch=torch)


def compiled(native: Native, source: str) -> bytes:
    try:
        return bytes(native.compile(source, "gate.cu").raw)
    except GateUnsupported as error:
        why = str(error).partition(". Tried")[0]
        pytest.skip(f"needs an NVRTC library, as in the wheel nvidia-cuda-nvrtc: {why}")


def loops(assembly: str, label: str, branch: str) -> list[str]:
    """The text from each label to the last branch back to it."""
    found = []
    for match in re.finditer(label, assembly, re.MULTILINE):
        rest = assembly[match.end() :]
        backs = [m.end() for m in re.finditer(branch.format(re.escape(match[1])), rest)]
        if backs:
            found.append(rest[: backs[-1]])
    return found


@pytest.mark.parametrize("major", [8, 9])
def test_nvrtc_compiles_the_kernel_for_a_device_that_is_not_here(major: int) -> None:
    made = native(major)
    assert compiled(made, kernel_source(CUDA.timer)).startswith(b"\x7fELF")
    assert made.found["code"] == ("GetCUBIN", f"--gpu-architecture=sm_{major}0")


@pytest.mark.parametrize("major", [8, 9])
def test_the_kernel_polls_the_hosts_word_and_the_timer_inside_its_loop(major: int) -> None:
    ptx = Build(options=("--gpu-architecture=compute_{major}{minor}",), size="GetPTXSize", code="GetPTX")
    text = compiled(native(major, (ptx,)), kernel_source(CUDA.timer)).decode()
    (loop,) = [found for found in loops(text, r"^(\$L\S+):", r"bra(?:\.uni)?\s+{};") if POLL.search(found)]
    assert "%globaltimer" in loop
    after = text[text.index(loop) + len(loop) :]
    assert re.search(r"(membar|fence)\S*\.sys|membar\.sys|fence\.\S*sys", after), (
        "ENDED is written after a system fence"
    )
    assert POLL.search(after) is None, "no second look at OPEN behind the loop"


def test_a_kernel_whose_word_is_not_volatile_is_found_out() -> None:
    """The control: a plain load leaves the loop, and the reading above must see that."""
    ptx = Build(options=("--gpu-architecture=compute_90",), size="GetPTXSize", code="GetPTX")
    plain = kernel_source(CUDA.timer).replace("volatile unsigned int* w", "unsigned int* w")
    text = compiled(native(9, (ptx,)), plain).decode()
    assert not [found for found in loops(text, r"^(\$L\S+):", r"bra(?:\.uni)?\s+{};") if POLL.search(found)]


def test_what_does_not_compile_is_told_with_its_log() -> None:
    made = native(9)
    compiled(made, kernel_source(CUDA.timer))
    with pytest.raises(GateError, match=r"nvrtcCompileProgram returned \d+: .*gate\.cu\(\d+\): error"):
        made.compile(kernel_source("#define NOW(t) no_such(t)"), "gate.cu")


def triton_assembly(vendor: str, target: tuple[Any, ...], code: str, monkeypatch: pytest.MonkeyPatch) -> str:
    try:
        triton = importlib.import_module("triton")
        compiler = importlib.import_module("triton.compiler")
        targets = importlib.import_module("triton.backends.compiler")
    except ImportError as error:
        pytest.skip(f"needs triton: {error}")
    for name, value in (("_kernels", {}), ("tl", None), ("triton_now", None)):
        monkeypatch.setattr(triton_gate, name, value)
    timer = VENDORS[vendor].triton_timer
    kernel = triton_gate._kernel(timer.module, timer.function)
    types = dict.fromkeys(("ticket", "limit_us", "per_us", "max_polls"), "i32")
    source = compiler.ASTSource(kernel, {"w": "*i32", **types, "timed": "constexpr"}, {(5,): True})
    return str(triton.compile(source, target=targets.GPUTarget(*target)).asm[code])


def test_triton_polls_inside_its_loop_with_system_scope_on_nvidia(monkeypatch: pytest.MonkeyPatch) -> None:
    text = triton_assembly("cuda", ("cuda", 90, 32), "ptx", monkeypatch)
    poll = "ld.global.sys.acquire.b32"
    assert text.count(poll) == 1
    (loop,) = [found for found in loops(text, r"^(\$L\S+):", r"bra(?:\.uni)?\s+{};") if poll in found]
    assert "%globaltimer" in loop


def test_triton_polls_inside_its_loop_with_system_scope_on_amd(monkeypatch: pytest.MonkeyPatch) -> None:
    text = triton_assembly("rocm", ("hip", "gfx942", 64), "amdgcn", monkeypatch)
    # A second poll, before the loop, would have the polling lane never return to the loop.
    poll = re.compile(r"global_load_dword\s.*\bsc0 sc1\b")  # sc0 and sc1 together: the scope of the system
    assert len(poll.findall(text)) == 1
    (loop,) = [found for found in loops(text, r"^(\.L\w+):", r"s_c?branch\w*\s+{}\b") if poll.search(found)]
    assert "buffer_inv sc0 sc1" in loop
    assert "s_memrealtime" in loop
