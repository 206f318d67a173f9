"""Cases of users that a check answers, by their ids."""

from __future__ import annotations

import json

import pytest

import planner
from planner.report.text.check import check_report
from planner.report.text.pieces import plain_text


def scenario(model, topology, count, **more):
    return planner.load_scenario(
        "llama3-8b-h100x8",
        {"model": model, "topology": topology, "num_accelerators": str(count),
         "training.global_batch_size": "256", "training.sequence_length": "4096", **more},
    )  # fmt: skip


@pytest.fixture(autouse=True)
def searched_where_asked(request):
    """Without the search for a better layout, but where the case is about it."""
    if "topo_03" not in request.node.name:
        request.getfixturevalue("no_search")


def megatron(given, flags, batch=256, **more):
    text = f"--micro-batch-size 1 --global-batch-size {batch} --bf16 --use-distributed-optimizer "
    return planner.check(text + flags, given, target="megatron", **more)


def rules(found):
    return [error.rule for error in found.rules]


QWEN = "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split " \
    "--expert-tensor-parallel-size 1 --moe-token-dispatcher-type alltoall"  # fmt: skip


@pytest.mark.parametrize(
    ("pp", "ep", "valid"), [(8, 32, False), (4, 32, False), (8, 8, True), (2, 32, True)]
)
def test_val_01_recipes_that_need_more_ranks_than_they_are_advertised_for(pp, ep, valid):
    text = f"""#!/bin/bash
#SBATCH --nodes=16
#SBATCH --gpus-per-node=4
srun python pretrain_gpt.py --micro-batch-size 1 --global-batch-size 256 --bf16 {QWEN} \\
  --use-distributed-optimizer \\
  --pipeline-model-parallel-size {pp} --expert-model-parallel-size {ep}
"""
    found = planner.check(text, scenario("qwen3-235b-a22b", "gb200-nvl72", 64))
    assert found.num_accelerators == 64 and ("experts-fit-ranks" in rules(found)) is not valid
    if valid:
        assert rules(found) == []
        return
    (error,) = (error for error in found.rules if error.rule == "experts-fit-ranks")
    assert f"ep={64 // pp} with pp={pp}" in error.nearest and "pp=2 with ep=32" in error.nearest
    assert found.verdict == "illegal" and not found.runs
    assert any(f"etp·ep = 1·{ep} = {ep}, to divide" in line for line in found.products)


@pytest.mark.parametrize("advertised", [64, 128, 256])
def test_val_01_the_script_s_count_is_the_one_that_is_linted(advertised):
    text = f"""#SBATCH --nodes={advertised // 4}
#SBATCH --ntasks-per-node=4
srun python pretrain_gpt.py --micro-batch-size 1 --global-batch-size 512 --bf16 {QWEN} \\
  --use-distributed-optimizer \\
  --pipeline-model-parallel-size 8 --expert-model-parallel-size 32
"""
    found = planner.check(text, scenario("qwen3-235b-a22b", "gb200-nvl72", 64))
    assert found.num_accelerators == advertised
    assert ("experts-fit-ranks" in rules(found)) is (advertised < 256)
    said = {item.key: item for item in found.contradictions}
    assert ("num_accelerators" in said) is (advertised != 64)


@pytest.mark.parametrize(
    ("tp", "pp", "ep", "etp"), [(1, 2, 2, None), (4, 1, 4, 1), (4, 1, 1, None)]
)
def test_val_03_derived_products_are_shown_and_etp_inherits_tp(tp, pp, ep, etp):
    flags = f"--tensor-model-parallel-size {tp} --pipeline-model-parallel-size {pp} " \
        f"--expert-model-parallel-size {ep} --sequence-parallel"  # fmt: skip
    flags += "" if etp is None else f" --expert-tensor-parallel-size {etp}"
    found = megatron(scenario("qwen3-30b-a3b", "dgx-h100", 4), flags)
    inherited = tp if etp is None else etp
    assert found.layout.etp == inherited
    assert any(f"etp·ep = {inherited}·{ep}" in line for line in found.products)
    told = [item.text for item in found.defaults if item.subject == "etp"]
    assert bool(told) is (etp is None and tp > 1)


