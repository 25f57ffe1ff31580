"""How a capability says that it could not be measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conformance.errors import DeviceError, SuiteError, Unsupported

if TYPE_CHECKING:
    from conformance.backends.api import Backend


def errors_of(backend: Backend) -> tuple[type[Exception], ...]:
    """What costs one capability and no more."""
    return (SuiteError, *backend.vendor_errors)


def refusal(error: Exception) -> str:
    """``unsupported``, with the call and its reason on one line."""
    if isinstance(error, Unsupported):
        text = error.reason
    elif isinstance(error, SuiteError):
        text = str(error)
    else:
        text = f"{type(error).__name__}: {error}"
    return f"unsupported: {' '.join(text.split())}"


def needs_causal(backend: Backend) -> None:
    """Raise Unsupported where only time ends a gate: nothing can be measured from its opening."""
    gate = backend.gate()
    if gate.assurance != "causal":
        if gate.assurance != "timed":
            raise Unsupported("causal-gate", "; ".join(f"{kind}: {why}" for kind, why in gate.tried) or "no gate works")
        raise Unsupported("causal-gate", f"the host cannot open a gate of the kind '{gate.kind}'; only time ends it")


def not_idle(backend: Backend) -> DeviceError:
    """The error of a device that did not run dry after its gates opened."""
    return DeviceError(f"{backend.name}: the device did not become idle after its gates opened")
