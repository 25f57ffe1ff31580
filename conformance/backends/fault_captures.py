"""Faults over an API of captures: what should be refused is not, or the other way round."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from conformance.backends.fault_calls import HeldCall, Through
from conformance.backends.fault_extras import Named, Wrapped, Wrapping
from conformance.errors import DeviceError
from probes.program import DEFAULT_STREAM, DeviceOp, Record, Sync, SyncDevice, SyncStream, Wait, is_blocking_stream

if TYPE_CHECKING:
    from collections.abc import Mapping

    from conformance.backends.api import Clock, Request, Session, Waiter
    from conformance.backends.extras import CaptureMode


class _Watched(Wrapped):
    def begin(self, stream: str, mode: CaptureMode = "relaxed") -> None:
        """Let the fault know what is captured."""
        self.session.captured_streams.add(stream)
        self.session.mode, self.session.owner = mode, getattr(self.session.here, "thread", "")
        self.inner.begin(stream, mode)

    def end(self, stream: str) -> None:
        """It ends."""
        self.session.captured_streams.clear()
        self.inner.end(stream)


class _Capturing(Wrapping):
    name, wrapper = "graph-capture", _Watched

    def __init__(self, inner: Session, request: Request, clock: Clock) -> None:
        super().__init__(inner, request, clock)
        self.here = threading.local()
        self.captured_streams: set[str] = set()
        self.mode, self.owner = "", ""  # of the capture under way, and the thread that began it
        self.captured: set[str] = set()  # events whose last record lies in a capture

    @property
    def elsewhere(self) -> bool:
        """Is a capture under way that another thread began?"""
        return bool(self.captured_streams) and getattr(self.here, "thread", "") != self.owner

    def extra(self, name: str) -> object:
        """Threads have names too."""
        made = super().extra(name)
        return Named(made, self) if name == "threads" else made

    def issue(self, op: DeviceOp) -> None:
        """Follow the capture."""
        if isinstance(op, Record):
            (self.captured.add if op.stream in self.captured_streams else self.captured.discard)(op.event)
        elif isinstance(op, Wait) and self.captured_streams and op.event in self.captured:
            self.captured_streams.add(op.stream)
        super().issue(op)


class CapturedQuerySucceeds(_Capturing):
    text = "query of an event that was recorded in a capture says that it is complete"

    def query(self, event: str) -> bool:
        """The device is not asked."""
        return event in self.captured or self.inner.query(event)


class CapturedSyncReturns(_Capturing):
    text = "synchronize on an event recorded in a capture, or on a stream that is captured, returns at once"

    def start(self, call: Sync | SyncStream | SyncDevice) -> Waiter:
        """The device is not asked."""
        event = isinstance(call, Sync) and call.event in self.captured
        stream = isinstance(call, SyncStream) and call.stream in self.captured_streams
        return HeldCall([], lambda: True) if event or stream else self.inner.start(call)


class CaptureTakesOutsideWait(_Capturing):
    text = "leaves out a captured stream's wait for an event outside the capture"

    def issue(self, op: DeviceOp) -> None:
        """Leave it out."""
        if not (isinstance(op, Wait) and op.stream in self.captured_streams and op.event not in self.captured):
            super().issue(op)


class CaptureTakesLegacy(_Capturing):
    text = "keeps what is queued on the default stream in the host while a blocking stream is captured"

    def issue(self, op: DeviceOp) -> None:
        """Leave it out."""
        beside = op.stream == DEFAULT_STREAM and any(map(is_blocking_stream, self.captured_streams))
        if not beside:
            super().issue(op)


class CaptureModeIgnored(_Capturing):
    text = "query in a thread other than the one that captures is refused, whatever the mode"

    def query(self, event: str) -> bool:
        """Refused."""
        if self.elsewhere:
            raise DeviceError("query: operation not permitted while a stream is captured")
        return self.inner.query(event)


class CaptureGlobalOpen(_Capturing):
    text = "query in another thread answers although the mode of the capture is global: the device is not asked"

    def query(self, event: str) -> bool:
        """Yes."""
        return (self.elsewhere and self.mode == "global") or self.inner.query(event)


#: The sessions of these faults, as in `conformance.backends.fault_calls`.
SESSIONS: Final[Mapping[str, type[Through]]] = {
    "captured-query-succeeds": CapturedQuerySucceeds,
    "captured-sync-returns": CapturedSyncReturns,
    "capture-takes-outside-wait": CaptureTakesOutsideWait,
    "capture-takes-legacy": CaptureTakesLegacy,
    "capture-mode-ignored": CaptureModeIgnored,
    "capture-global-open": CaptureGlobalOpen,
}
