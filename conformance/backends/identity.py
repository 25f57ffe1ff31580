"""Which devices and driver are here, read without torch: for `backends`, a report's fingerprint and `decide`."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from conformance.errors import BackendUnavailable
from conformance.loader import CDLL

UNKNOWN: Final = "unknown"
#: For whoever has no torch, or not the right one.
_WHERE: Final = "run with the Python that holds the vendor's torch"
_VERSION_FILE: Final = "/proc/driver/nvidia/version"


def find_cuda(environ: Mapping[str, str] = os.environ) -> list[tuple[str, str]]:
    """(index, name) of each NVIDIA device that torch would see. Raises BackendUnavailable with what is missing."""
    built = torch_built_for()
    if built is None:
        raise BackendUnavailable(f"cuda: torch is not installed; {_WHERE}")
    if built != "cuda":
        raise BackendUnavailable(f"cuda: the installed torch is built for {built}, not for CUDA")
    with _nvml() as nvml:
        if nvml is None:
            raise BackendUnavailable("cuda: libnvidia-ml.so.1 cannot be used: is the NVIDIA driver installed?")
        names = [_name(handle, nvml) for handle in _visible(nvml, environ)]
    if not names:
        raise BackendUnavailable("cuda: no NVIDIA device is visible (see CUDA_VISIBLE_DEVICES)")
    return [(str(index), name) for index, name in enumerate(names)]


def find_rocm(environ: Mapping[str, str] = os.environ, *, here: bool = False) -> list[tuple[str, str]]:
    """(index, name) of each AMD device that torch would see. Raises BackendUnavailable with what is missing.

    ``here``, of this and of the next two: torch is asked in this process, which imports it, and not in a short one.
    """
    built = _built("rocm")
    if built != "rocm" and not autoloaded():
        raise BackendUnavailable(f"rocm: the installed torch is built for {built}, not for ROCm")
    if built == "rocm":
        from conformance.backends import amd

        if seen := amd.visible(environ=environ):
            return [(str(index), gpu.name) for index, gpu in enumerate(seen)]
    return _asked("rocm", here)


def find_musa(*, here: bool = False) -> list[tuple[str, str]]:
    """(index, name) of each Moore Threads device that torch shows. Raises BackendUnavailable with what is missing."""
    _built("musa")
    if importlib.util.find_spec("torch_musa") is None:
        raise BackendUnavailable(f"musa: torch_musa is not installed; {_WHERE} (docs/musa.md)")
    return _asked("musa", here)


def find_accelerator(*, here: bool = False) -> list[tuple[str, str]]:
    """(index, name) of each device of another accelerator that torch shows. Raises BackendUnavailable if there is none.

    torch is asked only where something could be there: a build for one, or a plugin that torch loads by itself.
    """
    built = _built("accelerator")
    if built != "xpu" and not autoloaded():
        raise BackendUnavailable(f"accelerator: the installed torch is built for {built}, and no plugin adds a device")
    return _asked("accelerator", here)


def _built(name: str) -> str:
    built = torch_built_for()
    if built is None:
        raise BackendUnavailable(f"{name}: torch is not installed; {_WHERE}")
    return built


def _asked(name: str, here: bool) -> list[tuple[str, str]]:
    from conformance.backends.torch_device.ask import asked

    return asked(name, here=here)


def autoloaded() -> list[str]:
    """The plugins that torch loads when it is imported: they may make it another torch than its files say."""
    from importlib import metadata

    return sorted({point.value.partition(":")[0] for point in metadata.entry_points(group="torch.backends")})


def torch_built_for() -> str | None:
    """What the installed torch is built for: cuda, rocm or the CPU, from its version file; None if there is none."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    try:
        text = _text(os.path.join(os.path.dirname(spec.origin), "version.py"))
    except OSError:
        return "an unknown platform"
    for name, label in (("hip", "rocm"), ("cuda", "cuda"), ("xpu", "xpu")):
        if re.search(rf"^{name}\b[^=\n]*=\s*['\"]", text, re.MULTILINE):
            return label
    return "the CPU"


def identify(
    backend: str, index: int, environ: Mapping[str, str] = os.environ, *, every: bool = False
) -> tuple[str, str]:
    """(device name, driver version); ``unknown`` for what cannot be read.

    With ``every`` the names of all visible devices, one where they are of one name, and ``index`` is of no account.
    """
    if backend == "rocm":
        from conformance.backends import amd  # here and not above: an engine's start waits for every import

        return _chosen([gpu.name for gpu in amd.visible(environ=environ)], index, every), amd.driver()
    if backend == "musa":
        from conformance.backends import moore

        names, driver = moore.identify(environ)
        return _chosen(names, index, every), driver
    if backend != "cuda":
        return UNKNOWN, UNKNOWN
    with _nvml() as nvml:
        names = [_name(handle, nvml) for handle in _visible(nvml, environ)] if nvml is not None else []
    return _chosen(names, index, every), nvidia_driver()


def _chosen(names: list[str], index: int, every: bool) -> str:
    """The name of one device, or each name that is among them."""
    if every:
        return ", ".join(sorted(set(names))) or UNKNOWN
    return names[index] if index < len(names) else UNKNOWN


def unique_name(properties: Any, index: int) -> str:
    """The device's UUID, for the lock; its index where torch does not give one."""
    return str(getattr(properties, "uuid", None) or index)


def nvidia_driver(path: str | os.PathLike[str] = _VERSION_FILE) -> str:
    """The version of the NVIDIA kernel driver."""
    try:
        text = _text(path)
    except OSError:
        return UNKNOWN
    match = re.search(r"\b(\d{3}\.\d+(?:\.\d+)*)\b", text)
    return match[1] if match else UNKNOWN


def _text(path: str | os.PathLike[str]) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:  # without pathlib: an engine's start waits for this
        return file.read()


@contextmanager
def _nvml() -> Iterator[Any]:
    """NVIDIA's management library, or None."""
    try:
        nvml = CDLL("libnvidia-ml.so.1")
    except OSError:
        yield None
        return
    if nvml.nvmlInit_v2():
        yield None
        return
    try:
        yield nvml
    finally:
        nvml.nvmlShutdown()


def _visible(nvml: Any, environ: Mapping[str, str]) -> list[ctypes.c_void_p]:
    """The devices in the order in which CUDA numbers them: that of the bus, as CUDA_VISIBLE_DEVICES chooses.

    CUDA's own default order may differ where the devices do; then a fingerprint does not match, and decides nothing.
    """
    count = ctypes.c_uint()
    if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)):
        return []
    chosen = environ.get("CUDA_VISIBLE_DEVICES")
    entries = [str(n) for n in range(count.value)] if chosen is None else [e.strip() for e in chosen.split(",")]
    handles = []
    for entry in entries:
        handle = ctypes.c_void_p()
        if entry.isdecimal():
            failed = nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(int(entry)), ctypes.byref(handle))
        else:
            failed = nvml.nvmlDeviceGetHandleByUUID(entry.encode(), ctypes.byref(handle))
        if failed:
            break  # as CUDA does: what follows an entry that names nothing is not visible
        handles.append(handle)
    return handles


def _name(handle: ctypes.c_void_p, nvml: Any) -> str:
    name = ctypes.create_string_buffer(96)
    if nvml.nvmlDeviceGetName(handle, name, ctypes.c_uint(len(name))):
        return UNKNOWN
    return name.value.decode(errors="replace")
