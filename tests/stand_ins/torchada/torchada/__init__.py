"""torchada's arrangement of names, for tests: torch.cuda is MUSA, but is not available; ctypes.CDLL is wrapped.

Not torchada itself. What it does was read in torchada's sources: src/torchada/_cuda_compat.py and _ctypes_compat.py.
"""

from __future__ import annotations

import ctypes
import os
from types import ModuleType
from typing import Any

import torch
from stand_in.module import cuda_means

__version__ = "0.1.77+standin"

#: Libraries in which a name of CUDA's is looked up as MUSA's, by the beginnings of their names and of the symbols.
PREFIXES = {"libmusart": ("cuda", "musa"), "libmccl": ("nccl", "mccl")}


class CudaModule(ModuleType):
    """torch.cuda: everything is torch.musa's, except that it says that it is not available."""

    def __init__(self, real: Any) -> None:
        super().__init__("torch.cuda")
        self.is_available = real.is_available

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.musa, name)  # type: ignore[attr-defined]


class Library:
    """A loaded library in which CUDA's names are found as MUSA's; it is no ctypes.CDLL."""

    def __init__(self, real: Any, prefixes: tuple[str, str]) -> None:
        object.__setattr__(self, "_real", real)
        object.__setattr__(self, "_prefixes", prefixes)

    def _renamed(self, name: str) -> str:
        old, new = self._prefixes
        return new + name.removeprefix(old) if name.startswith(old) else name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, self._renamed(name))

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._real, self._renamed(name), value)

    def __getitem__(self, name: str) -> Any:
        return self._real[self._renamed(name)]


class PatchedCDLL:
    """What ctypes.CDLL is replaced by."""

    _real = ctypes.CDLL

    def __new__(cls, name: Any, *given: Any, **named: Any) -> Any:
        loaded = cls._real(name, *given, **named)
        for beginning, prefixes in PREFIXES.items():
            if os.path.basename(str(name or "")).startswith(beginning):
                return Library(loaded, prefixes)
        return loaded


torch.cuda = CudaModule(torch.cuda)  # type: ignore[assignment]
ctypes.CDLL = PatchedCDLL  # type: ignore[misc,assignment]
cuda_means("musa")
