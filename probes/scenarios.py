"""Twenty scenarios from public reports, each with the probes or variants that put it to the test, or why none does.

A report is named by its project and number; some have no number, and are named by their page. The
selftest checks that each probe and variant exists.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What was reported, by whom, and which probes (``name`` or ``name[variant]``) look for it."""

    rank: int
    title: str
    probes: tuple[str, ...]
    reports: tuple[str, ...]
    unbuilt: str = ""  # why no probe looks for it


def _scenario(rank: int, title: str, probes: str, *reports: str, unbuilt: str = "") -> Scenario:
    return Scenario(rank=rank, title=title, probes=tuple(probes.split()), reports=reports, unbuilt=unbuilt)


SCENARIOS: Final = (
    _scenario(
        1,
        "a record, then a blocked wait on the same stream",
        "publication two-waits publication-waiter",
        "MooreThreads/vllm-musa pull request 263",
    ),
    _scenario(
        2,
        "which streams hold each other's events back, and how long a ring must be",
        "coupling independent-7 ring-1-2 ring-2-2 ring-4-4 scope",
        "ROCm/hip#3769",
        "ROCm/rocm-systems#8916",
        "ROCm/rocm-systems#9668",
        "ROCm/rocm-systems#10836",
        "pytorch/pytorch#173729",
        "NVIDIA/Megatron-LM#6643",
    ),
    _scenario(
        3,
        "the right data and a timely event in one program",
        "ring-1-2[default-wait-stream-side-query] publication[default-wait-stream-copy-side-query]",
        "vllm-project/vllm#31341",
        "vllm-project/vllm#46278",
        "vllm-project/vllm-ascend#3372",
    ),
    _scenario(
        4,
        "an event that waits for a flush, a query or the next operation",
        "nothing-behind agree",
        "intel/llvm#3612",
        "AdaptiveCpp/AdaptiveCpp#599",
        "AdaptiveCpp/AdaptiveCpp#976",
        "HJReachability/beacls#2",
    ),
    _scenario(
        5,
        "preconditions: calls that only queue return, and streams are different ones",
        "host-calls[copy-to-host] host-calls[copy-to-device] scope",
        "intel/torch-xpu-ops#127",
        "lupinemachines/lupine#631",
        "pytorch/pytorch#9646",
        "vllm-project/vllm#29207",
    ),
    _scenario(
        6,
        "query is honest on both sides of a gate, and agrees with synchronize",
        "nothing-behind agree stream-query other-process[query] neighbours",
        "ROCm/hip#3778",
        "smol-machines/smolvm#932",
        "ROCm/hrx-system#377",
        "athei/mtld3d#637",
        "ROCm/rocm-systems#6719",
    ),
    _scenario(
        7,
        "a wait covers its event, and not its producer's tail",
        "tail publication-waiter",
        "gabrieldemarmiesse/torch-mojo-backend#433",
        "gabrieldemarmiesse/torch-mojo-backend#431",
    ),
    _scenario(
        8,
        "an event covers copies that another engine runs",
        "block-copies slow-copy",
        "intel/torch-xpu-ops#4349",
        "ROCm/hip#13",
        "ROCm/hip#3314",
    ),
    _scenario(
        9,
        "a wait is bound to the record at its call; an event recorded again behind a gate",
        "re-record wait-first",
        "torch/cutorch#222",
    ),
    _scenario(10, "a record with only a wait before it, then a wait elsewhere", "relayed", "intel/llvm#19777"),
    _scenario(
        11,
        "query, synchronize and wait without a record; a wait before the record",
        "never wait-first elapsed-refused[unrecorded]",
        "ROCm/hip#3383",
        "ROCm/HIP-CPU#55",
        "eyalroz/cuda-api-wrappers#226",
        "sgl-project/sglang#14214",
        "iree-org/iree#17025",
        "NVIDIA/cuda-python#559",
    ),
    _scenario(
        12,
        "calls of a second thread while a host wait is pending",
        "beside-sync threads",
        "ROCm/rocm-systems#11678",
        "gfx-rs/wgpu#9470",
    ),
    _scenario(
        13,
        "an event recorded anew each step: the late waiter is its user's error",
        "re-record",
        "vllm-project/vllm#39115",
    ),
    _scenario(
        14,
        "an unsatisfied wait must not stop earlier or unrelated work",
        "publication second-gate independent-1 tail",
        "KhronosGroup/OpenCL-CTS#1661",
        "ROCm/clr#133",
    ),
    _scenario(
        15,
        "stream synchronize waits for its stream: neither longer nor shorter",
        "scope sync-pending",
        "CHIP-SPV/chipStar#173",
        "kpet/clvk#241",
    ),
    _scenario(
        16,
        "when a copy reads its source, and when the host sees its target",
        "source-order wait-data nothing-behind",
        "NVIDIA/TensorRT-LLM#15546",
        "NVIDIA/cccl#3814",
        "pytorch/pytorch#86264",
        "pytorch/pytorch#127612",
        "sgl-project/sglang#16493",
    ),
    _scenario(
        17,
        "an allocator that grows while one event is held back",
        "",
        "pytorch/pytorch#147874",
        "pytorch/pytorch#71616",
        "pytorch/pytorch#183501",
        unbuilt="the growth is the allocator's of torch, not the device's; to see it one must allocate beside a closed "
        "gate, which may wait for the device and so for the gate, and end in its limit: nothing is built for it",
    ),
    _scenario(
        18,
        "processor time of host waits, by flag (by call it is a capability of each run: 'processor used')",
        "blocking-flag",
        "vllm-project/vllm#47081",
        "openmm/openmm#3547",
        "pytorch/pytorch#60541",
        "cupy/cupy#7911",
    ),
    _scenario(
        19,
        "time between events: bounded below by a gate, antisymmetric, refused where there is none",
        "elapsed elapsed-refused",
        "ROCm/rocm-systems#9375",
        "ROCm/hrx-system#57",
        "CHIP-SPV/chipStar#128",
        "pytorch/pytorch#85796",
        "pytorch/pytorch#151404",
    ),
    _scenario(
        20,
        "an event query from another thread during a capture, by the capture's mode",
        "capture-rules[other-thread-global] capture-rules[other-thread-thread-local] "
        "capture-rules[other-thread-relaxed] capture-rules[other-thread-exchanged] capture-rules[query] replayed",
        "pytorch/pytorch#104487",
        "pytorch/pytorch#148594",
        "ROCm/hip#3876",
        "ROCm/rocm-systems#3195",
    ),
)


def scenarios_of(probe: str) -> tuple[Scenario, ...]:
    """The scenarios that a probe looks for."""
    return tuple(s for s in SCENARIOS if any(name.partition("[")[0] == probe for name in s.probes))
