"""Gates for torch devices: device work that holds a stream until the host opens it. docs/rules.md 8.

Nothing here imports torch or triton before a `Ladder` is made.
"""

from conformance.backends.gates.base import LIMIT, Check, CheckTimes, Gate
from conformance.backends.gates.ladder import KINDS, Ladder, NoGate
from conformance.backends.gates.libraries import GateError, GateUnsupported, find_library
from conformance.backends.gates.native import Native
from conformance.backends.gates.words import SharedWords, Words, make_fd

__all__ = [
    "KINDS",
    "LIMIT",
    "Check",
    "CheckTimes",
    "Gate",
    "GateError",
    "GateUnsupported",
    "Ladder",
    "Native",
    "NoGate",
    "SharedWords",
    "Words",
    "find_library",
    "make_fd",
]
