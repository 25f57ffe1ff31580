"""A runtime that is wrong on request, under any program: `stream-conformance inject`. See docs/inject.md.

A small C library (conformance/native) is compiled for this machine and preloaded over the runtime's event and
stream calls. Judgement knows nothing of it; a report made under it says so in its header.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from conformance.errors import UsageError, unknown_name

#: The faults in force, by name and separated by commas, for the library and for a report's header.
ASKED: Final = "STREAM_CONFORMANCE_INJECT"
#: The folder in which each process counts.
COUNTS: Final = "STREAM_CONFORMANCE_INJECT_COUNTS"
#: What stands in `ASKED` where the library is there and no fault was asked for.
NO_FAULT: Final = "no-fault"

#: The faults that can be preloaded, with what each delays or changes.
FAULTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "late-next-wait": "delays host query and host synchronize; device waits are in time",
        "late-any-wait": "delays host query and host synchronize; device waits are in time",
        "late-sync": "delays host query and host synchronize; device waits are in time",
        "held-by-wait": "holds queued copies back: host and device see them late",
        "query-always-true": "changes host query alone",
        "sync-noop": "changes host synchronize alone",
        "wait-dropped": "changes device waits alone",
        "wait-newest-record": "changes device waits alone",
        "rerecord-ignored": "changes host query, host synchronize and device waits",
    }
)
#: Two forms of one delay: an event cannot have both.
_FORMS: Final = ("late-next-wait", "late-any-wait")


def check_faults(faults: tuple[str, ...]) -> None:
    """Raise UsageError for a fault that cannot be preloaded, or that cannot be combined."""
    for fault in faults:
        if fault not in FAULTS:
            advice = f"(can be preloaded: {', '.join(FAULTS)})"
            raise UsageError(unknown_name("fault", fault, list(FAULTS), advice))
    if all(form in faults for form in _FORMS):
        raise UsageError(f"faults {' and '.join(_FORMS)}: an event is late in one form; give one of them")


def injected(environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """What this process was started under, empty if under nothing: `Header.injected`."""
    return tuple(name for name in environ.get(ASKED, "").split(",") if name)
