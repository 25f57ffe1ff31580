"""Experiments: questions that no program can write down, each a procedure of `conformance.experiments` by name.

A variant's text is the part of it that is a program. Scenarios of public reports stand in the comments.
"""

from __future__ import annotations

from typing import Final

from probes.probe import FLAG_NEEDS, PLAIN, Case, Observe, Probe

_HELD: Final = "S: gate g, record e\nhost: open g"

#: The call under test, and the clause under which it must return while a gate is closed.
_CALLS: Final = (
    ("record", "EVT-REC-2"),
    ("wait", "EVT-WAIT-3"),
    ("wait-stream", "EVT-WAIT-3"),
    ("copy-to-host", "MEM-PIN-1"),
    ("copy-to-device", "MEM-PIN-1"),
    ("query", "EVT-QNB-1"),
    ("destroy", "EVT-DESTROY-1"),
)
#: Calls beside a thread that is inside synchronize: AMD's runtime held a lock there (ROCm/rocm-systems#11678).
_BESIDE: Final = (
    ("query", ("EVT-QNB-1", "THR-2")),
    ("query-stream", ("THR-2",)),
    ("record", ("THR-2",)),
    ("wait", ("THR-2",)),
)
_NEEDS: Final = {
    "query-stream": ("query-stream",),
    "wait-stream": ("wait-stream",),
    "legacy-beside": ("default-stream", "blocking-stream"),
}

#: Bytes of a block: inside the command, a page, and sizes that runtimes give to other engines.
_SIZES: Final = (16, 4096, 65536, 1 << 20, 1 << 24)
_STORES: Final = (4, 16384)
_BOTH: Final[tuple[Observe, ...]] = ("query", "synchronize")

#: What a capture forbids, with the clause.
_REFUSED: Final = (
    ("query", "CAP-1"),
    ("synchronize", "CAP-1"),
    ("query-stream", "CAP-1"),
    ("synchronize-stream", "CAP-1"),
    ("query-after-end", "CAP-1"),
    ("wait-outside", "CAP-2"),
    ("legacy-beside", "CAP-2"),
)
#: Another thread asks for an event from before a capture of this mode; ``exchanged``: of global mode, and the asking
#: thread made itself relaxed (pytorch/pytorch#104487, ROCm/hip#3876).
_MODES: Final = ("global", "thread-local", "relaxed", "exchanged")
_CAPTURED: Final = "S: fill x 5, record k\nT: wait k, copy x -> h, record d\nS: wait d"


def _case(experiment: str, variant: str, text: str, clauses: tuple[str, ...] = (), **factors: str) -> Case:
    return Case(
        variant=variant,
        text=text,
        experiment=experiment,
        clauses=clauses,
        factors=tuple(factors.items()),
        needs=_NEEDS.get(factors.get("call", ""), ()),
    )


def _block(size: int, writer: str, observe: Observe) -> Case:
    text = "S: gate g, fill x 1, copy x -> h, record e\nhost: open g"
    factors = (("bytes", str(size)), ("writer", writer), ("observe", observe))
    return Case(
        variant=f"{observe}-{size}",
        text=text,
        observe=observe,
        experiment="block",
        factors=factors,
        clauses=("MEM-VIS-2" if writer == "kernel" else "MEM-VIS-1",),
    )


