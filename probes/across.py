"""Two devices: waits and copies across them, and the core question with its two sides apart.

Streams and buffers whose name begins with ``far`` are on the second device; happens-before is the same as on
one. What must be refused across devices is in `probes.devices`.
"""

from __future__ import annotations

from typing import Final

from probes.probe import FLAG_NEEDS, PLAIN, Case, Observe, Probe
from probes.publication import LATE_FAULTS, two_waits_text

#: What every case here needs.
SECOND: Final = "second-device"
_BOTH: Final[tuple[Observe, ...]] = ("query", "synchronize")
_SPELLINGS: Final = ("wait", "wait-stream")

_END: Final = "host: open g1"
#: The producer on either device, and the consumer on the other one.
_ORDERING: Final = {
    "to-far": (
        "S: gate g1, fill x 1, copy x -> h, record e\nfar: {wait}, fill fary 2, copy fary -> hd, record d\n" + _END,
        "S",
    ),
    "to-near": (
        "far: gate g1, fill farx 1, copy farx -> h, record e\nS: {wait}, fill y 2, copy y -> hd, record d\n" + _END,
        "far",
    ),
}

#: A copy from device to device by the producer's stream, or by the consumer's; an old value stands in the way.
_PEER: Final = {
    "push-to-far": (
        "far: fill fary 7, record k\nS: wait k, gate g1, fill x 1, copy x -> fary, record e\n"
        "far: wait e, copy fary -> hd, record d\n" + _END
    ),
    "pull-to-far": (
        "S: fill x 7, gate g1, fill x 1, record e\nfar: wait e, copy x -> fary, copy fary -> hd, record d\n" + _END
    ),
    "push-to-near": (
        "S: fill y 7, record k\nfar: wait k, gate g1, fill farx 1, copy farx -> y, record e\n"
        "S: wait e, copy y -> hd, record d\n" + _END
    ),
    "pull-to-near": (
        "far: fill farx 7, gate g1, fill farx 1, record e\nS: wait e, copy farx -> y, copy y -> hd, record d\n" + _END
    ),
}

#: The core question. `blocker-far`: what the copy stream is told to wait for is on the other device. The others
#: are an engine's steps: the copy stream takes each step's result, not the one before, from the producer's device.
_CORE: Final = {
    "blocker-far": (
        "copy: gate g1, fill x 1, copy x -> h, record e\n"
        "far: gate g2, fill farq 4, copy farq -> hf, record f\n"
        "copy: {later}, gate g3, fill z 3, copy z -> hz\n"
        "host: open g1, open g2, open g3, sync-stream copy, sync-device",
        "far",
    ),
    "copy-far": (
        "main: fill x 7, gate g1, fill x 1, record p\n"
        "far: {first}, copy x -> fary, copy fary -> h, record e\n"
        "main: gate g2, fill q 4, copy q -> hf, record f\n"
        "far: {later}, gate g3, fill farz 3, copy farz -> hz\n"
        "host: open g1, open g2, open g3, sync-stream far, sync-device",
        "main",
    ),
    "producer-far": (
        "far: fill farx 7, gate g1, fill farx 1, record p\n"
        "copy: {first}, copy farx -> y, copy y -> h, record e\n"
        "far: gate g2, fill farq 4, copy farq -> hf, record f\n"
        "copy: {later}, gate g3, fill z 3, copy z -> hz\n"
        "host: open g1, open g2, open g3, sync-stream copy, sync-device",
        "far",
    ),
}


def _wait(spelling: str, event: str, other: str) -> str:
    return f"wait {event}" if spelling == "wait" else f"wait-stream {other}"


def _two_waits(spelling: str) -> str:
    """The two-waits program with everything that is waited for on the other device."""
    text = two_waits_text(spelling=spelling, main="far").replace("other", "farther")
    return text.replace("qf", "farqf").replace("qc", "farqc")


def _needs(spelling: str, flags: str) -> tuple[str, ...]:
    return (SECOND, *FLAG_NEEDS[flags], *(("wait-stream",) if spelling == "wait-stream" else ()))


