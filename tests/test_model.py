"""The oracle: hand cases of the specification, its theorems, and its agreement with the reference device."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import EXAMPLES, programs, queued

from conformance.backends.reference.device import Device
from conformance.backends.reference.faults import make_device
from conformance.model import Model, Obligation, host_points
from probes.notation import parse
from probes.program import Copy, Destroy, DeviceOp, Fill, Open, Program, Step, is_host

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

PEND, MUST, SHOULD, NEVER = Obligation.PEND, Obligation.MUST, Obligation.SHOULD, Obligation.NEVER

several = settings(
    deadline=None, derandomize=True, max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow], database=None
)

#: docs/rules.md 9, "Case core", in its issue order.
CORE = """
S: gate g1, copy x -> h, record e
U: wait e, record d
T: gate g2, record f
S: wait f, gate g3, fill y 1
"""
#: The same graph with T's gate first: a different claim.
GATE_FIRST = """
T: gate g2
S: gate g1, copy x -> h, record e
U: wait e, record d
T: record f
S: wait f, gate g3, fill y 1
"""
RE_RECORD = """
S: gate g1, record e
T: wait e, fill y 7, copy y -> h, record d
S: gate g2, record e
"""


def model_of(text: str, *opened: str) -> Model:
    """The model of a text, its gates opened afterwards."""
    return fed(parse(text).steps, opened)


def fed(steps: Iterable[Step], opened: Iterable[str] = ()) -> Model:
    """The model of these steps, with these gates opened afterwards."""
    model = Model()
    for number, step in enumerate([*steps, *(Open(gate=gate) for gate in opened)]):
        model.feed(step, number)
    return model


def owed(model: Model, *events: str) -> tuple[Obligation, ...]:
    """What is demanded of each event."""
    return tuple(model.obligation(event) for event in events)


def done_on(model: Model, stream: str) -> bool:
    """Is everything on the stream in Done*?"""
    return all(model.is_done(node) for node in model.nodes if node.stream == stream)


@pytest.mark.parametrize(
    ("opened", "expected", "idle"),
    [
        ((), (PEND, PEND, PEND), False),
        (("g1",), (MUST, MUST, PEND), False),
        (("g2",), (PEND, PEND, SHOULD), False),
        (("g1", "g2"), (MUST, MUST, MUST), False),
        (("g1", "g2", "g3"), (MUST, MUST, MUST), True),
    ],
)
def test_core(opened: tuple[str, ...], expected: tuple[Obligation, ...], idle: bool) -> None:
    for order in itertools.permutations(opened):
        model = model_of(CORE, *order)
        assert owed(model, "e", "d", "f") == expected
        assert done_on(model, "S") is idle


def test_issue_order_decides_must_or_should() -> None:
    assert owed(model_of(GATE_FIRST, "g1"), "e", "d", "f") == (SHOULD, SHOULD, PEND)
    assert owed(model_of(GATE_FIRST, "g1", "g2"), "e", "d", "f") == (MUST, MUST, MUST)
    # A gate on a stream that shares nothing with the event counts too: one queue may hold them all.
    assert owed(model_of("Z: gate g\nS: record e"), "e") == (SHOULD,)
    assert owed(model_of("S: record e\nZ: gate g"), "e") == (MUST,)


def test_rerecord() -> None:
    closed = model_of(RE_RECORD)
    assert owed(closed, "e", "d") == (PEND, PEND)
    first = model_of(RE_RECORD, "g1")  # the wait obeys the first record, the event speaks of the second
    assert owed(first, "e", "d") == (PEND, MUST)
    assert first.tokens(first.current["d"]) == {"h": 7}
    assert owed(model_of(RE_RECORD, "g2"), "e", "d") == (PEND, PEND)
    assert owed(model_of(RE_RECORD, "g1", "g2"), "e", "d") == (MUST, MUST)


def test_never_recorded() -> None:
    model = model_of("S: gate g\nT: wait n, record d")
    assert owed(model, "n", "d") == (NEVER, SHOULD)
    # A wait binds when it is issued: a record made afterwards does not hold it.
    later = model_of("T: wait n, record d\nS: gate g, record n")
    assert owed(later, "n", "d") == (PEND, MUST)


def test_wait_stream_is_record_and_wait() -> None:
    text = "S: gate g1\nT: wait-stream S, record d\nS: gate g2"
    assert owed(model_of(text), "d") == (PEND,)
    assert owed(model_of(text, "g1"), "d") == (MUST,)  # nothing of S queued later


def test_slow_copy_holds_what_captures_it() -> None:
    text = "S: fill x 1, copy x -> h until g1, record e"
    assert owed(model_of(text), "e") == (PEND,)
    model = model_of(text, "g1")
    assert owed(model, "e") == (MUST,)
    assert model.tokens(model.current["e"]) == {"h": 1}


def test_destroy_keeps_waits() -> None:
    model = model_of("S: gate g1, record e\nU: wait e, record d\nhost: destroy e")
    assert owed(model, "d") == (PEND,)


def test_token_that_something_else_writes_proves_nothing() -> None:
    model = model_of("S: fill x 1, copy x -> h, copy x -> hs, record e\nT: fill y 2, copy y -> h")
    assert model.tokens(model.current["e"]) == {"hs": 1}


def test_token_is_what_the_copy_read() -> None:
    model = model_of("S: fill x 1, copy x -> y, fill x 2, copy y -> h, record e")
    assert model.tokens(model.current["e"]) == {"h": 1}


def test_host_points() -> None:
    steps = parse("S: gate g1, record e\nhost: open g1, sync e\nS: record e\nhost: sync-device").steps
    assert host_points(steps) == [2, 3, 4, 5, 6]
    assert host_points(parse("host: sync-device\nS: record e").steps) == [0, 1]
    assert host_points(parse("S: record e").steps) == []


@several
@given(queued(), st.data())
def test_append_invariance(queue: tuple[tuple[DeviceOp, ...], tuple[str, ...]], data: st.DataObject) -> None:
    """Theorem 1: what is queued later changes nothing about what was queued before, whatever is open."""
    ops, gates = queue
    cut = data.draw(st.integers(0, len(ops)))
    opened = gates[: data.draw(st.integers(0, len(gates)))]
    before, after = fed(ops[:cut], opened), fed(ops, opened)
    for old, new in zip(before.nodes, after.nodes, strict=False):  # the shorter is the beginning
        assert before.obligation_of(old) is after.obligation_of(new)


@several
@given(queued())
def test_monotony(queue: tuple[tuple[DeviceOp, ...], tuple[str, ...]]) -> None:
    """Lemma 2: opening a gate takes nothing back."""
    ops, gates = queue
    done, serial = 0, set[int]()
    for count in range(len(gates) + 1):
        model = fed(ops, gates[:count])
        serial_now = {node.index for node in model.nodes if model.is_serial(node)}
        assert done & ~model.done == 0
        assert serial <= serial_now
        assert all(model.is_done(model.nodes[index]) for index in serial_now)
        done, serial = model.done, serial_now
    assert serial == set(range(len(model.nodes)))  # all gates open: everything is done on any device


def step_through(program: Program, *devices: Device) -> Iterable[Model]:
    """Feed the model and the devices alike; yields the model after each step."""
    model = Model()
    for number, step in enumerate(program.steps):
        model.feed(step, number)
        for device in devices:
            if isinstance(step, Open):
                device.open(step.gate)
            elif isinstance(step, Destroy):
                device.destroy(step.event)
            elif not is_host(step):
                device.issue(step)  # type: ignore[arg-type]  # not a host step
        yield model


@several
@given(programs())
def test_clean_device_does_what_the_model_says(program: Program) -> None:
    device = Device(program.streams)
    finals = final_values(program)
    for model in step_through(program, device):
        assert [task.done for task in device.tasks] == [model.is_done(node) for node in model.nodes]
        for event in program.events:
            complete = model.obligation(event) is not PEND
            assert (device.query(event), device.synchronize(event)) == (complete, complete)
            if complete and event in model.current:
                tokens = model.tokens(model.current[event])
                assert tokens == {buffer: device.read(buffer) for buffer in tokens}
        for stream in program.streams:
            assert device.query_stream(stream) == device.synchronize_stream(stream) == done_on(model, stream)
        for node in model.nodes:
            if node.kind == "copy" and node.buffer in finals:
                assert model.token(node) == finals[node.buffer]
                assert device.read(node.buffer) == (finals[node.buffer] if model.is_done(node) else 0)


def final_values(program: Program) -> dict[str, int]:
    """What each host buffer holds in the end, by running the operations one after the other."""
    memory: dict[str, int] = {}
    for step in program.steps:
        if isinstance(step, Copy):
            memory[step.target] = memory.get(step.source, 0)
        elif isinstance(step, Fill):
            memory[step.buffer] = step.value
    return {buffer: memory.get(buffer, 0) for buffer in program.host_buffers}


@several
@given(programs(), st.integers(1, 4))
def test_sandwich(program: Program, queues: int) -> None:
    """Theorem 2: any number of in-order queues does all of Serial and nothing outside Done*."""
    device = make_device((f"queues-{queues}",))(program.streams)
    for model in step_through(program, device):
        for node, task in zip(model.nodes, device.tasks, strict=True):
            assert model.is_serial(node) <= task.done <= model.is_done(node)
            assert queues > 1 or task.done == model.is_serial(node)  # one queue is the lower bound itself


def everything_of(found: Sequence[Program]) -> set[str]:
    """The kinds of steps in these programs."""
    return {type(step).__name__ for program in found for step in program.steps}


def test_generated_programs_use_everything() -> None:
    """A property over programs that never wait or re-record would say little."""
    found: list[Program] = []

    @settings(several, max_examples=200)
    @given(programs())
    def collect(program: Program) -> None:
        found.append(program)

    collect()
    kinds = everything_of(found)
    assert {"Gate", "Fill", "Copy", "Record", "Wait", "WaitStream", "HostFn", "Open", "Destroy", "Elapsed"} <= kinds
    assert {"Sync", "SyncStream", "SyncDevice", "QueryStream", "Read"} <= kinds
    finals = [fed(program.steps) for program in found]
    nodes = [node for model in finals for node in model.nodes]
    assert any(n.kind == "wait" and n.bound is None for n in nodes)
    assert any(n.kind == "copy" and n.gate for n in nodes)
    assert any(
        model.current[n.event or ""] is not n
        for model in finals
        for n in model.nodes
        if n.kind == "record" and not n.temporary
    )
    seen = {model.obligation_of(node) for model in finals for node in model.nodes}
    assert seen == {PEND, MUST, SHOULD}
