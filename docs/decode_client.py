"""A decode loop with the stream and event calls of vLLM's asynchronous outputs, to be watched under `inject`.

    python docs/decode_client.py --in-flight 2 --ring 1
    stream-conformance inject --fault late-next-wait -- python docs/decode_client.py --in-flight 2 --ring 1

Stand-alone: needs torch and one CUDA device. A step is a busy kernel of a known length and a token; its output is
copied on a copy stream behind `wait_stream`, with an event of its own (docs/inject.md says which lines of vLLM that
follows). Prints a line per step and, last, one line of JSON. Exit code 0; 2 if there is no device.

The lag of a step's output is counted, not timed: how many later steps the device had finished when the host first
saw the event. Every step writes its number into pinned memory, which is read without asking any event. The time of
a step is by the device's clock, from the second quarter on.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections import deque
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

#: A wait shorter than this part of a step counts as instant.
INSTANT = 0.1
#: Steps at the start and at the end that are not counted: the pipe fills, and drains.
EDGE = 4


@dataclass
class Seen:
    """What the host saw of one step."""

    step: int
    wait_ms: float
    lag: int
    right: bool
    at: float


class Output:
    """One step's output: copies on a copy stream, an event, and the host's only look at it."""

    def __init__(self, torch: Any, step: int, token: Any, main: Any, copy: Any) -> None:
        self.step = step
        self.event = torch.cuda.Event(blocking=True)
        with torch.cuda.stream(copy):
            copy.wait_stream(main)
            self.token = token.to("cpu", non_blocking=True)
            self.count = token.to("cpu", non_blocking=True)
            self.event.record(copy)

    def get(self) -> int:
        """Block until the event, then read."""
        self.event.synchronize()
        return int(self.token[0])


def busy_cycles(torch: Any, milliseconds: float) -> int:
    """The argument of torch.cuda._sleep for a busy kernel of that length, by the host's clock."""

    def took(cycles: int) -> float:
        torch.cuda.synchronize()
        start = time.perf_counter()
        torch.cuda._sleep(cycles)
        torch.cuda.synchronize()
        return 1e3 * (time.perf_counter() - start)

    for _ in range(3):  # clocks rise
        took(20_000_000)
    return int(20_000_000 * milliseconds / statistics.median(took(20_000_000) for _ in range(5)))


def decode(torch: Any, arguments: argparse.Namespace) -> tuple[list[Seen], float]:
    """Run the loop; what was seen of each step, and the milliseconds a step took on the device."""
    main = torch.cuda.Stream()
    ring = [torch.cuda.Stream() for _ in range(arguments.ring)]
    cycles = arguments.cycles = arguments.cycles or busy_cycles(torch, arguments.step_ms)
    numbers = torch.arange(arguments.steps + 1, dtype=torch.int32, device="cuda")
    tokens = torch.zeros(arguments.steps, dtype=torch.int32, device="cuda")  # each step writes its own
    done = torch.zeros(1, dtype=torch.int32).pin_memory()  # the number of steps that the device has finished
    torch.cuda.synchronize()
    in_flight: deque[Output] = deque()
    seen: list[Seen] = []
    first = arguments.steps // 4  # clocks have risen
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for step in range(arguments.steps):
        time.sleep(1e-3 * arguments.host_ms)  # scheduling and input preparation
        token = tokens[step : step + 1]
        with torch.cuda.stream(main):
            if step == first:
                start.record(main)
            torch.cuda._sleep(cycles)
            token.copy_(numbers[step : step + 1], non_blocking=True)
            done.copy_(numbers[step + 1 : step + 2], non_blocking=True)
            if step == arguments.steps - 1:
                end.record(main)
        in_flight.append(Output(torch, step, token, main, ring[step % len(ring)]))
        if len(in_flight) == arguments.in_flight:
            seen.append(harvest(in_flight.popleft(), done))
    seen += [harvest(output, done) for output in in_flight]
    torch.cuda.synchronize()
    return seen, start.elapsed_time(end) / (arguments.steps - first)


def harvest(output: Output, done: Any) -> Seen:
    """Wait for an output as the engine does."""
    before = time.perf_counter()
    token = output.get()
    finished = int(done[0])
    after = time.perf_counter()
    return Seen(output.step, 1e3 * (after - before), finished - (output.step + 1), token == output.step, after)


def summary(seen: list[Seen], step_ms: float, arguments: argparse.Namespace) -> dict[str, object]:
    """The figures of the steps in the middle."""
    inner = seen[EDGE:-EDGE] if len(seen) > 4 * EDGE else seen
    waits = sorted(one.wait_ms for one in inner)
    instant = [one.wait_ms < INSTANT * arguments.step_ms for one in inner]
    between = sorted(1e3 * (b.at - a.at) for a, b in pairwise(inner))
    turns = [a != b for a, b in pairwise(instant)]

    def part(values: list[float], share: float) -> float:
        return round(values[min(len(values) - 1, int(share * len(values)))], 3) if values else 0.0

    return {
        "in_flight": arguments.in_flight,
        "ring": arguments.ring,
        "cycles": arguments.cycles,
        "steps": len(inner),
        "step_ms": round(step_ms, 4),
        "wait_ms": {"p10": part(waits, 0.1), "p50": part(waits, 0.5), "p90": part(waits, 0.9), "max": part(waits, 1.0)},
        "between_tokens_ms": {"p50": part(between, 0.5), "p99": part(between, 0.99)},
        "instant_share": round(sum(instant) / max(1, len(instant)), 3),
        "alternation": round(sum(turns) / max(1, len(turns)), 3),
        "late_share": round(sum(one.lag > 0 for one in inner) / max(1, len(inner)), 3),
        "worst_lag_steps": max((one.lag for one in inner), default=0),
        "wrong_tokens": sum(not one.right for one in seen),
    }


def main() -> int:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--in-flight", type=int, default=2, help="steps launched before the oldest is waited for")
    parser.add_argument("--ring", type=int, default=1, help="copy streams, used in turn")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--step-ms", type=float, default=26.0, help="length of a step on the device")
    parser.add_argument("--cycles", type=int, default=0, help="the same as an earlier run printed it")
    parser.add_argument("--host-ms", type=float, default=1.5, help="host work before each launch")
    parser.add_argument("--quiet", action="store_true", help="only the line of JSON")
    arguments = parser.parse_args()
    if min(arguments.in_flight, arguments.ring, arguments.steps) < 1 or arguments.step_ms <= 0 or arguments.host_ms < 0:
        parser.error("--in-flight, --ring and --steps are at least 1, --step-ms is above 0")
    try:
        import torch
    except ImportError as error:
        parser.error(f"torch cannot be imported ({error}); use the Python that has the vendor's torch")
    if not torch.cuda.is_available():
        parser.error("torch.cuda.is_available() is False: this needs a device")
    seen, step_ms = decode(torch, arguments)
    for one in () if arguments.quiet else seen:
        sys.stdout.write(f"step {one.step:3}: waited {one.wait_ms:7.2f} ms, {one.lag} steps late\n")
    sys.stdout.write(json.dumps(summary(seen, step_ms, arguments)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
