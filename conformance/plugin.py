"""The pytest plugin: items per probe, variant and backend, and a report per backend. docs/rules.md 6.

No entry point loads it, so that it never changes another project's suite: a checkout's conftest.py
does, or ``-p conformance.plugin``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pytest

from conformance.backends.registry import HARDWARE, NAMES, PROFILES, Opening, find, open_backend
from conformance.consistency import check_names
from conformance.decision import sentence
from conformance.devices import device_lock, spans_two
from conformance.errors import SuiteError, UsageError
from conformance.experiments import expected
from conformance.fingerprint import set_blocking_variables
from conformance.judgement.statements import RANK
from conformance.numbers import DEPTHS, Depth, Numbers
from conformance.run import check_writable, finish
from conformance.runner import Runner, open_runner
from conformance.selection import Selection, select
from conformance.trial.record import BoundTo
from conformance.trial.result import lost_result
from reports.records import Header, Report, Result, Verdict
from reports.render import markdown, no_gate, timeline
from reports.store import write_report

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from probes.probe import Case, Probe

SUITE: Final = "test_conformance.py"
#: The name under which results travel from workers to the controller.
PROPERTY: Final = "stream-conformance"


@dataclass(slots=True)
class Opened:
    """A device in use by this process."""

    runner: Runner
    header_sent: bool = False


@dataclass(slots=True)
class Session:
    """What the plugin keeps for one pytest session."""

    config: pytest.Config
    numbers: Numbers
    depth: Depth
    faults: tuple[str, ...]
    device: str | None
    opened: dict[str, Opened] = field(default_factory=dict)
    refused: dict[str, SuiteError] = field(default_factory=dict)
    headers: dict[str, Header] = field(default_factory=dict)
    collected: set[str] = field(default_factory=set)  # backend:probe:variant of every item that is to run
    results: dict[str, list[Result]] = field(default_factory=dict)
    written: list[tuple[str, Report, Path | None]] = field(default_factory=list)

    def asks(self, name: str, probe: Probe, case: Case) -> bool:
        """Is there an item for this backend, probe and variant?"""
        return f"{name}:{probe.name}:{case.variant}" in self.collected

    def open(self, name: str) -> Opened:
        """The backend, opened once a process. Raises SuiteError, the same one each time: a start may take minutes."""
        if name in self.refused:
            raise self.refused[name]
        if name in HARDWARE and (blocking := set_blocking_variables()):
            raise UsageError(f"{blocking[0]} is set: a closed gate would hold the host; unset it")
        if name not in self.opened:
            faults = self.faults if name == "reference" else ()
            device = (self.device or share(self.config, name)) if name != "reference" else None
            cases = (case for probe, case in select(self.numbers).cases if self.asks(name, probe, case))
            opening = Opening(
                name=name,
                device=device,
                faults=faults,
                gate_limit=self.numbers.gate_limit,
                expects=expected(cases),
            )
            try:
                self.opened[name] = Opened(open_runner(opening, self.numbers, self.depth))
            except SuiteError as error:
                self.refused[name] = error
                raise
        return self.opened[name]


def share(config: pytest.Config, name: str) -> str | None:
    """The device of this worker: workers take turns among the accelerators that are the same as the first one.

    None, the first, without workers. Cases of one report must not come from devices of different kinds.
    """
    number = re.search(r"\d+$", getattr(config, "workerinput", {}).get("workerid", ""))
    devices = find(name).devices if number is not None and name in HARDWARE else ()
    alike = [index for index, label in devices if label == devices[0][1]]
    return alike[int(number[0]) % len(alike)] if number is not None and alike else None


KEY: Final = pytest.StashKey[Session]()


@dataclass(frozen=True, slots=True)
class Item:
    """One probe under one variant on one backend; `run` ends as the verdict says."""

    request: pytest.FixtureRequest
    name: str
    probe: Probe
    case: Case

    def run(self) -> None:
        """Run the case: passes if conformant, fails or skips otherwise, with the reason."""
        __tracebackhide__ = True
        session = self.request.config.stash[KEY]
        try:
            opened = session.open(self.name)
            with device_lock(opened.runner.lock, both=spans_two(self.case)):
                result = opened.runner.run(self.probe, self.case)
        except SuiteError as error:
            pytest.fail(str(error), pytrace=False)
        sent: dict[str, Any] = {"backend": self.name, "result": msgspec.to_builtins(result)}
        if not opened.header_sent:
            sent["header"], opened.header_sent = msgspec.to_builtins(opened.runner.header), True
        self.request.node.user_properties.append((PROPERTY, sent))
        _conclude(result, allow_inconclusive=self.request.config.getoption("--allow-inconclusive"))


def _conclude(result: Result, *, allow_inconclusive: bool) -> None:
    __tracebackhide__ = True
    if result.verdict is Verdict.NON_CONFORMANT:
        pytest.fail(f"non-conformant\n{timeline(result)}", pytrace=False)
    if result.verdict is Verdict.INCONCLUSIVE:
        text = f"inconclusive: {result.reason}"
        if allow_inconclusive:
            pytest.skip(text)
        pytest.fail(f"{text}\n{timeline(result)}", pytrace=False)
    if result.verdict is not Verdict.CONFORMANT:
        pytest.skip(f"{result.verdict.value}: {result.reason or 'a SHOULD, which decides nothing'}")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of the plugin begin with --sc-, but for two."""
    group = parser.getgroup("stream-conformance")
    group.addoption("--sc-backend", action="append", choices=NAMES, default=[], help="only these backends")
    group.addoption("--sc-device", default=None, help="the device's number (opencl: P:D)")
    group.addoption("--sc-depth", choices=[d.value for d in Depth], default=Depth.STANDARD.value)
    group.addoption("--sc-repeat", type=int, default=None, metavar="N", help="repetitions of each variant")
    group.addoption("--sc-max-in-flight", type=int, default=None, metavar="N", help="rings for up to N in flight")
    group.addoption("--sc-fault", action="append", default=[], metavar="F", help="make the reference device wrong")
    group.addoption("--capability-report", type=Path, default=None, metavar="DIR", help="write a report per backend")
    group.addoption("--allow-inconclusive", action="store_true", help="skip an inconclusive item, do not fail it")


