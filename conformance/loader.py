"""The loader's own class for shared libraries, whatever has been put in its place; standard library only.

torchada puts another class in ctypes.CDLL, whose libraries answer to CUDA's names with MUSA's functions
(src/torchada/_ctypes_compat.py of MooreThreads/torchada). ctypes made PyDLL from the first one, which stays its base.
"""

from __future__ import annotations

import ctypes
from typing import Final

CDLL: Final[type[ctypes.CDLL]] = ctypes.PyDLL.__mro__[1]
