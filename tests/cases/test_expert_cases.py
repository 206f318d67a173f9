"""What users measured of models with experts, by the ids of their cases.

Tolerances are the cases' own. Where a source leaves something open (the sequence, the number of
layers) the test says what it assumes.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from planner import api
from planner.planning.plan import Plan
from planner.problem.blocks import MoE
from planner.problem.model import Model
from planner.problem.scenario import Scenario
from tests.expert_scenarios import EVEN, shipped_scenario

GIB = 2**30


def evaluated(scenario: Scenario, layout: str) -> Plan:
    return api.evaluate(scenario, layout)


def seconds(scenario: Scenario, layout: str) -> float:
    found = evaluated(scenario, layout).step_seconds
    assert found is not None
    return found


def qwen3_30b(topology: str, num: int, software: str = "megatron-core", **changes: Any) -> Scenario:
    return shipped_scenario("qwen3-30b-a3b", topology, num, software, **changes)


def wide_model() -> Model:
    """d 6144, 4 of 128 experts; 24 layers and experts of 2048 are ours."""
    return Model(
        name="moe-d6144", source="marin-community/marin#7201", num_layers=24, hidden_size=6144,
        ffn_hidden_size=16384, num_attention_heads=48, num_key_value_heads=8, vocab_size=128256,
        gated_mlp=True, tied_embeddings=False, norm="rmsnorm",
        moe=MoE(num_experts=128, top_k=4, expert_ffn_hidden_size=2048, num_shared_experts=1),
    )  # fmt: skip


@pytest.mark.parametrize("software", ["megatron-core", "torchtitan"])
def test_thr_20_experts_spread_over_a_rack_beat_shards(software: str) -> None:
    """marin-community/marin#7201: EP 64 at 27.8 % MFU, FSDP over 64 with EP 1 at 19.4 %."""
    scenario = shipped_scenario(
        "qwen3-30b-a3b", "gb200-nvl72", 64, software, global_batch_size=256
    ).replace(model=wide_model())
    spread, shards = (evaluated(scenario, f"ep={ep},mbs=1") for ep in (64, 1))
    assert spread.mfu is not None and shards.mfu is not None
    assert spread.mfu > 1.3 * shards.mfu
    assert spread.groups["ep"].split == {
        "nvlink": 64.0,
        **dict.fromkeys(list(spread.fill)[1:], 1.0),
    }


@pytest.mark.parametrize("dispatcher", ["flex", "alltoall"])
def test_topo_03_two_machines_two_answers(dispatcher: str) -> None:
    """NVIDIA-NeMo/Megatron-Bridge#6043: EP 64 belongs in a rack; in nodes of eight EP 8 does."""
    times = {}
    for topology in ("gb200-nvl72", "dgx-b200"):
        scenario = shipped_scenario("qwen3-30b-a3b", topology, 64, global_batch_size=512)
        for ep in (8, 64):
            layout = f"ep={ep},mbs=1,dispatcher={dispatcher}"
            times[topology, ep] = seconds(scenario.replace(model=wide_model()), layout)
    assert times["gb200-nvl72", 64] < times["gb200-nvl72", 8]
    assert times["dgx-b200", 8] < times["dgx-b200", 64]


def test_thr_22_overlapping_exchanges_between_nodes() -> None:
    """NVIDIA-NeMo/Megatron-Bridge#5094: 41.25 s by NCCL's all-to-all, less by 10 to 30 % beside."""
    scenario = qwen3_30b("dgx-h100", 16, **EVEN)
    layout = "ep=16,mbs=1,dispatcher=alltoall,overlap=dp+pp"
    alone, beside = seconds(scenario, layout), seconds(scenario, layout + "+ep")
    assert 1.10 <= alone / beside <= 1.30
    assert alone == pytest.approx(41.25, rel=0.15)
    spent = evaluated(scenario, layout).time
    assert spent is not None and spent["ep"] > 0.3 * alone


def test_thr_25_small_experts_one_sequence_at_a_time() -> None:
    """yanring/Megatron-MoE-ModelZoo#7: 7 % MFU on 8 B200, by all-to-all and without graphs.

    Of four sequences, by HybridEP and with graphs 25 % (Megatron-Bridge#4439); sequences of 4096
    are ours.
    """
    slow = evaluated(
        qwen3_30b("dgx-b200", 8, global_batch_size=64, **EVEN),
        "ep=8,mbs=1,dispatcher=alltoall,overlap=dp",
    )
    assert slow.mfu_bf16 is not None and slow.time is not None
    assert 0.05 < slow.mfu_bf16 < 0.15
    # what it waits for: launches, exchanges, and matmuls of few tokens an expert
    waits = sorted(slow.time, key=lambda term: -(slow.time or {})[term])
    assert {"host", "ep"} <= set(waits[:4])
    fast = evaluated(
        qwen3_30b("dgx-b200", 8, global_batch_size=512, cuda_graphs="full", **EVEN),
        "ep=8,mbs=4,dispatcher=flex,overlap=dp",
    )
    assert fast.mfu_bf16 is not None
    assert fast.mfu_bf16 == pytest.approx(0.25, abs=0.04)


def test_thr_32_memory_falls_with_shards_then_flattens() -> None:
    """NousResearch/torchtitan#19, EP 8 in nodes of 8 B200: 29.2, 14.2, 7.1 GiB less for 2, 4, 8.

    They are 16 bytes of every parameter over all ranks, 455 GiB · (1/N₁ − 1/N₂).
    """
    counts = (8, 16, 32, 64, 128)
    peaks = []
    for num in counts:
        scenario = qwen3_30b("dgx-b200", num, "torchtitan", global_batch_size=4 * num, **EVEN)
        memory = evaluated(scenario, "ep=8,mbs=4,zero_stage=3").memory
        assert memory is not None
        peaks.append(memory.peak_bytes / GIB)
    drops = [more - less for more, less in pairwise(peaks)]
    assert drops[:3] == pytest.approx([29.2, 14.2, 7.1], rel=0.05)
    law = [455 * (1 / few - 1 / many) for few, many in pairwise(counts)]
    assert drops == pytest.approx(law, rel=0.05)
    assert peaks == pytest.approx([167.9, 138.8, 124.6, 117.5, 114.8], rel=0.1)