PROBES: Final = (
    Probe(
        name="host-calls",
        family="host calls",
        question="Does a call that only queues, asks or drops something return although a gate is closed?",
        clauses=("EVT-REC-2", "EVT-WAIT-3", "MEM-PIN-1", "EVT-QNB-1", "EVT-DESTROY-1"),
        faults=("record-blocks-host", "wait-blocks-host", "copy-blocks-host", "destroy-blocks", "query-stalls"),
        control="a synchronize behind the same gate does not return until it opens",
        cases=tuple(_case("behind-gate", call, _HELD, (clause,), call=call) for call, clause in _CALLS),
    ),
    Probe(
        name="after-query",
        family="host calls",
        question="Does a call succeed although a query has just found an event pending?",
        clauses=("EVT-ASK-1",),
        faults=("query-sticks",),
        control="the same calls without the query",
        cases=(_case("after-query", "queue", _HELD),),
    ),
    Probe(
        name="beside-sync",
        family="host calls",
        question="Does a call return although another thread is inside synchronize for the same event or stream?",
        clauses=("EVT-QNB-1", "THR-2"),
        faults=(
            "query-blocks-in-sync",
            "query-hangs-in-sync",
            "stream-query-blocks-in-sync",
            "record-blocks-in-sync",
            "wait-blocks-in-sync",
        ),
        control="the same call without the other thread",
        cases=tuple(_case("beside-sync", call, _HELD, clauses, call=call) for call, clauses in _BESIDE),
    ),
    Probe(
        name="stream-destroy",
        family="host calls",
        question="Does destroying a stream with pending work return, and is the work done?",
        clauses=("STM-DESTROY-1",),
        faults=("stream-destroy-blocks", "stream-destroy-drops-work"),
        control="the same copy on a stream that is kept",
        cases=(_case("destroy-stream", "pending-copy", "P: gate g, copy x -> h\nhost: open g"),),
    ),
    Probe(
        # vllm-project/vllm#47081, pytorch/pytorch#82061: the flag set, and a processor used all the same.
        name="blocking-flag",
        family="waiting",
        question="Does a thread that waits for an event made with the blocking flag leave its processor to others?",
        clauses=("EVT-FLAG-1",),
        faults=("blocking-spins",),
        control="a thread that uses its processor, and an event made without the flag",
        cases=(
            Case(
                variant="synchronize",
                text=_HELD,
                experiment="blocking-flag",
                # Asked for wherever it can be: torch.Event takes the flag and spins, which is the answer.
                observe="synchronize",
            ),
        ),
    ),
    Probe(
        # intel/torch-xpu-ops#4349: a copy on an engine of its own that the record did not take in.
        name="block-copies",
        family="visibility",
        question="Is all of a copied block in host memory when its event is first seen complete, whatever its size?",
        clauses=("MEM-VIS-1",),
        faults=("completion-before-data", "large-copy-not-captured"),
        control="while the gate is closed the data is not there, and it arrives in the end",
        cases=tuple(_block(size, "copy", observe) for observe in _BOTH for size in _SIZES),
    ),
    Probe(
        name="kernel-stores",
        family="visibility",
        question="Is what a kernel stored to host memory there when its event is first seen complete?",
        clauses=("MEM-VIS-2",),
        faults=("kernel-store-late",),
        control="while the gate is closed the data is not there, and it arrives in the end",
        cases=tuple(_block(size, "kernel", observe) for observe in _BOTH for size in _STORES),
    ),
    Probe(
        name="threads",
        family="threads",
        question="Do events and streams work alike whichever host thread uses them?",
        clauses=("THR-1",),
        faults=("records-thread-local", "records-mixed", "current-stream-shared"),
        control="the same steps from one thread",
        cases=(
            _case("hand-over", "hand-over", "S: gate g, copy x -> h, record e\nU: wait e, copy y -> hy\nhost: open g"),
            _case(
                "threads-at-once", "at-once", "S0: gate g0, record e0\nS1: gate g1, record e1\nhost: open g1, open g0"
            ),
            Case(
                variant="current-stream",
                text="S: gate g, copy x -> ha\ndefault: copy x -> hb\nhost: open g",
                experiment="current-stream",
                needs=("default-stream",),
            ),
        ),
    ),
    Probe(
        # ROCm/hip#3876, pytorch/pytorch#104487: queries and captures.
        name="capture-rules",
        family="capture",
        question="Is what a capture forbids refused, and is nothing else?",
        clauses=("CAP-1", "CAP-2", "CAP-3"),
        faults=(
            "captured-query-succeeds",
            "captured-sync-returns",
            "capture-takes-outside-wait",
            "capture-takes-legacy",
            "capture-mode-ignored",
            "capture-global-open",
        ),
        control="an event outside the capture can be asked, and a forked and joined capture is accepted and replayed",
        cases=(
            *(_case("capture-refused", call, _CAPTURED, (clause,), call=call) for call, clause in _REFUSED),
            *(_case("capture-mode", f"other-thread-{mode}", _CAPTURED, ("CAP-3",), mode=mode) for mode in _MODES),
        ),
    ),
    Probe(
        name="replayed",
        family="capture",
        question="Is the event behind a replayed publication step in time although a later wait is held?",
        clauses=("EVT-INDEP-1", "EVT-INDEP-3", "MEM-VIS-1"),
        faults=("late-next-wait", "late-idle", "late-blocking-sync"),
        control="without the later wait",
        cases=tuple(
            Case(
                variant=f"{observe}-{flags}",
                text=f"{_CAPTURED}\nS: gate g1, copy x -> h, record e\nU: gate g2, record f\nS: wait f\n"
                "host: open g1, open g2",
                observe=observe,
                flags=flags,
                needs=FLAG_NEEDS[flags],
                experiment="replayed",
                clauses=("EVT-INDEP-1" if observe == "query" else "EVT-INDEP-3", "MEM-VIS-1"),
            )
            for observe, flags in PLAIN
            if flags != "timing"
        ),
    ),
    Probe(
        name="other-process",
        family="other process",
        question="Does another process see a shared event as this one does?",
        clauses=("EVT-IPC-1",),
        faults=("ipc-always-complete",),
        control="the same look in this process",
        cases=tuple(_case("shared", look, _HELD, look=look) for look in ("query", "synchronize", "wait", "again")),
    ),
)
