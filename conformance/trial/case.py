"""Runs one case: repetitions, and for a late event its proof. Source: docs/rules.md 2, "Rate"."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Final

from conformance.backends.api import Backend, EventFlags, Opinion
from conformance.errors import DeviceError, HarnessError, Unsupported
from conformance.execution import Look, Outcome, Setting, execute
from conformance.judgement.judge import judge
from conformance.judgement.statements import CONCURRENCY, Statement, stronger
from conformance.judgement.tokens import PATIENCE
from conformance.ladder.mechanism import explain, unwalked
from conformance.model import Model, Obligation, host_points
from conformance.trial import lag
from conformance.trial.controls import ControlRunner, own_control
from conformance.trial.form import form_of_step, read_form
from conformance.trial.proof import WITH_FORM, Proof
from conformance.trial.second_opinion import ask
from conformance.trial.state import RunState
from probes.notation import parse
from probes.probe import Case, Probe
from probes.program import Open, Program, Record, SyncDevice, SyncStream
from probes.publication import two_waits_text
from reports.latency import bucket
from reports.records import Form, Mechanism, Verdict

#: Repetitions of something that this device does not show at all: each one waits in vain.
IN_VAIN: Final = 3

#: Times that a repetition is done again because a gate ended by itself (the host was held up, say).
AGAIN: Final = 3

#: Seconds for which a gate that only time ends is closed.
TIMED: Final = 0.2

#: Observations that rest on the host's clock alone, before they are a finding.
STEADY: Final = 3

#: Reasons for which an event that was owed and not seen gives no finding; the ladder is walked for them too.
UNEXPLAINED: Final = frozenset({"control-late", "not-executed", "no-witness", "gate-expired"})

#: Failing repetitions that are kept whole.
KEPT: Final = 5


@dataclass(slots=True)
class Repetition:
    """One run of the program, judged."""

    number: int
    hold: float
    looks: list[Look]
    statements: dict[str, Statement]  # clause -> the strongest


@dataclass(slots=True)
class Trial:
    """Everything that came of one case."""

    probe: Probe
    case: Case
    program: Program
    setting: Setting
    repetitions: int = 0
    verdicts: dict[str, Counter[Verdict]] = field(default_factory=dict)
    strongest: dict[str, Statement] = field(default_factory=dict)
    proofs: dict[str, Proof] = field(default_factory=dict)
    kept: dict[int, tuple[Repetition, str]] = field(default_factory=dict)
    slowest: tuple[float, Repetition] | None = None
    lags: list[float] = field(default_factory=list)  # seconds until the subject was seen, per repetition
    control_lags: list[float] = field(default_factory=list)
    latency: Counter[str] = field(default_factory=Counter)  # by bucket: reports.latency
    lag: Counter[str] = field(default_factory=Counter)
    owed: tuple[int, dict[str, int]] | None = None
    missing: str = ""  # the capability that the backend lacks, with the call
    error: str = ""  # what the device raised
    form: Form | None = None
    opinion: Opinion | None = None  # of the layer below, once a late event is proved
    mechanism: Mechanism | None = None
    seconds: float = 0.0
    window: float = 0.0


def run_case(backend: Backend, probe: Probe, case: Case, state: RunState) -> Trial:
    """Run a case to its verdict."""
    started = time.perf_counter()
    setting = Setting(observe=case.observe, flags=EventFlags(case.flags), families=case.families)
    setting = replace(setting, second_gate=case.second_gate)
    program = case.program
    setting = replace(setting, order=program.streams)
    trial = Trial(probe=probe, case=case, program=program, setting=setting)
    for capability in case.needs:
        if (reason := backend.unsupported(capability)) is not None:
            trial.missing = f"{capability}: {reason}"
            return trial
    failures: tuple[type[Exception], ...] = (DeviceError, *backend.vendor_errors)
    try:
        _repeat(backend, trial, state)
    except Unsupported as error:
        # A capability is missing from the first repetition on, or it is no lack of one.
        trial.missing, trial.error = ("", str(error)) if trial.repetitions else (str(error), "")
    except failures as error:
        trial.error = " ".join(f"{type(error).__name__}: {error}".split())
    if lag.CLAUSE in probe.expected(case) and trial.repetitions:
        late = any(s.late is not None or s.reason == "not-repeated" for s in trial.strongest.values())
        found = lag.statement(trial.lags, trial.control_lags, late=late)
        trial.strongest[lag.CLAUSE] = found
        trial.verdicts[lag.CLAUSE] = Counter({found.verdict: len(trial.lags)})
    if backend.gate().assurance == "causal" and not trial.error:
        _explain(backend, trial, state)
    trial.seconds = time.perf_counter() - started
    return trial


def _repeat(backend: Backend, trial: Trial, state: RunState) -> None:
    numbers = state.looking
    trial.window = 0.0 if backend.clock.virtual else numbers.pend_window
    if backend.gate().assurance == "timed":
        # Only time ends such a gate, so no verdict can rest on it: one look, for what it shows, and no proof.
        timed = replace(numbers, gate_limit=TIMED, deadline=TIMED, concurrency=TIMED)
        glance = ControlRunner(backend, trial.setting, timed, once_only=True)
        _one(backend, trial, glance, RunState(timed, proved=True), TIMED, again=1)
        return
    # Where every event is late whatever stands behind it, only who asks about that needs more than one look.
    once = state.once or (state.live and not WITH_FORM & set(trial.probe.clauses))
    controls = ControlRunner(backend, trial.setting, numbers, once_only=once, after_live=state.live)
    if not once and (control := own_control(trial.program, trial.probe.subject)) is not None:
        controls.run(control, trial.setting.observe, stop_when_late=True)
    hold = state.first_hold
    proofs = trial.proofs
    while True:
        before = dict(controls.latest)
        repetition = _one(backend, trial, controls, state, hold)
        if any(s.reason == "not-repeated" for s in repetition.statements.values()):
            return
        for clause, statement in repetition.statements.items():
            if statement.late is not None and clause not in proofs:
                nudged = {SyncStream, SyncDevice} <= {type(step) for step in trial.program.steps}
                proofs[clause] = Proof(clause, numbers, state.holds, nudged, before=trial.repetitions - 1)
        for clause, proof in proofs.items():
            found = repetition.statements.get(clause)
            end = _reached_end(trial.program, repetition.looks)
            late = found if found and found.late else None
            proof.take(hold, late, before, trial.setting.observe, end)
            if late is None and any(s.late is not None for s in repetition.statements.values()):
                proof.idle += 1  # another clause is late instead
        open_proofs = [proof for proof in proofs.values() if not (proof.complete or proof.given_up)]
        late_now = [proof for proof in open_proofs if proof.idle == 0]
        if proofs and not open_proofs:
            break
        if (
            not open_proofs
            and not _unsteady(trial)
            and _enough(trial, repetition, numbers.repeat, 1 if state.live else IN_VAIN)
        ):
            return
        hold = (late_now or open_proofs)[0].next_hold if open_proofs else state.first_hold
    _after_proof(backend, trial, state)


def _after_proof(backend: Backend, trial: Trial, state: RunState) -> None:
    """Read the form of a proved late event, and let later cases know."""
    complete = {clause for clause, proof in trial.proofs.items() if proof.complete}
    if not complete:
        return
    state.live |= "EVT-LIVE-1" in complete
    proof = trial.proofs[min(complete)]
    hold = min(proof.holds)
    trial.opinion = ask(backend, trial.program, trial.setting, state.numbers, proof.first.event, hold)
    state.live_or_record |= bool(complete & {"EVT-LIVE-1", "EVT-REC-1"})
    if complete & WITH_FORM:
        form_text = trial.case.form_text or two_waits_text()
        if complete & WITH_FORM == {"EVT-LIVE-1"} or form_text == trial.case.text:
            # With nothing to wait for behind it, the event's own program shows what publishes it.
            proof = trial.proofs[min(complete & WITH_FORM)]
            trial.form = form_of_step(proof.first.published_by)
        elif not (state.numbers.quick and state.forms):
            trial.form = read_form(
                backend, parse(form_text), replace(trial.setting, order=()), state.numbers, state.holds
            )
        if trial.form is not None:
            state.forms.add(trial.form)
            state.proved = True


def _explain(backend: Backend, trial: Trial, state: RunState) -> None:
    """Walk the ladder for a late event, once for each way of being late; it changes no verdict."""
    late = {clause: s for clause, s in trial.strongest.items() if s.late is not None}
    unclear = {
        clause: s
        for clause, s in trial.strongest.items()
        if s.verdict is Verdict.INCONCLUSIVE and s.reason in UNEXPLAINED and s.event
    }
    points = host_points(trial.program.steps)
    for clause, statement in (late or unclear).items():
        at = points[statement.late.look if statement.late is not None else statement.look]
        if not _is_owed(trial.program, statement.event, at):
            continue
        form = trial.form.value if trial.form is not None else ""
        way = f"{form}, {trial.setting.observe}" if form else f"{clause}, {statement.reason}"
        if way in state.explained:
            continue
        state.explained.add(way)
        failures: tuple[type[Exception], ...] = (DeviceError, HarnessError, Unsupported, *backend.vendor_errors)
        try:
            trial.mechanism = explain(
                backend, trial.program, trial.setting, state.numbers, event=statement.event, at=at
            )
        except failures as error:
            # What is wrong with the ladder changes no verdict; what is wrong with the device shows in the next case.
            trial.mechanism = unwalked(statement.event, error)
        if trial.mechanism is not None:
            return


def _is_owed(program: Program, event: str, at: int) -> bool:
    """Must the event be complete after so many steps?"""
    model = Model()
    for number, step in enumerate(program.steps[:at]):
        model.feed(step, number)
    return model.obligation(event) is Obligation.MUST


def _one(
    backend: Backend, trial: Trial, controls: ControlRunner, state: RunState, hold: float, *, again: int = AGAIN
) -> Repetition:
    setting = replace(trial.setting, hold=hold, stop_when_late=state.once)
    controls.setting = setting
    looks: list[Look] = []
    strongest: dict[str, Statement] = {}
    for _ in range(again):
        # As long as a token took in a control, and as much again: what is slow is not held back.
        setting = replace(setting, watch=min(2 * controls.needed, state.numbers.harvest))
        looks = execute(backend, trial.program, setting, state.looking)
        strongest = {}
        for statement in judge(trial.program, trial.setting.observe, looks, controls):
            known = strongest.get(statement.clause)
            strongest[statement.clause] = statement if known is None else stronger(known, statement)
        undone = any(statement.reason in ("gate-expired", PATIENCE) for statement in strongest.values())
        if not undone or any(s.verdict is Verdict.NON_CONFORMANT for s in strongest.values()):
            break
    trial.repetitions += 1
    repetition = Repetition(trial.repetitions, hold, looks, strongest)
    _account(trial, repetition)
    for lags, runs in ((trial.lags, [looks]), (trial.control_lags, controls.latest.values())):
        lags += [after for each in runs if (after := lag.first_seen(each, trial.probe.subject)) is not None]
    return repetition


def _account(trial: Trial, repetition: Repetition) -> None:
    failing = False
    for clause, statement in repetition.statements.items():
        trial.verdicts.setdefault(clause, Counter())[statement.verdict] += 1
        known = trial.strongest.get(clause)
        trial.strongest[clause] = statement if known is None else stronger(known, statement)
        failing |= statement.verdict in (Verdict.NON_CONFORMANT, Verdict.INCONCLUSIVE) or statement.held is False
    if repetition.number == 1:
        trial.kept[1] = repetition, "first"
    elif failing and sum(why == "failing" for _, why in trial.kept.values()) < KEPT:
        trial.kept[repetition.number] = repetition, "failing"
    _time(trial, repetition)


def _time(trial: Trial, repetition: Repetition) -> None:
    """Count when the subject was seen: after the host step that made it owed, and after its token."""
    if trial.owed is None:
        trial.owed = _owed(trial.program, trial.probe.subject)
    since, want = trial.owed
    waited, token = 0.0, 0.0  # seconds since the subject was owed; from then to its token
    for number, look in enumerate(repetition.looks[since:]):
        seen = look.events.get(trial.probe.subject)
        if number == 0 and want and all(look.buffers.get(buffer) == value for buffer, value in want.items()):
            token = max(look.arrived.get(buffer, 0.0) for buffer in want)
        if seen is None:
            return
        if seen.after is not None:
            trial.latency[bucket(waited + seen.after)] += 1
            trial.lag[bucket(max(0.0, waited + seen.after - token))] += 1
            if trial.slowest is None or seen.after > trial.slowest[0]:
                trial.slowest = seen.after, repetition
            return
        waited += look.seconds
    if since < len(repetition.looks) and _reached_end(trial.program, repetition.looks):
        trial.latency[bucket(None)] += 1
        trial.lag[bucket(None)] += 1


def _owed(program: Program, event: str) -> tuple[int, dict[str, int]]:
    """From which look on, by index, the event's last record must be complete, and the tokens that it captures."""
    model, fed = Model(), 0
    points = host_points(program.steps)
    last = max(
        (n for n, step in enumerate(program.steps) if isinstance(step, Record) and step.event == event), default=0
    )
    for index, at in enumerate(points):
        for number in range(fed, at):
            model.feed(program.steps[number], number)
        fed = at
        if at > last and model.obligation(event) is Obligation.MUST:
            return index, model.tokens(model.current[event])
    return len(points), {}


