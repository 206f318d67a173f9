"""`planner check`: exit codes, one JSON document, arguments after --, standard input."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from planner.cli import main
from planner.cli.advise import _read
from planner.errors import InputError

FOLDER = Path(__file__).parent.parent / "data" / "launch"
RUNS = ["--micro-batch-size", "1", "--global-batch-size", "128", "--bf16", "--sequence-parallel",
        "--use-distributed-optimizer", "--tensor-model-parallel-size", "2",
        "--recompute-activations"]  # fmt: skip
GIVEN = ("llama3-8b-h100x8", "--set", "training.global_batch_size=128")


pytestmark = pytest.mark.usefixtures("no_search")


def run(*args, text=None):
    return CliRunner().invoke(main, ["check", *map(str, args)], input=text)


def script(tmp_path, *more):
    path = tmp_path / "job.sh"
    path.write_text(" ".join([*RUNS, *more]))
    return path


def test_a_script_that_runs_exits_with_0(tmp_path):
    done = run(script(tmp_path), *GIVEN)
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("It runs") and "Understood" in done.stdout and done.stderr == ""


@pytest.mark.parametrize(
    ("text", "verdict"),
    [("--tensor-model-parallel-size 3", "illegal"), ("--tensor-model-parallel-size 1", "no")],
)
def test_one_that_will_not_run_exits_with_1(tmp_path, text, verdict):
    path = script(tmp_path, text)
    done = run(path, *GIVEN, "--set", "model=llama2-13b", "--set", "training.sequence_length=4096",
               "--json")  # fmt: skip
    assert done.exit_code == 1
    document = json.loads(done.stdout)
    assert (document["verdict"], document["runs"]) == (verdict, False)
    assert bool(document["rules"]) is (verdict == "illegal")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("no-such.sh", "llama3-8b-h100x8"), "no-such.sh: cannot be read"),
        (("llama3-8b-h100x8",), "give SCRIPT and SCENARIO"),
        ((), "give SCRIPT and SCENARIO"),
        (("a", "b", "--", "--bf16"), "only SCENARIO"),
        (("llama3-8b-h100x8", "--", "--lr", "1"), "nothing in it is known"),
        (("llama3-8b-h100x9", "--", "--bf16"), "llama3-8b-h100x8"),
        (("llama3-8b-h100x8", "--target", "megatorn", "--", "--bf16"), "did you mean 'megatron'"),
        (("llama3-8b-h100x8", "--env", "X", "--", "--bf16"), "is not NAME=VALUE, such as"),
        (("llama3-8b-h100x8", "--layout", "tq=2", "--", "--bf16"), "no such layout key"),
        (("llama3-8b-h100x8", "--", "--tensor-model-parallel-size", "x"), "integer >= 1"),
    ],
)  # fmt: skip
def test_bad_input_exits_with_2_and_one_paragraph(args, message):
    done = run(*args)
    assert done.exit_code == 2 and message in done.stderr, done.output
    assert done.stdout == "" and done.stderr.startswith("planner: error: ")
    assert done.stderr.count("\n") == 1


def test_arguments_after_dashes_are_read_as_they_are():
    done = run(*GIVEN, "--json", "--", *RUNS, "--data-path", "a b; rm -rf $HOME")
    assert done.exit_code == 0
    document = json.loads(done.stdout)
    assert document["path"] == "arguments after --" and document["layout"]["tp"] == 2
    assert [item["subject"] for item in document["ignored"]] == ["--data-path"]


def test_standard_input_is_a_script():
    done = run("-", *GIVEN, "--json", text=" ".join(RUNS))
    assert done.exit_code == 0 and json.loads(done.stdout)["layout"]["tp"] == 2


def test_variables_and_layout_keys_from_outside():
    path = FOLDER / "branches.sh"
    assert run(path, *GIVEN).exit_code == 2
    done = run(path, *GIVEN, "--env", "TP=2", "--env", "PP=1", "--layout", "recompute=full",
               "--json")  # fmt: skip
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["layout"]["recompute"] == "full"


def test_a_file_that_is_not_text_is_refused(tmp_path):
    path = tmp_path / "job.sh"
    path.write_bytes(b"\xff\xfe--bf16")
    done = run(path, *GIVEN)
    assert done.exit_code == 2 and "is not UTF-8" in done.stderr
    given = CliRunner().invoke(main, ["check", "-", *GIVEN], input=b"--bf16\n-\xff")
    assert given.exit_code == 2 and "-:2:2: cannot be read: the byte 0xff" in given.stderr


def test_standard_input_that_is_closed_is_refused(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(InputError, match="standard input is closed; allowed: a launch script"):
        _read("-")
