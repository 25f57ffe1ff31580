"""``backends --doctor``: everything that somebody who is not at the machine would ask for, in one block.

No host name, no user name, no home path. Hardware that is here is opened in a child, as `run` opens it, and
each gate kind is tried: gates are closed for some milliseconds. Nothing else is queued on a device.
"""

from __future__ import annotations

import ctypes.util
import glob
import importlib.util
import os
import platform
import resource
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from conformance import __version__, fingerprint
from conformance.backends.registry import HARDWARE, NAMES, Found, Opening, find
from conformance.backends.vendors import VENDORS
from conformance.errors import SuiteError
from conformance.header import recorded_environment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conformance.backends.vendors import Vendor
    from conformance.supervisor import ChildRunner

#: Distributions that matter, by the beginnings of their names.
PACKAGES: Final = (
    "torch",
    "triton",
    "pytorch",
    "nvidia_",
    "cuda_",
    "rocm",
    "amd_",
    "pyopencl",
    "pocl",
    "vllm",
    "pymtml",
)
#: What the vendors' kernel drivers make.
NODES: Final = ("/dev/nvidia[0-9]*", "/dev/kfd", "/dev/dri/render*", "/dev/mtgpu*")


def block() -> Iterator[str]:
    """The lines, in order."""
    yield from map(fingerprint.home_free, _lines())


def _lines() -> Iterator[str]:
    yield f"--- stream-conformance doctor, suite {__version__} ---"
    yield f"python       {platform.python_version()} ({platform.python_implementation()}), {sys.executable}"
    libc = " ".join(platform.libc_ver())
    yield f"system       {platform.system()} {platform.release()}, {platform.machine()}, {libc}"
    yield f"processors   {len(os.sched_getaffinity(0))} of {os.cpu_count()}"
    yield f"locked memory {_limit(resource.RLIMIT_MEMLOCK)}; C compiler {_compiler()}"
    yield f"device nodes {_or_none(path for pattern in NODES for path in sorted(glob.glob(pattern)))}"
    yield f"packages     {_or_none(_packages())}"
    yield from _torch()
    yield f"variables    {_or_none(f'{name}={value}' for name, value in recorded_environment().items())}"
    for name in fingerprint.set_blocking_variables():
        yield f"refused      {name} is set: run and pytest do not start on hardware with it"
    found = [find(name) for name in NAMES]
    for backend in found:
        yield from _backend(backend)
    for vendor in VENDORS.values():
        yield from _libraries(vendor)
    for backend in found:
        if backend.here and backend.name in HARDWARE:
            yield from opened(backend)
    yield "--- end ---"


def _torch() -> Iterator[str]:
    from conformance.backends import identity
    from conformance.backends.torch_device.ask import facts

    built, plugins = identity.torch_built_for(), identity.autoloaded()
    what = "not installed" if built is None else f"built for {built}"
    yield f"torch        {what}; plugins that it loads: {_or_none(plugins)}"
    if built is None:
        return
    answer = facts()
    if "error" in answer:
        yield f"torch says   {answer['error']}"
        return
    for name, told in answer["backends"].items():
        said = told["reason"].removeprefix(f"{name}: ") if "reason" in told else ", ".join(told["devices"])
        stand_in = f" (a stand-in: {told['stand_in']})" if told.get("stand_in") else ""
        yield f"torch says   {name}: {said}{stand_in}"


def _backend(found: Found) -> Iterator[str]:
    for index, device in found.devices:
        yield f"backend      {found.name} {index}: {device}"
    if not found.here:
        yield f"backend      {found.name}: not here: {found.reason.removeprefix(found.name + ': ')}"
    elif found.name in HARDWARE:
        for part, value in fingerprint.read_here(found.name).items():
            yield f"fingerprint  {found.name} 0: {part} {value}"


def _libraries(vendor: Vendor) -> Iterator[str]:
    """Files of the names that the vendor's row has; none is loaded."""
    spec = importlib.util.find_spec("torch")
    sites = [str(Path(spec.origin).parents[1])] if spec is not None and spec.origin is not None else []
    places = [os.path.join(site, folder) for site in dict.fromkeys([*sites, *sys.path]) for folder in vendor.folders]
    places += [root for root in map(os.path.expandvars, vendor.roots) if "$" not in root]
    for what, patterns in (("driver", vendor.driver), ("runtime", vendor.runtime), ("compiler", vendor.rtc)):
        if patterns:
            files = dict.fromkeys(f for place in places for p in patterns for f in glob.glob(os.path.join(place, p)))
            # The last pattern is the plain name; see find_library.
            loader = ctypes.util.find_library(patterns[-1].split(".so", maxsplit=1)[0].removeprefix("lib"))
            shown = _or_none(sorted(files))
            yield f"libraries    {vendor.name} {what}: {shown}; by the loader: {loader or 'none'}"


def opened(found: Found) -> Iterator[str]:
    """What a device that is opened says of itself and of every gate kind; a child does it."""
    from conformance.numbers import DEPTHS, Depth
    from conformance.runner import open_runner

    numbers = DEPTHS[Depth.QUICK]
    try:
        child = open_runner(Opening(name=found.name, gate_limit=numbers.gate_limit), numbers, Depth.QUICK)
    except SuiteError as error:
        yield f"gates        {found.name} 0: cannot be opened: {error}"
        return
    runner = cast("ChildRunner", child)  # as all hardware is
    try:
        header = runner.header
        device = header.device
        built = f"built with {device.runtime}"
        yield f"opened       {found.name} 0: {device.name}, {device.capability}, driver {device.driver}, {built}"
        for name, version in header.software.items():
            yield f"software     {found.name} 0: {name} {version}"
        for tried in header.gate.tried:
            yield f"gates        {found.name} 0: {tried.kind}: {' '.join(tried.result.split())}"
        for kind, said in runner.measure_part("gate kinds").values.items():
            yield f"gates        {found.name} 0: {kind}: {said}"
    finally:
        runner.close()


def _packages() -> Iterator[str]:
    for name, version in sorted(fingerprint.wheel_versions().items()):
        if name.startswith(PACKAGES):
            yield f"{name} {version}"


def _compiler() -> str:
    return next((name for name in ("cc", "gcc", "clang", "mcc", "nvcc", "hipcc") if shutil.which(name)), "none")


def _limit(which: int) -> str:
    soft, _ = resource.getrlimit(which)
    return "unlimited" if soft == resource.RLIM_INFINITY else f"{soft} bytes"


def _or_none(items: Any) -> str:
    return ", ".join(items) or "none"
