"""Streams of other kinds than torch's pool gives, and host functions: made once, before any gate closes.

A stream that the legacy default stream orders is made by the driver and given to torch as an external
one; torch's own side streams are non-blocking. Host functions are libc's sem_post, counted by their
semaphores: they run no Python and call no API.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Final

from conformance.backends.gates import GateError, Ladder
from conformance.backends.torch_device.surfaces import REFUSALS, said
from conformance.errors import Unsupported
from conformance.loader import CDLL

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from conformance.backends.gates import Gate
    from conformance.backends.torch_device.surfaces import Surface

#: Streams of each further kind: what the largest program takes, laid over by a fault that makes all of that kind.
KINDS: Final = 6
#: Host functions of one program.
FUNCTIONS: Final = 8
#: What torch is asked for: a lower number is a higher priority.
HIGH: Final = -1
#: Bytes for one semaphore; libc's takes 32.
_SEMAPHORE: Final = 64


class OtherStreams:
    """Blocking and high-priority streams of one API family; what cannot be made is missing with its reason."""

    def __init__(self, surface: Surface, ladder: Ladder | None, no_gate: str) -> None:
        self.missing: dict[str, str] = {}
        self.blocking: list[Any] = []
        self.high: list[Any] = []
        try:
            if ladder is None:
                raise GateError(f"no driver: {no_gate}")
            self.blocking = [surface.external(new_stream(ladder)) for _ in range(KINDS)]
        except Unsupported as error:
            self.missing["blocking-stream"] = error.reason
        except (GateError, *REFUSALS) as error:
            self.missing["blocking-stream"] = said(error)
        try:
            self.high = [surface.stream(HIGH) for _ in range(KINDS)]
        except REFUSALS as error:
            self.missing["priority"] = f"Stream(priority={HIGH}): {said(error)}"

    def warm_up(self, use: Callable[[Any], object]) -> None:
        """Use each stream once; a kind of which a stream refuses is missing, with what it raised."""
        for capability, streams in (("blocking-stream", self.blocking), ("priority", self.high)):
            try:
                for stream in streams:
                    use(stream)
            except (Unsupported, GateError, *REFUSALS) as error:
                streams.clear()
                self.missing[capability] = f"the first use of such a stream: {said(error)}"


def new_stream(ladder: Ladder) -> int:
    """The handle of a new stream that the legacy default stream orders. Raises GateError with the call."""
    ladder.native.enter()
    stream = ctypes.c_void_p()
    ladder.native.call("newstream", ctypes.byref(stream), 0)
    return int(stream.value or 0)


class HostFunctions:
    """Host functions by the driver's call; ``missing`` says why there are none."""

    def __init__(self, ladder: Ladder | None, no_gate: str, streams: Sequence[Any]) -> None:
        self.missing = no_gate
        #: The gate inside; it is of no pool.
        self.own: Gate | None = None
        self._names: dict[str, int] = {}
        self._memory = ctypes.create_string_buffer(_SEMAPHORE * FUNCTIONS)
        self._libc = CDLL(None)
        self._post = ctypes.cast(self._libc.sem_post, ctypes.c_void_p)
        self._ladder = ladder
        if ladder is None:
            return
        try:
            ladder.native.function("host")
            if not ladder.attempt("host-function"):
                raise GateError(dict(ladder.tried)["host-function"])
            self.own = ladder.take(1, "host-function")[0]
            self.begin(("warm",))
            for stream in streams:
                self.queue(stream, "warm")
        except GateError as error:
            self.missing = str(error)

    def begin(self, names: Sequence[str]) -> None:
        """These functions, none of which was called. Nothing queued earlier may be left."""
        if len(names) > FUNCTIONS:
            raise GateError(f"a program with more than {FUNCTIONS} host functions")
        self._names = {name: number for number, name in enumerate(names)}
        for number in range(len(names)):
            self._libc.sem_init(self._semaphore(number), 0, 0)

    def queue(self, stream: Any, name: str) -> None:
        """Queue a function on a stream as a gate takes it."""
        assert self._ladder is not None, "asked for only where it is there"
        native = self._ladder.native
        native.enter()
        handle = ctypes.c_void_p(native.handle(stream))
        native.call("host", handle, self._post, self._semaphore(self._names[name]))

    def calls(self, name: str) -> int:
        """How often a function was called."""
        count = ctypes.c_int()
        self._libc.sem_getvalue(self._semaphore(self._names[name]), ctypes.byref(count))
        return count.value

    @property
    def gate(self) -> Gate:
        """The gate that holds inside a host function: there is one, since functions share a thread."""
        assert self.own is not None, "asked for only where it is there"
        return self.own

    def _semaphore(self, number: int) -> ctypes.c_void_p:
        return ctypes.c_void_p(ctypes.addressof(self._memory) + _SEMAPHORE * number)
