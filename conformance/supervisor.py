"""The parent's side of a child process: hardware that hangs or crashes costs one verdict. docs/rules.md 7.

The child has its own session, so Ctrl-C reaches only the parent. It answers over a pipe of its own;
what it and its vendor's libraries print goes to files that are kept short (`conformance.child_process`).
"""

from __future__ import annotations

import os
import sys
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from conformance.backends.api import GateKind
from conformance.child_process import Lost, Process
from conformance.errors import BackendUnavailable, HarnessError, SuiteError, UsageError
from conformance.measure import PARTS
from conformance.measure.found import Measurement
from conformance.messages import (
    Diagnose,
    Diagnosed,
    Done,
    Drive,
    Driven,
    Failed,
    Hello,
    Limits,
    Measure,
    Measured,
    Run,
    Start,
)
from conformance.pipeline.jobs import lost
from conformance.trial.result import lost_result
from conformance.trial.state import RunState

if TYPE_CHECKING:
    from collections.abc import Callable

    from conformance.backends.api import DeviceInfo
    from conformance.backends.registry import Opening
    from conformance.numbers import Depth, Numbers
    from conformance.pipeline.jobs import Job
    from conformance.shared import Words
    from probes.probe import Case, Probe
    from reports.diagnosis import Diagnosis
    from reports.pipeline import Parts
    from reports.records import Header, Result

#: Starts in a row until no further child is tried.
STARTS: Final = 2
#: What a child may refuse by these names is the user's to mend, and is raised here as it was there.
REFUSALS: Final[dict[str, type[SuiteError]]] = {"UsageError": UsageError, "BackendUnavailable": BackendUnavailable}


#: What a request is answered by.
Asked = TypeVar("Asked", Done, Measured, Driven, Diagnosed)


