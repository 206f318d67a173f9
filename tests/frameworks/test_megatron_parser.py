"""Exports to Megatron-LM against its own parser, validation, config and process groups."""

from __future__ import annotations

from collections import Counter

import pytest

from planner.cost.stage_split import chunk_layers
from planner.errors import ExportError
from planner.frameworks.job import order_name
from planner.frameworks.target import target
from planner.layouts.rank_orders import framework_groups
from planner.planning.export import export_plan, launch_job
from planner.problem.scenario import scenario_from_document
from tests.parsers.harness import ask, bash_words
from tests.parsers.plans import random_plans

pytestmark = pytest.mark.parsers

CHOICES = (
    ("llama3-8b", 16, 32, "bf16"),
    ("mixtral-8x7b", 32, 64, "bf16"),
    ("llama3-70b", 32, 64, "fp8"),
    ("deepseek-v3", 64, 256, "fp8-blockwise"),
    ("gpt3-175b", 48, 96, "bf16"),
    ("qwen3-30b-a3b", 24, 96, "mxfp8"),
    ("bloom-176b", 28, 28, "fp16"),
    ("llama4-scout", 32, 64, "bf16"),
    ("llama3-405b", 64, 64, "nvfp4"),
    ("deepseek-v2", 32, 128, "fp8"),
)
COUNT = 220

GROUPS = ("tp", "cp", "pp", "shard", "ep", "etp", "edp")


def asked(plan, rank_step=7):
    text = export_plan(plan, "megatron")["megatron-args.sh"]
    scenario = scenario_from_document(plan.inputs, "plan")
    n = scenario.num_accelerators
    blackwell = "b200" in scenario.topology.accelerator.name
    return {
        "argv": bash_words(text, "MEGATRON_ARGS"),
        "world_size": n,
        "capability": [10, 0] if blackwell else [9, 0],
        "ranks": [0, n - 1, rank_step * n // 11 % n],
    }


@pytest.fixture(scope="module")
def answered():
    """(plan, job, answer) of random legal plans; the refused ones with their reasons."""
    plans, refused = [], Counter()
    for plan in random_plans(CHOICES, "megatron-core", 3 * COUNT, seed=6, target_name="megatron"):
        if len(plans) == COUNT:
            break
        try:
            plans.append((plan, asked(plan)))
        except ExportError as error:
            refused.update(reason.partition(";")[0][:60] for reason in error.reasons)
    answers = ask("megatron_driver.py", "megatron", [job for _, job in plans])
    return [
        (plan, job, answer) for (plan, job), answer in zip(plans, answers, strict=True)
    ], refused


def test_legal_plans_are_accepted(answered):
    found, refused = answered
    errors = Counter(answer.get("error", "")[:150] for *_, answer in found)
    assert errors == {"": len(found)}
    assert len(found) >= 200, refused


def settings_of(argv):
    """Flags to values as the parser's words have them."""
    found = {}
    for word in argv:
        if word.startswith("--"):
            name = word
            found[name] = True
        else:
            found[name] = word if found[name] is True else f"{found[name]} {word}"
    return found


def test_values_read_back_equal_the_plan(answered):
    for plan, job, answer in answered[0]:
        given = launch_job(plan)
        read = target("megatron").read(settings_of(job["argv"]))
        for key, value in read.items():
            # what a dense model's experts are said to be is for Megatron's own check alone; of the
            # uniform method its number of layers is that of a checkpoint
            said = {
                "order": False,
                "recompute_method": False,
                "etp": given.scenario.model.moe is not None,
                "recompute": not given.layout.recompute_layers,  # counted: the block method
                "recompute_layers": given.layout.recompute_layers > 0,
            }
            if said.get(key, True):
                assert str(value) == str(given.value(key)).replace("True", "true").replace(
                    "False", "false"
                ), key
        for name, value in settings_of(job["argv"]).items():
            _, const, parsed = answer["read"][name]
            if value is True:
                assert parsed == const, name
            elif isinstance(parsed, list):
                assert parsed in (value.split(), [str(v) for v in eval_list(value)]), name
            else:
                assert parsed == value or float(parsed) == float(value), name


def eval_list(text):
    return eval(text) if set(text) <= set("[]()+*,0123456789") else []


def test_what_is_built_is_what_was_planned(answered):
    for plan, _, answer in answered[0]:
        job, config = launch_job(plan), answer["config"]
        layout, model = job.layout, job.scenario.model
        assert config["sequence_parallel"] == (layout.sp and layout.tp > 1)
        assert (config["virtual_pipeline_model_parallel_size"] or 1) == layout.vp
        assert answer["layout"] == chunk_layers(
            model.num_layers, layout, job.scenario.software.reserved_layers(model)
        )
        assert answer["args"]["data_parallel_size"] == layout.dp
        assert answer["num_microbatches"] == layout.num_microbatches
        if model.moe is not None:
            assert config["num_moe_experts"] == model.moe.num_experts
            assert answer["moe_layers"] == model.num_moe_layers


def test_groups_are_those_of_the_rank_table(answered):
    orders = Counter()
    for plan, job, answer in answered[0]:
        layout = plan.layout
        name = order_name(plan.rank_order, target("megatron"))
        orders[name] += 1
        ours = framework_groups(layout, target("megatron").orders[name])
        moe = scenario_from_document(plan.inputs, "plan").model.moe is not None
        for rank in job["ranks"]:
            theirs = answer["groups"][str(rank)]
            for group in GROUPS:
                if not moe and group in ("ep", "etp", "edp"):
                    continue
                row = next(row for row in ours[group].tolist() if rank in row)
                assert sorted(row) == theirs[group], (layout, name, rank, group)
    assert min(orders.values()) >= 20 and len(orders) == 2