def _reached_end(program: Program, looks: list[Look]) -> bool:
    """Was every nudge of the program given? A synchronize that never returns, all gates open, is one too."""
    last = looks[-1].call
    if last is not None and last.outcome is Outcome.BLOCKED:
        left = {step.gate for step in program.steps if isinstance(step, Open)} - looks[-1].ended
        return isinstance(last.step, (SyncStream, SyncDevice)) and not left
    return len(looks) == len(host_points(program.steps))


def _unsteady(trial: Trial) -> bool:
    """Was something seen that rests on the host's clock, and not often enough yet, nor too often not?"""
    return any(
        statement.repeat and failures(trial, clause) < STEADY and trial.repetitions < 2 * STEADY
        for clause, statement in trial.strongest.items()
    )


def failures(trial: Trial, clause: str) -> int:
    """In how many repetitions a clause failed."""
    return trial.verdicts.get(clause, Counter())[Verdict.NON_CONFORMANT]


def _enough(trial: Trial, repetition: Repetition, repeat: int, in_vain: int) -> bool:
    """Were there enough repetitions, or is this device unable to show what the case looks for?"""
    if trial.repetitions >= repeat:
        return True
    if any(statement.repeat for statement in trial.strongest.values()):
        return True  # each one waits for a gate's limit
    vain = any(s.held is False or s.reason == CONCURRENCY for s in repetition.statements.values())
    return vain and trial.repetitions >= in_vain
