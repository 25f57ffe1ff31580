"""A torch program whose threads use streams and events together: stream_threads.py --seconds S --threads N.

To be run under `stream-conformance inject`: under a late fault it goes on, its data is right, and it does not grow.
Prints one line of JSON; exit code 1 if data was wrong or an event was never seen.

One thread synchronizes a stream of its own all the time, so that under late-sync the events of all are seen.
"""

from __future__ import annotations

import argparse
import json
import queue
import sys
import threading
import time
from pathlib import Path
from typing import Any

#: Seconds in which an event must be seen, whatever the fault: others call synchronize all the time.
PATIENCE = 20.0
#: Steps in flight in each thread: host buffers that are not written again before they were read.
DEPTH = 8


def resident_kb() -> int:
    """This process's resident memory."""
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")))


class Shared:
    """What the threads share."""

    def __init__(self) -> None:
        self.ending = threading.Event()
        self.problems: list[str] = []
        self.steps = 0
        self.kept: list[object] = []  # memory that copies may still be under way to
        self.lock = threading.Lock()


def produce(torch: Any, number: int, shared: Shared, ready: queue.Queue[Any]) -> None:
    """Fill on one stream, copy on another behind a wait, and hand the event to a reader in another thread."""
    main, copy = torch.cuda.Stream(), torch.cuda.Stream()
    device = torch.zeros(DEPTH, dtype=torch.int32, device="cuda")
    host = torch.zeros(DEPTH, dtype=torch.int32).pin_memory()
    shared.kept.append((device, host))
    free: queue.Queue[int] = queue.Queue()
    for row in range(DEPTH):
        free.put(row)
    again = torch.cuda.Event()  # recorded again each step
    torch.cuda.synchronize()
    step = 0
    while not shared.ending.is_set():
        step += 1
        try:
            row = free.get(timeout=PATIENCE)
        except queue.Empty:
            shared.problems.append(f"thread {number}: no event was seen for {PATIENCE} s")
            return
        value = number * 1_000_000 + step % 1_000_000
        source, target = device[row : row + 1], host[row : row + 1]
        event = torch.cuda.Event(blocking=step % 2 == 0)
        with torch.cuda.stream(main):
            source.fill_(value)
            again.record(main)
        with torch.cuda.stream(copy):
            if step % 3:
                copy.wait_event(again)
            else:
                copy.wait_stream(main)
            target.copy_(source, non_blocking=True)
            event.record(copy)
        ready.put((event, target, value, free, row))
        if step % 16 == 0:
            copy.synchronize()
            main.synchronize()
        with shared.lock:
            shared.steps += 1


def consume(number: int, shared: Shared, ready: queue.Queue[Any]) -> None:
    """See each event complete, by query or by synchronize, and read."""
    while True:
        item = ready.get()
        if item is None:
            return
        event, target, value, free, row = item
        if value % 2:
            event.synchronize()
        else:
            deadline = time.monotonic() + PATIENCE
            while not event.query():
                if time.monotonic() > deadline:
                    shared.problems.append(f"reader {number}: an event was not seen for {PATIENCE} s")
                    break
                time.sleep(1e-4)
        if int(target[0]) != value:
            shared.problems.append(f"reader {number}: {int(target[0])} instead of {value}")
        del event, item
        free.put(row)


def flush(torch: Any, done: threading.Event) -> None:
    """Synchronize a stream of its own again and again."""
    stream = torch.cuda.Stream()
    while not done.wait(0.002):
        stream.synchronize()


def main() -> int:
    """Run for so many seconds, in two halves: the second must not grow."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--threads", type=int, default=4)
    arguments = parser.parse_args()
    import torch

    shared, ready = Shared(), queue.Queue()
    makers = [
        threading.Thread(target=produce, args=(torch, number, shared, ready)) for number in range(arguments.threads)
    ]
    readers = [threading.Thread(target=consume, args=(number, shared, ready)) for number in range(arguments.threads)]
    done = threading.Event()
    flusher = threading.Thread(target=flush, args=(torch, done))
    for thread in [*makers, *readers, flusher]:
        thread.start()
    seen = []
    for _ in range(2):
        time.sleep(arguments.seconds / 2)
        seen.append((resident_kb(), int(torch.cuda.memory_allocated()), shared.steps))
    shared.ending.set()
    for thread in makers:
        thread.join()
    for _ in readers:
        ready.put(None)
    for thread in readers:
        thread.join()
    done.set()
    flusher.join()
    torch.cuda.synchronize()
    said = {
        "steps": shared.steps,
        "resident_kb": [seen[0][0], seen[1][0]],
        "device_bytes": [seen[0][1], seen[1][1]],
        "problems": shared.problems[:5],
    }
    sys.stdout.write(json.dumps(said) + "\n")
    return 1 if shared.problems else 0


if __name__ == "__main__":
    sys.exit(main())
