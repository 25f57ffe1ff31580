"""Clauses about device waits: what a wait binds to, what it delays, and what recording again or destroying changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from conformance.spec import sources as at
from conformance.spec._bind import absent, define, must, must_torch, should
from conformance.spec.records import Basis

if TYPE_CHECKING:
    from conformance.spec.records import Clause

_SINGLE_USE: Final = "events are single-use: where a program records again, our adapter makes a new event object"
_HIP_PENDING: Final = (
    "the vendor leaves recording again undefined while the earlier record is pending; torch reuses its events, so "
    "what happens is observed and reported"
)

#: In the order in which reports list them.
CLAUSES: Final[tuple[Clause, ...]] = (
    define(
        "EVT-REREC-1",
        "The newest record is the one the host asks about",
        "When an event has been recorded more than once, the host's query and synchronize refer to the last record.",
        "The event is seen complete once the first record's work has ended, with the second record's gate shown shut.",
        cuda=must(at.C_REREC),
        hip=should(at.H_UND, at.T_GRD, at.T_QRY, basis=Basis.TORCH, note=_HIP_PENDING),
        musa=must_torch(at.M_DOC, at.M_GRD, at.T_GRD),
        torch=must_torch(at.T_QRY, at.T_SYN, at.T_GRD),
        opencl=absent(_SINGLE_USE),
    ),
    define(
        "EVT-REREC-2",
        "Recording again leaves earlier waits alone",
        "A wait issued between two records of one event keeps following the first of them.",
        "The consumer does not run although the first record's work has ended, and is on time if the second record "
        "is given to another event; or it runs with the first record's gate shut.",
        cuda=must(at.C_REREC),
        hip=should(at.H_UND, at.T_GRD, basis=Basis.TORCH, note=_HIP_PENDING),
        musa=must_torch(at.M_GRD, at.T_GRD),
        torch=must_torch(at.T_GRD),
        opencl=absent(_SINGLE_USE),
    ),
    define(
        "EVT-WAIT-1",
        "A wait holds back the later work of its stream",
        "Nothing issued on a stream after a wait runs before the work that the awaited record stands for has ended.",
        "The consumer's token arrives, or an event behind it is complete, with the producer's gate shown shut.",
        cuda=must(at.C_WAI),
        hip=must(at.H_WAI),
        musa=must_torch(at.M_DOC, at.M_GRD, at.T_GRD),
        torch=must_torch(at.T_WAI, at.T_GRD),
        opencl=must(at.O_DEP, at.O_BAR, at.O_ORD),
    ),
    define(
        "EVT-WAIT-2",
        "A wait does not follow later records",
        "What a wait follows is settled when the call is made; a record that the event gets afterwards is not part "
        "of it.",
        "The consumer stays held by the gate of a record issued after the wait; it is on time if that record is given "
        "to another event.",
        cuda=must(at.C_REREC),
        hip=must_torch(
            at.T_GRD,
            at.T_WS,
            at.H_WAI,
            note="the vendor's text does not say when a wait binds; with an earlier record pending see EVT-REREC-2",
        ),
        musa=must_torch(at.M_GRD, at.T_GRD, at.M_DOC),
        torch=must_torch(at.T_GRD, at.T_WS),
        opencl=absent("a wait names an event object, which exists already and belongs to one command"),
    ),
    define(
        "EVT-WAIT-3",
        "Issuing a wait does not block the host",
        "The call that makes a stream wait comes back without the awaited work having ended.",
        "The call does not come back by the deadline while the producer's gate is shut.",
        cuda=must_torch(
            at.T_WAI, at.C_WAI, note="the plainer text is torch's; the vendor's places the wait on the device"
        ),
        hip=must_torch(
            at.T_WAI, at.H_WAI, note="the plainer text is torch's; the vendor's puts the wait on the stream"
        ),
        musa=must_torch(
            at.M_GRD, at.T_GRD, at.T_WAI, note="by the guard interface, where the wait is an item of the stream's queue"
        ),
        torch=must_torch(at.T_WAI, at.T_GRD),
        opencl=must(at.O_NBL, at.O_BAR),
    ),
    define(
        "EVT-WAIT-4",
        "A wait does not hold back earlier work",
        "Operations that a stream had been given before a wait run as if the wait were not there.",
        "Work ahead of the wait, able to run, has not run by the deadline; without the wait it has.",
        cuda=must(at.C_WAI, at.C_PG4),
        hip=must(at.H_WAI, at.H_ASY),
        musa=must_torch(at.M_DOC, at.M_GRD, at.T_GRD),
        torch=must_torch(at.T_WAI, at.T_GRD),
        opencl=must(at.O_ORD, at.O_BAR, at.O_FLU, note="after a flush, which issues what precedes the wait"),
    ),
    define(
        "EVT-WAIT-5",
        "A wait for an own event is empty",
        "A stream that is told to wait for its own earlier record is held by nothing it had not already to wait for.",
        "Work behind such a wait does not run by the deadline; without the wait it does.",
        cuda=must(at.C_WAI, at.C_REC, at.C_PG4),
        hip=must(at.H_WAI, at.H_REC, at.H_ASY),
        musa=must_torch(at.M_DOC, at.M_GRD, at.T_GRD),
        torch=must_torch(at.T_STR, at.T_WAI, at.T_GRD),
        opencl=must(at.O_ORD, at.O_DEP, note="on an in-order queue the named command is a prerequisite anyway"),
    ),
    define(
        "EVT-DESTROY-1",
        "Destroying an event neither blocks nor undoes",
        "An event may be destroyed while it is pending: the call comes back at once, and waits already bound to its "
        "record go on holding their streams until that record's work has ended.",
        "The call does not come back while a gate is shut, or the consumer runs with the producer's gate shut, or it "
        "does not run at all although it does without the destroy.",
        cuda=must(at.C_DES, at.C_WAI),
        hip=must_torch(
            at.H_DES,
            at.T_WS,
            at.T_GRD,
            note="the vendor promises the prompt return; that waits survive rests on torch, whose wait_stream drops "
            "its temporary event at once",
        ),
        musa=must_torch(
            at.M_DOC,
            at.M_GRD,
            at.T_GRD,
            at.T_WS,
            note="that waits survive rests on wait_stream, which drops its temporary event at once; the prompt return "
            "rests on torch.cuda's note for the same call, which torch_musa does not repeat",
        ),
        torch=must_torch(
            at.T_WS, at.T_GRD, note="torch says it of wait_stream only, which drops its temporary event at once"
        ),
        opencl=must(
            at.O_REL,
            note="the object is kept until its command has ended and nothing waits for it; a binding that waits when "
            "its wrapper is dropped does so on its own account",
        ),
    ),
)
