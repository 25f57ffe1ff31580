"""What the reference device does beside programs: hooks that a fault replaces, as those of `Device` itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from probes.program import Copy


class Beside:
    """The device's answers to what experiments ask, in sessions (`beside`) and in what these give (`extras`)."""

    #: The host thread that makes the call at hand.
    thread = "main"
    #: Threads that no capture's mode binds.
    relaxed: frozenset[str] = frozenset()

    def spins(self, event: str, blocking: bool) -> bool:
        """Does a thread use its processor while it synchronizes on the event?"""
        return not blocking

    def copy_blocks(self, op: Copy) -> bool:
        """Does this copy hold the host back now?"""
        return False

    #: Has the host asked for an event that was pending?
    asked_pending = False

    def query_takes(self, in_sync: bool, pending: bool) -> float:
        """Seconds in a query while a thread is (or is not) in synchronize on the same event."""
        return 0.0

    #: Does the next call that queues something raise what a query left behind?
    owes_error = False

    def query_sticks(self) -> bool:
        """Is "not yet" an error of whatever is called next?"""
        return False

    def stream_query_blocks(self, in_sync: bool) -> bool:
        """Does a query of a stream hold the host back while a thread is (or is not) in synchronize on it?"""
        return False

    def stream_destroy_blocks(self, pending: bool) -> bool:
        """Does destroying a stream with (or without) pending work hold the host back?"""
        return False

    def stream_destroy_drops(self) -> bool:
        """Is the pending work of a destroyed stream lost?"""
        return False

    def recorded_elsewhere(self, recorder: str) -> bool:
        """Is an event that another thread recorded taken for one that was never recorded?"""
        return False

    def current_key(self, thread: str) -> str:
        """Under which name a thread's current stream is kept."""
        return thread

    def arrives_after(self, size: int) -> float:
        """Seconds from the end of a block's copy until its data is in host memory."""
        return 0.0

    def stores_visible(self) -> bool:
        """Does the host find what kernels stored to its memory?"""
        return True

    def refuses_query(self) -> bool:
        """Is it an error to ask a captured event?"""
        return True

    def refuses_synchronize(self) -> bool:
        """Is it an error to synchronize on a captured event or a stream that is being captured?"""
        return True

    def record_blocks_in_sync(self) -> bool:
        """Does a record hold the host back while a thread is in synchronize on its stream?"""
        return False

    def wait_blocks_in_sync(self) -> bool:
        """Does a wait hold the host back while a thread is in synchronize on the stream that it waits for?"""
        return False

    def mixes_records(self) -> bool:
        """Does a record right after one of another thread go to that one's stream?"""
        return False

    def refuses_outside_wait(self) -> bool:
        """Is it an error if a captured stream waits for an event outside the capture?"""
        return True

    def refuses_legacy(self) -> bool:
        """Is it an error to use the legacy default stream while a blocking stream is captured?"""
        return True

    def forbids_query(self, mode: str, owner: str) -> bool:
        """Is it an error to ask for an event outside a capture of this mode that the thread ``owner`` began?"""
        if self.thread in self.relaxed:
            return False
        return mode == "global" or (mode == "thread-local" and owner == self.thread)

    def refuses_time_across(self) -> bool:
        """Is it an error to ask for the time between events of two devices?"""
        return True

    def imported_complete(self) -> bool:
        """Does another process take a shared event for complete, whatever it stands for?"""
        return False
