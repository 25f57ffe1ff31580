"""Clauses about kinds of streams: the legacy default stream, non-blocking ones, priorities, and their destruction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from conformance.spec import sources as at
from conformance.spec._bind import REFERENCE_OBSERVED, absent, define, must, should
from conformance.spec.records import Basis

if TYPE_CHECKING:
    from conformance.spec.records import Clause

_NO_DEFAULT: Final = "there is no default queue"
_RAW: Final = "torch's own side streams are non-blocking, so the clause is reached with a raw stream only"
_NO_RAW: Final = "torch makes no blocking side stream"
_COMPATIBLE: Final = "no public text; rests on stated compatibility"
_PERMITTED: Final = "the text permits it and promises no concurrency"

#: In the order in which reports list them.
CLAUSES: Final[tuple[Clause, ...]] = (
    define(
        "STM-CONC-2",
        "A record takes in no unrelated stream",
        "An event on one stream is seen complete although another stream, to which nothing ties it, is blocked and was "
        "so before the record.",
        "The token of the work ahead of the record has arrived, and the event is not seen by the deadline while the "
        "gate of an unrelated stream is shut.",
        cuda=should(at.C_REC, basis=Basis.DOCUMENT, note="cannot be told from two streams that share a queue"),
        hip=should(at.H_REC, basis=Basis.DOCUMENT, note="cannot be told from two streams that share a queue"),
        musa=should(at.M_DOC, basis=Basis.TORCH, note="cannot be told from two streams that share a queue"),
        torch=should(at.T_QRY, basis=Basis.TORCH, note="cannot be told from two streams that share a queue"),
        opencl=should(at.O_MRK, basis=Basis.DOCUMENT, note="cannot be told from queues that share a resource"),
        reference=REFERENCE_OBSERVED,
    ),
    define(
        "STM-LEGACY-1",
        "The legacy default stream orders blocking streams",
        "Work on the legacy default stream runs after all that blocking streams had been given before, and what they "
        "are given later runs after it.",
        "A token of the default stream arrives with a gate of a blocking stream, issued earlier, shown shut; or the "
        "other way round.",
        cuda=must(at.C_SSB, at.C_OLD1, note=_RAW),
        hip=must(at.H_ELA, at.H_PTD, note=_RAW + "; a stream wait does not tie a stream to the null stream"),
        musa=should(at.C_SSB, basis=Basis.COMPATIBILITY, note=_COMPATIBLE),
        torch=absent(_NO_RAW),
        opencl=absent(_NO_DEFAULT),
    ),
    define(
        "STM-LEGACY-2",
        "A record on the legacy default stream takes in blocking streams",
        "An event recorded on the legacy default stream stands for all that blocking streams had been given before.",
        "The event is seen complete with a gate of a blocking stream, issued earlier, shown shut.",
        cuda=must(at.C_OLD1, at.C_SSB, note=_RAW),
        hip=must(at.H_ELA, at.H_PTD, note=_RAW),
        musa=should(at.C_OLD1, basis=Basis.COMPATIBILITY, note=_COMPATIBLE),
        torch=absent(_NO_RAW),
        opencl=absent(_NO_DEFAULT),
    ),
    define(
        "STM-NB-1",
        "A non-blocking stream is free of the default stream",
        "Work on a non-blocking stream runs although the default stream is blocked and was so before.",
        "Neither event nor token of a non-blocking stream is seen by the deadline while only a gate of the default "
        "stream is shut.",
        cuda=should(at.C_NB, at.T_POOL, basis=Basis.DOCUMENT, note=_PERMITTED),
        hip=should(at.H_PM, at.T_POOL, basis=Basis.DOCUMENT, note=_PERMITTED),
        musa=should(at.M_POOL, basis=Basis.TORCH, note=_PERMITTED),
        torch=should(at.T_SEM, basis=Basis.TORCH, note=_PERMITTED),
        opencl=absent(_NO_DEFAULT),
        reference=REFERENCE_OBSERVED,
    ),
    define(
        "STM-PTDS-1",
        "A per-thread default stream is a blocking stream of its thread",
        "Built that way, each host thread has a default stream of its own, tied to the legacy stream and to no other "
        "thread's.",
        "As for the legacy stream, thread by thread.",
        cuda=must(at.C_SSB, note="an option of the build"),
        hip=must(at.H_PTD, note="an option of the build"),
        musa=should(at.C_SSB, basis=Basis.COMPATIBILITY, note=_COMPATIBLE),
        torch=absent("torch is built with the legacy default stream"),
        opencl=absent(_NO_DEFAULT),
        reference=absent("the reference device has one default stream"),
    ),
    define(
        "STM-DESTROY-1",
        "Destroying a stream does not lose its work",
        "A stream may be destroyed with work pending: the call comes back at once, and the work is done all the same.",
        "The call does not come back while a gate is shut; or the work does not run once that has opened, although it "
        "does without the destroy.",
        cuda=must(at.C_SDES),
        hip=should(
            at.H_SDES, basis=Basis.DOCUMENT, note="the text allows the call to return at once and allows it to wait"
        ),
        musa=should(at.C_SDES, basis=Basis.COMPATIBILITY, note=_COMPATIBLE),
        torch=absent("torch never destroys a stream of its pool"),
        opencl=should(at.O_CRQ, basis=Basis.DOCUMENT, note="the queue is kept for its commands; the call may wait"),
    ),
    define(
        "STM-PRIO-1",
        "Priority changes no order",
        "Streams of different priorities obey every rule about order that streams of one priority obey.",
        "A program behaves wrongly with prioritised streams and rightly with plain ones.",
        cuda=must(at.C_PRI),
        hip=must(at.H_PRI, at.H_ASY, note="priorities may have no effect at all"),
        musa=should(at.M_POOL, basis=Basis.TORCH, note="the pool has priorities; no text says what they change"),
        torch=should(at.T_PRI, basis=Basis.TORCH, note="a hint to the device"),
        opencl=absent("the core of OpenCL has no priorities; an extension gives queues one"),
    ),
)
