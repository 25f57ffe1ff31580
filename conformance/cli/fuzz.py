"""``fuzz``: generated programs. Exit codes: 0 nothing found, 1 a finding, 2 usage, 3 something gave no verdict."""

from __future__ import annotations

import os
import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec
from tqdm import tqdm

from conformance.backends.registry import HARDWARE, NAMES, Opening, check_faults, check_name
from conformance.errors import HarnessError, UsageError
from conformance.fingerprint import set_blocking_variables
from conformance.fuzz import corpus
from conformance.fuzz.enumerate_programs import EVENTS, STREAMS
from conformance.fuzz.hunt import program_at
from conformance.fuzz.messages import Caught, Job, Progress, Ready
from conformance.fuzz.recipe import SIZES, Choice
from conformance.fuzz.supervise import LostProgram, run_job
from conformance.run import check_writable
from probes.notation import parse, print_program

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: Programs of a run that says neither how many nor how long.
PROGRAMS: Final = 1000
#: Indices that a run by time may use.
ENDLESS: Final = 1 << 40
#: Larger than any enumeration that ends in a day.
LARGEST: Final = 6


@click.command("fuzz")
@click.option("--backend", required=True, help=f"One of {', '.join(NAMES)}.")
@click.option("--device", help="The device's number (opencl: P:D).")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Another seed, other programs.")
@click.option("--programs", type=click.IntRange(1), metavar="N", help=f"Run N programs.  [{PROGRAMS}]")
@click.option("--minutes", type=click.FloatRange(0, min_open=True), metavar="M", help="Run for M minutes instead.")
@click.option("--size", type=click.Choice(list(SIZES)), default="medium", show_default=True, help="Of the programs.")
@click.option("--exhaustive", type=click.IntRange(1, LARGEST), metavar="N", help="Every program of up to N operations.")
@click.option("--index", type=click.IntRange(0), metavar="I", help="Run only the program of this index, and show it.")
@click.option("--fault", "faults", multiple=True, metavar="F", help="Make the device wrong in this way.")
@click.option("--findings", type=click.IntRange(1), default=1, show_default=True, help="Stop after so many findings.")
@click.option("--shrink-seconds", type=click.FloatRange(0), default=60.0, show_default=True, metavar="S")
@click.option("--workers", type=click.IntRange(0), metavar="N", help="Processes that write programs ahead.")
@click.option("--corpus", "corpus_folder", type=click.Path(path_type=Path), help="Replayed first.  [OUT/corpus]")
@click.option("--out", default="stream-conformance-fuzz", type=click.Path(path_type=Path), show_default=True)
def fuzz_command(
    backend: str,
    device: str | None,
    seed: int,
    programs: int | None,
    minutes: float | None,
    size: str,
    exhaustive: int | None,
    index: int | None,
    faults: Sequence[str],
    findings: int,
    shrink_seconds: float,
    workers: int | None,
    corpus_folder: Path | None,
    out: Path,
) -> int:
    """Run generated programs, judge what is odd, and shrink what fails."""
    opening = _opening(backend, device, tuple(faults))
    if programs is not None and minutes is not None:
        raise UsageError("--programs and --minutes: give one of them")
    if exhaustive is not None and (index is not None or programs is not None):
        raise UsageError("--exhaustive runs every program; leave --programs and --index out")
    if size == "large" and backend in HARDWARE:
        raise UsageError("--size large: parks more streams than hardware has room for; use small or medium")
    folder = corpus_folder if corpus_folder is not None else out / "corpus"
    texts = corpus.load(folder)
    check_writable(out, "--out")
    job = Job(
        seed=seed,
        size=size,
        first=index or 0,
        last=_last(programs, minutes, exhaustive, index),
        exhaustive=exhaustive or 0,
        texts=() if index is not None else texts,
        seconds=None if minutes is None else 60 * minutes,
        stop_after=findings,
        shrink_seconds=shrink_seconds,
        workers=_workers(backend, workers, index, exhaustive),
    )
    told = _Told(job, opening, out, folder, index)
    try:
        told.follow(run_job(job, opening))
    except BaseException:
        told.write()  # what was found until then stands; it says that it is incomplete
        raise
    return told.end()


def _opening(backend: str, device: str | None, faults: tuple[str, ...]) -> Opening:
    check_name(backend)
    if backend in HARDWARE and (blocking := set_blocking_variables()):
        raise UsageError(f"{blocking[0]} is set: a closed gate would hold the host; unset it")
    check_faults(backend, faults)
    return Opening(name=backend, device=device, faults=faults)


def _last(programs: int | None, minutes: float | None, exhaustive: int | None, index: int | None) -> int:
    if index is not None:
        return index + 1
    if minutes is not None or exhaustive is not None:
        return ENDLESS
    return PROGRAMS if programs is None else programs


def _workers(backend: str, workers: int | None, index: int | None, exhaustive: int | None) -> int:
    """Where the device works by itself, writing ahead pays; there must be processors for it."""
    if index is not None or exhaustive is not None:
        return 0
    if workers is not None:
        return workers
    return min(8, max(1, (os.cpu_count() or 2) - 4)) if backend in HARDWARE else 0


