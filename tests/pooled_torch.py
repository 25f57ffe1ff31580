"""Stands in for a torch backend with kernel gates, on a reference device: for the pooled fast path of `fuzz`.

Events are destroyed when their last reference goes, as torch's are.
"""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

from conformance.backends.reference.device import Device
from conformance.backends.reference.faults import make_device
from probes.program import Copy, Fill, Gate, Record, Wait, WaitStream


class Stream:
    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name

    def query(self) -> bool:
        return self.world.device.query_stream(self.name)

    def synchronize(self) -> None:
        self.world.device.flush()
        self.world.until(lambda: self.world.device.synchronize_stream(self.name))

    def wait_event(self, event: Event) -> None:
        self.world.device.issue(Wait(stream=self.name, event=event.name))

    def wait_stream(self, other: Stream) -> None:
        self.world.device.issue(WaitStream(stream=self.name, other=other.name))


class Event:
    def __init__(self, world: World, flags: str) -> None:
        self.world, self.name = world, f"event{next(world.numbers)}"
        if flags == "blocking":
            world.device.blocking |= {self.name}

    def record(self, stream: Stream) -> None:
        self.world.device.issue(Record(stream=stream.name, event=self.name))

    def query(self) -> bool:
        return self.world.device.query(self.name)

    def synchronize(self) -> None:
        self.world.until(lambda: self.world.device.synchronize(self.name))

    def __del__(self) -> None:
        self.world.device.destroy(self.name)


class Row:
    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name

    def fill_(self, value: int) -> None:
        self.world.device.issue(Fill(stream=self.world.current.name, buffer=self.name, value=value))

    def copy_(self, source: Row, non_blocking: bool) -> None:
        assert non_blocking
        self.world.device.issue(Copy(stream=self.world.current.name, source=source.name, target=self.name))


class Word:
    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name

    @property
    def value(self) -> int:
        return self.world.device.read(self.name)

    @value.setter
    def value(self, value: int) -> None:
        self.world.device.memory[self.name] = value


class KernelGate:
    def __init__(self, world: World) -> None:
        self.world, self.use = world, ""

    def prepared(self, stream: Stream, limit_s: float, *, opened: bool = False) -> Any:
        assert limit_s > 0

        def close() -> None:
            assert self.ended()
            self.use = f"use{next(self.world.numbers)}"
            if opened:
                self.world.device.open(self.use)
            self.world.device.issue(Gate(stream=stream.name, gate=self.use))

        return close

    def open(self) -> None:
        if self.use:
            self.world.device.open(self.use)

    def ended(self) -> bool:
        return not self.use or self.use in self.world.device.gates_ended


class HelperCall:
    """Keeps no reference to the event, as the real one keeps none once its call has returned."""

    error = None

    def __init__(self, device: Device, event: Event | None) -> None:
        self.device, self.name = device, None if event is None else event.name

    @property
    def returned(self) -> bool:
        return self.name is None or self.device.synchronize(self.name)


class World:
    """A `TorchBackend` as far as `PooledScreen` looks at it."""

    name, surface, usable = "fake", "vendor", True
    vendor_errors: tuple[type[Exception], ...] = ()

    def __init__(self, faults: tuple[str, ...] = ()) -> None:
        self.device: Device = make_device(faults)((), 1.9)
        self.numbers = itertools.count()
        self.ladder = SimpleNamespace(kind="kernel")
        self.side = [Stream(self, f"s{n}") for n in range(1, 9)]
        self.default = self.current = Stream(self, "default")
        self.memory = SimpleNamespace(
            device=[Row(self, f"x{n + 1}") for n in range(64)],
            host=[Row(self, f"h{n + 1}") for n in range(64)],
            words=[Word(self, f"h{n + 1}") for n in range(64)],
        )
        self.module = SimpleNamespace(set_stream=self.set_stream)
        self.helpers = SimpleNamespace(start=self.start)
        self.clock = SimpleNamespace(pause=lambda polls: self.device.advance(1e-4 * 2 ** min(polls, 9)))
        self.main_surface = SimpleNamespace(
            default_stream=lambda: self.default,
            handle=lambda stream: self.device.handle(stream.name),
            gated=lambda stream: stream,
            event=lambda flags: Event(self, flags.value),
            synchronize=lambda: None,
        )

    def streams(self, surface: object) -> list[Stream]:
        assert surface is self.main_surface
        return self.side

    def take_gate(self) -> KernelGate:
        return KernelGate(self)

    def set_stream(self, stream: Stream) -> None:
        self.current = stream

    def start(self, call: Any) -> Any:
        """A helper inside ``call``, which is an event's synchronize or the device's."""
        return HelperCall(self.device, getattr(call, "__self__", None))

    def until(self, seen: Any) -> None:
        for _ in range(100):
            if seen():
                return
            self.device.advance(0.05)
