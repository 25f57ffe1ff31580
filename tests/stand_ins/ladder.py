"""Opens a device that a stand-in plays, each time with one more piece missing: python ladder.py VENDOR.

Prints one line of JSON per opening: what is missing, the gate kind that is left, and what was said of each kind
that was tried. One process, since importing torch costs more than everything else here; the driver that it loads
has no wait-value function.
"""

from __future__ import annotations

import ctypes
import glob
import importlib
import json
import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from conformance.backends.registry import Opening, open_hardware
from conformance.backends.vendors import VENDORS

if TYPE_CHECKING:
    from collections.abc import Iterator

HOME = {"musa": "MUSA_HOME", "rocm": "ROCM_PATH"}
LIBRARIES = {"musa": ("libmusa.so*", "libmtrtc.so*"), "rocm": ("libamdhip64.so*", "libhiprtc.so*")}
LOAD = {"musa": "muModuleLoadData", "rocm": "hipModuleLoadData"}
LAUNCH = {"musa": "muLaunchKernel", "rocm": "hipModuleLaunchKernel"}
HOST = {"musa": "musaLaunchHostFunc", "rocm": "hipLaunchHostFunc"}


@contextmanager
def variable(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before


def fails(**codes: int) -> Any:
    return variable("DRIVER_DOUBLE_FAIL", ",".join(f"{name}={code}" for name, code in codes.items()))


@contextmanager
def knob(path: str, name: str) -> Iterator[None]:
    library = ctypes.CDLL(path)
    assert library.double_knob(name.encode(), 1) == 0
    try:
        yield
    finally:
        library.double_knob(name.encode(), 0)


@contextmanager
def without_sleep(vendor: str) -> Iterator[None]:
    module = getattr(importlib.import_module("torch"), VENDORS[vendor].module)
    kept = vars(module).pop("_sleep")
    try:
        yield
    finally:
        vars(module)["_sleep"] = kept


def look(missing: str, vendor: str) -> None:
    backend = open_hardware(Opening(name=vendor))
    gate = backend.gate()
    backend.close()
    line = {"missing": missing, "kind": gate.kind, "assurance": gate.assurance, "tried": dict(gate.tried)}
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def main(vendor: str) -> None:
    sys.modules["triton"] = None  # type: ignore[assignment]
    folder = os.path.join(os.environ[HOME[vendor]], "lib")
    driver, compiler = (glob.glob(os.path.join(folder, name))[0] for name in LIBRARIES[vendor])
    importlib.import_module("torch")  # with the driver's library: only the compiler is looked for later
    with variable(HOME[vendor], os.path.join(folder, "nowhere")):
        look("compiler", vendor)
    with knob(compiler, "rtc-fail"):
        look("code", vendor)
    if vendor == "musa":  # one code path for all vendors: the names are what differs
        with fails(**{LOAD[vendor]: 801}):
            look("load", vendor)
        with fails(**{LAUNCH[vendor]: 801}):
            look("launch", vendor)
        with knob(driver, "no-hold"):
            look("hold", vendor)
    with fails(**{LAUNCH[vendor]: 801, HOST[vendor]: 801}):
        look("host functions", vendor)
        with without_sleep(vendor):
            look("everything", vendor)
    look("wait-value alone", vendor)


if __name__ == "__main__":
    main(sys.argv[1])
