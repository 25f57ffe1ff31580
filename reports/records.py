"""The records of a report. Frozen, keyword-only, and the whole of what a reader may rely on.

Source: docs/rules.md 4. No float is infinite: never is ``None``.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from reports.reading import SCHEMA_VERSION as SCHEMA_VERSION
from reports.reading import Outcome as Outcome


class Verdict(str, Enum):
    """What came of a clause under a variant; the reason stands beside it."""

    CONFORMANT = "conformant"
    NON_CONFORMANT = "non-conformant"
    INCONCLUSIVE = "inconclusive"
    UNSUPPORTED = "unsupported"
    OBSERVED = "observed"


class Form(str, Enum):
    """What finally publishes a late event."""

    NEXT_WAIT = "next-wait"
    ANY_WAIT = "any-wait"
    IDLE = "idle"
    SYNC = "sync"
    NEVER = "never"


class Kind(str, Enum):
    """What is late: the host's view, or the work itself."""

    PUBLICATION = "publication"
    EXECUTION = "execution"


class MechanismClass(str, Enum):
    """What lies behind a late event, as far as nudges tell."""

    TAIL_COUPLING = "tail coupling"  # later work of its own stream holds the signal
    BATCHING = "batching"  # work is gathered until something, or time, has it submitted
    LOST_WAKE_UP = "lost wake-up"  # the signal comes with a synchronize, or with nothing
    LOCK_STALL = "lock stall"  # a call that must return at once does not
    SHARED_QUEUE = "shared queue"  # another stream's work holds it
    EXECUTION_HELD = "execution held"  # the captured work itself is not done
    WRAPPER = "wrapper"  # the driver knows, and the API above it does not say
    UNCLEAR = "unclear"  # two walks disagree


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """A gate kind that was tried, and what came of it."""

    kind: str
    result: str  # "ok", or the exact call and its error


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """The gate kind that a run used."""

    kind: str
    assurance: str  # causal or timed
    release_us: float | None = None
    tried: tuple[Tried, ...] = ()
    note: str = ""


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """The device that a run used."""

    name: str
    index: int = 0
    capability: str = ""
    driver: str = ""
    runtime: str = ""
    uuid: str = ""
    second: str = ""  # the UUID or number of the device that programs across devices use beside it


class Fingerprint(msgspec.Struct, frozen=True, kw_only=True):
    """What makes two machines the same for a decision: a digest, and the parts that it was made of."""

    digest: str
    parts: dict[str, str]


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """Where a report comes from."""

    schema_version: int
    suite_version: str
    started: str
    ended: str | None
    complete: bool
    backend: str
    surfaces: tuple[str, ...]
    device: Device
    software: dict[str, str]
    environment: dict[str, str]
    gate: Gate
    simulated: bool
    fault: tuple[str, ...]
    injected: tuple[str, ...]
    fingerprint: Fingerprint
    depth: str
    restricted: bool = False  # by --probe or --variant
    devices: tuple[Device, ...] = ()  # all that results come from, where they were spread over several


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """How often a clause was put to the test in a variant, and how often it failed."""

    tried: int = 0
    held: int = 0
    failed: int = 0
    unclear: int = 0


class ClauseResult(msgspec.Struct, frozen=True, kw_only=True):
    """One clause under one variant."""

    clause: str
    level: str
    basis: str
    verdict: Verdict
    reason: str = ""
    held: bool | None = None  # for a SHOULD
    kind: Kind | None = None
    counts: Counts = Counts()


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One operation of a lane, for renderers: they never parse program text."""

    lane: str
    kind: str
    operands: tuple[str, ...]
    step: int


class EventSeen(msgspec.Struct, frozen=True, kw_only=True):
    """One event at one host point."""

    event: str
    owed: str  # PEND, MUST, SHOULD or NEVER
    seen: bool
    polls: int
    after_us: float | None = None


class HostPoint(msgspec.Struct, frozen=True, kw_only=True):
    """What the host saw at one host point."""

    after_step: int
    call: str
    returned: bool = True
    events: tuple[EventSeen, ...] = ()
    buffers: dict[str, int] = {}
    gates_ended: tuple[str, ...] = ()
    waited_us: float = 0.0


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """One repetition that is kept: the first, the slowest, or a failing one."""

    repetition: int
    why: str
    hold_s: float
    points: tuple[HostPoint, ...]


class Control(msgspec.Struct, frozen=True, kw_only=True):
    """The control that shows what delays an event."""

    name: str
    program: str
    on_time: int
    tried: int
    slowest_us: float | None = None


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A clause that failed, in one line, with what was needed to prove it."""

    clause: str
    text: str
    event: str = ""
    published_by: str = ""
    holds_s: tuple[float, ...] = ()
    late: int = 0
    of: int = 0
    second_opinion: str = ""  # what the layer below the API said of the late event, or why it said nothing


