"""torch.cuda under the names of torch.musa: the row `musa` of the table, run against a real NVIDIA GPU.

Not torch_musa. Streams, events, memory and copies are CUDA's own, so what is proved here is the path through the
names, and nothing about MUSA. Reports say `simulated`.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch

__version__ = "0+alias"

_cuda = torch.cuda
_device = torch.device


class Stream(_cuda.Stream):
    """torch.cuda.Stream with its handle under MUSA's name."""

    @property
    def musa_stream(self) -> int:
        return int(self.cuda_stream)

    def record_event(self, event: Any = None) -> Any:
        event = Event() if event is None else event
        event.record(self)
        return event


class Event(_cuda.Event):
    """torch.cuda.Event with its handle under MUSA's name."""

    @property
    def musa_event(self) -> int:
        return int(self.cuda_event)


class _MusaModule(ModuleType):
    """Everything that is not MUSA's own is looked up in torch.cuda."""

    _stream_conformance_stand_in = "torch.cuda under the names of torch.musa, on a real NVIDIA GPU"
    Stream, Event, __version__ = Stream, Event, __version__

    @staticmethod
    def default_stream(device: Any = None) -> Stream:
        real = _cuda.default_stream(device)
        return Stream(stream_id=real.stream_id, device_index=real.device_index, device_type=real.device_type)

    def __getattr__(self, name: str) -> Any:
        return getattr(_cuda, name)


class _AnyDevice(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _device)


class _MusaDevice(metaclass=_AnyDevice):
    """torch.device, to which musa is cuda: as torchada has it the other way round."""

    def __new__(cls, kind: Any = None, *index: Any, **given: Any) -> Any:
        if isinstance(kind, str):
            kind = kind.replace("musa", "cuda")
        return _device(kind, *index, **given) if kind is not None else _device(*index, **given)


def _autoload() -> None:
    """What torch's entry point names."""
    torch.musa = _MusaModule("torch.musa")  # type: ignore[attr-defined]
    torch.version.musa = "alias"  # type: ignore[attr-defined]
    torch.device = _MusaDevice  # type: ignore[assignment,misc]


if not hasattr(torch, "musa"):
    _autoload()
