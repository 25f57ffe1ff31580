"""Runs the backend for accelerators that have no row of their own, on a GPU that has one.

Called as python any_accelerator.py OUT. That backend is only ever given what nobody else drives, so here nobody does.
Prints the gate kind and the verdict.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from conformance.backends.torch_device import TorchBackend, loading
from conformance.numbers import DEPTHS, Depth
from conformance.run import run
from conformance.runner import LocalRunner
from conformance.selection import select


def main(out: Path) -> None:
    vars(loading)["VENDORS"] = {}
    out.mkdir(parents=True, exist_ok=True)
    numbers = DEPTHS[Depth.QUICK]
    selection = select(numbers, probes=["publication", "nothing-behind", "ordering", "never"])
    runner = LocalRunner(TorchBackend("accelerator"), numbers, Depth.QUICK, selection)
    try:
        report = run(runner, selection, numbers, out=out)
    finally:
        runner.close()
    gate = report.header.gate
    told = {"gate": gate.kind, "tried": {t.kind: t.result for t in gate.tried}, "verdict": report.verdict.value}
    sys.stdout.write("\n" + json.dumps(told) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
