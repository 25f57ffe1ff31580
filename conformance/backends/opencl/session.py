"""One program's streams, events, gates and buffers on an OpenCL device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from conformance.backends.api import EventFlags
from conformance.backends.opencl.resources import DRAIN_LIMIT, SIZE, Gate, Lane, Pool, abandon
from conformance.errors import DeviceError, Unsupported
from probes import program
from probes.program import Copy, DeviceOp, Fill, HostFn, Nop, Record, Sync, SyncDevice, SyncStream, Wait, WaitStream

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from conformance.backends.api import Clock, Request
    from conformance.backends.calls import HelperCall, HelperPool, Watchdog
    from conformance.backends.opencl.runtime import Runtime
    from conformance.backends.threads import HostThreads

#: What OpenCL, or its Python binding, has no call for.
UNSUPPORTED: Final[Mapping[str, str]] = {
    "default-stream": "clCreateCommandQueueWithProperties makes every queue; OpenCL has no default one",
    "event-flag-blocking": "clEnqueueMarkerWithWaitList takes no flags, so how the host waits cannot be chosen",
    "slow-copy": "clEnqueueReadBuffer ends by itself once begun; no command ends when a user event is set",
    "query-stream": "clGetCommandQueueInfo has no execution status, and there is no other query of a queue",
    "unrecorded-event": "clEnqueueMarkerWithWaitList makes the event, so there is none before its record",
    "host-fn": "clEnqueueNativeKernel is not in pyopencl, and clSetEventCallback calls in no queue's order",
    "elapsed": "clGetEventProfilingInfo times one command; no call gives the time between two events",
    "mixed": "OpenCL has one API",
    "blocking-stream": "clCreateCommandQueueWithProperties makes every queue; OpenCL has no default one to be tied to",
    "second-device": "this adapter makes one context on one device",
    "priority": "CL_QUEUE_PRIORITY_KHR (cl_khr_priority_hints) is an extension that pyopencl's queues do not take",
    "second-gate": "user events are the only gates of OpenCL that the host opens",
    "host-copy": "clEnqueueCopyBuffer takes no host memory, and no command copies host memory to host memory",
}


class StatusError(DeviceError, RuntimeError):
    """An event or a gate is in an error state; the text is the call and what it gave."""


class OpenCLSession:
    """Queues are streams, markers are records, user events are gates."""

    def __init__(
        self,
        runtime: Runtime,
        pool: Pool,
        clock: Clock,
        watchdog: Watchdog,
        helpers: HelperPool,
        threads: HostThreads,
        request: Request,
        on_close: Callable[[OpenCLSession], None],
    ) -> None:
        if program.DEFAULT_STREAM in request.streams:
            raise unsupported("default-stream")
        if request.flags is EventFlags.BLOCKING:
            raise unsupported("event-flag-blocking")
        self._cl, self._np, self._runtime = runtime.cl, runtime.np, runtime
        self._pool, self._clock, self._watchdog, self._helpers = pool, clock, watchdog, helpers
        self.threads = threads
        self._limit, self._on_close = request.gate_limit, on_close
        host = [name for name in request.buffers if program.is_host_buffer(name)]
        device = [name for name in request.buffers if not program.is_host_buffer(name)]
        self._got = pool.borrow(request.streams, device, host, request.flags is EventFlags.TIMING)
        self._gates: dict[str, Gate] = {}
        # All records of an event, the current one last: none is dropped while a gate may be closed.
        self._records: dict[str, list[Any]] = {}
        # Every other event. A transfer's event waits in its destructor, with the interpreter locked, so
        # dropping one behind a closed gate would stop the very thread that ends the gate.
        self._kept: list[Any] = []
        self._calls: list[HelperCall] = []
        self._idle: bool | None = None
        self.failure: BaseException | None = None  # what kept `close` from its proof, if a call raised

    def issue(self, op: DeviceOp) -> None:
        """Queue one operation, and flush; raises `pyopencl.Error`, and Unsupported where there is no call for it."""
        if isinstance(op, Nop):
            return
        lane = self._got.lanes[op.stream]
        if isinstance(op, program.Gate):
            self._gate(lane, op.gate)
        elif isinstance(op, Fill):
            pattern = self._np.uint32(op.value)
            buffer = self._got.device[op.buffer]
            self._kept.append(self._cl.enqueue_fill_buffer(lane.queue, buffer, pattern, 0, SIZE))
        elif isinstance(op, Copy):
            self._kept.append(self._copy(lane, op))
        elif isinstance(op, Record):
            self._records.setdefault(op.event, []).append(self._cl.enqueue_marker(lane.queue))
        elif isinstance(op, Wait):
            self._kept.append(self._cl.enqueue_barrier(lane.queue, wait_for=[self._current(op.event)]))
        elif isinstance(op, WaitStream):
            other = self._got.lanes[op.other].queue
            passing = self._cl.enqueue_marker(other)
            other.flush()  # an event may be waited for in another queue only once its own was flushed
            self._kept.append(self._cl.enqueue_barrier(lane.queue, wait_for=[passing]))
            del passing  # at once, as torch's wait_stream does
        elif isinstance(op, HostFn):
            raise unsupported("host-fn")
        lane.queue.flush()

    def handles(self) -> Mapping[str, int]:
        """The `cl_command_queue` of each stream."""
        return {name: int(lane.queue.int_ptr) for name, lane in self._got.lanes.items()}

    def open(self, gate: str) -> None:
        """Set the gate's user event complete; without effect on a gate that has ended."""
        self._gates[gate].release("host")
        self._check(gate)

    def ended(self, gate: str) -> bool:
        """True once the gate's status was set, by the host or by the watchdog at the limit.

        False means that nobody had begun to set it, so whatever was seen before was seen behind it.
        A gate that is not yet queued has not ended.
        """
        self._check(gate)
        return gate in self._gates and self._gates[gate].opener is not None

    def query(self, event: str) -> bool:
        """The status of the latest record. Raises StatusError for one that ended with an error."""
        status = int(self._current(event).command_execution_status)
        if status < 0:
            name = self._cl.status_code.to_string(status, "unknown status %d")
            raise StatusError(f"clGetEventInfo: event {event} ended with status {status} ({name})")
        return status == int(self._cl.command_execution_status.COMPLETE)

    def query_stream(self, stream: str) -> bool:
        """OpenCL has no such call: raises Unsupported."""
        raise unsupported("query-stream")

    def read(self, buffer: str) -> int:
        """The first word of a host buffer, by a plain load."""
        return int(self._got.host[buffer][0])

    def calls(self, function: str) -> int:
        """OpenCL queues no host function: raises Unsupported."""
        raise unsupported("host-fn")

    def elapsed(self, start: str, end: str) -> float:
        """OpenCL has no such call: raises Unsupported."""
        raise unsupported("elapsed")

    def destroy(self, event: str) -> None:
        """Release our references to the event's markers."""
        self._records.pop(event, None)

    def start(self, call: Sync | SyncStream | SyncDevice) -> HelperCall:
        """clWaitForEvents or clFinish in a helper; pyopencl gives up the interpreter lock in both."""
        if isinstance(call, Sync):
            blocking = self._current(call.event).wait
        elif isinstance(call, SyncStream):
            blocking = self._got.lanes[call.stream].queue.finish
        else:
            queues = [lane.queue for lane in self._got.lanes.values()]

            def blocking() -> None:
                for queue in queues:
                    queue.finish()

        helper = self._helpers.start(blocking)
        self._calls.append(helper)
        return helper

    def extra(self, name: str) -> object:
        """What an experiment asks for, before any gate closes."""
        from conformance.backends.opencl.beside import extra

        return extra(self, name)

    def close(self) -> bool:
        """Open every gate and prove by tokens that each queue ran dry; False if one did not.

        What was used is used again only if moreover every event and every helper's call has ended.
        """
        if self._idle is not None:
            return self._idle
        self._idle = False
        for gate in self._gates.values():
            gate.release("close")
        deadline = self._clock.now() + DRAIN_LIMIT
        clean = False
        try:
            self._idle = self._pool.settle(list(self._got.lanes.values()), self._kept, deadline)
            records = [marker for markers in self._records.values() for marker in markers]
            clean = self._idle and self._pool.complete(self._kept + records, deadline) and self._returned(deadline)
        except self._cl.Error as error:  # a context that is lost: nothing on it can be proved idle
            self.failure = error
        if clean:
            self._pool.give_back(self._got)
        else:
            abandon((self._got, self._gates, self._records, self._kept, self._runtime))
        self._gates, self._records, self._kept, self._calls = {}, {}, [], []
        self._on_close(self)
        return self._idle

    def _gate(self, lane: Lane, name: str) -> None:
        gate = self._gates[name] = Gate(self._runtime)
        # Before the barrier, so that a runtime that blocks there is set free at the limit too.
        self._watchdog.at(self._clock.now() + self._limit, lambda: gate.release("limit"))
        self._kept.append(self._cl.enqueue_barrier(lane.queue, wait_for=[gate.event]))

    def _copy(self, lane: Lane, op: Copy) -> Any:
        if op.until is not None:
            raise unsupported("slow-copy")
        source_on_host, target_on_host = program.is_host_buffer(op.source), program.is_host_buffer(op.target)
        if source_on_host and target_on_host:
            raise unsupported("host-copy")
        source = self._got.host[op.source] if source_on_host else self._got.device[op.source]
        target = self._got.host[op.target] if target_on_host else self._got.device[op.target]
        if source_on_host or target_on_host:
            return self._cl.enqueue_copy(lane.queue, target, source, is_blocking=False)
        return self._cl.enqueue_copy(lane.queue, target, source)

    def _current(self, event: str) -> Any:
        markers = self._records.get(event)
        if not markers:
            raise unsupported("unrecorded-event")
        return markers[-1]

    def _check(self, gate: str) -> None:
        held = self._gates.get(gate)
        if held is not None and held.failure is not None:
            raise StatusError(f"clSetUserEventStatus: gate {gate} cannot be opened: {held.failure}") from held.failure

    def _returned(self, deadline: float) -> bool:
        polls = 0
        while not all(call.returned for call in self._calls):
            if self._clock.now() > deadline:
                return False
            self._clock.pause(polls)
            polls += 1
        return True


def unsupported(capability: str) -> Unsupported:
    """The error for a capability of the table."""
    return Unsupported(capability, UNSUPPORTED[capability])
