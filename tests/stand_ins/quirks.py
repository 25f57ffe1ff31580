"""What one process sees of torch_musa's stand-in and of the backend on it: python quirks.py. One line of JSON each.

The plugin is imported by the backend: run with TORCH_DEVICE_BACKEND_AUTOLOAD=0.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

from conformance.backends.api import EventFlags, Request
from conformance.backends.calls import yield_interpreter
from conformance.backends.registry import Opening, open_hardware
from probes.program import Copy, Fill, Gate, Record, Wait


def say(name: str, value: object) -> None:
    sys.stdout.write(json.dumps({name: value}) + "\n")


def raised(function: Any, *arguments: Any) -> str:
    try:
        function(*arguments)
    except (RuntimeError, TypeError) as error:
        return f"{type(error).__name__}: {error}"
    return "nothing was raised"


def programs(backend: Any) -> list[list[object]]:
    """Work behind a gate, twice: what is seen before and after it opens; and what the layer below says."""
    seen = []
    for flags in (EventFlags.DEFAULT, EventFlags.BLOCKING):
        request = Request(streams=["a", "b"], events=["e", "f"], gates=["g"], buffers=["x", "h"], flags=flags)
        session = backend.session(request)
        try:
            for op in (
                Gate(stream="a", gate="g"),
                Fill(stream="a", buffer="x", value=7),
                Copy(stream="a", source="x", target="h"),
                Record(stream="a", event="e"),
                Wait(stream="b", event="e"),
                Record(stream="b", event="f"),
            ):
                session.issue(op)
            before = [session.query("e"), session.query("f"), session.read("h"), below(session)]
            session.open("g")
            while not session.query("f"):
                yield_interpreter()
            seen.append([before, [session.query("e"), session.read("h"), below(session)]])
        finally:
            session.close()
    return seen


def below(session: Any) -> Any:
    opinion = session.ask_below("e")
    return opinion.complete


def main() -> None:
    backend: Any = open_hardware(Opening(name="musa"))
    torch = importlib.import_module("torch")
    module, tensors = torch.musa, torch.musa._stand_in_tensors
    surface = backend.main_surface
    streams = backend.streams(surface)
    say("handles", len({surface.handle(stream) for stream in streams}) == len(streams))
    say("default handle", module.default_stream().musa_stream)
    say("limit", backend.limits().stream_handles_before_aliasing())
    say("to cpu", backend.limits().to_cpu_non_blocking())
    say("programs", programs(backend))
    say("kinds", backend.limits().gate_kinds())
    say("blocking copies", tensors.blocking_copies)
    # What the vendor's own calls do where they are misused: each is what the backend must not meet.
    strided = torch.zeros((4, 8), dtype=torch.int32, pin_memory=True)[:, :1]
    strided.copy_(torch.zeros((4, 1), dtype=torch.int32, device="musa"), non_blocking=True)
    say("blocking copies after a strided one", tensors.blocking_copies)
    event = module.Event()
    say("unrecorded", [event.musa_event, event.query(), event.device is None])
    say("generic stream", raised(event.record, torch.Stream("musa")))
    say("accelerator", raised(torch.accelerator.synchronize))
    say("properties", raised(module.get_device_properties))
    backend.close()


if __name__ == "__main__":
    main()
