"""`planner plan`, `evaluate`, `compare` and `export`: documents, exit codes, files written."""

from __future__ import annotations

import json
import sys

import pytest

from planner import api
from planner.errors import ExportError
from tests.cli.running import SMALL, fails, run
from tests.report.fabricated import fabricated_plan, infeasible_plan

FITS = "tp=2,mbs=1,recompute=full"
TOO_BIG = "tp=1,mbs=8"


@pytest.fixture
def plan_file(tmp_path):
    path = tmp_path / "best" / "plan.json"
    path.parent.mkdir()
    path.write_text(json.dumps(fabricated_plan().to_document()))
    return path


# ---------------------------------------------------------------- plan


def test_plan_prints_a_report(planned):
    result = run("plan", SMALL)
    assert result.exit_code == 0
    assert "41.2 % of 989.5 TFLOP/s dense BF16" in result.stdout
    assert "\x1b" not in result.stdout
    assert planned["top_k"] == 5 and planned["time_limit"] is None


@pytest.mark.parametrize("width", [80, 120])
def test_a_pipe_takes_its_width_from_columns(planned, width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    longest = max(map(len, run("plan", SMALL).stdout.splitlines()))
    assert width - 25 < longest <= width


def test_plan_passes_its_options_on(planned):
    result = run(
        "plan", SMALL, "--top", "3", "--time-limit", "2.5",
        "--set", "training.global_batch_size=64", "--set", "search.tp=[1, 2]",
    )  # fmt: skip
    assert result.exit_code == 0
    assert (planned["top_k"], planned["time_limit"]) == (3, 2.5)
    assert planned["scenario"].training.global_batch_size == 64
    assert planned["scenario"].search.tp == (1, 2)


def test_plan_json_is_the_plan_file_and_nothing_else(planned, tmp_path):
    result = run("plan", SMALL, "--json", "--out", tmp_path / "new" / "folder")
    document = json.loads(result.stdout)
    assert document == json.loads(json.dumps(fabricated_plan().to_document()))
    assert json.loads((tmp_path / "new/folder/plan.json").read_text()) == document
    report = (tmp_path / "new/folder/report.txt").read_text()
    assert "Where each group lives" in report and "\x1b" not in report
    assert "plan.json" in result.stderr


def test_plan_without_an_answer_exits_1(monkeypatch):
    monkeypatch.setattr(api, "plan", lambda *_: infeasible_plan())
    result = run("plan", SMALL)
    assert result.exit_code == 1
    assert "No layout fits." in result.stdout
    result = run("plan", SMALL, "--json")
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    assert document["status"] == "infeasible"
    assert document["layout"] is None and document["step_seconds"] is None
    assert document["excluded"] and document["nearest_miss"]["over_bytes"] > 0


def test_out_that_cannot_be_written(planned, tmp_path):
    (tmp_path / "taken").write_text("")
    assert "taken" in fails(run("plan", SMALL, "--out", tmp_path / "taken"))


# ---------------------------------------------------------------- evaluate


def test_evaluate_exit_codes_follow_the_verdict():
    result = run("evaluate", SMALL, "--layout", FITS)
    assert result.exit_code == 0, result.stderr
    assert "Proof" not in result.stdout
    result = run("evaluate", SMALL, "--layout", TOO_BIG)
    assert result.exit_code == 1
    assert "does not fit" in result.stdout


def test_evaluate_json():
    document = json.loads(run("evaluate", SMALL, "--layout", FITS, "--json").stdout)
    assert document["status"] == "feasible"
    assert document["layout"]["tp"] == 2
    assert sum(document["time"].values()) == pytest.approx(document["step_seconds"], rel=1e-9)


def test_software_without_a_profile():
    said = fails(run("evaluate", SMALL, "--layout", FITS, "--set", "software=megatron-cor"))
    assert "did you mean 'megatron-core'" in said and "`software: fallback` is for" in said
    result = run("evaluate", SMALL, "--layout", FITS, "--set", "software=fallback", "--json")
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["inputs"]["software"]["name"] == "fallback"
    assert document["interval_kind"] == "new-software"


def test_illegal_layout_names_rule_source_and_nearest():
    said = fails(run("evaluate", SMALL, "--layout", "tp=3,dp=2"))
    assert "rule" in said
    result = run("evaluate", SMALL, "--layout", "tp=3,dp=2", "--json")
    assert result.exit_code == 2
    document = json.loads(result.stdout)
    assert set(document) == {"illegal", "source", "value", "message", "nearest"}
    assert document["illegal"] in said


def test_a_pipeline_is_drawn_beside_its_report(tmp_path):
    run("evaluate", SMALL, "--layout", FITS, "--out", tmp_path / "none")
    assert not (tmp_path / "none/timeline.png").exists()
    result = run("evaluate", SMALL, "--layout", "pp=2,mbs=1", "--out", tmp_path / "two")
    picture = tmp_path / "two/timeline.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert f"wrote {picture}" in result.stderr


def test_without_matplotlib_the_report_says_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = run("evaluate", SMALL, "--layout", "pp=2,mbs=1", "--out", tmp_path)
    assert not (tmp_path / "timeline.png").exists()
    assert (tmp_path / "report.txt").exists()
    assert "no timeline.png: pictures need matplotlib" in " ".join(result.stderr.split())


def test_evaluate_many(tmp_path):
    table = tmp_path / "layouts.csv"
    table.write_text('tp,mbs,recompute\n2,1,full\n3,1,\n\n1,8,\n"4", 1 ,full\n')
    result = run("evaluate", SMALL, "--layouts", table, "--json", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.stderr
    results = json.loads(result.stdout)["results"]
    assert [("illegal" in r) for r in results] == [False, True, False, False]
    assert [r["layout"]["tp"] for r in results if "layout" in r] == [2, 1, 4]
    assert json.loads((tmp_path / "out/results.json").read_text())["results"] == results
    text = run("evaluate", SMALL, "--layouts", table).stdout
    assert "fastest" in text and "illegal" in text and "2 of 4 layouts fit" in text


def test_evaluate_many_exits_1_when_none_fits(tmp_path):
    table = tmp_path / "layouts.csv"
    table.write_text("tp,mbs\n1,8\n3,1\n")
    assert run("evaluate", SMALL, "--layouts", table).exit_code == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"),
        ("tp,ppp\n1,2\n", ":1: ppp: no such layout key"),
        ("tp\n1\nmany\n", ":3: tp"),
        ("tp,tp\n1,2\n", "twice"),
        ("tp,\n1,2\n", "no name"),
        ("tp,mbs\n1,2\n1\n", ":3: 1 cells under 2 columns"),
        (b"tp\n\xff\n", "UTF-8"),
    ],
)
def test_bad_layout_files(text, said, tmp_path):
    table = tmp_path / "layouts.csv"
    table.write_bytes(text if isinstance(text, bytes) else text.encode())
    message = fails(run("evaluate", SMALL, "--layouts", table))
    assert said in message and "layouts.csv" in message