class LadderStep(msgspec.Struct, frozen=True, kw_only=True):
    """One nudge given to a device whose event is late, and what was seen until the next."""

    nudge: str
    what: str
    seen: bool
    token: bool | None = None  # was the captured work's token there; None: it leaves none
    at_us: float = 0.0  # since the event was owed
    longest_call_us: float = 0.0
    note: str = ""  # why it was not made


class Mechanism(msgspec.Struct, frozen=True, kw_only=True):
    """What lies behind a late event; observations, and no verdict."""

    name: MechanismClass
    text: str
    event: str
    by: str  # the nudge that published it; empty: none did
    driver: bool | None = None  # the driver's answer while the event was late; None: it was not asked
    steps: tuple[LadderStep, ...] = ()


class RingMeasure(msgspec.Struct, frozen=True, kw_only=True):
    """One pipeline, Pipe(ring, in_flight), under one variant."""

    ring: int
    in_flight: int
    outcome: str  # timely, late, or why it says nothing
    steps: int
    lag_steps: int | None = None  # of the late event that ended it; None: not late, or published by no gate
    lag_us: float | None = None
    control: str = ""
    decisive: bool = True


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One probe under one variant."""

    probe: str
    variant: str
    surface: str
    subject: str
    clauses: tuple[ClauseResult, ...]
    level: str
    basis: str
    verdict: Verdict
    reason: str
    form: Form | None
    kind: Kind | None
    counts: Counts
    findings: tuple[Finding, ...]
    program: str
    digest: str
    lanes: tuple[Operation, ...]
    observations: tuple[Observation, ...]
    histogram_us: dict[str, int]
    control: Control | None
    window_us: float
    duration_s: float
    ring: RingMeasure | None = None
    experiment: str = ""  # the procedure that answered; the program is then only its device part
    lag_histogram_us: dict[str, int] = {}  # from the captured work's token to the event seen
    mechanism: Mechanism | None = None  # of the first variant that is late in a form


class RingRow(msgspec.Struct, frozen=True, kw_only=True):
    """What one ring length did at one depth, over all variants measured."""

    ring: int
    late: bool | None  # None: it says nothing
    worst_lag_steps: int | None
    reason: str = ""


class ParkedRow(msgspec.Struct, frozen=True, kw_only=True):
    """How many streams may be parked in a wait, with ``behind`` behind it, until independent ``work`` stands still."""

    behind: str
    work: str
    streams: int | None  # the least number beside which it stands still; None: none of those tried
    tried: int  # the largest number tried
    note: str = ""  # why it was not measured, or ended early


class Coupling(msgspec.Struct, frozen=True, kw_only=True):
    """Which pairs (i, j) of streams are coupled, beside so many others that have had work."""

    what: str  # happens on i because of j
    streams: int
    beside: int
    asked: int  # pairs
    pairs: tuple[tuple[int, int], ...]
    note: str = ""


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """What a ring may cost others on this device, and the setting that lifts it."""

    parked: tuple[ParkedRow, ...]
    couplings: tuple[Coupling, ...]
    setting: str = ""


class DepthDecision(msgspec.Struct, frozen=True, kw_only=True):
    """The decision for one number of steps in flight."""

    in_flight: int
    outcome: Outcome
    ring: int | None
    reason: str
    rings: tuple[RingRow, ...]
    warning: str = ""  # what the ring that it asks for does to others


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The decision on the ring. ``needed`` is the outcome for two steps in flight."""

    needed: Outcome
    form: Form | None
    per_in_flight: tuple[DepthDecision, ...]
    price: Price | None = None  # None: not measured


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run."""

    header: Header
    verdict: Verdict
    reason: str
    results: tuple[Result, ...]
    capabilities: dict[str, str]
    decision: Decision


class DecisionFile(msgspec.Struct, frozen=True, kw_only=True):
    """The decision without the results, small enough for an engine to read at start."""

    header: Header
    verdict: Verdict
    decision: Decision
    report_sha256: str
