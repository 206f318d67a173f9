"""A check in words: what it says, at any width, without what a terminal would obey."""

from __future__ import annotations

from pathlib import Path

import pytest

import planner
from planner.report.text.check import check_report
from planner.report.text.pieces import plain_text

FOLDER = Path(__file__).parent.parent / "data" / "launch"


def report(text, width=100, model="llama3-70b-h100x1024", path="job.sh", **more):
    found = planner.check(
        text, planner.load_scenario(model, more.pop("overrides", {})), path, **more
    )
    return plain_text(check_report(found), width)


@pytest.mark.parametrize("width", [80, 120])
def test_everything_is_said_in_the_width_there_is(width):
    text = (FOLDER / "llama3-70b-slurm.sh").read_text("utf-8")
    text = text.replace("GBS=1024", "GBS=512").replace("TP:-8", "TP:-16")
    shown = report(text, width)
    assert max(map(len, shown.splitlines())) <= width
    flat = " ".join(shown.split())
    for part in (
        "It runs.", "read as megatron (megatron-core 0.19.2)", "on 1,024 accelerators",
        "tp·cp·pp·dp = 16·1·4·16 = 1024 of 1024 accelerators", "MFU", "of 989.5 TFLOP/s dense BF16",
        "The script contradicts the scenario", "training.global_batch_size",
        "Groups that cross a tier they should not", "tp: 16 members, 8 inside", "ridge of leaf",
        "The best layout of this job", "saves", "--tensor-model-parallel-size", "Ignored",
        "--save", "Walls",
    ):  # fmt: skip
        assert part in flat, part


@pytest.mark.parametrize("width", [80, 120])
def test_rules_broken_are_said_with_id_source_and_nearest(width, no_search):
    shown = report(
        "--tensor-model-parallel-size 8 --micro-batch-size 1 --bf16 --global-batch-size 1024 "
        "--sequence-parallel --pipeline-model-parallel-size 3", width,
    )  # fmt: skip
    assert shown.startswith("It will not run: rules are broken.\n")
    flat = " ".join(shown.split())
    assert "world-size: " in flat and "nearest valid: pp=2, pp=4" in flat
    assert "stages-even: num_layers=80, pp=3" in flat and "Megatron-LM#1304" in flat
    assert max(map(len, shown.splitlines())) <= width


def test_what_does_not_fit_says_so(no_search):
    text = "--micro-batch-size 1 --bf16 --global-batch-size 1024 --use-distributed-optimizer"
    shown = report(text)
    assert shown.startswith("It will not run: it does not fit in memory.\n") and "Memory" in shown


def test_nothing_to_gain_is_said():
    given = planner.load_scenario("llama3-8b-h100x8", {"search.orders": "framework"})
    text = planner.export_plan(planner.plan(given), "megatron")["megatron-args.sh"]
    found = planner.check(text, given)
    flat = " ".join(plain_text(check_report(found), 100).split())
    assert "nothing to gain" in flat or "saves" in flat
    assert abs(found.gain_fraction) < 0.006  # ties are within 0.5 %


def test_no_control_characters_of_the_script_reach_the_terminal(no_search):
    text = (
        "--micro-batch-size 1 --bf16 --global-batch-size 1024 --evil$'\\e' '\x1b[2J' --\x1b[31m 1"
    )
    assert "\x1b" not in report(text, path="\x1b[2Jjob.sh")
