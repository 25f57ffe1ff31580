"""A second device of the vendor: streams, rows of memory and gates there, made where a program will ask for them.

Nothing is made there for a run without a program that spans two devices. What is made is used once, in
both directions, while no gate is closed.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final

from conformance.backends.api import EventFlags
from conformance.backends.gates import GateError
from conformance.backends.torch_device.resources import Memory, Tokens
from conformance.backends.torch_device.session import not_idle
from conformance.backends.torch_device.surfaces import Surface
from conformance.backends.torch_device.warmup import warm_up
from conformance.errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from conformance.backends.gates import Gate
    from conformance.backends.torch_device import TorchBackend

#: Streams, rows and gates there: what the largest program across devices takes, and some.
STREAMS: Final = 8
ROWS: Final = 16
GATES: Final = 6


class Far:
    """The device after the one in use, or the first. Raises DeviceError or GateError where it cannot be used."""

    def __init__(self, backend: TorchBackend) -> None:
        torch, module, near = backend.torch, backend.module, backend.main_surface
        self._backend, self.index = backend, second_index(module, backend.index)
        device = torch.device(near.vendor.module, self.index)
        self.surface: Surface = type(near)(torch, module, near.vendor, self.index)
        self.streams = [self.surface.stream() for _ in range(STREAMS)]
        # Where torch puts what a copy between devices needs of the device whose stream the program does not name.
        self._aside: dict[Surface, Any] = {near: backend.service, self.surface: self.surface.stream()}
        memory = Memory(torch, device, ROWS)
        self.rows = memory.device
        self._tokens = Tokens(torch, device, backend.clock)
        if backend.ladder is None:
            raise GateError("no gate works on the first device")
        self._free: list[Gate] = list(backend.ladder.elsewhere(self.index, GATES))
        self._mine = set(self._free)
        warm_up(self.surface, self.streams[:2], memory, backend.helpers)
        self._warm_up(backend, memory)

    def _warm_up(self, backend: TorchBackend, memory: Memory) -> None:
        """Everything that crosses, once in each direction on the streams that programs take."""
        near, ours = backend.main_surface, backend.streams(backend.main_surface)[:3]
        host = backend.memory.host[0]
        for stream in (*self.streams, self._aside[self.surface]):
            with self.surface.current(stream):
                self.rows[0].fill_(1)
                host.copy_(self.rows[0], non_blocking=True)
        for one, two, here, there in (
            (near, self.surface, ours, self.streams),
            (self.surface, near, self.streams, ours),
        ):
            for flags in EventFlags:
                event = one.event(flags)
                one.record(event, here[0])
                two.wait(there[0], event)
                two.wait_stream(there[0], here[0])
            for stream in here[:3]:
                with self.peer_copy(one, stream):
                    self.rows[0].copy_(backend.memory.device[0], non_blocking=True)
                    backend.memory.device[0].copy_(self.rows[0], non_blocking=True)
        near.synchronize()
        self.surface.synchronize()
        backend.memory.clear_host(1)
        if not self.drained([(self.surface, stream) for stream in (*self.streams, self._aside[self.surface])]):
            raise DeviceError(f"device {self.index} did not become idle after its warm-up; is it in use?")

    @contextmanager
    def peer_copy(self, surface: Surface, stream: Any) -> Iterator[None]:
        """Make ``stream`` current for a copy between devices, and a stream of ours on the other device.

        torch queues such a copy on the source device's current stream, and has it wait for the
        destination device's, and that one for it. So on either side the program's stream orders it; the
        other device's default stream, which would serve otherwise, may be one of the program's too.
        """
        with ExitStack() as stack:
            for other, aside in self._aside.items():
                if other is not surface:
                    stack.enter_context(other.current(aside))
            stack.enter_context(surface.current(stream))
            yield

    def clear(self, rows: int) -> None:
        """Zero the first rows, and see that done. Raises DeviceError, and ends its use, if it is not idle."""
        if not self._backend.usable:
            raise not_idle(self._backend.name)
        with self.surface.current(self._aside[self.surface]):
            self.rows[:rows].zero_()
        if not self._tokens.drained([(self.surface, self._aside[self.surface])]):
            self._backend.usable = False
            raise not_idle(f"{self._backend.name}, device {self.index}")

    def drained(self, streams: Sequence[tuple[Surface, Any]]) -> bool:
        """True once everything queued on these streams of the device is done."""
        return self._tokens.drained(list(streams))

    def take_gate(self) -> Gate:
        """A gate that is not in use. Raises GateError for a program with too many."""
        if not self._free:
            raise GateError(f"device {self.index}: a program with more than {GATES} gates there")
        return self._free.pop()

    def take_back(self, gates: Sequence[Gate]) -> list[Gate]:
        """Take gates of this device back; returns the others."""
        self._free += [gate for gate in gates if gate in self._mine]
        return [gate for gate in gates if gate not in self._mine]


def second_index(module: Any, index: int) -> int:
    """Another device than ``index``; only where `missing` has nothing to say."""
    return (index + 1) % int(module.device_count())


def missing(module: Any, name: str, surface: str) -> str:
    """Why there is no second device to be had; empty if there is one."""
    if surface == "mixed":
        return "the surface mixed drives one device"
    count = int(module.device_count())
    return "" if count > 1 else f"torch.{name}.device_count() is {count}"