class _Told:
    """What a hunt tells, shown and kept."""

    def __init__(self, job: Job, opening: Opening, out: Path, folder: Path, index: int | None) -> None:
        self.job, self.opening, self.out, self.folder, self.index = job, opening, out, folder, index
        self.ready: Ready | None = None
        self.progress: list[Progress] = []  # the last word of each process
        self.found: list[Caught] = []
        self.unsteady: list[Caught] = []
        self.lost: list[LostProgram] = []

    def follow(self, messages: Iterator[Ready | Caught | Progress | LostProgram]) -> None:
        """Take in all messages."""
        total = None if self.job.last == ENDLESS else self.job.last - self.job.first
        bar = tqdm(total=total, disable=not sys.stderr.isatty(), leave=False, unit="program")
        try:
            for message in messages:
                if isinstance(message, Ready):
                    self._begin(message)
                elif isinstance(message, Caught):
                    (self.found if message.failed else self.unsteady).append(message)
                    if message.failed:
                        self._show(message)
                elif isinstance(message, LostProgram):
                    self.lost.append(message)
                    click.echo(f"lost at program {message.index}: {message.reason}\n{message.text}\n")
                else:
                    self._note(message)
                    bar.n = message.next - self.job.first
                    bar.refresh()
        finally:
            bar.close()

    def _begin(self, ready: Ready) -> None:
        if self.ready is None:
            self.ready = ready
            click.echo(f"{self.opening.name} {ready.device}, gate {ready.gate}, seed {self.job.seed}")
            if self.index is not None:
                click.echo(print_program(program_at(self.job, ready.recipe, self.index)))
        self.progress.append(Progress(next=self.job.first, tally={}, operations={}, gates={}, seconds=0.0))

    def _note(self, progress: Progress) -> None:
        self.progress[-1] = progress

    def _show(self, caught: Caught) -> None:
        where = f"corpus {-1 - caught.index}" if caught.index < 0 else f"program {caught.index}"
        click.echo(f"{where}: {', '.join(caught.failed)} ({caught.anomaly})")
        if caught.shrunk:
            click.echo(
                f"shrunk to {caught.operations} operations in {caught.tries} tries, still failing {caught.clause}:"
            )
            click.echo(f"{caught.shrunk}\n")
            choice = Choice(
                observe="synchronize" if caught.shrunk_observe == "synchronize" else "query", flags=caught.shrunk_flags
            )
            found = f"{self.opening.name}, seed {self.job.seed}, size {self.job.size}, {where}"
            try:
                corpus.keep(self.folder, parse(caught.shrunk), choice, clause=caught.clause, found=found)
            except OSError as error:
                raise HarnessError(f"the corpus in {self.folder} cannot be written: {error}; name another") from error

    @property
    def code(self) -> int:
        """The exit code of a run that came to its end."""
        return 1 if self.found else 3 if self.unsteady or self.lost else 0

    def end(self) -> int:
        """Print and write the summary; the exit code."""
        for line in self._lines():
            click.echo(line)
        for caught in self.unsteady[:3]:
            why = "; ".join(caught.unclear) or "not again"
            click.echo(f"unsteady: program {caught.index}: {caught.anomaly}; {why}")
        self.write()
        return self.code

    def write(self) -> None:
        """Write fuzz.json."""
        summary = {
            "complete": bool(self.progress) and self.progress[-1].ended,
            "job": self.job,
            "opening": self.opening,
            "device": self.ready.device if self.ready else "",
            "exit": self.code,
            "lines": self._lines(),
            "progress": self.progress,
            "found": self.found,
            "unsteady": self.unsteady,
            "lost": [{"index": lost.index, "reason": lost.reason, "program": lost.text} for lost in self.lost],
        }
        try:
            self.out.mkdir(parents=True, exist_ok=True)
            (self.out / "fuzz.json").write_bytes(msgspec.json.format(msgspec.json.encode(summary)))
        except OSError as error:
            raise HarnessError(f"{self.out}/fuzz.json cannot be written: {error}; name another --out") from error

    def _lines(self) -> list[str]:
        tally: dict[str, int] = {}
        operations: dict[int, int] = {}
        gates: dict[int, int] = {}
        for progress in self.progress:
            for total, part in ((operations, progress.operations), (gates, progress.gates)):
                for key, count in part.items():
                    total[key] = total.get(key, 0) + count
            for name, count in progress.tally.items():
                tally[name] = tally.get(name, 0) + count
        seconds = sum(progress.seconds for progress in self.progress)
        programs = sum(operations.values())
        replayed = len(self.job.texts) - max((progress.skipped for progress in self.progress), default=0)
        lines = [
            f"{programs} programs, {replayed} of the corpus before them: {len(self.found)} with a finding, "
            f"{len(self.unsteady)} unsteady, {len(self.lost)} lost",
            f"looks: {tally.get('must', 0)} MUST seen, {tally.get('pend', 0)} PEND held, "
            f"{tally.get('held', 0)} of {tally.get('should', 0)} SHOULD seen; "
            f"{tally.get('expired', 0)} programs run again for a gate that ended by itself",
        ]
        if programs:
            lines.append(f"device operations: {_spread(operations)}; gates: {_spread(gates)}")
        if programs and seconds:
            rate = f"{programs / seconds:.0f} programs a second, {1e6 * seconds / programs:.0f} us each"
            by_hand = next((progress.by_hand for progress in self.progress if progress.by_hand), 0.0)
            beside = f"; a loop by hand over one such program: {1e6 * by_hand:.0f} us" if by_hand else ""
            lines.append(rate + beside)
        if self.job.exhaustive:
            lines.append(
                f"enumerated: up to {self.job.exhaustive} operations on {STREAMS} streams with {EVENTS} events, "
                "up to renaming"
            )
        return lines


def _spread(counts: dict[int, int]) -> str:
    values = sorted(counts)
    every = [value for value in values for _ in range(counts[value])]
    low, high = every[len(every) // 20], every[len(every) * 19 // 20]
    return f"median {statistics.median(every):g} (5% {low}, 95% {high}, most {values[-1]})"
