"""`validate runs --leave-one-out`, `calibrate runs`, `calibrate errors`, `plan --robust`."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from planner import api
from planner.cli import main
from planner.cost import prediction_intervals as intervals
from planner.evidence.maintenance.intervals import fit_intervals
from planner.evidence.published_runs import read_runs
from planner.evidence.row_predictions import Selection
from planner.inputs.files import data_root
from planner.inputs.values import load
from planner.problem.software import Software

OLD_SOURCES = ("2104.04473", "2205.05198", "Oneflow-Inc/DLPerf")


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def old_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The published runs of 2021 and 2022: few, of three sources and one profile."""
    shipped = (data_root() / api.PUBLISHED_RUNS).read_text("utf-8").splitlines()
    rows = [line for line in shipped if any(name in line for name in OLD_SOURCES)]
    rows = [line for line in rows if json.loads(line)["framework"] != "OneFlow (2021)"]
    assert len(rows) > 30
    path = tmp_path_factory.mktemp("runs") / "old.jsonl"
    path.write_text("\n".join(rows) + "\n", "utf-8")
    return path


@pytest.mark.slow
def test_leave_one_out(old_runs: Path) -> None:
    found = run("validate", "runs", old_runs, "--leave-one-out", "--min-mfu", "0.15", "--json")
    assert found.exit_code == 0, found.stderr
    document = json.loads(found.stdout)
    left = document["leave_one_out"]
    assert left["Oneflow-Inc/DLPerf"]["rows_fitted"] == {"megatron-2021": 19}
    assert left["arXiv 2104.04473"]["rows_fitted"] == {"megatron-2021": 23}
    plain = json.loads(run("validate", "runs", old_runs, "--min-mfu", "0.15", "--json").stdout)
    assert "leave_one_out" not in plain
    assert document["rows_scored"] == plain["rows_scored"]
    assert document["fits"] == plain["fits"] and document["memory"] == plain["memory"]
    assert document["time"] != plain["time"]
    assert document["left_out_by"] == "source"
    assert document["left_out"]["dense"]["total"]["time"] == document["time"]


@pytest.mark.slow
def test_leave_a_family_out(old_runs: Path) -> None:
    """All of these rows are of GPTs: nothing is left to fit to."""
    found = run("validate", "runs", old_runs, "--leave-one-out", "family", "--json",
                "--min-mfu", "0.15")  # fmt: skip
    assert found.exit_code == 0, found.stderr
    document = json.loads(found.stdout)
    assert document["left_out_by"] == "family"
    assert (
        document["leave_one_out"].keys()
        == document["left_out"]["dense"]["by_fold"].keys()
        == {"gpt"}
    )
    assert document["leave_one_out"]["gpt"]["rows_fitted"] == {"megatron-2021": 0}


