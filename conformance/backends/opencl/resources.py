"""What sessions borrow: queues, buffers and host arrays by name, and the token that proves a queue idle."""

from __future__ import annotations

import ctypes
import itertools
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from conformance.errors import HarnessError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from conformance.backends.api import Clock
    from conformance.backends.opencl.runtime import Runtime

#: Words of 32 bits in every buffer: 4 KiB, which any runtime copies by its ordinary path.
WORDS: Final = 1024
#: Bytes in every buffer.
SIZE: Final = 4 * WORDS
#: Seconds in which work must end once no gate holds it, far beyond anything but a hang.
DRAIN_LIMIT: Final = 5.0


class Gate:
    """A user event, which holds what waits for it until someone sets its status; once only."""

    def __init__(self, runtime: Runtime) -> None:
        self._complete = runtime.cl.command_execution_status.COMPLETE
        self._failed = runtime.cl.Error
        self._lock = Lock()
        self.event: Any = runtime.cl.UserEvent(runtime.context)
        self.opener: str | None = None  # who released the gate: host, limit or close
        self.failure: BaseException | None = None

    def release(self, opener: str) -> None:
        """Set the status, unless that was done before. Never raises: what the call raised is in ``failure``."""
        with self._lock:
            if self.opener is not None:
                return
            # First the word, then the status: nothing can pass the gate while it is shown closed.
            self.opener = opener
            try:
                self.event.set_status(self._complete)
            except self._failed as error:
                self.failure = error


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """An in-order queue, with a device and a host word for its tokens."""

    queue: Any
    token: Any
    word: Any


@dataclass(frozen=True, slots=True)
class Borrowed:
    """What one session uses: lanes, device buffers and host arrays by name."""

    timing: bool
    lanes: dict[str, Lane]
    device: dict[str, Any]
    host: dict[str, Any]


class Pool:
    """Makes queues and buffers, and keeps those that came back from an idle session."""

    def __init__(self, runtime: Runtime, clock: Clock) -> None:
        self._runtime, self._clock = runtime, clock
        self._lanes: dict[tuple[str, bool], Lane] = {}
        self._device: dict[str, Any] = {}
        self._host: dict[str, Any] = {}
        self._tokens = itertools.count(1)
        self._service: Lane | None = None  # made with the first buffers: making it may fail

    def borrow(self, streams: Sequence[str], device: Sequence[str], host: Sequence[str], timing: bool) -> Borrowed:
        """Queues and zeroed buffers, kept or new. No gate of the session that asks may be closed yet."""
        np, got = self._runtime.np, Borrowed(timing, {}, {}, {})
        for name in streams:
            key = (name, timing)
            got.lanes[name] = self._lanes.pop(key) if key in self._lanes else self.make_lane(timing)
        for name in device:
            got.device[name] = self._device.pop(name) if name in self._device else self._make_buffer(SIZE)
        for name in host:
            got.host[name] = self._host.pop(name) if name in self._host else np.empty(WORDS, np.uint32)
            got.host[name][:] = 0
        if device:
            self._zero(list(got.device.values()))
        return got

    def give_back(self, got: Borrowed) -> None:
        """Keep what a session used for the next one; only when it is proved idle."""
        self._lanes.update({(name, got.timing): lane for name, lane in got.lanes.items()})
        self._device.update(got.device)
        self._host.update(got.host)

    def clear(self) -> None:
        """Drop everything kept."""
        self._lanes.clear()
        self._device.clear()
        self._host.clear()
        self._service = None

    def settle(self, lanes: Sequence[Lane], kept: list[Any], deadline: float) -> bool:
        """True once a token sent through each queue has arrived: all queued before is done.

        Neither an event's status nor a finish is asked: those are the calls under test. The events
        of the transfers are added to ``kept``.
        """
        cl, np = self._runtime.cl, self._runtime.np
        awaited = []
        for lane in lanes:
            token = next(self._tokens) & 0xFFFFFFFF
            kept.append(cl.enqueue_fill_buffer(lane.queue, lane.token, np.uint32(token), 0, 4))
            kept.append(cl.enqueue_copy(lane.queue, lane.word, lane.token, is_blocking=False))
            lane.queue.flush()
            awaited.append((lane.word, token))
        polls = 0
        while not all(int(word[0]) == token for word, token in awaited):
            if self._clock.now() > deadline:
                return False
            self._clock.pause(polls)
            polls += 1
        return True

    def complete(self, kept: Sequence[Any], deadline: float) -> bool:
        """True once every event has ended, well or not, so that dropping it waits for nothing."""
        polls = 0
        for event in reversed(kept):  # the last one first: the others have mostly ended by then
            while event.command_execution_status > 0:
                if self._clock.now() > deadline:
                    return False
                self._clock.pause(polls)
                polls += 1
        return True

    def _zero(self, buffers: Sequence[Any]) -> None:
        cl, np = self._runtime.cl, self._runtime.np
        service = self._service = self._service or self.make_lane(timing=False)
        kept: list[Any] = [cl.enqueue_fill_buffer(service.queue, buffer, np.uint32(0), 0, SIZE) for buffer in buffers]
        if not self.settle([service], kept, self._clock.now() + DRAIN_LIMIT):
            abandon((kept, service, buffers))
            self._service = None
            raise HarnessError(
                f"opencl: buffers were not cleared within {DRAIN_LIMIT} s, so the device hangs; restart the run"
            )
        # A token seen orders nothing in OpenCL's memory model; a finish does, and it has nothing to wait for.
        service.queue.finish()

    def make_lane(self, timing: bool) -> Lane:
        """A queue with its token."""
        cl, np = self._runtime.cl, self._runtime.np
        properties = cl.command_queue_properties.PROFILING_ENABLE if timing else 0
        queue = cl.CommandQueue(self._runtime.context, self._runtime.device, properties=properties)
        return Lane(queue=queue, token=self._make_buffer(4), word=np.zeros(1, np.uint32))

    def _make_buffer(self, size: int) -> Any:
        return self._runtime.cl.Buffer(self._runtime.context, self._runtime.cl.mem_flags.READ_WRITE, size)


def abandon(things: tuple[Any, ...]) -> None:
    """Let ``things`` live to the end of the process: the device may still write there, and dropping a
    transfer's event would wait for it, holding the interpreter lock.
    """
    # A list of ours would be cleared at exit, and hang there; a reference that nobody owns is not.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(things))
