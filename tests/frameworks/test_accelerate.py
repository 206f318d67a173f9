"""Exports to accelerate against its own file reader, launcher and parallelism config."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from ruamel.yaml import YAML

from planner.errors import ExportError
from planner.frameworks.accelerate import accelerate_settings
from planner.layouts.layout import Layout
from planner.layouts.rank_orders import framework_groups
from planner.planning.export import export_plan, launch_job
from tests.parsers.harness import ask
from tests.parsers.plans import plan_of, random_plans, scenario

CHOICES = (
    ("llama3-8b", 32, 64, "bf16"),
    ("llama3-70b", 48, 96, "bf16"),
    ("llama2-7b", 16, 64, "fp16"),
)
AXES = ("tp", "cp", "dp_shard", "dp_replicate", "pp")
LAYOUT = Layout(tp=2, cp=2, dp_shard=4, dp_replicate=2, mbs=1, num_microbatches=8, zero_stage=3,
                overlap="dp+pp", cp_kind="all_gather")  # fmt: skip


def plan(precision="bf16", **changes):
    given = scenario("llama3-8b", 32, 64, precision, "torchtitan")
    return plan_of(given, replace(LAYOUT, **changes), AXES)


def text(found):
    return export_plan(found, "accelerate")["accelerate.yaml"]


def test_the_file_of_a_plan():
    found = YAML(typ="safe").load(text(plan(recompute="full")))
    assert found == {
        "compute_environment": "LOCAL_MACHINE", "distributed_type": "FSDP", "num_machines": 4,
        "num_processes": 32, "rdzv_backend": "static", "mixed_precision": "bf16",
        "fsdp_config": {
            "fsdp_version": 2, "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "fsdp_state_dict_type": "SHARDED_STATE_DICT", "fsdp_reshard_after_forward": True,
            "fsdp_activation_checkpointing": True,
        },
        "parallelism_config": {
            "parallelism_config_tp_size": 2, "parallelism_config_cp_size": 2,
            "parallelism_config_dp_shard_size": 4, "parallelism_config_dp_replicate_size": 2,
            "parallelism_config_cp_comm_strategy": "allgather",
        },
    }  # fmt: skip
    assert "NOT SET, the program's own: micro-batches of 1, 8 of them" in text(plan())


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"sp": True}, "sp true is not expressible in accelerate 1.15.0"),
        ({"pp": 2, "dp_shard": 2}, "pp 2"), ({"zero_stage": 1}, "zero_stage 1"),
        ({"recompute": "operators"}, "expressible: none, full"),
        ({"recompute": "full", "recompute_layers": 3}, "recompute_layers 3 is not expressible"),
        ({"dp_shard": 1, "dp_replicate": 8}, "replicates only what it shards"),
        ({"overlap": "none"}, "always overlaps"),
    ],
)  # fmt: skip
def test_what_it_cannot_express_is_said(changes, reason):
    with pytest.raises(ExportError, match=reason):
        text(plan(**changes))


@pytest.mark.parsers
def test_legal_plans_are_read_back_in_our_rank_table():
    jobs, refused = [], Counter()
    for drawn in random_plans(CHOICES, "torchtitan", 900, 6, False, "accelerate"):
        if len(jobs) == 210:
            break
        # as software without sequence parallelism has them, so that tp is not always 1
        drawn = replace(drawn, layout=replace(drawn.layout, sp=False))
        try:
            n = launch_job(drawn).scenario.num_accelerators
            jobs.append((drawn, {"yaml": text(drawn), "ranks": [0, n - 1, 7 * n // 11]}))
        except ExportError as error:
            refused.update(reason.partition(";")[0][:50] for reason in error.reasons)
    answers = ask("accelerate_driver.py", "venv", [job for _, job in jobs])
    assert len(answers) >= 200, refused
    assert Counter(answer.get("error", "")[:120] for answer in answers) == {"": len(answers)}
    for (drawn, asked), answer in zip(jobs, answers, strict=True):
        job = launch_job(drawn)
        layout, settings = job.layout, accelerate_settings(job)
        assert answer["file"] == {key: settings[key] for key in answer["file"]}
        assert answer["sizes"] == {key: getattr(layout, key) for key in answer["sizes"]}
        environment = answer["environment"]
        assert environment["FSDP_VERSION"] == "2"
        assert environment["FSDP_RESHARD_AFTER_FORWARD"] == str(layout.zero_stage == 3).lower()
        full = layout.recompute == "full"
        assert environment["FSDP_ACTIVATION_CHECKPOINTING"] == str(full).lower()
        if layout.cp > 1:
            assert answer["cp"] == {"all_gather": "allgather", "ring": "alltoall"}[layout.cp_kind]
        ours = framework_groups(layout, AXES)
        for rank in asked["ranks"]:
            for group, members in answer["groups"][str(rank)].items():
                row = next(row for row in ours[group].tolist() if rank in row)
                assert sorted(row) == members, (layout, rank, group)
    assert max(job.layout.tp for job, _ in jobs) > 1
