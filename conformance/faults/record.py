"""The form of a fault: what it does, which clause must catch it, and what may fail beside that."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A named wrong behaviour."""

    name: str
    text: str
    killed_by: str
    may_fail: tuple[str, ...] = ()
    outcome: str = "not-needed"  # of the decision, for two to four steps in flight
    form: str = ""  # what must be named as publishing a late event

    @property
    def allowed(self) -> frozenset[str]:
        """Every clause that may fail under this fault."""
        return frozenset((self.killed_by, *self.may_fail))


def fault(
    name: str, text: str, killed_by: str, may_fail: str = "", *, outcome: str = "not-needed", form: str = ""
) -> Fault:
    """One row of a table; ``may_fail`` are clauses, parted by blanks."""
    return Fault(
        name=name, text=text, killed_by=killed_by, may_fail=tuple(may_fail.split()), outcome=outcome, form=form
    )
