"""Each missing piece costs one kind of gate, and the report says which call failed and how."""

from __future__ import annotations

import re
from typing import Any

import pytest
import stand_in_helpers

stand_in = stand_in_helpers.stand_in

NO_TRITON = r"import triton: .*"
NAMES = {
    "musa": {
        "rtc": "mtrtc",
        "library": r"libmtrtc\.so\*",
        "options": "--offload-arch=mp_31",
        "load": "muModuleLoadData",
        "launch": "muLaunchKernel",
        "host": "musaLaunchHostFunc",
        "wait": "muStreamWaitValue32_v2 or muStreamWaitValue32",
        "module": r"torch\.musa",
    },
    "rocm": {
        "rtc": "hiprtc",
        "library": r"libhiprtc\.so\* or libamdhip64\.so\*",
        "options": "--offload-arch=gfx942",
        "load": "hipModuleLoadData",
        "launch": "hipModuleLaunchKernel",
        "host": "hipLaunchHostFunc",
        "wait": "hipStreamWaitValue32_v2 or hipStreamWaitValue32",
        "module": r"torch\.cuda",
    },
}


@pytest.mark.parametrize("vendor", ["musa", "rocm"])
def test_each_missing_piece_costs_its_kind_and_is_named(stand_in: Any, vendor: str) -> None:
    names = NAMES[vendor]
    openings = stand_in(vendor, ("NO_WAIT",)).script("ladder.py", vendor)
    seen = {opening["missing"]: opening for opening in openings}
    log = rf"{names['rtc']}CompileProgram returned 6: gate\.cu\(3\): error: made up"
    kernel = {
        "compiler": rf"no {names['library']} could be used\. Tried already loaded: .*; wheels: .*",
        "code": rf".*/lib{names['rtc']}\.so\.\d did not compile gate\.cu: with {names['options']}: {log} \| .*{log}",
        "load": rf"{names['load']} returned 801 \(FAKE_NOT_SUPPORTED\)",
        "launch": rf"{names['launch']} returned 801 \(FAKE_NOT_SUPPORTED\)",
        "hold": r"the kernel gate was seen closed for \d+\.\d% of its time: its launch returns only after its end",
        "host functions": rf"{names['launch']} returned 801 \(FAKE_NOT_SUPPORTED\)",
    }
    wait = rf"{names['wait']}: not exported by /.*"
    assert vendor == "rocm" or set(kernel) < set(seen)
    for missing, reason in kernel.items():
        if missing not in seen:
            continue
        tried = seen[missing]["tried"]
        assert re.fullmatch(reason, tried["kernel"]), (missing, tried["kernel"])
        assert re.fullmatch(NO_TRITON, tried["triton"]), tried["triton"]
        assert re.match(wait, tried["wait-value"]), tried["wait-value"]
        if missing != "host functions":
            assert (seen[missing]["kind"], seen[missing]["assurance"]) == ("host-function", "causal"), missing
            assert tried["host-function"] == "ok"
    last = seen["host functions"]
    assert (last["kind"], last["assurance"], last["tried"]["sleep"]) == ("sleep", "timed", "ok")
    assert f"{names['host']} returned 801 (FAKE_NOT_SUPPORTED)" in last["tried"]["host-function"]
    none = seen["everything"]
    assert (none["kind"], none["assurance"]) == ("none", "none")
    assert re.fullmatch(rf"{names['module']} has no _sleep", none["tried"]["sleep"])
    assert set(none["tried"]) == {"kernel", "triton", "wait-value", "host-function", "sleep"}
    # The control: with everything there but the one function, the first kind is used again.
    whole = seen["wait-value alone"]
    assert (whole["kind"], whole["tried"]["kernel"]) == ("kernel", "ok")
