"""Faults of the reference device across its two devices, as in `conformance.backends.reference.faults`."""

from __future__ import annotations

from typing import Any, Final

from conformance.backends.reference.device import Device, Task
from probes.program import is_far


def _crosses(wait: Task) -> bool:
    return wait.bound is not None and is_far(wait.bound.stream) is not is_far(wait.stream)


def _before_waits(device: Device, task: Task, buffer: str) -> int:
    """A copy between devices finds what was there before its stream's waits: not what they wait for."""
    written = device.written.get(buffer, [])
    if is_far(buffer) is not is_far(task.target) and written and written[-1].stream != task.stream:
        before = written[-2].source if len(written) > 1 else 0
        return before if isinstance(before, int) else device.memory.get(buffer, 0)
    return Device.load(device, task, buffer)


def _next_crossing(device: Device, record: Task) -> bool:
    """Published when the first wait behind it is satisfied, if that is for an event of the other device."""
    return record.done and all(wait.done for wait in device.later(record, "wait")[:1] if _crosses(wait))


FAULTS: Final[dict[str, dict[str, Any]]] = {
    "cross-device-wait-dropped": {"satisfied": lambda device, wait: Device.satisfied(device, wait) or _crosses(wait)},
    "cross-device-wait-hangs": {
        "satisfied": lambda device, wait: Device.satisfied(device, wait) and not _crosses(wait)
    },
    "late-cross-device-wait": {"publish": _next_crossing},
    "wrong-device-accepted": {"refuses": lambda device, op: False},
    "cross-device-elapsed": {"refuses_time_across": lambda device: False},
    "peer-copy-orders-no-data": {"load": _before_waits},
}
