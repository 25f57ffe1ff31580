"""The words by which host, device and a supervising process agree on a gate.

A block of 64 words of 32 bits per gate, in pinned host memory. Every use of a gate has a ticket, and words
only grow, so a stale word can never open, enter, end or expire a later use.

=====  =======  ======================  ============================================================
index  name     written by              meaning
=====  =======  ======================  ============================================================
0      OPEN     host                    the last ticket that was opened; alone in its 128-byte line
0-31   (sem_t)  host, driver's thread   host-function gates only: four semaphores of 32 bytes instead
32     ENTERED  device                  the last ticket that the stream has reached
33     ENDED    device                  the last ticket that holds no more; written after all others
34     EXPIRED  device, or watchdog     the last ticket that its limit ended
36-37  POLLS    device                  looks at OPEN during the last use (64 bits)
38-39  TICKS    device                  the timer's ticks during the last use (64 bits)
40     TICKET   host                    the ticket in use; written before it is queued
41     KIND     host                    what the block is: 0 unused, 1 words, 2 semaphores, 3 timed
42     OPENED   host                    semaphores only: the last ticket that was opened, by whomever
=====  =======  ======================  ============================================================

The four semaphores, by byte: 0 open (posted once a use), 32 entered and 64 ended (their counts are the
tickets), 96 guard (held while a use begins or is opened, so that two processes post once between them).
"""

from __future__ import annotations

import ctypes
import itertools
import mmap
import os
import time
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from conformance.backends.calls import yield_interpreter
from conformance.backends.gates.libraries import GateError, GateUnsupported
from conformance.loader import CDLL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conformance.backends.gates.native import Native

#: Words in a block: 256 bytes, so that OPEN never shares a line with what a device writes.
BLOCK: Final = 64
OPEN, ENTERED, ENDED, EXPIRED, POLLS, TICKS, TICKET, KIND, OPENED = 0, 32, 33, 34, 36, 38, 40, 41, 42
#: Values of KIND.
UNUSED, WORDS, SEMAPHORES, TIMED = 0, 1, 2, 3
#: Gates that a mapping has room for by default: the deepest pipeline's, and those of the self-checks.
GATES: Final = 192
#: Seconds after which a guard is passed all the same: its holder was stopped or killed inside.
_GUARD_LIMIT: Final = 0.1


