"""What makes two machines the same, read without torch, and what of the environment is recorded."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import pytest

from conformance import fingerprint
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
    assert fingerprint.differences(here, here) == ["plugin"]
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
    assert (absent["torch"], absent["plugin"], absent["runtime"]) == (NONE, NONE, NONE)
    assert (absent["device"], absent["driver"]) == (UNKNOWN, UNKNOWN)
    here = fingerprint.read_here("reference")
    assert UNKNOWN not in here.values()
    assert fingerprint.differences(here, here) == []
    assert fingerprint.differences(absent, absent) == ["device", "driver"]


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
