"""What the cases of one run know of each other: it only shortens what follows, and never decides a verdict."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from conformance.numbers import Numbers
from reports.records import Form


@dataclass(slots=True)
class RunState:
    """Shared by all cases that run on one device in one process."""

    numbers: Numbers
    proved: bool = False  # a late variant was proved: later ones use short holds
    forms: set[Form] = field(default_factory=set)
    live: bool = False  # EVT-LIVE-1 was proved: controls will be late too
    live_or_record: bool = False  # EVT-LIVE-1 or EVT-REC-1 was proved: a pipe's control may be late
    explained: set[str] = field(default_factory=set)  # ways of being late that the ladder was walked for
    late_rings: set[tuple[int, int]] = field(default_factory=set)

    @property
    def looking(self) -> Numbers:
        """The numbers that looks are taken by: on a device on which everything is late, what only might come is not
        waited for."""
        if not self.live:
            return self.numbers
        return replace(self.numbers, concurrency=min(self.numbers.concurrency, self.numbers.window))

    @property
    def holds(self) -> tuple[float, ...]:
        """The holds that a proof needs now."""
        return self.numbers.short_holds if self.proved else self.numbers.holds

    @property
    def first_hold(self) -> float:
        """The hold of a first look: long, so that a hiccup is not taken for a late event."""
        if self.proved and self.numbers.quick:
            return self.numbers.short_holds[0]  # a glance: it proves nothing, and says so
        return self.holds[-1]

    @property
    def once(self) -> bool:
        """Are late variants only looked at once?"""
        return self.proved and self.numbers.quick

    def plain(self) -> dict[str, Any]:
        """All but the numbers as plain types, for a child process to go on with."""
        return {name: value for name, value in msgspec.to_builtins(self).items() if name != "numbers"}

    @classmethod
    def from_plain(cls, numbers: Numbers, plain: dict[str, Any]) -> RunState:
        """The inverse of `plain`; raises msgspec.ValidationError for anything else."""
        return msgspec.convert({"numbers": msgspec.to_builtins(numbers), **plain}, cls)
