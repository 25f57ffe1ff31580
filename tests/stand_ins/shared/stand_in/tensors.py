"""torch's operations on the stand-in's streams: one boxed fallback for every operator, and pinned host memory."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_map

if TYPE_CHECKING:
    from collections.abc import Callable

    from stand_in.device import Accelerator
    from stand_in.driver import Driver

#: Registrations end with the object that made them.
_kept: list[Any] = []
_real_device = torch.device


class DeviceTensor(torch.Tensor):
    """A tensor of the device; its data are a CPU tensor's, which only operations that a stream has reached touch."""

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]
    _data: torch.Tensor

    def __repr__(self) -> str:
        return f"stand-in tensor {list(self.shape)}"


class Tensors:
    """The operators of one accelerator."""

    def __init__(self, accelerator: Accelerator, driver: Driver, device_type: str) -> None:
        self._accelerator, self._driver, self._type = accelerator, driver, device_type
        self.blocking_copies = 0  # copies that were asked for without blocking, and blocked

    def install(self) -> None:
        """Register every operator; once a process."""
        fallback, aten = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
        fallback.fallback(self._fallback, "PrivateUse1")
        aten.impl("_to_copy", self._to_copy, "PrivateUse1")
        aten.impl("detach", lambda tensor: _wrap(tensor._data), "PrivateUse1")
        aten.impl("record_stream", lambda tensor, stream: None, "PrivateUse1")
        _kept.extend([fallback, aten])
        torch.zeros, torch.empty = self._pinning(torch.zeros, fill=True), self._pinning(torch.empty, fill=False)
        torch.Tensor.is_pinned = lambda tensor, device=None: (  # type: ignore[method-assign]
            not isinstance(tensor, DeviceTensor) and driver_knows(self._driver, tensor)
        )

    def _pinning(self, real: Any, *, fill: bool) -> Any:
        def make(*size: Any, pin_memory: bool = False, dtype: Any = None, **options: Any) -> Any:
            if not pin_memory:
                return real(*size, dtype=dtype, **options)
            shape = torch.Size(size[0] if len(size) == 1 and not isinstance(size[0], int) else size)
            tensor = self._pinned(shape, dtype or torch.get_default_dtype())
            return tensor.zero_() if fill else tensor

        return make

    def _pinned(self, shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
        count = shape.numel()
        memory = self._driver.pinned(count * dtype.itemsize)
        return torch.frombuffer(memory, dtype=dtype, count=count).reshape(shape)

    def _submit(self, action: Callable[[], object], kind: str = "fill") -> None:
        self._accelerator.launch(self._accelerator.current, kind, action)

    def _synchronize(self) -> None:
        self._accelerator.synchronize_stream(self._accelerator.current)

    def _copy(self, source: Any, target: Any, non_blocking: bool = False) -> Any:
        taken, given = _data(source), _data(target)
        to_host = isinstance(source, DeviceTensor) and not isinstance(target, DeviceTensor)
        from_host = isinstance(target, DeviceTensor) and not isinstance(source, DeviceTensor)
        plain = taken.is_contiguous() and given.is_contiguous() and taken.dtype == given.dtype
        if from_host and not (non_blocking and plain and source.is_pinned()):
            taken = taken.clone()  # staged at the call
        self._submit(lambda: given.copy_(taken), "copy")
        # As torch_musa: what is strided or of another type goes through pageable temporaries, and waits.
        if to_host and not (non_blocking and plain and target.is_pinned()):
            self.blocking_copies += non_blocking
            self._synchronize()
        return target

    def _to_copy(self, tensor: Any, *, dtype: Any = None, device: Any = None, **options: Any) -> Any:
        wanted = _real_device(device) if device is not None else tensor.device
        non_blocking = bool(options.get("non_blocking", False))
        if wanted.type != "cpu":
            made: Any = _wrap(torch.empty(tensor.shape, dtype=tensor.dtype))
        elif non_blocking:
            made = self._pinned(tensor.shape, tensor.dtype)
        else:
            made = torch.empty(tensor.shape, dtype=tensor.dtype)
        self._copy(tensor, made, non_blocking)
        return made if dtype in (None, made.dtype) else made.to(dtype)

    def _fallback(self, op: Any, *args: Any, **options: Any) -> Any:
        schema = op._schema
        if schema.name == "aten::_copy_from":
            return self._copy(*args, **options)
        positional = [self._host(value) for value in args]
        named = {name: self._host(value) for name, value in options.items()}
        aliases = [returned.alias_info for returned in schema.returns]
        if any(alias is not None and alias.is_write for alias in aliases):  # x.add_(y), out=
            self._submit(lambda: op(*positional, **named))
            named_too = ((a, options[a.name]) for a in schema.arguments if a.name in options)
            given = itertools.chain(zip(schema.arguments, args, strict=False), named_too)
            written = [value for a, value in given if a.alias_info is not None and a.alias_info.is_write]
            return written[0] if len(written) == 1 else tuple(written)
        if not any(alias is not None for alias in aliases) and not schema.name.startswith("aten::empty"):
            self._synchronize()  # results of unknown shape, and whatever else no conformance program queues
        return tree_map(lambda out: _wrap(out) if isinstance(out, torch.Tensor) else out, op(*positional, **named))

    def _host(self, value: Any) -> Any:
        if isinstance(value, _real_device) and value.type == self._type:
            return _real_device("cpu")
        if isinstance(value, (list, tuple)):
            return type(value)(map(self._host, value))
        return _data(value)


def driver_knows(driver: Driver, tensor: torch.Tensor) -> bool:
    """Is this host tensor's memory the driver's?"""
    return driver.is_pinned(tensor.data_ptr())


def _data(value: Any) -> Any:
    return value._data if isinstance(value, DeviceTensor) else value


def _wrap(data: torch.Tensor) -> DeviceTensor:
    made = torch._C._acc.create_empty_tensor(list(data.shape), data.dtype)  # type: ignore[attr-defined]
    made.__class__ = DeviceTensor
    made._data = data
    return made
