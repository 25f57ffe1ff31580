"""What makes two machines the same for a decision. Standard library only.

Every part has a reader that needs no torch. A part that cannot be read is `unknown`, and `unknown`
matches nothing; a part that does not apply is `none`, and `none` matches `none`.
Source: docs/rules.md 4, "fingerprint".
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from typing import Final

UNKNOWN: Final = "unknown"
NONE: Final = "none"

#: Variables that make a vendor's calls block until the device has done them.
LAUNCH_BLOCKING: Final = (
    "CUDA_LAUNCH_BLOCKING",
    "HIP_LAUNCH_BLOCKING",
    "AMD_SERIALIZE_KERNEL",
    "AMD_SERIALIZE_COPY",
    "MUSA_LAUNCH_BLOCKING",
)

#: Variables that change how streams share the device's queues.
QUEUE_VARIABLES: Final = (
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "GPU_MAX_HW_QUEUES",
    "MUSA_DEVICE_MAX_CONNECTIONS",
    "MUSA_EXECUTE_COUNT",
    *LAUNCH_BLOCKING,
)

#: The wheels that hold a backend's plugin and runtime, by backend; the first one found counts.
PLUGINS: Final[Mapping[str, tuple[str, ...]]] = {"musa": ("torch_musa",)}
RUNTIMES: Final[Mapping[str, tuple[str, ...]]] = {
    "cuda": ("nvidia_cuda_runtime", "nvidia_cuda_runtime_cu13", "nvidia_cuda_runtime_cu12"),
    "rocm": ("rocm_sdk_core", "rocm"),
    "opencl": ("pocl_binary_distribution", "pyopencl"),
}
#: Backends whose runtime is somewhere, if no wheel holds it: in a toolkit, or within torch's own wheel.
TOOLKITS: Final = ("cuda", "rocm", "musa")
#: Packages whose version matters even where no wheel says it.
_NAMED: Final = frozenset({"torch", *(name for names in PLUGINS.values() for name in names)})


def set_blocking_variables(environ: Mapping[str, str] = os.environ) -> list[str]:
    """The launch-blocking variables that are set to anything but empty or 0."""
    return [name for name in LAUNCH_BLOCKING if environ.get(name, "") not in ("", "0")]


def wheel_versions(path: list[str] | None = None) -> dict[str, str]:
    """Versions of installed distributions, from the names of their ``*.dist-info`` folders alone.

    torch, or a plugin, that lies there without such a folder (a build in its source tree) has the version unknown.
    """
    found: dict[str, str] = {}
    bare: set[str] = set()
    for folder in sys.path if path is None else path:
        try:
            names = os.listdir(folder or ".")
        except OSError:
            continue
        for name in names:
            if match := re.fullmatch(r"(.+)-([^-]+)\.dist-info", name):
                found.setdefault(match[1].lower().replace("-", "_").replace(".", "_"), match[2])
        bare.update(_NAMED.intersection(names))
    return dict.fromkeys(bare, UNKNOWN) | found


def parts(
    backend: str, device: str, driver: str, *, environ: Mapping[str, str] = os.environ, path: list[str] | None = None
) -> dict[str, str]:
    """The parts of a fingerprint; ``device`` and ``driver`` come from the backend's own reader."""
    wheels = wheel_versions(path)
    torch = NONE if backend in ("reference", "opencl") else wheels.get("torch", NONE)
    plugin, runtime = (
        next((_named(name, wheels[name]) for name in table.get(backend, ()) if name in wheels), NONE)
        for table in (PLUGINS, RUNTIMES)
    )
    if runtime == NONE and backend in TOOLKITS:
        from conformance import runtimes  # here and not above: where a wheel says it, an engine's start needs no search

        runtime = runtimes.runtime(backend, environ, path)
    return {
        "backend": backend,
        "device": device or UNKNOWN,
        "driver": driver or UNKNOWN,
        "torch": torch,
        "plugin": plugin,
        "runtime": runtime,
        **{name: _setting(name, environ) for name in QUEUE_VARIABLES},
    }


def _named(name: str, version: str) -> str:
    return UNKNOWN if version == UNKNOWN else f"{name} {version}"


def _setting(name: str, environ: Mapping[str, str]) -> str:
    value = environ.get(name, "")
    return NONE if value == "" or (value == "0" and name in LAUNCH_BLOCKING) else value


def digest(of: Mapping[str, str]) -> str:
    """SHA-256 of the parts as canonical JSON."""
    import hashlib  # an engine's start compares parts, and needs no digest

    return hashlib.sha256(json.dumps(dict(of), sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def differences(there: Mapping[str, str], here: Mapping[str, str]) -> list[str]:
    """The parts in which two machines differ, or of which one is unknown."""
    names = sorted(there.keys() | here.keys())
    return [n for n in names if there.get(n) != here.get(n) or UNKNOWN in (there.get(n), here.get(n))]


def read_here(backend: str, index: int = 0, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """This machine's parts for a backend under these variables, read without torch.

    Where the visible devices are of one kind, ``index`` is no part of it. Where they differ, the device is all of them:
    nobody knows here which one an engine will use. (OpenCL has no variable that shows a device alone: there it is the
    one at ``index``.)
    """
    name, driver = UNKNOWN, UNKNOWN
    if backend == "reference":
        name, driver = "reference device", NONE
    elif backend == "opencl":
        from conformance.backends import opencl

        name, driver = opencl.identify(index)
    else:
        from conformance.backends.identity import identify

        name, driver = identify(backend, index, environ, every=True)
    return parts(backend, name, driver, environ=environ)


def home_free(text: str) -> str:
    """``text`` without the user's home path."""
    home = os.path.expanduser("~")
    return re.sub(re.escape(home) + r"(?![^/:;,\s])", "~", text) if len(home) > 1 else text