@pytest.mark.parametrize("text", ['tp,"pp\n8,1\n4,2\n', "tp,pp\n", "tp,pp,foo\n8,4,\n"])
def test_layout_tables_are_read_whole_or_refused(tmp_path, text):
    path = tmp_path / "layouts.csv"
    path.write_text(text)
    assert "layouts.csv" in fails(run("evaluate", SMALL, "--layouts", path))


# ---------------------------------------------------------------- compare, export


def test_compare_takes_files_and_folders(plan_file):
    result = run("compare", plan_file, plan_file.parent)
    assert result.exit_code == 0
    assert "llama3-405b" in result.stdout
    document = json.loads(run("compare", plan_file, plan_file, "--json").stdout)
    assert document["time"]["bubble"] == [1.3, 1.3, 0.0]


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"schema_version": 99}'])
def test_what_is_no_plan_is_refused(text, tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(text)
    assert "plan.json" in fails(run("compare", path, path))


def test_export_writes_the_targets_files(plan_file, tmp_path):
    result = run("export", plan_file.parent, "--target", "megatron", "--out", tmp_path / "launch")
    assert result.exit_code == 0, result.stderr
    assert result.stdout == ""
    assert "--tensor-model-parallel-size 8" in (tmp_path / "launch/megatron-args.sh").read_text()


def test_export_that_cannot_be_expressed_exits_1(plan_file, tmp_path):
    document = json.loads(plan_file.read_text())
    document["rank_order"] = [["pp", 16], ["tp", 8], ["dp_shard", 128]]
    plan_file.write_text(json.dumps(document))
    result = run("export", plan_file, "--target", "megatron", "--out", tmp_path / "launch")
    assert "cannot place ranks" in fails(result, ExportError.exit_code)
    assert not (tmp_path / "launch").exists()


def test_unknown_target(plan_file, tmp_path):
    said = fails(run("export", plan_file, "--target", "megatorn", "--out", tmp_path))
    assert "did you mean 'megatron'" in said


def test_a_layout_written_as_text_is_refused(plan_file, tmp_path):
    document = json.loads(plan_file.read_text("utf-8"))
    document["layout"]["tp"] = str(document["layout"]["tp"])
    edited = tmp_path / "edited.json"
    edited.write_text(json.dumps(document), "utf-8")
    said = fails(run("export", edited, "--target", "megatron", "--out", tmp_path / "out"))
    assert "layout.tp" in said and "without quotes" in said
