"""What the tests of gates share: a vendor's record that leads to stand-in drivers, and waiting."""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from driver_double import double

from conformance import errors
from conformance.backends.gates import CheckTimes, Gate, Ladder
from conformance.backends.vendors import VENDORS, Vendor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Seconds after which something that must happen counts as hung; nothing here is about speed.
DEADLINE = 20.0
#: A limit of which the half, by which the self-check allows it to be passed, is long for a busy machine too.
TIMES = CheckTimes(hold_s=0.01, limit_s=0.25, patience_s=DEADLINE)
#: The kinds that the stand-ins can run.
RUNNABLE = ["kernel", "wait-value", "host-function", "sleep"]
OPENABLE = RUNNABLE[:-1]
ROOT = Path(errors.__file__).parents[1]

#: What was built, for every test file of a process: the look-up finds what the process has loaded, by file name.
_built: dict[tuple[str, tuple[str, ...]], dict[str, Path]] = {}


def until(seen: Callable[[], bool]) -> bool:
    end = time.monotonic() + DEADLINE
    while not seen():
        if time.monotonic() > end:
            return False
        time.sleep(0.0005)
    return True


@dataclass
class Rig:
    """A vendor's record that leads to one set of stand-ins, and those stand-ins."""

    vendor: Vendor
    torch: Any
    module: Any
    parts: dict[str, Path]
    set_knobs: list[tuple[Any, str]]

    def ladder(self, **options: Any) -> Ladder:
        return Ladder(self.vendor, torch=self.torch, **({"times": TIMES} | options))

    def gate(self, kind: str, **options: Any) -> Gate:
        return self.ladder(kind=kind, **options).take(1)[0]

    def knob(self, name: str, part: str = "DRIVER") -> None:
        lib = ctypes.CDLL(str(self.parts[part]))
        assert lib.double_knob(name.encode(), 1) == 0
        self.set_knobs.append((lib, name))


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, Path]]:
    if double.compiler() is None:
        pytest.skip("needs a C compiler: the stand-in driver is compiled from C")

    def build(vendor: str, without: tuple[str, ...] = ()) -> dict[str, Path]:
        if (vendor, without) not in _built:
            # Each set has file names of its own: what the process has loaded is looked at first.
            tag = "-".join(["double", *without, ""]).lower()
            _built[vendor, without] = double.build(vendor, tmp_path_factory.mktemp(vendor), tag, without)
        return _built[vendor, without]

    return build


@pytest.fixture
def rig(built: Callable[..., dict[str, Path]], tmp_path: Path) -> Iterator[Callable[..., Rig]]:
    set_knobs: list[tuple[Any, str]] = []

    def make(name: str = "cuda", *, without: tuple[str, ...] = (), major: int = 9, **changed: Any) -> Rig:
        parts, vendor = built(name, without), VENDORS[name]
        files = {part: (path.name,) for part, path in parts.items()}
        vendor = replace(
            vendor,
            **{
                "driver": files["DRIVER"],
                "runtime": files.get("RUNTIME", ()),
                "rtc": files["RTC"],
                "folders": (),
                "roots": (str(parts["DRIVER"].parent),),
            }
            | changed,
        )
        module = double.make_module(parts["DRIVER"], vendor.stream_handle, vendor.event_handle, major)
        return Rig(vendor, double.make_torch(tmp_path, vendor.module, module), module, parts, set_knobs)

    yield make
    for lib, name in set_knobs:
        lib.double_knob(name.encode(), 0)
