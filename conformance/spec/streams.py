"""Clauses about streams: order within one, independence of others, identity, and visibility of copied data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from conformance.spec import sources as at
from conformance.spec._bind import absent, define, must, must_torch, should
from conformance.spec.records import Basis

if TYPE_CHECKING:
    from conformance.spec.records import Clause

_PRECONDITION: Final = "a precondition of every program: with equal handles nothing else is said about it"

#: In the order in which reports list them.
CLAUSES: Final[tuple[Clause, ...]] = (
    define(
        "STM-FIFO-1",
        "A stream keeps its order",
        "The effects of the operations of one stream appear in the order in which they were issued.",
        "The token of a later copy arrives with a gate ahead of it on the same stream shown shut.",
        cuda=must(at.C_PG4),
        hip=must(at.H_ASY),
        musa=must_torch(at.M_DOC, at.T_STR),
        torch=must_torch(at.T_STR, at.T_SEM),
        opencl=must(at.O_ORD, at.O_CCQ, note="for queues made without the out-of-order property"),
    ),
    define(
        "STM-WSTREAM-1",
        "wait_stream is a record and a wait",
        "Making one stream wait for another has the effect of recording a fresh event on the second and waiting for "
        "it on the first.",
        "A program behaves wrongly with wait_stream and rightly with the two calls spelled out.",
        cuda=must_torch(at.T_WS),
        hip=must_torch(at.T_WS),
        musa=must_torch(at.M_DOC, at.T_WS),
        torch=must_torch(at.T_WS),
        opencl=absent("there is no such call; our adapter spells it as a marker and a wait"),
    ),
    define(
        "STM-QUERY-1",
        "Stream query does not report idleness early",
        "Asking a stream gives 'done' only if every operation issued on it so far has ended.",
        "Stream query answers 'done' with a gate of that stream shown shut afterwards.",
        cuda=must(at.C_SQ),
        hip=must(at.H_SQ, note="the answer is a snapshot, which later work of other threads may overtake"),
        musa=must_torch(
            at.T_SQ, at.M_GRD, at.T_GRD, note="by the guard interface; torch_musa's method has no docstring"
        ),
        torch=must_torch(at.T_SQ, at.T_GRD),
        opencl=absent("there is no call that asks whether a queue is done"),
    ),
    define(
        "STM-SYNC-1",
        "Stream synchronize waits for its own stream",
        "Synchronize on a stream stays inside exactly as long as work issued on that stream is unfinished; work of "
        "streams it has no tie to does not matter. The legacy default stream is not meant.",
        "The call comes back with a gate of its stream shut; or it does not come back with its stream's work done, "
        "and does so when the pending operations of other streams are left out.",
        cuda=must(at.C_SS),
        hip=must(at.H_SS, note="the null stream is treated differently in different places and is left out"),
        musa=must_torch(
            at.T_SS, at.M_GRD, at.T_GRD, note="by the guard interface; torch_musa's method has no docstring"
        ),
        torch=must_torch(at.T_SS, at.T_GRD),
        opencl=must(
            at.O_FIN,
            at.O_CON,
            note="clFinish names the commands of its own queue and issues them itself, and queues run independently: "
            "as strong as the CUDA text",
        ),
    ),
    define(
        "STM-CONC-1",
        "A blocked stream leaves unrelated streams running",
        "Work that has no dependence on a blocked stream runs although that stream's gate was issued first.",
        "An event or token that depends on no shut gate is not seen by the deadline while the gate of another stream, "
        "issued earlier, is shut.",
        cuda=should(
            at.C_OLD2, at.C_EXM4, at.C_CON, basis=Basis.DOCUMENT, note="the documents allow it and deny a guarantee"
        ),
        hip=should(at.H_PM, at.H_ENV, basis=Basis.DOCUMENT, note="the documents deny a guarantee; queues are shared"),
        musa=should(at.M_BLOG, at.C_OLD2, basis=Basis.COMPATIBILITY, note="no public text; CUDA promises no more"),
        torch=should(at.T_SEM, basis=Basis.TORCH, note="torch allows any relative order and promises none"),
        opencl=should(
            at.O_CON, basis=Basis.DOCUMENT, note="concurrent progress is required only between queues tied by events"
        ),
        reference=should(at.REF_MODEL, basis=Basis.DOCUMENT, note="the number of hardware queues is a setting"),
    ),
    define(
        "STM-ALIAS-1",
        "Different streams have different handles",
        "Streams that a program uses as different ones are different to the runtime: their raw handles differ.",
        "Two streams of one program have the same raw handle.",
        cuda=must_torch(at.T_POOL, note=_PRECONDITION + "; the pool holds 32 streams of one priority, then repeats"),
        hip=must_torch(at.T_POOL, note=_PRECONDITION + "; the pool holds 32 streams of one priority, then repeats"),
        musa=must_torch(
            at.M_POOL, at.T_POOL, note=_PRECONDITION + "; the pool holds 32 streams of one priority, then repeats"
        ),
        torch=must_torch(at.T_POOL, note=_PRECONDITION + "; devices keep pools of their own size"),
        opencl=must(at.O_CCQ, note=_PRECONDITION + "; every creation makes a queue object of its own"),
    ),
    define(
        "MEM-VIS-1",
        "Completion makes copied data visible to the host",
        "Once the host has seen an event complete, it reads in pinned memory what the copies ahead of the record "
        "wrote there.",
        "The event was seen complete and the host then reads an old token.",
        cuda=must(at.C_SYN, at.C_QRY, at.C_MAP),
        hip=must(
            at.H_COH,
            at.H_FLG,
            note="for fine-grained host memory and events that keep the system fence, torch's default",
        ),
        musa=must_torch(at.M_DOC, at.T_SYN),
        torch=must_torch(at.T_SYN, at.T_QRY),
        opencl=must(
            at.O_WFE,
            at.O_INF,
            exempt=("query",),
            note="asking for the status is no host synchronization point, so only waiting promises the data",
        ),
    ),
)
