"""What a part of the capabilities came to: texts for people, and the rows that the ring's price is made of."""

from __future__ import annotations

import msgspec

from reports.records import Coupling, ParkedRow


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """Of one part, or of several."""

    values: dict[str, str] = {}  # a text for each capability
    parked: tuple[ParkedRow, ...] = ()
    couplings: tuple[Coupling, ...] = ()

    def __or__(self, other: Measurement) -> Measurement:
        """Both."""
        return Measurement(
            values=self.values | other.values,
            parked=self.parked + other.parked,
            couplings=self.couplings + other.couplings,
        )
