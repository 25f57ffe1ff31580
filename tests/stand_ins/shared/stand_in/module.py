"""What `torch.<vendor>` offers: streams, events and functions under the vendor's names."""

from __future__ import annotations

import os
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from stand_in.device import Accelerator
from stand_in.driver import Driver
from stand_in.tensors import Tensors

#: c10::DeviceType::PrivateUse1.
PRIVATE = 20
MARK = "_stream_conformance_stand_in"


def from_environment(root: str, names: tuple[str, str], allocate: str) -> tuple[Accelerator, Driver]:
    """The device that the environment asks for, and the driver that is built below ``root``."""
    faults = tuple(filter(None, os.environ.get("STAND_IN_FAULTS", "").split(",")))
    accelerator = Accelerator(faults, only_wrapper=os.environ.get("STAND_IN_SUBJECT", "") == "wrapper")
    return accelerator, Driver(accelerator, root, names, allocate)


def make_classes(accelerator: Accelerator, driver: Driver, device: str, vendor: str) -> tuple[type, type, type]:
    """(Stream, Event, StreamContext) with the attributes <vendor>_stream and <vendor>_event."""

    class Stream(torch.Stream):
        def __new__(cls, device: Any = None, priority: int = 0, **given: Any) -> Any:
            number = given["stream_id"] if "stream_id" in given else accelerator.new_stream(priority)
            accelerator.handle(number)
            return super().__new__(cls, stream_id=number, device_index=0, device_type=PRIVATE)

        def query(self) -> bool:
            return accelerator.query_stream(self.stream_id)

        def synchronize(self) -> None:
            driver.enter()
            accelerator.synchronize_stream(self.stream_id)

        def wait_event(self, event: Any) -> None:
            event.wait(self)

        def record_event(self, event: Any = None) -> Any:
            event = Event() if event is None else event
            event.record(self)
            return event

        def wait_stream(self, stream: Any) -> None:
            self.wait_event(stream.record_event())  # the event is dropped here, pending or not

        @staticmethod
        def priority_range() -> tuple[int, int]:
            return 0, -3

        __hash__ = torch.Stream.__hash__

    setattr(Stream, f"{vendor}_stream", property(lambda self: accelerator.handle(self.stream_id)))

    class Event(torch.Event):
        def __new__(
            cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False
        ) -> Any:
            made: Any = super().__new__(cls, device=device)
            made._timing, made._recorded = enable_timing, False
            made._name = accelerator.new_event(blocking=blocking)
            return made

        @property
        def _handle(self) -> int:
            return 0x6000_0000_0000 + 64 * int(self._name[1:]) if self._recorded else 0  # type: ignore[attr-defined]

        @property
        def device(self) -> Any:
            return torch.device(device, 0) if self._recorded else None  # type: ignore[attr-defined]

        def record(self, stream: Any = None) -> None:
            _check(stream, Stream)
            if not self._recorded:
                self._recorded = True
                driver.event(self._name, self._handle)
            accelerator.record(self._name, accelerator.current if stream is None else stream.stream_id)

        def wait(self, stream: Any = None) -> None:
            _check(stream, Stream)
            accelerator.wait(self._name, accelerator.current if stream is None else stream.stream_id)

        def query(self) -> bool:
            return accelerator.query(self._name)

        def synchronize(self) -> None:
            accelerator.synchronize(self._name)

        def elapsed_time(self, end_event: Any) -> float:
            if not (self._recorded and end_event._recorded and self._timing and end_event._timing):
                raise RuntimeError(f"{vendor} error: invalid resource handle")
            if not (self.query() and end_event.query()):
                raise RuntimeError(f"{vendor} error: device not ready")
            return accelerator.milliseconds(self._name, end_event._name)

        def __del__(self) -> None:
            if self._recorded:
                driver.forget(self._handle)
            accelerator.destroy(self._name)

    setattr(Event, f"{vendor}_event", property(lambda self: self._handle))

    class StreamContext:
        def __init__(self, stream: Any) -> None:
            self._stream = stream

        def __enter__(self) -> None:
            if self._stream is not None:
                self._before, accelerator.current = accelerator.current, self._stream.stream_id

        def __exit__(self, *_: object) -> None:
            if self._stream is not None:
                accelerator.current = self._before

    return Stream, Event, StreamContext


