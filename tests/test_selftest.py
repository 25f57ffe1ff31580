"""The kill matrix: each fault is caught by its clause, legal devices are left alone, under any name."""

from __future__ import annotations

import random

import pytest

from conformance.consistency import check_names
from conformance.faults import FAULTS
from conformance.selftest import devices, run_device
from conformance.spec import CLAUSES
from probes.catalogue import all_probes

_IDS = ["+".join(device) or "clean" for device in devices()]


@pytest.mark.parametrize("faults", devices(), ids=_IDS)
def test_each_device_comes_out_as_the_catalogue_says(faults: tuple[str, ...]) -> None:
    assert run_device(faults).problems == ()


@pytest.mark.parametrize("faults", devices()[1:], ids=_IDS[1:])
def test_no_judgement_knows_a_fault_by_its_name(faults: tuple[str, ...]) -> None:
    alias = f"device-{random.Random('+'.join(faults)).getrandbits(40):010x}"
    assert run_device(faults, alias).problems == ()


def test_every_name_that_a_probe_uses_exists() -> None:
    check_names()


def test_every_clause_has_a_probe_and_every_judged_clause_kills() -> None:
    tested = {clause for probe in all_probes().values() for clause in probe.clauses}
    assert tested == set(CLAUSES)
    killers = {clause for fault in FAULTS.values() for clause in fault.allowed} | {"STM-CONC-1"}
    assert killers == set(CLAUSES)
