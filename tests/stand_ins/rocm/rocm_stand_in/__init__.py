"""A stand-in for a ROCm build of torch, for tests: torch.version.hip is set, and the device is under torch.cuda.

It enters by torch's entry point. The runtime's library is the one in $ROCM_PATH/lib, built from tests/driver_double.
"""

from __future__ import annotations

import os

import torch
from stand_in.module import claim, cuda_means, from_environment, make_module

#: torch has one free place for a device, and "cuda" cannot be its name.
DEVICE = "rocmstandin"


def _autoload() -> None:
    """Make torch look like a ROCm build."""
    if torch.version.hip is not None or torch.version.cuda is not None:
        raise ImportError("the stand-in for ROCm needs a CPU build of torch")
    root = os.environ.get("ROCM_PATH", "")
    accelerator, driver = from_environment(root, ("libamdhip64.so*", "libamdhip64.so*"), "hipHostMalloc")
    what = f"ROCm stand-in on {torch.__version__}, not a device"
    module, tensors = make_module("torch.cuda", "cuda", accelerator, driver, DEVICE, what)
    ask = module.get_device_properties

    def properties(device: object = None) -> object:
        made = ask(device)
        made.gcnArchName = "gfx942"
        return made

    vars(module)["get_device_properties"] = properties
    claim(DEVICE, module, tensors)
    torch.version.hip = "6.4.0-standin"
    torch.cuda = module  # type: ignore[assignment]
    device = torch.device("cuda", 0)
    torch.accelerator.current_accelerator = lambda check_available=False: device
    cuda_means(DEVICE)
