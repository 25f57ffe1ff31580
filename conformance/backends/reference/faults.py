"""Faults of the reference device: each replaces single hooks of `Device`, and knows nothing of probes.

Names and meanings: docs/rules.md 1 (the clauses that must catch them are in
`conformance.faults`, which no backend reads). `slow-device` and `gates-expire` are no defects of
streams or events: they show that the judgement does not take them for one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from conformance.backends.reference.device import Device, Task
from conformance.errors import UsageError, unknown_name
from probes.program import Wait, WaitStream

Hooks = dict[str, Any]


def _all_done(tasks: list[Task]) -> bool:
    return all(task.done for task in tasks)


def _late_wait(waits: int | None) -> Callable[[Device, Task], bool]:
    """Published when the first ``waits`` waits behind it (None: all of them) are satisfied."""
    return lambda device, record: record.done and _all_done(device.later(record, "wait")[:waits])


def _late_queue(device: Device, record: Task) -> bool:
    queue = device.queue_of(record.stream)
    waits = [t for t in device.tasks[record.index + 1 :] if t.kind == "wait" and device.queue_of(t.stream) == queue]
    return record.done and _all_done(waits[:1])


def _idle(device: Device, record: Task) -> bool:
    return record.done and _all_done(device.later(record))


def _published(device: Device, wait: Task) -> bool:
    """The device's own waits see an event only when the host may."""
    return wait.bound is None or wait.bound.published


def _before(device: Device, record: Task) -> list[Task]:
    return [task for task in device.tasks[: record.index] if task.stream == record.stream]


def _at_copy_start(device: Device, record: Task) -> bool:
    before = _before(device, record)
    return record.done or (bool(before) and before[-1].kind == "copy" and _all_done(before[:-1]))


def _without_slow_copies(device: Device, record: Task) -> bool:
    return _all_done([task for task in _before(device, record) if not (task.kind == "copy" and task.gate)])


def _held_by_wait(device: Device, task: Task) -> bool:
    if not Device.ready(device, task):
        return False
    return task.kind in ("gate", "wait") or all(w.done or device.satisfied(w) for w in device.later(task, "wait"))


def _blocking_sync(device: Device, event: str) -> bool:
    if not Device.synchronize(device, event):
        return False
    record = device.current.get(event)
    return event not in device.blocking or record is None or _all_done(device.later(record, "wait")[:1])


def _wait_blocks(device: Device, op: Wait | WaitStream) -> bool:
    if isinstance(op, WaitStream):
        return not device.stream_done(op.other)
    return not Device.query(device, op.event)


def _next_record(device: Device, wait: Task) -> Task | None:
    later = (task for task in device.tasks[wait.index + 1 :] if task.kind == "record" and task.event == wait.event)
    return wait.bound or next(later, None)


def _newest_record(device: Device, wait: Task) -> Task | None:
    return device.current.get(wait.event)


def _flickers(device: Device, event: str) -> bool:
    if event not in device.current:
        return True
    device.asked[event] = device.asked.get(event, 0) + 1
    return Device.query(device, event) and device.asked[event] % 2 == 1


def _alias(device: Device, stream: str) -> int:
    rank = device.rank(stream)
    return rank - (rank == 1)


def _gates_expire(device: Device, event: str) -> bool:
    device.gates_ended |= {task.gate for task in device.tasks if task.gate}
    device.settle()
    return Device.query(device, event)


def _record_first(device: Device, task: Task) -> None:
    device.current.setdefault(task.event, task)


