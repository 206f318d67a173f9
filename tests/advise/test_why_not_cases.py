"""Why not this layout: users' cases by id."""

from __future__ import annotations

import pytest

from planner import api
from planner.advise.why_not import why_not
from planner.problem.scenario import Search
from tests.advise.test_why_not import sparse
from tests.expert_scenarios import experts
from tests.scenarios import (
    small_model,
    small_scenario,
    small_software,
    small_topology,
    small_training,
)


def test_val_04_kv_heads_by_version() -> None:
    """modelscope/ms-swift#8219: 2 key/value heads at tp=8: core 0.15 refuses, 0.16 replicates."""
    model = small_model(num_attention_heads=8, num_key_value_heads=2)
    old = small_software(rules=("tp-divides-kv-heads",))
    new = small_software(rules=("kv-heads-replicate",))
    answer = why_not(small_scenario(8, model=model, software=old), "tp=8")
    (rule,) = answer.rules
    assert rule.id == "tp-divides-kv-heads" and "core 0.15 and earlier" in rule.source
    assert rule.nearest == ("tp=2",)
    assert why_not(small_scenario(8, model=model, software=new), "tp=8").verdict != "illegal"


def test_val_06_heads_and_the_node() -> None:
    """deepspeedai/DeepSpeed#3634: 52 heads on a node of 8: tp is 1, 2 or 4, not 8."""
    model = small_model(
        hidden_size=52 * 128, ffn_hidden_size=4 * 52 * 128, num_attention_heads=52,
        num_key_value_heads=52,
    )  # fmt: skip
    scenario = small_scenario(8, topology=small_topology((8, 2)), model=model)
    answer = why_not(scenario, "tp=8")
    assert [rule.id for rule in answer.rules] == ["tp-divides-heads"]
    assert answer.rules[0].nearest == ("tp=4",)
    # thirteen nodes: 13 divides the heads but not the node
    wide = small_scenario(
        104, topology=small_topology((8, 13)), model=model,
        training=small_training(global_batch_size=104),
    )  # fmt: skip
    assert why_not(wide, "tp=8").rules[0].nearest == ("tp=4", "tp=52") or (
        why_not(wide, "tp=8").rules[0].nearest == ("tp=4",)
    )


def test_val_10_a_pipeline_needs_its_microbatches() -> None:
    """pytorch/torchtitan#775, #784: fewer micro-batches than stages hang."""
    scenario = small_scenario(
        8, model=small_model(num_layers=8), training=small_training(global_batch_size=4),
        software=small_software(rules=("microbatches-fill-pipeline",)),
    )  # fmt: skip
    answer = why_not(scenario, "pp=8")
    (rule,) = answer.rules
    assert rule.id == "microbatches-fill-pipeline" and "torchtitan#775" in rule.source
    assert rule.nearest == ("pp=4",)


@pytest.mark.parametrize("ep", [4, 8])
def test_val_11_experts_are_carved_out_of_the_ranks(ep: int) -> None:
    """pytorch/torchtitan#4831: tp 2, cp 2, dp_shard 2 holds ep 4 and 8 on 8 ranks."""
    scenario = sparse(model=small_model(moe=experts(num_experts=8, expert_ffn_hidden_size=512)))
    answer = why_not(scenario, f"tp=2,cp=2,dp_shard=2,ep={ep}")
    assert answer.verdict in ("slower", "best")
    assert answer.other is not None and answer.other.layout is not None
    assert answer.other.layout.edp == 8 // (answer.other.layout.etp * ep)
    assert why_not(scenario, "tp=2,cp=2,dp_shard=2,ep=16").verdict == "illegal"


def test_val_14_batches_are_multiples() -> None:
    """verl-project/verl#1811: the batch is a multiple of mbs·dp."""
    answer = why_not(small_scenario(8, training=small_training(global_batch_size=24)), "mbs=5,dp=4")
    (rule,) = answer.rules
    assert rule.id == "batch-divides" and "verl#1811" in rule.source
    assert set(rule.nearest) == {"mbs=3", "mbs=6"}


def test_val_16_sequences_are_multiples_of_twice_cp() -> None:
    """Megatron-LM arguments.py: 8192 is one of 2·cp, 10000 (16 · 625) not of 2·16."""
    for length, legal in ((8192, True), (10000, False)):
        training = small_training(sequence_length=length, global_batch_size=16)
        answer = why_not(small_scenario(16, training=training), "cp=16")
        assert (answer.verdict != "illegal") == legal
        if not legal:
            assert "cp-divides-sequence" in {rule.id for rule in answer.rules}
            assert answer.nearest == {"cp": ("cp=8",)}


def test_val_01_the_ranks_experts_need() -> None:
    """NVIDIA-NeMo/Megatron-Bridge#6054: pp 8 · ep 32 needs 256 ranks, not 64."""
    scenario = small_scenario(
        64,
        topology=small_topology((64, 2)),
        model=small_model(num_layers=94, moe=experts(num_experts=128)),
        training=small_training(sequence_length=960, global_batch_size=64),
        software=small_software(dispatchers=("alltoall",), recompute=("none",)),
        search=Search(tp=(1,), cp=(1,), etp=(1,), mbs=(1,), vp=(1,)),
    )
    best = api.plan(scenario, 1)
    for pp, ep, legal in ((8, 32, False), (4, 32, False), (8, 8, True), (2, 32, True)):
        answer = why_not(scenario, {"pp": pp, "ep": ep}, best)
        assert (answer.verdict != "illegal") == legal, (pp, ep)
        if not legal:
            assert "experts-fit-ranks" in {rule.id for rule in answer.rules}
            assert answer.nearest is not None
            assert answer.nearest["ep"] == (f"ep={64 // pp}",)
            assert answer.nearest["pp"] == ("pp=2",)
