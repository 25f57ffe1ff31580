"""The Triton gate, for a vendor that ships a Triton but no run-time compiler. The only module that imports triton.

No `from __future__ import annotations` here: Triton reads the kernel's annotations.
"""

import importlib
from typing import Any, ClassVar, Final

from conformance.backends.gates.base import Gate
from conformance.backends.gates.libraries import GateUnsupported

#: Polls a second assumed where no kernel gate has measured them: more than were seen, the timer being the bound.
_GUESSED_POLLS: Final = 1e6
#: What a 32-bit poll count can be.
_MOST_POLLS: Final = 2**31 - 1

# Triton resolves what a kernel names in its module's globals; set when the first gate is made.
tl: Any = None
triton_now: Any = None
_kernels: dict[str, Any] = {}


def _kernel(module: str, function: str) -> Any:
    """The jitted kernel, with ``function`` of ``module`` as its timer if there is one.

    Raises GateUnsupported if triton or the module cannot be imported.
    """
    global tl, triton_now  # noqa: PLW0603 - see above
    try:
        triton = importlib.import_module("triton")
        tl = importlib.import_module("triton.language")
        triton_now = getattr(importlib.import_module(module), function, None) if function else None
    except ImportError as error:
        raise GateUnsupported(f"import triton: {error}") from error
    if module not in _kernels:
        _kernels[module] = _define(triton)
    return _kernels[module]


def _define(triton: Any) -> Any:
    # An integer that is 1, divisible by 16 or wider than 32 bits would select another kernel, compiled for
    # the first time beside a closed gate: hence do_not_specialize, and microseconds.
    # The first round of the loop is unconditional: with a poll before the loop AMD's code has the polling
    # lane never return to it. A volatile load would be hoisted out of the loop there, an atomic is not.
    @triton.jit(do_not_specialize=["ticket", "limit_us", "per_us", "max_polls"])  # type: ignore[untyped-decorator]
    def triton_gate(w, ticket, limit_us, per_us, max_polls, timed: tl.constexpr):  # type: ignore[no-untyped-def]
        limit = limit_us.to(tl.int64) * per_us
        spent = limit * 0
        if timed:
            start = triton_now()
        tl.store(w + 32, ticket)
        seen = ticket - 1
        left = max_polls
        while (seen - ticket < 0) & (spent < limit) & (left > 0):
            seen = tl.atomic_add(w, 0, sem="acquire", scope="sys")
            if timed:
                spent = triton_now() - start
            left -= 1
        if seen - ticket < 0:
            tl.store(w + 34, ticket)
        tl.atomic_xchg(w + 33, ticket, sem="release", scope="sys")

    return triton_gate


class TritonGate(Gate):
    """Polls by atomic_add(p, 0, acquire, sys); the vendor's timer ends it, and a poll count."""

    kind: ClassVar[str] = "triton"

    def prepare(self) -> None:
        """Compile on first use, which is now."""
        timer = self.native.vendor.triton_timer
        self._kernel = _kernel(timer.module, timer.function)
        self._timed, self._per_us = triton_now is not None, timer.ticks_per_us
        self._block = self.words.tensor(self.base)
        stream = self.native.module.Stream()
        self.enqueue(stream, 1e-3)
        stream.synchronize()

    def launch(self, stream: Any, ticket: int, limit_s: float) -> None:
        """Launch one program of one warp."""
        # Behind the timer 8 times the polls of the limit; alone, without the slack.
        rate = (self.native.rates or (0.0, _GUESSED_POLLS))[1] * (8 if self._timed else 1)
        polls = min(_MOST_POLLS, int(limit_s * rate) + 1000)
        with self.native.module.stream(stream):
            self._kernel[(1,)](self._block, ticket, int(limit_s * 1e6), self._per_us, polls, self._timed, num_warps=1)
