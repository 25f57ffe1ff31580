"""A run: every selected case on one backend, its log, and the report with verdict and decision."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Final

from conformance import __version__, fingerprint
from conformance.backends.api import Backend
from conformance.decision import decide, merge_clauses, sentence
from conformance.errors import UsageError
from conformance.numbers import Depth, Numbers
from conformance.selection import Selection
from conformance.trial.case import run_case
from conformance.trial.pipeline import measure_pipe
from conformance.trial.result import result_of, ring_result, skipped_ring
from conformance.trial.state import RunState
from probes.probe import Case, Probe
from reports import store
from reports.records import (
    SCHEMA_VERSION,
    Device,
    Fingerprint,
    Gate,
    Header,
    Report,
    Result,
    Tried,
    Verdict,
)
from reports.render import markdown

#: Variables that may matter, by prefix; nothing else of the environment is recorded.
RECORDED: Final = (
    "CUDA_",
    "HIP_",
    "GPU_",
    "AMD_",
    "HSA_",
    "ROCR_",
    "MUSA_",
    "MTHREADS_",
    "POCL_",
    "OCL_",
    "PYTORCH_",
    "TORCH_",
)

#: Is told the number of cases done, and of how many.
Progress = Callable[[int, int, str], None]


def now() -> str:
    """The time, UTC, to the second."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def recorded_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables of the allow-list, without home paths."""
    return {k: fingerprint.home_free(v) for k, v in sorted(environ.items()) if k.startswith(RECORDED)}


def make_header(backend: Backend, depth: Depth, selection: Selection | None) -> Header:
    """Where the report comes from; `ended` and `complete` are set when the run is over."""
    device, gate = backend.device(), backend.gate()
    parts = fingerprint.parts(backend.name, device.name, device.driver)
    return Header(
        schema_version=SCHEMA_VERSION,
        suite_version=__version__,
        started=now(),
        ended=None,
        complete=False,
        backend=backend.name,
        surfaces=(backend.surface,),
        device=Device(
            name=device.name,
            index=device.index,
            capability=device.capability,
            driver=device.driver,
            runtime=device.runtime,
        ),
        software=dict(backend.software()),
        environment=recorded_environment(),
        gate=Gate(
            kind=gate.kind,
            assurance=gate.assurance,
            release_us=gate.release_us,
            tried=tuple(Tried(kind=kind, result=result) for kind, result in gate.tried),
            note="single-gate",
        ),
        simulated=backend.simulated,
        fault=backend.faults,
        injected=(),
        fingerprint=Fingerprint(digest=fingerprint.digest(parts), parts=parts),
        depth=depth.value,
        restricted=selection is not None and selection.restricted,
    )


def run_one(backend: Backend, probe: Probe, case: Case, state: RunState) -> Result:
    """One case to its record."""
    pipe = probe.pipes.get(case.variant)
    if pipe is None:
        return result_of(backend, run_case(backend, probe, case, state))
    for capability in case.needs:
        if (reason := backend.unsupported(capability)) is not None:
            return skipped_ring(backend, probe, case, f"{capability}: {reason}")
    key = pipe.ring, pipe.in_flight
    if key in state.late_rings:
        return skipped_ring(backend, probe, case, f"ring {pipe.ring} with {pipe.in_flight} in flight is late already")
    started = time.perf_counter()
    measure, pipe_run = measure_pipe(backend, pipe, case, state)
    if measure.outcome == "late":
        state.late_rings.add(key)
    return ring_result(backend, probe, case, measure, pipe_run, state.proved, time.perf_counter() - started)


def run_verdict(results: Sequence[Result], *, core_left_out: bool, causal: bool) -> tuple[Verdict, str]:
    """The run's verdict and why. Source: CONTRACT.md 2, "Verdicts"."""
    must = [c for r in results for c in r.clauses if c.level == "MUST"]
    failed = sorted({c.clause for c in must if c.verdict is Verdict.NON_CONFORMANT})
    if failed:
        return Verdict.NON_CONFORMANT, ", ".join(failed)
    unclear = sorted({c.reason for c in must if c.verdict is Verdict.INCONCLUSIVE})
    if unclear:
        return Verdict.INCONCLUSIVE, ", ".join(unclear[:3])
    if not any(c.verdict is Verdict.CONFORMANT for c in must):
        return Verdict.INCONCLUSIVE, "nothing was judged"
    if not causal:
        return Verdict.INCONCLUSIVE, "timed-gate"
    core = merge_clauses(results).get("EVT-INDEP-1")
    if not core_left_out and core is not Verdict.CONFORMANT:
        return Verdict.INCONCLUSIVE, "EVT-INDEP-1 was not judged conformant"
    return Verdict.CONFORMANT, ""


def capabilities_of(results: Iterable[Result]) -> dict[str, str]:
    """What was measured rather than judged."""
    found: dict[str, str] = {}
    beside = 0
    asked = 0
    for result in results:
        if result.probe.startswith("independent-"):
            asked = max(asked, int(result.probe.rpartition("-")[2]))
            if all(c.held is not False for c in result.clauses):
                beside = max(beside, int(result.probe.rpartition("-")[2]))
    if asked:
        found["streams that may be blocked before an independent one stops"] = (
            f"more than {beside}" if beside == asked else str(beside)
        )
    return found


def finish(header: Header, results: Sequence[Result], selection: Selection, numbers: Numbers) -> Report:
    """The report of a run that got to its end."""
    causal = header.gate.assurance == "causal"
    left_out = selection.by_probe and not any(p.name == "publication" for p, _ in selection.cases)
    verdict, reason = run_verdict(results, core_left_out=left_out, causal=causal)
    missing = selection.decisive - {(p.name, c.variant) for p, c in selection.cases}
    ended = _replace(header, ended=now(), complete=True)
    return Report(
        header=ended,
        verdict=verdict,
        reason=reason,
        results=tuple(results),
        capabilities=capabilities_of(results),
        decision=decide(results, numbers.max_in_flight, causal=causal, missing=missing),
    )


def _replace(header: Header, **changes: object) -> Header:
    import msgspec

    return msgspec.structs.replace(header, **changes)


@contextmanager
def writable(folder: Path) -> Iterator[Path]:
    """A folder that files can be written to; raises UsageError before anything is run."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".writable"
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise UsageError(
            f"--out {folder} cannot be written: {error.strerror or error}; name a folder that can"
        ) from None
    yield folder


def run(
    backend: Backend,
    selection: Selection,
    numbers: Numbers,
    depth: Depth,
    *,
    out: Path | None = None,
    progress: Progress | None = None,
) -> Report:
    """Run every case, log each as it ends, and write the report to ``out`` if that is given."""
    state = RunState(numbers)
    header = make_header(backend, depth, selection)
    log = None
    if out is not None:
        store.set_aside(out)
        log = store.Log(out / store.LOG, header)
    results: list[Result] = []
    try:
        for number, (probe, case) in enumerate(selection.cases):
            if progress is not None:
                progress(number, len(selection.cases), f"{probe.name}[{case.variant}]")
            if log is not None:
                log.case(probe.name, case.variant)
            result = run_one(backend, probe, case, state)
            results.append(result)
            if log is not None:
                log.result(result)
        report = finish(header, results, selection, numbers)
        if log is not None and out is not None:
            store.write_report(out, report, markdown(report, sentence(report.decision)))
            log.footer(report)
    finally:
        if log is not None:
            log.close()
    return report
