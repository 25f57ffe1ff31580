"""The core program at one point of the factors: steps, the pauses between them, and what to look for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from conformance.backends.api import EventFlags
from conformance.diagnosis import factors as at
from conformance.execution import Setting
from probes.program import (
    DEFAULT_STREAM,
    Copy,
    Destroy,
    Fill,
    Gate,
    Open,
    Program,
    Read,
    Record,
    Wait,
    WaitStream,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from conformance.diagnosis.factors import Point
    from probes.program import Step

#: The event that may be late, and the one of the stream that waits for it.
EVENT: Final = "e"
DEVICE_EVENT: Final = "d"
#: Host buffers: the captured work's token, the token behind a device wait, and those that end what is earlier.
TOKEN: Final = "h"
DEVICE_TOKEN: Final = "hd"
EARLIER_TOKEN: Final = "hp"
#: Seconds of the delay between record and wait, by level.
DELAYS: Final = {"none": 0.0, "5 ms": 5e-3}
#: Earlier records of the event, by level.
EARLIER: Final = {"fresh": 0, "recorded once before": 1, "recorded 5 times before": 5}
#: Copies in the captured work, by level.
COPIES: Final = {"one copy": 1, "kernel last": 1, "sixteen copies": 16}
#: Streams made and not used before those of the program, by level.
PADS: Final = {"first": 0, "sixth": 5}
#: The captured work's token, and that of a device wait.
VALUE: Final = 1
DEVICE_VALUE: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A program at a point. It ends with the opening that makes the event owed; the later gates stay closed."""

    program: Program
    pauses: Mapping[int, float]  # seconds before the step of this number
    closed: tuple[str, ...]  # the gates that are closed at the end, in issue order
    setting: Setting
    device: bool  # the waiter is a stream


def build(point: Point, *, control: bool = False) -> Built:
    """The program at a point; ``control`` leaves out the later wait and what stands behind it."""
    builder = _Builder(point)
    for number in range(1, 3 if point[at.ROUND] == "third" else 1):
        builder.round(number)
    builder.earlier()
    builder.captured("g1", TOKEN, VALUE)
    builder.steps.append(Record(stream=builder.copy, event=EVENT))
    device = point[at.WAITER] == "device"
    if device:
        builder.steps += [
            Wait(stream="third", event=EVENT),
            Fill(stream="third", buffer="y", value=DEVICE_VALUE),
            Copy(stream="third", source="y", target=DEVICE_TOKEN),
            Record(stream="third", event=DEVICE_EVENT),
        ]
    closed = builder.tail("g2", "g3", "f", control=control)
    builder.steps.append(Open(gate="g1"))
    program = Program(tuple(builder.steps))
    pads = tuple(f"pad{n}" for n in range(PADS[point[at.HANDLE]]))
    setting = Setting(
        observe="synchronize" if point[at.WAITER] == "synchronize" else "query",
        flags=EventFlags(point[at.FLAGS]),
        second_gate=point[at.GATE] == "second kind",
        order=(*pads, *dict.fromkeys((builder.copy, builder.main, *program.streams))),
    )
    return Built(program=program, pauses=builder.pauses, closed=closed, setting=setting, device=device)


class _Builder:
    def __init__(self, point: Point) -> None:
        self.point = point
        # A stream whose name begins with "high" is one of high priority.
        self.copy = ("high" if point[at.PRIORITY] == "high" else "copy") + str(PADS[point[at.HANDLE]] or "")
        self.main = DEFAULT_STREAM if point[at.PRODUCER] == "default stream" else "main"
        self.steps: list[Step] = []
        self.pauses: dict[int, float] = {}

    def captured(self, gate: str, host: str, value: int) -> None:
        """The gate, and the work with its token."""
        copy, kind = self.copy, self.point[at.CAPTURED]
        self.steps += [Gate(stream=copy, gate=gate), Fill(stream=copy, buffer="x", value=value)]
        self.steps += [Copy(stream=copy, source="x", target=f"hx{n}") for n in range(COPIES[kind] - 1)]
        self.steps.append(Copy(stream=copy, source="x", target=host))
        if kind == "kernel last":
            self.steps.append(Fill(stream=copy, buffer="k", value=9))

    def tail(self, gate: str, last: str, event: str, *, control: bool = False) -> tuple[str, ...]:
        """After the point's delay: the producer's work, the later wait, what stands behind it. Its gates."""
        if delay := DELAYS[self.point[at.DELAY]]:
            self.pauses[len(self.steps)] = delay
        main, spelling = self.main, self.point[at.WAIT]
        self.steps += [Gate(stream=main, gate=gate), Fill(stream=main, buffer="q", value=4)]
        self.steps.append(Record(stream=main, event=event))
        if control:
            return (gate,)
        if spelling == "wait-stream":
            self.steps.append(WaitStream(stream=self.copy, other=main))
        else:
            self.steps.append(Wait(stream=self.copy, event=event))
            if spelling != "wait":
                self.steps.append(Destroy(event=event))
        return (gate, *self.behind(last))

    def behind(self, gate: str) -> tuple[str, ...]:
        """What stands behind the later wait, and its gate if it has one."""
        copy, kind = self.copy, self.point[at.BEHIND]
        if kind == "gated copy":
            self.steps.append(Gate(stream=copy, gate=gate))
        if kind in ("gated copy", "copy", "kernel"):
            self.steps.append(Fill(stream=copy, buffer="z", value=3))
        if kind in ("gated copy", "copy"):
            self.steps.append(Copy(stream=copy, source="z", target="hz"))
        if kind == "record":
            self.steps.append(Record(stream=copy, event="w"))
        return (gate,) if kind == "gated copy" else ()

    def round(self, number: int) -> None:
        """A round of the same shape that runs to its end."""
        self.captured(f"a{number}", f"hr{number}", 10 + number)
        self.steps.append(Record(stream=self.copy, event=f"p{number}"))
        later = self.tail(f"b{number}", f"c{number}", f"f{number}")
        self.steps += [Open(gate=gate) for gate in (f"a{number}", *later)]

    def earlier(self) -> None:
        """Earlier records of the event, and the proof that everything earlier has ended."""
        records = EARLIER[self.point[at.EVENT]]
        if not records and not self.steps:
            return
        for number in range(max(1, records)):
            if records:
                self.steps.append(Record(stream=self.copy, event=EVENT))
            # Each has ended before the next: HIP leaves it undefined to record a pending event again.
            self.steps += [
                Fill(stream=self.copy, buffer="x", value=7),
                Copy(stream=self.copy, source="x", target=f"{EARLIER_TOKEN}{number}"),
                Read(buffer=f"{EARLIER_TOKEN}{number}"),
            ]
