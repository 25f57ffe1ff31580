"""The stand-alone reproducer, run on the stand-in driver: right, wrong, and where it cannot tell; and the report."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest
from driver_double import double
from helpers import Done, cli, environment, is_one_line, python

from conformance.backends.vendors import VENDORS

TORCH = Path(__file__).with_name("reproducer_double")
CORE = ("publication", "default-wait-stream-copy-side-query")


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if double.compiler() is None:
        pytest.skip("needs a C compiler: the stand-in driver is compiled from C")
    folder = tmp_path_factory.mktemp("libraries")
    double.build("cuda", folder)
    return folder


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reports")
    for fault in ("late-next-wait", "wait-dropped", "query-always-true", ""):
        faults = ("--fault", fault) if fault else ()
        run = ("run", "--backend", "reference", *faults, "--repeat", 1, "--out", folder / (fault or "clean"))
        cli(
            *run,
            *(x for probe in ("publication", "two-waits", "nothing-behind", "ordering") for x in ("--probe", probe)),
        )
    return folder


def written(folder: Path, probe: str, variant: str, out: Path) -> tuple[Path, str]:
    done = cli("reproduce", folder, "--probe", probe, "--variant", variant, "--out", out)
    assert done.code == 0, done.err
    program, report = map(Path, done.out.split())
    return program, report.read_text()


def run(program: Path, libraries: Path, defect: str) -> Done:
    here = environment(TORCH, FAKE_LIBRARIES=str(libraries), FAKE_DEFECT=defect)
    return python(program, cwd=program.parent, env=here)


@pytest.mark.parametrize(
    ("report", "probe", "variant", "defect"),
    [
        ("late-next-wait", *CORE, "late-next-wait"),
        ("late-next-wait", "two-waits", "blocking-wait-synchronize", "late-next-wait"),
        ("wait-dropped", "ordering", "query-default", "wait-dropped"),
        ("query-always-true", "publication", "timing-wait-fill-default-query", "query-always-true"),
    ],
)
def test_the_program_tells_right_from_wrong(
    report: str, probe: str, variant: str, defect: str, reports: Path, libraries: Path, tmp_path: Path
) -> None:
    program, _ = written(reports / report, probe, variant, tmp_path)
    wrong = run(program, libraries, defect)
    assert wrong.code == 1, wrong
    assert "the defect shows" in wrong.out.splitlines()[-1]
    right = run(program, libraries, "")
    assert right.code == 0, right
    assert right.out.splitlines()[-1] == "the defect does not show"


def test_where_it_cannot_tell_it_says_so(reports: Path, libraries: Path, tmp_path: Path) -> None:
    program, _ = written(reports / "late-next-wait", *CORE, tmp_path)
    done = run(program, libraries, "no device")
    assert (done.code, done.out.splitlines()[0]) == (2, "cannot tell: torch.cuda has no device")
    (tmp_path / "torch.py").write_text("raise ImportError('none here')")
    done = python(program, cwd=tmp_path, env=environment(tmp_path))
    assert (done.code, done.out.splitlines()[0]) == (2, "cannot tell: torch cannot be imported: none here")


def test_without_a_compiler_other_gates_are_used(reports: Path, libraries: Path, tmp_path: Path) -> None:
    program, _ = written(reports / "late-next-wait", *CORE, tmp_path)
    program.write_text(program.read_text().replace('"nvrtc",', '"nothing",'))
    for defect, code in (("late-next-wait", 1), ("", 0)):
        done = run(program, libraries, defect)
        assert (done.code, done.out.partition(" (")[0]) == (code, "no kernel gate")


@pytest.mark.parametrize("probe", ["publication", "two-waits", "nothing-behind"])
def test_every_variant_has_a_short_program_of_torch_and_the_standard_library(
    probe: str, reports: Path, tmp_path: Path
) -> None:
    from probes.catalogue import all_probes

    for folder in ("clean", "late-next-wait"):
        for case in all_probes()[probe].cases:
            program, report = written(reports / folder, probe, case.variant, tmp_path)
            text = program.read_text()
            assert len(text.splitlines()) < 140
            imported = {
                name.name.partition(".")[0]
                for node in ast.walk(ast.parse(text))
                if isinstance(node, ast.Import)
                for name in node.names
            }
            assert imported <= {"torch"} | sys.stdlib_module_names
            assert "stream_conformance" not in text.replace("stream-conformance", "")
            for part in ("Environment", "Program", "Expected", "Observed", "Control", "Witness", "Diagnosis"):
                assert f"## {part}\n" in report


def test_the_vendors_names_are_those_of_the_suite(reports: Path, tmp_path: Path) -> None:
    program, _ = written(reports / "clean", *CORE, tmp_path)
    tree = ast.parse(program.read_text())
    table = next(
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "VENDORS"
    )
    assert set(table) == set(VENDORS)
    for name, row in table.items():
        vendor = VENDORS[name]
        module, handle, driver, prefix, launch, compiler, rtc, option, code, now, hertz = row
        assert (module, handle, rtc, hertz) == (vendor.module, vendor.stream_handle, vendor.prefix, vendor.hertz)
        assert launch in vendor.symbols["launch"]
        assert f"{prefix}ModuleLoadData" in vendor.symbols["load"]
        assert f"{prefix}ModuleGetFunction" in vendor.symbols["get"]
        assert any(pattern.startswith(driver) for pattern in vendor.driver)
        assert any(pattern.startswith(compiler) for pattern in vendor.rtc)
        assert f"Get{code}Size" == vendor.builds[0].size
        assert option.replace("0.gcnArchName", "gcn").replace("0.", "") in vendor.builds[0].options
        assert now in vendor.timer


def test_the_report_says_what_was_seen_and_what_the_device_was(reports: Path, tmp_path: Path) -> None:
    folder = reports / "late-next-wait"
    assert cli("diagnose", folder, "--probe", CORE[0], "--variant", CORE[1]).code == 0
    _, report = written(folder, *CORE, tmp_path)
    for said in (
        "made wrong on purpose: late-next-wait",
        "simulated",
        "3 of 3 runs, gates held for 0.1, 0.4, 1 s; it is seen after open g2",
        "control 'own'",
        "h = 1 in host memory",
        "publication is late",
        "mechanism: tail coupling",
        "No factor decides",
    ):
        assert said in report, said
    _, clean = written(reports / "clean", *CORE, tmp_path)
    assert "there is no finding" in clean


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--probe", "publicatoin", "--variant", "x"), "did you mean publication"),
        (("--probe", "publication", "--variant", "default-wait-copy-side-qery"), "did you mean"),
        (("--probe", "publication", "--variant", CORE[1], "--out", "/dev/null/x"), "cannot be written"),
    ],
)
def test_a_usage_error_is_one_line(arguments: tuple[str, ...], said: str, reports: Path) -> None:
    done = cli("reproduce", reports / "clean", *arguments)
    assert done.code == 2
    assert said in done.err
    assert is_one_line(done.err)
