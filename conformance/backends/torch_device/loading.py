"""Imports torch and the vendor's part of it, or says in one line why that cannot be done."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from conformance.backends.vendors import VENDORS, accelerator
from conformance.errors import BackendUnavailable

if TYPE_CHECKING:
    from conformance.backends.vendors import Vendor

#: A stand-in for a vendor's torch puts what it is here, on the vendor's module: reports are then `simulated`.
STAND_IN: Final = "_stream_conformance_stand_in"


def load(name: str) -> tuple[Any, Any, Vendor]:
    """(torch, the vendor's module of it, the vendor). Raises BackendUnavailable with what is missing and what to do."""
    torch = _import("torch", name, "run with the Python that holds the vendor's torch")
    if name == "accelerator":
        return _any_accelerator(torch)
    vendor = VENDORS[name]
    if vendor.plugin and not hasattr(torch, vendor.module):
        # Without torch's autoloading (an old plugin, or the variable that turns it off) the plugin is imported by name.
        _import(vendor.plugin, name, f"mend {vendor.plugin}, or use the vendor's image")
    module = getattr(torch, vendor.module, None)
    if module is None:
        raise BackendUnavailable(f"{name}: torch {torch.__version__} has no torch.{vendor.module}")
    hip = getattr(torch.version, "hip", None) is not None
    if vendor.module == "cuda" and hip != (name == "rocm"):
        built = "ROCm" if hip else "CUDA or the CPU"
        raise BackendUnavailable(f"{name}: torch {torch.__version__} is built for {built}")
    return torch, module, vendor


def available(name: str, torch: Any, module: Any, vendor: Vendor) -> None:
    """Raise BackendUnavailable if torch sees no device."""
    try:
        here = bool(module.is_available())
    except Exception as error:
        raise BackendUnavailable(f"{name}: torch.{vendor.module}.is_available() raised {_said(error)}") from error
    if not here:
        raise BackendUnavailable(
            f"{name}: torch.{vendor.module}.is_available() is False with torch {torch.__version__}"
        )


def stand_in(module: Any) -> str:
    """What a stand-in says that it is; empty for a vendor's own module."""
    return str(getattr(module, STAND_IN, "") or "")


def _any_accelerator(torch: Any) -> tuple[Any, Any, Vendor]:
    current = getattr(getattr(torch, "accelerator", None), "current_accelerator", None)
    device = current() if current is not None else None
    if device is None:
        raise BackendUnavailable(f"accelerator: torch {torch.__version__} has no accelerator beside the CPU")
    if device.type in {vendor.module for vendor in VENDORS.values()}:
        raise BackendUnavailable(f"accelerator: torch's accelerator is {device.type}, which has a backend of its own")
    try:
        module = torch.get_device_module(device)
    except (RuntimeError, AttributeError) as error:
        raise BackendUnavailable(f"accelerator: torch.get_device_module('{device.type}'): {error}") from error
    return torch, module, accelerator(device.type)


def _import(package: str, name: str, remedy: str) -> Any:
    if package not in _failed:
        try:
            return importlib.import_module(package)
        except Exception as error:  # noqa: BLE001 - whatever a plugin raises, its package cannot be used
            _failed[package] = _said(error)
    raise BackendUnavailable(f"{name}: {package} cannot be imported ({_failed[package]}); {remedy}")


#: Why a package could not be imported: a second try in the same process fails for another reason, and hides the first.
_failed: Final[dict[str, str]] = {}


def _said(error: BaseException) -> str:
    """The error and what it was raised from: torch's own says only which plugin it could not load."""
    causes = [error]
    while (cause := causes[-1].__cause__) is not None:
        causes.append(cause)
    return "; caused by ".join(" ".join(f"{type(each).__name__}: {each}".split()) for each in causes)
