"""A first look-up of a function beside a closed gate, in a process of its own: prints what it saw as JSON.

    python silent_lookup.py beside|before

Source: docs/hardware.md, "Lazy loading has a silent form".
"""

from __future__ import annotations

import ctypes
import json
import sys

from conformance.backends.gates import Ladder
from conformance.backends.gates.base import until
from conformance.backends.vendors import VENDORS

#: Two functions, so that the module is loaded, and one of them in use, before the gate closes.
SOURCE = """
extern "C" __global__ void first(unsigned int* p) { if (p) *p = 1; }
extern "C" __global__ void second(unsigned int* p) { if (p) *p = 2; }
"""
#: Seconds: a gate's limit, and how long the event is watched while the gate is closed and after.
LIMIT, WATCH, PATIENCE = 1.5, 0.3, 5.0


def main(when: str) -> None:
    """Close a gate on one stream, record an event on another that is idle, and see when it completes."""
    import torch

    torch.zeros(1, device="cuda")
    ladder = Ladder(VENDORS["cuda"], kind="kernel", torch=torch, module=torch.cuda)
    native, (gate,) = ladder.native, ladder.take(1)
    held, idle, event = torch.cuda.Stream(), torch.cuda.Stream(), torch.cuda.Event()
    event.record(idle)
    idle.synchronize()
    module, functions = ctypes.c_void_p(), {name: ctypes.c_void_p() for name in (b"first", b"second")}

    def look_up(name: bytes) -> None:
        native.call("get", ctypes.byref(functions[name]), module, name)

    native.call("load", ctypes.byref(module), native.compile(SOURCE, "two.cu"))
    look_up(b"first")
    if when == "before":
        look_up(b"second")
    torch.cuda.synchronize()
    try:
        gate.enqueue(held, LIMIT)
        assert until(gate.entered, PATIENCE) is not None
        if when == "beside":
            look_up(b"second")
        event.record(idle)
        beside = until(event.query, WATCH)
        closed = gate.closed()
    finally:
        gate.open()
    after = until(event.query, PATIENCE)
    said = {"seen_beside": beside, "closed": closed, "seen_after": after, "expired": gate.expired()}
    sys.stdout.write(json.dumps(said) + "\n")
    ladder.close()


if __name__ == "__main__":
    main(sys.argv[1])
