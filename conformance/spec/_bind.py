"""Short constructors for bindings and clauses, so that the clause modules read as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from conformance.spec.records import Basis, Binding, Clause, Level
from conformance.spec.sources import REF_MODEL

if TYPE_CHECKING:
    from conformance.spec.records import Source


def must(*sources: Source, basis: Basis = Basis.DOCUMENT, exempt: tuple[str, ...] = (), note: str = "") -> Binding:
    """A binding whose violation makes a run non-conformant; ValueError without a source."""
    return Binding(level=Level.MUST, basis=basis, sources=sources, exempt=exempt, note=note)


def must_torch(*sources: Source, note: str = "") -> Binding:
    """A MUST that rests on torch's contract, not on a vendor's document."""
    return must(*sources, basis=Basis.TORCH, note=note)


def should(*sources: Source, basis: Basis, note: str = "") -> Binding:
    """A binding that is observed and reported but decides nothing; ValueError without a source."""
    return Binding(level=Level.SHOULD, basis=basis, sources=sources, note=note)


def absent(note: str) -> Binding:
    """No binding: the profile's document has no such notion; ``note`` says why."""
    return Binding(level=Level.NONE, basis=Basis.DOCUMENT, note=note)


#: The reference device is defined by the model, so the model is its document.
REFERENCE: Final = must(REF_MODEL)


def define(
    clause_id: str,
    title: str,
    statement: str,
    violation: str,
    *,
    cuda: Binding,
    hip: Binding,
    musa: Binding,
    torch: Binding,
    opencl: Binding,
    reference: Binding = REFERENCE,
) -> Clause:
    """One clause with a binding for every profile; the reference device is bound unless told otherwise."""
    return Clause(
        id=clause_id,
        title=title,
        statement=statement,
        violation=violation,
        bindings={
            "cuda": cuda,
            "hip": hip,
            "musa": musa,
            "torch": torch,
            "opencl": opencl,
            "reference": reference,
        },
    )
