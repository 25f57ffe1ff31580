"""The vendors' table: in step with the guide, proof against torchada, and asked of torch in a process of its own."""

from __future__ import annotations

import ast
import ctypes
import importlib.util
import json
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from conformance import cli, loader
from conformance.backends import identity, moore, registry
from conformance.backends.gates import libraries
from conformance.backends.torch_device import ask, loading
from conformance.backends.vendors import VENDORS
from conformance.cli import doctor
from conformance.errors import BackendUnavailable
from conformance.runner import TEST_CHILD

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(libraries.__file__).parents[3]
#: What the adapter calls of a vendor's module by its name.
MODULE = (
    "device",
    "Stream",
    "Event",
    "stream",
    "default_stream",
    "synchronize",
    "set_device",
    "current_device",
    "is_available",
    "device_count",
    "get_device_name",
    "get_device_properties",
    "_sleep",
    "ExternalStream",
    "set_stream",
    "current_stream",
)
#: What it calls of an event and of a stream.
EVENT = ("record", "query", "synchronize", "elapsed_time", "ipc_handle", "from_ipc_handle")
STREAM = ("query", "synchronize", "wait_event", "wait_stream")
#: Names of torch's own classes that the adapter has for something else: a surface's wait, a thread's.
OTHERS = ("wait",)
#: Where a vendor's module, its streams and its events are used.
ADAPTER = ("backends/torch_device", "backends/gates", "pipeline")
#: What the compiler is called by, beside what a build names.
COMPILER = ("CreateProgram", "CompileProgram", "GetProgramLogSize", "GetProgramLog", "DestroyProgram")


def names_of(vendor_name: str) -> set[str]:
    """Every name of a vendor's that the code relies on."""
    vendor = VENDORS[vendor_name]
    builds = [call for build in vendor.builds for call in (build.size, build.code)]
    return {
        *(name for names in vendor.symbols.values() for name in names),
        *(vendor.prefix + call for call in (*COMPILER, *builds)),
        *(option for build in vendor.builds for option in build.options),
        *(vendor.driver + vendor.runtime + vendor.rtc + vendor.folders + vendor.roots),
        *(vendor.blocking + vendor.recorded),
        *(vendor.stream_handle, vendor.event_handle, vendor.plugin, vendor.triton_timer.module),
        *(f"torch.{vendor.module}", f"torch.version.{vendor.version}", vendor.timer.rpartition("= ")[2]),
        *MODULE,
        *(f"Event.{name}" for name in EVENT),
        *(f"Stream.{name}" for name in STREAM),
        "Event(interprocess=True)",
    }


def test_the_guide_lists_every_name_of_musa_that_no_run_has_proved() -> None:
    text = (ROOT / "docs" / "musa.md").read_text().partition("## Names that no run has proved")[2]
    rows = [line.split("|") for line in text.splitlines() if line.startswith("| `")]
    listed = [row[1].strip().strip("`") for row in rows]
    known = names_of("musa") | {moore.LIBRARY, *moore.FUNCTIONS, "MUSA_VISIBLE_DEVICES"}
    assert len(set(listed)) == len(listed)
    assert set(listed) == known
    assert all(row[3].strip() in ("source", "notes", "analogy") for row in rows)
    assert all(row[4].strip() for row in rows), "each has a fallback"


def nodes() -> Iterator[ast.AST]:
    """Everything in the text of the parts that use a vendor's module."""
    for folder in ADAPTER:
        for path in (ROOT / "conformance" / folder).rglob("*.py"):
            yield from ast.walk(ast.parse(path.read_text()))


def is_module(node: ast.AST) -> bool:
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return name in ("module", "_module", "current_module")


def test_every_call_of_the_module_in_the_adapter_is_in_the_list() -> None:
    """The list above cannot fall behind: what is used of a module is looked up in the text, however it is spelled."""
    used: set[str] = set()
    for node in nodes():
        if isinstance(node, ast.Attribute) and is_module(node.value):
            used.add(node.attr)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "hasattr", "needed"):
            name = node.args[1] if is_module(node.args[0]) else node.func  # a function has no constant in it
            used |= {n.value for n in ast.walk(name) if isinstance(n, ast.Constant)}
    assert used - {"__name__", "__version__"} == set(MODULE) | ({"STAND_IN"} & used)


