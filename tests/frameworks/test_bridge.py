"""Exports to Megatron-Bridge against its own ConfigContainer, with stand-ins: tier 2."""

from __future__ import annotations

from collections import Counter

import pytest
from ruamel.yaml import YAML

from planner.errors import ExportError
from planner.layouts.layout import Layout
from planner.planning.export import export_plan, launch_job
from tests.parsers.harness import ask, folder
from tests.parsers.plans import plan_of, random_plans, scenario

CHOICES = (
    ("llama3-8b", 16, 32, "bf16"), ("mixtral-8x7b", 32, 64, "bf16"),
    ("llama3-70b", 32, 64, "fp8"), ("llama3-405b", 64, 64, "mxfp8"),
)  # fmt: skip


def overrides(plan):
    return YAML(typ="safe").load(export_plan(plan, "megatron-bridge")["bridge-overrides.yaml"])


def test_the_overrides_of_a_plan():
    layout = Layout(tp=4, pp=4, dp_shard=2, vp=3, mbs=1, num_microbatches=32, sp=True,
                    recompute="selective", overlap="tp+dp+pp")  # fmt: skip
    given = scenario("llama3-8b", 32, 64, "bf16", "nemo")
    found = overrides(plan_of(given, layout, ("tp", "cp", "pp", "dp")))
    assert found["mixed_precision"] == "bf16_mixed"
    assert found["dist"] == {"use_tp_pp_dp_mapping": True}
    assert found["train"] == {"micro_batch_size": 1, "global_batch_size": 64}
    assert found["ddp"]["overlap_param_gather"] is True
    assert found["model"]["recompute_modules"] == ["core_attn"]
    assert found["model"]["virtual_pipeline_model_parallel_size"] == 3
    assert found["model"]["pipeline_model_parallel_layout"] == "Et*2|t*2|(t*3|)*8t*2|t*2L"
    assert found["model"]["seq_length"] == found["dataset"]["seq_length"] == 2048


def test_the_first_layers_of_every_chunk_are_a_block():
    layout = Layout(tp=4, pp=4, dp_shard=2, mbs=1, num_microbatches=32, sp=True,
                    recompute="full", recompute_layers=3, overlap="tp+dp+pp")  # fmt: skip
    given = scenario("llama3-8b", 32, 64, "bf16", "nemo")
    found = overrides(plan_of(given, layout, ("tp", "cp", "pp", "dp")))["model"]
    assert [found[f"recompute_{key}"] for key in ("granularity", "method", "num_layers")] == [
        "full", "block", 3,
    ]  # fmt: skip


@pytest.mark.parsers
def test_random_plans_are_validated_and_read_back():
    root = folder("bridge")
    jobs, refused = [], Counter()
    for drawn in random_plans(CHOICES, "nemo", 300, 6, target_name="megatron-bridge"):
        if len(jobs) == 100:
            break
        try:
            found = overrides(drawn)
        except ExportError as error:
            refused.update(reason.partition(";")[0][:50] for reason in error.reasons)
            continue
        model, moe = launch_job(drawn).scenario.model, launch_job(drawn).scenario.model.moe
        built = {
            "num_layers": model.num_layers, "hidden_size": model.hidden_size,
            "ffn_hidden_size": model.ffn_hidden_size, "seq_length": 2048,
            "num_attention_heads": model.num_attention_heads,
            "num_query_groups": model.num_key_value_heads, "add_bias_linear": False,
            "gradient_accumulation_fusion": False,
        }  # fmt: skip
        if moe is not None:
            built |= {"moe_grouped_gemm": True, "num_moe_experts": moe.num_experts,
                      "moe_router_topk": moe.top_k,
                      "moe_ffn_hidden_size": moe.expert_ffn_hidden_size}  # fmt: skip
        scenario_ = launch_job(drawn).scenario
        major = 10 if "b200" in scenario_.topology.accelerator.name else 9
        jobs.append((drawn, {"overrides": found, "world_size": scenario_.num_accelerators,
                             "model": built, "capability": major}))  # fmt: skip
    answers = ask(
        "bridge_driver.py", "bridge", [job for _, job in jobs], BRIDGE_ROOT=f"{root}/bridge"
    )
    assert len(answers) == 100, refused
    assert Counter(answer.get("error", "")[:150] for answer in answers) == {"": 100}
    for (drawn, job), answer in zip(jobs, answers, strict=True):
        for name, value in answer["values"].items():
            table, _, key = name.partition(".")
            expected = job["overrides"][table][key]
            assert value == expected or str(value) == str(expected), (name, drawn.layout)
        assert answer["data_parallel_size"] == drawn.layout.dp
