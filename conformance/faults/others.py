"""Faults of kinds of streams, host functions, data, times, captures, processes and threads. Source: docs/rules.md 1."""

from __future__ import annotations

from typing import Final

from conformance.faults.record import fault

FAULTS: Final = (
    # Events and waits, beyond the first list.
    fault(
        "records-coalesced",
        "records with a gate between them share one signal",
        "EVT-SAFE-1",
        "EVT-SYNC-1",
        outcome="undecided",
    ),
    fault(
        "event-slot-reused",
        "a record takes over an older one's slot with what that left there",
        "EVT-SAFE-1",
        "EVT-SYNC-1 EVT-REREC-1",
        outcome="undecided",
    ),
    fault("records-merged", "a wait obeys every record of its event so far", "EVT-REREC-2", "EVT-WAIT-2"),
    fault(
        "relayed-wait-dropped",
        "a wait for a record with only a wait before it is ignored",
        "EVT-WAIT-1",
        "STM-WSTREAM-1 EVT-SAFE-1 EVT-SYNC-1 MEM-VIS-1",
        outcome="undecided",
    ),
    fault("wait-covers-tail", "a wait covers all that its producer had been given at the call", "STM-CONC-1"),
    fault(
        "batch-until-next-operation",
        "an event's signal leaves with the next operation queued anywhere",
        "EVT-LIVE-1",
        outcome="ineffective",
        form="never",
    ),
    fault("publishes-slowly", "with later work behind it an event is seen a while after it was done", "EVT-LAG-1"),
    fault("record-takes-in-all", "a record takes in what every stream was given before", "STM-CONC-2"),
    fault("stream-sync-early", "stream synchronize returns at once", "STM-SYNC-1"),
    fault("query-blocks-in-sync", "query takes a while if another thread is inside synchronize", "EVT-QNB-1"),
    fault("query-hangs-in-sync", "query waits while another thread is inside synchronize", "THR-2", "EVT-QNB-1"),
    fault("query-stalls", "the first query that finds its event pending takes a while", "EVT-QNB-1"),
    fault("query-sticks", "a query that finds its event pending makes the next call fail", "EVT-ASK-1"),
    fault("blocking-spins", "synchronize on an event with the blocking flag spins", "EVT-FLAG-1"),
    # Two devices.
    fault(
        "cross-device-wait-dropped",
        "a wait for an event of another device is ignored",
        "EVT-WAIT-6",
        "EVT-SAFE-1 EVT-SYNC-1 EVT-IPC-1",
        outcome="undecided",
    ),
    fault(
        "cross-device-wait-hangs",
        "a wait for an event of another device never ends",
        "EVT-WAIT-6",
        "EVT-IPC-1",
        outcome="undecided",
    ),
    fault(
        "late-cross-device-wait",
        "an event is seen once the next wait behind it, if that is for another device, is satisfied",
        "EVT-INDEP-1",
        form="next-wait",
        outcome="undecided",
    ),
    fault(
        "peer-copy-orders-no-data",
        "a copy between devices reads what was there before the waits of its stream",
        "MEM-DEV-1",
        "MEM-VIS-1",
    ),
    fault("cross-device-elapsed", "there is a time between events of two devices", "TIM-ERR-1"),
    fault("wrong-device-accepted", "an event of one device may be recorded on another", "EVT-ERR-1"),
    # Kinds of streams.
    fault(
        "legacy-ignored",
        "the default stream does not order blocking streams",
        "STM-LEGACY-1",
        "STM-LEGACY-2 EVT-SAFE-1 EVT-SYNC-1",
        outcome="undecided",
    ),
    fault("nonblocking-obeys-legacy", "the default stream orders non-blocking streams too", "STM-NB-1"),
    fault(
        "priority-reorders",
        "an operation of a prioritised stream overtakes a blocked one before it",
        "STM-PRIO-1",
        "EVT-SAFE-1 EVT-SYNC-1",
        outcome="undecided",
    ),
    fault("stream-destroy-blocks", "destroying a stream with pending work blocks the host", "STM-DESTROY-1"),
    fault("stream-destroy-drops-work", "destroying a stream drops its pending work", "STM-DESTROY-1"),
    # Host functions.
    fault("hostfn-early", "a host function is called when it is queued", "HFN-ORDER-1"),
    fault("hostfn-twice", "a host function is called twice", "HFN-ORDER-1"),
    fault("hostfn-lost", "a host function is never called", "HFN-ORDER-1"),
    fault(
        "hostfn-async",
        "a host function does not hold what stands behind it",
        "HFN-BLOCK-1",
        "EVT-SAFE-1 EVT-SYNC-1",
        outcome="undecided",
    ),
    # Data.
    fault(
        "wait-orders-no-data",
        "a wait orders what runs, and not the data",
        "MEM-DEV-1",
        "MEM-VIS-1",
        outcome="undecided",
    ),
    fault(
        "copy-reads-at-enqueue",
        "a copy reads its source when it is queued",
        "STM-FIFO-1",
        "MEM-VIS-1 MEM-DEV-1",
        outcome="undecided",
    ),
    fault(
        "copy-reads-late",
        "a copy reads its source after what stands behind it has written it",
        "STM-FIFO-1",
        outcome="undecided",
    ),
    fault("memory-scribbled", "a copy with another behind it delivers a wrong value", "MEM-VIS-1", outcome="undecided"),
    fault(
        "large-copy-not-captured",
        "a large copy runs on an engine that records do not cover",
        "MEM-VIS-1",
        outcome="undecided",
    ),
    fault(
        "kernel-store-late", "a kernel's store to host memory is visible only after a stream synchronize", "MEM-VIS-2"
    ),
    fault(
        "copy-blocks-host",
        "a copy of pinned memory returns only when its stream is idle",
        "MEM-PIN-1",
        outcome="undecided",
    ),
    # Times.
    fault("elapsed-negative", "the time between two events has the wrong sign", "TIM-POS-1", "TIM-BRK-1"),
    fault("elapsed-no-error", "there is a time between any two events", "TIM-ERR-1"),
    fault("elapsed-ignores-hold", "the time between two events leaves out what was held between them", "TIM-BRK-1"),
    # Captures, processes, threads.
    fault("captured-query-succeeds", "a captured event and a capturing stream can be asked", "CAP-1"),
    fault("captured-sync-returns", "synchronize on a captured event or a capturing stream returns", "CAP-1"),
    fault("capture-takes-outside-wait", "a capture takes in a wait for an event recorded outside", "CAP-2"),
    fault("capture-takes-legacy", "the default stream can be used while a blocking stream is captured", "CAP-2"),
    fault("capture-mode-ignored", "a capture of any mode forbids queries of other threads", "CAP-3"),
    fault("capture-global-open", "a capture of global mode does not forbid a query of another thread", "CAP-3"),
    fault("ipc-always-complete", "an event imported from another process is always complete", "EVT-IPC-1"),
    fault("records-thread-local", "a record is known to the thread that made it", "THR-1", "CAP-3"),
    fault("current-stream-shared", "threads share one current stream", "THR-1"),
    fault("records-mixed", "a record right after another thread's goes to that one's stream", "THR-1"),
    fault("stream-query-blocks-in-sync", "stream query waits while another thread synchronizes", "THR-2"),
    fault("record-blocks-in-sync", "a record waits while another thread synchronizes on its stream", "THR-2"),
    fault("wait-blocks-in-sync", "a wait waits while another thread synchronizes on the awaited stream", "THR-2"),
)
