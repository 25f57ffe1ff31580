"""Faults of the reference device: each replaces single hooks of `Device`, and knows nothing of probes.

Names and meanings: docs/rules.md 1 (the clauses that must catch them are in
`conformance.faults`, which no backend reads). `slow-device` and `gates-expire` are no defects of
streams or events: they show that the judgement does not take them for one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from conformance.backends.reference import across, beside_faults
from conformance.backends.reference.device import Device, Task
from conformance.errors import UsageError, unknown_name
from probes.program import DEFAULT_STREAM, Wait, WaitStream, is_high_priority

Hooks = dict[str, Any]

#: Seconds by which `publishes-slowly` delays a publication: above what is called soon, below any deadline.
SLOW: Final = 0.03
#: Seconds by which `data-trails` delays data.
TRAIL: Final = 1e-3
#: Seconds for which `batch-timer` keeps work back.
BATCH_TIMER: Final = 1e-3
#: Slots that `event-slot-reused` has for records.
SLOTS: Final = 4
#: What `memory-scribbled` writes over a token.
SCRIBBLE: Final = 0x5A00


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


def _stream_sync(device: Device, event: str) -> bool:
    record = device.current.get(event)
    return Device.synchronize(device, event) and (record is None or _all_done(device.later(record)))


def _wait_blocks(device: Device, op: Wait | WaitStream) -> bool:
    if isinstance(op, WaitStream):
        return not device.stream_done(op.other)
    return not Device.query(device, op.event)


def _next_record(device: Device, wait: Task) -> Task | None:
    later = (task for task in device.tasks[wait.index + 1 :] if task.kind == "record" and task.event == wait.event)
    return wait.bound or next(later, None)


def _newest_record(device: Device, wait: Task) -> Task | None:
    return device.current.get(wait.event)


def _moved_if_pending(device: Device, wait: Task) -> Task | None:
    """A record takes earlier waits with it if the one that they obey is pending: undefined in one vendor's text."""
    bound, newest = wait.bound, device.current.get(wait.event)
    if bound is None or newest is None or newest is bound:
        return bound
    return newest if not bound.done or bound.ended > newest.queued else bound


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


def _slot_reused(device: Device, record: Task) -> bool:
    """A record takes over the slot of an earlier one, and with it what that one left there."""
    before = [task for task in device.tasks[: record.index] if task.kind == "record"]
    return record.done or (len(before) >= SLOTS and before[-SLOTS].done)


def _merged(device: Device, wait: Task) -> bool:
    """A wait obeys every record of its event, so far."""
    records = [t for t in device.tasks if t.kind == "record" and t.event == wait.event and not t.temporary]
    return Device.satisfied(device, wait) and _all_done(records)


def _tail_waited(device: Device, wait: Task) -> bool:
    """A wait covers what its producer had been given when the wait was issued, not what it had at the record."""
    if wait.bound is None or wait.temporary:
        return Device.satisfied(device, wait)
    before = device.tasks[: wait.index]
    return wait.bound.done and _all_done(
        [t for t in before if t.stream == wait.bound.stream and t.stream != wait.stream]
    )


def _shared_signal(device: Device, record: Task) -> bool:
    """Neighbouring records share a signal; a gate or wait between them does not end the neighbourhood."""
    for task in reversed(_before(device, record)):
        if task.kind == "record":
            return record.done or (task.done and not task.temporary)
        if task.kind not in ("gate", "wait"):
            break
    return record.done


def _only_work(device: Device, wait: Task) -> bool:
    """A wait finds nothing to wait for in a record whose stream did nothing but wait before it."""
    before = _before(device, wait.bound) if wait.bound is not None else []
    return Device.satisfied(device, wait) or (bool(before) and before[-1].kind == "wait")


def _taken_in(device: Device, record: Task) -> bool:
    return record.done and _all_done(device.tasks[: record.index])


def _next_operation(device: Device, record: Task) -> bool:
    """The signal is sent off with the next operation that is queued anywhere."""
    return record.done and len(device.tasks) > record.index + 1 + record.temporary


def _slowly(device: Device, record: Task) -> bool:
    """With something queued behind it an event is seen a while after it was done."""
    return record.done and (device.clock >= record.ended + SLOW or not device.later(record))


def _old_data(device: Device, task: Task, buffer: str) -> int:
    """A copy finds what another stream wrote last only once its own stream has begun again."""
    written = device.written.get(buffer, [])
    if written and written[-1].stream != task.stream:
        written = written[:-1]
    return _value(device, written[-1]) if written else 0


def _value(device: Device, task: Task) -> int:
    return task.source if isinstance(task.source, int) else device.memory.get(task.target, 0)


