"""Gate words in memory that a parent shares with its child: it can open every gate of a child that is stopped."""

from __future__ import annotations

import os
from typing import Protocol


class Words(Protocol):
    """What `conformance.supervisor` needs of them. One object for each child."""

    @property
    def fd(self) -> int:
        """The memory's file descriptor; the child gets it under the same number, as `Opening.words`."""
        ...

    def open_all(self) -> object:
        """Open every gate by plain stores. Called more than once; never blocks."""
        ...

    def close(self) -> None:
        """Give the memory back."""
        ...


class SharedGates:
    """The words of `conformance.backends.gates.words`; a `Words`."""

    def __init__(self) -> None:
        """Raises OSError where the platform has no memory files."""
        from conformance.backends.gates.words import SharedWords, make_fd

        self.fd = make_fd()
        self._shared = SharedWords(self.fd)

    def open_all(self) -> object:
        """Open every gate that is closed; timed ones cannot be opened."""
        return self._shared.open_all()

    def close(self) -> None:
        """Close the file; the child's own mapping of it stays until the child ends."""
        os.close(self.fd)
