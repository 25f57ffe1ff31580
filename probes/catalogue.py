"""All probes, by name, in the order in which they are run: the core question first, what takes two devices last."""

from __future__ import annotations

from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING

from probes import (
    across,
    beside,
    completion,
    data,
    devices,
    functions,
    kinds,
    mixed,
    ordering,
    publication,
    streams,
    timing,
)
from probes.ring import ring_probes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from probes.probe import Probe


@lru_cache(maxsize=4)
def all_probes(max_in_flight: int = 4) -> Mapping[str, Probe]:
    """Every probe by name, with the rings for up to ``max_in_flight`` steps in flight."""
    families = (
        publication.PROBES,
        completion.PROBES,
        ordering.PROBES,
        streams.PROBES,
        data.PROBES,
        functions.PROBES,
        kinds.PROBES,
        timing.PROBES,
        beside.PROBES,
        mixed.PROBES,
        ring_probes(max_in_flight),
        across.PROBES,
        devices.PROBES,
    )
    return MappingProxyType({probe.name: probe for family in families for probe in family})
