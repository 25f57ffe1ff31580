"""What a session shows to the parts of this package that experiments ask for, and to nobody else."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from probes.program import is_host_buffer

if TYPE_CHECKING:
    from collections.abc import Callable

    from conformance.backends.calls import HelperCall
    from conformance.backends.torch_device import TorchBackend
    from conformance.backends.torch_device.session import TorchSession
    from conformance.backends.torch_device.surfaces import Surface


class Inside:
    """A session's streams, buffers and events by name."""

    def __init__(self, backend: TorchBackend, session: TorchSession) -> None:
        self.backend, self._session = backend, session

    @property
    def calls(self) -> list[HelperCall]:
        """The calls that the session waits for when it is closed."""
        return self._session._calls

    @property
    def first(self) -> str:
        """The session's first stream."""
        return next(iter(self._session._streams))

    @property
    def lanes(self) -> list[tuple[Surface, Any]]:
        """Each stream with its API family."""
        return [(self._session._surfaces[name], stream) for name, stream in self._session._streams.items()]

    def current(self, stream: str) -> AbstractContextManager[object]:
        """Make a stream current for a block."""
        return self._session._surfaces[stream].current(self._session._streams[stream])

    @property
    def current_module(self) -> Any:
        """The module whose set_stream takes a stream of the main family."""
        return self.backend.module if self.backend.main_surface.name == "vendor" else self.backend.torch.accelerator

    def make_current(self, stream: str | None) -> None:
        """Make a stream the calling thread's current one from now on; None: the default stream."""
        surface = self.backend.main_surface
        made = surface.default_stream() if stream is None else self._session._streams[stream]
        self.current_module.set_stream(made)

    def gated(self, stream: str) -> Any:
        """A stream as the driver's calls take it."""
        return self._session._surfaces[stream].gated(self._session._streams[stream])

    def row(self, buffer: str) -> Any:
        """A buffer's tensor."""
        return (self._session._host if is_host_buffer(buffer) else self._session._device)[buffer]

    def adopt(self, stream: str, made: Any) -> None:
        """Take a stream of the vendor's family into the session."""
        self._session._surfaces[stream] = self.backend.surface_of("vendor")
        self._session._streams[stream] = made

    def at_end(self, ending: Callable[[], object]) -> None:
        """Have it called when the session is closed and its streams are proved idle; not where they are not."""
        self._session._endings.append(ending)

    def forget(self, stream: str) -> None:
        """Ask no more of a stream: it is about to be destroyed."""
        del self._session._streams[stream], self._session._surfaces[stream]

    def shared_event(self, event: str) -> Any:
        """Make the event anew as one that can be shared; returns its handle for another process."""
        made = self.backend.module.Event(enable_timing=False, blocking=False, interprocess=True)
        self._session._events[event] = made
        return made.ipc_handle()
