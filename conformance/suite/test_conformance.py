"""One item per probe, variant and backend; the plugin chooses which. Collected with
``pytest -p conformance.plugin --pyargs conformance.suite``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conformance.plugin import Item


def test_conformance(sc_item: Item) -> None:
    """The verdict of one probe under one variant on one backend."""
    sc_item.run()


def test_absent(sc_absent: str) -> None:
    """Fails with the reason why a backend that was asked for by its marker is not here."""
    raise AssertionError(sc_absent)


def test_sentinel() -> None:
    """Never runs: that it survives deselection says that no backend was asked for by its marker."""
    raise AssertionError("the plugin takes this item away; load it with -p conformance.plugin")
