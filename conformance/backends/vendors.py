"""What differs between the vendors whose torch builds share one shape: names, folders and options, as data."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

#: What the driver is asked for, by role, with the names that most vendors' drivers have behind their
#: prefix; the first that is exported is used.
_ROLES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "error": ("GetErrorName",),
        "getctx": ("CtxGetCurrent",),
        "setctx": ("CtxSetCurrent",),
        "load": ("ModuleLoadData",),
        "get": ("ModuleGetFunction",),
        "launch": ("LaunchKernel",),
        "wait": ("StreamWaitValue32_v2", "StreamWaitValue32"),
        "write": ("StreamWriteValue32_v2", "StreamWriteValue32"),
        "host": ("LaunchHostFunc",),
        "register": ("MemHostRegister_v2", "MemHostRegister"),
        "unregister": ("MemHostUnregister",),
        "pointer": ("MemHostGetDevicePointer_v2", "MemHostGetDevicePointer"),
        "eventquery": ("EventQuery",),
        "driverversion": ("DriverGetVersion",),
        "newstream": ("StreamCreate",),
        "dropstream": ("StreamDestroy_v2", "StreamDestroy"),
        "tohost": ("MemcpyDtoHAsync_v2", "MemcpyDtoHAsync"),
        # The second version takes the mode; the first is another function.
        "capture": ("StreamBeginCapture_v2",),
        "endcapture": ("StreamEndCapture",),
        "exchange": ("ThreadExchangeStreamCaptureMode",),
        "instantiate": ("GraphInstantiateWithFlags",),
        "launchgraph": ("GraphLaunch",),
        "dropexec": ("GraphExecDestroy",),
        "dropgraph": ("GraphDestroy",),
    }
)
#: What only some vendors' runtimes have: an error's name as the returned text, the call that forgets a thread's
#: last error, and the runtime's own version.
_RUNTIME_ROLES: Final = ("errorstring", "lasterror", "runtimeversion")


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """One way of asking the run-time compiler for code: templates of options, and who returns the code."""

    options: tuple[str, ...]  # with {major}, {minor} and {gcn} of the device
    size: str  # function, after the compiler's prefix, that tells the size of the code
    code: str  # function that copies it


@dataclass(frozen=True, slots=True, kw_only=True)
class TritonTimer:
    """The function by which a Triton kernel reads the device's timer; an empty name if there is none."""

    module: str
    function: str
    ticks_per_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Vendor:
    """Names by which one vendor's driver and torch module are driven; patterns are of file names."""

    name: str
    profile: str  # what binds it: conformance/spec
    module: str  # torch.<module>
    stream_handle: str  # attribute of its Stream that holds the raw handle
    event_handle: str  # attribute of its Event
    driver: tuple[str, ...]
    runtime: tuple[str, ...] = ()  # where else a name may live
    rtc: tuple[str, ...]
    folders: tuple[str, ...]  # in wheels: patterns below site-packages
    roots: tuple[str, ...]  # of toolkits; skipped where a variable in them is not set
    prefix: str  # of the run-time compiler's functions
    builds: tuple[Build, ...]  # best first
    timer: str  # defines NOW(t) for probes/kernels/gate.c
    hertz: float  # the timer's nominal ticks a second; measured before use
    triton_timer: TritonTimer
    symbols: Mapping[str, tuple[str, ...]]  # role -> names to try, best first
    wait_extra: tuple[int, ...] = ()  # 32-bit arguments of wait-value after the flags
    blocking: tuple[str, ...]  # variables that make a launch wait for its end
    recorded: tuple[str, ...] = ()  # beginnings of the names of variables that a report keeps
    plugin: str = ""  # the package that adds torch.<module>; empty where torch itself has it
    capability: str = "{major}.{minor}"  # of the device: the same fields as in the options
    version: str = ""  # torch.version.<version>: what torch was built with
    below: str = "driver"  # what an event's raw handle is asked through: driver or runtime
    register_flags: int = 3  # portable and mapped: the same numbers on CUDA and HIP

    @property
    def driven(self) -> tuple[str, ...]:
        """Functions of which a driver must export one: those that some gate kind is launched by."""
        return tuple(name for role in ("launch", "wait", "host") for name in self.symbols[role])


def _symbols(prefix: str, **other: tuple[str, ...]) -> Mapping[str, tuple[str, ...]]:
    """Role -> names behind ``prefix``, except for the roles whose full names are given."""
    usual = {role: tuple(prefix + name for name in names) for role, names in _ROLES.items()}
    return MappingProxyType(dict.fromkeys(_RUNTIME_ROLES, ()) | usual | other)


_CUDA: Final = Vendor(
    name="cuda",
    profile="cuda",
    module="cuda",
    stream_handle="cuda_stream",
    event_handle="cuda_event",
    driver=("libcuda.so.*", "libcuda.so.1"),  # the first finds what is loaded, the second asks the loader
    rtc=("libnvrtc.so.*", "libnvrtc.so"),
    folders=("nvidia/*/lib", "torch/lib"),
    roots=("$CUDA_HOME/lib64", "$CUDA_PATH/lib64", "/usr/local/cuda/lib64"),
    prefix="nvrtc",
    builds=(
        Build(options=("--gpu-architecture=sm_{major}{minor}",), size="GetCUBINSize", code="GetCUBIN"),
        # For a device that this NVRTC does not know: the driver translates PTX.
        Build(options=(), size="GetPTXSize", code="GetPTX"),
    ),
    timer='#define NOW(t) asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t))',
    hertz=1e9,
    triton_timer=TritonTimer(module="triton.language.extra.cuda", function="globaltimer", ticks_per_us=1000),
    symbols=_symbols("cu"),
    blocking=("CUDA_LAUNCH_BLOCKING",),
    recorded=("CUDA_",),
    capability="sm_{major}{minor}",
    version="cuda",
)

