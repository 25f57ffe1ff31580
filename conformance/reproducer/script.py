"""Writes the stand-alone program and the report for the vendor."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final

import msgspec

from conformance import __version__
from conformance.backends.registry import PROFILES
from conformance.reproducer.template import TEXT
from conformance.spec import CLAUSES
from probes.notation import parse, print_program
from probes.program import Program, Read, is_host, is_host_buffer
from reports.render import ladder, timeline

if TYPE_CHECKING:
    from conformance.reproducer.check import Check
    from probes.probe import Case
    from reports.records import Report, Result

#: A reproducer has fewer lines than this.
LINES: Final = 140
#: torch's arguments for an event's flags.
ARGUMENTS: Final = {"default": {}, "blocking": {"blocking": True}, "timing": {"enable_timing": True}}
#: What each kind of check finds, in words.
DEFECTS: Final = {
    "late": "event {event} is not seen complete although nothing that it stands for is held back",
    "early": "event {event} is seen complete although gate {held} holds what it stands for",
    "token": "host buffer {buffer} holds {value} although gate {held} holds the copy back",
}


def script(report: Report, result: Result, case: Case, check: Check) -> str:
    """The program: torch and the standard library, under 140 lines."""
    program, after, left_out = _with_first_look(parse(result.program), check)
    fields = {
        "kind": check.kind,
        "after": after,
        **({"event": check.event} if check.event else {"buffer": check.buffer, "value": check.value}),
        "tokens": check.tokens,
        "held_by": list(check.held_by),
    }
    gate = "wait-value" if case.second_gate else "kernel"
    marks = {
        "TITLE": f"stream-conformance {__version__}: {result.probe}[{result.variant}], on {_device(report)}.",
        "EXPECTED": expectation(report, check),
        "LEFT_OUT": repr(left_out),
        "CHECK": repr(fields),
        "OBSERVE": f"{case.observe!r}, {ARGUMENTS[case.flags]!r}, {gate!r}",
        "DEFECT": defect(check),
    }
    text = TEXT
    for mark, value in marks.items():
        text = text.replace(f"@{mark}@", value)
    room = LINES - len(text.splitlines())
    return text.replace("@PROGRAM@", _program_text(program, room))


def _with_first_look(program: Program, check: Check) -> tuple[Program, int, tuple[int, ...]]:
    """A look before the first host step needs a host step that does nothing: the reproducer looks after steps."""
    if check.after:
        return program, check.after, check.left_out
    first = next(number for number, step in enumerate(program.steps) if is_host(step))
    buffer = next((name for name in program.buffers if is_host_buffer(name)), "h")
    steps = (*program.steps[:first], Read(buffer=buffer), *program.steps[first:])
    return Program(steps), 1, tuple(n + (n >= first) for n in check.left_out)


def _program_text(program: Program, room: int) -> str:
    """One line per run of operations, or several runs a line where there is no room for that."""
    runs = print_program(program).splitlines()
    per_line = -(-len(runs) // max(1, room))
    lines = ["; ".join(runs[n : n + per_line]) for n in range(0, len(runs), per_line)]
    return "\n".join(lines)


def defect(check: Check) -> str:
    """What the check finds, in words."""
    held = " and ".join(check.held_by)
    return DEFECTS[check.kind].format(event=check.event, buffer=check.buffer, value=check.value, held=held)


def expectation(report: Report, check: Check) -> str:
    """The clause, and where it is written."""
    clause = CLAUSES[check.clause]
    return f"{clause.title} ({check.clause}; {next(iter(_sources(report, check.clause)), 'see the report')})."


def _sources(report: Report, clause: str) -> list[str]:
    profile = PROFILES.get(report.header.backend, "torch")
    if profile == "reference":  # nobody's document binds it; what torch promises does
        profile = "torch"
    return [str(source) for source in CLAUSES[clause].binding(profile).sources]


def _device(report: Report) -> str:
    header = report.header
    facts = (header.device.name, header.device.capability, header.device.driver)
    return " ".join(part for part in facts if part not in ("", "none"))


def bug_report(report: Report, result: Result, case: Case, check: Check, name: str, diagnosis: str = "") -> str:
    """The report for the vendor, as Markdown; ``name`` is the reproducer's file name."""
    header, clause = report.header, CLAUSES[check.clause]
    failed = next((f for f in result.findings if f.clause == check.clause), None)
    environment = [
        f"- device: {_device(report)}",
        f"- runtime: {header.device.runtime or 'unknown'}",
        *(f"- {name}: {version}" for name, version in header.software.items()),
        *(f"- {variable}={value}" for variable, value in header.environment.items()),
        f"- gate: {header.gate.kind}, {header.gate.assurance}",
    ]
    if header.fault or header.injected:
        made = ", ".join((*header.fault, *header.injected))
        environment.append(f"- **made wrong on purpose: {made}; this is no finding about the device**")
    if header.simulated:
        environment.append("- **simulated: no hardware was used**")
    observed = [f"{defect(check)[0].upper()}{defect(check)[1:]}." if failed else "As expected: there is no finding."]
    if failed is not None:
        late, tried = (failed.late, failed.of) if failed.of else (result.counts.failed, result.counts.tried)
        holds = f", gates held for {', '.join(f'{h:g}' for h in failed.holds_s)} s" if failed.holds_s else ""
        ends = f"; it is seen after {failed.published_by}" if failed.published_by else ""
        observed.append(f"{late} of {tried} runs{holds}{ends}.")
    if result.form is not None:
        observed.append(f"Form: {result.form.value}.")
    control = "A single look is proof here: what is seen cannot be, while the gate is shown closed."
    if result.control is not None:
        shown = result.control
        control = (
            f"The same program without what may delay the event (control '{shown.name}') is in time, "
            f"{shown.on_time} of {shown.tried} runs"
            + (f", at most {shown.slowest_us:.0f} us after the opening" if shown.slowest_us is not None else "")
            + f":\n\n```\n{shown.program}\n```"
        )
    witness = ", ".join(f"{buffer} = {value}" for buffer, value in check.tokens.items())
    kind = result.kind.value if result.kind is not None else ""
    witness_text = f"The captured work leaves {witness} in host memory, read by plain loads." if witness else "None."
    if kind:
        there = "was there while the event was not seen" if kind == "publication" else "was missing too"
        witness_text += f" It {there}: {kind} is late."
    # The ladder is walked once for each form, for the first variant that shows it.
    walked = (r.mechanism for r in (result, *report.results) if r.form is result.form and r.mechanism is not None)
    steps = "\n".join(ladder(mechanism)) if failed and (mechanism := next(walked, None)) is not None else ""
    diagnosed = "\n\n".join(f"```\n{part}\n```" for part in (steps, diagnosis) if part)
    wrapped = textwrap.fill(clause.statement, 116)
    places = "\n".join(f"- {source}" for source in _sources(report, check.clause))
    return f"""# {clause.title}: violated in {result.probe}[{result.variant}]

## Environment

{chr(10).join(environment)}

## Program

Lanes are streams; operations are queued in this order. A gate holds its stream until the host opens it.
Events: {case.flags}; asked by {case.observe}.

```
{result.program}
```

Run `python {name}`: torch and the standard library alone. It exits 1 if the defect shows, 0 if it does not.

## Expected

{wrapped} ({check.clause})

{places}

## Observed

{chr(10).join(observed)}

```
{timeline(msgspec.structs.replace(result, control=None, mechanism=None))}
```

## Control

{control}

## Witness

{witness_text}

## Diagnosis

{diagnosed or "Not made: run `stream-conformance diagnose` on the report."}
"""
