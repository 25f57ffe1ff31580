"""What the host's own clock says about the time between two events, beside what the device's says.

Only the host's marks are kept here: when a record was issued, when its event was first seen complete,
when a gate was opened. Source: docs/rules.md 2, "Time".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conformance.model import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Time:
    """What came of asking for the time between two events; all times in seconds."""

    seconds: float | None  # None: refused
    refused: str = ""  # with this error
    kept: bool = False  # were the events made to keep a time?
    least: float | None = None  # the host saw one end this long before it opened a gate that held the other
    most: float | None = None  # so long passed around both


@dataclass(slots=True)
class HostTimes:
    """Marks of the host's clock."""

    opened: dict[str, float] = field(default_factory=dict)  # gate -> before it was opened
    seen: dict[str, float] = field(default_factory=dict)  # event -> after it was first seen complete
    _recorded: dict[str, float] = field(default_factory=dict)  # event -> before its latest record was issued

    def recorded(self, event: str, when: float) -> None:
        """An event was recorded, so what was seen of it before is of no use."""
        self._recorded[event] = when
        self.seen.pop(event, None)

    def between(self, model: Model, start: str, end: str) -> tuple[float | None, float | None]:
        """At least and at most how much time lies between two events; None where the host cannot say."""
        least, most = self._later(model, start, end)
        if least is None and most is None:  # the other way round the time is negative
            least_back, most_back = self._later(model, end, start)
            return _minus(most_back), _minus(least_back)
        return least, most

    def _later(self, model: Model, start: str, end: str) -> tuple[float | None, float | None]:
        first, last = model.current.get(start), model.current.get(end)
        if first is None or last is None or first is last or not model.captures(last, first):
            return None, None
        gates = [n.gate for n in model.closure(last) if n.gate is not None and not model.captures(first, n)]
        opened = [self.opened[gate] for gate in gates if gate in self.opened]
        seen, end_seen = self.seen.get(start), self.seen.get(end)
        least = max(opened) - seen if opened and seen is not None else None
        most = end_seen - self._recorded[start] if end_seen is not None else None
        return least, most


def _minus(seconds: float | None) -> float | None:
    return None if seconds is None else -seconds
