"""What a check reads of Megatron arguments against what Megatron's own parser makes of them."""

from __future__ import annotations

import random
import shlex
from collections import Counter

import pytest

import planner
from planner.advise import check as checking
from planner.cost.stage_split import layers_by_stage
from planner.errors import ExportError
from planner.planning.export import export_plan
from planner.problem.scenario import scenario_from_document
from tests.parsers.harness import ask, bash_words
from tests.parsers.plans import random_plans

pytestmark = pytest.mark.parsers

CHOICES = (
    ("llama3-8b", 16, 32, "bf16"), ("mixtral-8x7b", 32, 64, "bf16"), ("llama3-70b", 32, 64, "bf16"),
    ("gpt3-175b", 48, 96, "bf16"), ("qwen3-30b-a3b", 24, 96, "bf16"),
)  # fmt: skip
COUNT = 200

CHANGES = {
    # what is taken away or set, as users do
    "nothing": [],
    "no expert tensor size": ["-", "--expert-tensor-parallel-size"],
    "no global batch": ["-", "--global-batch-size"],
    "no sequence parallelism": ["-", "--sequence-parallel", "--tp-comm-overlap"],
    "no distributed optimizer": ["-", "--use-distributed-optimizer", "--overlap-param-gather",
                                 "--num-distributed-optimizer-instances"],
    "pp 3": ["--pipeline-model-parallel-size", "3"],
    "pp 4": ["--pipeline-model-parallel-size", "4"],
    "tp 3": ["--tensor-model-parallel-size", "3"],
    "cp 2": ["--context-parallel-size", "2"],
    "virtual 2": ["--num-virtual-stages-per-pipeline-rank", "2"],
    "layers 4": ["--num-layers-per-virtual-pipeline-stage", "4"],
    "first 4": ["--decoder-first-pipeline-num-layers", "4"],
    "both ends": ["--account-for-embedding-in-pipeline-split",
                  "--account-for-loss-in-pipeline-split"],
    "batch 50": ["--global-batch-size", "50"],
    "evaluation": ["--eval-global-batch-size", "6"],
    "hierarchical": ["--cp-comm-type", "a2a+p2p"],
    "sequence parallelism": ["--sequence-parallel"],
}  # fmt: skip

THEIRS = {
    "batch-divides",
    "world-size",
    "chunks-have-layers",
    "interleaved-microbatches",
    "experts-need-sp",
    "sp-divides-sequence",
    "ep-overlap-needs-microbatches",
}
"""Rules that Megatron enforces when it trains, or not at all: it derives its own."""


def changed(argv, change):
    words = list(argv)
    if change[:1] == ["-"]:
        for flag in change[1:]:
            while flag in words:
                at = words.index(flag)
                end = at + 1
                while end < len(words) and not words[end].startswith("--"):
                    end += 1
                words[at:end] = []
        return words
    return [*changed(words, ["-", change[0]]), *change] if change else words


@pytest.fixture(scope="module")
def answered():
    draw, jobs, checks = random.Random(4), [], []
    for drawn in random_plans(CHOICES, "megatron-core", 900, 12, target_name="megatron"):
        if len(jobs) == COUNT:
            break
        try:
            text = export_plan(drawn, "megatron")["megatron-args.sh"]
        except ExportError:
            continue
        name = draw.choice(list(CHANGES))
        argv = changed(bash_words(text, "MEGATRON_ARGS"), CHANGES[name])
        scenario = scenario_from_document(drawn.inputs)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(checking, "_better", lambda found: None)
            found = planner.check(shlex.join(argv), scenario, name, target="megatron")
        jobs.append({"argv": argv, "world_size": scenario.num_accelerators, "ranks": [0]})
        checks.append(found)
    answers = ask("megatron_driver.py", "megatron", jobs)
    return list(zip(checks, jobs, answers, strict=True))


def test_what_megatron_refuses_is_refused(answered):
    missed = [
        (found.path, answer["error"][:200], job["argv"])
        for found, job, answer in answered
        if "error" in answer and not found.rules
    ]
    assert missed == []
    assert sum("error" in answer for *_, answer in answered) >= 15


def test_what_megatron_accepts_is_refused_only_by_rules_of_our_own(answered):
    rules = Counter(
        error.rule for found, _, answer in answered if "error" not in answer
        for error in found.rules
    )  # fmt: skip
    assert set(rules) <= THEIRS


def test_what_megatron_builds_is_what_was_read(answered):
    seen = 0
    for found, _, answer in answered:
        if "error" in answer or found.plan is None:
            continue
        seen += 1
        layout, args = found.layout, answer["args"]
        model = scenario_from_document(found.plan.inputs).model
        assert args["data_parallel_size"] == layout.dp, found.path
        assert args["global_batch_size"] == found.plan.inputs["training"]["global_batch_size"]
        assert answer["num_microbatches"] == layout.num_microbatches
        assert args["sequence_parallel"] == layout.sp
        assert (args["virtual_pipeline_model_parallel_size"] or 1) == layout.vp
        if model.moe is not None:
            assert args["expert_tensor_parallel_size"] == layout.etp
        by_stage = [sum(answer["layout"][i :: layout.pp]) for i in range(layout.pp)]
        assert by_stage == layers_by_stage(model.num_layers, layout), found.path
    assert seen >= 70
