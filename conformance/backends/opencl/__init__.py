"""The `opencl` backend: programs on an installed OpenCL runtime, held by user events."""

from __future__ import annotations

import re
import statistics
from importlib import metadata
from typing import TYPE_CHECKING, Final

from conformance.backends.api import Clock, DeviceInfo, GateKind, Request
from conformance.backends.calls import HelperPool, HostClock, Watchdog
from conformance.backends.opencl.resources import Pool
from conformance.backends.opencl.runtime import find_devices, identify, one_line, open_device
from conformance.backends.opencl.session import UNSUPPORTED, OpenCLSession
from conformance.backends.threads import HostThreads
from conformance.errors import BackendUnavailable, DeviceError, HarnessError
from probes.program import Copy, Fill, Gate, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["OpenCLBackend", "find_devices", "identify"]

#: Seconds for which the self-check watches a closed gate.
CHECK_HOLD: Final = 0.02
#: Seconds after which a gate that nobody opens must end in the self-check.
CHECK_LIMIT: Final = 0.05
#: Gates opened for the median of their release.
CHECK_RELEASES: Final = 20
#: Seconds until the self-check gives up on a thing that should happen: a hang, not slowness.
CHECK_DEADLINE: Final = 5.0
#: Distributions whose versions are named in a report.
SOFTWARE: Final = ("pyopencl", "pocl-binary-distribution")


class OpenCLBackend:
    """One OpenCL device, chosen by `P:D` (platform and device number), by default the first."""

    name = "opencl"
    profile = "opencl"
    surface = "vendor"
    simulated = False
    faults: tuple[str, ...] = ()

    def __init__(self, device: str | None = None) -> None:
        """Raises BackendUnavailable where there is no runtime or gates do not work, UsageError for a wrong index."""
        self.clock: Clock = HostClock()
        self._runtime = open_device(device)
        self._watchdog, self._helpers = Watchdog("opencl"), HelperPool("opencl")
        self._threads = HostThreads("opencl", lambda: None)
        self._sessions: list[OpenCLSession] = []
        self._pool = Pool(self._runtime, self.clock)
        try:
            self._gate = self._check_gates()
        except (self._runtime.cl.Error, DeviceError, HarnessError) as error:
            self.close()
            raise BackendUnavailable(
                f"opencl: the gate self-check fails ({one_line(error)}); try another device or driver"
            ) from error
        except BaseException:
            self.close()
            raise

    @property
    def vendor_errors(self) -> tuple[type[Exception], ...]:
        """What pyopencl's calls raise."""
        return (self._runtime.cl.Error,)

    def device(self) -> DeviceInfo:
        """The device in use."""
        platform, device = self._runtime.platform, self._runtime.device
        lock = re.sub(r"[^a-z0-9]+", "-", f"opencl {platform.name} {self._runtime.device_index}".lower()).strip("-")
        return DeviceInfo(
            name=_words(device.name),
            index=self._runtime.position,
            capability=" ".join(device.version.split()[:2]),  # "OpenCL 3.0", then the vendor's own text
            driver=_words(device.driver_version),
            runtime=_words(f"{platform.name} {platform.version}"),
            lock=lock,
        )

    def gate(self) -> GateKind:
        """User events, as the self-check found them."""
        return self._gate

    def unsupported(self, capability: str) -> str | None:
        """None, or the call that OpenCL does not have."""
        return UNSUPPORTED.get(capability)

    def software(self) -> Mapping[str, str]:
        """The binding, and the driver if it came as a wheel."""
        found: dict[str, str] = {}
        for name in SOFTWARE:
            try:
                found[name] = metadata.version(name)
            except metadata.PackageNotFoundError:
                continue  # a driver of the system's own; its version is in device()
        return found

    def session(self, request: Request) -> OpenCLSession:
        """Queues, gates and zeroed buffers for one program."""
        session = OpenCLSession(
            self._runtime,
            self._pool,
            self.clock,
            self._watchdog,
            self._helpers,
            self._threads,
            request,
            self._sessions.remove,
        )
        self._sessions.append(session)
        return session

    def close(self) -> None:
        """Close what is still open, end the threads, drop queues and buffers."""
        for session in list(self._sessions):
            session.close()
        self._watchdog.close()
        self._helpers.close()
        self._threads.close()
        self._pool.clear()

    def _check_gates(self) -> GateKind:
        """Hold, release and limit of user events. Raises BackendUnavailable for the first that fails."""
        gates = [f"g{n}" for n in range(CHECK_RELEASES)]
        session = self.session(
            Request(streams=("s",), events=("e",), gates=gates, buffers=("x", "h"), gate_limit=2 * CHECK_DEADLINE)
        )
        releases: list[float] = []
        try:
            for number, gate in enumerate(gates, 1):
                hold = CHECK_HOLD if number == 1 else 0.0
                releases.append(self._check_release(session, gate, number, hold))
        finally:
            idle = session.close()
        if not idle:
            raise _unusable("the queue does not run dry after its gates opened")
        self._check_limit()
        return GateKind(
            kind="user-event",
            assurance="causal",
            release_us=statistics.median(releases),
            tried=(("user-event", "ok"),),
        )

    def _check_release(self, session: OpenCLSession, gate: str, token: int, hold: float) -> float:
        """Microseconds from opening the gate to the completion of what it held."""
        session.issue(Gate(stream="s", gate=gate))
        session.issue(Fill(stream="s", buffer="x", value=token))
        session.issue(Copy(stream="s", source="x", target="h"))
        session.issue(Record(stream="s", event="e"))
        early = self._until(lambda: session.query("e") or session.read("h") == token, self.clock.now() + hold)
        if early or session.ended(gate):
            raise _unusable("a barrier behind an unset user event does not hold its queue")
        began = self.clock.now()
        session.open(gate)
        if not self._until(lambda: session.query("e"), began + CHECK_DEADLINE):
            raise _unusable(f"a barrier does not end within {CHECK_DEADLINE} s of clSetUserEventStatus")
        ended = self.clock.now()
        if not self._until(lambda: session.read("h") == token, began + CHECK_DEADLINE):
            raise _unusable("a copy behind a released barrier does not arrive")
        return 1e6 * (ended - began)

    def _check_limit(self) -> None:
        session = self.session(Request(streams=("s",), events=("e",), gates=("g",), buffers=(), gate_limit=CHECK_LIMIT))
        try:
            began = self.clock.now()
            session.issue(Gate(stream="s", gate="g"))
            session.issue(Record(stream="s", event="e"))
            if not self._until(lambda: session.ended("g"), began + CHECK_DEADLINE):
                raise _unusable("the watchdog does not end a gate at its limit")
            if self.clock.now() - began < CHECK_LIMIT:
                raise _unusable("the watchdog ends a gate before its limit")
            if not self._until(lambda: session.query("e"), began + CHECK_DEADLINE):
                raise _unusable("a gate ended by the watchdog still holds its queue")
        finally:
            session.close()

    def _until(self, seen: Callable[[], bool], deadline: float) -> bool:
        """True as soon as ``seen``; it is asked at least once."""
        polls = 0
        while not seen():
            if self.clock.now() > deadline:
                return False
            self.clock.pause(polls)
            polls += 1
        return True


def _unusable(reason: str) -> BackendUnavailable:
    return BackendUnavailable(f"opencl: the gate self-check fails: {reason}; try another device or driver")


def _words(text: str) -> str:
    return " ".join(text.split())
