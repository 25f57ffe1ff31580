"""The pytest plugin as a user runs it: from an empty folder, in a pytest of its own."""

from __future__ import annotations

import importlib.util
import json
from typing import TYPE_CHECKING, Any

import pytest
from helpers import ROOT, Done, environment, is_one_line, python

from conformance.backends.registry import find
from reports.store import DECISION, REPORT, load_report

if TYPE_CHECKING:
    from pathlib import Path

SUITE = ("-p", "conformance.plugin", "--pyargs", "conformance.suite")
#: The core question, asked once, in a few variants.
CORE = ("--sc-backend", "reference", "--sc-repeat", "1", "-k", "publication and default-wait-stream-copy-side")
#: Everything that one in flight needs, once, with a backend that is here and three that are not.
ALL = (
    *("--sc-depth", "quick", "--sc-repeat", "1", "--sc-max-in-flight", "1", "--sc-backend", "reference"),
    *(word for name in ("cuda", "rocm", "musa") for word in ("--sc-backend", name)),
)


def suite(folder: Path, *arguments: object, path: tuple[Path, ...] = ()) -> Done:
    """The conformance items under ``pytest`` in ``folder``."""
    quiet = ("-m", "pytest", "-p", "no:cacheprovider", "-rs", "--color=no")
    return python(*quiet, *SUITE, *arguments, cwd=folder, env=environment(*path))


def counts(done: Done) -> dict[str, int]:
    """The last line of pytest, as numbers."""
    words = done.out.splitlines()[-1].strip("= ").split(" in ")[0].replace(",", "").split()
    return {what: int(number) for number, what in zip(words[::2], words[1::2], strict=True) if number.isdigit()}


def verdicts(folder: Path, *, rings: bool = True) -> dict[str, Any]:
    """What must not depend on how the items were spread over processes."""
    report = load_report(folder)
    results = [r for r in report.results if rings or not r.probe.startswith("ring-")]
    return {
        "run": (report.verdict, report.reason),
        "decision": report.decision,
        "results": [(r.probe, r.variant, r.verdict, r.reason, r.form, r.kind) for r in results],
        "complete": report.header.complete,
        "restricted": report.header.restricted,
    }


@pytest.mark.parametrize(
    ("name", "workers"), [("musa", ()), ("cuda", ()), ("rocm", ()), ("musa", ("-n", "2"))], ids=str
)
def test_an_absent_backend_that_is_asked_for_fails_with_the_reason(
    tmp_path: Path, name: str, workers: tuple[str, ...]
) -> None:
    found = find(name)
    if found.here:
        pytest.skip(f"{name} is here")
    done = suite(tmp_path, "-m", name, *workers)
    assert done.code == 1
    assert counts(done)["failed"] == 1
    assert "passed" not in counts(done)
    assert f"absent-{name}" in done.out
    assert found.reason in done.out


@pytest.mark.parametrize(
    ("marker", "workers"),
    [((), ()), (("-m", "not cuda"), ("-n", "2"))],
    ids=["plain", "not-cuda-xdist"],
)
def test_an_absent_backend_that_is_not_asked_for_is_no_failure(
    tmp_path: Path, marker: tuple[str, ...], workers: tuple[str, ...]
) -> None:
    done = suite(tmp_path, *ALL, *marker, *workers)
    assert done.code == 0, done.out
    assert counts(done)["passed"] > 50
    assert "failed" not in counts(done)
    assert "test_absent" not in done.out
    assert "verdict: conformant" in done.out


def test_one_of_two_markers_that_is_absent_fails(tmp_path: Path) -> None:
    done = suite(tmp_path, *ALL, "-m", "musa or reference", "-k", "absent or scope")
    assert done.code == 1
    assert counts(done)["failed"] == 1
    assert counts(done)["passed"] == 2


def test_the_sentinel_never_counts(tmp_path: Path) -> None:
    done = suite(tmp_path, "--sc-backend", "reference", "-m", "not reference")
    assert done.code == 5  # nothing was run, which is no pass
    assert "passed" not in counts(done)
    listed = suite(tmp_path, "--sc-backend", "reference", "--collect-only", "-q")
    assert "test_sentinel" not in listed.out
    assert "test_absent" not in listed.out


def test_items_are_selected_by_name_and_their_ids_are_stable(tmp_path: Path) -> None:
    done = suite(tmp_path, *CORE, "-v")
    assert done.code == 0, done.out
    assert counts(done)["passed"] == 6
    assert "[reference:publication:default-wait-stream-copy-side-query]" in done.out
    assert "verdict: conformant" in done.out


@pytest.mark.parametrize("late", [False, True], ids=["clean", "late"])
def test_the_report_is_the_same_from_two_workers(tmp_path: Path, late: bool) -> None:
    options = ["--sc-backend", "reference", "--sc-repeat", "1", "--sc-max-in-flight", "2"]
    if late:
        options += ["--sc-fault", "late-next-wait", "-k", "publication-waiter or two-waits or ring"]
    found = []
    for name, workers in (("one", ()), ("two", ("-n", "2"))):
        done = suite(tmp_path, *options, "--capability-report", tmp_path / name, *workers)
        assert done.code == int(late)
        assert str(tmp_path / name / "report.md") in done.out
        # A ring that is late is measured in one variant for each process: the decision counts, not the variants.
        found.append(verdicts(tmp_path / name, rings=not late))
    assert found[0] == found[1]
    if not late:
        assert json.loads((tmp_path / "two" / DECISION).read_bytes())["decision"]["needed"] == "not-needed"