def _read_at_enqueue(device: Device, task: Task) -> None:
    if task.kind == "copy" and isinstance(task.source, str):
        task.source = device.memory.get(task.source, 0)


def _read_too_late(device: Device, task: Task, buffer: str) -> int:
    """A copy reads its source when what stands behind it on its stream has been written already."""
    fills = [t for t in device.later(task, "fill") if t.target == buffer]
    return _value(device, fills[0]) if fills else device.memory.get(buffer, 0)


def _scribble(device: Device, task: Task, buffer: str) -> int:
    value = device.memory.get(buffer, 0)
    return value ^ SCRIBBLE if device.later(task, "copy") else value


def _trailing(device: Device, name: str) -> int:
    """The host finds data a while after it was written, and nothing before that."""
    written = device.written.get(name)
    return Device.read(device, name) if not written or device.clock >= written[-1].ended + TRAIL else 0


def _call_at_enqueue(device: Device, task: Task) -> None:
    if task.function:
        device.called[task.function] += 1


def _call_twice(device: Device, task: Task) -> None:
    device.called[task.function] += 2


def _tied_all(device: Device, stream: str) -> list[str]:
    """Every side stream obeys the rule of blocking ones."""
    return [other for other in device.streams if other != stream] if stream == DEFAULT_STREAM else [DEFAULT_STREAM]


def _submitting(plain: Callable[[Device, str], bool]) -> Callable[[Device, str], bool]:
    """A call that hands over what was queued before it answers."""

    def call(device: Device, name: str) -> bool:
        device.submit()
        return plain(device, name)

    return call


#: Work waits in the host until a call asks for anything.
_BATCHING: Final[Hooks] = {
    "ready": lambda device, task: task.index < device.submitted and Device.ready(device, task),
    "query": _submitting(Device.query),
    "synchronize": _submitting(Device.synchronize),
    "query_stream": _submitting(Device.query_stream),
    "synchronize_stream": _submitting(Device.synchronize_stream),
}


def _after_a_while(device: Device, task: Task) -> bool:
    return device.clock >= task.queued + BATCH_TIMER and Device.ready(device, task)


def _no_error(device: Device, start: str, end: str) -> str:
    return ""


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
    "sync-waits-for-stream": {"synchronize": _stream_sync},
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
    "data-trails": {"read": _trailing, "lingers": True},
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
    "records-coalesced": {"publish": _shared_signal},
    "records-merged": {"satisfied": _merged},
    "event-slot-reused": {"publish": _slot_reused},
    "batch-until-next-operation": {"publish": _next_operation},
    "relayed-wait-dropped": {"satisfied": _only_work},
    "record-takes-in-all": {"publish": _taken_in},
    "wait-covers-tail": {"satisfied": _tail_waited},
    "publishes-slowly": {"publish": _slowly, "lingers": True},
    "stream-sync-early": {"synchronize_stream": lambda device, stream: True},
    "wait-orders-no-data": {"load": _old_data},
    "copy-reads-at-enqueue": {"queued": _read_at_enqueue},
    "copy-reads-late": {"load": _read_too_late},
    "memory-scribbled": {"load": _scribble},
    "hostfn-early": {"queued": _call_at_enqueue, "call": lambda device, task: None},
    "hostfn-async": {"functions_hold": False},
    "hostfn-twice": {"call": _call_twice},
    "hostfn-lost": {"call": lambda device, task: None},
    "legacy-ignored": {"ties": lambda device, stream: []},
    "nonblocking-obeys-legacy": {"ties": _tied_all},
    "priority-reorders": {"width": lambda device, stream: 2 if is_high_priority(stream) else 1},
    "elapsed-negative": {"elapsed": lambda device, start, end: -abs(Device.elapsed(device, start, end))},
    "elapsed-no-error": {"times": _no_error},
    "elapsed-ignores-hold": {"elapsed": lambda device, start, end: 0.0},
    "priorities-ignored": {"priority": lambda device, stream: 0},
    "legal-rerecord": {"bind": _moved_if_pending},
    "batch-query": _BATCHING,
    "batch-timer": {"ready": _after_a_while, "lingers": True},
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
    for table in (across.FAULTS, beside_faults.FAULTS):
        if name in table:
            return table[name]
    base = name.removesuffix("-device")
    if base != name and base.startswith("late-") and "publish" in FAULTS.get(base, {}):
        return FAULTS[base] | {"satisfied": _published}
    known = [*FAULTS, *across.FAULTS, *beside_faults.FAULTS, *(f"queues-{k}" for k in range(1, 8))]
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
