"""Capture of torch streams through the vendor's driver.

Not torch's own graph: after a capture that was spoilt on purpose its allocator would go on as if the
capture were still under way. Operations, records and waits in the capture are torch's.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from conformance.backends.gates import GateError, GateUnsupported
from conformance.errors import Unsupported

if TYPE_CHECKING:
    from conformance.backends.gates import Native
    from conformance.backends.torch_device.inside import Inside

#: The mode that forbids no call for being made meanwhile: the same number on CUDA and HIP.
RELAXED: Final = 2
#: What the driver is asked for.
ROLES: Final = ("capture", "endcapture", "instantiate", "launchgraph", "dropexec", "dropgraph")


class DriverGraphs:
    """One graph at a time."""

    def __init__(self, native: Native, inside: Inside) -> None:
        self._native, self._inside = native, inside
        for role in ROLES:
            try:
                native.function(role)
            except GateUnsupported as error:
                raise Unsupported("graph-capture", str(error)) from error
        self._capturing: ctypes.c_void_p | None = None
        self._graph, self._exec = ctypes.c_void_p(), ctypes.c_void_p()

    def begin(self, stream: str) -> None:
        """Begin a capture."""
        handle = self._handle(stream)
        self._native.call("capture", handle, ctypes.c_int(RELAXED))
        self._capturing = handle

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
