"""Another process, to which events are handed over: the side of the process that records them.

The other side is `conformance.backends.torch_device.peer`.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

import conformance
from conformance.backends.extras import EndedError
from conformance.backends.torch_device.surfaces import REFUSALS, said
from conformance.capture import Capture, how_ended
from conformance.errors import DeviceError, Unsupported
from conformance.messages import Lines

if TYPE_CHECKING:
    from conformance.backends.torch_device.beside import Beside
    from conformance.backends.torch_device.inside import Inside

#: Seconds in which each question is answered; a call there that blocks costs one verdict and the process.
ANSWER: Final = 3.0
#: Seconds in which a process that was told to end is gone.
ENDING: Final = 1.0


class Peer:
    """The process. Its pipes are its own, and it ends when they close."""

    def __init__(self, name: str, index: int, own: int) -> None:
        """Events of device ``index`` are opened there; its stream is on device ``own``. Opens no device yet."""
        self.extra = "ipc-events" if own == index else "ipc-events-across"
        self._errors = Capture()
        requests, self._requests = os.pipe()
        answers, theirs = os.pipe()
        self._answers = answers
        self._lines = Lines(answers)
        self._begun = False
        try:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", f"{__package__}.peer", str(requests), str(theirs), name, str(index), str(own)],
                cwd=Path(conformance.__file__).parents[1],
                env=os.environ | {"PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors.file,
                pass_fds=[requests, theirs],
            )
        except BaseException:
            os.close(self._requests)
            os.close(answers)
            self._errors.close()
            raise
        finally:
            os.close(requests)
            os.close(theirs)
        self._ready = False
        self.refused = False  # it could not open the device, so another one will not either
        self.gone = ""  # why it can no longer be asked

    @property
    def ready(self) -> bool:
        """Has it opened the device? It begins to when this is first asked, which is while no gate is closed.

        Raises Unsupported if it could not.
        """
        if not self._begun:
            self._begun = True
            with contextlib.suppress(BrokenPipeError):
                os.write(self._requests, b"{}\n")
        if not self._ready:
            try:
                line = self._lines.next(0.0)
            except EOFError:
                self.refused = True
                self._end("it could not open the device")
                raise self.refusal() from None
            self._ready = line is not None
        return self._ready

    def refusal(self) -> Unsupported:
        """Why there is no other process."""
        return Unsupported(self.extra, f"another process: {self.gone}")

    def ask(self, what: str, **arguments: Any) -> Any:
        """Its answer. Raises DeviceError if there is none in time, or the call raised there; EndedError if it ended."""
        if self.gone:
            raise DeviceError(f"another process: {self.gone}")
        message = memoryview(msgspec.json.encode({"what": what, **arguments}) + b"\n")
        try:
            with contextlib.suppress(BrokenPipeError):
                os.write(self._requests, message)
            if (line := self._lines.next(ANSWER)) is None:
                if self._popen.poll() is not None:
                    raise EOFError
                self._end(f"{what}: no answer within {ANSWER:g} s")
                raise DeviceError(f"another process: {self.gone}")
        except EOFError:
            self._end(f"{what}: it ended by", ended=True)
            raise EndedError(f"another process: {self.gone}") from None
        answer = msgspec.json.decode(line)
        if "error" in answer:
            raise DeviceError(f"another process: {what}: {answer['error']}")
        return answer["value"]

    def dismiss(self) -> None:
        """Have it end, and do not wait for that."""
        if self._requests >= 0:
            os.close(self._requests)
            self._requests = -1
            if not self._ready:
                self._popen.kill()  # it imports torch or opens its device, and nothing was asked of it yet

    def close(self) -> None:
        """Have it end, and see it gone."""
        if not self.gone:
            self._end("it was ended")

    def _end(self, why: str, *, ended: bool = False) -> None:
        """``ended``: it did so by itself, and its code is part of why."""
        said = self._errors.last_line()
        self.dismiss()
        try:
            self._popen.wait(ENDING)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
        if ended:
            why = f"{why} {how_ended(self._popen.returncode)}"
        self.gone = f"{why}; {said}" if said else why
        os.close(self._answers)
        self._errors.close()


class TorchPeers:
    """The process as a session has it; it is started when it is first expected or asked for, and kept."""

    def __init__(self, beside: Beside, inside: Inside, own: int) -> None:
        if inside.backend.surface == "generic":
            raise Unsupported("ipc-events", "torch.Event.ipc_handle raises NotImplementedError on every device")
        self._peer, self._inside = beside.peer(own), inside

    @property
    def ready(self) -> bool:
        """Has it opened the device?"""
        return self._peer.ready

    def share(self, event: str) -> TorchImported:
        """Make the session's event one that can be shared, and open it there. Raises Unsupported if that is refused."""
        try:
            handle = self._inside.shared_event(event)
            self._peer.ask("open", handle=bytes(handle).hex())
        except (DeviceError, *REFUSALS) as error:
            raise Unsupported(self._peer.extra, said(error)) from error
        return TorchImported(self._peer)


class TorchImported:
    """The event in the other process."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    def query(self) -> bool:
        """Ask it there."""
        return bool(self._peer.ask("query"))

    def synchronize(self) -> PeerCall:
        """Enter synchronize there."""
        self._peer.ask("synchronize")
        return PeerCall(self._peer)

    def queue(self, token: int, *, behind: bool) -> None:
        """Queue a token there."""
        self._peer.ask("queue", token=token, behind=behind)

    def token(self) -> int:
        """The last token there."""
        return int(self._peer.ask("token"))

    def close(self) -> None:
        """Drop it there."""
        if not self._peer.gone:
            self._peer.ask("close")


class PeerCall:
    """A synchronize in the other process; a Waiter."""

    error: BaseException | None = None

    def __init__(self, peer: Peer) -> None:
        self._peer, self._returned = peer, False

    @property
    def returned(self) -> bool:
        """Has it returned?"""
        self._returned = self._returned or bool(self._peer.ask("returned"))
        return self._returned
