"""Capture of torch streams through the vendor's driver.

Not torch's own graph: after a capture that was spoilt on purpose its allocator would go on as if the
capture were still under way. Operations, records and waits in the capture are torch's.
"""

from __future__ import annotations

import ctypes
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from conformance.backends.gates import GateError, GateUnsupported
from conformance.errors import Unsupported

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conformance.backends.extras import CaptureMode
    from conformance.backends.gates import Native
    from conformance.backends.torch_device.inside import Inside

#: The modes of a capture: the same numbers on CUDA and HIP.
MODES: Final[dict[CaptureMode, int]] = {"global": 0, "thread-local": 1, "relaxed": 2}
#: What the driver is asked for.
ROLES: Final = ("capture", "endcapture", "instantiate", "launchgraph", "dropexec", "dropgraph")


class DriverGraphs:
    """One graph at a time."""

    def __init__(self, native: Native, inside: Inside) -> None:
        self._native, self._inside = native, inside
        for role in ROLES:
            _needed(native, role)
        self._capturing: ctypes.c_void_p | None = None
        self._graph, self._exec = ctypes.c_void_p(), ctypes.c_void_p()

    def begin(self, stream: str, mode: CaptureMode = "relaxed") -> None:
        """Begin a capture."""
        handle = self._handle(stream)
        self._native.call("capture", handle, ctypes.c_int(MODES[mode]))
        self._capturing = handle

    @contextmanager
    def relaxed(self) -> Iterator[None]:
        """The calling thread's own mode is relaxed for a block. Raises Unsupported where there is no such call."""
        _needed(self._native, "exchange")
        mode = ctypes.c_int(MODES["relaxed"])
        self._native.enter()
        self._native.call("exchange", ctypes.byref(mode))
        try:
            yield
        finally:
            self._native.call("exchange", ctypes.byref(mode))

    def end(self, stream: str) -> None:
        """End it and make the graph launchable. Raises GateError if it was spoilt."""
        handle, self._capturing = self._handle(stream), None
        self._native.call("endcapture", handle, ctypes.byref(self._graph))
        self._native.call("instantiate", ctypes.byref(self._exec), self._graph, ctypes.c_ulonglong(0))

    def launch(self, stream: str) -> None:
        """Queue the graph."""
        self._native.call("launchgraph", self._exec, self._handle(stream))

    def discard(self) -> None:
        """Give the graph back, whatever state it is in."""
        if self._capturing is not None:
            handle, self._capturing = self._capturing, None
            self._quietly("endcapture", handle, ctypes.byref(self._graph))
        if self._exec.value:
            self._quietly("dropexec", self._exec)
        if self._graph.value:
            self._quietly("dropgraph", self._graph)
        self._graph, self._exec = ctypes.c_void_p(), ctypes.c_void_p()

    def _quietly(self, role: str, *arguments: object) -> None:
        with suppress(GateError):  # a spoilt capture says so at its end once more; nothing rests on what is left
            self._native.call(role, *arguments)

    def _handle(self, stream: str) -> ctypes.c_void_p:
        self._native.enter()
        return ctypes.c_void_p(self._native.handle(self._inside.gated(stream)))


def _needed(native: Native, role: str) -> None:
    """Raise Unsupported for a function that the driver does not have."""
    try:
        native.function(role)
    except GateUnsupported as error:
        raise Unsupported("graph-capture", str(error)) from error
