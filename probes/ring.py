"""The ring: is every step's event published in time by a ring of k copy streams with n steps in flight?

Pipe(k, n) is that of docs/rules.md 3: main holds each step behind a gate; the step's copy stream
waits for main, copies the step's token to the host and records. The host harvests the oldest step
before it submits the next. What a pipeline must show is computed by the model, as for any program.
"""

from __future__ import annotations

import itertools
from typing import Final

from probes.probe import FLAG_NEEDS, Case, Observe, Pipe, Probe
from probes.program import Copy, DeviceOp, Fill, Gate, Record, Wait, WaitStream

#: The deepest pipeline: torch's pool has 32 streams, and a ring of this length with its main stream is half of it.
DEEPEST: Final = 16


def main_stream(pipe: Pipe) -> str:
    """The stream that computes."""
    return "default" if pipe.main == "default" else "main"


def copy_stream(pipe: Pipe, step: int) -> str:
    """The stream that copies this step's token."""
    return f"ring{step % pipe.ring}"


def step_ops(pipe: Pipe, step: int, *, gate_only: bool = False) -> list[DeviceOp]:
    """What step ``step`` queues; with ``gate_only``, main's gate and nothing on any copy stream."""
    main, copy = main_stream(pipe), copy_stream(pipe, step)
    ops: list[DeviceOp] = [Gate(stream=main, gate=f"g{step}")]
    if gate_only:
        return ops
    ops.append(Fill(stream=main, buffer=f"x{step}", value=step + 1))
    if pipe.spelling == "wait-stream":
        ops.append(WaitStream(stream=copy, other=main))
    else:
        ops += [Record(stream=main, event=f"t{step}"), Wait(stream=copy, event=f"t{step}")]
    ops += [Copy(stream=copy, source=f"x{step}", target=f"h{step}"), Record(stream=copy, event=f"e{step}")]
    return ops


def pipe_text(pipe: Pipe) -> str:
    """The pipeline's beginning as text: enough steps to see the first harvest."""
    from probes.notation import print_program
    from probes.program import Open, Program, Step

    steps: list[Step] = []
    for number in range(pipe.in_flight):
        steps += step_ops(pipe, number)
    return print_program(Program((*steps, Open(gate="g0"))))


def _cases(ring: int, in_flight: int) -> tuple[tuple[Case, Pipe], ...]:
    cases = []
    observes: tuple[Observe, ...] = ("query", "synchronize")
    for main, flags, spelling, observe in itertools.product(
        ("side", "default"), ("default", "blocking"), ("wait-stream", "wait"), observes
    ):
        pipe = Pipe(ring=ring, in_flight=in_flight, main=main, spelling=spelling)
        case = Case(
            variant=f"{flags}-{spelling}-{main}-{observe}",
            text=pipe_text(pipe),
            observe=observe,
            flags=flags,
            factors=(("flags", flags), ("spelling", spelling), ("main", main), ("observe", observe)),
            needs=(
                *FLAG_NEEDS[flags],
                *(("wait-stream",) if spelling == "wait-stream" else ()),
                *(("default-stream",) if main == "default" else ()),
            ),
            decisive=True,
            quick=True,
        )
        cases.append((case, pipe))
    return tuple(cases)


def ring_probe(ring: int, in_flight: int) -> Probe:
    """The probe of one ring length at one depth."""
    pairs = _cases(ring, in_flight)
    return Probe(
        name=f"ring-{ring}-{in_flight}",
        family="ring",
        question=f"Is every event in time with {ring} copy stream{'s' * (ring > 1)} and {in_flight} in flight?",
        clauses=("EVT-SAFE-1", "EVT-SYNC-1"),
        faults=("late-next-wait", "late-any-wait", "late-idle", "late-never") if ring < in_flight else (),
        control="the steps after the harvested one bring only main's gate and nothing on any copy stream",
        cases=tuple(case for case, _ in pairs),
        subject="e0",
        pipes={case.variant: pipe for case, pipe in pairs},
    )


def ring_probes(max_in_flight: int) -> tuple[Probe, ...]:
    """The probes of every ring for one to ``max_in_flight`` steps in flight."""
    return tuple(ring_probe(k, n) for n in range(1, max_in_flight + 1) for k in range(1, n + 1))
