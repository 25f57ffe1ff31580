"""Which backends there are, which of them are on this machine, and how one is opened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from conformance.errors import BackendUnavailable, UsageError, unknown_name

if TYPE_CHECKING:
    from conformance.backends.api import Backend

#: In the order in which they are looked for; hardware is what a run without --backend chooses from.
NAMES: Final = ("reference", "opencl", "cuda", "rocm", "musa", "accelerator")
HARDWARE: Final = ("cuda", "rocm", "musa", "accelerator")
SURFACES: Final = ("vendor", "generic", "mixed")


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
    if faults and name != "reference":
        raise UsageError(f"the {name} backend cannot carry faults; use --backend reference with --fault")
    if name == "reference":
        from conformance.backends.reference import ReferenceBackend

        if device not in (None, "0"):
            raise UsageError(f"there is one reference device, 0, not '{device}'; leave --device out")
        return ReferenceBackend(faults)
    if name == "opencl":
        from conformance.backends.opencl import OpenCLBackend

        return OpenCLBackend(device)
    _FINDERS[name]()
    raise BackendUnavailable(f"{name}: no such device")


def _reference() -> list[tuple[str, str]]:
    return [("0", "reference device")]


def _opencl() -> list[tuple[str, str]]:
    from conformance.backends.opencl import find_devices

    return find_devices()


def _not_yet(name: str) -> Callable[[], list[tuple[str, str]]]:
    def finder() -> list[tuple[str, str]]:
        raise BackendUnavailable(f"{name}: this version has no {name} backend yet; reference and opencl work")

    return finder


_FINDERS: Final[dict[str, Callable[[], list[tuple[str, str]]]]] = {
    "reference": _reference,
    "opencl": _opencl,
    **{name: _not_yet(name) for name in HARDWARE},
}
