"""Hidden synchronizations: which ways of reading a result wait for what the stream has queued, by a closed gate.

The costs are the host's, on an idle device, and say nothing about what waits: that the gate says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from conformance.backends.api import EventFlags
from conformance.backends.gates.base import until
from conformance.errors import DeviceError
from conformance.pipeline.model import quantile
from conformance.pipeline.paths import BATCH
from reports.pipeline import Read

if TYPE_CHECKING:
    from collections.abc import Callable

    from conformance.pipeline.device import Engine

#: Seconds that a gate is closed at most, and that a call is watched beside it.
LIMIT: Final = 0.5
WATCH: Final = 0.05
#: Tries until the gate of one had not ended by itself.
TRIES: Final = 3


def measure_reads(engine: Engine, uses: int) -> tuple[Read, ...]:
    """Each way, most engines' own first. Raises what the vendor's calls raise."""
    return tuple(_read(engine, name, call, uses) for name, call in _calls(engine).items())


def _calls(engine: Engine) -> dict[str, Callable[[], object]]:
    torch, surface, main = engine.torch, engine.surface, engine.main
    ids = torch.full((BATCH, 1), 1, dtype=torch.int64, device=engine.device)
    pinned = torch.zeros((BATCH, 1), dtype=torch.int64, pin_memory=True)
    event = surface.event(EventFlags.BLOCKING)

    def copied() -> None:
        pinned.copy_(ids, non_blocking=True)
        surface.record(event, main)

    def waited() -> object:
        copied()
        event.synchronize()
        return pinned.tolist()

    return {
        "copy to pinned memory, record": copied,
        "the same, event wait, tolist() of the pinned copy": waited,
        '.to("cpu", non_blocking=True)': lambda: ids.to("cpu", non_blocking=True),
        "tolist() of the device tensor": ids.tolist,
        f"item() of each of {BATCH} elements": lambda: [ids[i].item() for i in range(BATCH)],
        "cpu()": ids.cpu,
        "nonzero()": ids.nonzero,
        "a tensor from a list, on the device": lambda: torch.tensor([1] * BATCH, device=engine.device),
    }


def _read(engine: Engine, name: str, call: Callable[[], object], uses: int) -> Read:
    costs = []
    for _ in range(uses):
        began = engine.clock.now()
        call()
        costs.append(engine.clock.now() - began)
    _settled(engine, [], [])
    engine.beat()
    cost = round(1e6 * quantile(costs, 0.5), 1)
    if engine.take is None:
        return Read(call=name, waits=None, cost_us=cost, note="no gate that the host can open")
    for _ in range(TRIES):
        waits = _waits(engine, call)
        if waits is not None:
            return Read(call=name, waits=waits, cost_us=cost)
    return Read(call=name, waits=None, cost_us=cost, note=f"the gate ended by itself in {TRIES} of {TRIES} tries")


def _waits(engine: Engine, call: Callable[[], object]) -> bool | None:
    """Does the call return while main is shown held? None if it was not held to the end of the look."""
    assert engine.take is not None, "asked for by the caller"
    # The helper that will be given the call makes it once before: threads and caches are warm.
    warm = engine.start(call)
    if until(lambda: warm.returned, LIMIT) is None:
        raise DeviceError("a read on an idle device does not return")
    gate, calls = engine.take(), list[Any]()
    try:
        gate.enqueue(engine.surface.gated(engine.main), LIMIT)
        if until(gate.entered, LIMIT) is None:
            raise DeviceError("a gate on an idle stream is not entered")
        calls.append(engine.start(call))
        returned = until(lambda: calls[0].returned, WATCH) is not None
        held = gate.closed()
    finally:
        gate.open()
        _settled(engine, [gate], calls)
    if calls[0].error is not None:
        raise calls[0].error
    return not returned if held else None


def _settled(engine: Engine, gates: list[Any], calls: list[Any]) -> None:
    if not engine.give([engine.main], gates, calls):
        raise DeviceError("the device did not become idle after its gate opened")
