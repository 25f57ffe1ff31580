"""Clauses about calls: times between events, what is refused while a stream is captured, several host threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from conformance.spec import sources as at
from conformance.spec._bind import REFERENCE_OBSERVED, absent, define, must, must_torch, should
from conformance.spec.records import Basis

if TYPE_CHECKING:
    from conformance.spec.records import Clause

_NO_ELAPSED: Final = "profiling gives the times of one command; no call gives the time between two events"
_NO_CAPTURE: Final = "the core of OpenCL captures nothing; command buffers are an extension"
_NO_GENERIC_CAPTURE: Final = "torch's generic surface captures nothing"
_HIP_CAPTURE: Final = "the document begins with HIP 7.0, and speaks of global mode: captures here are relaxed too"
_COMPATIBLE: Final = "no public text; rests on stated compatibility"

#: In the order in which reports list them.
CLAUSES: Final[tuple[Clause, ...]] = (
    define(
        "TIM-ERR-1",
        "No time where there is none",
        "Asking for the time between two events raises an error if one was never recorded, is pending, or keeps no "
        "time, or if they are of two devices.",
        "A number comes back.",
        cuda=must(at.C_ELA, at.C_MUL, at.T_ELA, note="of torch's errors ValueError and RuntimeError both count"),
        hip=must(at.H_ELA, at.H_SRC, at.T_ELA, note="of torch's errors ValueError and RuntimeError both count"),
        musa=must_torch(
            at.M_ELA,
            at.T_ELA,
            note="RuntimeError, from torch_musa or from the runtime below; of two devices by compatibility alone",
        ),
        torch=should(at.T_GRD, basis=Basis.TORCH, note="devices differ: one synchronizes a pending event instead"),
        opencl=absent(_NO_ELAPSED),
    ),
    define(
        "TIM-POS-1",
        "Time does not run backwards on a stream",
        "The time from an event to one recorded later on the same stream is not negative.",
        "A negative number comes back.",
        cuda=should(at.C_ELA, basis=Basis.DOCUMENT, note="follows from a stream's order; a resolution is given"),
        hip=should(at.H_ELA, basis=Basis.DOCUMENT, note="follows from a stream's order; a resolution is given"),
        musa=should(at.T_ELA, basis=Basis.TORCH, note="follows from a stream's order"),
        torch=should(at.T_ELA, basis=Basis.TORCH, note="follows from a stream's order"),
        opencl=absent(_NO_ELAPSED),
        reference=REFERENCE_OBSERVED,
    ),
    define(
        "TIM-BRK-1",
        "The time between events contains what lay between them",
        "If the host saw one event complete before it opened a gate that the other stood behind, the time between them "
        "is at least that long, and at most what the host saw pass around both.",
        "The number is outside of the host's bracket by more than the clocks' resolution.",
        cuda=should(at.C_ELA, basis=Basis.DOCUMENT, note="events keep the device's time, not the host's"),
        hip=should(at.H_ELA, basis=Basis.DOCUMENT, note="an event of the null stream waits for other streams"),
        musa=should(at.T_ELA, basis=Basis.TORCH, note="events keep the device's time"),
        torch=should(at.T_ELA, basis=Basis.TORCH, note="events keep the device's time"),
        opencl=absent(_NO_ELAPSED),
        reference=REFERENCE_OBSERVED,
    ),
    define(
        "CAP-1",
        "A captured event cannot be asked",
        "Query and synchronize on an event that was recorded in a capture, and on a stream that is being captured, "
        "raise an error.",
        "The call comes back with success.",
        cuda=must(at.C_CAP),
        hip=should(at.H_CAP, basis=Basis.DOCUMENT, note=_HIP_CAPTURE),
        musa=should(at.C_CAP, basis=Basis.COMPATIBILITY, note=_COMPATIBLE),
        torch=absent(_NO_GENERIC_CAPTURE),
        opencl=absent(_NO_CAPTURE),
    ),
    define(
        "CAP-2",
        "A capture takes in nothing from outside",
        "A stream that is being captured cannot wait for an event recorded outside the capture, and the legacy default "
        "stream cannot be used beside it.",
        "The call comes back with success.",
        cuda=must(at.C_CAP, at.T_CAP, note="events that torch makes as external are exempt"),
        hip=should(at.H_CAP, basis=Basis.DOCUMENT, note=_HIP_CAPTURE),
        musa=should(at.C_CAP, basis=Basis.COMPATIBILITY, note=_COMPATIBLE),
        torch=absent(_NO_GENERIC_CAPTURE),
        opencl=absent(_NO_CAPTURE),
    ),
    define(
        "CAP-3",
        "The mode of a capture says which threads it binds",
        "While a capture in global mode is under way, another thread's query of an event from before it is an error. "
        "It answers, and the capture stays whole, if the capture is thread-local or relaxed, or the thread is.",
        "In global mode the query answers; or in another one it is an error, or the capture is spoilt.",
        cuda=should(at.C_CTM, basis=Basis.DOCUMENT, note="that a query is among the calls that are unsafe is not said"),
        hip=should(at.H_CAP, basis=Basis.DOCUMENT, note="the error of global mode is described from HIP 7.0 on"),
        musa=should(at.C_CTM, basis=Basis.COMPATIBILITY, note=_COMPATIBLE),
        torch=absent(_NO_GENERIC_CAPTURE),
        opencl=absent(_NO_CAPTURE),
        reference=REFERENCE_OBSERVED,
    ),
    define(
        "THR-1",
        "Several threads may use streams and events",
        "Calls on streams and events from several host threads have effects that some order of them explains.",
        "What was observed fits no order of the calls that agrees with their times.",
        cuda=must_torch(at.T_POOL, at.T_SEM, note="torch calls its streams safe to use from threads"),
        hip=must_torch(at.T_POOL, at.H_SQ, note="torch calls its streams safe to use from threads"),
        musa=must_torch(at.M_POOL, at.T_POOL, note="the pool's code is torch.cuda's"),
        torch=must_torch(at.T_POOL),
        opencl=must(at.O_THR, note="every call may be made from several threads, but for one kernel's arguments"),
    ),
    define(
        "THR-2",
        "No call blocks because another thread waits",
        "A call on an event or a stream that need not wait comes back while another thread waits on the same object.",
        "The call has not come back by the deadline while another thread is inside synchronize.",
        cuda=should(at.C_QRY, at.C_SYN, basis=Basis.DOCUMENT, note="no document says so"),
        hip=should(at.H_SRC, basis=Basis.DOCUMENT, note="synchronize holds a lock that other calls take"),
        musa=should(at.T_GIL, basis=Basis.TORCH, note="synchronize gives up the interpreter's lock"),
        torch=should(at.T_GIL, basis=Basis.TORCH, note="synchronize gives up the interpreter's lock"),
        opencl=should(at.O_THR, basis=Basis.DOCUMENT, note="the calls are safe to make; none is said to return"),
        reference=REFERENCE_OBSERVED,
    ),
)