class _Refused(Exception):
    """The child could not open its device, and said why."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.text)
        self.kind = failed.kind


class ChildRunner:
    """A device in a child process, which is replaced when it hangs or crashes; a `Runner`."""

    def __init__(
        self,
        opening: Opening,
        numbers: Numbers,
        depth: Depth,
        *,
        restricted: bool = False,
        limits: Limits | None = None,
        make_words: Callable[[], Words] | None = None,
        factory: str = "",
    ) -> None:
        """Start the first child.

        Raises what the backend raises when it is not here or cannot be opened as asked, and HarnessError
        if the child cannot be started. ``make_words`` makes the shared gate words, anew for each child.
        """
        self.limits = limits or Limits.of(numbers)
        self._opening, self._numbers, self._depth, self._restricted = opening, numbers, depth, restricted
        self._make_words, self._factory = make_words, factory
        self._state = RunState(numbers)
        self._process: Process | None = None
        self._hello: Hello | None = None
        self._answered = False  # did any child give a verdict?
        self._gone = ""  # why no further child is tried
        self._ready()

    @property
    def header(self) -> Header:
        """As the first child told it."""
        return self._known.header

    @property
    def lock(self) -> DeviceInfo:
        """The device in use."""
        return self._known.lock

    @property
    def profile(self) -> str:
        """The profile that binds the backend."""
        return self._known.profile

    @property
    def surface(self) -> str:
        """The surface in use."""
        return self.header.surfaces[0]

    def gate(self) -> GateKind:
        """The gate kind in use."""
        return GateKind(kind=self.header.gate.kind, assurance=self.header.gate.assurance)

    @property
    def _known(self) -> Hello:
        assert self._hello is not None, "set by the first child, without which there is no runner"
        return self._hello

    def run(self, probe: Probe, case: Case) -> Result:
        """One case to its record; inconclusive if the child hangs or crashes.

        Raises HarnessError if no child can be started and none has given a verdict yet.
        """
        started = time.perf_counter()
        process = self._ready()
        if process is None:
            return lost_result(self, probe, case, self._gone)
        answer = self._ask(process, Run(probe=probe.name, variant=case.variant, state=self._state.plain()), Done)
        if isinstance(answer, str):
            return lost_result(self, probe, case, answer, time.perf_counter() - started)
        self._state, self._answered = RunState.from_plain(self._numbers, answer.state), True
        return answer.result

    def measure(self) -> Measurement:
        """The capabilities; of a part in which the child hangs or crashes only that."""
        found = Measurement()
        for part in PARTS:
            found |= self.measure_part(part)
        return found

    def measure_part(self, part: str) -> Measurement:
        """One of `conformance.measure.PARTS`."""
        try:
            process = self._ready()
        except HarnessError as error:
            self._gone, process = str(error), None
        if process is None:
            return Measurement(values={part: f"not measured: {self._gone}"})
        answer = self._ask(process, Measure(part=part), Measured)
        return Measurement(values={part: answer}) if isinstance(answer, str) else answer.measurement

    def drive(self, job: Job) -> Parts:
        """One job of the decode pipeline; a note of why if the child hangs or crashes."""
        try:
            process = self._ready()
        except HarnessError as error:
            self._gone, process = str(error), None
        if process is None:
            return lost(job, self._gone)
        answer = self._ask(process, Drive(job=job), Driven)
        return lost(job, answer) if isinstance(answer, str) else answer.parts

    def diagnose(self, point: dict[str, str], probe: str, variant: str) -> Diagnosis:
        """Sweep the factors of a late event. Raises HarnessError if the child hangs or crashes meanwhile."""
        process = self._ready()
        answer: Diagnosed | str = self._gone
        if process is not None:
            answer = self._ask(process, Diagnose(point=point, probe=probe, variant=variant), Diagnosed)
        if isinstance(answer, str):
            raise HarnessError(f"the diagnosis on {self._opening.name} was cut short ({answer}); run it again")
        return answer.diagnosis

    def _ask(self, process: Process, request: Run | Measure | Drive | Diagnose, expected: type[Asked]) -> Asked | str:
        """The child's answer, or why there is none. A child that gave none, or is spent, is ended."""
        process.limits = self.limits
        try:
            process.tell(request)
            answer = process.answer(self.limits.silence)
            if isinstance(answer, expected):
                if answer.spent:
                    self._end(politely=False)
                return answer
            reason = f"error: {answer.text}" if isinstance(answer, Failed) else "crash: an answer to something else"
        except Lost as lost:
            reason = str(lost)
        except BaseException:
            self.close()  # Ctrl-C: the gates are opened before anything else is done
            raise
        self._end(politely=False)
        if reason.startswith("hang"):
            reason += "; the child was replaced"
        return reason

    def interrupt(self) -> None:
        """From another thread than the one that runs cases: have the child end, and start no further one.

        The case that runs is lost; that thread must ask for no more.
        """
        self._gone = self._gone or "the run was interrupted"
        process = self._process
        if process is not None:
            process.interrupt()

    def close(self) -> None:
        """End the child: it opens its gates and gives the device back, or is killed after one gate limit."""
        self._gone = self._gone or "the runner is closed"
        self._end(politely=True)

    def _end(self, *, politely: bool) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.end(politely=politely)

    def _ready(self) -> Process | None:
        """A child that has opened the device, None if no further one is tried."""
        why = ""
        for _ in range(0 if self._process is not None or self._gone else STARTS):
            if not (why := self._try()):
                break
        if why:
            self._gone = f"no child: {why}"
        if self._gone and not self._answered:
            raise HarnessError(
                f"the child that drives {self._opening.name} cannot be started ({self._gone}); "
                "see that the device works without this suite"
            )
        return self._process

    def _try(self) -> str:
        """Start a child; returns why there is none. Raises what the first one refuses as the user's to mend."""
        try:
            self._greet()
        except _Refused as refused:
            self._end(politely=False)
            if self._hello is None and refused.kind in REFUSALS:
                raise REFUSALS[refused.kind](str(refused)) from None
            why = str(refused)
        except Lost as lost:
            self._end(politely=False)
            why = str(lost)
        except BaseException:
            self.close()
            raise
        else:
            return ""
        # It may be what is made ready beforehand, as a second device is: where a case asks for it, it costs a verdict.
        self._opening = replace(self._opening, expects=())
        return why

    def _greet(self) -> None:
        start = Start(
            opening=self._opening,
            numbers=self._numbers,
            depth=self._depth,
            restricted=self._restricted,
            limits=self.limits,
            path=tuple(os.path.abspath(entry) for entry in sys.path),
            folder=os.getcwd(),
            # The kernel's signal goes out when the thread that started the child ends, not the process.
            die_with_parent=threading.current_thread() is threading.main_thread(),
            factory=self._factory,
        )
        words = self._make_words() if self._make_words is not None else None
        if words is not None:
            start = msgspec.structs.replace(start, opening=replace(self._opening, words=words.fd))
        self._process = Process(start, words)
        answer = self._process.answer(self.limits.start)
        if isinstance(answer, Failed):
            raise _Refused(answer)
        if not isinstance(answer, Hello):
            raise Lost("crash: a result instead of a greeting")
        if self._hello is None:
            self._hello = answer
        elif (here := _facts(answer)) != (before := _facts(self._hello)):
            # Results of two devices, or of gates of another kind, do not belong in one report.
            raise Lost(f"another device or gate than before: {here} after {before}")


def _facts(hello: Hello) -> str:
    """What must not change when a child is replaced."""
    header = hello.header
    return f"{header.device.name} {hello.lock.lock or header.device.index} with {header.gate.kind} gates"
