"""Backends of devices that torch drives: one adapter, a table per vendor, two API families.

torch is imported when a backend is opened, never before.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from conformance.backends.api import NO_GATE, Clock, DeviceInfo, EventFlags, GateKind, Opinion, Request
from conformance.backends.calls import HelperPool, HostClock
from conformance.backends.gates import KINDS, GateError, Ladder, NoGate
from conformance.backends.identity import identify, unique_name
from conformance.backends.registry import PROFILES
from conformance.backends.torch_device.beside import Beside
from conformance.backends.torch_device.far import Far, missing, second_index
from conformance.backends.torch_device.kinds import HostFunctions, OtherStreams
from conformance.backends.torch_device.loading import available, load, stand_in
from conformance.backends.torch_device.resources import DRAIN_LIMIT, ROWS, STREAMS, Memory, Tokens
from conformance.backends.torch_device.session import UNSUPPORTED, TorchSession, not_idle
from conformance.backends.torch_device.surfaces import REFUSALS, GenericSurface, Surface, VendorSurface, said
from conformance.backends.torch_device.warmup import warm_up, warm_up_others
from conformance.errors import BackendUnavailable, SuiteError, Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from conformance.backends.calls import HelperCall
    from conformance.backends.gates import Gate
    from conformance.backends.torch_device.limits import TorchLimits
    from conformance.pipeline.device import Engine

#: Gates that exist at once: one a step of the deepest pipeline, and a few.
GATES: Final = ROWS
#: Kinds that cross-check the core verdict, best first: one that runs no kernel shares least with the first.
SECOND: Final = ("wait-value", "kernel", "triton")
#: Packages that change what torch's names mean, where something has imported them; never imported here.
BESIDE: Final = ("torchada",)
#: Seconds after which a helper that sits in an idle device's call gets a device synchronize to end it: nothing is
#: observed any more.
NUDGE: Final = 0.05
#: Gates of the second kind: those of the two-waits program.
SECOND_GATES: Final = 6


class TorchBackend:
    """One device through torch, with gates of the ladder."""

    faults: tuple[str, ...] = ()
    #: torch's device errors are RuntimeErrors, and its refusals ValueErrors.
    vendor_errors: tuple[type[Exception], ...] = (RuntimeError, ValueError)

    def __init__(
        self,
        name: str,
        device: str = "0",
        *,
        surface: str = "vendor",
        gate: str | None = None,
        gate_limit: float = 1.9,
        fd: int = -1,
    ) -> None:
        self.name, self.profile, self.surface = name, PROFILES[name], surface
        self.clock: Clock = HostClock()
        self.index = int(device)
        self.torch, self.module, vendor = load(name)
        available(name, self.torch, self.module, vendor)
        self._stand_in = stand_in(self.module)
        self.simulated = bool(self._stand_in)
        self.module.set_device(self.index)
        self.vendor = vendor
        torch_device = self.torch.device(vendor.module, self.index)
        self.torch.zeros(1, device=torch_device)
        self.module.synchronize(self.index)
        generic = GenericSurface(self.torch, self.module, vendor, self.index)
        # An accelerator that is nobody's row of the table is driven by the API that torch has for all.
        one_family = name == "accelerator"
        self._surfaces: dict[str, Surface] = {
            "vendor": generic if one_family else VendorSurface(self.torch, self.module, vendor, self.index),
            "generic": generic,
        }
        self.helpers = HelperPool(name)
        self.beside = Beside(self)
        # Everything is made and used once before the first gate closes: docs/rules.md 8.
        used = ("generic",) if one_family else ("vendor", "generic") if surface == "mixed" else (surface,)
        self.memory = Memory(self.torch, torch_device)
        self._tokens = Tokens(self.torch, torch_device, self.clock)
        #: For what belongs to no stream of a program: the clearing of rows, and torch's part in copies between devices.
        self.service = self.main_surface.stream()
        self.usable = True
        self._streams = {family: self._warm(family) for family in used}
        self.ladder: Ladder | None = None
        self._no_gate = ""
        self._tried: tuple[tuple[str, str], ...] = ()
        self._free: list[Gate] = []
        self._second = ""
        self._free_second: list[Gate] = []
        try:
            self.ladder = Ladder(vendor, kind=gate, fd=fd, limit_s=gate_limit, module=self.module, torch=self.torch)
            self._free = list(self.ladder.take(GATES))
        except GateError as error:
            # Without a gate nothing can be said, and that is said case by case: the run is inconclusive.
            self._no_gate = NO_GATE if isinstance(error, NoGate) else f"no gate: {error}"
            self._tried = error.tried if isinstance(error, NoGate) else tuple((kind, str(error)) for kind in KINDS)
        self._take_second()
        self._no_opinion = self._prepare_opinion()
        self._far: Far | None = None
        self._no_far = missing(self.module, vendor.module, surface)
        self._others = {family: OtherStreams(self._surfaces[family], self.ladder, self._no_gate) for family in used}
        for family in used:
            warm_up_others(self._surfaces[family], self._others[family], self.memory)
        main = self.main_surface
        warmed = [main.gated(stream) for stream in (*self.streams(main)[:2], *self._others[used[0]].blocking[:1])]
        self.functions = HostFunctions(self.ladder, self._no_gate, warmed)
        if not self._tokens.drained([(self._surfaces[family], s) for family in used for s in self._streams[family]]):
            self.close()
            raise BackendUnavailable(f"{name}: the device did not become idle after its warm-up; is it in use?")

    @property
    def main_surface(self) -> Surface:
        """The family of streams that a program does not name one for."""
        return self._surfaces["vendor" if self.surface == "mixed" else self.surface]

    def surface_of(self, family: str | None) -> Surface:
        """A family by name; the main one for None."""
        return self._surfaces[family] if family is not None else self.main_surface

    def streams(self, surface: Surface) -> list[Any]:
        """The side streams of a family, always the same and in the same order."""
        return self._streams[surface.name]

    def others(self, surface: Surface) -> OtherStreams:
        """The blocking and the prioritised streams of a family."""
        return self._others[surface.name]

    def expect(self, names: Collection[str]) -> None:
        """Make ready what cases will ask for by these names, as `conformance.experiments.expected` gives them."""
        self.beside.expect(names)
        if "second-device" in names:
            self._far_missing()  # here and not in a case: that one holds the locks of two devices

    def far(self) -> Far:
        """What a program has on a second device; made when first asked for, with no gate closed.

        Raises Unsupported where there is none, or it cannot be used.
        """
        if self._far is None and not self._no_far:
            refusals: tuple[type[Exception], ...] = (SuiteError, *self.vendor_errors)
            try:
                self._far = Far(self)
            except refusals as error:
                self._no_far = " ".join(f"{type(error).__name__}: {error}".split())
        if self._far is None:
            raise Unsupported("second-device", self._no_far)
        return self._far

    def _far_missing(self) -> str | None:
        try:
            self.far()
        except Unsupported as error:
            return error.reason
        return None

    def _warm(self, family: str) -> list[Any]:
        """The side streams of a family, used. Raises BackendUnavailable where the generic one is not this device's."""
        surface = self._surfaces[family]
        try:
            streams = [surface.stream() for _ in range(STREAMS)]
            warm_up(surface, streams[:2], self.memory, self.helpers)
        except REFUSALS as error:
            if family == "vendor":
                raise  # without its own module nothing works here, and where it failed is what tells why
            why = f"{self.name}: torch.Stream and torch.Event do not work on this device ({said(error)})"
            raise BackendUnavailable(f"{why}; use --surface vendor" if self.name != "accelerator" else why) from error
        return streams

    def _take_second(self) -> None:
        """A pool of a second kind of gate; without one the report says `single-gate`."""
        if self.ladder is None:
            return
        for kind in SECOND:
            if kind != self.ladder.kind and self.ladder.attempt(kind):
                try:
                    self._free_second = list(self.ladder.take(SECOND_GATES, kind))
                except GateError:
                    continue  # what failed is in the ladder's list of kinds tried, or no block is left
                self._second = kind
                return

    def _prepare_opinion(self) -> str:
        """Ask below once, before any gate closes: the look-up may load a library. Returns why nothing can be asked."""
        if self.ladder is None:
            return "without a gate the vendor's driver is not opened"
        event = self.main_surface.event(EventFlags.DEFAULT)
        self.main_surface.record(event, self.streams(self.main_surface)[0])
        self.module.synchronize(self.index)
        opinion = self._ask(event)
        if opinion.complete is False:
            return f"{opinion.call} says that an event of an idle device is pending, so it cannot be asked"
        return opinion.reason

    def ask_below(self, event: Any) -> Opinion:
        """What the vendor's driver or runtime says of a recorded event's raw handle."""
        return Opinion(reason=self._no_opinion) if self._no_opinion else self._ask(event)

    def _ask(self, event: Any) -> Opinion:
        assert self.ladder is not None, "not asked without one"
        try:
            complete = self.ladder.native.query_event(event)
            call = self.ladder.native.function("eventquery")[1]
        except GateError as error:
            return Opinion(reason=str(error))
        return Opinion(layer=self.vendor.below, call=call, complete=complete)

    def one_gate_at_a_time(self, *, second: bool) -> bool:
        """Host functions share one thread: behind a closed gate of that kind a second one cannot even be opened."""
        return not second and self.ladder is not None and self.ladder.kind == "host-function"

    def take_gate(self, *, second: bool = False) -> Gate:
        """A gate that is not in use. Raises GateError if none works here, or a program has too many."""
        if self._no_gate:
            raise GateError(self._no_gate)
        free = self._free_second if second else self._free
        if not free:
            raise GateError(f"{self.name}: a program with more gates than there are")
        return free.pop()

    def clear_device(self, rows: int) -> None:
        """Zero the first device rows, and see that done. Raises DeviceError on a device that is not idle."""
        if not self.usable:
            raise not_idle(self.name)
        if rows:
            with self.main_surface.current(self.service):
                self.memory.device[:rows].zero_()
            if not self._tokens.drained([(self.main_surface, self.service)]):
                self.usable = False
                raise not_idle(self.name)

    def settle(self, streams: list[tuple[Surface, Any]], gates: list[Gate], calls: list[HelperCall]) -> bool:
        """True if the streams ran dry, the gates ended and the helpers returned; else the device is given up."""
        began, polls = self.clock.now(), 0
        far = [pair for pair in streams if self._far is not None and pair[0] is self._far.surface]
        done = self._tokens.drained([pair for pair in streams if pair not in far])
        if far and self._far is not None:
            done = self._far.drained(far) and done
        nudged = False
        while done and not (all(gate.idle() for gate in gates) and all(call.returned for call in calls)):
            waited = self.clock.now() - began
            if waited > DRAIN_LIMIT:
                done = False
            elif waited > NUDGE and not nudged and all(gate.idle() for gate in gates):
                # An event that only a synchronize publishes would keep its helper, and cost the device.
                nudged, calls = True, [*calls, self.helpers.start(self.main_surface.synchronize)]
            self.clock.pause(polls)
            polls += 1
        if done:
            # A gate whose launch failed has nothing to wait for, and is not used again.
            whole = [gate for gate in gates if gate.ended() and gate is not self.functions.own]
            whole = whole if self._far is None else self._far.take_back(whole)
            self._free += [gate for gate in whole if gate.kind != self._second]
            self._free_second += [gate for gate in whole if gate.kind == self._second]
        self.usable = self.usable and done
        return done

    def device(self) -> DeviceInfo:
        """The device in use; its name and driver are read as `decide` reads them, without torch."""
        properties = self.module.get_device_properties(self.index)
        name, driver = identify(self.name, self.index)
        known = name != "unknown"
        capability = self.vendor.capability.format(
            major=getattr(properties, "major", "?"),
            minor=getattr(properties, "minor", "?"),
            gcn=getattr(properties, "gcnArchName", "?"),
        )
        return DeviceInfo(
            name=name if known else str(getattr(properties, "name", "unknown")),
            index=self.index,
            capability=capability,
            driver=driver,
            runtime=str(getattr(self.torch.version, self.vendor.version, None) or "") if self.vendor.version else "",
            lock=f"{self.name}-{unique_name(properties, self.index)}",
            uuid=str(getattr(properties, "uuid", "")),
            second=self._second_lock(),
        )

    def _second_lock(self) -> str | None:
        """The lock of the device that programs across devices take too, opened or not."""
        if missing(self.module, self.main_surface.vendor.module, self.surface):
            return None
        index = second_index(self.module, self.index)
        return f"{self.name}-{unique_name(self.module.get_device_properties(index), index)}"

    def gate(self) -> GateKind:
        """The gate kind that the ladder chose, and every kind tried."""
        if self.ladder is None:
            return GateKind(kind="none", assurance="none", tried=self._tried)
        return GateKind(
            kind=self.ladder.kind,
            assurance=self.ladder.assurance,
            release_us=self.ladder.check.release_us,
            second=self._second,
            tried=self.ladder.tried,
        )

    def unsupported(self, capability: str) -> str | None:
        """None, or the call that is missing."""
        if capability == "mixed" and self.surface != "mixed":
            return "an object of one family given to the other is the surface 'mixed' (--surface mixed)"
        if capability == "second-gate" and not self._second:
            tried = {} if self.ladder is None else dict(self.ladder.tried)
            return "; ".join(f"{kind}: {tried[kind]}" for kind in SECOND if kind in tried) or self._no_gate
        if capability == "event-flag-blocking" and self.main_surface.name == "generic":
            return "torch.Event(blocking=True) is accepted and ignored, as torch's docstring says"
        if capability == "second-device":
            return self._far_missing()
        if capability == "host-fn":
            return self.functions.missing or None
        if capability in ("blocking-stream", "priority"):
            return self._others[self.main_surface.name].missing.get(capability)
        return UNSUPPORTED.get(capability)

    def software(self) -> Mapping[str, str]:
        """torch and the vendor's plugin, versions by the driver's own calls, what changes torch's names, a stand-in."""
        found = {"torch": str(self.torch.__version__)}
        if self.vendor.plugin:
            found[self.vendor.plugin] = str(getattr(self.module, "__version__", "unknown"))
        if self.ladder is not None:
            for role in ("driverversion", "runtimeversion"):
                if self.vendor.symbols[role]:
                    found[self.vendor.symbols[role][0]] = self.ladder.native.version(role)
        for name in BESIDE:
            if name in sys.modules:
                found[name] = str(getattr(sys.modules[name], "__version__", "unknown"))
        if self._stand_in:
            found["stand-in"] = self._stand_in
        return found

    def session(self, request: Request) -> TorchSession:
        """Streams, events, gates and zeroed buffers for one program."""
        return TorchSession(self, request)

    def limits(self) -> TorchLimits:
        """What `conformance.measure` asks of a torch device alone."""
        from conformance.backends.torch_device.limits import TorchLimits

        return TorchLimits(self)

    def engine(self, beat: Callable[[], None]) -> Engine:
        """What `conformance.pipeline` drives; see there. ``beat`` is called between its steps."""
        from conformance.backends.torch_device.engine import open_engine

        return open_engine(self, beat)

    def open_all_gates(self) -> None:
        """Open every gate, from any thread."""
        if self.ladder is not None:
            self.ladder.open_all()

    def close(self) -> None:
        """Open the gates and give the device back."""
        if self.ladder is not None:
            self.ladder.close()
        self.helpers.close()
        self.beside.close()


__all__ = ["TorchBackend"]
