"""Clauses about events beyond one stream's past: how soon, by which flags, on other devices and in other processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from conformance.spec import sources as at
from conformance.spec._bind import REFERENCE_OBSERVED, absent, define, must, must_torch, should
from conformance.spec.records import Basis

if TYPE_CHECKING:
    from conformance.spec.records import Clause

_NO_BOUND: Final = "no document bounds the delay: a quality, reported as a number"
_NO_FLAGS: Final = "a marker takes no flags"
_ONE_CONTEXT: Final = "our adapter makes one context on one device"

#: In the order in which reports list them.
CLAUSES: Final[tuple[Clause, ...]] = (
    define(
        "EVT-LAG-1",
        "Completion is seen soon",
        "Once everything that an event stands for has ended, the host sees it complete within five milliseconds, or "
        "within ten times what it takes without later work on the stream, whichever is longer.",
        "The event is seen in time for its deadline, but later than that bound after the host began to look.",
        cuda=should(at.C_QRY, at.C_EXM1, basis=Basis.DOCUMENT, note=_NO_BOUND),
        hip=should(at.H_QRY, basis=Basis.DOCUMENT, note=_NO_BOUND),
        musa=should(at.M_DOC, at.T_QRY, basis=Basis.TORCH, note=_NO_BOUND),
        torch=should(at.T_QRY, basis=Basis.TORCH, note=_NO_BOUND),
        opencl=should(at.O_STA, at.O_FLU, basis=Basis.DOCUMENT, note=_NO_BOUND),
        reference=REFERENCE_OBSERVED,
    ),
    define(
        "EVT-QNB-1",
        "Query returns at once",
        "Asking an event comes back without waiting, also while another thread is inside synchronize on it.",
        "A query has not come back after a tenth of a second while a gate ahead of the record is shut.",
        cuda=should(at.C_QRY, basis=Basis.DOCUMENT, note="by what the call is for; no sentence says that it returns"),
        hip=should(
            at.H_QRY, at.H_SRC, basis=Basis.DOCUMENT, note="query takes the lock that synchronize holds while it waits"
        ),
        musa=should(at.M_DOC, at.T_GIL, basis=Basis.TORCH, note="query keeps the interpreter's lock"),
        torch=should(at.T_QRY, at.T_GIL, basis=Basis.TORCH, note="query keeps the interpreter's lock"),
        opencl=should(at.O_INF, at.O_THR, basis=Basis.DOCUMENT, note="a read of a status, safe from any thread"),
        reference=REFERENCE_OBSERVED,
    ),
    define(
        "EVT-ASK-1",
        "Not yet is no error",
        "After a query has found its event pending, a call that is right succeeds.",
        "The next call raises an error that it does not raise without the query.",
        cuda=should(at.C_QRY, basis=Basis.DOCUMENT, note="the answer is a status; that it is forgotten is not said"),
        hip=should(at.H_QRY, basis=Basis.DOCUMENT, note="the answer is a status; that it is forgotten is not said"),
        musa=should(at.M_DOC, at.T_GRD, basis=Basis.TORCH, note="the guard forgets the error that a query left"),
        torch=should(at.T_QRY, at.T_GRD, basis=Basis.TORCH, note="the guard forgets the error that a query left"),
        opencl=should(at.O_INF, basis=Basis.DOCUMENT, note="a read of a status"),
        reference=REFERENCE_OBSERVED,
    ),
    define(
        "EVT-FLAG-1",
        "The blocking flag gives the processor up",
        "A thread that synchronizes on an event made with the blocking flag uses little processor time while it waits; "
        "the flag changes nothing else.",
        "The thread's processor time during a hold is about as long as the hold.",
        cuda=should(at.C_FLG, at.C_SYN, basis=Basis.DOCUMENT, note="the flag is described; no figure is promised"),
        hip=should(at.H_FLG, basis=Basis.DOCUMENT, note="the flag is described; no figure is promised"),
        musa=should(at.M_DOC, basis=Basis.TORCH, note="the flag is passed on; no figure is promised"),
        torch=should(
            at.T_GEN, basis=Basis.TORCH, note="the generic event takes the flag, and its page says that it is ignored"
        ),
        opencl=absent(_NO_FLAGS),
        reference=REFERENCE_OBSERVED,
    ),
    define(
        "EVT-FLAG-2",
        "An event without timing completes by the same rules",
        "Whether an event keeps a time changes nothing about what it stands for and when it is seen complete.",
        "A program behaves wrongly with events of one kind and rightly with events of the other.",
        cuda=must(at.C_FLG, at.C_REC),
        hip=must(
            at.H_FLG,
            at.H_REC,
            note="an event made without the system fence completes by the same rules; its data need not be visible",
        ),
        musa=must_torch(at.M_DOC, at.T_QRY),
        torch=must_torch(at.T_QRY, at.T_SYN),
        opencl=must(at.O_PRF, at.O_MRK, note="a queue made with profiling keeps times; commands complete alike"),
    ),
    define(
        "EVT-WAIT-6",
        "A wait reaches across devices",
        "A stream may wait for an event that a stream of another device recorded, with the same effect as on one.",
        "Work behind such a wait runs with the other device's gate shut, or does not run once that has opened.",
        cuda=must(at.C_WAI, at.C_MUL, note="where two devices are"),
        hip=must(at.H_WAI, note="where two devices are"),
        musa=must_torch(at.M_DOC, note="where two devices are"),
        torch=must_torch(at.T_DEV, at.T_WAI, note="where two devices are"),
        opencl=absent(_ONE_CONTEXT),
    ),
    define(
        "EVT-IPC-1",
        "An imported event follows its exporter",
        "An event opened from another process's handle stands for that process's latest record: query, synchronize and "
        "waits in the importer see it complete when, and only when, the recorded work has ended.",
        "The importer sees the event complete with the exporter's gate shown shut, or does not see it once the gate "
        "has opened.",
        cuda=must(at.C_IPC, at.T_IPC),
        hip=must(at.H_IPC, note="on Linux, and in another process than the exporter's"),
        musa=should(at.C_IPC, basis=Basis.COMPATIBILITY, note="no public text; rests on stated compatibility"),
        torch=absent("torch.Event has no handle for other processes; the vendor's class has one"),
        opencl=absent("the core of OpenCL shares no event between processes"),
    ),
    define(
        "EVT-ERR-1",
        "Recording on another device is refused",
        "Recording an event of one device on a stream of another raises an error.",
        "The call comes back without one.",
        cuda=must(at.C_CTX, at.C_MUL, at.T_DEV, note="where two devices are"),
        hip=must(at.T_DEV, at.H_REC, note="where two devices are; the error's text and code differ"),
        musa=must_torch(at.M_DOC, at.T_DEV, note="where two devices are"),
        torch=must_torch(at.T_DEV, note="where two devices are"),
        opencl=absent(_ONE_CONTEXT),
    ),
)