def pytest_configure(config: pytest.Config) -> None:
    """Check the names that probes use, register the markers, read the options."""
    for name in NAMES:
        config.addinivalue_line("markers", f"{name}: conformance items of the {name} backend")
    depth = Depth(config.getoption("--sc-depth"))
    numbers = DEPTHS[depth]
    if (repeat := config.getoption("--sc-repeat")) is not None:
        if repeat < 1:
            raise pytest.UsageError(f"--sc-repeat {repeat}: give a number from 1")
        numbers = replace(numbers, repeat=repeat)
    if (in_flight := config.getoption("--sc-max-in-flight")) is not None:
        numbers = replace(numbers, max_in_flight=in_flight)
    try:
        check_names()
        if (folder := config.getoption("--capability-report")) is not None:
            check_writable(folder, "--capability-report")
        select(numbers)  # refuses a depth that cannot be measured
        faults = tuple(config.getoption("--sc-fault"))
        if faults:
            open_backend("reference", faults=faults)
    except SuiteError as error:
        raise pytest.UsageError(str(error)) from error
    config.stash[KEY] = Session(config, numbers, depth, faults, config.getoption("--sc-device"))


def pytest_unconfigure(config: pytest.Config) -> None:
    """Give the devices back."""
    session = config.stash.get(KEY, None)
    for opened in session.opened.values() if session is not None else ():
        opened.runner.close()


def _wanted(config: pytest.Config) -> list[str]:
    return [name for name in NAMES if not config.getoption("--sc-backend") or name in config.getoption("--sc-backend")]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Fill the suite's items; ids depend on probe, variant and backend alone."""
    if "sc_item" in metafunc.fixturenames:
        parameters = []
        for name in _wanted(metafunc.config):
            if find(name).here:
                for probe, case in select(metafunc.config.stash[KEY].numbers).cases:
                    mark = getattr(pytest.mark, name)
                    key = f"{name}:{probe.name}:{case.variant}"
                    parameters.append(pytest.param((name, probe, case), id=key, marks=mark))
        metafunc.parametrize("sc_item", parameters, indirect=True)
    if "sc_absent" in metafunc.fixturenames:
        absent = [found for found in map(find, _wanted(metafunc.config)) if not found.here]
        metafunc.parametrize(
            "sc_absent",
            [pytest.param(f.reason, id=f"absent-{f.name}", marks=getattr(pytest.mark, f.name)) for f in absent],
        )


