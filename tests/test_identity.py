"""Which devices and driver are here, read without torch and without a driver: both are stand-ins."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from driver_double.double import compiler
from helpers import is_one_line

from conformance import fingerprint
from conformance.backends import amd, identity, moore
from conformance.backends.identity import UNKNOWN, find_cuda, identify, nvidia_driver, torch_built_for
from conformance.backends.opencl import runtime
from conformance.errors import BackendUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: What torch writes into its version.py, by build; the annotations are torch's own.
VERSIONS = {
    "cuda": "cuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n",
    "rocm": "cuda: Optional[str] = None\nhip: Optional[str] = '6.4.43482-0f2d60242'\n",
    "the CPU": "cuda: Optional[str] = None\nhip: Optional[str] = None\n",
}
HEAD = "from typing import Optional\n\n__version__ = '2.11.0'\ndebug = False\n"
OLD = """NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  Thu Jan  1 00:00:00 UTC 2026
GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)
"""
OPEN = """NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (builder@host)
GCC version:  gcc version 13.2.0 (Ubuntu 13.2.0-23ubuntu4)
"""


@pytest.fixture
def torch_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str | None], None]:
    """Makes a torch of this build (None: no torch at all) the only one that can be found."""

    def make(version: str | None) -> None:
        site = tmp_path / "site"
        site.mkdir()
        if version is not None:
            (site / "torch").mkdir()
            (site / "torch" / "__init__.py").write_text("raise AssertionError('nobody may import it')\n")
            if version:
                (site / "torch" / "version.py").write_text(HEAD + version)
        monkeypatch.delitem(sys.modules, "torch", raising=False)
        without = [entry for entry in sys.path if not (Path(entry) / "torch").exists()]
        monkeypatch.setattr(sys, "path", [str(site), *without])

    return make


@pytest.mark.parametrize("built", VERSIONS)
def test_the_build_of_a_torch_is_read_and_torch_not_imported(
    built: str, torch_of: Callable[[str | None], None]
) -> None:
    torch_of(VERSIONS[built])
    assert torch_built_for() == built
    assert "torch" not in sys.modules


def test_no_torch_and_a_torch_without_a_version_file(torch_of: Callable[[str | None], None], tmp_path: Path) -> None:
    torch_of(None)
    assert torch_built_for() is None
    (tmp_path / "site" / "torch").mkdir()
    (tmp_path / "site" / "torch" / "__init__.py").touch()
    sys.path_importer_cache.clear()
    assert torch_built_for() == "an unknown platform"


@pytest.mark.parametrize("text", [OLD, OPEN], ids=["old", "open"])
def test_the_driver_is_read_from_both_kernel_modules(text: str, tmp_path: Path) -> None:
    (tmp_path / "version").write_text(text)
    assert nvidia_driver(tmp_path / "version") == "580.159.04"


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104  Mon\n", "535.104"),
        ("GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0)\n", UNKNOWN),
        ("", UNKNOWN),
    ],
)
def test_what_is_no_driver_version_is_unknown(text: str, version: str, tmp_path: Path) -> None:
    (tmp_path / "version").write_text(text)
    assert nvidia_driver(tmp_path / "version") == version
    assert nvidia_driver(tmp_path / "absent") == UNKNOWN


#: Two devices, numbered by the bus; `double_open` counts inits that were not shut down.
NVML = r"""
#include <string.h>
static const char *names[] = {"NVIDIA H200", "NVIDIA L4"}, *uuids[] = {"GPU-aaaa", "GPU-bbbb"};
static int open_, refuse, count = 2;
int double_open(void) { return open_; }
void double_refuse(int code) { refuse = code; }
void double_count(int n) { count = n; }
int nvmlInit_v2(void) { if (refuse) return refuse; open_++; return 0; }
int nvmlShutdown(void) { open_--; return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { if (!open_) return 1; *n = count; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **h) {
  if (!open_ || i >= (unsigned)count) return 2;
  *h = &names[i]; return 0;
}
int nvmlDeviceGetHandleByUUID(const char *u, void **h) {
  for (int i = 0; open_ && i < count; ++i) if (!strcmp(u, uuids[i])) { *h = &names[i]; return 0; }
  return 6;
}
int nvmlDeviceGetName(void *h, char *to, unsigned size) {
  if (!open_) return 1;
  strncpy(to, *(const char **)h, size); return 0;
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-in for NVML."""
    if (cc := compiler()) is None:
        pytest.skip("a C compiler is needed for the stand-in of libnvidia-ml.so.1: none of cc, gcc, clang is here")
    folder = tmp_path_factory.mktemp("nvml")
    (folder / "nvml.c").write_text(NVML)
    made = folder / "libnvidia-ml.so.1"
    subprocess.run([cc, "-shared", "-fPIC", "-o", made, folder / "nvml.c"], check=True, capture_output=True)
    return made


@pytest.fixture
def nvml(library: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ctypes.CDLL]:
    """The stand-in in NVML's place; afterwards nobody may have left it open."""
    real = ctypes.CDLL
    double = real(str(library))
    double.double_refuse(0)
    double.double_count(2)

    def load(name: str, *args: Any, **more: Any) -> ctypes.CDLL:
        return real(str(library) if name == "libnvidia-ml.so.1" else name, *args, **more)

    monkeypatch.setattr(identity, "CDLL", load)
    yield double
    assert double.double_open() == 0


@contextmanager
def unavailable(*words: str) -> Iterator[None]:
    """It is not here, said in one line with these words and what it is about."""
    with pytest.raises(BackendUnavailable) as caught:
        yield
    text = str(caught.value)
    assert is_one_line(text)
    assert text.startswith("cuda: ")
    for word in words:
        assert word in text


H200, L4 = "NVIDIA H200", "NVIDIA L4"


@pytest.mark.parametrize(
    ("visible", "names"),
    [
        (None, [H200, L4]),
        ("0,1", [H200, L4]),
        ("1", [L4]),
        ("1,0", [L4, H200]),
        (" 1 , 0 ", [L4, H200]),
        ("GPU-bbbb", [L4]),
        ("GPU-bbbb,0", [L4, H200]),
        ("0,7,1", [H200]),  # what follows an entry that names nothing is not visible, as with CUDA
        ("0,GPU-none,1", [H200]),
        ("0,-1,1", [H200]),
    ],
)
def test_the_devices_are_those_that_cuda_shows(
    visible: str | None, names: list[str], nvml: ctypes.CDLL, torch_of: Callable[[str | None], None]
) -> None:
    torch_of(VERSIONS["cuda"])
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert find_cuda(environ) == [(str(index), name) for index, name in enumerate(names)]
    found = [identify("cuda", index, environ)[0] for index in range(len(names) + 1)]
    assert found == [*names, UNKNOWN]


@pytest.mark.parametrize(
    ("visible", "device"), [("0", H200), ("1", L4), (None, f"{H200}, {L4}"), ("GPU-bbbb,0", f"{H200}, {L4}")]
)
def test_a_decision_is_of_a_kind_of_device_and_of_no_index(visible: str | None, device: str, nvml: ctypes.CDLL) -> None:
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    for index in (0, 1, 7):  # the report's may not be here: an engine with one card sees it as number 0
        assert fingerprint.read_here("cuda", index, environ)["device"] == device
    assert fingerprint.read_here("cuda", 0, {"CUDA_VISIBLE_DEVICES": ""})["device"] == UNKNOWN


@pytest.mark.parametrize("visible", ["", "-1", "7", "GPU-none,0"])
def test_no_visible_device_names_the_variable(
    visible: str, nvml: ctypes.CDLL, torch_of: Callable[[str | None], None]
) -> None:
    torch_of(VERSIONS["cuda"])
    with unavailable("no NVIDIA device is visible", "CUDA_VISIBLE_DEVICES"):
        find_cuda({"CUDA_VISIBLE_DEVICES": visible})


def test_a_machine_without_devices(nvml: ctypes.CDLL, torch_of: Callable[[str | None], None]) -> None:
    torch_of(VERSIONS["cuda"])
    nvml.double_count(0)
    with unavailable("no NVIDIA device is visible"):
        find_cuda({})


def test_no_torch_is_named_first(torch_of: Callable[[str | None], None]) -> None:
    torch_of(None)
    with unavailable("torch is not installed", "Python"):
        find_cuda({})


@pytest.mark.parametrize("built", ["the CPU", "rocm"])
def test_a_torch_of_another_build_is_named(
    built: str, nvml: ctypes.CDLL, torch_of: Callable[[str | None], None]
) -> None:
    torch_of(VERSIONS[built])
    with unavailable("torch", built, "not for CUDA"):
        find_cuda({})


def test_a_driver_that_is_absent_or_does_not_start(
    nvml: ctypes.CDLL, torch_of: Callable[[str | None], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch_of(VERSIONS["cuda"])
    nvml.double_refuse(9)  # NVML_ERROR_DRIVER_NOT_LOADED
    with unavailable("libnvidia-ml.so.1", "driver"):
        find_cuda({})
    assert identify("cuda", 0, {})[0] == UNKNOWN

    def absent(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file: No such file or directory")

    monkeypatch.setattr(identity, "CDLL", absent)
    with unavailable("libnvidia-ml.so.1", "driver"):
        find_cuda({})
    assert identify("cuda", 0, {})[0] == UNKNOWN


# AMD: the kernel's topology in sysfs.


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    """A CPU, an MI300X whose board tells its name, and an MI210 that tells none."""
    gpus = {1: (304, 90402, 0xABCD, 128), 2: (104, 90010, 0x1234, 129)}
    for node in range(3):
        simds, target, unique, render = gpus.get(node, (0, 0, 0, 0))
        folder = tmp_path / "class/kfd/kfd/topology/nodes" / str(node)
        folder.mkdir(parents=True)
        values = {"cpu_cores_count": 0, "simd_count": simds, "gfx_target_version": target, "unique_id": unique}
        lines = [f"{name} {value}" for name, value in (values | {"drm_render_minor": render}).items()]
        (folder / "properties").write_text("\n".join(lines) + "\n")
    board = tmp_path / "class/drm/renderD128/device"
    board.mkdir(parents=True)
    (board / "product_name").write_text("AMD Instinct MI300X\n")
    return tmp_path


MI300X, MI210 = "AMD Instinct MI300X (gfx942)", "AMD GPU (gfx90a)"


@pytest.mark.parametrize(
    ("environ", "names"),
    [
        ({}, [MI300X, MI210]),
        ({"HIP_VISIBLE_DEVICES": "1"}, [MI210]),
        ({"CUDA_VISIBLE_DEVICES": "1,0"}, [MI210, MI300X]),
        ({"HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "1"}, [MI300X]),
        ({"ROCR_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "0"}, [MI210]),  # the second counts what the first left
        ({"ROCR_VISIBLE_DEVICES": "GPU-0000000000001234"}, [MI210]),
        ({"HIP_VISIBLE_DEVICES": "0,7,1"}, [MI300X]),
        ({"HIP_VISIBLE_DEVICES": ""}, []),
    ],
)
def test_amd_devices_are_those_that_hip_shows(environ: dict[str, str], names: list[str], sysfs: Path) -> None:
    assert [gpu.name for gpu in amd.visible(sysfs, environ)] == names


def test_the_amd_driver_is_its_version_or_the_kernel_that_has_it(tmp_path: Path) -> None:
    assert amd.driver(tmp_path) == UNKNOWN
    assert amd.gpus(tmp_path) == []
    folder = tmp_path / "module" / "amdgpu"
    folder.mkdir(parents=True)
    assert amd.driver(tmp_path) == f"in-tree, Linux {os.uname().release}"
    (folder / "version").write_text("6.12.12\n")
    assert amd.driver(tmp_path) == "6.12.12"


# Moore Threads: the vendor's management library.

MTML = """
#include <string.h>
static int refused, board;
void double_refuse(int code) { refused = code; }
int mtmlLibraryInit(void **library) { *library = &refused; return refused; }
int mtmlLibraryInitSystem(void *library, void **system) { *system = library; return library != &refused; }
int mtmlSystemGetDriverVersion(void *system, char *to, unsigned size) {
  if (system != &refused || size != 80) return 1;
  strcpy(to, "3.3.5");
  return 0;
}
int mtmlLibraryInitDeviceByIndex(void *library, unsigned index, void **device) {
  *device = &board;
  board = index;
  return library != &refused || index > 1;
}
int mtmlDeviceGetName(void *device, char *to, unsigned size) {
  if (device != &board || size != 32) return 1;
  strcpy(to, board ? "MTT S4000" : "MTT S5000");
  return 0;
}
"""


def test_moore_threads_device_and_driver_are_read_without_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moore, "LIBRARY", "libnone-mtml.so")
    assert identify("musa", 0, {}) == (UNKNOWN, UNKNOWN)
    if (cc := compiler()) is None:
        pytest.skip("a C compiler is needed for the stand-in of libmtml.so: none of cc, gcc, clang is here")
    (tmp_path / "mtml.c").write_text(MTML)
    made = tmp_path / "libmtml.so"
    subprocess.run([cc, "-shared", "-fPIC", "-o", made, tmp_path / "mtml.c"], check=True, capture_output=True)
    monkeypatch.setattr(moore, "LIBRARY", str(made))
    assert identify("musa", 0, {}) == ("MTT S5000", "3.3.5")
    assert identify("musa", 0, {"MUSA_VISIBLE_DEVICES": "1"}) == ("MTT S4000", "3.3.5")
    for chosen in ("all", "0", "7,8"):
        assert identify("musa", 1, {"MUSA_VISIBLE_DEVICES": chosen}) == (UNKNOWN, "3.3.5")
    ctypes.CDLL(str(made)).double_refuse(2)
    assert identify("musa", 0, {}) == (UNKNOWN, UNKNOWN)
    monkeypatch.setattr(moore, "FUNCTIONS", (*moore.FUNCTIONS, "mtmlNoSuchFunction"))
    ctypes.CDLL(str(made)).double_refuse(0)
    assert identify("musa", 0, {}) == (UNKNOWN, UNKNOWN)


def test_an_accelerator_that_nobody_knows_has_no_reader() -> None:
    assert identify("accelerator", 0) == (UNKNOWN, UNKNOWN)


def test_an_opencl_device_is_told_by_its_position_only_where_kinds_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = SimpleNamespace(name="a  CPU", driver_version="3.0"), SimpleNamespace(name="a GPU", driver_version="1")
    monkeypatch.setattr(runtime, "load", lambda: (None, None))
    for devices, expected in (
        ([one], [("a CPU", "3.0")] * 3),
        ([one, one], [("a CPU", "3.0")] * 3),
        ([one, other], [("a CPU", "3.0"), ("a GPU", "1"), (UNKNOWN, UNKNOWN)]),
        ([], [(UNKNOWN, UNKNOWN)] * 3),
    ):
        monkeypatch.setattr(runtime, "platforms", lambda _, devices=devices: [(None, devices)])
        assert [runtime.identify(position) for position in range(3)] == expected
