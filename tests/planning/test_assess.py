"""Assessments of one placed layout: parts of a plan against sums by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.cost.flops import executed_flops, model_flops
from planner.cost.memory import VERDICTS, verdict_index, worst_stage
from planner.cost.stages import layers_by_rank
from planner.cost.step import evaluate
from planner.layouts.grids import DENSE_GRID
from planner.layouts.layout import Layout
from planner.planning.assess import assess, economics, memory_report
from tests.oracles import innermost_splits, lossy_kinds, placed_layouts
from tests.scenarios import (
    BACKENDS,
    LOSSY,
    PEAK,
    accelerator,
    context,
    fabric,
    model,
    scenario,
    sized_for,
    software,
    topology,
    training,
    uniform_topology,
    unlimited_topology,
)

TIME_KEYS = [
    "compute_gemm", "compute_attention", "compute_memory_bound", "recompute", "loss", "tp", "cp",
    "ep", "pp", "dp", "optimizer", "offload", "host", "stage_imbalance", "bubble", "straggler",
    "unexplained",
]  # fmt: skip

LAYOUT = Layout(tp=4, cp=2, pp=2, dp_shard=2, dp_replicate=2, num_microbatches=6, mbs=1, sp=True)


@settings(deadline=None)
@given(placed_layouts(), lossy_kinds)
def test_mfu_is_at_most_hfu_is_at_most_one(row: Any, kind: tuple[str, str]) -> None:
    layout, split = row
    ctx = sized_for(LOSSY[kind], layout)
    found = assess(ctx, layout, split)
    assert 0 < found.mfu <= found.hfu <= 1
    budget = found.step_seconds * layout.num_ranks * ctx.peak_flops
    assert found.mfu == pytest.approx(model_flops(ctx) / budget, rel=1e-12)
    assert found.hfu == pytest.approx(float(executed_flops(ctx, layout)) / budget, rel=1e-12)


@settings(deadline=None)
@given(placed_layouts(num_tiers=2), st.sampled_from(BACKENDS))
def test_hfu_never_exceeds_one_where_nothing_is_lost(row: Any, attention: str) -> None:
    layout, split = row
    toy = model(num_layers=11, num_key_value_heads=2)
    ctx = context(topology=unlimited_topology(), model=toy, training=training(attention=attention))
    found = assess(sized_for(ctx, layout), layout, split)
    assert found.mfu <= found.hfu <= 1 + 1e-9


@settings(deadline=None)
@given(placed_layouts(), lossy_kinds)
def test_time_and_memory_are_the_formulas_in_plain_numbers(row: Any, kind: tuple[str, str]) -> None:
    layout, split = row
    ctx = sized_for(LOSSY[kind], layout)
    found = assess(ctx, layout, split)
    assert list(found.time) == TIME_KEYS
    assert all(type(value) is float for value in found.time.values())
    assert sum(found.time.values()) == pytest.approx(found.step_seconds, rel=1e-12)
    total = float(evaluate(ctx, layout, split).total)
    assert found.step_seconds == pytest.approx(total, rel=1e-12)
    _, peak = worst_stage(ctx, layout)
    report = found.memory
    assert report.peak_bytes == pytest.approx(float(peak), rel=1e-12)
    assert sum(report.terms.values()) == pytest.approx(report.peak_bytes, rel=1e-12)
    assert report.peak_bytes == max(row["peak_bytes"] for row in report.by_stage)
    assert report.by_stage[report.worst_stage]["peak_bytes"] == report.peak_bytes
    assert report.verdict == VERDICTS[int(verdict_index(ctx, layout, peak))]
    assert report.capacity_bytes == ctx.accelerator.hbm_bytes
    assert sum(row["layers"] for row in report.by_stage) == ctx.model.num_layers


def test_ideal_accelerator_is_used_in_full() -> None:
    """Written scores aside, HFU counts QKᵀ a second time and MFU does not."""
    ctx = sized_for(context(), Layout(num_microbatches=8))
    found = assess(ctx, Layout(num_microbatches=8), innermost_splits(Layout()))
    assert found.hfu == pytest.approx(1.0)
    assert found.mfu == pytest.approx(
        model_flops(ctx) / float(executed_flops(ctx, Layout())), rel=1e-9
    )
    assert found.mfu_bf16 == found.mfu


def test_fp8_utilisation_is_printed_against_bf16_too() -> None:
    layout = Layout(num_microbatches=8)
    ctx = sized_for(context(training=training(precision="fp8")), layout)
    found = assess(ctx, layout, innermost_splits(layout))
    assert found.mfu_bf16 == pytest.approx(2 * found.mfu)
    part = accelerator(peak_flops={"fp16": PEAK})
    ctx = sized_for(
        context(topology=topology(accelerator=part), training=training(precision="fp16")), layout
    )
    assert assess(ctx, layout, innermost_splits(layout)).mfu_bf16 is None


# ---------------------------------------------------------------- memory by stage


def test_heaviest_stage_of_named_layers() -> None:
    """NVIDIA-NeMo/Megatron-Bridge#5077: stages 1, 2, 2, 3, the last with the head."""
    toy = model(hidden_size=16, ffn_hidden_size=64, vocab_size=32, norm="layernorm")
    layout = Layout(pp=4, stage_layers=(1, 2, 2, 3), zero_stage=0, recompute="full", mbs=1)
    found = memory_report(context(model=toy), layout)
    assert found.worst_stage == 3
    assert [row["layers"] for row in found.by_stage] == [1, 2, 2, 3]
    assert found.terms["parameters"] == 2 * 9952
    assert found.terms["optimizer"] == 12 * 9952