def make_fd(gates: int = GATES) -> int:
    """A new memory file of zeroed blocks, for `Words` here or in a child (``pass_fds``) and `SharedWords`.

    It is not inherited unless passed on, and belongs to the caller, who closes it. Make one per child.
    """
    page = mmap.PAGESIZE
    fd = os.memfd_create("stream-conformance-gates", os.MFD_CLOEXEC)
    os.ftruncate(fd, -(-gates * BLOCK * 4 // page) * page)
    return fd


class Semaphores:
    """The four semaphores of a host-function gate's block, the same seen from either process."""

    def __init__(self, view: ctypes.Array[ctypes.c_uint32], base: int) -> None:
        self._view, self._base = view, base
        self._libc = CDLL(None)
        at = ctypes.addressof(view) + 4 * base
        self.open, self.entered, self.ended, self._guard = (ctypes.c_void_p(at + 32 * i) for i in range(4))

    def initialise(self, ticket: int) -> None:
        """Begin with all uses up to ``ticket`` entered and ended. No use may be in flight."""
        for semaphore, value in ((self.open, 0), (self.entered, ticket), (self.ended, ticket), (self._guard, 1)):
            if self._libc.sem_init(semaphore, 1, value):  # 1: shared between processes
                raise GateError(f"sem_init(shared, {value}) failed")

    def count(self, semaphore: ctypes.c_void_p) -> int:
        """A semaphore's count."""
        count = ctypes.c_int()
        self._libc.sem_getvalue(semaphore, ctypes.byref(count))
        return count.value

    def begin(self, ticket: int) -> None:
        """Say which use is next; a post that an earlier one left over is taken away first."""
        with self._guarded():
            while self._libc.sem_trywait(self.open) == 0:
                pass
            self._view[self._base + TICKET] = ticket

    def release(self, ticket: int | None = None, expired: bool = False) -> bool:
        """Open the current use, if it is ``ticket`` (None: whichever it is) and nobody has; True if that was done.

        ``expired`` marks it as ended by its limit, before it is opened.
        """
        view, base = self._view, self._base
        with self._guarded():
            current = view[base + TICKET]
            if ticket not in (None, current) or view[base + OPENED] == current:
                return False
            if expired:
                if self.count(self.ended) >= current:
                    return False
                view[base + EXPIRED] = current
            view[base + OPENED] = current
            self._libc.sem_post(self.open)
            return True

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        end, held = time.monotonic() + _GUARD_LIMIT, True
        while self._libc.sem_trywait(self._guard):
            if time.monotonic() > end:
                held = False
                break
            yield_interpreter()
        try:
            yield
        finally:
            if held:
                self._libc.sem_post(self._guard)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where blocks lie: the words, and the addresses of the first block for the host and for the device."""

    view: ctypes.Array[ctypes.c_uint32]  # view[i] = v is one aligned store
    host: int
    device: int


class Words:
    """Blocks that the device can reach: a mapping registered with the driver, else torch's pinned memory.

    ``fd``: a file from `make_fd`, which another process maps too; there may be one Words per file at a
    time. Without it the mapping is private to this process and has ``gates`` blocks. ``why`` is empty, or
    says why torch's memory had to do; semaphores, which no device touches, stay in the mapping all the same.
    ``unseen`` is the same text where a supervisor is there and cannot reach the words. ``view``, ``host`` and
    ``device`` are those of the blocks that a device uses.
    """

    def __init__(self, native: Native, *, gates: int = GATES, fd: int = -1) -> None:
        page = mmap.PAGESIZE
        size = os.fstat(fd).st_size if fd >= 0 else -(-gates * BLOCK * 4 // page) * page
        self._native = native
        self.why = self._unreachable = ""
        self._memory: Any = mmap.mmap(fd, size)
        mapped = (ctypes.c_uint32 * (size // 4)).from_buffer(self._memory)
        at = ctypes.addressof(mapped)
        # A file may have been used by a child that is gone: go on above every ticket that it wrote.
        self._first = max(mapped[base + TICKET] for base in range(0, len(mapped), BLOCK))
        self._next = itertools.count()
        self._registered = True
        # A device or a driver's thread may write here to the end of the process: a reference that nobody
        # owns is not dropped at exit.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._memory))
        try:
            native.call(
                "register", ctypes.c_void_p(at), ctypes.c_size_t(size), ctypes.c_uint(native.vendor.register_flags)
            )
        except GateError as error:
            self.why, self._registered = str(error), False
            torch = native.torch
            self._memory = torch.zeros(size // 4, dtype=torch.int32, pin_memory=True)
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._memory))
            self._words = self._place((ctypes.c_uint32 * (size // 4)).from_address(self._memory.data_ptr()))
        else:
            self._words = self._place(mapped)
        self._mapped = Place(view=mapped, host=at, device=0)
        self.view, self.host, self.device = self._words.view, self._words.host, self._words.device
        self.unseen = self.why if fd >= 0 else ""

    def elsewhere(self, native: Native) -> Words:
        """The same blocks, from the same store of them, as another device reaches them. Only `self` is closed."""
        other = copy(self)
        other._native, other._unreachable = native, ""
        other._words = other._place(self.view)
        other.device = other._words.device
        return other

    def _place(self, view: ctypes.Array[ctypes.c_uint32]) -> Place:
        host = ctypes.addressof(view)
        pointer = ctypes.c_void_p(host)
        try:
            self._native.call("pointer", ctypes.byref(pointer), ctypes.c_void_p(host), ctypes.c_uint(0))
        except GateUnsupported:
            pointer.value = host  # one address space is assumed
        except GateError as error:
            self._unreachable = str(error)
        return Place(view=view, host=host, device=int(pointer.value or 0))

    def place(self, kind: int) -> Place:
        """Where blocks of a kind lie. Raises GateError if the device has no address for them."""
        if kind == SEMAPHORES:
            return self._mapped
        if kind == WORDS and self._unreachable:
            raise GateError(self._unreachable)
        return self._words

    def take(self, kind: int) -> tuple[int, int]:
        """(index of the first word of a new block, ticket to count on from). Raises GateError if none is left."""
        view, first = self.place(kind).view, self._first
        base = next(self._next) * BLOCK
        if base >= len(view):
            raise GateError(f"no gate block is left of {len(view) // BLOCK}; ask for more gates")
        view[base + KIND] = UNUSED  # nothing in the block counts until it is consistent
        for word in (OPEN, ENTERED, ENDED, EXPIRED, TICKET, OPENED):
            view[base + word] = first
        if kind == SEMAPHORES:
            Semaphores(view, base).initialise(first)
        view[base + KIND] = kind
        return base, first

    def tensor(self, base: int) -> Any:
        """The block at ``base`` as a torch tensor of 64 int32, for a launcher that takes tensors only."""
        torch = self._native.torch
        if not self._registered:
            return self._memory[base : base + BLOCK]
        return torch.frombuffer(self._memory, dtype=torch.int32, count=BLOCK, offset=4 * base)

    def close(self) -> None:
        """Undo the registration. No gate of the process may be closed: the call waits for all of them.

        The memory itself stays, so that a late look at a gate reads words and not nothing.
        """
        if self._registered:
            self._registered = False
            self._native.enter()
            self._native.call("unregister", ctypes.c_void_p(self.host))


class SharedWords:
    """The supervisor's side of the same blocks: sees and opens gates, also of a child that is stopped.

    Needs neither torch nor a driver. ``fd`` is the file that the child's `Words` maps; it may be closed
    afterwards.
    """

    def __init__(self, fd: int) -> None:
        size = os.fstat(fd).st_size
        self._view = (ctypes.c_uint32 * (size // 4)).from_buffer(mmap.mmap(fd, size))

    def blocks(self) -> list[int]:
        """The numbers of the blocks in use."""
        return [n for n in range(len(self._view) // BLOCK) if self._view[n * BLOCK + KIND] != UNUSED]

    def ticket(self, block: int) -> int:
        """The ticket that a block's gate uses now."""
        return self._view[block * BLOCK + TICKET]

    def closed(self) -> list[int]:
        """The numbers of the blocks whose gate is proved to hold its stream now. A timed gate shows nothing here."""
        return [n for n in self.blocks() if self._is_closed(n * BLOCK)]

    def ended(self, block: int) -> bool:
        """True if the last use of a block holds no more. Always True of a timed gate, which shows nothing here."""
        base, view = block * BLOCK, self._view
        if view[base + KIND] == SEMAPHORES:
            semaphores = Semaphores(view, base)
            return semaphores.count(semaphores.ended) >= view[base + TICKET]
        return view[base + KIND] != WORDS or view[base + ENDED] == view[base + TICKET]

    def open_all(self) -> list[int]:
        """Open the current use of every gate that nobody has opened; returns the numbers of their blocks.

        A use that the child begins meanwhile is opened as well, or left to the next call. Timed gates
        cannot be opened.
        """
        return [n for n in self.blocks() if self._open(n * BLOCK)]

    def _is_closed(self, base: int) -> bool:
        view, ticket = self._view, self._view[base + TICKET]
        if view[base + KIND] == WORDS:
            entered, opened, last = (view[base + word] for word in (ENTERED, OPEN, ENDED))
            return entered == ticket and ticket not in (opened, last)
        if view[base + KIND] == SEMAPHORES:
            semaphores = Semaphores(view, base)
            entered = semaphores.count(semaphores.entered)
            return entered >= ticket > semaphores.count(semaphores.ended) and view[base + OPENED] != ticket
        return False

    def _open(self, base: int) -> bool:
        view, done = self._view, False
        if view[base + KIND] == SEMAPHORES:
            return Semaphores(view, base).release()
        # Again if the child went on to another use meanwhile: its own store to OPEN, a larger ticket, may
        # have been overwritten with the smaller one, and this puts it right.
        while view[base + KIND] == WORDS and view[base + OPEN] != (ticket := view[base + TICKET]):
            view[base + OPEN] = ticket
            done = True
        return done
