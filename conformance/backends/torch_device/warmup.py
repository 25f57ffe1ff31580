"""Uses everything once before a gate closes.

With lazy loading, the first look-up of a function beside a closed gate returns at once and then
keeps whatever is queued later on other streams pending until the gate opens: that looks exactly like
a late event (docs/hardware.md). So every call that a session makes is made here first.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from conformance.backends.api import EventFlags
from conformance.backends.calls import yield_interpreter
from conformance.errors import BackendUnavailable

if TYPE_CHECKING:
    from conformance.backends.calls import HelperCall, HelperPool
    from conformance.backends.torch_device.kinds import OtherStreams
    from conformance.backends.torch_device.resources import Memory
    from conformance.backends.torch_device.surfaces import Surface

#: Seconds in which a call of the warm-up must return: first uses load code, and take seconds at worst.
LIMIT: Final = 60.0
#: Seconds in which an event's synchronize returns once the device was synchronized too. One that does not is what the
#: probes are for: it was made once, and that is all that is wanted of it here.
PUBLISHED: Final = 2.0


def warm_up(surface: Surface, streams: list[Any], memory: Memory, helpers: HelperPool) -> None:
    """Make each call once. Raises BackendUnavailable if one does not return: then no probe could say why."""
    first, second = streams
    for stream in (*streams, surface.default_stream()):
        with surface.current(stream):
            memory.device[0].fill_(1)
            memory.host[0].copy_(memory.device[0], non_blocking=True)
            memory.device[1].copy_(memory.device[0])
            memory.device[1].copy_(memory.host[0], non_blocking=True)
            memory.device[:2].zero_()
    for flags in EventFlags:
        event, unrecorded = surface.event(flags), surface.event(flags)
        surface.wait(second, unrecorded)
        surface.record(event, first)
        surface.wait(second, event)
        surface.wait_stream(second, first)
        surface.wait_stream(second, surface.default_stream())
        waiting = [helpers.start(call) for call in (event.synchronize, unrecorded.synchronize)]
        for call in (first.synchronize, surface.synchronize):
            _returns(helpers, call)
        _let_return(waiting)
        event.query()
        if flags is EventFlags.TIMING:
            again = surface.event(flags)
            surface.record(again, first)
            _returns(helpers, surface.synchronize)
            with suppress(RuntimeError):  # an event that is not seen complete has no time
                surface.elapsed(event, again)
        unrecorded.query()
        second.query()
        surface.record(event, second)
        del event, unrecorded
    _returns(helpers, surface.synchronize)
    memory.clear_host(1)


def warm_up_others(surface: Surface, others: OtherStreams, memory: Memory) -> None:
    """Use each stream of another kind once, and leave the device idle."""
    event = surface.event(EventFlags.DEFAULT)

    def use(stream: Any) -> None:
        with surface.current(stream):
            memory.device[0].fill_(1)
            memory.host[0].copy_(memory.device[0], non_blocking=True)
        surface.record(event, stream)
        surface.wait(stream, event)

    others.warm_up(use)
    surface.synchronize()
    memory.clear_host(1)


def _let_return(calls: list[HelperCall]) -> None:
    """Wait for calls on events, but not for ever. Raises what one of them raised."""
    began = time.perf_counter()
    while not all(call.returned for call in calls) and time.perf_counter() - began < PUBLISHED:
        yield_interpreter()
    for call in calls:
        if call.returned and call.error is not None:
            raise call.error


def _returns(helpers: HelperPool, call: Any) -> None:
    waiter = helpers.start(call)
    began = time.perf_counter()
    while not waiter.returned:
        if time.perf_counter() - began > LIMIT:
            raise BackendUnavailable(f"{call!r} did not return within {LIMIT:g} s on an idle device; is it in use?")
        yield_interpreter()
    if waiter.error is not None:
        raise waiter.error
