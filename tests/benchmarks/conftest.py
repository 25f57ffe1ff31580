"""Marks every test of this folder, so that none that measures time is run where it means nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # before pytest deselects by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`benchmark` on what lies here; the hook is given the items of every folder."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.benchmark)
