"""The pooled fast path on a stand-in for torch, and prepared launches on a stand-in driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gate_helpers
import pytest
from gate_helpers import until
from pooled_torch import World

from conformance.backends.gates import GateError
from conformance.backends.reference import ReferenceBackend
from conformance.fuzz.careful import numbers_for
from conformance.fuzz.generate import program_of
from conformance.fuzz.plan import compile_plan
from conformance.fuzz.pooled import PooledScreen
from conformance.fuzz.recipe import SIZES, Choice, Recipe
from conformance.fuzz.session_machine import SessionScreen
from probes.notation import parse

if TYPE_CHECKING:
    from conformance.backends.gates import Gate

built, rig = gate_helpers.built, gate_helpers.rig

RECIPE = Recipe(seed=3, size=SIZES["medium"], flags=("default", "blocking", "timing"))


def pooled(*faults: str) -> tuple[World, Any]:
    world = World(faults)
    screen: Any = PooledScreen(world)  # type: ignore[arg-type]  # as far as it looks
    screen.now = lambda: world.device.clock
    return world, screen


def screened(screen: Any, text: str, choice: Choice | None = None) -> str:
    program, choice = parse(text), choice or Choice()
    plan = compile_plan(program, choice)
    assert plan is not None
    return str(screen.run(plan, lambda: program, choice))


def test_a_right_device_is_right_program_after_program_on_the_same_objects() -> None:
    world, screen = pooled()
    for index in range(150):
        program, choice = program_of(RECIPE, index)
        plan = compile_plan(program, choice)
        assert plan is not None
        assert screen.run(plan, lambda program=program: program, choice) == ""
    tally = screen.tally
    assert tally.programs == 150
    assert min(tally.must, tally.pend, tally.should) > 50
    assert screen.by_hand() > 0.0
    assert all(gate.ended() for gate in screen._gates.values())
    assert world.current is not None


@pytest.mark.parametrize(
    "fault", ["late-next-wait", "late-idle", "wait-dropped", "rerecord-ignored", "sync-noop", "lost-event"]
)
def test_what_is_wrong_is_seen_as_by_a_session_a_program(fault: str) -> None:
    _, screen = pooled(fault)
    backend = ReferenceBackend((fault,))
    slow = SessionScreen(backend, numbers_for(backend))
    anomalies = 0
    for index in range(45):
        program, choice = program_of(RECIPE, index)
        plan = compile_plan(program, choice)
        assert plan is not None
        seen = screen.run(plan, lambda program=program: program, choice)
        # Events that were recorded by earlier programs show more of a record that is ignored, never less.
        assert seen or not slow.run(plan, program, choice)
        anomalies += bool(seen)
    assert anomalies


def test_an_event_of_an_earlier_program_is_no_unrecorded_event() -> None:
    """Where a program waits for an event before it is recorded, the event must be a new one."""
    _, screen = pooled("never-recorded-pends")
    assert screened(screen, "s1: record e1\nhost: query-stream s1") == ""
    assert "never recorded" in screened(screen, "s1: wait e1, record e2\nhost: query-stream s1")
    _, screen = pooled()
    assert screened(screen, "s1: wait e1, record e2\nhost: query-stream s1") == ""


def test_a_dropped_event_is_destroyed_at_once() -> None:
    text = "s1: gate g1, record e1\ns2: wait e1, fill x1 7, copy x1 -> h1, record e2\nhost: destroy e1, open g1"
    _, screen = pooled("destroy-drops-waits")
    assert "early" in screened(screen, text)
    _, screen = pooled()
    for _ in range(3):  # and is there again for the next program
        assert screened(screen, text) == ""


def test_after_an_anomaly_the_gates_are_open_and_the_device_idle() -> None:
    world, screen = pooled("query-always-true")
    assert "early" in screened(screen, "s1: gate g1, record e1\ns2: gate g2, record e2\nhost: open g1, open g2")
    assert all(gate.ended() for gate in screen._gates.values())
    assert all(task.done for task in world.device.tasks)
    assert world.current is world.default


# ---------------------------------------------------------------------- prepared launches


def test_a_prepared_gate_holds_opens_and_is_used_again(rig: Any) -> None:
    made = rig()
    ladder = made.ladder(kind="kernel")
    gate: Gate = ladder.take(1)[0]
    stream, event = made.module.Stream(), made.module.Event()
    close = gate.prepared(stream, 30.0)  # type: ignore[attr-defined]  # a KernelGate
    for _ in range(3):
        close()
        event.record(stream)
        assert until(gate.entered)
        assert gate.closed()
        assert not event.query()
        with pytest.raises(GateError, match="in use"):
            close()
        gate.open()
        assert until(event.query)
        assert gate.ended()
        assert not gate.expired()
    assert ladder.close()


def test_a_prepared_gate_ends_at_its_limit_and_an_open_one_shows_that_a_stream_is_idle(rig: Any) -> None:
    made = rig()
    ladder = made.ladder(kind="kernel")
    held, fence = ladder.take(2)
    stream = made.module.Stream()
    close, tail = held.prepared(stream, 30.0), fence.prepared(stream, 30.0, opened=True)
    close()
    tail()
    assert until(held.entered)
    assert not fence.ended()  # what stands before it is not done
    held.open()
    assert until(fence.ended)
    tail()
    assert until(fence.ended)  # and nothing holds it by itself
    held.prepared(stream, 0.05)()
    assert until(held.expired)
    assert ladder.close()
