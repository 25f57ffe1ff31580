"""Experiments by name: bounded procedures for what no program can write down. docs/rules.md 2, "Experiments".

A probe's variant names one (`Case.experiment`); `conformance.trial.experiment` repeats and records it.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from conformance.experiments import capture, capture_mode, host_calls, other_process, threads, visibility, waiting
from probes.across import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from conformance.experiments.bench import Bench
    from conformance.judgement.statements import Statement
    from probes.probe import Case


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """A procedure, and how often it is done at most in a standard run: some hold a gate, or start a process."""

    run: Callable[[Bench], Iterable[Statement]]
    most: int = 20


#: What another process does takes seconds until it can be asked: it imports torch.
_SHARED: Final = "shared"

EXPERIMENTS: Final[Mapping[str, Experiment]] = MappingProxyType(
    {
        "behind-gate": Experiment(run=host_calls.behind_gate),
        "after-query": Experiment(run=host_calls.after_query, most=5),
        "beside-sync": Experiment(run=host_calls.beside_sync),
        "destroy-stream": Experiment(run=host_calls.destroy_stream),
        "blocking-flag": Experiment(run=waiting.blocking_flag, most=3),
        "block": Experiment(run=visibility.block),
        "hand-over": Experiment(run=threads.hand_over),
        "threads-at-once": Experiment(run=threads.at_once),
        "current-stream": Experiment(run=threads.current_stream),
        "capture-refused": Experiment(run=capture.refused, most=5),
        "capture-mode": Experiment(run=capture_mode.capture_mode, most=5),
        "replayed": Experiment(run=capture.replayed),
        _SHARED: Experiment(run=other_process.shared, most=5),
    }
)


def expected(cases: Iterable[Case]) -> tuple[str, ...]:
    """What these cases ask for and takes long to start: extras, named as in `conformance.backends.extras`, and a second
    device.
    """
    names = set[str]()
    for case in cases:
        if case.experiment == _SHARED:
            names.add(other_process.extra_of(case))
        if SECOND in case.needs:
            names.add(SECOND)
    return tuple(sorted(names))
