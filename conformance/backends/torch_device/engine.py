"""A torch device as the decode pipeline drives it: the backend's own streams, gates and proof of idleness."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from conformance.backends.torch_device.surfaces import VendorSurface
from conformance.errors import Unsupported
from conformance.pipeline.device import SIDE, Engine, busy_by_gates, busy_by_sleep

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from conformance.backends.torch_device import TorchBackend
    from conformance.pipeline.device import Call, Held

#: Gate kinds whose limit the device's own timer ends: device work of an exact length.
TIMERS: Final = ("kernel", "triton")
#: Gates that take turns as device work: more than there are steps in flight.
TURNS: Final = 24


def open_engine(backend: TorchBackend, beat: Callable[[], None]) -> Engine:
    """The device behind ``backend``. Raises Unsupported for a surface that engines do not use."""
    surface = backend.main_surface
    if not isinstance(surface, VendorSurface):
        raise Unsupported("pipeline", "the pipeline drives the vendor's own module, as engines do: --surface vendor")
    kind = backend.gate().kind
    if kind in TIMERS:
        busy = busy_by_gates(surface, [backend.take_gate() for _ in range(TURNS)], f"the {kind} gate", backend.clock)
    elif hasattr(surface.module, "_sleep"):
        busy = busy_by_sleep(surface)
    else:
        raise Unsupported("device work", f"no kernel gate works, and {surface.module.__name__} has no _sleep")
    causal = backend.gate().assurance == "causal"

    def give(streams: Sequence[Any], gates: Sequence[Held], calls: Sequence[Call]) -> bool:
        return backend.settle([(surface, stream) for stream in streams], list(gates), list(calls))  # type: ignore[arg-type]  # given out by `take` and `start`

    return Engine(
        torch=backend.torch,
        device=backend.torch.device(surface.vendor.module, surface.index),
        surface=surface,
        main=surface.default_stream(),
        side=backend.streams(surface)[:SIDE],
        busy=busy,
        clock=backend.clock,
        take=backend.take_gate if causal else None,
        give=give,
        start=backend.helpers.start,
        beat=beat,
    )
