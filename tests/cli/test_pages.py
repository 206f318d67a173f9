"""`planner report`: files written, what is refused."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from planner.cli import main
from planner.planning.plan import Plan, Status
from tests.made_outlook import made_outlook
from tests.made_sweep import AXES, MadeSweep, made_rows


def run(*args: object) -> Any:
    return CliRunner().invoke(main, [str(arg) for arg in args])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plan")
    assert run("plan", "llama3-8b-h100x8", "--out", path).exit_code == 0
    return path


@pytest.fixture
def swept(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that says it is of a sweep, and a reader that finds made rows in it."""
    from planner import api

    class Made(MadeSweep):
        def plan(self, point: int) -> Plan:
            return api.read_plan(folder)

    monkeypatch.setattr(api, "read_sweep", lambda path: Made(AXES, made_rows()))
    (tmp_path / "sweep.sqlite").touch()
    return tmp_path


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_a_page_and_its_pictures(folder: Path, tmp_path: Path, kind: str) -> None:
    out = tmp_path / "deep" / "plan.html"
    result = run("report", folder, "--out", out, "--pictures", tmp_path / "p", "--format", kind)
    assert result.exit_code == 0, result.output
    assert "<h1>llama3-8b on 8 × h100-sxm-80gb (dgx-h100)</h1>" in out.read_text("utf-8")
    assert {path.name for path in (tmp_path / "p").iterdir()} == {
        f"{name}.{kind}" for name in ("placement", "time", "memory")
    }
    assert f"wrote {out}" in result.stderr


def test_a_plan_file_is_the_folder(folder: Path, tmp_path: Path) -> None:
    for number, path in enumerate((folder, folder / "plan.json")):
        assert run("report", path, "--out", tmp_path / f"{number}.html").exit_code == 0
    assert (tmp_path / "0.html").read_bytes() == (tmp_path / "1.html").read_bytes()


def test_what_if_is_asked_about_the_plan(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from planner import api

    asked = []

    def made(scenario: Any, say: Any = None) -> Any:
        asked.append(scenario)
        return made_outlook(api.read_plan(folder))

    monkeypatch.setattr(api, "what_if", made)
    out = tmp_path / "plan.html"
    result = run("report", folder, "--out", out, "--what-if", "--pictures", tmp_path)
    assert result.exit_code == 0, result.output
    assert [scenario.num_accelerators for scenario in asked] == [8]
    assert "What each change would save" in out.read_text("utf-8")
    assert {"upgrades", "scaling"} <= {path.stem for path in tmp_path.glob("*.png")}


def test_what_if_needs_the_plan_of_a_search(swept: Path, folder: Path, tmp_path: Path) -> None:
    layout = "tp=2,mbs=1"
    made = run("evaluate", "llama3-8b-h100x8", "--layout", layout, "--out", tmp_path / "one")
    assert made.exit_code == 0, made.output
    for subject in (swept, tmp_path / "one"):
        result = run("report", subject, "--out", tmp_path / "p.html", "--what-if")
        assert result.exit_code == 2
        assert "--what-if: --what-if needs a plan that a search gave" in (
            " ".join(result.output.split())
        )


@pytest.mark.parametrize(
    ("status", "factor", "says"),
    [
        (
            "feasible",
            1.0,
            "compares with a plan that is proven; allowed: a plan whose status is optimal",
        ),
        ("optimal", 1.1, "planned anew, its step of"),
    ],
)
def test_what_if_needs_a_plan_that_is_still_the_best(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    status: Status,
    factor: float,
    says: str,
) -> None:
    """Else what a change saves would be told against another step than the page's."""
    from planner import api

    plan = replace(api.read_plan(folder), status=status)
    anew = replace(plan, objective_seconds=factor * (plan.objective_seconds or 0.0))
    monkeypatch.setattr(api, "read_plan", lambda path: plan)
    monkeypatch.setattr(api, "what_if", lambda scenario, say=None: made_outlook(anew))
    result = run("report", folder, "--out", tmp_path / "p.html", "--what-if")
    assert result.exit_code == 2
    assert says in " ".join(result.output.split())


def test_a_sweep(swept: Path, tmp_path: Path) -> None:
    out = tmp_path / "out" / "sweep.html"
    assert run("report", swept, "--out", out, "--pictures", tmp_path / "p").exit_code == 0
    assert f"Sweep {swept.name}: 15 points" in out.read_text("utf-8")
    assert (tmp_path / "p" / "heat-map.png").stat().st_size > 10_000
    assert run("report", swept, "--out", out, "--point", 3).exit_code == 0
    assert "<h1>llama3-8b on 8" in out.read_text("utf-8")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--out", "plan.pdf"], "allowed: a file name that ends in .html"),
        (["--out", "p.html", "--format", "jpg"], "'jpg' is not one of png, svg, pdf"),
        (["--out", "p.html", "--point", "1"], "only a sweep has points"),
        (["--out", "/proc/none/p.html"], "cannot be written"),
    ],
)
def test_what_is_refused(folder: Path, args: list[str], says: str) -> None:
    result = run("report", folder, *args)
    assert result.exit_code == 2
    assert says in result.output
    assert "Traceback" not in result.output


def test_a_sweep_that_was_run(tmp_path: Path) -> None:
    """Axes that change together, a point that fails, and a point's own page."""
    file, folder, out = tmp_path / "s.yaml", tmp_path / "found", tmp_path / "s.html"
    file.write_text(
        "base: llama3-8b-h100x8\n"
        "axes:\n"
        "  training.sequence_length, training.global_batch_size: [[4096, 256], [8192, 128]]\n"
        "  topology: [dgx-h100, dgx-a100]\n"
        "  training.precision: [bf16, fp8]\n"
    )
    assert run("sweep", file, "--out", folder, "--workers", 1).exit_code == 0
    result = run("report", folder, "--out", out, "--pictures", tmp_path)
    assert result.exit_code == 0, result.output
    page = out.read_text("utf-8")
    assert "6 optimal, 2 failed" in page
    assert page.count("fp8 needs fp8 matmuls") >= 4
    assert {path.stem for path in tmp_path.glob("*.png")} == {"heat-map", "layout-map", "tornado"}
    assert run("report", folder, "--out", out, "--point", 0).exit_code == 0
    assert "<h1>llama3-8b on 8 × h100-sxm-80gb (dgx-h100)</h1>" in out.read_text("utf-8")
    failed = run("report", folder, "--out", out, "--point", 3)
    assert failed.exit_code == 2
    assert "failed and has no plan" in " ".join(failed.output.split())


def test_an_unknown_point_is_refused(swept: Path, tmp_path: Path) -> None:
    result = run("report", swept, "--out", tmp_path / "p.html", "--point", 99)
    assert result.exit_code == 2
    assert "the sweep has no such point; allowed: 0 to 14" in result.output


def test_pictures_need_matplotlib(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = run("report", folder, "--out", tmp_path / "p.html", "--pictures", tmp_path)
    assert result.exit_code == 2
    assert "pictures need matplotlib" in result.output
    assert "parallelism-planner[report]" in result.output
    assert (tmp_path / "p.html").is_file()


def test_a_folder_of_neither_is_told(tmp_path: Path) -> None:
    found = run("report", tmp_path, "--out", tmp_path / "page.html")
    assert found.exit_code == 2
    assert "neither plan.json nor sweep.sqlite" in found.stderr
