"""Generated programs on the reference device: what they find, what they leave alone, and how small it gets."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from helpers import cli, is_one_line

from conformance.backends.reference import ReferenceBackend
from conformance.backends.reference.device import Device, Task
from conformance.backends.registry import find
from conformance.faults import FAULTS
from conformance.fuzz import source, supervise
from conformance.fuzz.careful import judge_program, numbers_for
from conformance.fuzz.corpus import load, read_text
from conformance.fuzz.generate import program_of
from conformance.fuzz.hunt import hunt, recipe_of
from conformance.fuzz.messages import Caught, Job, Progress
from conformance.fuzz.plan import compile_plan
from conformance.fuzz.power import LIMIT, left_out, omissions, rows, table
from conformance.fuzz.recipe import SIZES, Choice, Recipe
from conformance.fuzz.session_machine import SessionScreen
from conformance.fuzz.shape import mended, size_of
from probes.notation import parse
from probes.program import Program, is_host

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conformance.backends.api import Backend

DOCS = Path(__file__).parents[1] / "docs" / "fuzz.md"


def run(backend: Backend, **job: Any) -> tuple[list[Caught], Progress]:
    asked = Job(**({"seed": 1, "size": "medium", "last": 200} | job))
    messages = list(hunt(asked, backend, recipe_of(asked, backend)))
    last = messages[-1]
    assert isinstance(last, Progress)
    assert last.ended
    return [message for message in messages if isinstance(message, Caught)], last


def fails(backend: Backend, program: Program, choice: Choice, clause: str) -> bool:
    return clause in judge_program(backend, program, choice, numbers_for(backend)).failed


def test_each_fault_is_found_by_generated_programs_alone() -> None:
    found = list(rows())
    assert {row.fault for row in found} == {name for name in FAULTS if not left_out(name)}
    for row in found:
        assert 1 <= row.programs <= LIMIT, row
        # A device wait that is late for ever keeps the work behind it from running: EVT-WAIT-4 where a token shows it.
        stuck = {"EVT-WAIT-4"} if row.fault.endswith(("-device", "-device-wait")) else set()
        assert set(row.failed) & (FAULTS[row.fault].allowed | stuck), row
        assert 1 <= row.operations <= 8, row
        # What was shrunk fails on the wrong device and not on a right one.
        program = parse(row.shrunk)
        assert not any(fails(ReferenceBackend(), program, Choice(), clause) for clause in row.failed), row
    text = DOCS.read_text(encoding="utf-8")
    assert table(found) in text
    assert omissions() in text


@pytest.mark.parametrize("fault", ["late-next-wait", "wait-newest-record", "destroy-drops-waits", "fifo-violated"])
def test_nothing_can_be_taken_out_of_a_shrunk_program(fault: str) -> None:
    (row,) = rows([fault])
    backend = ReferenceBackend((fault,))
    steps = parse(row.shrunk).steps
    assert fails(backend, Program(steps), Choice(), row.clause)
    for gone in (n for n, step in enumerate(steps) if not is_host(step)):
        smaller = mended([step for n, step in enumerate(steps) if n != gone])
        plan = None if smaller is None else compile_plan(smaller, Choice())
        assert smaller is None or plan is None or not fails(backend, smaller, Choice(), row.clause) or _blind(smaller)


def _blind(program: Program) -> bool:
    """A token of 0 proves nothing, so the shrinker leaves such a program alone."""
    from conformance.fuzz.graph import proving

    return not proving(program)


@pytest.mark.parametrize(
    "faults",
    [(), ("queues-1",), ("queues-2",), ("slow-device",)],
    ids=["clean", "one-queue", "two-queues", "slow"],
)
def test_legal_devices_survive(faults: tuple[str, ...]) -> None:
    for size in SIZES:
        caught, last = run(ReferenceBackend(faults), size=size, last=150)
        assert not caught
        assert last.tally["programs"] == 150
        assert last.tally["must"] > 100
        assert last.tally["pend"] > 100
        if faults == ("queues-1",):  # which owes no concurrency, and shows little
            assert last.tally["held"] < last.tally["should"]


@pytest.mark.parametrize("decoy", ["very-slow-device", "gates-expire"])
def test_a_device_of_which_nothing_can_be_said_has_no_finding_and_no_pass(decoy: str) -> None:
    caught, _ = run(ReferenceBackend((decoy,)), last=8)
    assert caught
    assert not any(message.failed for message in caught)


def test_the_ordinary_rules_find_nothing_where_the_fast_path_finds_nothing() -> None:
    """The careful judgement would have the last word: on right devices both are silent."""
    backend = ReferenceBackend()
    recipe = Recipe(seed=2, size=SIZES["medium"], slow_copies=True, flags=("default", "blocking"))
    for index in range(60):
        program, choice = program_of(recipe, index)
        judged = judge_program(backend, program, choice, numbers_for(backend))
        assert not judged.failed
        assert not judged.error


@pytest.mark.parametrize("fault", ["late-next-wait", "wait-dropped", "rerecord-ignored", "never-recorded-blocks"])
def test_the_fast_path_misses_nothing_that_the_ordinary_rules_find(fault: str) -> None:
    backend = ReferenceBackend((fault,))
    recipe = Recipe(seed=1, size=SIZES["medium"])
    screen = SessionScreen(backend, numbers_for(backend))
    both = 0
    for index in range(60):
        program, choice = program_of(recipe, index)
        plan = compile_plan(program, choice)
        assert plan is not None
        anomaly = screen.run(plan, program, choice)
        failed = judge_program(backend, program, choice, numbers_for(backend)).failed
        assert anomaly or not failed, f"{failed}: program {index}"
        both += bool(anomaly and failed)
    assert both


HEAD = "s1: gate g1, fill x1 5, copy x1 -> h1, record e1\n"


@pytest.mark.parametrize(
    ("fault", "text", "observe", "anomaly"),
    [
        ("late-idle", HEAD + "s1: gate g2\nhost: open g1, open g2", "query", "e1 is late"),
        ("late-blocking-sync", HEAD + "s1: gate g2, wait e1\nhost: open g1, open g2", "synchronize", "e1#1 is late"),
        ("completion-before-data", HEAD + "host: open g1", "query", "h1 is not there though e1 is complete"),
        ("query-flickers", "s1: fill x1 5, copy x1 -> h1, record e1\nhost: read h1", "query", "e1 was owed before"),
        ("never-recorded-pends", "s1: wait e1, record e2\nhost: sync-device", "query", "e1 was never recorded"),
        ("query-always-true", HEAD + "host: open g1", "query", "e1 is early"),
        ("sync-noop", HEAD + "host: open g1", "synchronize", "e1#1 is early"),
        ("fifo-violated", "s1: fill x1 5, gate g1, copy x1 -> h1\nhost: open g1", "query", "h1 is early"),
        ("stream-query-early", HEAD + "host: query-stream s1, open g1", "query", "stream s1 says"),
        ("late-sync-device", "s1: record e1, wait e1\nhost: query-stream s1", "query", "late"),
        ("stream-sync-overwaits", "s2: record e1\n" + HEAD + "host: sync-stream s2, open g1", "query", "s2 does not"),
        ("query-stale", "s1: record e1, wait e2\ns2: record e1\nhost: sync e1", "query", "late"),
        ("wait-blocks-host", HEAD + "s2: wait e1\nhost: open g1", "query", "a call blocked"),
        ("destroy-blocks", HEAD + "host: destroy e1, open g1", "query", "a call blocked"),
        ("aliased-streams", "s1: gate g1\ns2: record e1\nhost: open g1", "query", "two streams are one"),
        ("gates-expire", HEAD + "host: open g1", "query", "gate-expired"),
    ],
)
def test_each_look_of_the_fast_path_can_fail_and_passes_on_a_right_device(
    fault: str, text: str, observe: Any, anomaly: str
) -> None:
    program, choice = parse(text), Choice(observe=observe, flags="blocking" if observe == "synchronize" else "default")
    plan = compile_plan(program, choice)
    assert plan is not None
    wrong, right = ReferenceBackend((fault,)), ReferenceBackend()
    assert anomaly in SessionScreen(wrong, numbers_for(wrong)).run(plan, program, choice)
    assert SessionScreen(right, numbers_for(right)).run(plan, program, choice) == ""


# ---------------------------------------------------------------------- a public backend's fault


class Flagged(Device):
    """Events as one public CPU backend keeps them: a flag that a record clears and any record of it sets.

    A wait looks at the flag, so it obeys a later record where the first is complete already, and seems right
    where the first is still pending.
    """

    def __init__(self, *arguments: Any) -> None:
        self.flags: dict[str, bool] = {}
        super().__init__(*arguments)

    def record(self, task: Task) -> None:
        super().record(task)
        self.flags[task.event] = False

    def _finish(self, task: Task) -> None:
        super()._finish(task)
        if task.kind == "record":
            self.flags[task.event] = True

    def satisfied(self, wait: Task) -> bool:
        return self.flags.get(wait.event, True)


def test_a_wait_that_obeys_a_later_record_is_found_and_shrunk() -> None:
    backend = ReferenceBackend()
    backend._make = Flagged
    caught, last = run(backend, last=300, stop_after=4)
    shrunk = {message.clause: message for message in caught if message.shrunk}
    assert last.next <= 100
    # An early token, and the shape that a hand-written test misses: nothing held it at the first record.
    assert shrunk["EVT-REREC-2"].operations <= 6
    assert shrunk["EVT-WAIT-2"].operations <= 6
    for message in shrunk.values():
        assert fails(backend, parse(message.shrunk), Choice(), message.clause) or message.shrunk_observe != "query"


# ---------------------------------------------------------------------- programs ahead, the corpus, the command


def test_programs_written_ahead_are_the_same_in_the_same_order() -> None:
    recipe = Recipe(seed=9, size=SIZES["medium"])
    here = [entry[:4] for entry in source.here(recipe, 10, 300)]
    assert [entry[:4] for entry in source.ahead(recipe, 10, 300, 2)] == here
    # And whoever has enough can stop.
    some = source.ahead(recipe, 0, 1 << 40, 2)
    assert len(list(islice(some, 70))) == 70
    some.close()


def test_a_run_by_the_command_is_deterministic_and_replays_its_corpus_first(tmp_path: Path) -> None:
    def fuzz(*more: object) -> Any:
        return cli("fuzz", "--backend", "reference", "--fault", "wait-dropped", "--out", tmp_path / "out", *more)

    first = fuzz("--seed", 3)
    assert first.code == 1
    (text,) = load(tmp_path / "out" / "corpus")
    program, choice = read_text(text)
    assert fails(ReferenceBackend(("wait-dropped",)), program, choice, "EVT-WAIT-1")
    again = fuzz("--seed", 4)
    assert again.code == 1
    assert "corpus 0: " in again.out
    assert "0 programs, 1 of the corpus" in again.out
    # One index alone is the same program with the same finding.
    index = first.out.split("program ")[1].split(":")[0]
    replay = fuzz("--seed", 3, "--index", index)
    assert replay.code == 1
    assert f"program {index}: " in replay.out
    assert load(tmp_path / "out" / "corpus") == (text,)
    right = cli("fuzz", "--backend", "reference", "--programs", 50, "--out", tmp_path / "out")
    assert right.code == 0
    assert "50 programs, 1 of the corpus before them: 0 with a finding" in right.out


def test_what_a_backend_cannot_run_is_left_out_of_its_corpus() -> None:
    slow = "s1: fill x1 1, copy x1 -> h1 until g1, record e1\nhost: open g1\n"
    other = "s1: wait e1, record e2\nhost: query-stream s1\n"
    blocking = "# flags: blocking\ns1: record e1\nhost: query-stream s1\n"
    job = Job(seed=1, size="small", texts=(slow, other, blocking))
    backend = ReferenceBackend()
    *_, last = hunt(job, backend, Recipe(seed=1, size=SIZES["small"], unrecorded=False))
    assert isinstance(last, Progress)
    assert (last.skipped, last.tally["programs"]) == (3, 0)
    *_, last = hunt(job, backend, recipe_of(job, backend))
    assert isinstance(last, Progress)
    assert (last.skipped, last.tally["programs"]) == (0, 3)


def test_every_program_up_to_a_size(tmp_path: Path) -> None:
    def fuzz(*more: object) -> Any:
        return cli("fuzz", "--backend", "reference", "--exhaustive", 3, "--out", tmp_path / "out", *more)

    whole = fuzz()
    assert whole.code == 0
    assert "346 programs" in whole.out
    assert fuzz("--fault", "late-idle").code == 1


def test_a_run_by_time_ends_and_one_that_is_interrupted_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = cli("fuzz", "--backend", "reference", "--minutes", 0.005, "--out", tmp_path)
    assert done.code == 0
    assert json.loads((tmp_path / "fuzz.json").read_text())["complete"]

    def interrupted(*_: object) -> Iterator[Progress]:
        yield Progress(next=7, tally={"programs": 7}, operations={3: 7}, gates={1: 7}, seconds=1.0)
        raise KeyboardInterrupt

    monkeypatch.setattr(supervise, "hunt", interrupted)
    done = cli("fuzz", "--backend", "reference", "--minutes", 5, "--out", tmp_path)
    assert done.code == 130
    said = json.loads((tmp_path / "fuzz.json").read_text())
    assert (said["complete"], said["progress"][0]["next"]) == (False, 7)


@pytest.mark.skipif(not find("opencl").here, reason="needs an OpenCL runtime")
def test_a_real_runtime_in_real_time(tmp_path: Path) -> None:
    def fuzz(*more: object) -> Any:
        return cli("fuzz", "--backend", "opencl", "--size", "small", "--programs", 50, "--out", tmp_path, *more)

    assert "0 with a finding" in fuzz().out
    assert fuzz("--fault", "query-always-true").code == 1
    (text,) = load(tmp_path / "corpus")
    assert size_of(read_text(text)[0]) == 2  # by the fast path, judged in the end
    assert fuzz("--fault", "wait-dropped", "--shrink-seconds", 1).code == 1


def test_what_gave_no_verdict_is_no_pass(tmp_path: Path) -> None:
    done = cli("fuzz", "--backend", "reference", "--fault", "gates-expire", "--programs", 5, "--out", tmp_path / "out")
    assert done.code == 3
    assert "unsteady" in done.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--backend", "refrence"), "did you mean reference"),
        (("--backend", "reference", "--fault", "late"), "unknown fault"),
        (("--backend", "reference", "--programs", 5, "--minutes", 1), "give one of them"),
        (("--backend", "reference", "--exhaustive", 2, "--index", 1), "leave --programs and --index out"),
        (("--backend", "cuda", "--size", "large"), "small or medium"),
    ],
)
def test_what_cannot_be_asked_for_is_refused_in_one_line(
    tmp_path: Path, arguments: tuple[object, ...], said: str
) -> None:
    done = cli("fuzz", *arguments, "--out", tmp_path / "out")
    assert done.code == 2
    assert said in done.err
    assert is_one_line(done.err)


def test_a_corpus_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_text("s1: gate\n")
    done = cli("fuzz", "--backend", "reference", "--corpus", tmp_path, "--out", tmp_path / "out")
    assert done.code == 2
    assert "bad.txt" in done.err
    assert is_one_line(done.err)