def test_default_stages() -> None:
    ctx = context(model=model(num_layers=10))
    assert layers_by_rank(ctx.model.num_layers, Layout(pp=4)) == [2, 3, 3, 2]
    assert layers_by_rank(ctx.model.num_layers, Layout(pp=2, stage_layers=(4, 6))) == [4, 6]
    assert layers_by_rank(ctx.model.num_layers, Layout()) == [10]


# ---------------------------------------------------------------- groups


def test_groups_of_one_are_left_out_and_the_rest_in_order() -> None:
    ctx = sized_for(context(), LAYOUT)
    found = assess(ctx, LAYOUT, innermost_splits(LAYOUT)).groups
    assert list(found) == list(DENSE_GRID.groups)
    assert {name: group.members for name, group in found.items()} == {
        "tp": 4, "cp": 2, "shard": 4, "replicate": 2, "pp": 2,
    }  # fmt: skip
    some = Layout(tp=4, dp_shard=2, num_microbatches=6)
    assert list(assess(sized_for(context(), some), some, innermost_splits(some)).groups) == [
        "tp",
        "shard",
    ]
    alone = Layout(num_microbatches=6)
    assert assess(sized_for(context(), alone), alone, innermost_splits(alone)).groups == {}


def test_tensor_parallel_group_by_hand() -> None:
    """4 ranks, 6 micro-batches: 8 layers of 4 all-reduces over 64 tokens of 32 at 2 bytes."""
    layout = Layout(tp=4, num_microbatches=6)
    rate = 1e9
    links = uniform_topology(bytes_per_second=rate, efficiency=0.5, all_reduce_efficiency=0.5)
    ctx = sized_for(context(topology=links), layout)
    found = assess(ctx, layout, innermost_splits(layout))
    group = found.groups["tp"]
    num_bytes = 6 * 8 * 4 * 2 * 0.75 * 64 * 32 * 2
    flops = float(executed_flops(ctx, layout)) / 4
    assert group.bytes == pytest.approx(num_bytes)
    assert group.flops == pytest.approx(flops)
    assert group.intensity == pytest.approx(flops / num_bytes)
    assert group.busy_seconds == pytest.approx(num_bytes / (0.5 * rate))
    assert group.exposed_seconds == pytest.approx(found.time["tp"])
    assert group.exposed_intensity == pytest.approx(group.intensity)  # nothing hides
    assert group.latency_seconds == 0.0
    assert group.busbw == pytest.approx(0.5 * rate)
    assert group.split == {"tier0": 4.0, "tier1": 1.0}
    assert list(group.tiers) == ["tier0"]
    # the ridge is the peak over the link's rate, as on paper
    assert group.tiers["tier0"]["ridge"] == PEAK / rate
    assert group.tiers["tier0"]["bytes"] == pytest.approx(num_bytes)
    assert group.tiers["tier0"]["busy_seconds"] == pytest.approx(group.busy_seconds)


def test_group_over_nodes_names_both_tiers() -> None:
    """2 in each of 2 nodes: every rank's NIC carries half of what NVLink does."""
    layout = Layout(dp_shard=4, num_microbatches=2, sp=False)
    ctx = sized_for(context(topology=topology([fabric(), fabric(bytes_per_second=0.1)])), layout)
    split = innermost_splits(layout) | {"shard": [2.0, 2.0]}
    group = assess(ctx, layout, split).groups["shard"]
    assert list(group.tiers) == ["tier0", "tier1"]
    assert group.tiers["tier1"]["bytes"] == pytest.approx(group.tiers["tier0"]["bytes"] / 2)
    assert group.bytes == group.tiers["tier0"]["bytes"]
    assert group.tiers["tier1"]["ridge"] == pytest.approx(PEAK / 0.1)
    assert group.wall == "bandwidth"


