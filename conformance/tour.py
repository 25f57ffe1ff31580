"""What ``make report`` runs: the devices that are here, and beside them the defect that the suite is about.

On a machine without an accelerator that is the reference device, an OpenCL runtime if there is one,
and the reference device with the fault `late-next-wait`: a newcomer sees both verdicts and both
decisions on one screen.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import click

from conformance.backends.registry import HARDWARE, find
from conformance.cli import main
from conformance.cli.run import WORST

#: The defect as reported, on the reference device.
CONTRAST: Final = "late-next-wait"


def tour(out: Path) -> int:
    """Run what is here; returns the worst exit code of the real devices, 4 if the contrast does not show."""
    runs = [["--out", str(out)]] if any(find(name).here for name in HARDWARE) else []
    if not runs:
        runs.append(["--backend", "reference", "--out", str(out / "reference")])
        if find("opencl").here:
            runs.append(["--backend", "opencl", "--out", str(out / "opencl")])
    codes = []
    for number, options in enumerate(runs):
        if number:
            click.echo()
        codes.append(main(["run", *options]))
        if codes[-1] not in WORST:
            return codes[-1]  # interrupted, or not usable: nothing more would come of it
    click.echo("\nfor contrast, a device with the defect that was reported on MUSA:")
    found = main(["run", "--backend", "reference", "--fault", CONTRAST, "--out", str(out / CONTRAST)])
    if found == 1:
        return max(codes, key=WORST.index)
    if found == 0:
        click.echo("error: the defect was not found, so the suite cannot be trusted; run 'make test'", err=True)
        return 4
    return found


if __name__ == "__main__":
    sys.exit(tour(Path(sys.argv[1] if len(sys.argv) > 1 else "stream-conformance-out")))