def test_val_04_key_value_heads_below_tp_hang_on_the_framework_s_version():
    flags = "--tensor-model-parallel-size 8 --sequence-parallel --num-layers 32 " \
        "--hidden-size 4096 --num-attention-heads 32 --group-query-attention " \
        "--num-query-groups 2 --swiglu --ffn-hidden-size 14336"  # fmt: skip
    new = megatron(scenario("llama3-8b", "dgx-h100", 8), flags)
    assert rules(new) == []
    old = megatron(scenario("llama3-8b", "dgx-h100", 8, software="megatron-2021"),
                   flags.replace("--sequence-parallel ", ""))  # fmt: skip
    assert "tp-divides-kv-heads" in rules(old) and old.software == "megatron-2021"


def test_val_06_heads_that_tp_does_not_divide():
    found = megatron(
        scenario("llama2-13b", "dgx-a100", 8),
        "--tensor-model-parallel-size 8 --sequence-parallel --num-layers 60 --hidden-size 6656 "
        "--num-attention-heads 52 --ffn-hidden-size 17920 --swiglu",
    )
    (error,) = (error for error in found.rules if error.rule == "tp-divides-heads")
    assert error.nearest == ("tp=4", "tp=13") and "DeepSpeed#3634" in error.source
    config = {"train_batch_size": 64, "train_micro_batch_size_per_gpu": 1,
              "tensor_parallel": {"autotp_size": 8}, "bf16": {"enabled": True}}  # fmt: skip
    given = scenario("llama2-13b", "dgx-a100", 8)  # 40 heads: 8 divides them
    assert rules(planner.check(json.dumps(config), given)) == []


def test_val_07_a_pipeline_never_loses_layers():
    found = megatron(
        scenario("gpt-22b", "dgx-a100", 8, **{"training.sequence_length": "2048"}),
        "--pipeline-model-parallel-size 4 --num-layers 30 --hidden-size 1024 "
        "--num-attention-heads 16 --position-embedding-type rope",
    )
    (error,) = (error for error in found.rules if error.rule == "stages-even")
    assert "pp=3" in error.nearest and "pp=5" in error.nearest
    layout = error.nearest[-1].rpartition(" ")[2]
    assert layout == "Et*7|t*8|t*8|t*7L"
    again = megatron(
        scenario("gpt-22b", "dgx-a100", 8, **{"training.sequence_length": "2048"}),
        "--pipeline-model-parallel-size 4 --num-layers 30 --hidden-size 1024 "
        f"--num-attention-heads 16 --position-embedding-type rope "
        f"--pipeline-model-parallel-layout '{layout}'",
    )
    assert again.rules == () and sum(again.plan.layout.stage_layers) == 30
    lost = megatron(
        scenario("gpt-22b", "dgx-a100", 8, **{"training.sequence_length": "2048"}),
        "--pipeline-model-parallel-size 4 --num-layers 30 --hidden-size 1024 "
        "--num-attention-heads 16 --pipeline-model-parallel-layout 'Et*7|t*7|t*7|t*7L'",
    )
    assert rules(lost) == ["stage-layers"]


def titan(given, flags, **more):
    return planner.check(f"torchrun train.py --compile.enable {flags}", given,
                         target="torchtitan", **more)  # fmt: skip


@pytest.mark.parametrize(("local", "runs"), [(4, False), (8, True), (12, True), (3, False)])
def test_val_10_torchtitan_hangs_with_fewer_micro_batches_than_stages(local, runs):
    given = scenario("llama3-8b", "dgx-h100", 8, software="torchtitan")
    text = f"--parallelism.pipeline_parallel_degree 8 --training.local_batch_size {local}"
    found = planner.check(f"{text} --compile.enable", given, target="torchtitan")
    assert ("microbatches-fill-pipeline" in rules(found)) is not runs
    halves = planner.check(f"{text} --compile.enable "
                           "--parallelism.pipeline_parallel_microbatch_size 8", given)  # fmt: skip
    assert ("local-batch-divides" in rules(halves)) is bool(local % 8)


