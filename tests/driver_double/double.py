"""Stand-ins for a vendor's libraries and for torch, so that gates run without a device. See driver.c."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = Path(__file__).with_name("driver.c")
#: The file names that each vendor's records look for, by part.
FILES = {
    "cuda": {"DRIVER": "libcuda.so.1", "RTC": "libnvrtc.so.13"},
    "rocm": {"DRIVER": "libamdhip64.so.7", "RTC": "libhiprtc.so.7"},
    "musa": {"DRIVER": "libmusa.so.1", "RUNTIME": "libmusart.so.5", "RTC": "libmtrtc.so.1", "MTML": "libmtml.so"},
}
MACRO = {"cuda": "CUDA", "rocm": "HIP", "musa": "MUSA"}


def compiler() -> str | None:
    """A C compiler, if there is one."""
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def build(vendor: str, folder: Path, tag: str = "", without: tuple[str, ...] = ()) -> dict[str, Path]:
    """The parts of a vendor by name, compiled into ``folder``; ``tag`` is put in front of "lib"."""
    cc = compiler()
    assert cc is not None
    folder.mkdir(parents=True, exist_ok=True)
    made: dict[str, Path] = {}
    for part, name in FILES[vendor].items():
        target = folder / f"{tag}{name}"
        command = [cc, "-O1", "-shared", "-fPIC", "-pthread", f"-D{MACRO[vendor]}", f"-D{part}"]
        command += [*(f"-D{item}" for item in without), "-o", str(target), str(SOURCE)]
        if part == "RUNTIME":  # its host functions run on the driver's streams
            command += [str(made["DRIVER"]), f"-Wl,-rpath,{folder}"]
        subprocess.run(command, check=True, capture_output=True, text=True)
        made[part] = target
    return made


def make_module(driver: Path, stream_handle: str, event_handle: str, major: int = 9) -> Any:
    """What torch.<vendor> offers to gates, on the streams of a stand-in driver."""
    lib = ctypes.CDLL(str(driver))
    lib.double_stream.restype = lib.double_event.restype = ctypes.c_void_p
    lib.double_done.restype = lib.double_time.restype = ctypes.c_ulonglong
    pointer, number = ctypes.c_void_p, ctypes.c_ulonglong

    class Stream:
        def __init__(self) -> None:
            self.raw = lib.double_stream()
            setattr(self, stream_handle, self.raw)

        def synchronize(self) -> None:
            lib.double_sync(pointer(self.raw))

        def wait_event(self, event: Event) -> None:
            lib.double_wait(pointer(self.raw), pointer(event.raw), number(event.version))

    class Event:
        def __init__(self, *, enable_timing: bool = False) -> None:
            self.raw = lib.double_event()
            self._handle = (number * 2)(self.raw, 0)
            setattr(self, event_handle, ctypes.addressof(self._handle))

        @property
        def version(self) -> int:
            return self._handle[1]

        def record(self, stream: Stream | None = None) -> None:
            self._handle[1] += 1
            lib.double_record(pointer(self.raw), number(self.version), pointer((stream or current[-1]).raw))

        def query(self) -> bool:
            return bool(lib.double_done(pointer(self.raw)) >= self.version)

        def synchronize(self) -> None:
            while not self.query():
                time.sleep(1e-5)

        def elapsed_time(self, later: Event) -> float:
            return float(lib.double_time(pointer(later.raw)) - lib.double_time(pointer(self.raw))) / 1e6

    current = [Stream()]

    @contextmanager
    def stream(entered: Stream) -> Iterator[None]:
        current.append(entered)
        try:
            yield
        finally:
            current.pop()

    return SimpleNamespace(
        __name__="torch.double",
        Stream=Stream,
        Event=Event,
        stream=stream,
        synchronize=lib.double_enter,
        current_device=lambda: 0,
        get_device_properties=lambda _: SimpleNamespace(major=major, minor=0, gcnArchName="gfx942"),
        _sleep=lambda cycles: lib.double_sleep(pointer(current[-1].raw), number(cycles)),
    )


class PinnedTensor:
    """What torch.zeros(..., pin_memory=True) returns, as far as gates look at it."""

    def __init__(self, count: int) -> None:
        self._words = (ctypes.c_int32 * count)()

    def data_ptr(self) -> int:
        return ctypes.addressof(self._words)


def make_torch(site: Path, module_name: str, module: Any) -> Any:
    """What torch itself offers to gates; it claims to lie in ``site``."""

    def zeros(count: int, *, dtype: object, pin_memory: bool) -> PinnedTensor:
        assert dtype == "int32"
        assert pin_memory
        return PinnedTensor(count)

    return SimpleNamespace(
        __file__=str(site / "torch" / "__init__.py"),
        version=SimpleNamespace(cuda="13.0"),
        int32="int32",
        zeros=zeros,
        **{module_name: module},
    )
