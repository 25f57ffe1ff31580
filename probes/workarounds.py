"""What an engine may do about late events, each as a program that a device can be asked with.

In each, the host has ``in_flight`` steps open, opens the oldest step's gate, and wants its output while every
later gate is closed; only then does it queue what the read output allows, and the next step. docs/pipeline.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

from probes.program import Copy, Fill, Gate, Open, Program, QueryStream, Record, Step, Wait, WaitStream

if TYPE_CHECKING:
    from collections.abc import Mapping


#: How a step's output is sent off when the step is queued.
Queue = Callable[[int, int], list[Step]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workaround:
    """One way of getting outputs to the host."""

    name: str
    text: str
    queue: Queue  # (step, steps in flight) -> what is queued behind the step's own work
    seen_by: Literal["event", "token"] = "event"
    deferred: bool = False  # queued once the output before it was read
    covered: bool = True  # by the documents of streams and events
    basis: str = ""  # what else is to be known of that

    def program(self, in_flight: int, steps: int) -> Program:
        """The whole run: ``steps`` outputs, each wanted with the later gates closed."""
        done: list[Step] = []
        for step in range(steps + in_flight):
            harvest = step - in_flight
            if harvest >= 0:
                done.append(Open(gate=f"g{harvest}"))
                if self.deferred and harvest + 1 < min(step, steps):
                    done += self.queue(harvest + 1, in_flight)
            if step < steps:
                done += [Gate(stream="main", gate=f"g{step}"), Fill(stream="main", buffer=f"x{step}", value=step + 1)]
                if self.deferred:
                    done.append(Record(stream="main", event=f"t{step}"))
                # The first has no output before it; with one in flight that one was read.
                if not self.deferred or step == 0 or in_flight == 1:
                    done += self.queue(step, in_flight)
        return Program(tuple(done))


def _copy(stream: str, step: int) -> list[Step]:
    return [
        WaitStream(stream=stream, other="main"),
        Copy(stream=stream, source=f"x{step}", target=f"h{step}"),
        Record(stream=stream, event=f"e{step}"),
    ]


def _one(step: int, in_flight: int) -> list[Step]:
    return _copy("copy", step)


def _ring(step: int, in_flight: int) -> list[Step]:
    return _copy(f"ring{step % in_flight}", step)


def _fresh(step: int, in_flight: int) -> list[Step]:
    return _copy(f"fresh{step}", step)


def _free_list(step: int, in_flight: int) -> list[Step]:
    # Outputs are read in order, so the stream that was given back last is that of step - in_flight; the
    # first ones come off the list from its end.
    return _copy(f"pool{in_flight - 1 - step % in_flight}", step)


def _helper(step: int, in_flight: int) -> list[Step]:
    return [
        WaitStream(stream="helper", other="main"),
        Record(stream="helper", event=f"t{step}"),
        Wait(stream="copy", event=f"t{step}"),
        Copy(stream="copy", source=f"x{step}", target=f"h{step}"),
        Record(stream="copy", event=f"e{step}"),
    ]


def _deferred(step: int, in_flight: int) -> list[Step]:
    # An event, not wait-stream: main has later steps queued by now, and wait-stream would wait for them.
    return [
        Wait(stream="copy", event=f"t{step}"),
        Copy(stream="copy", source=f"x{step}", target=f"h{step}"),
        Record(stream="copy", event=f"e{step}"),
    ]


def _flag(step: int, in_flight: int) -> list[Step]:
    return [
        WaitStream(stream="copy", other="main"),
        Copy(stream="copy", source=f"x{step}", target=f"h{step}"),
        Fill(stream="copy", buffer=f"y{step}", value=step + 1),
        Copy(stream="copy", source=f"y{step}", target=f"hflag{step}"),
    ]


def _query(step: int, in_flight: int) -> list[Step]:
    return [*_copy("copy", step), QueryStream(stream="copy")]


def _on_main(step: int, in_flight: int) -> list[Step]:
    return [
        Copy(stream="main", source=f"x{step}", target=f"h{step}"),
        Record(stream="main", event=f"e{step}"),
    ]


_ALL: Final = (
    Workaround(name="one stream", text="one copy stream: no workaround", queue=_one),
    Workaround(name="ring", text="a copy stream per step in flight, in turn: the default", queue=_ring),
    Workaround(
        name="fresh stream",
        text="a new stream for each step",
        queue=_fresh,
        basis="torch gives out 32 handles in turn, so it is a ring of 32 that nobody checks",
    ),
    Workaround(
        name="free list",
        text="streams taken from a list, and given back when their output was read",
        queue=_free_list,
        basis="takes as many streams as are in flight, and cannot be too short",
    ),
    Workaround(
        name="helper wait",
        text="a helper stream waits for main, the copy stream for the helper",
        queue=_helper,
        basis="the copy stream still gets a wait a step",
    ),
    Workaround(
        name="deferred wait",
        text="the copy is queued when the output before it was read",
        queue=_deferred,
        deferred=True,
        basis="the wait is for an event of the step, since wait-stream would take in later steps",
    ),
    Workaround(
        name="pinned flag",
        text="a sequence number is copied behind the data, and the host polls it in pinned memory",
        queue=_flag,
        seen_by="token",
        covered=False,
        basis="not covered: no document says when a host load sees a copy, or that it sees the data before the flag",
    ),
    Workaround(
        name="stream query",
        text="the stream is queried after the record, in the hope that this submits it",
        queue=_query,
        basis="no document says that a query makes anything go on",
    ),
    Workaround(
        name="copy on main",
        text="the copy and the record are queued on the compute stream: nothing waits",
        queue=_on_main,
        basis="the next step begins behind the copy",
    ),
)

#: The workarounds by name, what they are compared with first.
WORKAROUNDS: Final[Mapping[str, Workaround]] = MappingProxyType({w.name: w for w in _ALL})