_ROCM: Final = Vendor(
    name="rocm",
    profile="hip",
    module="cuda",  # torch's ROCm builds keep CUDA's names
    stream_handle="cuda_stream",
    event_handle="cuda_event",
    driver=("libamdhip64.so*",),
    rtc=("libhiprtc.so*", "libamdhip64.so*"),  # older HIP has hipRTC in the runtime itself
    folders=("torch/lib", "_rocm_sdk_*/lib"),
    roots=("$ROCM_PATH/lib", "$HIP_PATH/lib", "/opt/rocm/lib"),
    prefix="hiprtc",
    builds=(
        Build(options=("--offload-arch={gcn}",), size="GetCodeSize", code="GetCode"),
        Build(options=(), size="GetCodeSize", code="GetCode"),
    ),
    timer="#define NOW(t) t = wall_clock64()",
    hertz=1e8,
    triton_timer=TritonTimer(module="triton.language.extra.hip", function="memrealtime", ticks_per_us=100),
    symbols=_symbols(
        "hip",
        error=("hipDrvGetErrorName",),
        launch=("hipModuleLaunchKernel",),
        register=("hipHostRegister",),
        unregister=("hipHostUnregister",),
        pointer=("hipHostGetDevicePointer",),
        errorstring=("hipGetErrorName",),
        lasterror=("hipGetLastError",),
        runtimeversion=("hipRuntimeGetVersion",),
        newstream=("hipStreamCreateWithFlags",),
        capture=("hipStreamBeginCapture",),
    ),
    wait_extra=(0xFFFFFFFF,),  # HIP's wait takes a mask
    blocking=("HIP_LAUNCH_BLOCKING", "AMD_SERIALIZE_KERNEL", "AMD_SERIALIZE_COPY", "CUDA_LAUNCH_BLOCKING"),
    recorded=("HIP_", "GPU_", "AMD_", "HSA_", "ROCR_", "CUDA_"),
    capability="{gcn}",
    version="hip",
    below="runtime",  # HIP is driver and runtime in one library, and torch calls the same function
)

# No name here was proved by a run of ours; docs/musa.md lists each with its evidence and what happens without it.
# A name that is not exported costs the gate kind that needs it, with a reason, and never the run. Event handles
# are asked through the runtime, by the function that torch_musa itself calls: a handle that the runtime made, given
# to the driver's muEventQuery, would be a guess, and a wrong guess a crash after a verdict.
_MUSA: Final = Vendor(
    name="musa",
    profile="musa",
    module="musa",
    stream_handle="musa_stream",
    event_handle="musa_event",
    driver=("libmusa.so*",),
    runtime=("libmusart.so*",),
    rtc=("libmtrtc.so*",),
    folders=("torch_musa/lib", "torch/lib"),
    roots=("$MUSA_HOME/lib", "$MUSA_PATH/lib", "/usr/local/musa/lib"),
    prefix="mtrtc",
    builds=(
        Build(options=("--offload-arch=mp_{major}{minor}",), size="GetFatBinSize", code="GetFatBin"),
        Build(options=(), size="GetFatBinSize", code="GetFatBin"),
        Build(options=(), size="GetMUSASize", code="GetMUSA"),
    ),
    timer="#define NOW(t) t = clock64()",
    hertz=1e9,
    triton_timer=TritonTimer(module="triton.language.extra.musa", function="", ticks_per_us=1),
    symbols=_symbols(
        "mu",
        host=("muLaunchHostFunc", "musaLaunchHostFunc"),
        register=("muMemHostRegister_v2", "muMemHostRegister", "musaHostRegister"),
        unregister=("muMemHostUnregister", "musaHostUnregister"),
        pointer=("muMemHostGetDevicePointer_v2", "muMemHostGetDevicePointer", "musaHostGetDevicePointer"),
        eventquery=("musaEventQuery",),
        errorstring=("musaGetErrorName", "musaGetErrorString"),
        lasterror=("musaGetLastError",),
        driverversion=("musaDriverGetVersion",),
        runtimeversion=("musaRuntimeGetVersion",),
    ),
    blocking=("MUSA_LAUNCH_BLOCKING", "CUDA_LAUNCH_BLOCKING"),  # the second: torchada maps CUDA's names
    recorded=("MUSA_", "MTHREADS_", "TORCHADA_", "CUDA_"),
    plugin="torch_musa",
    capability="mp_{major}{minor}",
    version="musa",
    below="runtime",
)

#: The vendors by name.
VENDORS: Final[Mapping[str, Vendor]] = MappingProxyType({v.name: v for v in (_CUDA, _ROCM, _MUSA)})


def accelerator(module: str) -> Vendor:
    """Another accelerator of torch, by the name of its module: torch's generic surface, and no driver that we know."""
    return Vendor(
        name="accelerator",
        profile="torch",
        module=module,
        stream_handle="native_handle",
        event_handle="event_id",
        driver=(),
        rtc=(),
        folders=(),
        roots=(),
        prefix="",
        builds=(),
        timer="",
        hertz=0.0,
        triton_timer=TritonTimer(module="", function="", ticks_per_us=1),
        symbols=_symbols(""),  # names without a prefix: there is no library to look them up in
        blocking=(),
    )
