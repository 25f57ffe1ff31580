"""What a user installs: the wheel, `make`'s environments, and the Python versions that are promised."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def run(*command: str | Path, cwd: Path = ROOT, **extra: str) -> subprocess.CompletedProcess[str]:
    # A worker's variables must not reach the pytest of another environment.
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "PYTHONPATH"))} | extra
    return subprocess.run(
        [str(part) for part in command], cwd=cwd, env=environ, capture_output=True, text=True, check=False
    )


def must(*command: str | Path, cwd: Path = ROOT, **extra: str) -> str:
    done = run(*command, cwd=cwd, **extra)
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def make_venv(folder: Path, *packages: str | Path, python: str | Path = sys.executable) -> Path:
    # With this environment's pip: one of its own would cost three seconds.
    must(python, "-m", "venv", "--without-pip", folder)
    interpreter = folder / "bin" / "python"
    pip = sys.executable, "-m", "pip", "--python", interpreter, "--quiet", "--disable-pip-version-check"
    must(*pip, "install", "--no-compile", *packages)
    return interpreter


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    must(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, ROOT)
    return next(out.glob("*.whl"))


def test_the_wheel_holds_the_packages_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info" not in name}
    assert tops == {"conformance", "probes", "reports"}
    assert {"conformance/suite/test_conformance.py", "probes/kernels/gate.c", "conformance/py.typed"} <= set(names)
    assert {"conformance/native/inject.h", "conformance/native/faults.c"} <= set(names)
    assert not [name for name in names if "published" in name]
    points = next(name for name in names if name.endswith(".dist-info/entry_points.txt"))
    text = zipfile.ZipFile(wheel).read(points).decode()
    assert "[vllm.general_plugins]\nstream_conformance = conformance.vllm_plugin:register" in text


def test_the_wheel_runs_decides_and_collects_without_a_checkout(wheel: Path, tmp_path: Path) -> None:
    python = make_venv(tmp_path / "venv", wheel)
    empty = tmp_path / "empty"
    empty.mkdir()
    command = python.parent / "stream-conformance"
    found = run(
        command,
        "run",
        "--backend",
        "reference",
        "--fault",
        "late-next-wait",
        "--depth",
        "quick",
        "--out",
        "r",
        cwd=empty,
    )
    assert found.returncode == 1, found.stderr
    decided = run(command, "decide", "r", "--in-flight", "3", "--allow-simulated", cwd=empty)
    assert (decided.returncode, decided.stdout) == (10, "enable\n")
    options = (
        "-p",
        "conformance.plugin",
        "--pyargs",
        "conformance.suite",
        "--sc-depth",
        "quick",
        "-p",
        "no:cacheprovider",
    )
    assert " passed" in must(python, "-m", "pytest", *options, "-m", "reference", cwd=empty)
    absent = run(python, "-m", "pytest", *options, "-m", "musa", cwd=empty)
    assert absent.returncode == 1
    assert "absent-musa" in absent.stdout


def test_make_sees_the_torch_of_the_interpreter_that_it_is_given(tmp_path: Path) -> None:
    vendor = tmp_path / "vendor"
    must(sys.executable, "-m", "venv", "--without-pip", vendor)
    site = Path(must(vendor / "bin" / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    (site / "torch").mkdir()
    (site / "torch" / "__init__.py").write_text("vendor = 'dummy'\n")
    must("make", "-s", f"{tmp_path}/made/.made", f"PYTHON={vendor}/bin/python", f"VENV={tmp_path}/made")
    seen = must(tmp_path / "made" / "bin" / "python", "-c", "import torch; print(torch.vendor)", cwd=tmp_path)
    assert seen.strip() == "dummy"


def test_make_without_a_network_says_what_is_missing(tmp_path: Path) -> None:
    done = run(
        "make",
        "-s",
        f"{tmp_path}/made/.made",
        f"PYTHON={sys.executable}",
        f"VENV={tmp_path}/made",
        PIP_INDEX_URL="http://127.0.0.1:9/simple",
        PIP_NO_CACHE_DIR="1",
        PIP_RETRIES="0",
        PIP_TIMEOUT="1",
        PIP_CONFIG_FILE="/dev/null",
    )
    assert done.returncode != 0
    assert "needs a network" in done.stderr
    assert not (tmp_path / "made" / ".made").exists()


def _interpreter(version: str) -> str | None:
    """A working interpreter of this version: on the path, or beside the one that runs the tests."""
    candidates = [Path(folder) / f"python{version}" for folder in os.environ.get("PATH", "").split(os.pathsep)]
    candidates += sorted(Path(sys.base_prefix).parent.glob(f"{version}*/bin/python{version}"))
    for candidate in candidates:
        if candidate.is_file():
            said = run(candidate, "-c", "import sys; print('%d.%d' % sys.version_info[:2])")
            if said.returncode == 0 and said.stdout.strip() == version:
                return str(candidate)
    return None


@pytest.mark.parametrize("version", ["3.10"])
def test_the_core_under_other_pythons(version: str, wheel: Path, tmp_path: Path) -> None:
    if sys.version_info[:2] == tuple(map(int, version.split("."))):
        pytest.skip(f"needs another interpreter: the tests run under Python {version} already")
    found = _interpreter(version)
    if found is None:
        pytest.skip(f"needs an interpreter: no Python {version} on this machine")
    python = make_venv(tmp_path / "venv", wheel, "hypothesis", "jsonschema", python=found)
    core = [path for path in sorted((ROOT / "tests").glob("test_*.py")) if path.stem in CORE]
    must(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *core, STREAM_CONFORMANCE_EXAMPLES="15")


#: The tests of the core: no OpenCL, no torch, no other environment.
CORE = {
    "test_programs",
    "test_model",
    "test_judgement",
    "test_decision",
    "test_fingerprint",
    "test_ring",
    "test_workaround",
    "test_vllm_plugin",
}
