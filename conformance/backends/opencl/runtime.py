"""Finding an OpenCL device: platforms, the text `P:D`, and what can be wrong with them."""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from typing import Any, Final

from conformance.errors import BackendUnavailable, UsageError

#: What to do where the Python side is missing.
INSTALL: Final = "install pyopencl and numpy (extra: opencl)"
#: What to do where there is no driver.
INSTALL_DRIVER: Final = "install an OpenCL driver, or PoCL (pip install pocl-binary-distribution)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """One device with a context on it. The modules travel along, so that nothing else imports them."""

    cl: Any
    np: Any
    platform: Any
    device: Any
    context: Any
    device_index: int  # within its platform
    position: int  # among all devices of all platforms


def one_line(error: BaseException) -> str:
    """The error's class and text, in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def load() -> tuple[Any, Any]:
    """The modules pyopencl and numpy. Raises BackendUnavailable where one cannot be imported."""
    try:
        return importlib.import_module("pyopencl"), importlib.import_module("numpy")
    except (ImportError, OSError) as error:  # OSError: the module is there, its libOpenCL is not
        raise BackendUnavailable(f"opencl: cannot be imported ({one_line(error)}); {INSTALL}") from error


def platforms(cl: Any) -> list[tuple[Any, list[Any] | BaseException]]:
    """Each platform with its devices, or with the error that it gave instead of them.

    Raises BackendUnavailable where no platform is found.
    """
    try:
        found = cl.get_platforms()
    except cl.Error as error:
        raise BackendUnavailable(
            f"opencl: clGetPlatformIDs gives no platform ({one_line(error)}); {INSTALL_DRIVER}"
        ) from error
    if not found:
        raise BackendUnavailable(f"opencl: clGetPlatformIDs finds no platform; {INSTALL_DRIVER}")
    answers: list[tuple[Any, list[Any] | BaseException]] = []
    for platform in found:
        try:
            answers.append((platform, list(platform.get_devices())))
        except cl.Error as error:  # one broken driver must not hide the others; choosing it raises
            answers.append((platform, error))
    return answers


def find_devices() -> list[tuple[str, str]]:
    """(index `P:D`, name) of each device that answers. Raises BackendUnavailable if none does."""
    cl, _ = load()
    found: list[tuple[str, str]] = []
    broken: BaseException | None = None
    for p, (_, devices) in enumerate(platforms(cl)):
        if isinstance(devices, BaseException):
            broken = broken or devices
            continue
        try:
            found += [(f"{p}:{d}", " ".join(device.name.split())) for d, device in enumerate(devices)]
        except cl.Error as error:
            broken = broken or error
    if found:
        return found
    if broken is None:
        raise BackendUnavailable(f"opencl: clGetDeviceIDs finds no device on any platform; {INSTALL_DRIVER}")
    raise BackendUnavailable(f"opencl: the driver is broken ({one_line(broken)}); {INSTALL_DRIVER}") from broken


def identify(position: int) -> tuple[str, str]:
    """Name and driver version of the device at ``position`` among all; ``unknown`` where that cannot be read.

    Where all devices are of one kind, the position is of no account.
    """
    try:
        cl, _ = load()
        devices = [d for _, answer in platforms(cl) if not isinstance(answer, BaseException) for d in answer]
        kinds = [(" ".join(d.name.split()), " ".join(d.driver_version.split())) for d in devices]
        if len(set(kinds)) == 1:
            return kinds[0]
        if position < len(kinds):
            return kinds[position]
    except BackendUnavailable:
        pass  # nothing to compare with: `unknown` matches nothing
    return "unknown", "unknown"


def parse_index(text: str) -> tuple[int, int]:
    """The two numbers of `P:D`. Raises UsageError for anything else."""
    match = re.fullmatch(r"([0-9]{1,4}):([0-9]{1,4})", text)
    if match is None:
        raise UsageError(f"opencl device '{text}' is not P:D (platform and device number); give it as in 0:0")
    return int(match[1]), int(match[2])


def open_device(text: str | None) -> Runtime:
    """The device ``text`` (`P:D`), by default the first that answers, with a context on it.

    Raises UsageError for a text that names no device, BackendUnavailable for a driver that fails.
    """
    wanted = parse_index(text) if text is not None else None
    cl, np = load()
    answers = platforms(cl)
    if wanted is None:
        first = find_devices()[0][0]
        wanted = parse_index(first)
    p, d = wanted
    devices = answers[p][1] if p < len(answers) else []
    if isinstance(devices, BaseException):
        raise BackendUnavailable(
            f"opencl: platform {p} does not list its devices ({one_line(devices)}); {INSTALL_DRIVER}"
        ) from devices
    if d >= len(devices):
        known = ", ".join(index for index, _ in find_devices())
        raise UsageError(f"opencl device '{p}:{d}' does not exist on this machine; there is {known}")
    position = d + sum(len(found) for _, found in answers[:p] if isinstance(found, list))
    try:
        context = cl.Context([devices[d]])
    except cl.Error as error:
        raise BackendUnavailable(
            f"opencl: clCreateContext fails on device {p}:{d} ({one_line(error)}); {INSTALL_DRIVER}"
        ) from error
    return Runtime(
        cl=cl, np=np, platform=answers[p][0], device=devices[d], context=context, device_index=d, position=position
    )
