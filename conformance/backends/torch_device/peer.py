"""The other process: opens the same device, and looks at an event that was recorded elsewhere.

Started by `conformance.backends.torch_device.peers` as ``python -m ... REQUESTS ANSWERS VENDOR DEVICE OWN``: events
are opened on DEVICE, and this process's own stream and memory are on OWN.
One line is one question, one line its answer. It imports torch and starts the vendor's driver at once, opens its device
when the first line has come, and ends when its pipe closes.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from conformance.backends.api import EventFlags
from conformance.backends.calls import HelperPool, yield_interpreter
from conformance.backends.torch_device.loading import available, load
from conformance.backends.torch_device.surfaces import REFUSALS, VendorSurface, said
from conformance.loader import CDLL
from conformance.messages import Lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from conformance.backends.calls import HelperCall

#: prctl: the signal that the kernel sends when the parent has died. Source: prctl(2).
PR_SET_PDEATHSIG: Final = 1
#: Seconds in which everything was used once.
WARM: Final = 30.0
#: A token that nobody asks for.
WARM_TOKEN: Final = 1000


class Looker:
    """A stream of this process, a word of device memory, one of pinned host memory, and the event."""

    def __init__(self, name: str, index: int, own: int) -> None:
        self._torch, self._module, vendor = load(name)
        self._module.set_device(own)
        self._device = self._torch.device(vendor.module, index)
        self._surface = VendorSurface(self._torch, self._module, vendor, own)
        self._abroad = VendorSurface(self._torch, self._module, vendor, index) if index != own else None
        self._stream = self._surface.stream()
        mine = self._torch.device(vendor.module, own)
        self._source = self._torch.zeros(16, dtype=self._torch.int32, device=mine)
        self._target = self._torch.zeros(16, dtype=self._torch.int32, pin_memory=True)
        self._word = ctypes.c_uint32.from_address(self._target.data_ptr())
        self._helpers = HelperPool("peer")
        self._event: Any = None
        self._call: HelperCall | None = None
        self._warm_up()

    def _warm_up(self) -> None:
        self._event = self._surface.event(EventFlags.DEFAULT)
        self._surface.record(self._event, self._stream)
        if self._abroad is not None:
            # The other device's context takes long to make, and a wait across devices is a first use too.
            event = self._surface.event(EventFlags.DEFAULT)
            self._abroad.record(event, self._abroad.stream())
            self._surface.wait(self._stream, event)
        self.queue(WARM_TOKEN, behind=True)
        self.synchronize()
        self._module.synchronize()  # publishes the event also where nothing else does
        began = time.perf_counter()
        while not (self.token() == WARM_TOKEN and self.returned() and self.query()):
            if time.perf_counter() - began > WARM:
                raise RuntimeError(f"the device did nothing within {WARM:g} s")
            yield_interpreter()
        self.close()

    def open(self, handle: str) -> None:
        """Open an event by the handle that its own process gave."""
        self._event = self._module.Event.from_ipc_handle(self._device, bytes.fromhex(handle))

    def query(self) -> bool:
        """Ask it."""
        return bool(self._event.query())

    def synchronize(self) -> None:
        """Enter synchronize, in a thread of its own."""
        self._call = self._helpers.start(self._event.synchronize)

    def returned(self) -> bool:
        """Has synchronize returned? Raises what it raised."""
        assert self._call is not None, "asked for after synchronize"
        if self._call.returned and self._call.error is not None:
            raise self._call.error
        return self._call.returned

    def queue(self, token: int, *, behind: bool) -> None:
        """Queue a copy of a token to host memory, behind a wait for the event or not."""
        if behind:
            self._surface.wait(self._stream, self._event)
        with self._surface.current(self._stream):
            self._source.fill_(token)
            self._target.copy_(self._source, non_blocking=True)

    def token(self) -> int:
        """The last token that arrived."""
        return int(self._word.value)

    def close(self) -> None:
        """Drop the event."""
        self._event = self._call = None
        self._word.value = 0


def main(arguments: Sequence[str]) -> None:
    """Answer until the pipe closes; does not return."""
    requests, answers = int(arguments[0]), int(arguments[1])
    if sys.platform == "linux":
        CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a crash must be seen before its dump is written
    available(arguments[2], *load(arguments[2]))  # what takes long, and makes no context: gates may be closed
    lines = Lines(requests)
    try:
        lines.next()
        looker = Looker(arguments[2], int(arguments[3]), int(arguments[4]))
        _say(answers, {"value": "ready"})
        while (line := lines.next()) is not None:
            asked = msgspec.json.decode(line)
            try:
                _say(answers, {"value": getattr(looker, asked.pop("what"))(**asked)})
            except REFUSALS as error:  # what torch raises; anything else ends this process
                _say(answers, {"error": said(error)})
    except (EOFError, BrokenPipeError):
        pass
    os._exit(0)  # without the interpreter's own end, where vendors' handlers may hang


def _say(pipe: int, answer: dict[str, Any]) -> None:
    os.write(pipe, msgspec.json.encode(answer) + b"\n")


if __name__ == "__main__":
    main(sys.argv[1:])
