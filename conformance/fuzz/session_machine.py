"""The fast path on any backend, by its ordinary sessions: the reference device, OpenCL, a device with a fault."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from conformance.backends.api import EventFlags
from conformance.execution import Setting, request_for
from conformance.fuzz.plan import SYNC, SYNC_STREAM
from conformance.fuzz.screen import PATIENCE, Machine, Tally, screen
from probes.program import Sync, SyncDevice, SyncStream

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from conformance.backends.api import Backend, Session, Waiter
    from conformance.fuzz.plan import Item, Plan
    from conformance.fuzz.recipe import Choice
    from conformance.numbers import Numbers
    from probes.program import Program


class _Bound(dict[str, Any]):
    """Calls by name, bound when they are first wanted."""

    def __init__(self, bind: Callable[[str], Callable[[], Any]]) -> None:
        super().__init__()
        self._bind = bind

    def __missing__(self, name: str) -> Callable[[], Any]:
        call = self[name] = self._bind(name)
        return call


class SessionMachine:
    """One program on one session; a `Machine`."""

    def __init__(self, backend: Backend, session: Session, program: Program, patience: float) -> None:
        self.patience = patience
        self._session, self._steps, self._clock = session, program.steps, backend.clock
        self._waiters: dict[str, Waiter] = {}
        self.query: Mapping[str, Callable[[], bool]] = _Bound(self._query)
        self.read: Mapping[str, Callable[[], int]] = _Bound(lambda buffer: partial(session.read, buffer))
        self.ended: Mapping[str, Callable[[], bool]] = _Bound(lambda gate: partial(session.ended, gate))
        self.open, self.destroy, self.query_stream = session.open, session.destroy, session.query_stream
        self.now, self.pause = self._clock.now, self._clock.pause

    def _query(self, key: str) -> Callable[[], bool]:
        event, by_helper, _ = key.partition("#")
        if not by_helper:
            return partial(self._session.query, event)
        waiter = self._session.start(Sync(event=event))
        return lambda: _returned(waiter)

    def issue(self, item: Item) -> None:
        """Queue the operations of an ISSUE item."""
        issue = self._session.issue
        for op in self._steps[item[1] : item[2]]:
            issue(op)  # type: ignore[arg-type]  # an ISSUE item is of device operations

    def returns(self, kind: int, name: str) -> bool:
        """Does a synchronize return in time?"""
        call = Sync(event=name) if kind == SYNC else SyncStream(stream=name) if kind == SYNC_STREAM else SyncDevice()
        waiter = self._session.start(call)
        began, polls = self.now(), 0
        while not _returned(waiter):
            if self.now() - began >= self.patience:
                return False
            self.pause(polls)
            polls += 1
        return True


def _returned(waiter: Waiter) -> bool:
    if waiter.returned and waiter.error is not None:
        raise waiter.error
    return waiter.returned


class SessionScreen:
    """Screens programs on a backend, a session each."""

    def __init__(self, backend: Backend, numbers: Numbers) -> None:
        self._backend, self._numbers = backend, numbers
        self.tally = Tally()

    def run(self, plan: Plan, program: Program, choice: Choice, patience: float = PATIENCE) -> str:
        """The first anomaly, or empty. Raises what the backend raises."""
        setting = Setting(observe=choice.observe, flags=EventFlags(choice.flags), order=program.streams)
        session = self._backend.session(request_for(program, setting, self._numbers))
        try:
            if len(set(session.handles().values())) < len(program.streams):
                return "two streams are one"
            machine: Machine = SessionMachine(self._backend, session, program, patience)
            return screen(plan, machine, self.tally)
        finally:
            session.close()