@pytest.mark.slow
def test_calibrated_profile_is_used_by_a_scenario(
    old_runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "calibrate_runs", cache(api.calibrate_runs))  # JSON and text: one fit
    out = tmp_path / "mine.yaml"
    found = run("calibrate", "runs", old_runs, "--out", out, "--json")
    assert found.exit_code == 0, found.stderr
    document = json.loads(found.stdout)["profiles"]["megatron-2021"]
    software = load(out, "software", Software)
    assert software.name == "mine"
    for name, values in document["coefficients"].items():
        figure = getattr(software.coefficients, name)
        assert float(figure) == pytest.approx(values["after"], rel=1e-6)
        assert figure.status == "fitted" and "32 measured runs" in figure.source
    assert document["after"]["rows"] == document["before"]["rows"] == 32
    planned = run("evaluate", "gpt3-175b-a100x1024", "--layout", "tp=8,pp=8,dp=16,mbs=1",
                  "--set", f"software={out}", "--json")  # fmt: skip
    assert json.loads(planned.stdout)["inputs"]["software"]["name"] == "mine"
    text = run("calibrate", "runs", old_runs, "--out", out).stdout
    assert "before" in text and "after" in text and "megatron-2021" in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("calibrate", "runs", "missing.jsonl", "--out", "x.yaml"), "missing.jsonl"),
        (("calibrate", "runs"), "--out"),
        (("calibrate", "errors", "missing.jsonl", "--out", "x.yaml"), "missing.jsonl"),
        (("calibrate", "runs", "--quality", "D", "--out", "x.yaml"), "timed rows"),
        (("calibrate", "rusn", "--out", "x.yaml"), "did you mean 'runs'"),
        (("validate", "runs", "--leave-one-out", "familly"), "did you mean 'family'"),
        (("validate", "runs", "--leave-one-out", "x.jsonl"), "files go before --leave-one-out"),
    ],
)
def test_bad_input_is_exit_2(
    arguments: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = run(*arguments)
    assert found.exit_code == 2
    assert said in found.stderr and "Traceback" not in found.stderr
    assert not list(tmp_path.iterdir())


def test_calibrate_errors_writes_the_intervals(
    old_runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of few rows in the place of all, which tests/evidence/maintenance has."""
    assert (data_root() / api.PUBLISHED_RUNS).is_file()
    monkeypatch.setattr(api, "PUBLISHED_RUNS", str(old_runs))
    monkeypatch.setattr(api, "calibrate_errors", cache(api.calibrate_errors))  # JSON and text
    out = tmp_path / "errors.yaml"
    found = run("calibrate", "errors", "--out", out, "--json")
    assert found.exit_code == 0, found.stderr
    expected = fit_intervals(read_runs(old_runs), Selection(min_mfu=0.15))
    assert out.read_text("utf-8") == expected.to_yaml()
    assert expected.to_yaml() != (data_root() / intervals.SHIPPED).read_text("utf-8")
    document = json.loads(found.stdout)
    assert document == json.loads(json.dumps(expected.to_document()))
    assert set(document) == {
        "coverage", "features", "step_seconds", "peak_bytes", "inside", "inside_by_source",
        "inside_without_own_source",
    }  # fmt: skip
    assert "model-parallel" in run("calibrate", "errors", "--out", out).stdout


def test_robust_is_the_key_of_the_search(tmp_path: Path) -> None:
    flag = json.loads(run("plan", "llama3-8b-h100x8", "--robust", "--json").stdout)
    key = json.loads(run("plan", "llama3-8b-h100x8", "--set", "search.robust=true",
                         "--json").stdout)  # fmt: skip
    plain = json.loads(run("plan", "llama3-8b-h100x8", "--json").stdout)
    assert flag["inputs"]["search"]["robust"] is True
    assert flag["inputs_sha256"] == key["inputs_sha256"] != plain["inputs_sha256"]
    assert flag["layout"] == key["layout"]
    assert flag["objective_seconds"] > plain["objective_seconds"]
    assert plain["step_seconds_low"] < plain["step_seconds"] < plain["step_seconds_high"]
    assert plain["memory"]["peak_low_bytes"] < plain["memory"]["peak_bytes"]
    text = run("plan", "llama3-8b-h100x8", "--robust").stdout
    assert "(80 % interval " in text and "has an interval that ends below" in " ".join(text.split())


def test_report_writes_tables_and_pictures(old_runs: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    found = run("validate", "runs", old_runs, "--min-mfu", "0.15", "--report", tmp_path, "--json")
    assert found.exit_code == 0, found.stderr
    names = ["accuracy-predicted.png", "accuracy-residuals.png", "accuracy-tables.md"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    page = (tmp_path / names[-1]).read_text("utf-8")
    rows = json.loads(found.stdout)["by_source"]["Oneflow-Inc/DLPerf"]["rows"]
    assert f"| Oneflow-Inc/DLPerf | {rows} |" in page
    assert "--min-mfu 0.15" in page and str(tmp_path) not in page
