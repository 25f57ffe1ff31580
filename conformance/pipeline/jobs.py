"""What a pipeline run asks of a device, as plain data: hardware does it in a child process."""

from __future__ import annotations

from typing import Union

import msgspec

from reports.pipeline import Parts, Row


class RowJob(msgspec.Struct, frozen=True, kw_only=True, tag="row"):
    """One pipeline in real time; times in milliseconds."""

    in_flight: int = 2
    ring: int = 1
    fault: str = ""
    path: str = "ring"  # one of conformance.pipeline.paths.PATHS
    output: str = "tokens"
    switch: str = "context"
    step_ms: float = 26.0
    pre_ms: float = 1.5
    post_ms: float = 0.5
    steps: int = 40  # outputs in a sequence, more than twice the steps in flight
    sequences: int = 3


class BookkeepingJob(msgspec.Struct, frozen=True, kw_only=True, tag="bookkeeping"):
    """The host's work before or after the wait, for each of these parts of a step."""

    step_ms: float = 10.0
    parts: tuple[float, ...] = (0.25, 0.5, 1.0, 1.5)
    steps: int = 12


class ReadsJob(msgspec.Struct, frozen=True, kw_only=True, tag="reads"):
    """Which ways of reading a result wait for the stream, and what each costs."""

    uses: int = 30


class RulesJob(msgspec.Struct, frozen=True, kw_only=True, tag="rules"):
    """What an engine relies on: switches of the stream, completion in issue order, who keeps a tensor alive."""

    steps: int = 8


class CompareJob(msgspec.Struct, frozen=True, kw_only=True, tag="compare"):
    """Every workaround by gates, on the device with this fault."""

    in_flight: int = 2
    fault: str = ""


Job = Union[RowJob, BookkeepingJob, ReadsJob, RulesJob, CompareJob]


def lost(job: Job, reason: str) -> Parts:
    """What is said of a job that was not done."""
    if isinstance(job, RowJob):
        row = Row(
            fault=job.fault,
            in_flight=job.in_flight,
            ring=job.ring,
            path=job.path,
            output=job.output,
            switch=job.switch,
            asked=job.step_ms,
            note=reason,
        )
        return Parts(rows=(row,))
    return Parts(notes=(f"{type(job).__name__.removesuffix('Job').lower()}: {reason}",))
