"""Limits of a torch device that no program shows: stream handles, launch queue, copies to the host, gate kinds.

Each is bounded, opens its gate whatever happens, and proves the device idle afterwards. Beside a closed
gate only such calls are made as were made once before it closed (docs/hardware.md).
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from conformance.backends.gates.base import until
from conformance.backends.gates.ladder import KINDS, OK
from conformance.backends.torch_device.session import not_idle
from conformance.errors import DeviceError, Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from conformance.backends.calls import HelperCall
    from conformance.backends.gates import Gate
    from conformance.backends.torch_device import TorchBackend
    from conformance.backends.torch_device.surfaces import Surface

Found = TypeVar("Found")

#: Streams made at most in search of a handle seen before; torch's pools hold 32.
MOST_STREAMS: Final = 128
#: Fills queued at most behind a closed gate.
MOST_QUEUED: Final = 2048
#: Seconds after which a call that should only queue is taken to block; the gate is opened at once.
BLOCKED: Final = 0.05
#: Seconds after which a gate here ends by itself, and in which one must be entered.
GATE_LIMIT: Final = 0.5
#: Tries until the gate of one was not ended by its limit.
TRIES: Final = 3
#: What is copied; it differs from what the warm-up left in the same host block.
WARM_TOKEN: Final = 5
TOKEN: Final = 6


class TorchLimits:
    """The limits of one open backend; see `conformance.backends.api.Limits`."""

    def __init__(self, backend: TorchBackend) -> None:
        if not backend.usable:
            raise not_idle(backend.name)
        self._backend = backend
        self._surface: Surface = backend.main_surface
        self._stream = backend.streams(self._surface)[0]

    def stream_handles_before_aliasing(self) -> str:
        """How many streams made in a row have different handles."""
        made: dict[int, Any] = {}
        for count in range(MOST_STREAMS + 1):
            stream = self._surface.stream()
            if self._surface.handle(stream) in made:
                return f"{count} streams"
            made[self._surface.handle(stream)] = stream
        return f"more than {MOST_STREAMS} streams"

    def launch_queue_depth(self) -> str:
        """How many fills can be queued behind a closed gate until the next call blocks."""
        gate = self._backend.gate()
        if gate.assurance == "timed":
            raise Unsupported("launch-queue", f"a {gate.kind} gate cannot be opened when a call blocks")
        # Twice: an interrupted host looks like a call that blocks.
        depths = sorted({self._retried(self._try_depth), self._retried(self._try_depth)})
        if depths[0] >= MOST_QUEUED:
            return f"more than {MOST_QUEUED} fills behind a closed gate"
        shown = " to ".join(map(str, depths))
        return f"{shown} fills behind a closed gate, then the next call blocks"

    def to_cpu_non_blocking(self) -> str:
        """Whether the host tensor is pinned, and whether the call returns while the gate is closed."""
        return self._retried(self._try_to_cpu)

    def gate_kinds(self) -> dict[str, str]:
        """Each kind of the ladder with what its self-check said. Loads code: to be called last."""
        ladder, in_use = self._backend.ladder, self._backend.gate().kind
        if ladder is None:
            return {kind: " ".join(why.split()) for kind, why in self._backend.gate().tried}
        found: dict[str, str] = {}
        for kind in KINDS:
            check = ladder.attempt(kind)
            said = " ".join(dict(ladder.tried)[kind].split())
            if check is not None and said == OK:
                release = check.release_us
                said += f", releases in {release:.1f} us" if release is not None else ", timed: cannot be opened"
                said += ", in use" if kind == in_use else ""
            found[kind] = said
        return found

    def _retried(self, attempt: Callable[[], Found | None]) -> Found:
        for _ in range(TRIES):
            found = attempt()
            if found is not None:
                return found
        raise DeviceError(f"{self._backend.name}: the gate ended by itself in {TRIES} of {TRIES} tries")

    def _try_to_cpu(self) -> str | None:
        """None if the gate had ended before anything was shown."""
        row, copies, seconds = self._backend.memory.device[0], list[Any](), list[float]()

        def copy(token: int) -> None:
            with self._surface.current(self._stream):
                row.fill_(token)
                began = time.perf_counter()
                copies.append(row.to("cpu", non_blocking=True))
                seconds.append(time.perf_counter() - began)

        self._warm_up(lambda: copy(WARM_TOKEN))
        copies.clear()  # the host block goes back to torch's cache, and is the one that is given out next
        with self._behind_a_gate() as (gate, start):
            call = start(lambda: copy(TOKEN))
            until(lambda: call.returned, GATE_LIMIT / 2)
            returned, closed = call.returned, gate.closed()
        if call.error is not None:
            raise call.error
        if not closed:
            return None
        pinned = "pinned" if copies[0].is_pinned() else "pageable"
        how = f"returned in {1e3 * seconds[-1]:.2f} ms" if returned else "does not return"
        wrong = "" if int(copies[0][0]) == TOKEN else ", wrong data"
        return f"{pinned}, {how} behind a closed gate{wrong}"

    def _try_depth(self) -> int | None:
        """Fills that were queued before one blocked, or `MOST_QUEUED`; None if the gate had ended by then."""
        row, queued, stop = self._backend.memory.device[0], [0], threading.Event()

        def fill() -> None:
            with self._surface.current(self._stream):
                while queued[0] < MOST_QUEUED and not stop.is_set():
                    began = time.perf_counter()
                    row.fill_(0)
                    if time.perf_counter() - began > BLOCKED:
                        return  # the one that blocked is not counted
                    queued[0] += 1

        def warm() -> None:
            with self._surface.current(self._stream):
                row.fill_(0)

        self._warm_up(warm)
        with self._behind_a_gate() as (gate, start):
            call = start(fill)
            # The helper blocks inside the driver, so this thread only reads and stores words until it opens.
            seen, since = queued[0], time.perf_counter()
            while not call.returned and time.perf_counter() - since <= BLOCKED:
                time.sleep(1e-4)
                if queued[0] != seen:
                    seen, since = queued[0], time.perf_counter()
            depth, closed = queued[0], gate.closed()
            stop.set()
        if call.error is not None:
            raise call.error
        return depth if closed else None

    @contextmanager
    def _behind_a_gate(self) -> Iterator[tuple[Gate, Callable[[Callable[[], object]], HelperCall]]]:
        """A gate entered on the stream, and how a helper is made to queue behind it. Raises DeviceError if
        the gate is never entered, or the device is not idle after it was opened.
        """
        gate, calls = self._backend.take_gate(), list[Any]()

        def start(function: Callable[[], object]) -> HelperCall:
            calls.append(self._backend.helpers.start(function))
            call: HelperCall = calls[-1]
            return call

        try:
            gate.enqueue(self._surface.gated(self._stream), GATE_LIMIT)
            if until(gate.entered, GATE_LIMIT) is None:
                raise DeviceError(f"{self._backend.name}: a gate on an idle stream is not entered in {GATE_LIMIT:g} s")
            yield gate, start
        finally:
            gate.open()
            self._settle([gate], calls)

    def _warm_up(self, function: Callable[[], object]) -> None:
        """Call it in the helper that will call the like of it beside a closed gate."""
        call = self._backend.helpers.start(function)
        self._settle([], [call])  # first the token, then the helper; so once more for what the helper queued
        if call.error is not None:
            raise call.error
        self._settle([], [])

    def _settle(self, gates: list[Gate], calls: list[HelperCall]) -> None:
        if not self._backend.settle([(self._surface, self._stream)], gates, calls):
            raise not_idle(self._backend.name)
