"""The core question in plain pyopencl, without the suite: is a marker complete while a later wait is blocked?

Run it where `stream-conformance run --backend opencl` reports a finding, to see that again with nothing
of the suite in between: python docs/opencl_core.py [PLATFORM:DEVICE]. It exits with 1 if the marker is
late. OpenCL 3.0 API specification: clEnqueueMarkerWithWaitList (what a marker waits for), Execution model
(prerequisites in an in-order command-queue), Flush and Finish (clFlush).
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
import pyopencl as cl

DEADLINE = 1.0  # seconds


def until(seen: Any, seconds: float) -> float | None:
    """Seconds until ``seen``; None if it is not within the time."""
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        if seen():
            return time.perf_counter() - began
        time.sleep(1e-4)
    return None


def ask(context: Any, later_wait: bool) -> tuple[float | None, bool, float | None]:
    """(seconds until the marker, was the copy's data there?, seconds until the marker once the later gate opened)."""
    copy, main = cl.CommandQueue(context), cl.CommandQueue(context)
    first, second = cl.UserEvent(context), cl.UserEvent(context)
    device = cl.Buffer(context, cl.mem_flags.READ_WRITE, 64)
    host = np.zeros(16, np.uint32)
    kept = [cl.enqueue_barrier(copy, wait_for=[first])]
    kept.append(cl.enqueue_fill_buffer(copy, device, np.uint32(7), 0, 64))
    kept.append(cl.enqueue_copy(copy, host, device, is_blocking=False))
    marker = cl.enqueue_marker(copy)
    if later_wait:
        kept.append(cl.enqueue_barrier(main, wait_for=[second]))
        kept.append(cl.enqueue_marker(main))
        main.flush()
        kept.append(cl.enqueue_barrier(copy, wait_for=[kept[-1]]))
    copy.flush()

    def complete() -> bool:
        return int(marker.command_execution_status) == int(cl.command_execution_status.COMPLETE)

    assert until(complete, 0.01) is None, "the marker is complete before what it waits for"
    first.set_status(cl.command_execution_status.COMPLETE)
    after, data = until(complete, DEADLINE), bool(host[0] == 7)
    second.set_status(cl.command_execution_status.COMPLETE)
    opened = until(complete, DEADLINE) if after is None else None
    copy.finish()
    main.finish()
    return after, data, opened


def main(argument: str = "0:0") -> int:
    """Ask without and with the later wait, three times."""
    platform, device = map(int, argument.split(":"))
    chosen = cl.get_platforms()[platform].get_devices()[device]
    context, late = cl.Context([chosen]), 0
    for attempt in range(3):
        for later_wait in (False, True):
            after, data, opened = ask(context, later_wait)
            late += later_wait and after is None
            how = "is not complete" if after is None else f"is complete after {after * 1e6:.0f} us"
            end = f"; {opened * 1e6:.0f} us after the later gate opened it is" if opened is not None else ""
            wait = "with a blocked wait behind it" if later_wait else "with nothing behind it"
            print(f"{attempt + 1}: {wait} the marker {how}, data {'there' if data else 'missing'}{end}")  # noqa: T201
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
