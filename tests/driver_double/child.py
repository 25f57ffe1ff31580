"""A process under a supervisor, on a stand-in driver: python child.py VENDOR KIND LIBRARIES FD.

Closes a gate twice, each time waiting until it has ended, and prints a line before and after. The libraries
lie in the folders in which the vendor's own record looks for them.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

from driver_double.double import FILES, make_module, make_torch  # noqa: E402 - found by the path above

from conformance.backends.gates import CheckTimes, Ladder  # noqa: E402
from conformance.backends.vendors import VENDORS  # noqa: E402


def say(*words: str) -> None:
    sys.stdout.write(" ".join(words) + "\n")
    sys.stdout.flush()


def main(vendor_name: str, kind: str, site: Path, fd: int) -> None:
    vendor = VENDORS[vendor_name]
    driver = site / "torch" / "lib" / FILES[vendor_name]["DRIVER"]
    module = make_module(driver, vendor.stream_handle, vendor.event_handle)
    torch = make_torch(site, vendor.module, module)
    ladder = Ladder(vendor, kind=kind, fd=fd, times=CheckTimes(limit_s=1.0), torch=torch)
    (gate,) = ladder.take(1)
    stream = module.Stream()
    say("ready", ladder.native.found["driver"][0])
    for _ in range(2):
        sys.stdin.readline()
        gate.enqueue(stream, 30.0)
        say("enqueued")
        end = time.monotonic() + 60
        while not gate.ended() and time.monotonic() < end:
            time.sleep(0.001)
        say("ended", "opened" if gate.opened() else "not opened", "expired" if gate.expired() else "in time")
        gate.open()  # as a `finally` would: the supervisor has done so already
    say("closed" if ladder.close() else "still held")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
