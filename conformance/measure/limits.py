"""What only a backend itself can measure, through hooks that it may have beside the protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from conformance.errors import Unsupported

if TYPE_CHECKING:
    from conformance.backends.api import Backend, Limits, MeasuresLimits
    from conformance.numbers import Numbers


def measure_stream_handles(backend: Backend, numbers: Numbers) -> dict[str, str]:
    """How many streams are distinct. Raises what the hook raises."""
    return {"stream handles before aliasing": _limits(backend).stream_handles_before_aliasing()}


def measure_to_cpu(backend: Backend, numbers: Numbers) -> dict[str, str]:
    """What an engine's usual copy to the host does behind a closed gate. Raises what the hook raises."""
    return {'.to("cpu", non_blocking=True)': _limits(backend).to_cpu_non_blocking()}


def measure_launch_queue(backend: Backend, numbers: Numbers) -> dict[str, str]:
    """How much can be queued behind a closed gate. Raises what the hook raises."""
    return {"launch-queue depth": _limits(backend).launch_queue_depth()}


def measure_gate_kinds(backend: Backend, numbers: Numbers) -> dict[str, str]:
    """Which gate kinds work, with the time that one release took. Raises what the hook raises."""
    hook = getattr(backend, "limits", None)
    if hook is None:  # such a backend has one kind, and has tried it
        gate = backend.gate()
        release = f", releases in {gate.release_us:.1f} us" if gate.release_us is not None else ""
        return {f"gate kind {kind}": f"{why}{release if why == 'ok' else ''}" for kind, why in gate.tried}
    return {f"gate kind {kind}": said for kind, said in _limits(backend).gate_kinds().items()}


def _limits(backend: Backend) -> Limits:
    # By name and not by type, since a wrapped backend delegates it.
    if getattr(backend, "limits", None) is None:
        raise Unsupported("limits", f"the {backend.name} backend has no hook 'limits'; torch backends have it")
    return cast("MeasuresLimits", backend).limits()
