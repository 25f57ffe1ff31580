"""Probes name clauses, faults and capabilities by string; this checks that each name exists."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from conformance import catalogue
from conformance.backends.extras import NAMES as EXTRAS
from conformance.coverage import untested
from conformance.errors import HarnessError, UsageError
from conformance.experiments import EXPERIMENTS
from conformance.faults import FAULTS, fault_of
from conformance.spec import CLAUSES
from probes.catalogue import all_probes
from probes.scenarios import SCENARIOS

#: What a backend may or may not be able to do, by the names that probes use.
CAPABILITIES: Final[Mapping[str, str]] = {
    "blocking-stream": "a stream that the default stream orders",
    "second-device": "a second device of the same kind",
    "priority": "streams of different priorities",
    "default-stream": "a stream that exists without being made",
    "elapsed": "the time between two events",
    "event-flag-blocking": "events whose synchronize gives the processor up",
    "event-flag-timing": "events that keep a time",
    "host-copy": "a copy between two host buffers in stream order",
    "mixed": "objects of two API families in one program",
    "host-fn": "host functions in stream order",
    "query-stream": "asking a stream whether it is idle",
    "second-gate": "a second kind of gate",
    "slow-copy": "a copy that ends when a gate opens",
    "unrecorded-event": "events that exist before their first record",
    "wait-stream": "a wait for everything queued on another stream",
    **EXTRAS,
}


def check_names() -> None:
    """Raise HarnessError for the first name that a probe or a fault uses and nobody defines."""
    for probe in all_probes().values():
        for clause in probe.clauses:
            if clause not in CLAUSES:
                raise HarnessError(f"probe {probe.name} names clause {clause}, which the specification does not have")
        for fault in probe.faults:
            if fault_of(fault) is None:
                raise HarnessError(f"probe {probe.name} names fault {fault}, which the catalogue does not have")
        for case in probe.cases:
            if case.experiment and case.experiment not in EXPERIMENTS:
                raise HarnessError(f"probe {probe.name} names experiment {case.experiment}, which does not exist")
            for clause in case.clauses:
                if clause not in probe.clauses:
                    raise HarnessError(f"probe {probe.name}[{case.variant}] names clause {clause}, not one of its own")
            for capability in case.needs:
                if capability not in CAPABILITIES:
                    raise HarnessError(f"probe {probe.name} needs '{capability}', which is no capability")
    _check_scenarios()
    catalogue.check()
    tested = {clause for probe in all_probes().values() for clause in probe.clauses}
    if untested_clauses := untested(tested, CLAUSES):
        raise HarnessError(f"clause {untested_clauses[0]} has neither a probe nor a reason for having none")
    for fault_entry in FAULTS.values():
        _check_fault(fault_entry.name, fault_entry.allowed)


def _check_scenarios() -> None:
    probes = all_probes()
    for scenario in SCENARIOS:
        if bool(scenario.probes) is bool(scenario.unbuilt):
            raise HarnessError(f"scenario {scenario.rank} must have probes or a reason why it has none")
        for name in scenario.probes:
            probe, _, variant = name.rstrip("]").partition("[")
            if probe not in probes or (variant and variant not in {case.variant for case in probes[probe].cases}):
                raise HarnessError(f"scenario {scenario.rank} names {name}, which is no probe or variant")


def _check_fault(name: str, clauses: frozenset[str]) -> None:
    from conformance.backends.reference.faults import hooks_of

    for clause in clauses:
        if clause not in CLAUSES:
            raise HarnessError(f"fault {name} names clause {clause}, which the specification does not have")
    try:
        hooks_of(name)
    except UsageError as error:
        raise HarnessError(f"the reference device does not have fault {name}: {error}") from error
