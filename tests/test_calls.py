"""What every real-time backend shares: blocking calls in helper threads, and a watchdog."""

from __future__ import annotations

import threading
from functools import partial

import pytest
from realtime_helpers import DEADLINE, clock, until

from conformance.backends.calls import HelperPool, Watchdog


def test_helpers_are_used_again_and_keep_errors() -> None:
    pool, held = HelperPool("test"), threading.Event()
    names: list[str] = []

    def note() -> None:
        names.append(threading.current_thread().name)

    def fail() -> None:
        raise SystemExit("kept")

    stuck = pool.start(held.wait)
    for _ in range(20):
        call = pool.start(note)
        assert until(partial(getattr, call, "returned"))
        assert call.error is None
    assert len(set(names)) == 1  # a call that has not returned keeps its helper, and no other
    failed = pool.start(fail)
    assert until(lambda: failed.returned)
    assert isinstance(failed.error, SystemExit)
    assert not stuck.returned
    again = pool.start(note)
    assert until(lambda: again.returned)
    assert set(names) == {names[0]}  # an error does not cost the helper
    held.set()
    assert until(lambda: stuck.returned)
    pool.close()


def test_watchdog_acts_in_order_of_time() -> None:
    dog = Watchdog("test")
    acted: list[str] = []
    now = clock.now()
    dog.at(now + 0.04, lambda: acted.append("late"))
    dog.at(now + 0.02, lambda: acted.append("early"))
    dog.at(now + 1000 * DEADLINE, lambda: acted.append("never"))
    assert until(lambda: len(acted) == 2)
    assert acted == ["early", "late"]
    dog.close()
    with pytest.raises(RuntimeError, match="closed"):
        dog.at(now, lambda: None)