@pytest.mark.parametrize(
    ("rate", "hop", "wall"),
    [(1e15, 0.0, "compute"), (1.0, 0.0, "bandwidth"), (1e15, 1.0, "latency")],
)
def test_wall_is_the_largest_of_three(rate: float, hop: float, wall: str) -> None:
    layout = Layout(tp=4, num_microbatches=2)
    links = uniform_topology(bytes_per_second=rate, hop_seconds=hop)
    ctx = sized_for(context(topology=links), layout)
    assert assess(ctx, layout, innermost_splits(layout)).groups["tp"].wall == wall


def test_hidden_traffic_raises_the_exposed_intensity() -> None:
    """Three quarters of a boundary's sends hide: four times the FLOPs per exposed byte."""
    layout = Layout(pp=2, num_microbatches=4, overlap="pp")
    ctx = sized_for(context(software=software({"pp_overlap_fraction": 0.75})), layout)
    group = assess(ctx, layout, innermost_splits(layout)).groups["pp"]
    assert group.exposed_seconds == pytest.approx(group.busy_seconds / 4)
    assert group.intensity is not None
    assert group.exposed_intensity == pytest.approx(4 * group.intensity)
    all_hidden = sized_for(context(software=software({"pp_overlap_fraction": 1.0})), layout)
    assert (
        assess(all_hidden, layout, innermost_splits(layout)).groups["pp"].exposed_intensity is None
    )


def test_shards_and_replicas_share_the_exposed_seconds() -> None:
    layout = Layout(dp_shard=4, dp_replicate=2, num_microbatches=4)
    ctx = sized_for(context(), layout)
    found = assess(ctx, layout, innermost_splits(layout))
    shard, replicate = found.groups["shard"], found.groups["replicate"]
    assert shard.exposed_seconds + replicate.exposed_seconds == pytest.approx(found.time["dp"])
    assert shard.exposed_seconds / replicate.exposed_seconds == pytest.approx(
        shard.busy_seconds / replicate.busy_seconds
    )


@settings(deadline=None)
@given(placed_layouts(), lossy_kinds)
def test_groups_are_whatever_the_layout(row: Any, kind: tuple[str, str]) -> None:
    layout, split = row
    ctx = sized_for(LOSSY[kind], layout)
    found = assess(ctx, layout, split)
    for name, group in found.groups.items():
        assert group.members == round(float(np.prod(split[name])))
        assert set(group.tiers) >= {tier for tier, size in group.split.items() if size > 1}
        if group.bytes:
            assert group.intensity == pytest.approx(group.flops / group.bytes)
            assert group.exposed_intensity is None or group.exposed_intensity > 0
        assert 0 <= group.exposed_seconds <= group.busy_seconds * (1 + 1e-9), name


# ---------------------------------------------------------------- economics


def test_economics_by_hand() -> None:
    job = scenario(
        num_accelerators=16,
        training=training(total_tokens=512.0 * 7200),
        price_per_accelerator_hour=3.0,
    )
    # 8 sequences of 64 tokens in half a second: 1024 tokens a second, 3600 seconds in all
    assert economics(job, 0.5) == {
        "tokens_per_second": 1024.0,
        "tokens_per_second_per_accelerator": 64.0,
        "days": pytest.approx(1 / 24),
        "accelerator_hours": pytest.approx(16.0),
        "cost": pytest.approx(48.0),
    }


def test_economics_without_tokens_or_price() -> None:
    found = economics(scenario(price_per_accelerator_hour=3.0), 0.5)
    assert found["tokens_per_second"] == 1024.0
    assert found["days"] is found["accelerator_hours"] is found["cost"] is None
    found = economics(scenario(training=training(total_tokens=1e6)), 0.5)
    assert found["days"] is not None
    assert found["cost"] is None


def test_place_changes_time_and_not_memory() -> None:
    ctx = sized_for(context(topology=topology([fabric(), fabric(bytes_per_second=0.01)])), LAYOUT)
    near = assess(ctx, LAYOUT, innermost_splits(LAYOUT))
    far = assess(ctx, LAYOUT, innermost_splits(LAYOUT) | {"tp": [2.0, 2.0]})
    assert far.step_seconds > near.step_seconds
    assert far.memory == near.memory
