"""Clauses about completion: what a recorded event stands for, and when the host or a device wait sees it complete.

Waits, recording again and destruction are in ``waits``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from conformance.spec import sources as at
from conformance.spec._bind import absent, define, must, must_torch, should
from conformance.spec.records import Basis

if TYPE_CHECKING:
    from conformance.spec.records import Clause

_AFTER_FLUSH: Final = "after a flush of the queues concerned; our adapter flushes after every enqueue"
_NO_UNRECORDED: Final = "an event object exists only once its command was enqueued, so there is none without a record"

#: In the order in which reports list them.
CLAUSES: Final[tuple[Clause, ...]] = (
    define(
        "EVT-REC-1",
        "A record takes in the past, all of it, and nothing else",
        "An event stands for the operations its stream had been given when the record was issued, along with all that "
        "they depend on, and for no operation issued afterwards.",
        "The event is seen complete while a gate ahead of the record is shut, or both the host and a device waiter see "
        "it late because of an operation issued after the record.",
        cuda=must(at.C_REC),
        hip=must(at.H_REC),
        musa=must_torch(at.M_DOC, at.M_GRD, at.T_GRD),
        torch=must_torch(at.T_QRY, at.T_STR, at.T_GRD),
        opencl=must(at.O_MRK, at.O_ORD, note="a record is a marker without wait list on an in-order queue"),
    ),
    define(
        "EVT-REC-2",
        "Recording returns at once",
        "The call that records an event comes back to the host without waiting for the device.",
        "The call has not come back by the deadline while a gate ahead of it is shut.",
        cuda=must(at.C_REC),
        hip=must(at.H_REC),
        musa=should(at.M_DOC, basis=Basis.COMPATIBILITY, note="torch says nothing; rests on stated compatibility"),
        torch=should(at.T_QRY, basis=Basis.COMPATIBILITY, note="torch does not say that a record returns at once"),
        opencl=must(at.O_MRK, note="an enqueue returns once the command is in the queue"),
    ),
    define(
        "EVT-SAFE-1",
        "Query does not report completion early",
        "Asking an event gives 'complete' only if everything it stands for has ended.",
        "Query answers 'complete' although a gate the event stands behind is shown to be shut afterwards.",
        cuda=must(at.C_QRY, at.C_REC),
        hip=must(at.H_QRY, at.H_REC),
        musa=must_torch(at.M_DOC, at.M_GRD, at.T_GRD),
        torch=must_torch(at.T_QRY, at.T_GRD),
        opencl=must(at.O_MRK, at.O_STA),
    ),
    define(
        "EVT-SYNC-1",
        "Synchronize does not return early",
        "A host thread inside synchronize on an event leaves it only when everything the event stands for has ended.",
        "The call comes back although a gate the event stands behind is shown to be shut afterwards.",
        cuda=must(at.C_SYN),
        hip=must(at.H_SYN),
        musa=must_torch(at.M_DOC),
        torch=must_torch(at.T_SYN),
        opencl=must(at.O_WFE, at.O_MRK),
    ),
    define(
        "EVT-LIVE-1",
        "An event with nothing behind it is seen complete",
        "If no operation follows the record on its stream and everything it stands for has ended, a host that keeps "
        "asking or stays in synchronize gets to see the event complete.",
        "The token of the preceding work has arrived and nothing stands behind the record, yet the event stays "
        "incomplete to the deadline.",
        cuda=must(at.C_QRY, at.C_EXM1, note="no document bounds the delay; the deadline comes from the run's controls"),
        hip=must(
            at.H_QRY,
            at.H_REC,
            at.T_QRY,
            note="no text on progress: the clause is the definition of completion, so it is judged with a witness only",
        ),
        musa=must_torch(at.M_DOC, at.T_QRY, at.T_SYN, note="no text on progress: judged with a witness only"),
        torch=must_torch(at.T_QRY, at.T_SYN, at.T_GRD, note="no text on progress: judged with a witness only"),
        opencl=must(at.O_MRK, at.O_WFE, at.O_FLU, note=_AFTER_FLUSH),
    ),
    define(
        "EVT-INDEP-1",
        "Later work on the stream does not delay what the host sees",
        "Whatever is put on the stream behind a record (a wait, a gate, a copy) leaves the moment at which the host "
        "can see the event complete untouched.",
        "With the preceding work done and its token present, the event is incomplete to the deadline, and turns "
        "complete only when a gate that concerns later operations opens, or never; without those operations it is on "
        "time.",
        cuda=must(at.C_REC, at.C_QRY, at.C_PG1, at.C_PG3),
        hip=must(
            at.H_REC,
            at.H_QRY,
            at.H_TST,
            note="the text on query can be read as naming the whole stream; the record's text and the vendor's own "
            "test name only what precedes the record, and that reading is used",
        ),
        musa=must_torch(
            at.M_DOC, at.M_GRD, at.T_QRY, at.T_GRD, note="binds through torch; no public vendor wording was found"
        ),
        torch=must_torch(at.T_QRY, at.T_GRD, note="torch defines completion by a position in the stream"),
        opencl=must(at.O_MRK, at.O_ORD, at.O_CON, at.O_FLU, note=_AFTER_FLUSH),
    ),
    define(
        "EVT-INDEP-2",
        "Later work on the stream does not delay device waits",
        "A stream that waits for a record goes on when the work ahead of that record has ended, whatever was put "
        "behind it since.",
        "A consumer bound to the record delivers its token only after a gate that concerns later operations opens; "
        "without those operations it is on time.",
        cuda=must(at.C_WAI, at.C_REC),
        hip=must(at.H_WAI, at.H_REC),
        musa=must_torch(at.M_DOC, at.M_GRD, at.T_GRD),
        torch=must_torch(at.T_WAI, at.T_WS, at.T_GRD),
        opencl=must(at.O_DEP, at.O_MRK, at.O_CON, at.O_FLU, note=_AFTER_FLUSH),
    ),
    define(
        "EVT-INDEP-3",
        "Synchronize waits for nothing beyond the event",
        "Synchronize on an event comes back without later operations of its stream and without other streams, whether "
        "or not the event was made with the blocking flag.",
        "A thread inside synchronize stays there, with the preceding work shown done, until a gate that concerns "
        "later operations opens; without those operations it comes back in time.",
        cuda=must(at.C_SYN, at.C_REC, at.C_FLG, at.C_PG3),
        hip=must(at.H_SYN, at.H_REC, at.H_FLG),
        musa=must_torch(at.M_DOC, at.T_SYN),
        torch=must_torch(
            at.T_SYN, at.T_QRY, at.T_GEN, note="the generic event ignores the blocking flag; the vendor's class has it"
        ),
        opencl=must(at.O_WFE, at.O_MRK, at.O_CON, at.O_FLU, note=_AFTER_FLUSH + "; there is no blocking flag"),
    ),
    define(
        "EVT-MONO-1",
        "Completion is not taken back",
        "An event once seen complete is seen complete by every later look, up to its next record.",
        "One look finds the event complete, a later one does not, and no record lies between them.",
        cuda=must(at.C_QRY, at.C_REC),
        hip=must(at.H_QRY, at.H_REC),
        musa=must_torch(at.M_DOC, at.M_GRD, at.T_GRD),
        torch=must_torch(at.T_QRY, at.T_GRD),
        opencl=must(at.O_STA, note="a command's states are passed in one direction, and an event names one command"),
    ),
    define(
        "EVT-AGREE-1",
        "Query and synchronize agree",
        "Once synchronize on an event has come back, query finds it complete; once query has found it complete, "
        "synchronize does not block.",
        "Synchronize has come back and query still says incomplete, or query says complete and synchronize stays "
        "inside.",
        cuda=must(at.C_QRY, at.C_SYN),
        hip=must(at.H_QRY, at.H_SYN),
        musa=must_torch(at.M_DOC),
        torch=must_torch(at.T_QRY, at.T_SYN, at.T_GRD),
        opencl=must(
            at.O_WFE,
            at.O_STA,
            at.O_INF,
            note="one execution status defines both calls; that a query orders no memory concerns MEM-VIS-1 only",
        ),
    ),
    define(
        "EVT-NEVER-1",
        "An event never recorded is complete",
        "Without any record, query finds an event complete and synchronize comes back at once.",
        "Query on a fresh event says incomplete, or synchronize on it does not come back.",
        cuda=must(at.C_NEVER, at.C_QRY, at.C_SYN),
        hip=must(at.H_NEV),
        musa=must_torch(at.T_NEV, at.M_GRD, at.T_GRD),
        torch=must_torch(at.T_NEV, at.T_GRD),
        opencl=absent(_NO_UNRECORDED),
    ),
    define(
        "EVT-NEVER-2",
        "Waiting for an event never recorded has no effect",
        "A stream told to wait for an event that has no record yet goes on as if it had not been told.",
        "Work behind such a wait does not run by the deadline; without the wait it does.",
        cuda=must(at.C_NEVER, at.C_WAI),
        hip=must(at.H_NEV, at.H_WAI, at.T_NEV, note="follows from both texts: a fresh event already reports success"),
        musa=must_torch(at.T_NEV, at.M_GRD, at.T_GRD),
        torch=must_torch(at.T_NEV, at.T_GRD),
        opencl=absent(_NO_UNRECORDED),
    ),
)
