"""The reference device: its virtual clock, its gates and queues, and how faults are put on it."""

from __future__ import annotations

import pytest

from conformance.backends.api import EventFlags, Request
from conformance.backends.reference import ReferenceBackend, ReferenceSession
from conformance.backends.reference import faults as device_faults
from conformance.backends.reference.device import Device
from conformance.backends.reference.faults import hooks_of, make_device
from conformance.errors import UsageError
from conformance.faults import DECOYS, FAULTS, fault_of
from conformance.numbers import Numbers
from probes.notation import parse
from probes.program import Open, Record, Sync, SyncDevice, SyncStream, Wait, WaitStream, is_host

CORE = "S: gate g1, fill x 1, copy x -> h, record e\nT: gate g2, record f\nS: wait f, gate g3"


def session(text: str, *faults: str, limit: float = 1.9, flags: EventFlags = EventFlags.DEFAULT) -> ReferenceSession:
    """A session of the reference backend that has queued the device operations of ``text``."""
    return on(ReferenceBackend(faults), text, limit=limit, flags=flags)


def on(
    backend: ReferenceBackend, text: str, *, limit: float = 1.9, flags: EventFlags = EventFlags.DEFAULT
) -> ReferenceSession:
    program = parse(text)
    made = backend.session(
        Request(
            streams=program.streams,
            events=program.events,
            gates=program.gates,
            buffers=program.buffers,
            flags=flags,
            gate_limit=limit,
        )
    )
    for step in program.steps:
        if isinstance(step, Open):
            made.open(step.gate)
        elif not is_host(step):
            made.issue(step)  # type: ignore[arg-type]  # not a host step
    return made


def device(text: str, *faults: str, order: tuple[str, ...] = (), limit: float = 1.9) -> Device:
    """A bare device that has queued the device operations of ``text``, and opened its gates."""
    program = parse(text)
    made = make_device(faults)(order or program.streams, limit)
    for step in program.steps:
        if isinstance(step, Open):
            made.open(step.gate)
        elif not is_host(step):
            made.issue(step)  # type: ignore[arg-type]  # not a host step
    return made


# ---------------------------------------------------------------------- time and gates


def test_time_passes_only_in_pause() -> None:
    backend = ReferenceBackend()
    made = on(backend, CORE)
    start = backend.clock.now()
    for _ in range(100):
        made.query("e")
        made.read("h")
        made.ended("g1")
    made.open("g1")
    assert backend.clock.now() == start
    backend.clock.pause(0)
    assert backend.clock.now() > start


def test_pauses_reach_a_deadline_in_few_looks_and_never_skip_a_window() -> None:
    backend = ReferenceBackend()
    on(backend, CORE)
    start, polls = backend.clock.now(), 0
    while backend.clock.now() - start < 1.0:
        before = backend.clock.now()
        backend.clock.pause(polls)
        assert backend.clock.now() - before < Numbers().window
        polls += 1
    assert polls < 200


def test_clock_never_goes_back_between_sessions() -> None:
    backend = ReferenceBackend()
    times = []
    for _ in range(3):
        made = on(backend, CORE)
        backend.clock.pause(20)
        times.append(backend.clock.now())
        made.close()
        times.append(backend.clock.now())
    assert times == sorted(times)


def test_gate_holds_until_it_is_opened() -> None:
    made = session(CORE)
    assert (made.query("e"), made.read("h"), made.ended("g1")) == (False, 0, False)
    made.open("g1")
    assert (made.query("e"), made.read("h"), made.ended("g1")) == (True, 1, True)
    assert not made.ended("g2")
    assert not made.query("f")


def test_gate_limit_ends_a_gate_and_says_so() -> None:
    backend = ReferenceBackend()
    made = on(backend, CORE, limit=1.9)
    start = backend.clock.now()
    while backend.clock.now() - start < 1.8:
        backend.clock.pause(20)
    assert not made.ended("g1")
    assert not made.query("e")
    while backend.clock.now() - start < 2.0:
        backend.clock.pause(20)
    assert made.query("e")
    assert (made.ended("g1"), made.ended("g2")) == (True, True)
    assert not made.ended("g3")  # it stands behind a wait and has only now begun to hold


def test_gate_limit_counts_from_when_the_gate_begins_to_hold() -> None:
    made = device("S: gate g1, gate g2, record e", limit=1.0)
    made.advance(0.9)
    made.open("g1")
    made.advance(0.9)
    assert "g2" not in made.gates_ended
    assert not made.query("e")
    made.advance(0.2)
    assert "g2" in made.gates_ended
    assert made.query("e")


def test_slow_copy_ends_when_its_gate_opens() -> None:
    made = session("S: fill x 1, copy x -> h until g1, record e")
    assert (made.query("e"), made.read("h")) == (False, 0)
    made.open("g1")
    assert (made.query("e"), made.read("h")) == (True, 1)


