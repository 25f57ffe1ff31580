"""A name of the vendor's module that is missing, or does something else, costs its capability and never the run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from conformance.backends.gates import GateError
from conformance.backends.torch_device.beside import TorchCurrentStream
from conformance.backends.torch_device.inside import Inside
from conformance.backends.torch_device.kinds import KINDS, OtherStreams
from conformance.backends.torch_device.peers import TorchPeers
from conformance.backends.torch_device.surfaces import VendorSurface
from conformance.backends.torch_device.warmup import warm_up_others
from conformance.backends.vendors import VENDORS
from conformance.errors import Unsupported
from conformance.pipeline import paths

if TYPE_CHECKING:
    from collections.abc import Callable

ERRORS = (RuntimeError, TypeError, ValueError, AttributeError)


def raising(error: type[Exception]) -> Callable[..., Any]:
    def refuse(*_: object, **__: object) -> Any:
        raise error("not\nthis one")

    return refuse


class Context:
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


class Stream:
    """A stream that takes part in everything, unless it is told to refuse."""

    def __init__(self, *_: object, refusal: type[Exception] | None = None, **__: object) -> None:
        self.refusal = refusal

    def wait_event(self, event: object) -> None:
        if self.refusal is not None:
            raise self.refusal("not\nthis one")


class Event:
    def __init__(self, **_: object) -> None: ...
    def record(self, stream: object) -> None: ...


def surface(**names: Any) -> VendorSurface:
    """torch.musa with these names beside the least that it must have."""
    least = {"Stream": Stream, "Event": Event, "stream": lambda _: Context(), "synchronize": lambda _: None}
    module = SimpleNamespace(__name__="torch.musa", **(least | names))
    return VendorSurface(None, module, VENDORS["musa"], 0)


def others(made: VendorSurface, call: Callable[..., object] = lambda *_: None) -> OtherStreams:
    """The streams of other kinds, used once; ``call`` is the driver."""
    ladder = SimpleNamespace(native=SimpleNamespace(enter=lambda: 1, call=call))
    found = OtherStreams(made, ladder, "")  # type: ignore[arg-type]  # a Ladder, as far as streams are made by it
    row = SimpleNamespace(fill_=lambda _: None, copy_=lambda *_, **__: None)
    warm_up_others(made, found, SimpleNamespace(device=[row], host=[row], clear_host=lambda _: None))  # type: ignore[arg-type]
    return found


def test_with_everything_there_nothing_is_missing() -> None:
    found = others(surface(ExternalStream=Stream))
    assert (len(found.blocking), len(found.high), found.missing) == (KINDS, KINDS, {})


@pytest.mark.parametrize("error", ERRORS)
def test_an_external_stream_that_refuses_costs_streams_that_the_default_one_orders(error: type[Exception]) -> None:
    found = others(surface(ExternalStream=raising(error)))
    assert found.missing == {"blocking-stream": f"torch.musa.ExternalStream: {error.__name__}: not this one"}
    assert (found.blocking, len(found.high)) == ([], KINDS)


def test_an_external_stream_that_is_missing_is_named_and_so_is_the_drivers_call() -> None:
    assert others(surface()).missing == {"blocking-stream": "torch.musa has no ExternalStream"}

    def refused(*_: object) -> None:
        raise GateError("muStreamCreate returned 801")

    assert others(surface(ExternalStream=Stream), refused).missing == {"blocking-stream": "muStreamCreate returned 801"}


@pytest.mark.parametrize("error", ERRORS)
def test_a_stream_that_refuses_its_first_use_costs_its_kind(error: type[Exception]) -> None:
    said = f"the first use of such a stream: {error.__name__}: not this one"
    found = others(surface(ExternalStream=lambda *_, **__: Stream(refusal=error)))
    assert (found.blocking, len(found.high), found.missing) == ([], KINDS, {"blocking-stream": said})
    found = others(surface(ExternalStream=Stream, Stream=lambda **_: Stream(refusal=error)))
    assert (len(found.blocking), found.high, found.missing) == (KINDS, [], {"priority": said})


@pytest.mark.parametrize("error", ERRORS)
def test_a_priority_that_is_refused_costs_priorities(error: type[Exception]) -> None:
    found = others(surface(ExternalStream=Stream, Stream=raising(error)))
    assert (found.high, found.missing) == ([], {"priority": f"Stream(priority=-1): {error.__name__}: not this one"})


def inside(module: Any) -> Inside:
    backend = SimpleNamespace(surface="vendor", module=module, main_surface=SimpleNamespace(name="vendor"))
    return Inside(backend, SimpleNamespace(_events={}))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (Event, "AttributeError: 'Event' object has no attribute 'ipc_handle'"),
        (lambda enable_timing, blocking: None, "TypeError: .* got an unexpected keyword argument 'interprocess'"),
        (raising(RuntimeError), "RuntimeError: not this one"),
    ],
)
def test_an_event_that_cannot_be_shared_costs_the_other_process(event: Any, said: str) -> None:
    peer = SimpleNamespace(refused=False, gone="", extra="ipc-events")
    there = TorchPeers(SimpleNamespace(peer=lambda own: peer), inside(SimpleNamespace(Event=event)), 0)  # type: ignore[arg-type]
    with pytest.raises(Unsupported, match=f"^ipc-events: {said}"):
        there.share("e")


def test_without_set_stream_no_current_stream_is_changed() -> None:
    module = SimpleNamespace(__name__="torch.musa")
    with pytest.raises(Unsupported, match=r"^current-stream: torch\.musa has no set_stream"):
        TorchCurrentStream(inside(module))
    with (
        pytest.raises(Unsupported, match=r"^set-stream: torch\.musa has no set_stream"),
        paths.set_stream(module, 1, 0),
    ):
        pass