def test_a_part_of_the_suite_makes_a_restricted_report(tmp_path: Path) -> None:
    assert suite(tmp_path, *CORE, "--capability-report", tmp_path / "out").code == 0
    report = load_report(tmp_path / "out")
    assert report.header.restricted
    assert len(report.results) == 6
    assert report.decision.needed == "undecided"


def test_a_defect_fails_with_its_timeline(tmp_path: Path) -> None:
    done = suite(tmp_path, *CORE, "--sc-fault", "late-next-wait")
    assert done.code == 1
    assert counts(done)["failed"] == 6
    assert "EVT-INDEP-1: Later work on the stream does not delay what the host sees" in done.out
    assert "e:MUST not seen" in done.out
    assert "seen after open g2" in done.out
    assert "control 'own', on time" in done.out
    assert "Traceback" not in done.out
    assert "verdict: non-conformant (EVT-INDEP-1)" in done.out


def test_what_says_nothing_fails_unless_that_is_allowed(tmp_path: Path) -> None:
    expired = (*CORE, "--sc-fault", "gates-expire")
    failed = suite(tmp_path, *expired)
    assert failed.code == 1
    assert "inconclusive: gate-expired" in failed.out
    allowed = suite(tmp_path, *expired, "--allow-inconclusive")
    assert allowed.code == 0
    assert counts(allowed)["skipped"] == counts(failed)["failed"] == 3
    assert "inconclusive: gate-expired" in allowed.out


def test_what_a_backend_cannot_do_is_skipped_by_name(tmp_path: Path) -> None:
    (tmp_path / "lacking.py").write_text(
        "from conformance.backends import reference\n"
        "reference.UNSUPPORTED = {'wait-stream': 'no call waits for a stream'}\n"
    )
    done = suite(tmp_path, "-p", "lacking", *CORE, path=(tmp_path,))
    assert done.code == 0
    assert counts(done)["skipped"] == 6
    assert "unsupported: wait-stream: no call waits for a stream" in done.out


def test_what_is_only_measured_is_skipped(tmp_path: Path) -> None:
    one_queue = ("--sc-backend", "reference", "--sc-repeat", "1", "--sc-fault", "queues-1")
    done = suite(tmp_path, *one_queue, "-k", "independent-1 and query-default")
    assert counts(done).get("skipped") == 1
    assert "observed: not held" in done.out


def test_a_late_ring_is_no_pass_by_itself(tmp_path: Path) -> None:
    late = ("--sc-backend", "reference", "--sc-repeat", "1", "--sc-fault", "late-next-wait")
    done = suite(tmp_path, *late, "-k", "ring-1-2 and default-wait-side-query")
    assert counts(done).get("failed") == 1
    assert "inconclusive: late" in done.out


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--sc-fault", "late-nxt-wait", "did you mean late-next-wait"),
        ("--sc-backend", "cudda", "cuda"),
        ("--sc-max-in-flight", "99", "1 to 16"),
        ("--sc-repeat", "0", "--sc-repeat"),
    ],
)
def test_a_bad_option_is_a_usage_error(tmp_path: Path, option: str, value: str, words: str) -> None:
    done = suite(tmp_path, option, value, "-k", "scope")
    assert done.code == 4
    assert words in done.err
    assert "Traceback" not in done.err + done.out
    assert "passed" not in done.out


def test_an_unknown_fault_is_one_line(tmp_path: Path) -> None:
    assert is_one_line(suite(tmp_path, "--sc-fault", "late-nxt-wait").err.strip())


def test_a_report_that_cannot_be_written_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    done = suite(tmp_path, *CORE, "--capability-report", tmp_path / "file")
    assert done.code != 0
    assert "Traceback" not in done.err + done.out
    assert "--capability-report" in done.err + done.out
    assert (tmp_path / "file").read_text() == "mine"


def test_without_a_folder_nothing_is_written(tmp_path: Path) -> None:
    assert suite(tmp_path, *CORE).code == 0
    assert not list(tmp_path.rglob(REPORT))


@pytest.mark.parametrize("missing", ["", "hypothesis"])
def test_our_own_tests_are_not_in_the_way_where_the_test_extra_is_missing(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a vendor's machine `pytest -m musa` in a checkout must end in verdicts, not in another package's traceback."""
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == missing else real(name))
    spec = importlib.util.spec_from_file_location("conftest_again", ROOT / "tests" / "conftest.py")
    assert spec is not None
    assert spec.loader is not None
    again = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(again)
    left_out = {"test_model.py", "test_programs.py"} if missing else set()
    assert left_out <= set(again.collect_ignore)
    assert "test_plugin.py" not in again.collect_ignore
    assert bool(again.pytest_report_header()) == bool(missing)
