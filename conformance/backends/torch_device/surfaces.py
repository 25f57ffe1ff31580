"""The two API families of torch: the vendor's module, and torch.Stream with torch.Event.

One family per stream and event: a generic stream given to a vendor's call is read as garbage
(docs/hardware.md). Only a wait may cross, and only where a probe asks for that.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Union

from conformance.backends.api import EventFlags
from conformance.errors import SuiteError, Unsupported, needed

if TYPE_CHECKING:
    from conformance.backends.vendors import Vendor


#: What a name of a vendor's raises that is there and does something else than its namesake, or is not there at all.
REFUSALS: Final = (RuntimeError, TypeError, ValueError, AttributeError)


def said(error: Exception) -> str:
    """An error in one line; the suite's own say all in their text."""
    text = " ".join(str(error).split())
    return text if isinstance(error, SuiteError) else f"{type(error).__name__}: {text}"


@dataclass(frozen=True, slots=True, eq=False)
class VendorSurface:
    """torch.cuda.* or torch.musa.*: streams and events of the vendor's own module."""

    torch: Any
    module: Any
    vendor: Vendor
    index: int

    name = "vendor"

    def stream(self, priority: int = 0) -> Any:
        """A stream of torch's pool; a lower number is a higher priority."""
        return self.module.Stream(device=self.index, priority=priority)

    def external(self, handle: int) -> Any:
        """A stream that the driver made. Raises Unsupported where the module takes none."""
        return external_stream(self.module, handle, self.index)

    def default_stream(self) -> Any:
        """The default stream."""
        return self.module.default_stream(self.index)

    def event(self, flags: EventFlags) -> Any:
        """An event; torch makes the vendor's event when it is first recorded."""
        return self.module.Event(enable_timing=flags is EventFlags.TIMING, blocking=flags is EventFlags.BLOCKING)

    def record(self, event: Any, stream: Any) -> None:
        """Record an event on a stream of this family."""
        event.record(stream)

    def wait(self, stream: Any, event: Any) -> None:
        """Make a stream of this family wait for an event of either."""
        stream.wait_event(event)

    def wait_stream(self, stream: Any, other: Any) -> None:
        """Make a stream of this family wait for another of it."""
        stream.wait_stream(other)

    def elapsed(self, start: Any, end: Any) -> float:
        """Seconds between two events; torch gives milliseconds."""
        return float(start.elapsed_time(end)) / 1e3

    def current(self, stream: Any) -> AbstractContextManager[object]:
        """Make a stream current: torch's operations go there."""
        context: AbstractContextManager[object] = self.module.stream(stream)
        return context

    def handle(self, stream: Any) -> int:
        """The raw handle."""
        for attribute in (self.vendor.stream_handle, "native_handle"):
            if hasattr(stream, attribute):
                return int(getattr(stream, attribute))
        names = f"{self.vendor.stream_handle} nor native_handle"
        raise Unsupported("stream-handle", f"torch.{self.vendor.module}.Stream has neither {names}")

    def gated(self, stream: Any) -> Any:
        """The stream as a gate takes it."""
        return stream

    def synchronize(self) -> None:
        """Synchronize the device."""
        self.module.synchronize(self.index)


@dataclass(frozen=True, slots=True, eq=False)
class GenericSurface:
    """torch.Stream and torch.Event, whatever the device."""

    torch: Any
    module: Any
    vendor: Vendor
    index: int

    name = "generic"

    @property
    def device(self) -> Any:
        """The torch device."""
        return self.torch.device(self.vendor.module, self.index)

    def stream(self, priority: int = 0) -> Any:
        """A stream of torch's pool; a lower number is a higher priority."""
        return self.torch.Stream(device=self.device, priority=priority)

    def external(self, handle: int) -> Any:
        """A stream that the driver made. Raises Unsupported where the module takes none."""
        made = external_stream(self.module, handle, self.index)
        return self.torch.Stream(stream_id=made.stream_id, device_index=made.device_index, device_type=made.device_type)

    def default_stream(self) -> Any:
        """The default stream; where the module does not tell it, the current one outside any context."""
        if not hasattr(self.module, "default_stream"):
            return self.torch.accelerator.current_stream(self.index)
        default = self.module.default_stream(self.index)
        return self.torch.Stream(
            stream_id=default.stream_id, device_index=default.device_index, device_type=default.device_type
        )

    def event(self, flags: EventFlags) -> Any:
        """An event. The blocking flag is passed on, and torch documents that it ignores it."""
        return self.torch.Event(
            device=self.device, enable_timing=flags is EventFlags.TIMING, blocking=flags is EventFlags.BLOCKING
        )

    def record(self, event: Any, stream: Any) -> None:
        """Record an event on a stream of this family."""
        event.record(stream)

    def wait(self, stream: Any, event: Any) -> None:
        """Make a stream of this family wait for an event, of either family if a probe asks for that."""
        stream.wait_event(event)

    def wait_stream(self, stream: Any, other: Any) -> None:
        """Make a stream of this family wait for another of it."""
        stream.wait_stream(other)

    def elapsed(self, start: Any, end: Any) -> float:
        """Seconds between two events; torch gives milliseconds."""
        return float(start.elapsed_time(end)) / 1e3

    def current(self, stream: Any) -> AbstractContextManager[object]:
        """Make a stream current."""
        context: AbstractContextManager[object] = stream
        return context

    def handle(self, stream: Any) -> int:
        """The raw handle; torch 2.11 and later show it."""
        handle = getattr(stream, "native_handle", None)
        if handle is None:
            raise Unsupported("generic-handle", "torch.Stream.native_handle needs torch 2.11 or later")
        return int(handle)

    def gated(self, stream: Any) -> Any:
        """The same stream as the vendor's module sees it: a gate is launched on its raw handle."""
        return self.module.Stream(
            stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type
        )

    def synchronize(self) -> None:
        """Synchronize the device by the vendor's module: torch.accelerator.synchronize is not on every backend."""
        self.module.synchronize(self.index)


def external_stream(module: Any, handle: int, index: int) -> Any:
    """torch's object for a stream that torch did not make. Raises Unsupported where the module makes none."""
    needed(module, "ExternalStream", "blocking-stream")
    try:
        return module.ExternalStream(handle, device=index)
    except REFUSALS as error:
        raise Unsupported("blocking-stream", f"{module.__name__}.ExternalStream: {said(error)}") from error


Surface = Union[VendorSurface, GenericSurface]