def test_every_call_of_an_event_or_a_stream_in_the_adapter_is_in_the_list() -> None:
    torch = pytest.importorskip("torch")
    used = {node.attr for node in nodes() if isinstance(node, ast.Attribute)}
    flags = {word.arg for node in nodes() if isinstance(node, ast.Call) for word in node.keywords}
    for known, names in ((torch.cuda.Event, EVENT), (torch.cuda.Stream, STREAM)):
        public = {name for name in vars(known) if not name.startswith("_")}
        assert set(names) <= public | used
        assert (public & used) - {*OTHERS} == set(names)
    assert "interprocess" in flags


class Patched:
    """What torchada puts in ctypes.CDLL: it gives libraries that are none, and answer to other names."""

    def __new__(cls, name: str, *_: object) -> Any:
        raise AssertionError(f"{name} was opened by the wrapped loader")


def test_libraries_are_opened_by_the_real_loader_whenever_torchada_came(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", Patched)
    spec = importlib.util.spec_from_file_location("loader_again", loader.__file__)
    assert spec is not None
    assert spec.loader is not None
    again = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(again)
    assert again.CDLL is loader.CDLL  # imported after torchada, and before
    found = libraries.find_library(("libm.so.6",), ("cos",))
    assert isinstance(found.handle, ctypes.PyDLL.__mro__[1])
    assert found.handle["cos"]
    # Who opens a library by name without that: not there, and no AssertionError of the wrapper.
    assert moore.identify({}) == ([], "unknown")
    assert identity.identify("cuda", 0, {})[0] == "unknown"


def test_nothing_of_ours_opens_a_library_by_the_name_that_torchada_replaces() -> None:
    opened = re.compile(r"\b(?:ctypes|C)\.(?:CDLL|cdll\.LoadLibrary)\(")
    found = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "conformance").rglob("*.py")
        if path.name != "loader.py" and opened.search(path.read_text())
    }
    assert not found