@pytest.mark.parametrize("ep", [4, 8, 3, 16])
def test_val_11_experts_of_torchtitan_are_carved_out_of_the_ranks(ep):
    given = scenario("qwen3-30b-a3b", "dgx-h100", 8, software="torchtitan")
    found = titan(
        given, "--nproc_per_node 8 --parallelism.tensor_parallel_degree 2 "
        "--parallelism.context_parallel_degree=2 --parallelism.data-parallel-shard-degree 2 "
        f"--parallelism.expert_parallel_degree {ep} --training.local_batch_size 1",
    )  # fmt: skip
    assert found.layout.dp == 2 and "world-size" not in rules(found)
    if ep in (4, 8):
        assert rules(found) == [] and found.layout.edp == 8 // ep
    else:
        assert {"ep-divides-experts", "experts-fit-ranks"} & set(rules(found))


def test_val_13_one_process_is_not_enough_for_two_ranks():
    given = scenario("llama3-8b", "dgx-h100", 8)
    text = "torchrun pretrain_gpt.py --micro-batch-size 1 --global-batch-size 8 --bf16 " \
        "--use-distributed-optimizer --context-parallel-size 2"  # fmt: skip
    found = planner.check(text, given)
    assert found.num_accelerators == 1 and rules(found) == ["world-size"]
    whole = planner.check(text.replace("torchrun", "torchrun --nproc-per-node=8"), given)
    assert whole.num_accelerators == 8 and rules(whole) == []


@pytest.mark.parametrize(
    ("flags", "rule"),
    [
        ("--global-batch-size 250", "batch-divides"),
        ("--global-batch-size 256 --eval-global-batch-size 12", "eval-batch-divides"),
        ("--global-batch-size 256 --eval-micro-batch-size 24", "eval-batch-divides"),
        ("--global-batch-size 256 --eval-global-batch-size 16", None),
    ],
)
def test_val_14_batches_of_training_and_validation_divide(flags, rule):
    found = planner.check(f"--micro-batch-size 1 --bf16 --use-distributed-optimizer {flags}",
                          scenario("llama3-8b", "dgx-h100", 8), target="megatron")  # fmt: skip
    assert rules(found) == ([] if rule is None else [rule])
    if rule == "eval-batch-divides" and "global-batch-size 12" in flags:
        assert found.rules[0].nearest == (
            "--eval-global-batch-size=8", "--eval-global-batch-size=16"
        )  # fmt: skip


def test_val_15_hierarchical_context_parallelism_needs_its_sizes():
    flags = "--context-parallel-size 8 --cp-comm-type a2a+p2p"
    found = megatron(scenario("llama3-8b", "dgx-h100", 16), flags)
    (error,) = found.rules
    assert error.rule == "cp-hierarchical-sizes" and "Bridge#2665" in error.source
    assert error.nearest[-1] == "--hierarchical-context-parallel-sizes 4 2"
    given = megatron(scenario("llama3-8b", "dgx-h100", 16),
                     f"{flags} --hierarchical-context-parallel-sizes 4 2")  # fmt: skip
    assert given.rules == ()
    assert given.layout.cp_kind == "hierarchical" and given.layout.cp_a2a == 4
    wrong = megatron(scenario("llama3-8b", "dgx-h100", 16),
                     f"{flags} --hierarchical-context-parallel-sizes 4 4")  # fmt: skip
    assert "cp-hierarchical-sizes" in rules(wrong)


MIXTRAL = "--expert-model-parallel-size 8 --moe-token-dispatcher-type alltoall"


