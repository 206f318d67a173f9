"""`planner validate kernels` and `planner calibrate kernels`, as a user runs them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from planner.cli import main
from planner.evidence import kernel_measurements as package
from tests.evidence import products


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def csv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return products.write_csv(tmp_path_factory.mktemp("gemm") / "gemm.csv")


def test_calibrate_writes_a_part_that_validate_then_predicts(csv: Path, tmp_path: Path) -> None:
    out = tmp_path / "mine.yaml"
    found = run("calibrate", "kernels", csv, "--out", out, "--json")
    assert found.exit_code == 0, found.output
    assert f"wrote {out}" in found.stderr
    fit = json.loads(found.stdout)["fits"]["h100-sxm-80gb"]["bf16"]
    assert fit["coefficients"]["efficiency"] == pytest.approx(0.7, rel=0.005)
    assert fit["held_out"]["median_fraction"] < 0.002 < fit["held_out_before"]["median_fraction"]
    mine = tmp_path / "mine.csv"
    mine.write_text(csv.read_text("utf-8").replace("h100-sxm-80gb", str(out)), "utf-8")
    errors = [run("validate", "kernels", file, "--json") for file in (csv, mine)]
    before, after = (json.loads(result.stdout)["median_fraction"] for result in errors)
    assert after < 0.002 < 0.05 < before


def test_several_parts_go_into_a_folder(csv: Path, tmp_path: Path) -> None:
    both = tmp_path / "both.csv"
    rows = csv.read_text("utf-8")
    both.write_text(rows + rows.replace("h100", "h800").split("\n", 1)[1], "utf-8")
    found = run("calibrate", "kernels", both, "--out", tmp_path / "parts")
    assert found.exit_code == 0, found.output
    assert sorted(path.name for path in (tmp_path / "parts").iterdir()) == [
        "h100-sxm-80gb.yaml", "h800-sxm-80gb.yaml",
    ]  # fmt: skip
    for words in ("Coefficients", "128 × 64", "held-out shapes", "4.00 us", "before"):
        assert words in found.stdout
    refused = run("calibrate", "kernels", both, "--out", tmp_path / "one.yaml")
    assert refused.exit_code == 2
    assert "--out must be a folder" in refused.stderr


def test_report_of_a_file(csv: Path) -> None:
    found = run("validate", "kernels", csv)
    assert found.exit_code == 0
    for words in ("512 matmuls: median error", "h100-sxm-80gb", "bf16", "median", "p95"):
        assert words in found.stdout
    assert "Attention" not in found.stdout  # only the package has other kernels


def test_without_the_package_the_default_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(package, "find_spec", lambda name: None)
    for command in (("validate", "kernels"), ("calibrate", "kernels", "--package", "--out", "x")):
        found = run(*command)
        assert found.exit_code == 2
        assert "test-kernels" in found.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("validate", "kernels", "no.csv"), "no.csv: cannot be read"),
        (("validate", "kernels", __file__), "no such column"),
        (("calibrate", "kernels", "--out", "x"), "either FILE... or --package"),
        (("calibrate", "kernels", "a.csv", "--package", "--out", "x"), "either FILE"),
        (("calibrate", "kernels", "a.csv"), "--out"),
        (("calibrate", "kernel"), "did you mean 'kernels'"),
    ],
)
def test_mistakes_are_answered(arguments: tuple[str, ...], says: str) -> None:
    found = run(*arguments)
    assert found.exit_code == 2
    assert says in found.stderr
