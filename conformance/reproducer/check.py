"""What a reproducer must check: which host point of the program shows the finding, and what is expected there."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from conformance.errors import UsageError
from conformance.model import Model, Obligation, host_points
from conformance.trial.controls import own_control
from probes.notation import lane_of, parse, print_step
from probes.program import Copy, Elapsed, HostFn, Nop, Pause, is_host, is_host_buffer
from reports.records import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from conformance.model import Node
    from probes.probe import Case
    from probes.program import Program, Step
    from reports.records import HostPoint, Observation, Result

#: Clauses that say more than one look can show: a reproducer would show another clause, or nothing.
NOT_BY_ONE_LOOK: Final = frozenset(
    {"EVT-MONO-1", "EVT-AGREE-1", "EVT-NEVER-1", "STM-ALIAS-1", "STM-QUERY-1", "STM-SYNC-1", "STM-CONC-1", "MEM-VIS-1"}
)

#: Clauses that fail by an event that is not seen.
LATE: Final = frozenset(
    {
        "EVT-INDEP-1",
        "EVT-INDEP-2",
        "EVT-INDEP-3",
        "EVT-LIVE-1",
        "EVT-REC-1",
        "EVT-WAIT-2",
        "EVT-WAIT-4",
        "EVT-WAIT-5",
        "EVT-NEVER-2",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One expectation at one host point."""

    clause: str
    kind: str  # late, early or token
    after: int  # host steps done
    event: str = ""
    buffer: str = ""
    value: int = 0
    tokens: dict[str, int] = field(default_factory=dict)  # the captured work's
    held_by: tuple[str, ...] = ()  # gates that are closed there
    left_out: tuple[int, ...] = ()  # the control: the program without these steps


def check_of(result: Result, case: Case) -> Check:
    """The check that shows a result's finding; for a result without one, the check that its variant makes.

    Raises UsageError for a program that cannot be run stand-alone, and for a finding that one look cannot show.
    """
    program = parse(result.program)
    _runnable(result, program)
    failed = [c.clause for c in result.clauses if c.verdict is Verdict.NON_CONFORMANT]
    shown = [clause for clause in failed if clause not in NOT_BY_ONE_LOOK]
    if failed and not shown:
        raise UsageError(
            f"{result.probe}[{result.variant}]: {failed[0]} is shown by several looks, and a reproducer makes one; "
            "send the report instead"
        )
    for clause in shown:
        for observation in sorted(result.observations, key=lambda o: o.why != "failing"):
            for check in _broken(program, observation, clause):
                return _with_control(check, program, result)
    if shown:
        raise UsageError(f"{result.probe}[{result.variant}]: no observation kept shows {shown[0]}; run the suite again")
    return _with_control(_usual(program, result, case), program, result)


def _runnable(result: Result, program: Program) -> None:
    if result.surface != "vendor":
        raise UsageError(
            f"--variant {result.variant}: a reproducer uses the vendor's API, not the {result.surface} one"
        )
    if result.ring is not None:
        raise UsageError(f"--probe {result.probe}: a pipeline has no reproducer; name the probe 'publication'")
    for step in program.steps:
        if isinstance(step, (HostFn, Elapsed)) or (isinstance(step, Copy) and step.until is not None):
            raise UsageError(f"--probe {result.probe}: torch has no call for '{print_step(step)}'; name another probe")


def _states(program: Program) -> Iterator[tuple[int, int, Model]]:
    """(host steps done, steps done, the model then) at each host point."""
    model, fed = Model(), 0
    for at in host_points(program.steps):
        for number in range(fed, at):
            model.feed(program.steps[number], number)
        fed = at
        yield sum(map(is_host, program.steps[:at])), at, model


def _broken(program: Program, observation: Observation, clause: str) -> Iterator[Check]:
    """What the observation shows broken, in the order in which it was seen."""
    late = clause in LATE
    for point, (done, _, model) in zip(observation.points, _states(program), strict=False):
        if late:
            yield from _late_at(point, done, model, clause)
        else:
            yield from _early_at(point, done, model, clause)


def _late_at(point: HostPoint, done: int, model: Model, clause: str) -> Iterator[Check]:
    for seen in point.events:
        if seen.owed == Obligation.MUST.value and not seen.seen:
            yield _late(seen.event, done, model, clause)


def _late(event: str, done: int, model: Model, clause: str) -> Check:
    closed = {n.gate for n in model.nodes if n.gate is not None and n.gate not in model.opened}
    tokens = model.tokens(model.current[event])
    return Check(clause=clause, kind="late", after=done, event=event, tokens=tokens, held_by=tuple(sorted(closed)))


def _early_at(point: HostPoint, done: int, model: Model, clause: str) -> Iterator[Check]:
    def holding(node: Node) -> tuple[str, ...]:
        return tuple(sorted(n.gate for n in model.closure(node) if n.gate is not None and not model.openable(n)))

    for seen in point.events:
        if seen.owed == Obligation.PEND.value and seen.seen:
            held = holding(model.current[seen.event])
            yield Check(clause=clause, kind="early", after=done, event=seen.event, held_by=held)
    for node in model.nodes:
        buffer = node.buffer or ""
        if node.kind != "copy" or not is_host_buffer(buffer) or model.is_done(node) or not model.telling(node):
            continue
        if point.buffers.get(buffer) == model.token(node):
            value = model.token(node)
            yield Check(clause=clause, kind="token", after=done, buffer=buffer, value=value, held_by=holding(node))


def _usual(program: Program, result: Result, case: Case) -> Check:
    """The first host point at which an event must be complete while a gate is closed; else the first at all."""
    clause = next((c.clause for c in result.clauses if c.clause in LATE), result.clauses[0].clause)
    found: list[Check] = []
    for done, _, model in _states(program):
        for event in sorted(model.current):
            if not event.startswith("~") and model.obligation(event) is Obligation.MUST:
                check = _late(event, done, model, clause)
                if check.held_by:
                    return check
                found.append(check)
    if not found:
        raise UsageError(
            f"{result.probe}[{case.variant}]: no event must be complete in this program; name another probe"
        )
    return found[0]


def _with_control(check: Check, program: Program, result: Result) -> Check:
    """The check with the operations that its control leaves out: that of the finding, else the first that there is."""
    if check.kind != "late":
        return check
    kept: Sequence[Step] = ()
    if result.control is not None:
        kept = parse(result.control.program).steps
    elif (control := own_control(program, check.event)) is not None:
        kept = [step for step in control.steps if not isinstance(step, (Nop, Pause))]
    if not kept:
        return check
    return replace(check, left_out=tuple(_missing(program.steps, kept)))


def _missing(steps: Sequence[Step], kept: Sequence[Step]) -> Iterator[int]:
    """The numbers of the steps that are not among those kept, which are in the same order."""
    rest = iter(kept)
    wanted = next(rest, None)
    for number, step in enumerate(steps):
        if wanted is not None and step == wanted and lane_of(step) == lane_of(wanted):
            wanted = next(rest, None)
        else:
            yield number
