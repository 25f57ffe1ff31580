"""The alias of MUSA's names that the hardware test uses, over the stand-in of CUDA's driver: it must not rot unseen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import gate_helpers
import pytest
from driver_double import double
from gate_helpers import TIMES
from hardware.musa_alias.build import LIBRARIES, build

from conformance.backends.gates import Ladder
from conformance.backends.vendors import VENDORS

built = gate_helpers.built


def test_the_row_of_musa_works_through_the_alias(built: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = built("cuda")
    monkeypatch.setenv("ALIAS_DRIVER", str(cuda["DRIVER"]))
    monkeypatch.setenv("ALIAS_COMPILER", str(cuda["RTC"]))
    home = build(tmp_path)
    row = VENDORS["musa"]
    # By their full paths: another test may have loaded a library of the same name.
    driver, runtime, rtc = (str(home / "lib" / name) for name in LIBRARIES.values())
    row = replace(row, driver=(driver,), runtime=(runtime,), rtc=(rtc,), folders=(), roots=("/",))
    module = double.make_module(cuda["DRIVER"], row.stream_handle, row.event_handle)
    ladder = Ladder(row, times=TIMES, torch=double.make_torch(tmp_path, row.module, module))
    assert ladder.attempt("wait-value")
    assert ladder.attempt("host-function")
    assert {kind: said for kind, said in ladder.tried if kind != "triton"} == dict.fromkeys(
        ("kernel", "wait-value", "host-function"), "ok"
    )
    assert ladder.native.found["code"] == ("GetFatBin", "--offload-arch=mp_90")
    event = module.Event()
    event.record(module.Stream())
    event.synchronize()
    assert ladder.native.query_event(event) is True
    assert ladder.close()
