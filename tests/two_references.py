"""Two reference devices of one kind, for a child process to open: each has a UUID, and the other as its second.

As a pytest plugin it shows them as two devices of the cuda backend. The variable TWO_REFERENCES_WRONG names the
fault of device 1; with TWO_REFERENCES_MEET, a folder, each device's first program waits for the other device's.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from conformance.backends import registry
from conformance.backends.reference import ReferenceBackend, ReferenceSession
from probes.catalogue import all_probes

if TYPE_CHECKING:
    from collections.abc import Callable

    from conformance.backends.api import DeviceInfo, Request
    from conformance.backends.registry import Opening
    from probes.probe import Case, Probe

#: So long a device waits for the other one: a test that gets there has failed.
PATIENCE = 60.0


class Numbered(ReferenceBackend):
    """One of the two."""

    def __init__(self, opening: Opening) -> None:
        wrong = os.environ.get("TWO_REFERENCES_WRONG", "")
        self.number = int(opening.device or 0)
        super().__init__((wrong,) if wrong and self.number else (), alias="unnamed")
        self.faults = ()

    def device(self) -> DeviceInfo:
        """With what tells it from the other."""
        number, other = self.number, 1 - self.number
        return replace(
            super().device(), index=number, uuid=f"GPU-{number}", lock=f"test-{number}", second=f"test-{other}"
        )

    def session(self, request: Request) -> ReferenceSession:
        """Where that is asked for, not before the other device has got as far."""
        if folder := os.environ.get("TWO_REFERENCES_MEET"):
            (Path(folder) / f"met-{self.number}").touch()
            end = time.monotonic() + PATIENCE
            while not (Path(folder) / f"met-{1 - self.number}").exists() and time.monotonic() < end:
                time.sleep(0.01)
        return super().session(request)


def make(opening: Opening) -> Numbered:
    """What `STREAM_CONFORMANCE_TEST_CHILD` names."""
    return Numbered(opening)


class Stuck(Numbered):
    """Never gets as far as a session."""

    def session(self, request: Request) -> ReferenceSession:
        """Say so, and wait for nothing."""
        (Path(os.environ["TWO_REFERENCES_MEET"]) / "stuck").touch()
        threading.Event().wait()
        return super().session(request)


def stuck(opening: Opening) -> Stuck:
    """The same for one that hangs."""
    return Stuck(opening)


def finder() -> list[tuple[str, str]]:
    """Both."""
    return [("0", "reference device"), ("1", "reference device")]


def pytest_configure() -> None:
    """Show them as a vendor's."""
    finders: dict[str, Callable[[], list[tuple[str, str]]]] = registry._FINDERS
    finders["cuda"] = finder


def case_of(variant: str) -> tuple[Probe, Case]:
    """A case across devices by its name."""
    return next(
        (probe, case)
        for probe in all_probes().values()
        if probe.family == "two devices"
        for case in probe.cases
        if case.variant == variant
    )
