"""What OpenCL has for experiments: host threads, blocks of any size, queues that can be released."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from conformance.backends.threads import SessionThreads
from conformance.errors import Unsupported
from probes.program import Copy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from conformance.backends.opencl.session import OpenCLSession

#: What OpenCL, or its Python binding, has no call for.
UNSUPPORTED: Final[Mapping[str, str]] = {
    "pinned-kernel": "clEnqueueMapBuffer must follow before the host reads what a kernel stored in its memory",
    "graph-capture": "clCreateCommandBufferKHR is an extension that pyopencl does not bind",
    "ipc-events-across": "clCreateContext: an event belongs to a context, and a context to one process",
    "ipc-events": "clCreateContext: an event belongs to a context, and a context to one process",
    "current-stream": "every clEnqueue call names its queue",
}


def extra(session: OpenCLSession, name: str) -> object:
    """What an experiment asks for. Raises Unsupported with the call that is missing."""
    if name == "threads":
        return SessionThreads(session.threads, session._calls)
    if name == "block-copies":
        return Blocks(session)
    if name == "private-streams":
        return Queues(session)
    raise Unsupported(name, UNSUPPORTED[name])


class Blocks:
    """Buffers and host arrays of the session's own; a transfer's event keeps both alive."""

    def __init__(self, session: OpenCLSession) -> None:
        self._session = session
        self._blocks: dict[str, tuple[Any, Any]] = {}

    def make(self, name: str, size: int, *, stored: bool = False) -> None:
        """A block of zeros."""
        if stored:
            raise Unsupported("pinned-kernel", UNSUPPORTED["pinned-kernel"])
        cl, np = self._session._cl, self._session._np
        buffer = cl.Buffer(self._session._runtime.context, cl.mem_flags.READ_WRITE, size)
        self._blocks[name] = buffer, np.zeros(size // 4, np.uint32)

    def fill(self, stream: str, name: str, value: int) -> None:
        """Queue a fill of the device part."""
        cl, (buffer, host) = self._session._cl, self._blocks[name]
        queue, pattern = self._session._got.lanes[stream].queue, self._word(value)
        self._session._kept.append(cl.enqueue_fill_buffer(queue, buffer, pattern, 0, host.nbytes))
        queue.flush()

    def copy(self, stream: str, name: str) -> None:
        """Queue a copy to the host part."""
        cl, (buffer, host) = self._session._cl, self._blocks[name]
        queue = self._session._got.lanes[stream].queue
        self._session._kept.append(cl.enqueue_copy(queue, host, buffer, is_blocking=False))
        queue.flush()

    def store(self, stream: str, name: str, value: int) -> None:
        """Not to be had: `make` says so."""
        raise Unsupported("pinned-kernel", UNSUPPORTED["pinned-kernel"])

    def holds(self, name: str, value: int) -> bool:
        """Is the data there? The last words first."""
        _, host = self._blocks[name]
        word = self._word(value)
        return bool((host[: -len(host) // 64 - 1 : -1] == word).all() and (host == word).all())

    def _word(self, value: int) -> Any:
        return self._session._np.uint32(value * 0x01010101)


class Queues:
    """Queues outside the pool."""

    def __init__(self, session: OpenCLSession) -> None:
        self._session = session

    def make(self, stream: str) -> None:
        """Another queue of the session."""
        self._session._got.lanes[stream] = self._session._pool.make_lane(timing=False)

    def copy(self, stream: str, source: str, target: str) -> None:
        """Queue a copy."""
        self._session.issue(Copy(stream=stream, source=source, target=target))

    def destroy(self, stream: str) -> None:
        """Release the queue: nothing else refers to it."""
        del self._session._got.lanes[stream]
