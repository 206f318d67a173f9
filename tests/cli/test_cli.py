"""The command line: exit codes, one JSON document, one-paragraph errors, files written."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner

from planner import api
from planner.cli import main
from planner.errors import ExportError
from tests.report.fabricated import fabricated_plan, infeasible_plan

SMALL = "llama3-8b-h100x8"
FITS = "tp=2,mbs=1,recompute=full"
TOO_BIG = "tp=1,mbs=8"


def run(*args):
    return CliRunner().invoke(main, [str(arg) for arg in args])


def fails(result, code=2):
    """The message of a failed run: one paragraph on stderr, nothing on stdout."""
    assert result.exit_code == code, result.output
    assert isinstance(result.exception, SystemExit)
    assert result.stdout == ""
    assert result.stderr.startswith("planner: error: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


@pytest.fixture
def plan_file(tmp_path):
    path = tmp_path / "best" / "plan.json"
    path.parent.mkdir()
    path.write_text(json.dumps(fabricated_plan().to_document()))
    return path


@pytest.fixture
def planned(monkeypatch):
    """`plan` answers with a fabricated plan; what it was asked is recorded."""
    asked = {}

    def plan(scenario, top_k, time_limit_seconds, watch):
        asked.update(scenario=scenario, top_k=top_k, time_limit=time_limit_seconds)
        return fabricated_plan()

    monkeypatch.setattr(api, "plan", plan)
    return asked


# ---------------------------------------------------------------- help and start


def test_version_and_help():
    assert run("--version").stdout.startswith("planner, version ")
    for command in ("plan", "evaluate", "compare", "list", "schema", "validate", "export"):
        assert command in run("--help").stdout
        assert run(command, "-h").exit_code == 0


@pytest.mark.parametrize("command", [(), ("validate",)])
def test_a_group_without_a_command_shows_its_help(command):
    result = run(*command)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == run(*command, "--help").stdout


def test_help_loads_nothing_heavy():
    heavy = ("numpy", "pydantic", "ortools", "rich", "pint", "ruamel", "planner.api")
    script = (
        "import sys\nfrom planner.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        f"loaded = [name for name in {heavy!r} if name in sys.modules]\n"
        "sys.exit(', '.join(loaded) or 0)"
    )
    started = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert time.perf_counter() - started < 2  # 0.1 s when the machine is not loaded


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


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["plam", SMALL], "did you mean 'plan'"),
        (["plan"], "SCENARIO"),
        (["plan", SMALL, "--jsn"], "--json"),
        (["plan", "llama3-8b-h100x9"], "did you mean 'llama3-8b-h100x8'"),
        (["plan", "missing.yaml"], "missing.yaml"),
        (["plan", SMALL, "--set", "training"], "KEY=VALUE"),
        (["plan", SMALL, "--set", "training.sequence_lenght=1"], "did you mean"),
        (["plan", SMALL, "--set", "num_accelerators=-4"], "num_accelerators"),
        (["plan", SMALL, "--set", "num_accelerators=999999"], "dgx-h100"),
        (["plan", SMALL, "--top", "0"], "--top"),
        (["plan", SMALL, "--top", "many"], "--top"),
        (["plan", SMALL, "--time-limit", "0"], "--time-limit"),
        (["plan", SMALL, "--time-limit", "nan"], "--time-limit"),
        (["plan", SMALL, "--time-limit", "inf"], "--time-limit"),
        (["evaluate", SMALL], "--layouts"),
        (["evaluate", SMALL, "--layout", "tp=2", "--layouts", "x.csv"], "--layouts"),
        (["evaluate", SMALL, "--layout", "zero_stag=2"], "did you mean 'zero_stage'"),
        (["evaluate", SMALL, "--layout", "tp"], "tp"),
        (["evaluate", SMALL, "--layouts", "missing.csv"], "missing.csv"),
        (["compare", "a.json", "b.json"], "a.json"),
        (["list", "model"], "did you mean 'models'"),
        (["schema", "topologie"], "did you mean 'topology'"),
        (["validate", "rnus"], "did you mean 'runs'"),
        (["export", "a.json", "--target", "megatron", "--out", "x"], "a.json"),
        (["export", "a.json", "--target", "megatron"], "--out"),
    ],
)
def test_bad_input_is_one_paragraph_and_exit_2(args, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert said in fails(run(*args))


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


# ---------------------------------------------------------------- list, schema


@pytest.mark.parametrize(
    "kind",
    ["topologies", "inventories", "models", "scenarios", "software", "accelerators", "targets"],
)
def test_list(kind):
    text = run("list", kind).stdout
    names = [item["name"] for item in json.loads(run("list", kind, "--json").stdout)[kind]]
    assert names and all(name in text for name in names)


def test_list_models_gives_experts_and_parameters():
    found = {
        item["name"]: item for item in json.loads(run("list", "models", "--json").stdout)["models"]
    }
    assert found["mixtral-8x7b"]["parameters"] == "46.70 billion"
    assert found["mixtral-8x7b"]["experts"] == "8, 2 chosen"
    assert found["llama3-8b"]["experts"] == "·"
    assert found["llama3-8b"]["layers"] == "32"
    assert found["nemotron-3-nano"]["layers"] == "52: 23 M, 6 *, 23 E"


@pytest.mark.parametrize("kind", ["scenario", "topology", "model"])
def test_schema_is_json_schema(kind):
    schema = json.loads(run("schema", kind).stdout)
    assert schema["type"] == "object" and schema["properties"]


# ---------------------------------------------------------------- ends


def test_interrupt_is_130_and_quiet(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(api, "plan", interrupted)
    result = run("plan", SMALL)
    assert result.exit_code == 130
    assert "Traceback" not in result.output


def test_a_bug_is_not_dressed_up_as_the_users_mistake(monkeypatch):
    monkeypatch.setattr(api, "plan", lambda *_: 1 / 0)
    assert isinstance(run("plan", SMALL).exception, ZeroDivisionError)


@pytest.mark.skipif(os.name != "posix", reason="closed pipes are a thing of posix")
def test_a_closed_pipe_is_quiet():
    command = (
        f"{sys.executable} -c 'from planner.cli import main; main()' list topologies | head -n 0"
    )
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.stderr == ""


def test_colours_only_on_terminals(planned, monkeypatch):
    script = "from planner.cli import main; main()"
    plain = subprocess.run(
        [sys.executable, "-c", script, "list", "models"], capture_output=True, text=True
    ).stdout
    forced = subprocess.run(
        [sys.executable, "-c", script, "list", "models"], capture_output=True, text=True,
        env={**os.environ, "FORCE_COLOR": "1", "NO_COLOR": "1"},
    ).stdout  # fmt: skip
    assert "\x1b" not in plain
    assert not re.search(r"\x1b\[(3|9)\d", forced)  # bold may be, colours not


# ---------------------------------------------------------------- what users type in anger


def test_paths_after_set_are_sought_in_the_current_folder(tmp_path, monkeypatch):
    (tmp_path / "sub").mkdir()
    scenario = "model: llama3-8b\ntopology: dgx-h100\nnum_accelerators: 8\ntraining: {\n"
    scenario += (
        "  sequence_length: 8192, global_batch_size: 128, precision: bf16, optimizer: adam}\n"
    )
    (tmp_path / "sub" / "s.yaml").write_text(scenario)
    (tmp_path / "sub" / "t.yaml").write_text("name: the wrong one\n")
    (tmp_path / "t.yaml").write_text("name: the right one\n")
    monkeypatch.chdir(tmp_path)
    assert "t.yaml" in (said := fails(run("plan", "sub/s.yaml", "--set", "topology=./t.yaml")))
    assert "sub/t.yaml" not in said


def test_a_key_is_set_once():
    said = fails(run("plan", SMALL, "--set", "search.tp=2", "--set", "search.tp=4"))
    assert "search.tp is set twice" in said


def test_absurd_numbers_are_answered_at_once():
    start = time.monotonic()
    assert "nearest legal: mbs=" in fails(run("evaluate", SMALL, "--layout", "mbs=999999999"))
    assert "<= 1024" in fails(run("plan", SMALL, "--set", "model.num_layers=1000000000000"))
    assert time.monotonic() - start < 5


def test_other_versions_of_yaml_are_refused(tmp_path):
    path = tmp_path / "s.yaml"
    path.write_text("%YAML 1.1\n---\nmodel: llama3-8b\n")
    assert ":1:1: " in fails(run("plan", path))


@pytest.mark.parametrize("text", ['tp,"pp\n8,1\n4,2\n', "tp,pp\n", "tp,pp,foo\n8,4,\n"])
def test_layout_tables_are_read_whole_or_refused(tmp_path, text):
    path = tmp_path / "layouts.csv"
    path.write_text(text)
    assert "layouts.csv" in fails(run("evaluate", SMALL, "--layouts", path))


@pytest.mark.parametrize("shell", ["{} >&-", "{} >/dev/full", "PYTHONIOENCODING=latin-1 {}"])
def test_outputs_that_cannot_take_it_end_without_a_traceback(shell):
    command = f"{sys.executable} -c 'from planner.cli import main; main()' evaluate {SMALL}"
    command += " --layout tp=2"
    done = subprocess.run(["bash", "-c", shell.format(command)], capture_output=True, check=False)
    assert b"Traceback" not in done.stderr
    assert done.returncode in (0, 2)
