"""`planner validate runs`: files, filters, and models of both kinds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from planner import api
from planner.cli import main

SHIPPED = api.files.data_root() / "scenarios/published/measured_runs.jsonl"


def run(*args: Any) -> Result:
    return CliRunner().invoke(main, [str(arg) for arg in ("validate", "runs", *args)])


def document_of(*args: Any) -> dict[str, Any]:
    result = run(*args, "--json", "--quality", "ABCD")
    assert result.exit_code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def counted(document: dict[str, Any]) -> int:
    return int(document["rows_scored"]) + sum(document["rows_skipped"].values())


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Twenty shipped rows of each kind of model."""
    lines = SHIPPED.read_text("utf-8").splitlines()
    kinds: dict[bool, list[str]] = {False: [], True: []}
    for line in lines:
        kinds[json.loads(line)["moe"] is not None].append(line)
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(kinds[False][:20] + kinds[True][:20]) + "\n", "utf-8")
    return path


def test_validate_runs(rows: Path) -> None:
    result = run(rows, "--json", "--quality", "abcd")
    assert result.exit_code == 0, result.stderr
    assert counted(json.loads(result.stdout)) == 40
    assert "Step time by source" in run(rows, "--quality", "ABCD").stdout


def test_models_of_one_kind_or_of_both(rows: Path) -> None:
    """Neither is left out unless it is asked for, and together they are all."""
    found = {models: document_of(rows, "--models", models) for models in ("dense", "moe", "all")}
    assert counted(found["dense"]) == counted(found["moe"]) == 20
    assert found["moe"]["rows_scored"] >= 5
    assert (
        found["dense"]["rows_scored"] + found["moe"]["rows_scored"] == (found["all"]["rows_scored"])
    )
    assert found["all"] == document_of(rows)
    assert not any("not costed yet" in reason for reason in found["all"]["rows_skipped"])


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["missing.jsonl"], "missing.jsonl"),
        (["--quality", "XY"], "--quality"),
        (["--half", "fitt"], "did you mean 'fit'"),
        (["--models", "mo"], "did you mean 'moe'"),
        (["--min-mfu", "2"], "--min-mfu"),
        (["--min-mfu", "nan"], "--min-mfu"),
    ],
)
def test_bad_input_is_one_paragraph_and_exit_2(args: list[str], said: str) -> None:
    result = run(*args)
    assert result.exit_code == 2 and result.stdout == ""
    assert result.stderr.startswith("planner: error: ") and result.stderr.count("\n") == 1
    assert said in result.stderr
