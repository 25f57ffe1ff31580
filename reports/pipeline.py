"""The records of ``pipeline.json``: the model, what was measured in real time, and the workarounds compared.

Times are milliseconds unless the name says otherwise; lags are in steps. A value that was not measured is None.
"""

from __future__ import annotations

from typing import Final

import msgspec

from reports.records import Header

#: Read before anything else; a reader refuses every other number.
PIPELINE_SCHEMA: Final = 1


class FormCell(msgspec.Struct, frozen=True, kw_only=True):
    """The closed forms at one depth and ring, beside the simulated step time."""

    in_flight: int
    ring: int
    stages: int
    lateness: str
    worst_lag: int
    mean_lag: float
    late_share: float
    step_ratio: float  # the host's work left out
    simulated_ratio: float


class FormCheck(msgspec.Struct, frozen=True, kw_only=True):
    """Closed forms against the virtual clock."""

    cells: tuple[FormCell, ...]
    disagreements: tuple[str, ...]


class ReportedRow(msgspec.Struct, frozen=True, kw_only=True):
    """A figure that was reported, and the model's."""

    what: str
    reported: float
    modelled: float
    off: float  # relative
    note: str
    held: bool


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """The reported table, the inputs that the model was given, and what it does not explain."""

    span_ms: float
    pre_ms: float
    post_ms: float
    gap_ms: float
    rows: tuple[ReportedRow, ...]
    alternation: str
    unexplained: tuple[str, ...]


class ModelRow(msgspec.Struct, frozen=True, kw_only=True):
    """What the virtual clock says of a measured row, from its step and its host's work."""

    wait_p10: float
    wait_p50: float
    wait_p90: float
    instant: float
    worst_lag: int
    mean_lag: float
    late: float
    step: float
    idle: float
    itl_p50: float
    itl_p99: float
    ttft: float


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One pipeline in real time. ``note`` is why there is nothing else, or what is to be known of it."""

    fault: str
    in_flight: int
    ring: int
    path: str  # how an output travels: the ring, or what is used in its place
    output: str  # tokens or pooling
    switch: str  # how the stream is switched: context or set-stream
    asked: float  # the device's time of a step that was asked for
    note: str = ""
    outputs: int = 0
    wrong: int = 0  # outputs whose data was not the step's
    wait_p10: float | None = None
    wait_p50: float | None = None
    wait_p90: float | None = None
    instant: float | None = None  # the share of waits that returned at once
    alternates: float | None = None  # the share of neighbouring waits of which one returned at once and one not
    worst_lag: int | None = None  # later steps that had ended when the output was seen
    mean_lag: float | None = None
    late: float | None = None  # the share of outputs that were a step late or more
    gpu: float | None = None  # a step's own time on the device, by its events
    step: float | None = None  # from one step's end to the next one's, by events: TPOT without its edges
    idle: float | None = None  # between two steps on the device, by events
    tpot: float | None = None
    itl_p50: float | None = None
    itl_p99: float | None = None
    ttft: float | None = None
    pre: float | None = None  # the host's work before and after a launch, as it was
    post: float | None = None
    queue_us: float | None = None  # the host's time to queue one output, median
    model: ModelRow | None = None


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A question with a yes or no by gates or by data, never by the host's clock. ``held`` None: not answered."""

    part: str
    what: str
    found: str
    held: bool | None
    rule: str = ""  # whose rule it is: of the device, of the client, a control


class Bookkeeping(msgspec.Struct, frozen=True, kw_only=True):
    """A step of G on the device and C on the host, the host's work before or after the wait."""

    gpu: float
    host: float
    after: float  # the step time with the work after the wait
    before: float
    both: float  # G + C
    larger: float  # max(G, C)
    overlap: float | None  # 1: the shorter of the two is hidden whole; 0: nothing of it


class Read(msgspec.Struct, frozen=True, kw_only=True):
    """A way of reading a result: does it wait for what the stream has queued, and what does it cost when idle?"""

    call: str
    waits: bool | None  # None: not shown
    cost_us: float | None
    note: str = ""


class WorkaroundAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One workaround on one device by gates: are outputs seen while every later step's gate is closed?"""

    workaround: str
    fault: str
    in_flight: int
    timely: bool | None
    data: bool | None  # right where they were seen
    needs_concurrency: bool  # of streams: no vendor promises it
    reason: str = ""


class WorkaroundText(msgspec.Struct, frozen=True, kw_only=True):
    """What a workaround is, and what covers it."""

    name: str
    text: str
    covered: bool
    basis: str


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one or more parts of a pipeline run."""

    rows: tuple[Row, ...] = ()
    findings: tuple[Finding, ...] = ()
    bookkeeping: tuple[Bookkeeping, ...] = ()
    reads: tuple[Read, ...] = ()
    answers: tuple[WorkaroundAnswer, ...] = ()
    notes: tuple[str, ...] = ()

    def __add__(self, other: Parts) -> Parts:
        """Both, in order."""
        names = self.__struct_fields__
        return Parts(**{name: getattr(self, name) + getattr(other, name) for name in names})


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """Something that this run should show, and what it showed. Only decisive ones change the exit code."""

    what: str
    found: str
    held: bool
    decisive: bool


class PipelineReport(msgspec.Struct, frozen=True, kw_only=True):
    """A whole pipeline run. ``header`` is None where no device was opened."""

    schema_version: int
    suite_version: str
    started: str
    ended: str
    header: Header | None
    step_ms: float
    parts: Parts
    checks: tuple[Check, ...]
    workarounds: tuple[WorkaroundText, ...] = ()
    published: Published | None = None
    forms: FormCheck | None = None
