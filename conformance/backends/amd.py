"""AMD devices and driver as the kernel shows them in sysfs: no torch, no HIP.

Layout: the amdkfd topology in /sys/class/kfd/kfd/topology/nodes, one folder per agent; a GPU has SIMDs.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

SYS: Final = Path("/sys")
UNKNOWN: Final = "unknown"
#: Each of these chooses among what the one before it left: ROCr first, then HIP.
CHOOSERS: Final = (("ROCR_VISIBLE_DEVICES",), ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU: its name with the instruction set, and its name in a variable."""

    name: str
    unique: str


def gpus(sys: Path = SYS) -> list[Gpu]:
    """Every GPU, in the order of the topology's nodes, which is HIP's."""
    nodes = sys / "class" / "kfd" / "kfd" / "topology" / "nodes"
    found = []
    for node in sorted((n for n in nodes.glob("*") if n.name.isdecimal()), key=lambda n: int(n.name)):
        values = dict(line.split(None, 1) for line in _read(node / "properties").splitlines() if " " in line)
        if int(values.get("simd_count", "0")) == 0:
            continue  # a CPU
        target = int(values.get("gfx_target_version", "0"))
        gfx = f"gfx{target // 10000}{target // 100 % 100:x}{target % 100:x}" if target else UNKNOWN
        render = sys / "class" / "drm" / f"renderD{values.get('drm_render_minor', '').strip()}" / "device"
        product = _read(render / "product_name") or "AMD GPU"
        found.append(Gpu(name=f"{product} ({gfx})", unique=f"GPU-{int(values.get('unique_id', '0')):016x}"))
    return found


def visible(sys: Path = SYS, environ: Mapping[str, str] = os.environ) -> list[Gpu]:
    """The GPUs that the variables leave, in their order. What follows an entry that names nothing is not visible."""
    left = gpus(sys)
    for names in CHOOSERS:
        chosen = next((environ[name] for name in names if name in environ), None)
        if chosen is None:
            continue
        kept: list[Gpu] = []
        for entry in map(str.strip, chosen.split(",")):
            match = [gpu for n, gpu in enumerate(left) if entry == str(n) or entry.lower() == gpu.unique.lower()]
            if not match:
                break
            kept += match[:1]
        left = kept
    return left


def driver(sys: Path = SYS) -> str:
    """The version of amdgpu; of the one in the kernel's own tree, the kernel's release."""
    amdgpu = sys / "module" / "amdgpu"
    if version := _read(amdgpu / "version"):
        return version
    return f"in-tree, Linux {os.uname().release}" if amdgpu.is_dir() else UNKNOWN


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
