"""The reference backend: the suite's own device, under a virtual clock. Reports say `simulated`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from conformance.backends.api import DeviceInfo, EventFlags, GateKind, Request, Waiter
from conformance.backends.reference.device import Device
from conformance.backends.reference.faults import make_device
from conformance.errors import DeviceError
from probes.program import DeviceOp, Record, Sync, SyncDevice, SyncStream

#: The longest pause between two looks, in virtual seconds: below the publication window.
LONGEST_PAUSE: Final = 0.016

#: What the device does not model.
UNSUPPORTED: Final[Mapping[str, str]] = {
    "mixed": "the reference device has one surface",
    "second-gate": "the reference device has one kind of gate, its own",
}


class VirtualClock:
    """Time that passes only in `pause`, and takes the running session's device with it."""

    virtual = True

    def __init__(self) -> None:
        self._before = 0.0
        self._device: Device | None = None

    def now(self) -> float:
        """Virtual seconds since the backend was made."""
        return self._before + (self._device.clock if self._device else 0.0)

    def pause(self, polls: int) -> None:
        """Doubles from one microsecond, so that short and long waits both take few looks."""
        if self._device is not None:
            self._device.advance(min(1e-6 * 2 ** min(polls, 20), LONGEST_PAUSE))

    def follow(self, device: Device | None) -> None:
        """Let time be this device's from now on."""
        self._before = self.now()
        if device is not None:
            self._before -= device.clock
        self._device = device


class _VirtualCall:
    """A blocking call that returns once its condition was seen to hold."""

    error: BaseException | None = None

    def __init__(self, device: Device, call: Sync | SyncStream | SyncDevice) -> None:
        self._device, self._call, self._returned = device, call, False
        if not isinstance(call, Sync):
            device.flush()

    @property
    def returned(self) -> bool:
        """Would the call have returned by now?"""
        if not self._returned:
            if isinstance(self._call, Sync):
                self._returned = self._device.synchronize(self._call.event)
            elif isinstance(self._call, SyncStream):
                self._returned = self._device.synchronize_stream(self._call.stream)
            else:
                self._returned = all(task.done for task in self._device.tasks)
        return self._returned


class ReferenceSession:
    """One program on a fresh device."""

    def __init__(self, device: Device, clock: VirtualClock, request: Request) -> None:
        self._device, self._clock, self._streams = device, clock, tuple(request.streams)
        device.timed = request.flags is EventFlags.TIMING
        if request.flags is EventFlags.BLOCKING:
            device.blocking = frozenset(request.events)
        clock.follow(device)

    def issue(self, op: DeviceOp) -> None:
        """Queue one operation; DeviceError for a record that the device refuses."""
        if isinstance(op, Record) and self._device.refuses(op):
            raise DeviceError(f"record: event {op.event} is of another device than stream {op.stream}")
        self._device.issue(op)

    def handles(self) -> Mapping[str, int]:
        """The raw handle of each stream."""
        return {stream: self._device.handle(stream) for stream in self._streams}

    def open(self, gate: str) -> None:
        """Open a gate."""
        self._device.open(gate)

    def ended(self, gate: str) -> bool:
        """True if the gate holds no more."""
        return gate in self._device.gates_ended

    def query(self, event: str) -> bool:
        """Ask the event."""
        return self._device.query(event)

    def query_stream(self, stream: str) -> bool:
        """Ask the stream."""
        return self._device.query_stream(stream)

    def read(self, buffer: str) -> int:
        """The value in a host buffer."""
        return self._device.read(buffer)

    def calls(self, function: str) -> int:
        """How often a host function was called."""
        return self._device.called[function]

    def elapsed(self, start: str, end: str) -> float:
        """Seconds between two events; DeviceError where there is no such time."""
        if why := self._device.times(start, end):
            raise DeviceError(f"elapsed: {why}")
        return self._device.elapsed(start, end)

    def destroy(self, event: str) -> None:
        """Drop the event."""
        self._device.destroy(event)

    def start(self, call: Sync | SyncStream | SyncDevice) -> Waiter:
        """Enter a synchronizing call."""
        return _VirtualCall(self._device, call)

    def close(self) -> bool:
        """A fresh device is made for each program, so there is nothing to drain."""
        self._clock.follow(None)
        return True


class ReferenceBackend:
    """The reference device, clean or with faults.

    ``alias`` is what reports call the faults instead; ``profile`` binds it as another device is bound.
    """

    name = "reference"
    surface = "vendor"
    simulated = True
    vendor_errors: tuple[type[Exception], ...] = ()

    def __init__(self, faults: tuple[str, ...] = (), *, alias: str | None = None, profile: str = "reference") -> None:
        self.profile = profile
        self.faults = faults if alias is None else (alias,)
        self.clock = VirtualClock()
        self._make = make_device(faults)

    def device(self) -> DeviceInfo:
        """There is one reference device."""
        return DeviceInfo(name="reference device", runtime="virtual clock")

    def gate(self) -> GateKind:
        """Gates are the device's own."""
        return GateKind(kind="virtual", assurance="causal", tried=(("virtual", "ok"),))

    def unsupported(self, capability: str) -> str | None:
        """None, or why the device cannot do it."""
        return UNSUPPORTED.get(capability)

    def software(self) -> Mapping[str, str]:
        """Nothing stands between the suite and this device."""
        return {}

    def session(self, request: Request) -> ReferenceSession:
        """A fresh device for one program, or for an experiment."""
        from conformance.backends.reference.beside import BesideSession

        return BesideSession(self._make(request.streams, request.gate_limit), self.clock, request)

    def close(self) -> None:
        """Nothing to give back."""
