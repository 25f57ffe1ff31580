"""What a session may offer beside `conformance.backends.api.Session`, for experiments.

Each is asked for by name, before any gate closes: what it needs is made, loaded and used once then. A
session without it raises Unsupported with the call that is missing and why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, Protocol, cast

from conformance.backends.api import Waiter
from conformance.errors import DeviceError, Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from conformance.backends.api import Backend, Session

#: The extras by the names under which sessions are asked for them; they are capabilities too.
NAMES: Final[Mapping[str, str]] = {
    "threads": "host calls from several threads",
    "block-copies": "copies of any size to host memory",
    "pinned-kernel": "a kernel that stores to host memory",
    "graph-capture": "capture of a stream into a graph, and its replay",
    "ipc-events": "events shared with another process",
    "ipc-events-across": "events shared with a process whose stream is on another device",
    "private-streams": "streams that can be destroyed",
    "current-stream": "a stream that a thread's operations go to without being named",
}


class EndedError(DeviceError):
    """The other process ended in the call that it was asked to make."""


class TimedCall(Waiter, Protocol):
    """A call made by another thread; the figures are there once it has returned."""

    @property
    def seconds(self) -> float:
        """How long the call took."""
        ...

    @property
    def cpu(self) -> float:
        """Seconds of processor time that the calling thread used meanwhile."""
        ...


class Threads(Protocol):
    """Host threads by name; each makes one call at a time."""

    def prepare(self, *threads: str) -> None:
        """Start these threads, before any gate closes."""
        ...

    def call(self, thread: str, function: Callable[[], object]) -> TimedCall:
        """Have ``function`` called by the thread now."""
        ...

    def burn(self, thread: str, seconds: float) -> TimedCall:
        """Have the thread do nothing but use its processor for so long."""
        ...


class Blocks(Protocol):
    """Memory blocks of any size: a device part and a host part that copies can reach."""

    def make(self, name: str, size: int, *, stored: bool = False) -> None:
        """A block of ``size`` bytes, a multiple of 4. Before any gate closes. ``stored``: a kernel will store to its
        host part; raises Unsupported where there is none.
        """
        ...

    def fill(self, stream: str, name: str, value: int) -> None:
        """Queue: every byte of the device part becomes ``value``, from 1 to 127."""
        ...

    def copy(self, stream: str, name: str) -> None:
        """Queue: the device part is copied to the host part."""
        ...

    def store(self, stream: str, name: str, value: int) -> None:
        """Queue a kernel that stores ``value`` to every byte of the host part."""
        ...

    def holds(self, name: str, value: int) -> bool:
        """Is every byte of the host part ``value``? By plain loads, the last words first."""
        ...


#: Which threads a capture binds to what is safe beside any capture: every one, the one that began it, none.
CaptureMode = Literal["global", "thread-local", "relaxed"]


class Graphs(Protocol):
    """Capture of streams into one graph."""

    def begin(self, stream: str, mode: CaptureMode = "relaxed") -> None:
        """What is issued on the stream from now on goes into the graph. ``relaxed`` forbids nothing but what touches
        the capture itself.
        """
        ...

    def relaxed(self) -> AbstractContextManager[object]:
        """The calling thread is not bound by the modes of captures for a block. Raises Unsupported without the call."""
        ...

    def end(self, stream: str) -> None:
        """End the capture and make the graph launchable; raises what the vendor raises if it was spoilt."""
        ...

    def launch(self, stream: str) -> None:
        """Queue the graph."""
        ...

    def discard(self) -> None:
        """Give the graph back; a capture under way is ended first, whatever comes of it."""
        ...


class Imported(Protocol):
    """An event as another process sees it. Each call is bounded."""

    def query(self) -> bool:
        """Ask it there."""
        ...

    def synchronize(self) -> Waiter:
        """Enter synchronize there."""
        ...

    def queue(self, token: int, *, behind: bool) -> None:
        """Queue a copy of ``token`` to host memory on a stream there, ``behind`` a wait for the event or not."""
        ...

    def token(self) -> int:
        """The last token that arrived there."""
        ...

    def close(self) -> None:
        """Drop it there: before the event's own process drops it."""
        ...


class Peers(Protocol):
    """Another process, which opens events of the same device; its stream is there too, or on another one."""

    @property
    def ready(self) -> bool:
        """True once the process has opened the device; it takes seconds. Raises Unsupported if it cannot."""
        ...

    def share(self, event: str) -> Imported:
        """Make ``event`` one that can be shared, and open it in the other process. Before any gate closes."""
        ...


class PrivateStreams(Protocol):
    """Streams of the caller's own, outside any pool."""

    def make(self, stream: str) -> None:
        """A stream by this name in the session. Before any gate closes."""
        ...

    def copy(self, stream: str, source: str, target: str) -> None:
        """Queue a copy from a device buffer to a host buffer of the session."""
        ...

    def destroy(self, stream: str) -> None:
        """Destroy the stream, whatever is queued on it."""
        ...


class CurrentStream(Protocol):
    """The stream that operations of the calling thread go to without naming it."""

    def enter(self, stream: str | None) -> None:
        """Make a stream the calling thread's current one; None: what it was."""
        ...

    def copy(self, source: str, target: str) -> None:
        """Queue a copy from a device buffer to a host buffer on the calling thread's current stream."""
        ...


def _extra(backend: Backend, session: Session, name: str) -> object:
    # By name and not by type, since wrapped sessions delegate it.
    hook = getattr(session, "extra", None)
    if hook is None:
        raise Unsupported(name, f"sessions of the {backend.name} backend have no hook 'extra'")
    return hook(name)


def threads_of(backend: Backend, session: Session) -> Threads:
    """The session's threads. Raises Unsupported, as all of these do."""
    return cast("Threads", _extra(backend, session, "threads"))


def blocks_of(backend: Backend, session: Session) -> Blocks:
    """The session's memory blocks."""
    return cast("Blocks", _extra(backend, session, "block-copies"))


def graphs_of(backend: Backend, session: Session) -> Graphs:
    """The session's graph."""
    return cast("Graphs", _extra(backend, session, "graph-capture"))


def peers_of(backend: Backend, session: Session, *, across: bool = False) -> Peers:
    """The other process; ``across``: its stream is on another device."""
    return cast("Peers", _extra(backend, session, "ipc-events-across" if across else "ipc-events"))


def private_streams_of(backend: Backend, session: Session) -> PrivateStreams:
    """The session's own streams."""
    return cast("PrivateStreams", _extra(backend, session, "private-streams"))


def current_stream_of(backend: Backend, session: Session) -> CurrentStream:
    """The current stream of the calling thread."""
    return cast("CurrentStream", _extra(backend, session, "current-stream"))
