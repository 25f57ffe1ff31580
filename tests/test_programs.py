"""Programs as data: their text, what cannot be written, and what makes controls out of them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import EXAMPLES, programs

from conformance import errors
from conformance.model import Model, host_points
from probes.catalogue import all_probes
from probes.notation import ProgramError, digest, parse, print_program
from probes.probe import FLAG_NEEDS, Case, Probe
from probes.program import (
    DEFAULT_STREAM,
    Copy,
    Destroy,
    Elapsed,
    HostFn,
    Nop,
    Open,
    Pause,
    Program,
    QueryStream,
    Record,
    Step,
    Sync,
    Wait,
    WaitStream,
    is_blocking_stream,
    is_far,
    is_high_priority,
    is_host,
    is_host_buffer,
)
from probes.transform import spelled_out, with_other_event, with_plain_streams, without

several = settings(deadline=None, derandomize=True, max_examples=EXAMPLES, database=None)

#: Where the packages lie, for a child that must find them.
ROOT = Path(errors.__file__).parents[1]

EVERYTHING = """
S: gate g1, fill x 12, copy x -> h, copy x -> h2 until g2, record e
T: wait e, wait-stream S, host-fn tick, record f
blocking: host-fn tock until g3
default: record d
host: open g1, sync e, sync-stream S, query-stream T, sync-device, read h, elapsed e f, destroy e
"""

#: Those that a program answers; an experiment's text is only its device part.
PROBES = [probe for probe in all_probes(4).values() if not any(case.experiment for case in probe)]


def model_of(program: Program) -> Model:
    model = Model()
    for number, step in enumerate(program.steps):
        model.feed(step, number)
    return model


@several
@given(programs())
def test_round_trip(program: Program) -> None:
    assert parse(print_program(program)) == program


def test_round_trip_of_everything() -> None:
    assert print_program(parse(EVERYTHING)) == EVERYTHING.strip()


def test_issue_order_is_kept_across_lines() -> None:
    assert parse("S: record e\nS: record f") == parse("S: record e, record f")
    assert digest(parse("S: record e\nT: wait e\nS: record f")) != digest(parse("S: record e, record f\nT: wait e"))


def test_whitespace_and_comments_do_not_matter() -> None:
    plain = parse("S: fill x 1, copy x -> h, record e\nhost: sync e")
    spread = parse("# what it asks\n\n  S:  fill   x 1 ,copy x->h,\trecord e  \n\n   host:sync e\n")
    assert spread == plain
    assert digest(spread) == digest(plain)


def test_a_tab_is_whitespace() -> None:
    assert parse("S: gate\tg1") == parse("S: gate g1")


def test_digest_is_the_same_in_another_process() -> None:
    script = "import sys; from probes.notation import digest, parse; print(digest(parse(sys.stdin.read())))"
    found = {
        subprocess.run(
            [sys.executable, "-c", script],
            input=EVERYTHING,
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert found == {digest(parse(EVERYTHING))}


@pytest.mark.parametrize(
    ("text", "line", "column", "expected"),
    [
        ("gate g1", 1, 1, "expected a stream name or 'host', then ':'"),
        ("S: record e\n  1: wait e", 2, 3, "expected a stream name or 'host', then ':'"),
        ("S: gate", 1, 4, "expected 'gate GATE'"),
        ("S: record e f", 1, 4, "expected 'record EVENT'"),
        ("S: fill x one", 1, 4, "expected 'fill BUFFER NUMBER'"),
        ("S: gate g1, copy x > h", 1, 13, "expected 'copy SOURCE -> TARGET [until GATE]'"),
        ("S: gate g1,   copy x -> h until", 1, 15, "expected 'copy SOURCE -> TARGET [until GATE]'"),
        ("# note\n\nS: record e,, wait e", 3, 13, "expected one of gate, fill, copy, record, wait, wait-stream"),
        ("S: open g1", 1, 4, "expected one of gate, fill, copy"),
        ("host: gate g1", 1, 7, "expected one of open, sync, sync-stream, query-stream"),
        ("host: sync-device now", 1, 7, "expected 'sync-device nothing'"),
        ("host: elapsed e", 1, 7, "expected 'elapsed EVENT EVENT'"),
    ],
)
def test_parse_error_says_where_and_what(text: str, line: int, column: int, expected: str) -> None:
    with pytest.raises(ProgramError) as caught:
        parse(text)
    error = caught.value
    assert (error.line, error.column) == (line, column)
    assert error.expected.startswith(expected)
    assert str(error).startswith(f"line {line}, column {column}: {expected}")


MEANINGLESS = [
    ("S: gate g1\nT: gate g1\nhost: open g1", 2, "gate g1 is queued twice"),
    ("S: gate g1, copy x -> h until g1\nhost: open g1", 1, "gate g1 is queued twice"),
    ("host: open g1\nS: gate g1", 1, "gate g1 is opened before it is queued"),
    ("S: record e\nhost: open g1\nS: record f", 2, "gate g1 is opened before it is queued"),
    ("S: copy x -> x\nhost: sync-device", 1, "x is copied onto itself"),
    ("S: fill h 1\nhost: read h", 1, "h is a host buffer"),
    ("S: wait-stream S\nhost: sync-device", 1, "S waits for itself"),
    ("S: fill x 1\nhost: read x\nS: record e", 2, "x is on the device"),
    ("S: record e\nhost: destroy e\nT: wait e\nhost: sync-device", 3, "event e was destroyed"),
    ("S: record e\nhost: destroy e, sync e\nS: record f", 2, "event e was destroyed"),
    ("S: record e\nhost: destroy e, destroy e\nS: record f", 2, "event e was destroyed"),
    ("S: record e, record f\nhost: destroy f, elapsed e f\nS: record e", 2, "event f was destroyed"),
]


@pytest.mark.parametrize(("text", "what"), [(text, what) for text, _, what in MEANINGLESS])
def test_meaningless_steps_are_refused(text: str, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        parse(text)


def test_meaningless_steps_are_refused_on_their_own_line() -> None:
    found = {}
    for text, _, _ in MEANINGLESS:
        with pytest.raises(ProgramError) as caught:
            parse(text)
        found[text] = caught.value.line
    assert found == {text: line for text, line, _ in MEANINGLESS}


def test_names_in_order() -> None:
    program = parse(EVERYTHING)
    assert program.streams == ("S", "T", "blocking", "default")
    assert parse("T: wait-stream S, record e\nU: wait e").streams == ("S", "T", "U")  # S records before T waits
    assert program.gates == ("g1", "g2", "g3")
    assert program.host_buffers == ("h", "h2")


# ---------------------------------------------------------------------- controls


def kinds_kept(program: Program, control: Program) -> list[bool]:
    return [a == b for a, b in zip(program.steps, control.steps, strict=True)]


def test_without_drops_the_waits_bound_to_a_dropped_record() -> None:
    program = parse("S: record e\nT: wait e\nS: record e\nT: wait e, wait n\nhost: sync-device")
    assert kinds_kept(program, without(program, {0})) == [False, False, True, True, True, True]
    # The second wait does not fall back on the first record: it goes.
    assert kinds_kept(program, without(program, {2})) == [True, True, False, False, True, True]


def test_without_drops_the_opens_of_dropped_gates() -> None:
    program = parse("S: gate g1, copy x -> h until g2, record e\nhost: open g1, open g2, sync e")
    control = without(program, {0, 1})
    assert [type(step) for step in control.steps] == [Nop, Nop, Record, Pause, Pause, type(program.steps[-1])]
    assert control.gates == ()
    assert host_points(control.steps) == host_points(program.steps)
    assert print_program(control) == "S: record e\nhost: sync e"


@several
@given(programs(), st.data())
def test_without_keeps_the_rest_as_it_was(program: Program, data: st.DataObject) -> None:
    dropped = data.draw(st.sets(st.integers(0, max(0, len(program.steps) - 1)))) if program.steps else set[int]()
    control = without(program, dropped)
    kept = kinds_kept(program, control)
    assert not any(kept[index] for index in dropped)
    assert host_points(control.steps) == host_points(program.steps)
    assert all(is_host(a) == is_host(b) for a, b in zip(program.steps, control.steps, strict=True))
    gone = {gate for gate in program.gates if gate not in control.gates}
    assert all(
        kept[index]
        or (isinstance(step, Open) and step.gate in gone)
        or isinstance(step, (Wait, Sync, Destroy, Elapsed))
        for index, step in enumerate(program.steps)
        if index not in dropped
    )
    before = bindings(program)
    assert bindings(control).items() <= before.items()  # no wait obeys another record than it did
    for index, step in enumerate(program.steps):  # and none went whose record stayed
        if isinstance(step, Wait) and not kept[index] and index not in dropped:
            record = before[index]
            assert record is not None
            assert not kept[record]


def bindings(program: Program) -> dict[int, int | None]:
    """For each wait: the step of the record that it obeys."""
    waits = [node for node in model_of(program).nodes if node.kind == "wait" and not node.temporary]
    return {node.step: node.bound.step if node.bound is not None else None for node in waits}


def test_with_other_event() -> None:
    program = parse("S: record e\nT: wait e\nS: record e\nU: wait e")
    control = with_other_event(program, {2}, "other")
    assert print_program(control) == "S: record e\nT: wait e\nS: record other\nU: wait e"
    assert bindings(control) == {1: 0, 3: 0}
    with pytest.raises(ValueError, match="step 1 is no record"):
        with_other_event(program, {1}, "other")


def test_plain_streams_are_no_others_of_the_program() -> None:
    program = parse("blocking: gate g1, record e\ndefault: wait-stream blocking\nS: wait e")
    control = with_plain_streams(program, "blocking")
    assert print_program(control) == "plain0: gate g1, record e\ndefault: wait-stream plain0\nS: wait e"
    assert control.streams == ("plain0", "default", "S")


@several
@given(programs())
def test_spelled_out_means_the_same(program: Program) -> None:
    spelled, origin = spelled_out(program)
    assert not any(isinstance(step, WaitStream) for step in spelled.steps)
    assert len(origin) == len(spelled.steps)
    nodes, others = model_of(program), model_of(spelled)
    assert [(n.kind, n.stream, n.step, n.ancestors, nodes.obligation_of(n)) for n in nodes.nodes] == [
        (n.kind, n.stream, origin[n.step], n.ancestors, others.obligation_of(n)) for n in others.nodes
    ]


# ---------------------------------------------------------------------- the catalogue


def test_catalogue_ids_are_unique() -> None:
    ids = Counter(f"{probe.name}[{case.variant}]" for probe in PROBES for case in probe)
    assert [name for name, count in ids.items() if count > 1] == []


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)
def test_catalogue_cases_are_programs(probe: Probe) -> None:
    for case in probe:
        for text in (case.text, case.form_text):
            assert parse(print_program(parse(text))) == parse(text), case.variant
        assert probe.subject in case.program.events, case.variant


def extra(case: Case) -> set[str]:
    """What a case needs beside what its program shows."""
    return ({"mixed"} if case.families else set()) | ({"second-gate"} if case.second_gate else set())


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)
def test_catalogue_cases_name_what_they_need(probe: Probe) -> None:
    """Too few, and a backend fails where it should say unsupported; too many, and it leaves out what it could run."""
    for case in probe:
        expected = needed(case.program.steps) | set(FLAG_NEEDS[case.flags]) | extra(case)
        assert set(case.needs) == expected, case.variant
        assert needed(parse(case.form_text).steps) <= set(case.needs), case.variant


def needed(steps: tuple[Step, ...]) -> set[str]:
    """The capabilities that a program's own steps use."""
    found: set[str] = set()
    recorded: set[str] = set()
    for step in steps:
        if isinstance(step, Copy):
            found |= {"slow-copy"} if step.until else set()
            found |= {"host-copy"} if is_host_buffer(step.source) else set()
        elif isinstance(step, Record):
            recorded.add(step.event)
        elif isinstance(step, Wait):
            found |= {"unrecorded-event"} - ({"unrecorded-event"} if step.event in recorded else set())
        elif isinstance(step, (WaitStream, QueryStream, HostFn, Elapsed)):
            found.add(
                {"WaitStream": "wait-stream", "QueryStream": "query-stream", "HostFn": "host-fn"}.get(
                    type(step).__name__, "elapsed"
                )
            )
        stream = "" if is_host(step) else step.stream  # type: ignore[union-attr]  # a device operation has one
        found |= {"blocking-stream"} if is_blocking_stream(stream) else set()
        found |= {"priority"} if is_high_priority(stream) else set()
        found |= {"second-device"} if is_far(stream) else set()
        if isinstance(step, Elapsed):
            found |= {"unrecorded-event"} - ({"unrecorded-event"} if {step.start, step.end} <= recorded else set())
        if DEFAULT_STREAM in (getattr(step, "stream", ""), getattr(step, "other", "")):
            found.add("default-stream")
    return found


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)
def test_captured_work_leaves_a_token(probe: Probe) -> None:
    """What shows that the subject's work was done, without asking the event."""
    for case in probe:
        model = model_of(case.program)
        assert model.tokens(model.current[probe.subject]), case.variant
