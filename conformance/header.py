"""The header of a report: which device, gate, software and environment its results come from."""

from __future__ import annotations

import os
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Final

from conformance import __version__, fingerprint
from conformance.backends.vendors import VENDORS
from conformance.inject import injected
from conformance.private import private
from reports.records import SCHEMA_VERSION, Device, Fingerprint, Gate, Header, Tried

if TYPE_CHECKING:
    from collections.abc import Mapping

    from conformance.backends.api import Backend
    from conformance.numbers import Depth

#: Variables that may matter, by prefix; nothing else of the environment is recorded.
RECORDED: Final = (
    *sorted({prefix for vendor in VENDORS.values() for prefix in vendor.recorded}),
    "POCL_",
    "OCL_",
    "PYTORCH_",
    "TORCH_",
)


def now() -> str:
    """The time, UTC, to the second."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def recorded_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables of the allow-list, without home paths."""
    return {k: fingerprint.home_free(v) for k, v in sorted(environ.items()) if k.startswith(RECORDED)}


def make_header(backend: Backend, depth: Depth, *, restricted: bool = False) -> Header:
    """Where the report comes from; `ended` and `complete` are set when the run is over."""
    device, gate = backend.device(), backend.gate()
    parts = fingerprint.parts(backend.name, device.name, device.driver)
    header = Header(
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
            uuid=device.uuid,
            second=(device.second or "").removeprefix(f"{backend.name}-"),
        ),
        software=dict(backend.software()),
        environment=recorded_environment(),
        gate=Gate(
            kind=gate.kind,
            assurance=gate.assurance,
            release_us=gate.release_us,
            tried=tuple(Tried(kind=kind, result=result) for kind, result in gate.tried),
            note=f"cross-checked by {gate.second}" if gate.second else "single-gate",
        ),
        simulated=backend.simulated,
        fault=backend.faults,
        injected=injected(),
        fingerprint=Fingerprint(digest=fingerprint.digest(parts), parts=parts),
        depth=depth.value,
        restricted=restricted,
    )
    return private(header)