# What torch says, in a process of its own: here on torch-shaped packages.


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes ``torch`` and ``torch_musa`` of these texts the first that a new process finds."""

    def make(torch: str, torch_musa: str | None = None) -> None:
        for name, text in (("torch", torch), ("torch_musa", torch_musa)):
            if text is not None:
                (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(ROOT)]))

    return make


TORCH = "__version__ = '2.9'\nclass version: hip = None\n"
MUSA = """
import sys, types
print("a vendor's banner, without a newline", end="")
musa = types.SimpleNamespace(is_available=lambda: True, device_count=lambda: 2, get_device_name=lambda n: f"S{n}")
sys.modules["torch"].musa = musa
"""


def test_devices_of_a_plugin_that_has_to_be_imported_by_name(fake: Any) -> None:
    fake(TORCH, MUSA + "musa._stream_conformance_stand_in = 'a stand-in'")
    assert ask.asked("musa") == [("0", "S0"), ("1", "S1")]
    assert ask.facts()["backends"]["musa"]["stand_in"] == "a stand-in"
    with pytest.raises(BackendUnavailable, match=r"^rocm: torch 2\.9 has no torch\.cuda"):
        ask.asked("rocm")
    with pytest.raises(BackendUnavailable, match=r"accelerator: torch 2\.9 has no accelerator beside the CPU"):
        ask.asked("accelerator")


@pytest.mark.parametrize(
    ("torch", "plugin", "said"),
    [
        (
            "raise RuntimeError('Failed to load\\nthe extension')",
            None,
            "torch cannot be imported.*Failed to load the ext",
        ),
        (TORCH, "raise OSError('libmusart.so.5: no such file')", r"torch_musa cannot be imported \(OSError: libmusart"),
        (TORCH, "", "torch 2.9 has no torch.musa"),
        (TORCH, MUSA + "musa.is_available = lambda: False", r"torch.musa.is_available\(\) is False with torch 2.9"),
        (TORCH, MUSA + "musa.device_count = lambda: 0", r"torch.musa.device_count\(\) is 0"),
        (TORCH, MUSA + "musa.device_count = lambda: 1 / 0", "ZeroDivisionError"),
        ("import os; os.abort()", None, "torch could not be asked: exit code -6"),
        ("import os; os._exit(3)", None, "torch could not be asked: exit code 3; nothing was printed"),
    ],
)
def test_what_keeps_torch_from_showing_a_device_is_told_in_one_line(
    torch: str, plugin: str | None, said: str, fake: Any
) -> None:
    fake(torch, plugin)
    with pytest.raises(BackendUnavailable, match=f"^musa: .*{said}") as caught:
        ask.asked("musa")
    assert "\n" not in str(caught.value)


def test_a_driver_that_does_not_answer_is_given_up(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ask, "LIMIT", 0.5)
    fake("import time; time.sleep(600)")
    with pytest.raises(BackendUnavailable, match=r"did not answer within 0.5 s; is the driver stuck\?"):
        ask.asked("musa")


class Accelerator:
    """torch, as far as `load` looks at it, with an accelerator of this type."""

    __version__ = "2.11"

    def __init__(self, kind: str | None) -> None:
        device = None if kind is None else type("Device", (), {"type": kind})
        self.accelerator = type("accelerator", (), {"current_accelerator": staticmethod(lambda: device)})

    def get_device_module(self, device: Any) -> str:
        return f"torch.{device.type}"


@pytest.mark.parametrize(("kind", "said"), [("musa", "musa, which has a backend of its own"), (None, "no accelerator")])
def test_an_accelerator_is_one_that_no_other_backend_drives(
    kind: str | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", Accelerator(kind))
    with pytest.raises(BackendUnavailable, match=said):
        loading.load("accelerator")
    monkeypatch.setitem(sys.modules, "torch", Accelerator("xpu"))
    _, module, vendor = loading.load("accelerator")
    assert (module, vendor.module, vendor.driver, vendor.profile) == ("torch.xpu", "xpu", (), "torch")


def test_every_backend_has_a_finder_and_says_in_one_line_why_it_is_not_here() -> None:
    for name in registry.NAMES:
        found = registry.find(name)
        assert found.here or (found.reason.startswith(f"{name}: ") and "\n" not in found.reason)


def test_the_doctor_opens_what_is_here_and_tells_every_gate_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TEST_CHILD, "1")  # in a child, as hardware is
    said = list(doctor.opened(registry.find("reference")))
    assert said[0].startswith("opened       reference 0: reference device")
    assert "gates        reference 0: virtual: ok" in said


def test_the_doctor_says_everything_in_one_block(
    fake: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    fake(TORCH, "raise OSError('libmusart.so.5: no such file in /home/somebody/lib')")
    monkeypatch.setenv("MUSA_LAUNCH_BLOCKING", "1")
    monkeypatch.setenv("SECRET_TOKEN", "hush")
    assert cli.main(["backends", "--doctor"]) == 0
    said = capsys.readouterr().out
    lines = said.splitlines()
    assert lines[0].startswith("--- stream-conformance doctor, suite ")
    assert lines[-1] == "--- end ---"
    assert "torch says   musa: torch_musa cannot be imported (OSError: libmusart.so.5: no such file in ~/lib)" in said
    assert "somebody" not in said
    assert "MUSA_LAUNCH_BLOCKING=1" in said
    assert "refused      MUSA_LAUNCH_BLOCKING is set" in said
    for name in registry.NAMES:
        assert f"backend      {name}" in said
    for vendor in VENDORS.values():
        assert f"libraries    {vendor.name} driver: " in said
    assert "hush" not in said
    assert os.uname().nodename not in said or len(os.uname().nodename) < 4
    assert json.dumps(said).isascii()
