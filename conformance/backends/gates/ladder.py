"""The ladder of gate kinds: the first that passes its self-check is used, and every one tried is named."""

from __future__ import annotations

import os
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from conformance.backends.gates.base import LIMIT, Check, CheckTimes, Gate, Watchdog, until
from conformance.backends.gates.host_function import HostFunctionGate
from conformance.backends.gates.kernel import KernelGate
from conformance.backends.gates.libraries import GateError
from conformance.backends.gates.native import Native
from conformance.backends.gates.sleep import SleepGate
from conformance.backends.gates.stream_ops import WaitValueGate
from conformance.backends.gates.triton_gate import TritonGate
from conformance.backends.gates.words import GATES, Words
from conformance.errors import UsageError, unknown_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from conformance.backends.vendors import Vendor

#: The kinds by name, in the order in which they are tried.
KINDS: Final[Mapping[str, type[Gate]]] = MappingProxyType(
    {kind.kind: kind for kind in (KernelGate, TritonGate, WaitValueGate, HostFunctionGate, SleepGate)}
)
#: Self-checks of a gate whose limit alone looks wrong.
_CHECKS: Final = 3
#: What `tried` says of a kind that works.
OK: Final = "ok"


class NoGate(GateError):
    """No kind works here; `tried` names each with its call and error."""

    def __init__(self, text: str, tried: tuple[tuple[str, str], ...]) -> None:
        super().__init__(text)
        self.tried = tried


class Ladder:
    """The gates of torch's current device.

    ``kind``: try only this one. ``gates``: blocks in a private mapping, of which each kind that is tried uses up one
    and one for each self-check; with ``fd`` (see `make_fd`) the file's size decides. ``limit_s``: seconds after which
    a gate ends by itself unless a use asks for another limit. ``module`` and ``torch``: see `Native`.

    Make it before anything is closed, in the thread that will use it; trying takes up to some seconds.
    A kind that fails does not raise. Raises NoGate if all do, or the one asked for, and GateError if a
    variable is set under which a launch waits for its end, or no context is current.
    """

    def __init__(
        self,
        vendor: Vendor,
        *,
        kind: str | None = None,
        gates: int = GATES,
        fd: int = -1,
        limit_s: float = LIMIT,
        times: CheckTimes | None = None,
        module: Any = None,
        torch: Any = None,
    ) -> None:
        kinds = list(KINDS) if kind is None else [kind]
        if kind is not None and kind not in KINDS:
            raise UsageError(unknown_name("gate kind", kind, list(KINDS), f"kinds: {', '.join(KINDS)}"))
        refuse_blocking(vendor)
        self.vendor, self.limit_s, self._times = vendor, limit_s, times
        self._checks: dict[str, Check | None] = {}
        self._tried: dict[str, str] = {}
        self._gates: list[Gate] = []
        self._watchdog = Watchdog()
        self.native = Native(vendor, module=module, torch=torch)
        self.words = Words(self.native, gates=gates, fd=fd)
        chosen = next((name for name in kinds if self.attempt(name)), None)
        if chosen is None:
            self.close()
            said = "; ".join(f"{name}: {why}" for name, why in self.tried)
            raise NoGate(f"no gate works on {vendor.name}: {said}", self.tried)
        #: The kind that `take` makes.
        self.kind: str = chosen

    @property
    def tried(self) -> tuple[tuple[str, str], ...]:
        """(kind, "ok" or the call and its error) of each kind tried, in that order.

        Where the words could not be put into the page that a supervisor shares, that and why is the last entry.
        """
        shared = {"(shared page)": f"torch's pinned memory instead: {self.words.why}"} if self.words.why else {}
        return tuple((self._tried | shared).items())

    @property
    def causal(self) -> bool:
        """True if the host opens gates of the chosen kind; False if only time ends them."""
        return KINDS[self.kind].causal

    @property
    def assurance(self) -> str:
        """What a verdict rests on: causal or timed."""
        return "causal" if self.causal else "timed"

    @property
    def check(self) -> Check:
        """The self-check of the chosen kind."""
        check = self._checks[self.kind]
        assert check is not None, "a kind is chosen by its check"
        return check

    def attempt(self, kind: str) -> Check | None:
        """Try a kind, once; its self-check if that was passed, else None and the reason is in `tried`.

        Also for a second kind, to cross-check what the first one showed. No gate may be closed.
        """
        if kind not in self._tried:
            self._checks[kind], self._tried[kind] = self._attempt(kind)
        return self._checks[kind]

    def take(self, count: int, kind: str | None = None) -> tuple[Gate, ...]:
        """New gates, of the chosen kind or another that passed `attempt`; each is warm. No gate may be closed.

        Blocks are never given back: take a pool once, and use it for every program.
        Raises GateError if the kind does not work here, or no block is left.
        """
        kind = self.kind if kind is None else kind
        if not self.attempt(kind):
            raise GateError(f"the {kind} gate does not work here: {self._tried[kind]}")
        return tuple(self._make(kind) for _ in range(count))

    def elsewhere(self, index: int, count: int) -> tuple[Gate, ...]:
        """New gates of the chosen kind for the vendor's device ``index``; one passed its self-check there.

        No gate may be closed. Raises GateError if the kind does not work there, or no block is left.
        """
        native = self.native.elsewhere(index)
        words, kind = self.words.elsewhere(native), KINDS[self.kind]
        with native.module.device(index):  # what a gate makes for itself, streams and events, is made there
            made = tuple(kind(native, words, self._watchdog, self.limit_s) for _ in range(count))
            self._gates += made
            check = _checked(made[0], self._times)
        if not check.ok:
            raise GateError(f"the {self.kind} gate on device {index}: self-check: {check.reason}")
        return made

    def open_all(self) -> None:
        """Open every gate made here."""
        for gate in self._gates:
            gate.open()

    def close(self, patience_s: float = LIMIT) -> bool:
        """Open every gate, wait until all have ended, give the pages back. False if some have not after
        ``patience_s``, or the driver refused; then the pages stay as they are, to the end of the process.

        Gates that only time ends are not asked: the driver waits for them before it takes the pages.
        """
        self.open_all()
        idle = until(lambda: all(gate.idle() for gate in self._gates if gate.causal), patience_s) is not None
        self._watchdog.close()
        if not idle:
            return False
        try:
            self.words.close()
        except GateError:
            return False
        return True

    def _make(self, kind: str) -> Gate:
        gate = KINDS[kind](self.native, self.words, self._watchdog, self.limit_s)
        self._gates.append(gate)
        return gate

    def _attempt(self, kind: str) -> tuple[Check | None, str]:
        try:
            check = _checked(self._make(kind), self._times)
        except GateError as error:
            return None, str(error)
        except Exception as error:  # noqa: BLE001 - a vendor's package may raise anything, and costs only its kind
            return None, " ".join(f"{type(error).__name__}: {error}".split())
        return (check, OK) if check.ok else (None, f"self-check: {check.reason}")


def _checked(gate: Gate, times: CheckTimes | None) -> Check:
    for _ in range(_CHECKS):
        check = gate.selfcheck(times)
        # What is left else is when the limit ended it, which a busy host may have seen too late.
        if check.ok or not (check.holds and check.reusable and (check.release_us is not None or not gate.causal)):
            break
    return check


def refuse_blocking(vendor: Vendor) -> None:
    """Raises GateError if the environment makes a launch wait for its end: a closed gate would block its own."""
    for name in vendor.blocking:
        if (value := os.environ.get(name, "")) not in ("", "0"):
            raise GateError(f"{name}={value} is set: a closed gate would block its own launch; unset it")
