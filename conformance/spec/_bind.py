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


def rule(*sources: Source, note: str) -> Binding:
    """A rule for whoever calls, kept by this suite itself: it binds no device, so no device is judged by it."""
    return Binding(level=Level.NONE, basis=Basis.DOCUMENT, sources=sources, note=note)


#: The reference device is defined by the model, so the model is its document.
REFERENCE: Final = must(REF_MODEL)
#: Where documents leave it open, the reference device only shows that a probe can see it.
REFERENCE_OBSERVED: Final = should(REF_MODEL, basis=Basis.DOCUMENT, note="the documents leave it open")


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