def _ordering(way: str, spelling: str, observe: Observe, flags: str) -> Case:
    text, producer = _ORDERING[way]
    return Case(
        variant=f"{way}-{spelling}-{observe}-{flags}",
        text=text.format(wait=_wait(spelling, "e", producer)),
        observe=observe,
        flags=flags,
        factors=(("way", way), ("spelling", spelling), ("observe", observe), ("flags", flags)),
        needs=_needs(spelling, flags),
        quick=observe == "query" and flags == "default",
        clauses=("EVT-WAIT-6", "EVT-WAIT-3", *(("STM-WSTREAM-1",) if spelling == "wait-stream" else ())),
    )


def _core(layout: str, spelling: str, observe: Observe, flags: str) -> Case:
    text, other = _CORE[layout]
    asked = ("EVT-SAFE-1", "EVT-INDEP-1") if observe == "query" else ("EVT-SYNC-1", "EVT-INDEP-3")
    return Case(
        variant=f"{layout}-{spelling}-{observe}-{flags}",
        text=text.format(first=_wait(spelling, "p", other), later=_wait(spelling, "f", other)),
        observe=observe,
        flags=flags,
        factors=(("layout", layout), ("spelling", spelling), ("observe", observe), ("flags", flags)),
        needs=_needs(spelling, flags),
        quick=observe == "query" and flags == "default" and spelling == "wait-stream",
        form_text=_two_waits(spelling),
        clauses=(*asked, "EVT-WAIT-3", "MEM-VIS-1", *(("EVT-INDEP-2",) if layout != "blocker-far" else ())),
    )


PROBES: Final = (
    Probe(
        # ROCm/rocm-systems#5109: a wait for an event of the other device had no effect.
        name="across-devices",
        family="two devices",
        question="Does work behind a wait for an event of another device stay back, and run once that is complete?",
        clauses=("EVT-WAIT-6", "EVT-WAIT-3", "STM-WSTREAM-1"),
        faults=("cross-device-wait-dropped", "cross-device-wait-hangs"),
        control="without the wait, the consumer's token arrives while the gate is closed",
        cases=tuple(
            _ordering(way, spelling, observe, flags)
            for way in _ORDERING
            for spelling in _SPELLINGS
            for observe, flags in PLAIN
        ),
        subject="d",
    ),
    Probe(
        # The same report: data that a copy from device to device had not brought yet was read.
        name="peer-copy",
        family="two devices",
        question="Is a copy from device to device ordered by events, and all there when its event is first seen?",
        clauses=("MEM-DEV-1", "MEM-VIS-1"),
        faults=("peer-copy-orders-no-data",),
        control="the value that was there before is another one",
        cases=tuple(
            Case(
                variant=f"{way}-{observe}",
                text=text,
                observe=observe,
                factors=(("way", way), ("observe", observe)),
                needs=(SECOND,),
                quick=observe == "query",
            )
            for way, text in _PEER.items()
            for observe in _BOTH
        ),
        subject="d",
    ),
    Probe(
        name="publication-across",
        family="two devices",
        question="Is an event seen complete although a later wait is blocked, with the two sides on two devices?",
        clauses=(
            "EVT-SAFE-1",
            "EVT-SYNC-1",
            "EVT-INDEP-1",
            "EVT-INDEP-2",
            "EVT-INDEP-3",
            "EVT-WAIT-3",
            "MEM-VIS-1",
        ),
        faults=("late-cross-device-wait", *LATE_FAULTS),
        control="without the operations issued after the record on its own stream",
        cases=tuple(
            _core(layout, spelling, observe, flags)
            for layout in _CORE
            for spelling in _SPELLINGS
            for observe, flags in PLAIN
            if flags != "timing"
        ),
    ),
    Probe(
        name="other-process-across",
        family="two devices",
        question="Does another process, with its stream on another device, see a shared event as this one does?",
        clauses=("EVT-IPC-1",),
        faults=("ipc-always-complete",),
        control="the same look in this process",
        cases=tuple(
            Case(
                variant=look,
                text="S: gate g, record e\nhost: open g",
                experiment="shared",
                factors=(("look", look), ("stream", "far")),
                needs=(SECOND,),
            )
            for look in ("query", "synchronize", "wait")
        ),
    ),
)
