"""The faults of experiments on the reference device, as in `conformance.backends.reference.faults`.

Each replaces single hooks of `Device`, and knows nothing of sessions or of what these give to experiments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from conformance.backends.reference.device import Device

#: Bytes from which a copy takes an engine of its own under one fault, and what such an engine does a second.
LARGE: Final = 65536
BANDWIDTH: Final = 1e10
#: Seconds that a slow query takes: more than is called at once, far below the deadline.
STALL: Final = 0.2
#: Seconds that a hung call takes: more than the deadline, less than a gate holds.
HUNG: Final = 1.2


def _stalls_once(device: Device, in_sync: bool, pending: bool) -> float:
    first, device.asked_pending = pending and not device.asked_pending, device.asked_pending or pending
    return STALL if first else 0.0


#: By name, the hooks that each replaces.
FAULTS: Final[dict[str, dict[str, Any]]] = {
    "blocking-spins": {"spins": lambda device, event, blocking: True},
    "copy-blocks-host": {"copy_blocks": lambda device, op: not device.stream_done(op.stream)},
    "query-blocks-in-sync": {"query_takes": lambda device, in_sync, pending: STALL if in_sync else 0.0},
    "query-hangs-in-sync": {"query_takes": lambda device, in_sync, pending: HUNG if in_sync else 0.0},
    "query-sticks": {"query_sticks": lambda device: True},
    "query-stalls": {"query_takes": _stalls_once},
    "record-blocks-in-sync": {"record_blocks_in_sync": lambda device: True},
    "wait-blocks-in-sync": {"wait_blocks_in_sync": lambda device: True},
    "records-mixed": {"mixes_records": lambda device: True},
    "captured-sync-returns": {"refuses_synchronize": lambda device: False},
    "stream-query-blocks-in-sync": {"stream_query_blocks": lambda device, in_sync: in_sync},
    "stream-destroy-blocks": {"stream_destroy_blocks": lambda device, pending: pending},
    "stream-destroy-drops-work": {"stream_destroy_drops": lambda device: True},
    "records-thread-local": {"recorded_elsewhere": lambda device, recorder: recorder != device.thread},
    "current-stream-shared": {"current_key": lambda device, thread: "every thread"},
    "large-copy-not-captured": {"arrives_after": lambda device, size: size / BANDWIDTH if size >= LARGE else 0.0},
    "kernel-store-late": {"stores_visible": lambda device: device.flushed > 0},
    "captured-query-succeeds": {"refuses_query": lambda device: False},
    "capture-takes-legacy": {"refuses_legacy": lambda device: False},
    "capture-mode-ignored": {"forbids_query": lambda device, mode, owner: owner != device.thread},
    "capture-global-open": {"forbids_query": lambda device, mode, owner: False},
    "capture-takes-outside-wait": {"refuses_outside_wait": lambda device: False},
    "ipc-always-complete": {"imported_complete": lambda device: True},
}