def test_slow_devices_take_their_time() -> None:
    text = "S: gate g1, fill x 1, copy x -> h, record e"
    for fault, operation in (("slow-device", 2e-3), ("very-slow-device", 0.3)):
        made = device(text, fault)
        made.open("g1")
        assert not made.query("e")
        made.advance(2.5 * operation)
        assert (made.read("h"), made.query("e")) == (1, False)  # two of the three operations are over
        made.advance(operation)
        assert made.query("e")
    clean = device(text)
    clean.open("g1")
    assert clean.query("e")


# ---------------------------------------------------------------------- calls that block


@pytest.mark.parametrize(
    ("fault", "text", "op"),
    [
        ("wait-blocks-host", "S: gate g1, record e", Wait(stream="U", event="e")),
        ("wait-blocks-host", "S: gate g1, record e", WaitStream(stream="U", other="S")),
        ("record-blocks-host", "S: gate g1", Record(stream="S", event="d")),
    ],
)
def test_a_blocking_call_returns_after_the_deadline(fault: str, text: str, op: Wait | WaitStream | Record) -> None:
    held = device(text, fault)
    held.issue(op)
    assert held.clock >= Numbers().deadline  # the gate's limit let it go
    assert held.gates_ended == {"g1"}
    for free in (device(text + "\nhost: open g1", fault), device(text)):
        free.issue(op)
        assert free.clock == 0.0


def test_dropping_a_pending_event_blocks_only_with_its_fault() -> None:
    for faults, blocked in (((), False), (("destroy-blocks",), True)):
        made = device(CORE, *faults)
        made.destroy("e")
        assert (made.clock >= Numbers().deadline) is blocked


def test_a_call_that_nothing_lets_go_returns_in_the_end() -> None:
    made = device("S: record e", "lost-event", "destroy-blocks")
    made.destroy("e")
    assert made.clock >= Numbers().deadline


@pytest.mark.parametrize("call", [Sync(event="e"), SyncStream(stream="S"), SyncDevice()])
def test_synchronizing_calls_return_when_their_work_is_done(call: Sync | SyncStream | SyncDevice) -> None:
    made = session("S: gate g1, record e")
    waiter = made.start(call)
    assert not waiter.returned
    made.open("g1")
    assert waiter.returned


# ---------------------------------------------------------------------- queues and handles


def test_queues_are_shared_in_the_order_of_first_use() -> None:
    made = device("S: gate g\nT: record t\nU: record u\nV: record v", "queues-2")
    assert (made.query("t"), made.query("u"), made.query("v")) == (True, False, True)  # U shares S's queue
    # A control that leaves T out keeps its program's order, and so its queues.
    control = device("S: gate g\nU: record u\nV: record v", "queues-2", order=("S", "T", "U", "V"))
    assert (control.query("u"), control.query("v")) == (False, True)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 32])
def test_any_number_of_queues(count: int) -> None:
    text = "S0: gate g\n" + "\n".join(f"S{i}: record e{i}" for i in range(1, 40))
    made = device(text, f"queues-{count}")
    assert {i for i in range(1, 40) if not made.query(f"e{i}")} == set(range(0, 40, count)) - {0}


@pytest.mark.parametrize("name", ["queues-0", "queues-", "queues-x", "queues-01"])
def test_bad_number_of_queues(name: str) -> None:
    with pytest.raises(UsageError, match=f"unknown fault '{name}'"):
        make_device((name,))


def test_aliased_streams_have_equal_handles_and_one_order() -> None:
    text = "S: gate g\nT: record e\nU: record f"
    handles = session(text, "aliased-streams").handles()
    assert handles["S"] == handles["T"] != handles["U"]
    assert len(set(session(text).handles().values())) == 3
    made = device(text, "aliased-streams")
    assert (made.query("e"), made.query("f")) == (False, True)


# ---------------------------------------------------------------------- faults


def test_every_fault_of_the_catalogue_is_known_to_the_device() -> None:
    for name in (*FAULTS, *DECOYS, "queues-1", "queues-7"):
        hooks = hooks_of(name)
        assert hooks, name
        assert all(hasattr(Device, hook) for hook in hooks), name  # a hook misspelt would be a clean device


def test_every_fault_of_the_device_is_in_the_catalogue() -> None:
    assert [name for name in device_faults.FAULTS if fault_of(name) is None and name not in DECOYS] == []


def test_faults_can_be_combined() -> None:
    text = "S: gate g1, record e\nT: wait e, record d"
    assert not device(text).query("d")
    assert device(text, "wait-dropped").query("d")
    assert not device(text, "wait-dropped", "queues-1").query("d")  # one queue holds it all the same


