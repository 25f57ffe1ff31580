"""``backends``, ``list`` and ``explain``: what there is, and what it means."""

from __future__ import annotations

import textwrap
from typing import Final

import click

from conformance.backends import fault_layer
from conformance.backends.registry import NAMES, find
from conformance.coverage import WITHOUT_PROBE
from conformance.errors import UsageError, unknown_name
from conformance.faults import DECOYS, FAULTS, Fault, fault_of
from conformance.inject import FAULTS as preloaded
from conformance.spec import CLAUSES, Clause, Level
from probes.catalogue import all_probes
from probes.probe import Probe
from probes.scenarios import scenarios_of


@click.command("backends")
@click.option("--doctor", is_flag=True, help="Everything that a maintainer elsewhere would ask for, in one block.")
def backends_command(doctor: bool) -> int:
    """Show which backends are on this machine, and why others are not."""
    if doctor:
        from conformance.cli.doctor import block

        for line in block():
            click.echo(line)
        return 0
    for name in NAMES:
        found = find(name)
        for index, device in found.devices:
            click.echo(f"{name:12s} {index:5s} {device}")
        if not found.here:
            click.echo(f"{name:12s} -     {found.reason.removeprefix(name + ': ')}")
    return 0


@click.command("list")
@click.option("--probes", "what", flag_value="probes", default=True, help="Probes, with their questions (the default).")
@click.option("--variants", "what", flag_value="variants", help="Every variant of every probe.")
@click.option("--clauses", "what", flag_value="clauses", help="Clauses, with the probes that test them.")
@click.option("--faults", "what", flag_value="faults", help="Faults, with the clause that must catch each.")
def list_command(what: str) -> int:
    """List probes, variants, clauses or faults."""
    {"probes": _probes, "variants": _variants, "clauses": _clauses, "faults": _faults}[what]()
    return 0


def _probes() -> None:
    for probe in all_probes().values():
        click.echo(f"{probe.name:20s} {len(probe.cases):3d} variants  {probe.question}")


def _variants() -> None:
    for probe in all_probes().values():
        for case in probe.cases:
            marks = " ".join(mark for mark, on in (("decisive", case.decisive), ("quick", case.quick)) if on)
            click.echo(f"{probe.name}[{case.variant}] {marks}".rstrip())


def probes_of(clause: str) -> list[str]:
    """The probes that test a clause."""
    return [probe.name for probe in all_probes().values() if clause in probe.clauses]


def _clauses() -> None:
    for clause in CLAUSES.values():
        names = probes_of(clause.id)
        shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        shown = shown or f"no probe: {WITHOUT_PROBE.get(clause.id, 'not yet')}"
        click.echo(f"{clause.id:15s} {clause.title}\n{'':15s}   {shown}")


def _faults() -> None:
    for fault in FAULTS.values():
        click.echo(f"{fault.name:24s} {fault.killed_by:14s} {fault.text}")
    click.echo(f"{'queues-K':24s} {'STM-CONC-1':14s} streams share K hardware queues (legal)")
    for name, text in DECOYS.items():
        click.echo(f"{name:24s} {'(legal)':14s} {text}")
    click.echo("A late fault with the suffix -device delays device waits too. Two faults may be given where they")
    click.echo("do not replace the same behaviour: --fault late-next-wait-queue --fault queues-2.")


@click.command("explain")
@click.argument("name")
def explain_command(name: str) -> int:
    """Explain a clause, a probe or a fault."""
    probes = all_probes()
    if name.upper() in CLAUSES:
        _explain_clause(CLAUSES[name.upper()])
    elif name in probes:
        _explain_probe(probes[name])
    elif (fault := fault_of(name)) is not None:
        _explain_fault(fault)
    elif name in DECOYS:
        click.echo(f"{name}: {DECOYS[name]}; a legal device, on which nothing may fail")
    else:
        known = [*CLAUSES, *probes, *FAULTS, *DECOYS, "queues-1"]
        raise UsageError(unknown_name("clause, probe or fault", name, known, "(see 'stream-conformance list')"))
    return 0


_WIDTH: Final = 100


def _wrap(label: str, text: str) -> None:
    click.echo(textwrap.fill(text, _WIDTH, initial_indent=f"{label:12s}", subsequent_indent=" " * 12))


def _explain_clause(clause: Clause) -> None:
    click.echo(f"{clause.id}: {clause.title}")
    _wrap("states", clause.statement)
    _wrap("violated if", clause.violation)
    _wrap("tested by", ", ".join(probes_of(clause.id)) or f"no probe: {WITHOUT_PROBE.get(clause.id, 'not yet')}")
    for profile, binding in clause.bindings.items():
        level = f"{binding.level.value}, by {binding.basis.value}" if binding.level is not Level.NONE else "not bound"
        notes = "; ".join(
            [
                *map(str, binding.sources),
                *([f"not by {', '.join(binding.exempt)}"] if binding.exempt else []),
                *([binding.note] if binding.note else []),
            ]
        )
        _wrap(f"  {profile}", f"{level}: {notes}")


def _explain_probe(probe: Probe) -> None:
    click.echo(f"{probe.name}: {probe.question}")
    _wrap("tests", ", ".join(probe.clauses))
    _wrap("catches", ", ".join(probe.faults) or "-")
    _wrap("control", probe.control)
    for scenario in scenarios_of(probe.name):
        _wrap("reported", f"{scenario.title}: {', '.join(scenario.reports)}")
    _wrap("variants", ", ".join(case.variant for case in probe.cases))
    first = probe.cases[0]
    part = f", as far as it is one (experiment {first.experiment})" if first.experiment else ""
    click.echo("program" + (" (its first harvest)" if probe.pipes else part))
    click.echo(textwrap.indent(probe.cases[0].text, "            "))


def _explain_fault(fault: Fault) -> None:
    click.echo(f"{fault.name}: {fault.text}")
    _wrap("caught by", fault.killed_by)
    _wrap("may fail", ", ".join(fault.may_fail) or "nothing else")
    over = fault_layer.FAULTS.get(fault.name)
    _wrap("over an API", over or "not to be had: only the reference device has it")
    _wrap("preloaded", preloaded.get(fault.name) or "not to be had; see 'stream-conformance inject --help'")
    _wrap("decision", fault.outcome + (f", form {fault.form}" if fault.form else ""))


COMMANDS: Final = (backends_command, list_command, explain_command)
