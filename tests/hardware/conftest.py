"""What tests on hardware share: one of them at a time, and the command line in another process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from filelock import FileLock
from platformdirs import user_cache_path

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """One test at a time has the device, also under ``-n``: a second run beside it would disturb the first."""
    folder = user_cache_path("stream-conformance", ensure_exists=True)
    with FileLock(folder / "hardware-tests.lock"):
        yield
