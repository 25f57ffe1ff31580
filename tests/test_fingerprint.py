"""What makes two machines the same, read without torch, and what of the environment is recorded."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import pytest

from conformance import fingerprint, runtimes
from conformance.backends.vendors import VENDORS
from conformance.fingerprint import LAUNCH_BLOCKING, NONE, QUEUE_VARIABLES, UNKNOWN
from conformance.header import RECORDED, recorded_environment

if TYPE_CHECKING:
    from pathlib import Path


def test_the_digest_is_that_of_canonical_json() -> None:
    parts = {"driver": "550.54", "backend": "cuda", "device": "NVIDIA H200"}
    text = '{"backend":"cuda","device":"NVIDIA H200","driver":"550.54"}'
    assert fingerprint.digest(parts) == hashlib.sha256(text.encode()).hexdigest()
    assert fingerprint.digest(dict(reversed(parts.items()))) == fingerprint.digest(parts)


@pytest.mark.parametrize("name", ["backend", "device", "driver", "torch", "plugin", "runtime", *QUEUE_VARIABLES])
def test_every_part_that_the_contract_names_is_there_and_changes_the_digest(name: str) -> None:
    parts = fingerprint.parts("cuda", "gpu", "1.0", environ={}, path=[])
    assert name in parts
    assert fingerprint.digest(parts | {name: "other"}) != fingerprint.digest(parts)


def test_the_queue_variables_are_those_of_the_contract() -> None:
    assert {
        "CUDA_DEVICE_MAX_CONNECTIONS",
        "GPU_MAX_HW_QUEUES",
        "MUSA_DEVICE_MAX_CONNECTIONS",
        "MUSA_EXECUTE_COUNT",
        "CUDA_LAUNCH_BLOCKING",
        "MUSA_LAUNCH_BLOCKING",
    } <= set(QUEUE_VARIABLES)


def test_the_device_index_and_other_variables_are_no_part() -> None:
    plain = fingerprint.parts("cuda", "gpu", "1.0", environ={}, path=[])
    busy = {"CUDA_VISIBLE_DEVICES": "3", "HOSTNAME": "node7", "HOME": "/home/someone", "PYTHONPATH": "/x"}
    assert fingerprint.parts("cuda", "gpu", "1.0", environ=busy, path=[]) == plain


def installed(folder: Path, *names: str) -> list[str]:
    """A search path on which these distributions seem installed: no module of theirs exists."""
    for name in names:
        (folder / f"{name}.dist-info").mkdir()
    return [str(folder / "absent"), str(folder)]


def test_versions_come_from_the_names_of_dist_info_folders(tmp_path: Path) -> None:
    path = installed(tmp_path, "torch-2.5.0+cu124", "nvidia_cuda_runtime_cu12-12.4.127", "torch_musa-1.3.0")
    cuda = fingerprint.parts("cuda", "gpu", "1", environ={}, path=path)
    assert "2.5.0+cu124" in cuda["torch"]
    assert "12.4.127" in cuda["runtime"]
    assert cuda["plugin"] == NONE
    musa = fingerprint.parts("musa", "gpu", "1", environ={}, path=path)
    assert "1.3.0" in musa["plugin"]
    assert "2.5.0+cu124" in musa["torch"]
    assert fingerprint.digest(cuda) != fingerprint.digest(musa)


def test_what_lies_there_without_a_version_is_unknown_and_matches_nothing(tmp_path: Path) -> None:
    path = installed(tmp_path, "torch-2.5.0")
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch_musa").mkdir()
    here = fingerprint.parts("musa", "gpu", "1", environ={}, path=path)
    assert (here["torch"], here["plugin"]) == ("2.5.0", UNKNOWN)
    assert fingerprint.differences(here, here) == ["plugin", "runtime"]
    (tmp_path / "torch-2.5.0.dist-info").rmdir()
    assert fingerprint.parts("cuda", "gpu", "1", environ={}, path=path)["torch"] == UNKNOWN
    assert fingerprint.parts("opencl", "gpu", "1", environ={}, path=path)["torch"] == NONE


def test_the_first_folder_of_the_path_wins_as_it_does_for_imports(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder, version in ((first, "2.6.0"), (second, "2.5.0")):
        folder.mkdir()
        installed(folder, f"torch-{version}")
    assert fingerprint.wheel_versions([str(first), str(second)])["torch"] == "2.6.0"


def test_what_does_not_apply_is_none_and_what_cannot_be_read_is_unknown() -> None:
    absent = fingerprint.parts("musa", "", "", environ={}, path=[])
    assert (absent["torch"], absent["plugin"], absent["runtime"]) == (NONE, NONE, UNKNOWN)
    assert (absent["device"], absent["driver"]) == (UNKNOWN, UNKNOWN)
    here = fingerprint.read_here("reference")
    assert UNKNOWN not in here.values()
    assert fingerprint.differences(here, here) == []
    assert fingerprint.differences(absent, absent) == ["device", "driver", "runtime"]


@pytest.mark.parametrize("name", LAUNCH_BLOCKING)
def test_a_blocking_variable_that_is_empty_or_0_is_not_set(name: str) -> None:
    for value in ("", "0"):
        assert fingerprint.set_blocking_variables({name: value}) == []
    assert fingerprint.set_blocking_variables({name: "1"}) == [name]


@pytest.mark.parametrize("name", QUEUE_VARIABLES)
def test_an_empty_variable_is_the_same_machine_as_one_that_is_not_set(name: str) -> None:
    plain = fingerprint.parts("cuda", "gpu", "1", environ={}, path=[])
    assert fingerprint.parts("cuda", "gpu", "1", environ={name: ""}, path=[]) == plain
    assert fingerprint.parts("cuda", "gpu", "1", environ={name: "8"}, path=[])[name] == "8"


@pytest.mark.parametrize(
    "prefix",
    ["CUDA_", "HIP_", "GPU_", "AMD_", "HSA_", "ROCR_", "MUSA_", "MTHREADS_", "POCL_", "OCL_", "PYTORCH_", "TORCH_"],
)
def test_the_environment_is_recorded_by_an_allow_list(prefix: str) -> None:
    assert prefix in RECORDED
    kept = {f"{prefix}X": "1"}
    dropped = {
        "HOME": "/h",
        "USER": "me",
        "HOSTNAME": "node7",
        "API_TOKEN": "secret",
        "LD_PRELOAD": "x",
        f"MY_{prefix}": "",
    }
    assert recorded_environment(kept | dropped) == kept


def test_home_paths_are_scrubbed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    recorded = recorded_environment({"CUDA_CACHE_PATH": "/home/someone/cache:/opt:/home/someone"})
    assert recorded == {"CUDA_CACHE_PATH": "~/cache:/opt:~"}
    assert "someone" not in json.dumps(recorded)


# A runtime that no wheel holds.


@pytest.mark.parametrize(
    ("backend", "home", "library"),
    [
        ("musa", "MUSA_HOME", "libmusart.so.5.2.0"),
        ("rocm", "ROCM_PATH", "libamdhip64.so.6.4"),
        ("rocm", "ROCM_PATH", "libhsa-runtime64.so.1"),
    ],
)
def test_a_toolkit_that_was_replaced_is_another_machine(backend: str, home: str, library: str, tmp_path: Path) -> None:
    def here() -> str:
        return fingerprint.parts(backend, "gpu", "1", environ={home: str(tmp_path)}, path=[])["runtime"]

    (tmp_path / "lib").mkdir()
    assert here() == UNKNOWN
    (tmp_path / "lib" / library).write_bytes(b"one build")
    (tmp_path / "lib" / f"{library.partition('.so')[0]}.so").symlink_to(library)
    first = here()
    assert first.startswith(f"{library} ")
    assert here() == first
    (tmp_path / "lib" / library).write_bytes(b"other one")  # of the same name and length
    assert here() not in (first, UNKNOWN)


def test_whatever_of_the_runtime_the_loader_could_take_counts(tmp_path: Path) -> None:
    places = {name: tmp_path / name for name in ("site/torch_musa/lib", "preferred", "toolkit/lib", "system")}
    for name, folder in places.items():
        folder.mkdir(parents=True)
        (folder / f"libmusart.so.{len(name)}").write_bytes(name.encode())
    path, system = [str(tmp_path / "site")], [str(places["system"])]
    toolkit = {"MUSA_PATH": str(tmp_path / "toolkit")}
    found = runtimes.runtime("musa", toolkit, path, system)
    assert [part.partition(" ")[0] for part in found.split(", ")] == [f"libmusart.so.{n}" for n in (11, 19, 6)]
    assert "libmusart.so.19 of a wheel" in found  # whose version is a part of its own
    both = runtimes.runtime("musa", toolkit | {"LD_LIBRARY_PATH": f":{places['preferred']}"}, path, system)
    assert "libmusart.so.9 " in both
    (places["system"] / "libmusart.so.7").symlink_to(tmp_path / "gone")
    assert runtimes.runtime("musa", toolkit, path, system) == UNKNOWN


def test_the_runtime_is_looked_for_where_gates_look_for_it() -> None:
    for backend, files in runtimes.RUNTIMES.items():
        assert (files.wheels, files.roots) == (VENDORS[backend].folders, VENDORS[backend].roots)
    assert tuple(runtimes.RUNTIMES) == fingerprint.TOOLKITS
