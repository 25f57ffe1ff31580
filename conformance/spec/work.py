"""Clauses about what streams run: host functions, copies and what becomes visible of them, memory operations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from conformance.spec import sources as at
from conformance.spec._bind import REFERENCE_OBSERVED, absent, define, must, must_torch, rule, should
from conformance.spec.records import Basis

if TYPE_CHECKING:
    from conformance.spec.records import Clause

_NO_HOST_FUNCTION: Final = "no call queues a host function in a queue's order: event callbacks are in no order"
_TORCH_NONE: Final = "torch has no call that queues a host function; the vendor's driver has one"
_COMPATIBLE: Final = "no public text; rests on stated compatibility"
_NO_MEMORY_OPS: Final = "there is no such call"

#: In the order in which reports list them.
CLAUSES: Final[tuple[Clause, ...]] = (
    define(
        "HFN-ORDER-1",
        "A host function runs after earlier work, once",
        "A host function queued on a stream is called when everything queued before it has ended, exactly once.",
        "It was called with a gate ahead of it shown shut; or more than once; or not at all although an event behind "
        "it is complete.",
        cuda=must(at.C_HFN),
        hip=must(at.H_HFN),
        musa=should(at.C_HFN, basis=Basis.COMPATIBILITY, note=_COMPATIBLE),
        torch=absent(_TORCH_NONE),
        opencl=absent(_NO_HOST_FUNCTION),
    ),
    define(
        "HFN-BLOCK-1",
        "Later work waits for a host function",
        "Nothing queued behind a host function runs before the function has returned.",
        "The token of a later copy arrives, or an event behind is complete, while the function is held inside.",
        cuda=must(at.C_HFN),
        hip=must(at.H_HFN),
        musa=should(at.C_HFN, basis=Basis.COMPATIBILITY, note=_COMPATIBLE),
        torch=absent(_TORCH_NONE),
        opencl=absent(_NO_HOST_FUNCTION),
    ),
    define(
        "HFN-RULES-1",
        "A host function calls no API and waits for no device work",
        "A function run in stream order makes no call to the runtime and waits for nothing that the device must do; "
        "functions of different streams may be run one after the other.",
        "None: it binds the caller. This suite's functions are libc's, one gate among them, and bounded.",
        cuda=rule(at.C_HFN, note="a rule for the caller, kept by the suite"),
        hip=rule(at.H_HFN, note="a rule for the caller, kept by the suite"),
        musa=rule(at.C_HFN, note="a rule for the caller, kept by the suite"),
        torch=absent(_TORCH_NONE),
        opencl=absent(_NO_HOST_FUNCTION),
        reference=rule(at.REF_MODEL, note="the device's functions call nothing"),
    ),
    define(
        "MEM-VIS-2",
        "Completion makes kernel stores to host memory visible",
        "Once the host has seen an event complete, it reads in mapped pinned memory what kernels ahead of the record "
        "stored there.",
        "The event was seen complete and the host then reads an old word.",
        cuda=must(at.C_MAP, at.C_SYN, at.C_QRY),
        hip=must(
            at.H_COH,
            at.H_FLG,
            note="for fine-grained host memory; coarse-grained memory needs an event that releases to the system",
        ),
        musa=must_torch(at.M_DOC, at.T_SYN),
        torch=must_torch(at.T_SYN, at.T_QRY),
        opencl=absent("a kernel's stores to host memory are seen by mapping the buffer, which waits by itself"),
    ),
    define(
        "MEM-DEV-1",
        "A wait makes device data visible to the waiting stream",
        "Work behind a device wait reads what the work that the awaited record stands for wrote on the device.",
        "The consumer ran after the producer, and copied what the buffer held before.",
        cuda=must(at.C_WAI),
        hip=must(at.H_WAI, at.H_COH, note="for device memory; host memory that is coarse-grained is not promised"),
        musa=must_torch(at.M_DOC, at.M_GRD, at.T_GRD),
        torch=must_torch(at.T_WAI, at.T_SEM),
        opencl=must(at.O_DEP, at.O_MEM),
    ),
    define(
        "MEM-PAGE-1",
        "Copies of pageable memory may wait",
        "An asynchronous copy from or to pageable host memory may block the host, or read its source at once.",
        "None: a permission. This suite uses pinned memory, and no pageable copy while a gate is shut.",
        cuda=rule(at.C_ASB, note="a permission, heeded by the suite"),
        hip=rule(at.H_ASY, note="a permission, heeded by the suite"),
        musa=rule(at.C_ASB, note="a permission, heeded by the suite"),
        torch=rule(at.T_NBL, note="a permission, heeded by the suite"),
        opencl=rule(at.O_RDB, note="a permission, heeded by the suite"),
        reference=rule(at.REF_MODEL, note="the device has one kind of host memory"),
    ),
    define(
        "MEM-PIN-1",
        "Copies of pinned memory return at once",
        "An asynchronous copy between device and pinned host memory comes back without waiting for the device.",
        "The call has not come back by the deadline while a gate ahead of it is shut.",
        cuda=should(at.C_ASB, basis=Basis.DOCUMENT, note="the text calls it what should be"),
        hip=should(at.H_ASY, basis=Basis.DOCUMENT, note="the text gives no guarantee"),
        musa=should(at.M_DOC, at.T_NBL, basis=Basis.TORCH, note="torch describes it for pinned memory"),
        torch=should(at.T_NBL, basis=Basis.TORCH, note="torch describes it for pinned memory"),
        opencl=should(at.O_NBL, at.O_RDB, basis=Basis.DOCUMENT, note="for a non-blocking read or write"),
        reference=REFERENCE_OBSERVED,
    ),
    define(
        "MOP-1",
        "A wait for a value holds its own stream",
        "A stream told to wait for a memory word runs nothing behind the wait until the word has the value, and holds "
        "no other stream; a write of a word happens after the work ahead of it.",
        "A token behind the wait arrives with the word unset, or work elsewhere that must run does not.",
        cuda=must(at.C_MOP, note="where the device has the calls"),
        hip=must(at.H_MOP, note="where the device has the calls, which are in beta"),
        musa=should(at.C_MOP, basis=Basis.COMPATIBILITY, note=_COMPATIBLE),
        torch=absent(_NO_MEMORY_OPS),
        opencl=absent(_NO_MEMORY_OPS),
        reference=absent(_NO_MEMORY_OPS),
    ),
    define(
        "MOP-2",
        "The scheduler does not see order by memory words",
        "Order that is made by memory words alone may be undone where streams share a queue.",
        "None: it binds the caller. This suite issues such a gate after all that must complete.",
        cuda=rule(at.C_MOP, note="a rule for the caller, kept by the suite"),
        hip=rule(at.H_MOP, note="a rule for the caller, kept by the suite"),
        musa=rule(at.C_MOP, note="a rule for the caller, kept by the suite"),
        torch=absent(_NO_MEMORY_OPS),
        opencl=absent(_NO_MEMORY_OPS),
        reference=absent(_NO_MEMORY_OPS),
    ),
)