def _check(stream: Any, expected: type) -> None:
    """Where the vendor's C code reinterprets whatever it is given, and reads garbage, this says so."""
    if stream is not None and not isinstance(stream, expected):
        raise RuntimeError(f"{type(stream).__name__} given to a vendor's call, which would read it as garbage")


def make_module(
    name: str, vendor: str, accelerator: Accelerator, driver: Driver, device: str, what: str
) -> tuple[ModuleType, Tensors]:
    """The module ``name``, and the tensors that it serves. ``vendor`` is in the names of the raw handles."""
    stream_class, event_class, context = make_classes(accelerator, driver, device, vendor)
    tensors = Tensors(accelerator, driver, device)
    properties = {
        "name": "stand-in device",
        "major": 3,
        "minor": 1,
        "is_multi_gpu_board": False,
        "is_integrated": False,
        "multi_processor_count": 1,
        "total_memory": 2**30,
    }

    def synchronize(device: Any = None) -> None:
        driver.enter()
        accelerator.synchronize_device()

    def external_stream(handle: int, device: Any = None) -> Any:
        return stream_class(stream_id=accelerator.stream_of(handle))

    def set_stream(stream: Any) -> None:
        accelerator.current = stream.stream_id

    module = ModuleType(name)
    vars(module).update(
        {
            MARK: what,
            "Stream": stream_class,
            "Event": event_class,
            "StreamContext": context,
            "ExternalStream": external_stream,
            "stream": context,
            "current_stream": lambda device=None: stream_class(stream_id=accelerator.current),
            "default_stream": lambda device=None: stream_class(stream_id=0),
            "set_stream": set_stream,
            "synchronize": synchronize,
            "is_available": lambda: True,
            "is_initialized": lambda: True,
            "init": lambda: None,
            "device_count": lambda: 1,
            "current_device": lambda: 0,
            "set_device": lambda device: driver.enter(),
            "get_device_name": lambda device=None: properties["name"],
            "get_device_capability": lambda device=None: (properties["major"], properties["minor"]),
            "get_device_properties": lambda device: SimpleNamespace(**properties),  # has no default
            "is_current_stream_capturing": lambda: False,
            "_is_in_bad_fork": lambda: False,
            "manual_seed_all": lambda seed: None,
            "_sleep": lambda cycles: driver.sleep(accelerator.current, int(cycles)),
            "_stand_in_tensors": tensors,
        }
    )
    for missing in filter(None, os.environ.get("STAND_IN_WITHOUT", "").split(",")):
        del vars(module)[missing]
    return module, tensors


def claim(device: str, module: ModuleType, tensors: Tensors) -> None:
    """Make the device torch's own. Raises ImportError where another plugin has taken torch's one free place."""
    if (taken := torch._C._get_privateuse1_backend_name()) != "privateuseone":
        raise ImportError(f"the stand-in cannot stand beside the real plugin that made the device '{taken}'")
    _setup_privateuseone_for_python_backend(device, backend_module=module)
    tensors.install()


def cuda_means(device: str) -> None:
    """Let torch.device("cuda") be the stand-in's device."""
    real = torch.device

    class Meta(type):
        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, real)

    class Device(metaclass=Meta):
        def __new__(cls, *given: Any, **named: Any) -> Any:
            first, *rest = given or ("cpu",)
            if isinstance(first, str) and first.partition(":")[0] == "cuda":
                first = device + first[len("cuda") :]
            return real(first, *rest, **named)

    torch.device = Device  # type: ignore[misc,assignment]