@pytest.mark.parametrize(
    ("model", "flags", "rule"),
    [
        ("llama3-8b", "--context-parallel-size 8 --seq-length 8192", None),
        ("llama3-8b", "--context-parallel-size 8 --seq-length 10008", "cp-divides-sequence"),
        ("llama3-8b", "--pipeline-model-parallel-size 2 --cpu-offloading",
         "offload-needs-one-stage"),
        ("llama3-8b", "--cpu-offloading", None),
        ("mixtral-8x7b", f"{MIXTRAL} --overlap-moe-expert-parallel-comm "
         "--recompute-granularity selective --recompute-modules moe",
         "ep-overlap-excludes-moe-recompute"),
        ("mixtral-8x7b", f"{MIXTRAL} --pipeline-model-parallel-size 2 "
         "--overlap-moe-expert-parallel-comm", "ep-overlap-needs-virtual-stages"),
        ("mixtral-8x7b", f"{MIXTRAL} --pipeline-model-parallel-size 2 "
         "--num-layers-per-virtual-pipeline-stage 8 --overlap-moe-expert-parallel-comm", None),
    ],
)  # fmt: skip
def test_val_16_named_rules_of_megatron(model, flags, rule):
    # the case says 10000, which is 16·625
    found = megatron(scenario(model, "dgx-h100", 16), flags)
    assert rules(found) == ([] if rule is None else [rule])
    assert all(error.source for error in found.rules)


def test_val_16_sequence_parallelism_without_tp_is_off_and_said():
    found = megatron(scenario("llama3-8b", "dgx-h100", 8), "--sequence-parallel")
    assert found.layout.sp is False and found.rules == ()
    assert [item.subject for item in found.defaults if "turns sequence" in item.text] == ["sp"]


def test_topo_01_experts_across_racks_are_flagged():
    flags = f"{QWEN} --expert-model-parallel-size 128"
    found = megatron(scenario("qwen3-235b-a22b", "gb200-nvl72", 256), flags, batch=1024)
    (crossing,) = (item for item in found.crossings if item.group == "ep")
    assert crossing.members == 128 and crossing.inside <= 72 and len(crossing.tiers) > 1
    inside = megatron(scenario("qwen3-235b-a22b", "gb200-nvl72", 256),
                      f"{QWEN} --expert-model-parallel-size 32", batch=1024)  # fmt: skip
    assert not any(item.group == "ep" for item in inside.crossings)


def test_topo_03_a_recipe_of_another_machine():
    """EP64 is one NVL72 domain's; on NVLink domains of 8 it crosses, and less of it is better."""
    flags = f"{QWEN.replace('alltoall', 'flex')} --expert-model-parallel-size 64"
    few = {"search.vp": "1", "search.cp": "1", "search.etp": "1"}
    rack = megatron(scenario("qwen3-30b-a3b", "gb200-nvl72", 64, **few), flags)
    assert not any(item.group == "ep" for item in rack.crossings)
    nodes = megatron(scenario("qwen3-30b-a3b", "dgx-b200", 64, **few), flags)
    (crossing,) = (item for item in nodes.crossings if item.group == "ep")
    assert crossing.inside == 8 and not crossing.best_too
    assert nodes.better.layout.ep <= 8 < nodes.layout.ep


@pytest.mark.parametrize("width", [80, 120])
def test_oth_03_the_report_prints_what_mfu_is_divided_by(width):
    found = megatron(scenario("llama3-8b", "dgx-h100", 8), "--tensor-model-parallel-size 2 "
                     "--sequence-parallel --recompute-activations", batch=256)  # fmt: skip
    assert "of 989.5 TFLOP/s dense BF16" in plain_text(check_report(found), width)


def test_oth_08_accelerators_used_and_given_are_shown():
    found = megatron(scenario("llama3-8b", "dgx-h100", 8), "")
    assert "tp·cp·pp·dp = 1·1·1·8 = 8 of 8 accelerators" in found.products
