"""Capabilities: what no clause demands and an engine must know, each as a short text with its unit.

Measured after all cases, so that nothing here can disturb a verdict. Nothing is judged: a capability
that cannot be measured says why, and costs nothing else.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from conformance.measure.coupling import measure_coupling
from conformance.measure.found import Measurement
from conformance.measure.latency import measure_latency
from conformance.measure.limits import (
    measure_gate_kinds,
    measure_launch_queue,
    measure_stream_handles,
    measure_to_cpu,
)
from conformance.measure.parked import measure_parked
from conformance.measure.records import measure_live_events, measure_record_cost
from conformance.measure.refusal import errors_of, refusal
from conformance.measure.waits import measure_waits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from conformance.backends.api import Backend
    from conformance.numbers import Numbers

#: What is measured at once, by name and in order; a hang or crash costs one of these. The gate kinds are
#: last, since trying another kind loads code.
PARTS: Final[Mapping[str, Callable[[Backend, Numbers], dict[str, str] | Measurement]]] = MappingProxyType(
    {
        "latency": measure_latency,
        "parked streams": measure_parked,
        "coupled streams": measure_coupling,
        "stream handles before aliasing": measure_stream_handles,
        '.to("cpu", non_blocking=True)': measure_to_cpu,
        "processor used": measure_waits,
        "record cost": measure_record_cost,
        "live events": measure_live_events,
        "launch-queue depth": measure_launch_queue,
        "gate kinds": measure_gate_kinds,
    }
)


def measure_part(backend: Backend, numbers: Numbers, part: str) -> Measurement:
    """One of `PARTS`: a text for each capability. Never raises for an error of the device or its vendor."""
    try:
        found = PARTS[part](backend, numbers)
    except errors_of(backend) as error:
        found = {part: refusal(error)}
    return found if isinstance(found, Measurement) else Measurement(values=found)


def measure(backend: Backend, numbers: Numbers) -> Measurement:
    """Every capability that can be measured in this process, by name. Takes some seconds on hardware at most."""
    found = Measurement()
    for part in PARTS:
        found |= measure_part(backend, numbers, part)
    return found
