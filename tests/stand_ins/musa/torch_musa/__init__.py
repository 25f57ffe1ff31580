"""A stand-in for Moore Threads' torch_musa, for tests on machines without a device. Not Moore Threads' software.

It enters by torch's entry point, as the real plugin does, or is imported. The driver's and the runtime's libraries
are those in $MUSA_HOME/lib, built from tests/driver_double. STAND_IN_TORCHADA=1 imports torchada's stand-in too.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import os
import sys

__version__ = "2.7.1+standin"

_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def _refuse_beside_a_real_one() -> None:
    for entry in sys.path:
        if os.path.abspath(entry or ".") == _HERE:
            continue
        spec = importlib.machinery.PathFinder.find_spec("torch_musa", [entry])
        if spec is not None and spec.origin is not None:
            raise ImportError(f"torch_musa's stand-in was imported although a real one is installed: {spec.origin}")


def _install() -> None:
    import torch
    from stand_in.module import claim, from_environment, make_module

    root = os.environ.get("MUSA_HOME", "")
    accelerator, driver = from_environment(root, ("libmusa.so*", "libmusart.so*"), "musaHostAlloc")
    what = f"torch_musa stand-in on {torch.__version__}, not a device"
    module, tensors = make_module("torch.musa", "musa", accelerator, driver, "musa", what)
    vars(module)["__version__"] = __version__
    claim("musa", module, tensors)
    torch.version.musa = "50100"  # type: ignore[attr-defined]
    if os.environ.get("STAND_IN_TORCHADA", "") == "1":
        importlib.import_module("torchada")


if os.environ.get("STAND_IN_BROKEN", "") == "1":
    raise ImportError("libmusart.so.5: cannot open shared object file")
_refuse_beside_a_real_one()
_install()


def _autoload() -> None:
    """What torch's entry point names: the import above has done everything."""