@pytest.mark.parametrize(
    "pair",
    [
        ("late-next-wait", "late-idle"),
        ("aliased-streams", "queues-2"),
        ("queues-2", "aliased-streams"),
        ("queues-2", "queues-3"),
        ("wait-dropped", "wait-dropped"),
    ],
)
def test_faults_on_one_hook_clash(pair: tuple[str, str]) -> None:
    with pytest.raises(UsageError) as caught:
        ReferenceBackend(pair)
    message = str(caught.value)
    assert "\n" not in message
    assert all(name in message for name in pair)
    for name in pair:
        ReferenceBackend((name,))  # each alone is accepted


def test_unknown_fault_names_its_neighbours() -> None:
    with pytest.raises(UsageError, match="unknown fault 'late-nextwait'; did you mean late-next-wait"):
        ReferenceBackend(("late-nextwait",))


LATE = [name for name in device_faults.FAULTS if name.startswith("late-") and name in FAULTS]


@pytest.mark.parametrize("name", ["late-next-wait", "late-any-wait", "late-idle", "late-sync", "late-never"])
def test_the_suffix_delays_device_waits_too(name: str) -> None:
    text = CORE.replace("\nT:", "\nU: wait e, record d\nT:") + "\nhost: open g1"
    for fault, device_waits in ((name, True), (f"{name}-device", False)):
        made = device(text, fault)
        assert not made.query("e")
        assert made.query("d") is (device_waits and name != "late-sync")  # late-sync delays d itself as well


def test_late_device_wait_is_late_next_wait_device() -> None:
    assert hooks_of("late-device-wait").keys() == hooks_of("late-next-wait-device").keys()
    text = CORE.replace("\nT:", "\nU: wait e, record d\nT:") + "\nhost: open g1"
    for fault in ("late-device-wait", "late-next-wait-device"):
        made = device(text, fault)
        assert (made.query("e"), made.query("d")) == (False, False)
        made.open("g2")
        assert (made.query("e"), made.query("d")) == (True, True)


@pytest.mark.parametrize("name", ["wait-dropped-device", "late-blocking-sync-device", "queues-2-device"])
def test_the_suffix_needs_a_late_publication(name: str) -> None:
    with pytest.raises(UsageError, match=f"unknown fault '{name}'"):
        hooks_of(name)


@pytest.mark.parametrize(
    ("fault", "published_by"),
    [
        ("late-next-wait", "g2"),
        ("late-any-wait", "g3"),
        ("late-idle", "g4"),
        ("late-sync", "sync"),
        ("late-never", "nothing"),
        ("late-next-wait-queue", "g2"),
        ("lost-event", "nothing"),
    ],
)
def test_what_publishes_a_late_event(fault: str, published_by: str) -> None:
    text = "S: gate g1, record e\nT: gate g2, record f\nS: wait f\nU: gate g3, record c\nS: wait c, gate g4"
    made = device(text, fault)
    assert not made.query("e")
    made.open("g1")
    assert not made.query("e")
    seen = "nothing"
    for gate in ("g2", "g3", "g4"):
        made.open(gate)
        seen = gate if seen == "nothing" and made.query("e") else seen
    made.flush()
    assert (seen if seen != "nothing" else "sync" if made.query("e") else "nothing") == published_by


def test_late_faults_delay_synchronize_as_they_delay_query() -> None:
    for name in LATE:
        made = device(CORE + "\nhost: open g1", name)
        made.blocking = frozenset({"e"})
        assert not made.synchronize("e"), name
        assert made.query("e") is (name == "late-blocking-sync"), name


def test_blocking_sync_is_late_only_on_blocking_events() -> None:
    for flags, late in ((EventFlags.BLOCKING, True), (EventFlags.DEFAULT, False), (EventFlags.TIMING, False)):
        made = session(CORE + "\nhost: open g1", "late-blocking-sync", flags=flags)
        assert made.start(Sync(event="e")).returned is not late
        assert made.query("e")


def test_faults_keep_to_their_own_ground() -> None:
    recorded = "S: gate g1, record e\nT: wait n, record d\nU: wait-stream S, record u"
    assert device(recorded, "query-flickers").query("n")  # never recorded: it does not flicker
    assert device(recorded, "query-flickers").query("n")
    pends = device(recorded, "never-recorded-pends")
    assert (pends.query("n"), pends.synchronize("n"), pends.query("d")) == (False, False, True)
    blocks = device(recorded, "never-recorded-blocks")
    assert (blocks.query("n"), blocks.query("d")) == (True, False)
    dropped = device(recorded, "wait-stream-dropped")
    assert dropped.query("u")
    assert not device(recorded + "\nV: wait e, record v", "wait-stream-dropped").query("v")
    kept = device(recorded, "destroy-drops-waits")
    kept.destroy("e")
    assert not kept.query("u")  # a wait-stream's own event is not destroyed