FAULTS: Final[dict[str, Hooks]] = {
    "late-next-wait": {"publish": _late_wait(1)},
    "late-any-wait": {"publish": _late_wait(None)},
    "late-idle": {"publish": _idle},
    "late-sync": {"publish": lambda device, record: record.done and record.index < device.flushed},
    "late-never": {"publish": lambda device, record: record.done and not device.later(record, "wait")},
    "late-device-wait": {"publish": _late_wait(1), "satisfied": _published},
    "late-blocking-sync": {"synchronize": _blocking_sync},
    "late-next-wait-queue": {"publish": _late_queue},
    "lost-event": {"publish": lambda device, record: False},
    "query-always-true": {"query": lambda device, event: True},
    "early-at-copy-start": {"publish": _at_copy_start},
    "copy-not-captured": {"publish": _without_slow_copies},
    "wait-dropped": {"satisfied": lambda device, wait: True},
    "wait-newest-record": {"bind": _newest_record},
    "rerecord-releases-waits": {
        "satisfied": lambda device, wait: (
            Device.satisfied(device, wait) or device.current.get(wait.event) is not wait.bound
        )
    },
    "rerecord-ignored": {"record": _record_first},
    "deferred-record": {"publish": _idle, "satisfied": _published},
    "record-captures-later": {
        "publish": lambda device, record: record.done and _all_done(device.later(record)[:1]),
        "satisfied": _published,
    },
    "query-stale": {"query": lambda device, event: event not in device.current},
    "query-inverted": {"query": lambda device, event: not Device.query(device, event)},
    "query-flickers": {"query": _flickers},
    "sync-noop": {"synchronize": lambda device, event: True},
    "never-recorded-pends": {
        "query": lambda device, event: event in device.current and Device.query(device, event),
        "synchronize": lambda device, event: event in device.current and Device.synchronize(device, event),
    },
    "never-recorded-blocks": {"satisfied": lambda device, wait: wait.bound is not None and wait.bound.done},
    "fifo-violated": {"window": 2},
    "aliased-streams": {
        "handle": lambda device, stream: 0x1000 + _alias(device, stream),
        "queue_of": _alias,
    },
    "wait-blocks-host": {"wait_blocks": _wait_blocks},
    "record-blocks-host": {"record_blocks": lambda device, op: not device.stream_done(op.stream)},
    "destroy-drops-waits": {
        "satisfied": lambda device, wait: Device.satisfied(device, wait) or wait.event in device.destroyed
    },
    "destroy-blocks": {"destroy_blocks": lambda device, event: not Device.query(device, event)},
    "completion-before-data": {"read": lambda device, name: Device.read(device, name) if device.flushed else 0},
    "stream-query-early": {"query_stream": lambda device, stream: True},
    "stream-sync-overwaits": {
        "synchronize_stream": lambda device, stream: _all_done(device.tasks),
    },
    "held-by-wait": {"ready": _held_by_wait},
    "wait-future-record": {"bind": _next_record},
    "self-wait-hangs": {
        "satisfied": lambda device, wait: (
            Device.satisfied(device, wait) and not (wait.bound is not None and wait.bound.stream == wait.stream)
        )
    },
    "wait-stream-dropped": {
        "satisfied": lambda device, wait: wait.temporary or Device.satisfied(device, wait),
    },
    "slow-device": {"operation": 2e-3},
    "very-slow-device": {"operation": 0.3},
    "gates-expire": {"query": _gates_expire},
}

_QUEUES: Final = re.compile(r"queues-([1-9]\d?)")


def hooks_of(name: str) -> Hooks:
    """The hooks of one fault; raises UsageError for a name that is not known."""
    if match := _QUEUES.fullmatch(name):
        count = int(match[1])
        return {"queue_of": lambda device, stream: device.rank(stream) % count}
    if name in FAULTS:
        return FAULTS[name]
    base = name.removesuffix("-device")
    if base != name and base.startswith("late-") and "publish" in FAULTS.get(base, {}):
        return FAULTS[base] | {"satisfied": _published}
    known = [*FAULTS, *(f"queues-{k}" for k in range(1, 8))]
    raise UsageError(unknown_name("fault", name, known, "(see 'stream-conformance list --faults')"))


def make_device(faults: tuple[str, ...]) -> type[Device]:
    """A device class with these faults; two faults on one hook are a UsageError."""
    hooks: Hooks = {}
    if len(set(faults)) < len(faults):
        raise UsageError(f"a fault is given twice: {', '.join(faults)}; give each once")
    for name in faults:
        new = hooks_of(name)
        if clash := sorted(hooks.keys() & new.keys()):
            raise UsageError(
                f"fault '{name}' cannot be combined with {', '.join(f for f in faults if f != name)}: "
                f"both replace {', '.join(clash)}; give one of them"
            )
        hooks |= new
    return type("FaultyDevice", (Device,), hooks) if hooks else Device
