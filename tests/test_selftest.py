"""The kill matrix: each fault is caught by its clause, legal devices are left alone, under any name."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from helpers import ROOT, cli, is_one_line

from conformance import catalogue, consistency, matrix
from conformance.consistency import check_names
from conformance.coverage import WITHOUT_PROBE, untested
from conformance.errors import HarnessError
from conformance.faults import DECOYS, FAULTS
from conformance.selftest import BRIEF, EVERY, HALF, Row, devices, run_device
from conformance.spec import CLAUSES, Level
from probes.catalogue import all_probes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from probes.probe import Probe

_IDS = ["+".join(device) or "clean" for device in devices()]
KNOWN = matrix.load()


@pytest.mark.parametrize("faults", devices(), ids=_IDS)
def test_each_device_comes_out_as_catalogue_and_matrix_say_under_any_name(faults: tuple[str, ...]) -> None:
    alias = f"device-{random.Random('+'.join(faults)).getrandbits(40):010x}" if faults else None
    row = run_device(faults, alias)
    assert row.problems == ()
    assert matrix.line(row) == KNOWN[row.name]


def test_any_three_factors_of_the_ring_meet_at_each_of_their_levels() -> None:
    rings = [probe for probe in all_probes(4).values() if probe.family == "ring"]
    assert {frozenset(case.variant for case in ring.cases) for ring in rings} == {EVERY}
    every = [dict(case.factors) for case in rings[0].cases]
    chosen = {case.variant: dict(case.factors) for case in rings[0].cases if case.variant in HALF}
    assert chosen.keys() > BRIEF
    assert 2 * len(chosen) == len(every)
    for three in itertools.combinations(every[0], 3):
        meet, there = (
            {tuple(case[factor] for factor in three) for case in cases} for cases in (chosen.values(), every)
        )
        assert meet == there


def test_the_matrix_has_a_line_for_every_device() -> None:
    assert list(KNOWN) == [" + ".join(device) or "(clean)" for device in devices()]
    assert set(FAULTS) | set(DECOYS) <= {name for device in devices() for name in device}


def row(name: str, caught: tuple[str, ...] = (), killers: tuple[str, ...] = ()) -> Row:
    return Row(
        faults=(name,),
        form="",
        kinds=(),
        outcomes=("not-needed",) * 3,
        caught=caught,
        found=caught,
        killers=killers,
        problems=(),
    )


def test_a_change_of_the_matrix_is_named() -> None:
    before = row("never-recorded-pends", ("EVT-NEVER-1",), ("never",))
    known = {before.name: matrix.line(before)}
    assert matrix.differences([before], known, whole=True) == []
    blind = replace(before, caught=(), found=(), killers=())
    (change,) = matrix.differences([blind], known, whole=True)
    assert change == "never-recorded-pends: caught EVT-NEVER-1 -> -; probes never -> -"
    assert matrix.differences([], known, whole=True) == ["never-recorded-pends: is in the matrix, and no device"]
    assert matrix.differences([], known, whole=False) == []
    assert matrix.differences([row("new")], known, whole=False) == ["new: is not in the matrix"]


def test_a_probe_of_a_clause_that_binds_must_catch_something() -> None:
    pairs = {(p.name, "", clause) for p in all_probes().values() for clause in p.clauses}
    variants = {
        (p.name, c.variant, clause)
        for p in all_probes().values()
        for c in p.cases
        if c.experiment
        for clause in c.clauses or p.clauses
    }
    every = replace(row("all"), where=frozenset(pairs | variants))
    assert matrix.blind([every])[0] == []
    # Another clause of the same probe, or another variant of the same experiment, does not make up for one.
    unseen = {("copy-behind", "", "EVT-INDEP-3"), ("capture-rules", "synchronize", "CAP-1"), ("tail", "", "STM-CONC-1")}
    judged, measures = matrix.blind([replace(every, where=every.where - unseen)])
    assert judged == ["copy-behind, EVT-INDEP-3", "capture-rules[synchronize], CAP-1"]
    assert "tail" in measures


def test_what_is_excused_from_catching_anything_exists() -> None:
    for name, reason in matrix.BLIND.items():
        probe, _, clause = name.partition(", ")
        assert clause in all_probes()[probe].clauses, reason


def test_selftest_fails_where_a_device_comes_out_otherwise_than_the_matrix_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = "never-recorded-pends"
    assert cli("selftest", device, "--jobs", 1).code == 0
    doctored = tmp_path / "matrix.tsv"
    doctored.write_text(matrix.PATH.read_text().replace(f"{device}\tEVT-NEVER-1", f"{device}\tEVT-NEVER-2"))
    monkeypatch.setattr(matrix, "PATH", doctored)
    changed = cli("selftest", device, "--jobs", 1)
    assert changed.code == 1
    assert f"matrix: {device}: caught EVT-NEVER-2 -> EVT-NEVER-1" in changed.err
    doctored.unlink()
    assert is_one_line(cli("selftest", device, "--jobs", 1).err)


def test_write_makes_the_whole_matrix_only() -> None:
    refused = cli("selftest", "late-idle", "--write")
    assert refused.code == 2
    assert is_one_line(refused.err)


# Names.


def test_every_name_that_a_probe_uses_exists() -> None:
    check_names()


def with_probe(monkeypatch: pytest.MonkeyPatch, probe: Probe) -> None:
    probes: Mapping[str, Probe] = {**all_probes(), probe.name: probe}
    monkeypatch.setattr(consistency, "all_probes", lambda: probes)


@pytest.mark.parametrize("field", ["clauses", "faults"])
def test_a_name_that_nobody_defines_is_told(monkeypatch: pytest.MonkeyPatch, field: str) -> None:
    probe = all_probes()["never"]
    with_probe(monkeypatch, replace(probe, **{field: (*getattr(probe, field), "EVT-NOSUCH-1")}))
    with pytest.raises(HarnessError, match=r"never.*EVT-NOSUCH-1"):
        check_names()
    refused = cli("selftest", "late-idle")
    assert refused.code == 4
    assert is_one_line(refused.err)
    assert "EVT-NOSUCH-1" in refused.err


def test_a_clause_without_a_probe_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    probes = {name: probe for name, probe in all_probes().items() if name not in ("wait-data", "peer-copy")}
    monkeypatch.setattr(consistency, "all_probes", lambda: probes)
    with pytest.raises(HarnessError, match=r"scenario 16 names wait-data"):
        check_names()
    monkeypatch.setattr(consistency, "SCENARIOS", ())
    with pytest.raises(HarnessError, match=r"MEM-DEV-1 has neither a probe nor a reason"):
        check_names()


def test_a_kind_of_fault_that_no_device_shows_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = replace(catalogue.KINDS[0], key="F-NEW", device="no-such-fault")
    monkeypatch.setattr(catalogue, "KINDS", (*catalogue.KINDS, kind))
    with pytest.raises(HarnessError, match=r"F-NEW names fault no-such-fault"):
        check_names()


def test_the_page_of_kinds_is_the_table() -> None:
    assert (ROOT / "docs" / "catalogue.md").read_text() == catalogue.page()


def test_each_clause_has_probes_or_a_reason_and_not_both() -> None:
    tested = {clause for probe in all_probes().values() for clause in probe.clauses}
    assert untested(tested, CLAUSES) == []
    assert not tested & set(WITHOUT_PROBE)
    assert set(WITHOUT_PROBE) <= set(CLAUSES)


def test_each_clause_with_a_probe_is_caught_by_some_fault() -> None:
    tested = {clause for probe in all_probes().values() for clause in probe.clauses}
    killers = {fault.killed_by for fault in FAULTS.values()}
    beside = {clause for fault in FAULTS.values() for clause in fault.may_fail}
    assert tested - killers - {"STM-CONC-1"} <= beside
    must = {clause for clause in tested if CLAUSES[clause].binding("reference").level is Level.MUST}
    assert must - killers == {"EVT-REREC-1", "STM-LEGACY-2"}  # each beside another that must fail
