"""Asks a device, by gates, whether a workaround gets each output to the host in time, and right.

An output is in time if it is seen while the gate of every later step is shown closed. It is a comparison
and no finding: what judges the device itself is `probes.publication`. Source of the rules: docs/pipeline.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from conformance.backends.registry import with_faults
from conformance.errors import SuiteError
from conformance.execution import Observer, Setting, request_for
from conformance.model import Obligation
from probes.program import Gate, Open, Program, Record, is_host
from probes.workarounds import WORKAROUNDS, Workaround
from reports.pipeline import WorkaroundAnswer

if TYPE_CHECKING:
    from conformance.backends.api import Backend
    from conformance.numbers import Numbers

#: The faults under which they are compared, no fault first. The last two no wait has to do with.
FAULTS: Final = ("", "late-next-wait", "late-any-wait", "late-idle", "late-sync")
#: Outputs of one run: twice round the ring, and one.
ROUNDS: Final = 2
#: A gate ended by itself: such a run says nothing.
EXPIRED: Final = "gate-expired"
#: Runs until one was not spoilt by a gate that ended by itself.
TRIES: Final = 3


def wrong_in(backend: Backend, fault: str) -> Backend:
    """The device with a fault: its own where it has one, else laid over its API. Raises UsageError."""
    if not fault:
        return backend
    if backend.name == "reference":
        from conformance.backends.reference import ReferenceBackend

        return ReferenceBackend((fault,))
    return with_faults(backend, (fault,))


def compare(backend: Backend, numbers: Numbers, in_flight: int, fault: str) -> tuple[WorkaroundAnswer, ...]:
    """Every workaround on a device with this fault ("": none). Never raises for an error of the device."""
    device = wrong_in(backend, fault)
    return tuple(_ask(device, workaround, numbers, in_flight, fault) for workaround in WORKAROUNDS.values())


def _ask(backend: Backend, workaround: Workaround, numbers: Numbers, in_flight: int, fault: str) -> WorkaroundAnswer:
    answer = WorkaroundAnswer(
        workaround=workaround.name,
        fault=fault,
        in_flight=in_flight,
        timely=None,
        data=None,
        needs_concurrency=False,
    )
    if backend.gate().assurance != "causal":
        return msgspec.structs.replace(answer, reason="no gate that the host can open")
    program = workaround.program(in_flight, ROUNDS * in_flight + 1)
    setting = Setting(hold=numbers.harvest, order=program.streams)
    failures: tuple[type[Exception], ...] = (SuiteError, *backend.vendor_errors)
    try:
        for _ in range(TRIES):
            session = backend.session(request_for(program, setting, numbers))
            try:
                found = _run(Observer(backend, session, numbers, setting), workaround, program, answer)
            finally:
                session.close()
            if found.reason != EXPIRED:
                break
    except failures as error:
        return msgspec.structs.replace(answer, reason=" ".join(f"{type(error).__name__}: {error}".split()))
    return found


def _run(observer: Observer, workaround: Workaround, program: Program, answer: WorkaroundAnswer) -> WorkaroundAnswer:
    """One run to its first output that is late, early or wrong, or to its end."""
    by_event = workaround.seen_by == "event"
    closed: list[str] = []
    recorded: list[str] = []
    concurrency = False
    for number, step in enumerate(program.steps):
        if not is_host(step):
            if observer.issue(step, number) is not None:  # type: ignore[arg-type]  # not a host step
                return msgspec.structs.replace(answer, reason=f"a call blocks: {step}")
            if isinstance(step, Gate):
                closed.append(step.gate)
            elif isinstance(step, Record) and step.event.startswith("e"):
                recorded.append(step.event)
            continue
        if not isinstance(step, Open):
            observer.host(step, number)  # type: ignore[arg-type]  # a host step
            continue
        before = observer.look(recorded, [], closed)
        if before.ended:
            return msgspec.structs.replace(answer, reason=EXPIRED)
        if early := [e for e in recorded if before.events[e].ever and observer.model.obligation(e) is Obligation.PEND]:
            return msgspec.structs.replace(
                answer, data=False, reason=f"{early[0]} was seen before its step's gate opened"
            )
        observer.host(step, number)
        closed.remove(step.gate)
        j = int(step.gate[1:])
        event, data, flag = f"e{j}", f"h{j}", f"hflag{j}"
        if by_event and observer.model.obligation(event) is Obligation.SHOULD:
            concurrency = True
        look = observer.look([event] if by_event else [], [data] if by_event else [data, flag], closed)
        if look.ended:
            return msgspec.structs.replace(answer, reason=EXPIRED)
        seen = look.events[event].ever if by_event else look.buffers[flag] == j + 1
        if not seen:
            there = look.buffers[data] == j + 1
            how = "is there" if there else "is not there either"
            return msgspec.structs.replace(
                answer,
                timely=False,
                data=there or None,
                needs_concurrency=concurrency,
                reason=f"output {j} is not seen while later gates are closed; its data {how}",
            )
        if (look.events[event].data if by_event else look.buffers)[data] != j + 1:
            return msgspec.structs.replace(answer, data=False, reason=f"output {j} was seen with other data")
        if by_event:
            recorded.remove(event)
    return msgspec.structs.replace(answer, timely=True, data=True, needs_concurrency=concurrency)
