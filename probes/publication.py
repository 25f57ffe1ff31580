"""Publication: is a recorded event seen complete although a wait queued later on its stream is blocked?

The core program is that of docs/rules.md 9, issued so that every device, even one with a single
queue, must complete the event (docs/rules.md 9). The two-waits program tells the late forms
apart (docs/rules.md 2). The captured work is pending when the later wait is queued: else a defect that
latches could not show.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Final

from probes.probe import FLAG_NEEDS, Case, Observe, Probe

LATE_FAULTS: Final = (
    "late-next-wait",
    "late-any-wait",
    "late-idle",
    "late-never",
    "late-next-wait-queue",
    "deferred-record",
)

_FACTORS: Final = ("flags", "spelling", "captured", "main", "observe", "round", "waiter")


def _captured(kind: str, gate: str, event: str, value: int, host: str) -> str:
    work = f"fill x {value}, copy x -> {host}"
    if kind == "fill":
        work += ", fill y 9"  # the last captured operation is no copy; the token before it stays readable
    return f"copy: gate {gate}, {work}, record {event}"


def _blocker(main: str, gate: str, event: str, value: int, host: str) -> str:
    return f"{main}: gate {gate}, fill q{event} {value}, copy q{event} -> {host}, record {event}"


def _wait(spelling: str, event: str, main: str) -> str:
    return f"wait {event}" if spelling == "wait" else f"wait-stream {main}"


def core_text(*, captured: str, spelling: str, main: str, rounds: int, waiter: bool) -> str:
    """The core program: captured work behind g1, then a wait for work behind g2, then work behind g3."""
    lines: list[str] = []
    for number in range(1, rounds):
        # Earlier rounds run to their end on the same streams, with gates and events of their own.
        lines += [
            _captured(captured, f"a{number}", f"p{number}", number + 10, f"hp{number}"),
            _blocker(main, f"b{number}", f"r{number}", number + 20, f"hr{number}"),
            f"copy: {_wait(spelling, f'r{number}', main)}",
            f"host: open a{number}, open b{number}",
        ]
    lines.append(_captured(captured, "g1", "e", 1, "h"))
    if waiter:
        lines.append("third: wait e, fill y3 2, copy y3 -> hd, record d")
    lines += [
        _blocker(main, "g2", "f", 4, "hf"),
        f"copy: {_wait(spelling, 'f', main)}, gate g3, fill z 3, copy z -> hz",
        "host: open g1, open g2, open g3, sync-stream copy, sync-device",
    ]
    return "\n".join(lines)


def two_waits_text(*, captured: str = "copy", spelling: str = "wait", main: str = "main") -> str:
    """Two later waits, each gate issued right before its wait: what publishes the event names the form."""
    return "\n".join(
        [
            _captured(captured, "g1", "e", 1, "h"),
            _blocker(main, "g2", "f", 4, "hf"),
            f"copy: {_wait(spelling, 'f', main)}",
            _blocker("other", "g3", "c", 5, "hc"),
            f"copy: {_wait(spelling, 'c', 'other')}, gate g4, fill z 3, copy z -> hz",
            "host: open g1, open g2, open g3, open g4, sync-stream copy, sync-device",
        ]
    )


def _case(
    flags: str, spelling: str, captured: str, main: str, observe: Observe, rounds: int = 1, waiter: bool = False
) -> Case:
    stream = "default" if main == "default" else "main"
    extras = (f"round{rounds}",) * (rounds > 1) + ("waiter",) * waiter
    plain = captured == "copy" and not extras
    values = (flags, spelling, captured, main, observe, str(rounds), "yes" if waiter else "no")
    return Case(
        variant="-".join((flags, spelling, captured, main, observe, *extras)),
        text=core_text(captured=captured, spelling=spelling, main=stream, rounds=rounds, waiter=waiter),
        observe=observe,
        flags=flags,
        factors=tuple(zip(_FACTORS, values, strict=True)),
        needs=(
            *FLAG_NEEDS[flags],
            *(("wait-stream",) if spelling == "wait-stream" else ()),
            *(("default-stream",) if main == "default" else ()),
        ),
        decisive=plain and flags in ("default", "blocking"),
        quick=(plain and flags in ("default", "blocking")) or _brief(flags, spelling, observe, waiter),
        form_text=two_waits_text(captured=captured, spelling=spelling, main=stream),
    )


def _brief(flags: str, spelling: str, observe: str, waiter: bool) -> bool:
    """A quick run looks at the device-side waiter in two ways."""
    return waiter and (flags, spelling, observe) in (
        ("default", "wait-stream", "query"),
        ("default", "wait", "synchronize"),
    )


_FLAGS: Final = ("default", "blocking", "timing")
_SPELLINGS: Final = ("wait-stream", "wait")
_OBSERVE: Final[tuple[Observe, ...]] = ("query", "synchronize")

PUBLICATION: Final = Probe(
    name="publication",
    family="publication",
    question="Is a recorded event seen complete although a wait queued later on its stream is still blocked?",
    clauses=(
        "EVT-SAFE-1",
        "EVT-SYNC-1",
        "EVT-INDEP-1",
        "EVT-INDEP-3",
        "EVT-WAIT-3",
        "EVT-WAIT-4",
        "EVT-MONO-1",
        "MEM-VIS-1",
        "STM-FIFO-1",
    ),
    faults=(*LATE_FAULTS, "late-blocking-sync", "held-by-wait", "query-always-true", "sync-noop", "wait-blocks-host"),
    control="without the operations issued after the record on its own stream",
    cases=(
        *(
            _case(flags, spelling, captured, main, observe)
            for captured, main, flags, spelling, observe in itertools.product(
                ("copy", "fill"), ("side", "default"), _FLAGS, _SPELLINGS, _OBSERVE
            )
        ),
        *(
            _case(flags, spelling, "copy", "side", observe, rounds=3)
            for flags, spelling, observe in itertools.product(_FLAGS, _SPELLINGS, _OBSERVE)
        ),
    ),
)

PUBLICATION_WAITER: Final = Probe(
    name="publication-waiter",
    family="publication",
    question="Is it seen in time by a stream that waits for it on the device, too?",
    clauses=(
        "EVT-SAFE-1",
        "EVT-SYNC-1",
        "EVT-INDEP-1",
        "EVT-INDEP-2",
        "EVT-INDEP-3",
        "EVT-WAIT-1",
        "EVT-WAIT-3",
        "EVT-WAIT-4",
    ),
    faults=(*LATE_FAULTS, "late-device-wait", "late-next-wait-device", "late-any-wait-device", "late-never-device"),
    control="without the operations issued after the record on its own stream",
    cases=tuple(
        _case(flags, spelling, "copy", "side", observe, waiter=True)
        for flags, spelling, observe in itertools.product(_FLAGS, _SPELLINGS, _OBSERVE)
    ),
)

TWO_WAITS: Final = Probe(
    name="two-waits",
    family="publication",
    question="If it is late, what publishes it: the next wait, every wait, an idle stream, a synchronize, nothing?",
    clauses=("EVT-SAFE-1", "EVT-SYNC-1", "EVT-INDEP-1", "EVT-INDEP-3", "EVT-WAIT-4"),
    faults=LATE_FAULTS,
    control="without the operations issued after the record on its own stream",
    cases=tuple(
        Case(
            variant=f"{flags}-{spelling}-{observe}",
            text=two_waits_text(spelling=spelling),
            observe=observe,
            flags=flags,
            factors=(("flags", flags), ("spelling", spelling), ("observe", observe)),
            needs=(*FLAG_NEEDS[flags], *(("wait-stream",) if spelling == "wait-stream" else ())),
            form_text=two_waits_text(spelling=spelling),
        )
        for flags, spelling, observe in itertools.product(("default", "blocking"), _SPELLINGS, _OBSERVE)
    ),
)

#: The core verdict again, under another kind of gate: a verdict that depends on the gate is none.
SECOND_GATE: Final = Probe(
    name="second-gate",
    family="publication",
    question="Does another kind of gate lead to the same answer?",
    clauses=("EVT-SAFE-1", "EVT-INDEP-1", "EVT-WAIT-4"),
    faults=LATE_FAULTS,
    control="without the operations issued after the record on its own stream",
    cases=tuple(
        replace(case, decisive=False, second_gate=True, needs=(*case.needs, "second-gate"))
        for case in PUBLICATION.cases
        if case.variant in ("default-wait-stream-copy-side-query", "blocking-wait-copy-side-query")
    ),
)

PROBES: Final = (PUBLICATION, PUBLICATION_WAITER, TWO_WAITS, SECOND_GATE)
