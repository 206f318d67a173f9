"""`planner sweep`: exit codes, one JSON document, progress, errors."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from planner.cli import main
from planner.cli import sweeps as command
from planner.sweep import read_sweep
from planner.sweep.run import Progress
from tests.sweep.conftest import AXES, threads, write  # noqa: F401


def run(*args):
    return CliRunner().invoke(main, [str(arg) for arg in args])


def test_a_report_and_the_files(write, threads, tmp_path) -> None:  # noqa: F811
    out = tmp_path / "out"
    result = run("sweep", write(AXES), "--out", out)
    assert result.exit_code == 0, result.output
    assert "6 points: 6 optimal" in result.stdout
    assert "Best by tokens per second and accelerator" in result.stdout
    best = max(read_sweep(out).rows, key=lambda row: row["tokens_per_second_per_accelerator"])
    table = result.stdout.partition("layout\n")[2].splitlines()
    assert table[0].split()[:3] == [str(best["point"]), "8", "2048"]
    assert result.stderr == f"6 of 6 points; wrote {out}\n"
    assert {"sweep.csv", "sweep.jsonl", "sweep.sqlite"} <= {path.name for path in out.iterdir()}
    again = run("sweep", write(AXES), "--out", out)
    assert again.stderr == f"6 of 6 points, 6 of them from before; wrote {out}\n"
    assert again.stdout == result.stdout


def test_json_is_one_document(write, threads, tmp_path) -> None:  # noqa: F811
    out = tmp_path / "out"
    document = json.loads(run("sweep", write(AXES), "--out", out, "--json").stdout)
    assert document["rows"] == read_sweep(out).rows
    assert (document["num_points"], document["counts"]) == (6, {"optimal": 6})
    assert document["axes"] == ["num_accelerators", "training.sequence_length"]


def test_no_layout_anywhere(write, threads, tmp_path) -> None:  # noqa: F811
    text = "base: job.yaml\naxes: {model: [llama3-405b], num_accelerators: [8, 1000000]}\n"
    result = run("sweep", write(text), "--out", tmp_path / "out")
    assert result.exit_code == 1, result.output
    assert "2 points: 1 infeasible, 1 failed" in result.stdout
    assert "did you mean" in " ".join(result.stdout.split())


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["sweep"], "Missing argument"),
        (["sweep", "clusters-by-model"], "--out"),
        (["sweep", "clusters-by-modl", "--out", "x"], "did you mean 'clusters-by-model'"),
        (["sweep", "clusters-by-model", "--out", "x", "--workers", "0"], "--workers"),
        (["sweep", "clusters-by-model", "--out", "x", "--format", "parquett"], "'parquet'"),
        (["sweep", "clusters-by-model", "--out", "x", "--workers", "2", "--scheduler", "y"],
         "not both"),
    ],
)  # fmt: skip
def test_bad_words(words, says, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*words)
    assert result.exit_code == 2 and result.stdout == ""
    assert says in result.stderr and result.stderr.count("\n") == 1


def test_a_line_now_and_then(capsys, monkeypatch) -> None:
    moments = iter([0.0, 1.0, 6.0, 6.0, 7.0])
    monkeypatch.setattr(command.time, "monotonic", lambda: next(moments))
    with command._lines() as tell:
        for done in (2, 30, 40):
            tell(Progress(1000, done, 10, 5.0))
    assert capsys.readouterr().err == (
        "30 of 1,000 points, 10 of them from before, 4 points/s, 4 min 02 s left\n"
    )


def test_a_bar_on_a_terminal(capsys, monkeypatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with command._bar() as tell:
        tell(Progress(1000, 30, 10, 5.0))
    assert "30/1000" in capsys.readouterr().err


def test_durations() -> None:
    texts = [command._duration(seconds) for seconds in (0.4, 59.6, 3599, 3661)]
    assert texts == ["0 s", "1 min 00 s", "59 min 59 s", "1 h 01 min"]
