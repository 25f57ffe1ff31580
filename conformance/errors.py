"""Errors of the suite: each says what, why and what to do, in one line."""

from __future__ import annotations

from typing import Any


class SuiteError(Exception):
    """Something that a user can mend; its text is one line."""


class UsageError(SuiteError):
    """A name, value or path that cannot be used: exit code 2."""


class BackendUnavailable(SuiteError):
    """A backend or device that is not on this machine."""


class Unsupported(SuiteError):
    """A capability that the backend does not have; the text names the call and the reason."""

    def __init__(self, capability: str, reason: str) -> None:
        super().__init__(f"{capability}: {reason}")
        self.capability, self.reason = capability, reason


class DeviceError(SuiteError):
    """A vendor call failed; the text is the call and its error. It costs one verdict, not the run."""


class HarnessError(SuiteError):
    """The suite itself could not go on, before any verdict: exit code 4."""


def needed(module: Any, name: str, capability: str) -> None:
    """Raise Unsupported for a name that a vendor's module does not have."""
    if not hasattr(module, name):
        raise Unsupported(capability, f"{module.__name__} has no {name}")


def unknown_name(kind: str, name: str, known: list[str], advice: str) -> str:
    """One line for a name that is not known: what it is, the nearest names, and how to see them all."""
    import difflib

    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    meant = f"; did you mean {' or '.join(near)}?" if near else ""
    return f"unknown {kind} '{name}'{meant} {advice}"
