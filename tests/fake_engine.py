"""The pipeline's device on the stand-in for torch: a backend for a child, and an engine for a test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import fake_torch

from conformance.backends.reference import ReferenceBackend
from conformance.backends.torch_device.surfaces import VendorSurface
from conformance.backends.vendors import VENDORS
from conformance.pipeline.device import SIDE, Busy, Engine, busy_by_gates, busy_by_sleep

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from conformance.backends.registry import Opening


class Call:
    """A helper's call, made as soon as it can return."""

    def __init__(self, world: fake_torch.World, function: Callable[[], object]) -> None:
        self._world, self._function = world, function
        self.returned, self.error = False, None
        self.again()

    error: BaseException | None

    def again(self) -> None:
        """Try to make the call; one that a gate holds back has not returned."""
        before = self._world.current
        try:
            if not self.returned:
                self._function()
                self.returned = True
        except fake_torch.Held:
            pass
        finally:
            self._world.current = before


def engine(*, unordered: bool = False, by_sleep: bool = True, gates: bool = True, beat: Any = lambda: None) -> Engine:
    """A device; ``unordered``: its events do not complete in order. Work by `_sleep`, or by gates that end."""
    world = fake_torch.World(unordered=unordered)
    torch = fake_torch.Torch(world)
    surface = VendorSurface(torch, torch.cuda, VENDORS["cuda"], 0)
    side = [surface.stream() for _ in range(SIDE)]

    def give(streams: Sequence[Any], held: Sequence[Any], calls: Sequence[Any]) -> bool:
        for gate in held:
            gate.open()
        world.wait(lambda: all(world.idle(stream.number) for stream in streams))
        for call in calls:
            call.again()
        return True

    busy: Busy = busy_by_sleep(surface)
    if not by_sleep:
        busy = busy_by_gates(surface, [fake_torch.Gate(world) for _ in range(24)], "the fake gate", world)
    return Engine(
        torch=torch,
        device="fake",
        surface=surface,
        main=surface.default_stream(),
        side=side,
        busy=busy,
        clock=world,
        take=(lambda: fake_torch.Gate(world)) if gates else None,
        give=give,
        start=lambda function: Call(world, function),
        beat=beat,
    )


class Backend(ReferenceBackend):
    """The reference device, with an engine beside it."""

    def engine(self, beat: Callable[[], None]) -> Engine:
        """The stand-in."""
        return engine(beat=beat)


def backend(opening: Opening) -> Backend:
    """For `conformance.runner.TEST_CHILD`."""
    return Backend(opening.faults)
