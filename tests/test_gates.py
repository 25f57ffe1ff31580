"""Gates on stand-in drivers: one code path for three tables of names, and what it says when a kind does not work."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import gate_helpers
import pytest
from gate_helpers import DEADLINE, ROOT, RUNNABLE, until

from conformance import errors
from conformance.backends.gates import KINDS, Check, CheckTimes, Gate, GateError, Native, kernel, words
from conformance.backends.gates.kernel import KernelGate, kernel_source
from conformance.backends.gates.sleep import SleepGate
from conformance.backends.vendors import VENDORS

if TYPE_CHECKING:
    from collections.abc import Iterator

built, rig = gate_helpers.built, gate_helpers.rig


# Every kind, every vendor.


@pytest.mark.parametrize("kind", RUNNABLE)
@pytest.mark.parametrize("vendor", VENDORS)
def test_each_kind_holds_opens_and_ends_under_each_table_of_names(rig: Any, vendor: str, kind: str) -> None:
    ladder = rig(vendor).ladder(kind=kind)
    assert ladder.tried == ((kind, "ok"),)
    assert ladder.check.holds
    assert ladder.check.reusable
    assert ladder.check.ended_ms > 0
    assert (ladder.check.release_us is not None) == ladder.causal == (kind != "sleep")
    assert ladder.assurance == ("timed" if kind == "sleep" else "causal")
    assert ladder.close()


def test_the_first_kind_that_works_is_used(rig: Any) -> None:
    ladder = rig().ladder()
    assert (ladder.kind, ladder.tried) == ("kernel", (("kernel", "ok"),))
    assert ladder.native.found["code"] == ("GetCUBIN", "--gpu-architecture=sm_90")
    # A second kind, to cross-check the first.
    assert ladder.attempt("host-function")
    assert ladder.tried == (("kernel", "ok"), ("host-function", "ok"))
    assert [gate.kind for gate in ladder.take(2, "host-function")] == ["host-function"] * 2
    assert ladder.kind == "kernel"


@pytest.mark.parametrize("kind", ["kernel", "wait-value", "host-function"])
def test_gates_of_another_device_are_driven_in_its_context_and_opened_with_all_others(
    rig: Any, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, current, calls, plain = rig(), [0], list[tuple[str, int]](), Native.call

    @contextmanager
    def device(index: int) -> Iterator[None]:
        before, current[0] = current[0], index
        try:
            yield
        finally:
            current[0] = before

    def call(self: Native, role: str, *arguments: object) -> None:
        calls.append((role, current[0]))
        plain(self, role, *arguments)

    monkeypatch.setattr(made.module, "device", device, raising=False)
    monkeypatch.setattr(Native, "call", call)
    ladder = made.ladder(kind=kind)
    near = ladder.take(1)[0]
    assert {index for _, index in calls} == {0}
    calls.clear()
    far, spare = ladder.elsewhere(1, 2)
    stream, event = made.module.Stream(), made.module.Event()
    far.enqueue(stream, 30.0)
    event.record(stream)
    assert calls
    assert {index for _, index in calls} == {1}
    assert current == [0]  # what was current before is so again
    near.enqueue(made.module.Stream(), 30.0)
    assert calls[-1][1] == 0
    assert until(far.closed)
    assert not event.query()
    assert len({near.base, far.base, spare.base}) == 3  # of one store of blocks, which the parent can open
    ladder.open_all()
    assert until(event.query)
    assert ladder.close()


def test_gates_are_independent_and_hold_what_is_behind_them(rig: Any) -> None:
    made = rig()
    ladder = made.ladder()
    first, second = ladder.take(2)
    streams, events = [made.module.Stream() for _ in range(2)], [made.module.Event() for _ in range(2)]
    for gate, stream, event in zip((first, second), streams, events, strict=True):
        assert not gate.closed()
        assert gate.enqueue(stream, 30.0) == 1
        event.record(stream)
    assert until(first.closed)
    assert until(second.closed)
    with pytest.raises(GateError, match=r"the kernel gate is in use \(ticket 1\)"):
        first.enqueue(streams[0])
    second.open()
    assert until(events[1].query)
    assert (second.opened(), second.ended(), second.expired(), second.closed()) == (True, True, False, False)
    assert first.closed()
    assert not events[0].query()
    first.open()
    assert until(events[0].query)
    assert first.enqueue(streams[0], 30.0) == 2
    assert ladder.close()


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_driver_is_asked_itself_about_an_event(rig: Any, vendor: str) -> None:
    made = rig(vendor)
    gate, stream, event = made.gate("kernel"), made.module.Stream(), made.module.Event()
    gate.enqueue(stream, 30.0)
    event.record(stream)
    assert gate.native.query_event(event) is False
    gate.open()
    assert until(lambda: gate.native.query_event(event))


def test_a_new_thread_gets_the_context(rig: Any) -> None:
    made = rig()
    gate, stream = made.gate("kernel"), made.module.Stream()
    tickets: list[int] = []
    thread = threading.Thread(target=lambda: tickets.append(gate.enqueue(stream, 30.0)))
    thread.start()
    thread.join(DEADLINE)
    assert tickets == [1]
    assert until(gate.closed)
    gate.open()


def test_the_kernel_and_the_words_agree() -> None:
    text = kernel_source("#define NOW(t)")
    assert text.startswith("#define NOW(t)\n/*")
    used = {name: int(index) for index, name in re.findall(r"w ?(?:\[|\+ )(\d+)\D.*?/\* ([A-Z]+)", text)}
    assert used == {name: getattr(words, name) for name in ("OPEN", "ENTERED", "EXPIRED", "POLLS", "TICKS", "ENDED")}


def test_importing_gates_imports_no_vendor_package() -> None:
    code = "import sys, conformance.backends.gates; print(sorted({'torch', 'triton', 'numpy'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert found.stdout.strip() == "[]"


# What is wrong.


def test_a_gate_ends_though_the_timer_stands_still(rig: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # How exactly a count of polls keeps a time depends on the machine's load, so the self-check is left out.
    good = Check(
        kind="kernel", ok=True, holds=True, release_us=1.0, limit_ms=1.0, ended_ms=1.0, reusable=True, reason=""
    )
    monkeypatch.setattr(KernelGate, "selfcheck", lambda gate, times=None: good)
    made = rig()
    made.knob("frozen")
    ladder = made.ladder(kind="kernel")
    assert ladder.native.rates is not None
    assert ladder.native.rates[0] == 0.0
    assert ladder.native.rates[1] > 0
    (gate,) = ladder.take(1)
    gate.enqueue(made.module.Stream(), 0.05)
    assert until(gate.ended)
    assert gate.expired()


def test_a_launch_that_blocks_is_refused(rig: Any) -> None:
    made = rig()
    made.knob("block")
    with pytest.raises(GateError, match="its launch returns only after its end"):
        made.ladder(kind="kernel")


def test_an_interrupted_calibration_is_not_taken(rig: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = rig()
    launch, uses = KernelGate.launch, [0]

    def slow(gate: KernelGate, *args: Any) -> None:
        launch(gate, *args)
        uses[0] += 1
        if uses[0] == 2:  # the first that is measured: seen closed for a quarter less than it was
            time.sleep(0.005)

    monkeypatch.setattr(KernelGate, "launch", slow)
    ladder = made.ladder(kind="kernel")
    assert ladder.native.rates is not None
    assert ladder.native.rates[0] == pytest.approx(1e9, rel=0.2)
    assert uses[0] > 2


def test_a_calibration_whose_end_was_seen_late_is_not_taken(rig: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made, looks = rig(), [0]

    def held_up() -> None:
        looks[0] += 1
        if looks[0] == 1:  # the first that is measured ends meanwhile
            time.sleep(0.1)

    monkeypatch.setattr(kernel, "yield_interpreter", held_up)
    ladder = made.ladder(kind="kernel")
    assert ladder.native.rates is not None
    assert ladder.native.rates[0] == pytest.approx(1e9, rel=0.2)


def test_a_gate_that_its_limit_ended_while_the_host_was_held_up_is_closed_again(
    rig: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, looks = Gate.closed, [0]

    def held_up(gate: Gate) -> bool:
        looks[0] += 1
        if looks[0] == 1:
            time.sleep(5 * gate_helpers.TIMES.hold_s)
        return plain(gate) and looks[0] != broken

    broken = 0
    monkeypatch.setattr(Gate, "closed", held_up)
    assert rig().ladder(kind="sleep").tried == (("sleep", "ok"),)
    looks[0], broken = 1, 2  # open long before its limit: no host is to blame for that
    with pytest.raises(GateError, match="sleep: self-check: did not hold"):
        rig().ladder(kind="sleep")


def test_a_host_that_is_held_up_makes_no_sleep_shorter(rig: Any) -> None:
    made, uses = rig(), [0]
    plain = made.module._sleep

    def held_up(cycles: int) -> None:
        uses[0] += 1
        plain(cycles * 3 if 2 <= uses[0] <= 4 else cycles)  # the first is not measured

    made.module._sleep = held_up
    assert made.ladder(kind="sleep").native.cycles > 2.5e8  # 5e8, and a third of that where the host was held up


def test_one_time_that_is_wrong_makes_no_sleep_longer(rig: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, measured = SleepGate._measure, list[float]()

    def wrong(gate: SleepGate, stream: Any, cycles: int) -> float:
        measured.append(plain(gate, stream, cycles))
        return 1e15 if len(measured) == 3 else measured[-1]

    monkeypatch.setattr(SleepGate, "_measure", wrong)
    ladder = rig().ladder(kind="sleep")
    assert ladder.native.cycles in measured


def test_a_gate_that_began_before_its_call_came_back_did_not_end_early(
    rig: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Gate.enqueue

    def late(gate: Gate, stream: Any, limit_s: float | None = None) -> int:
        ticket = plain(gate, stream, limit_s)
        if limit_s == gate_helpers.TIMES.limit_s:
            time.sleep(0.4 * limit_s)
        return ticket

    monkeypatch.setattr(Gate, "enqueue", late)
    assert rig().ladder(kind="sleep").tried == (("sleep", "ok"),)


def test_a_limit_that_a_busy_host_saw_late_is_looked_at_again(rig: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, checks = Gate.selfcheck, [0]

    def selfcheck(gate: Gate, times: CheckTimes | None = None) -> Check:
        checks[0] += 1
        check = plain(gate, times)
        return replace(check, ok=False, reason="its limit", **worse) if checks[0] == 1 else check

    monkeypatch.setattr(Gate, "selfcheck", selfcheck)
    worse: dict[str, Any] = {}
    assert rig().ladder(kind="kernel").tried == (("kernel", "ok"),)
    checks[0], worse = 0, {"holds": False}  # this is no matter of time
    with pytest.raises(GateError, match="kernel: self-check: its limit"):
        rig().ladder(kind="kernel")


def test_a_variable_that_makes_launches_block_is_refused(rig: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for vendor in VENDORS:
        made = rig(vendor)
        for name in made.vendor.blocking:
            with monkeypatch.context() as patch:
                patch.setenv(name, "1")
                with pytest.raises(GateError, match=f"{name}=1 is set: a closed gate would block its own launch"):
                    made.ladder()
                patch.setenv(name, "0")
                assert made.ladder(kind="host-function").close()


def test_a_refused_call_is_told_with_its_error(rig: Any) -> None:
    made = rig()
    made.knob("fail-wait")
    said = r"wait-value: self-check: cuStreamWaitValue32_v2 returned 801 \(FAKE_NOT_SUPPORTED\)"
    with pytest.raises(GateError, match=said):
        made.ladder(kind="wait-value")


def test_a_gate_whose_launch_failed_holds_nothing_and_is_not_used_again(rig: Any) -> None:
    made = rig()
    gate, stream, event = made.gate("wait-value"), made.module.Stream(), made.module.Event()
    made.knob("fail-wait")
    with pytest.raises(GateError, match="returned 801"):
        gate.enqueue(stream)
    event.record(stream)
    assert until(event.query)
    assert gate.idle()
    with pytest.raises(GateError, match="cannot be used again: GateError: cuStreamWaitValue32_v2 returned 801"):
        gate.enqueue(stream)


def test_an_unknown_kind_names_the_nearest(rig: Any) -> None:
    with pytest.raises(errors.UsageError, match="unknown gate kind 'kernl'; did you mean kernel"):
        rig().ladder(kind="kernl")
    assert list(KINDS) == ["kernel", "triton", "wait-value", "host-function", "sleep"]


def test_no_kind_works_names_each(rig: Any) -> None:
    made = rig(without=("NO_WAIT",))
    made.knob("block")
    del made.module._sleep
    made.vendor = replace(made.vendor, symbols={**made.vendor.symbols, "host": ("cuNoSuchHost",)})
    with pytest.raises(GateError) as failed:
        made.ladder()
    for kind in KINDS:
        assert f"{kind}: " in str(failed.value)
    assert "cuNoSuchHost: not exported" in str(failed.value)
    assert "torch.double has no _sleep" in str(failed.value)