@pytest.fixture
def sc_item(request: pytest.FixtureRequest) -> Item:
    """The probe, variant and backend of an item."""
    name, probe, case = request.param
    return Item(request, name, probe, case)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take the sentinel away; where it survived deselection, no backend was asked for: absent ones are no failure."""
    mine = [item for item in items if item.path.name == SUITE]
    sentinels = [item for item in mine if item.name == "test_sentinel"]
    gone = list(sentinels)
    if sentinels:
        gone += [item for item in mine if item.name.startswith("test_absent")]
    if gone:
        items[:] = [item for item in items if item not in gone]
        config.hook.pytest_deselected(items=gone)
    _expect(config, (item.nodeid for item in items))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: Any, ids: list[str]) -> None:
    """The controller collects nothing itself: what a worker collected is what must be answered."""
    _expect(node.config, ids)


def _expect(config: pytest.Config, ids: Iterable[str]) -> None:
    """Keep in mind which items are to run: one that never answers must not pass for one that was left out."""
    for nodeid in ids:
        if f"{SUITE}::test_conformance[" in nodeid:
            config.stash[KEY].collected.add(nodeid.partition("[")[2].removesuffix("]"))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Results arrive here in the controller, from workers or from this process."""
    if report.when != "call":
        return
    for key, value in report.user_properties:
        if key == PROPERTY and isinstance(value, dict):
            _ARRIVED.append(value)


#: What arrived in this process since the session began: the hook above is given no config.
_ARRIVED: Final[list[dict[str, Any]]] = []


def pytest_sessionstart() -> None:
    """Forget what an earlier session of this process left."""
    _ARRIVED.clear()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """The controller makes each backend's report, and writes it if asked to."""
    config = session.config
    if hasattr(config, "workerinput"):
        return
    mine = config.stash[KEY]
    for sent in _ARRIVED:
        name = sent["backend"]
        mine.results.setdefault(name, []).append(msgspec.convert(sent["result"], Result))
        if "header" in sent:
            mine.headers[name] = joined(mine.headers.get(name), msgspec.convert(sent["header"], Header))
    folder: Path | None = config.getoption("--capability-report")
    whole = session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
    for name, results in mine.results.items():
        if name not in mine.headers:
            continue  # no item of it got so far as to open the device
        report = _report(mine, name, results)
        if not whole:
            header = msgspec.structs.replace(report.header, complete=False)
            report = msgspec.structs.replace(report, header=header)
        where = None
        if folder is not None:
            where = folder if len(mine.results) == 1 else folder / f"{name}-{report.header.device.index}"
            where.mkdir(parents=True, exist_ok=True)
            write_report(where, report, markdown(report, sentence(report.decision)))
        mine.written.append((name, report, where))


def joined(known: Header | None, sent: Header) -> Header:
    """The header for results of several workers: that of the device with the lowest number, naming all of them."""
    if known is None:
        return sent
    devices = {device.index: device for header in (known, sent) for device in (*header.devices, header.device)}
    first = min(known, sent, key=lambda header: header.device.index)
    every = tuple(devices[index] for index in sorted(devices)) if len(devices) > 1 else ()
    return msgspec.structs.replace(first, devices=every)


def _report(mine: Session, name: str, results: list[Result]) -> Report:
    """A report of the items that were to run, in the order of a run; one without an answer is inconclusive."""
    every = select(mine.numbers)
    found: dict[tuple[str, str], Result] = {}
    for result in results:
        key = result.probe, result.variant
        # An item that ran twice keeps the worse of its answers.
        if key not in found or RANK.index(result.verdict) > RANK.index(found[key].verdict):
            found[key] = result
    bound = BoundTo(profile=PROFILES[name], surface="vendor")
    cases = tuple((p, c) for p, c in every.cases if mine.asks(name, p, c))
    answers = [found.get((p.name, c.variant)) or lost_result(bound, p, c, "the item gave no answer") for p, c in cases]
    selection = Selection(
        cases=cases,
        by_probe=len({p.name for p, _ in cases}) < len({p.name for p, _ in every.cases}),
        by_variant=len(cases) < len(every.cases),
        decisive=every.decisive,
    )
    header = msgspec.structs.replace(mine.headers[name], restricted=selection.restricted)
    return finish(header, answers, selection, mine.numbers)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """One line of verdict and decision per backend, and where its report is."""
    for name, report, where in config.stash[KEY].written:
        terminalreporter.section(f"stream conformance: {name}")
        terminalreporter.write_line(
            f"verdict: {report.verdict.value}" + (f" ({report.reason})" if report.reason else "")
        )
        for line in no_gate(report.header):
            terminalreporter.write_line(line)
        terminalreporter.write_line(f"decision: {sentence(report.decision)}")
        if report.header.devices:
            used = ", ".join(f"{device.index} ({device.uuid or device.name})" for device in report.header.devices)
            terminalreporter.write_line(f"devices: {used}")
        if where is not None:
            terminalreporter.write_line(f"report: {where / 'report.md'}")


def pytest_report_header(config: pytest.Config) -> Iterator[str]:
    """Which backends are here."""
    found = [find(name) for name in _wanted(config)]
    yield "stream conformance: " + ", ".join(f.name if f.here else f"no {f.name}" for f in found)
