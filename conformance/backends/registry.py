"""Which backends there are, which of them are on this machine, and how one is opened."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from conformance.backends.vendors import VENDORS
from conformance.errors import BackendUnavailable, UsageError, unknown_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from conformance.backends.api import Backend

#: In the order in which they are looked for; hardware is what a run without --backend chooses from.
NAMES: Final = ("reference", "opencl", "cuda", "rocm", "musa", "accelerator")
HARDWARE: Final = ("cuda", "rocm", "musa", "accelerator")
#: The profile that binds each backend.
PROFILES: Final = {
    "reference": "reference",
    "opencl": "opencl",
    **{vendor.name: vendor.profile for vendor in VENDORS.values()},
    "accelerator": "torch",
}
SURFACES: Final = ("vendor", "generic", "mixed")
#: Backends that have more than one surface.
WITH_SURFACES: Final = ("cuda", "rocm", "musa")


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """Which device is opened and how; plain data, since hardware is opened in a child process."""

    name: str
    device: str | None = None  # as --device takes it; None: the first
    surface: str = "vendor"
    faults: tuple[str, ...] = ()
    gate: str | None = None  # only this gate kind; None: the best that works
    gate_limit: float = 1.9  # seconds, for gates that a self-check closes
    expects: tuple[str, ...] = ()  # what cases will ask for that takes long: other processes, a second device
    words: int | None = None  # a file descriptor: gate words in memory that the parent can open them in


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A backend, and what of it is on this machine."""

    name: str
    devices: tuple[tuple[str, str], ...] = ()  # (index as --device takes it, name)
    reason: str = ""  # why there are none

    @property
    def here(self) -> bool:
        """Is there a device?"""
        return bool(self.devices)


def find(name: str) -> Found:
    """Look for a backend without opening a device; never raises for one that is absent."""
    check_name(name)
    try:
        return Found(name=name, devices=tuple(_FINDERS[name]()))
    except BackendUnavailable as error:
        return Found(name=name, reason=str(error))


def check_name(name: str) -> None:
    """Raise UsageError for a name that is no backend."""
    if name not in NAMES:
        raise UsageError(unknown_name("backend", name, list(NAMES), f"(backends: {', '.join(NAMES)})"))


def open_backend(name: str, *, device: str | None = None, faults: tuple[str, ...] = ()) -> Backend:
    """Open a device. Raises UsageError for what cannot be combined, BackendUnavailable for what is not here."""
    check_name(name)
    if name == "reference":
        from conformance.backends.reference import ReferenceBackend

        if device not in (None, "0"):
            raise UsageError(f"there is one reference device, 0, not '{device}'; leave --device out")
        return ReferenceBackend(faults)
    if name == "opencl":
        from conformance.backends.opencl import OpenCLBackend

        return with_faults(OpenCLBackend(device), faults)
    return open_hardware(Opening(name=name, device=device, faults=faults))


def open_as(opening: Opening) -> Backend:
    """Open a device in this process. Raises UsageError and BackendUnavailable as `open_backend` does."""
    check_name(opening.name)
    if opening.name in HARDWARE:
        return open_hardware(opening)
    return open_backend(opening.name, device=opening.device, faults=opening.faults)


def with_faults(backend: Backend, faults: tuple[str, ...]) -> Backend:
    """The backend, wrong at the API in these ways. Raises UsageError for a fault that cannot be laid over it."""
    if not faults:
        return backend
    from conformance.backends.fault_layer import FaultyBackend

    return FaultyBackend(backend, faults)


def check_faults(name: str, faults: tuple[str, ...]) -> None:
    """Raise UsageError for faults that a backend cannot carry, without opening it."""
    if name == "reference":
        from conformance.backends.reference.faults import make_device

        make_device(faults)
    elif faults:
        from conformance.backends import fault_layer

        fault_layer.check_faults(faults, name)


def open_hardware(opening: Opening) -> Backend:
    """Open an accelerator in this process, which should be a child. Raises BackendUnavailable for what is not here."""
    found = _HERE.get(opening.name, _FINDERS[opening.name])()
    known = [index for index, _ in found]
    if opening.device is not None and opening.device not in known:
        raise UsageError(
            f"{opening.name} device '{opening.device}' does not exist on this machine; there is {', '.join(known)}"
        )
    from conformance.backends.torch_device import TorchBackend

    backend = TorchBackend(
        opening.name,
        opening.device or "0",
        surface=opening.surface,
        gate=opening.gate,
        gate_limit=opening.gate_limit,
        fd=-1 if opening.words is None else opening.words,
    )
    backend.expect(opening.expects)
    return with_faults(backend, opening.faults)


def _reference() -> list[tuple[str, str]]:
    return [("0", "reference device")]


def _opencl() -> list[tuple[str, str]]:
    from conformance.backends.opencl import find_devices

    return find_devices()


def _cuda() -> list[tuple[str, str]]:
    from conformance.backends.identity import find_cuda

    return find_cuda()


def _rocm(*, here: bool = False) -> list[tuple[str, str]]:
    from conformance.backends.identity import find_rocm

    return find_rocm(here=here)


def _musa(*, here: bool = False) -> list[tuple[str, str]]:
    from conformance.backends.identity import find_musa

    return find_musa(here=here)


def _accelerator(*, here: bool = False) -> list[tuple[str, str]]:
    from conformance.backends.identity import find_accelerator

    return find_accelerator(here=here)


_FINDERS: Final[dict[str, Callable[[], list[tuple[str, str]]]]] = {
    "reference": _reference,
    "opencl": _opencl,
    "cuda": _cuda,
    "rocm": _rocm,
    "musa": _musa,
    "accelerator": _accelerator,
}
#: Torch is asked in the process that opens the device: it imports torch anyway.
_HERE: Final[dict[str, Callable[[], list[tuple[str, str]]]]] = {
    "rocm": partial(_rocm, here=True),
    "musa": partial(_musa, here=True),
    "accelerator": partial(_accelerator, here=True),
}
