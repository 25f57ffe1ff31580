"""The form of a clause: what the specification says, how strongly, and by which document.

Reads nothing and runs nothing; the clauses themselves are data in the modules beside this one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

#: What binds a backend: vendor document, torch's contract, or stated compatibility.
PROFILES: Final = ("cuda", "hip", "musa", "torch", "opencl", "reference")


class Level(str, Enum):
    """How strongly a clause binds: only MUST can make a run non-conformant."""

    MUST = "MUST"
    SHOULD = "SHOULD"
    NONE = "none"  # the profile has no such notion, or its document leaves it undefined


class Basis(str, Enum):
    """What a level rests on. MUST needs one of the first two."""

    DOCUMENT = "document"
    TORCH = "torch"
    COMPATIBILITY = "compatibility"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One place in one document: cited, never quoted."""

    document: str
    place: str

    def __str__(self) -> str:
        return f"{self.document}, {self.place}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """How one profile binds one clause.

    ``exempt`` names ways of observing ("query", "synchronize") for which this profile promises
    nothing although it binds the clause otherwise; ``note`` says what differs and why.
    """

    level: Level
    basis: Basis
    sources: tuple[Source, ...] = ()
    exempt: tuple[str, ...] = ()
    note: str = ""

    def __post_init__(self) -> None:
        if self.level is Level.MUST and self.basis is Basis.COMPATIBILITY:
            raise ValueError("a MUST needs a document or torch's contract as its basis")
        if self.level is not Level.NONE and not self.sources:
            raise ValueError("a binding that binds names its sources")
        if self.level is Level.NONE and not self.note:
            raise ValueError("a profile without the clause says why")


@dataclass(frozen=True, slots=True, kw_only=True)
class Clause:
    """One numbered rule about streams and events, with its binding per profile."""

    id: str
    title: str
    statement: str
    violation: str  # what a causal test sees when the clause is broken
    bindings: Mapping[str, Binding] = field(default_factory=dict)

    def __post_init__(self) -> None:
        missing = [name for name in PROFILES if name not in self.bindings]
        unknown = [name for name in self.bindings if name not in PROFILES]
        if missing or unknown:
            raise ValueError(f"{self.id}: profiles missing {missing}, unknown {unknown}")
        object.__setattr__(self, "bindings", MappingProxyType(dict(self.bindings)))

    def binding(self, profile: str) -> Binding:
        """The binding of this clause for ``profile``; KeyError for a name not in PROFILES."""
        return self.bindings[profile]
