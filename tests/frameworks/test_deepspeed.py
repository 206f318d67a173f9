"""Exports to DeepSpeed against its own configuration and rank topology."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest

from planner.errors import ExportError
from planner.frameworks.deepspeed import deepspeed_settings
from planner.layouts.layout import Layout
from planner.layouts.rank_orders import framework_groups
from planner.planning.export import export_plan, launch_job
from tests.parsers.harness import ask
from tests.parsers.plans import plan_of, random_plans, scenario

CHOICES = (
    ("llama3-8b", 32, 64, "bf16"),
    ("gpt3-175b", 48, 96, "fp16"),
    ("llama3-70b", 64, 64, "bf16"),
)
AXES = ("tp", "dp", "pp")
LAYOUT = Layout(tp=2, pp=4, dp_shard=4, mbs=2, num_microbatches=8, overlap="dp", cp_kind="a2a")


def plan(precision="bf16", **changes):
    given = scenario("llama3-8b", 32, 64, precision, "deepspeed")
    return plan_of(given, replace(LAYOUT, **changes), AXES)


def config(found):
    return json.loads(export_plan(found, "deepspeed")["ds_config.json"])


def test_the_configuration_of_a_plan():
    found = config(plan(recompute="full"))
    stamp = found.pop("planner")
    assert any("DeepSpeed 0.19.8" in line for line in stamp)
    assert f"inputs_sha256: {plan().inputs_sha256}" in stamp
    assert "PipelineModule(num_stages=4, partition_method='uniform')" in stamp
    assert found == {
        "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 8,
        "train_batch_size": 64, "zero_optimization": {"stage": 1, "overlap_comm": True},
        "pipeline": {"activation_checkpoint_interval": 1, "stages": 4, "partition": "uniform"},
        "bf16": {"enabled": True}, "tensor_parallel": {"autotp_size": 2},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"sp": True}, "sp true is not expressible in DeepSpeed 0.19.8; expressible: false"),
        ({"recompute": "selective"}, "expressible: none, full"),
        ({"recompute": "full", "recompute_layers": 3}, "recompute_layers 3 is not expressible"),
        ({"vp": 2}, "vp 2"), ({"cp": 2, "dp_shard": 2}, "cp 2"),
        ({"dp_replicate": 2, "dp_shard": 2}, "dp_replicate 2"),
        ({"overlap": "tp+dp"}, "no tensor-parallel traffic"),
        ({"stage_layers": (8, 8, 8, 8)}, "by the number of modules"),
        ({"precision": "fp8"}, "precision fp8 is not expressible"),
    ],
)  # fmt: skip
def test_what_it_cannot_express_is_said(changes, reason):
    with pytest.raises(ExportError, match=reason):
        export_plan(plan(**changes), "deepspeed")


@pytest.mark.parsers
def test_legal_plans_are_read_back_in_our_rank_table():
    jobs, refused = [], Counter()
    for drawn in random_plans(CHOICES, "deepspeed", 900, 6, target_name="deepspeed"):
        if len(jobs) == 210:
            break
        try:
            layout = launch_job(drawn).layout
            jobs.append((drawn, {"config": config(drawn), "pp": layout.pp, "tp": layout.tp,
                                 "dp": layout.dp}))  # fmt: skip
        except ExportError as error:
            refused.update(reason.partition(";")[0][:50] for reason in error.reasons)
    answers = ask("deepspeed_driver.py", "venv", [job for _, job in jobs])
    assert len(answers) >= 200, refused
    assert Counter(answer.get("error", "")[:120] for answer in answers) == {"": len(answers)}
    for (drawn, _), answer in zip(jobs, answers, strict=True):
        job = launch_job(drawn)
        for name, value in deepspeed_settings(job).items():
            assert answer["values"][name] == value, name
        ours = framework_groups(job.layout, AXES)
        for group, theirs in answer["groups"].items():
            rows = sorted(map(sorted, ours[group].tolist()))
            assert sorted(map(sorted, theirs)) == rows, (job.layout, group)
    assert {json.dumps(job["config"]["zero_optimization"]["stage"]) for _, job in jobs} == set(
        "0123"
    )


@pytest.mark.parsers
def test_batches_that_do_not_multiply_are_refused_by_it_too():
    wrong = config(plan())
    wrong["train_batch_size"] += 2
    (answer,) = ask("deepspeed_driver.py", "venv", [{"config": wrong, "pp": 4, "tp": 2, "dp": 4}])
    assert "train_batch_size" in answer["error"]
