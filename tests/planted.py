"""Devices and sessions whose lateness depends on one factor or two, for the diagnosis: it must not know which.

On the reference device a hook publishes late where the plant says so. Over any backend's API the late-next-wait
fault acts where the plant says so; as a factory for `conformance.runner.TEST_CHILD` it is ``planted:flags`` etc.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from odd_devices import OddBackend

from conformance.backends.api import Clock, EventFlags
from conformance.backends.fault_layer import FaultyBackend, FaultySession
from conformance.backends.reference.device import Device
from conformance.backends.registry import Opening, open_as
from probes.program import Wait, WaitStream

if TYPE_CHECKING:
    from collections.abc import Callable

    from conformance.backends.api import Backend, Request
    from conformance.backends.reference import ReferenceSession
    from conformance.backends.reference.device import Task
    from probes.program import DeviceOp

#: Seconds between record and wait from which on the host dawdled.
DAWDLED = 4e-3


class Planted(Device):
    """A device that publishes at the next wait where a condition holds for the record."""

    condition: Callable[[Planted, Task], bool]
    request: Request | None = None

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.issued: dict[int, float] = {}

    def _add(self, task: Task) -> None:
        self.issued[task.index] = self.clock
        super()._add(task)

    def wait_of(self, record: Task) -> Task | None:
        return next(iter(self.later(record, "wait")), None)

    def publish(self, record: Task) -> bool:
        wait = self.wait_of(record)
        return record.done and (wait is None or wait.done or not type(self).condition(self, record))


class PlantedSync(Planted):
    """The same for synchronize alone: query is honest."""

    def publish(self, record: Task) -> bool:
        return record.done

    def synchronize(self, event: str) -> bool:
        record = self.current.get(event)
        return super().synchronize(event) and (record is None or super().publish(record))


def _before(device: Planted, record: Task) -> list[Task]:
    return [task for task in device.tasks[: record.index] if task.stream == record.stream]


def _behind_wait(device: Planted, record: Task) -> list[Task]:
    wait = device.wait_of(record)
    return device.later(wait) if wait is not None else []


def _flags(*flags: EventFlags) -> Callable[[Planted, Task], bool]:
    return lambda device, record: device.request is not None and device.request.flags in flags


def _temporary(device: Planted, record: Task) -> bool:
    wait = device.wait_of(record)
    return wait is not None and wait.temporary


def _destroyed(device: Planted, record: Task) -> bool:
    wait = device.wait_of(record)
    return wait is not None and wait.event in device.destroyed


def _kernel_last(device: Planted, record: Task) -> bool:
    return bool(before := _before(device, record)) and before[-1].kind == "fill"


def _many(device: Planted, record: Task) -> bool:
    return sum(task.kind == "copy" for task in _before(device, record)) >= 16


def _default_producer(device: Planted, record: Task) -> bool:
    wait = device.wait_of(record)
    return wait is not None and wait.bound is not None and wait.bound.stream == "default"


def _dawdled(device: Planted, record: Task) -> bool:
    wait = device.wait_of(record)
    return wait is not None and device.issued[wait.index] - device.issued[record.index] >= DAWDLED


def _later_round(device: Planted, record: Task) -> bool:
    return sum(task.kind == "wait" for task in _before(device, record)) >= 2


def _used(device: Planted, record: Task) -> bool:
    return any(t.kind == "record" and t.event == record.event for t in device.tasks[: record.index])


#: What is planted -> the factors that a diagnosis must name, and the condition.
PLANTS: dict[str, tuple[set[str], Callable[[Planted, Task], bool]]] = {
    "blocking": ({"event flags"}, _flags(EventFlags.BLOCKING)),
    "not timing": ({"event flags"}, _flags(EventFlags.DEFAULT, EventFlags.BLOCKING)),
    "temporary event": ({"later wait"}, _temporary),
    "destroyed event": ({"later wait"}, _destroyed),
    "kernel last": ({"captured work"}, _kernel_last),
    "many copies": ({"captured work"}, _many),
    "record behind": ({"behind the wait"}, lambda d, r: [t.kind for t in _behind_wait(d, r)] == ["record"]),
    "default producer": ({"producer"}, _default_producer),
    "host delay": ({"delay between record and wait"}, _dawdled),
    "later round": ({"round"}, _later_round),
    "used event": ({"event"}, _used),
    "sixth handle": ({"stream handle"}, lambda d, r: d.rank(r.stream) == 5),
    "priority": ({"priority of the stream"}, lambda d, r: r.stream.startswith("high")),
    "blocking and delay": (
        {"event flags", "delay between record and wait"},
        lambda d, r: _flags(EventFlags.BLOCKING)(d, r) and _dawdled(d, r),
    ),
    "temporary and default producer": (
        {"later wait", "producer"},
        lambda d, r: _temporary(d, r) and _default_producer(d, r),
    ),
    "timing and used": (
        {"event flags", "event"},
        lambda d, r: _flags(EventFlags.TIMING)(d, r) and _used(d, r),
    ),
    "always": (set(), lambda d, r: True),
}


class PlantedBackend(OddBackend):
    """The reference backend on a device with a plant."""

    def __init__(self, condition: Callable[[Planted, Task], bool], base: type[Planted] = Planted) -> None:
        super().__init__(type("PlantedHere", (base,), {"condition": staticmethod(condition)}))

    def session(self, request: Request) -> ReferenceSession:
        session = super().session(request)
        device: Any = session._device
        device.request = request
        return session


@dataclass(slots=True)
class PlantedSession(FaultySession):
    """late-next-wait over a session, where the request and what was queued fulfil a condition."""

    plant: str = ""
    request: Request | None = None
    clock: Clock | None = None
    recorded_at: dict[str, float] = field(default_factory=dict)
    latest: DeviceOp | None = None

    def issue(self, op: DeviceOp) -> None:
        self.latest = op
        FaultySession.issue(self, op)
        if type(op).__name__ == "Record" and self.clock is not None:
            self.recorded_at[op.stream] = self.clock.now()

    def _shadow_once(self, stream: str) -> None:
        if self._holds(stream):
            FaultySession._shadow_once(self, stream)

    def _holds(self, stream: str) -> bool:
        assert self.request is not None
        assert self.clock is not None
        if self.plant == "blocking":
            return self.request.flags is EventFlags.BLOCKING
        if self.plant == "timing":
            return self.request.flags is EventFlags.TIMING
        if self.plant == "spelling":
            return isinstance(self.latest, WaitStream)
        if self.plant == "kept":
            return isinstance(self.latest, Wait)
        assert self.plant == "delay"
        now = self.clock.now()
        return now - self.recorded_at.get(stream, now) >= DAWDLED


class PlantedOverApi(FaultyBackend):
    """A backend that is late over its API where a plant says so; nothing about it tells which."""

    def __init__(self, inner: Backend, plant: str) -> None:
        super().__init__(inner, ("late-next-wait",), alias="unnamed")
        self.plant = plant

    def session(self, request: Request) -> PlantedSession:
        made = super().session(request)
        return PlantedSession(
            inner=made.inner, fault=made.fault, plant=self.plant, request=request, clock=self.inner.clock
        )


def _factory(plant: str) -> Callable[[Opening], Backend]:
    return lambda opening: PlantedOverApi(open_as(replace(opening, faults=())), plant)


blocking = _factory("blocking")
timing = _factory("timing")
spelling = _factory("spelling")
kept = _factory("kept")
delay = _factory("delay")
