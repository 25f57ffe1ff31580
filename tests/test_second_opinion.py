"""A late event is laid to the layer that has it: the one below the API is asked, and only after the proof."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from conformance import cli
from conformance.backends.api import Opinion, Request
from conformance.backends.fault_layer import FaultyBackend
from conformance.backends.reference import ReferenceBackend, ReferenceSession
from conformance.numbers import DEPTHS, Depth
from conformance.runner import run_one
from conformance.trial.state import RunState
from probes.catalogue import all_probes
from reports.records import Report, Result, Verdict

NUMBERS = DEPTHS[Depth.QUICK]
LATE = ("late-next-wait",)


def publication(backend: object, observe: str = "query") -> Result:
    probe = all_probes()["publication"]
    case = next(case for case in probe.cases if case.variant == f"default-wait-copy-side-{observe}")
    return run_one(backend, probe, case, RunState(NUMBERS))  # type: ignore[arg-type]  # a Backend


def told(result: Result) -> tuple[str, str]:
    (finding,) = result.findings
    assert result.verdict is Verdict.NON_CONFORMANT
    return result.subject, finding.second_opinion


def test_a_fault_of_the_device_is_seen_below_the_api_too() -> None:
    assert told(publication(ReferenceBackend(LATE))) == (
        "driver",
        "pending by the device's query on the raw handle too",
    )


def test_a_fault_that_lies_in_the_wrapper_alone_is_the_wrappers() -> None:
    assert told(publication(FaultyBackend(ReferenceBackend(), LATE))) == (
        "wrapper",
        "complete by the device's query on the raw handle, while the API says pending",
    )


class Without(ReferenceBackend):
    """A backend whose sessions have no call below the API, or answer with what a test says."""

    def __init__(self, answer: Opinion | None = None) -> None:
        super().__init__(LATE)
        self.answer = answer

    def session(self, request: Request) -> ReferenceSession:
        made = super().session(request)
        made.ask_below = None if self.answer is None else lambda event: self.answer  # type: ignore[method-assign,assignment,return-value]
        return made


def test_what_cannot_be_asked_is_said() -> None:
    assert told(publication(Without())) == ("runtime", "none: the reference backend has no call below its API")
    refused = Opinion(reason="cuEventQuery returned 4 (CUDA_ERROR_DEINITIALIZED)")
    assert told(publication(Without(refused))) == ("runtime", f"none: {refused.reason}")


def test_what_is_proved_by_synchronize_is_asked_about_in_a_repetition_by_query() -> None:
    for observe in ("query", "synchronize"):
        driver, wrapper = ReferenceBackend(LATE), FaultyBackend(ReferenceBackend(), LATE)
        assert told(publication(driver, observe))[0] == "driver", observe
        assert told(publication(wrapper, observe))[0] == "wrapper", observe
    # What is late for synchronize alone shows nothing there, and the finding says so.
    probe = all_probes()["publication"]
    case = next(c for c in probe.cases if c.variant == "blocking-wait-copy-side-synchronize")
    result = run_one(ReferenceBackend(("late-blocking-sync",)), probe, case, RunState(NUMBERS))
    subject, opinion = told(result)
    assert subject == "runtime"
    assert opinion == "none: it was not late again in 3 repetitions by query, in which alone it can be asked about"


class Nudged(ReferenceSession):
    """An event that is late until somebody asks below."""

    asked = False

    def ask_below(self, event: str) -> Opinion:
        self.asked = True
        return Opinion(layer="driver", call="cuEventQuery", complete=True)

    def query(self, event: str) -> bool:
        return self.asked or super().query(event)


class Nudging(ReferenceBackend):
    """A device that catches up when its driver is asked."""

    def session(self, request: Request) -> ReferenceSession:
        made = super().session(request)
        made.__class__ = Nudged
        return made


def test_a_device_that_catches_up_when_asked_is_no_wrappers_fault_and_its_verdict_stands() -> None:
    result = publication(Nudging(LATE))
    subject, opinion = told(result)
    assert subject == "runtime"
    assert opinion == "none: by the time that cuEventQuery was asked, the API said complete too"
    # Nobody was asked while the proof was made: the form and the cause are those of the device itself.
    assert result.form is not None
    assert (result.form.value, result.findings[0].published_by) == ("next-wait", "open g2")


def test_an_event_that_is_in_time_asks_nobody() -> None:
    result = publication(ReferenceBackend())
    assert (result.verdict, result.subject, result.findings) == (Verdict.CONFORMANT, "runtime", ())


def test_the_opinion_crosses_the_childs_pipe_and_the_spellings_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAM_CONFORMANCE_TEST_CHILD", "1")
    command = ["run", "--backend", "reference", "--fault", "late-next-wait", "--repeat", "1", "--out", str(tmp_path)]
    assert cli.main([*command, "--probe", "publication", "--variant", "default-wait*-copy-side-query"]) == 1
    report = msgspec.json.decode((tmp_path / "report.json").read_bytes(), type=Report)
    assert {told(result)[0] for result in report.results} == {"driver"}
    assert report.capabilities["late by the spelling of the wait"] == (
        "wait_stream (a temporary event) 1 of 1, wait_event (an event kept alive) 1 of 1 variants of publication"
    )
    assert "second opinion, subject driver: pending by the device's query" in (tmp_path / "report.md").read_text()
