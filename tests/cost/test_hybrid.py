"""Models with a layer pattern: FLOPs, memory, traffic and steps by hand, table against numbers."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.cost.activations import layer_activations, working_bytes
from planner.cost.context import CostContext
from planner.cost.flops import executed_flops, expert_share, forward_flops_per_token, model_flops
from planner.cost.layers import layer_kinds, num_layers
from planner.cost.memory import worst_stage
from planner.cost.model_states import layer_parameters, stage_parameters
from planner.cost.overheads import kernel_launches
from planner.cost.passes import ForwardBackward
from planner.cost.recompute import RecomputedShares
from planner.cost.stages import candidate_stages, rank_stages, stage_of
from planner.cost.statespace import scan_bytes, scan_flops, scan_widths
from planner.cost.step import StepTime, evaluate
from planner.layouts.grids import EXPERT_GRID
from planner.layouts.keys import RECOMPUTE
from planner.layouts.layout import Layout, LayoutTable
from planner.problem.blocks import Block
from tests.expert_scenarios import EVEN, experts, sparse_context, sparse_model
from tests.hybrid_scenarios import (
    PATTERN,
    hybrid_context,
    hybrid_model,
    mamba,
    shipped_hybrid,
)
from tests.oracles import (
    assert_table_equals_numbers,
    innermost_splits,
    moved,
    placed_expert_layouts,
    step_of_costs,
)
from tests.scenarios import (
    PEAK,
    accelerator,
    context,
    model,
    sized_for,
    training,
    unlimited_topology,
)
from tests.search.monotone import first_decrease

S, H, V, E = 64, 32, 64, 2  # tokens of a sequence, sizes of the toy, bytes of an element
TERMS = tuple(f.name for f in fields(StepTime))
SCAN, PROJECTIONS = 7 * 64 * 4, H * 152 + 64 * H

# ---------------------------------------------------------------- FLOPs


def test_flops_of_a_hybrid_by_hand() -> None:
    """Per token: three scans, one layer that attends to half of 64 tokens, MLPs, a router and two
    of eight experts."""
    attention, mlp = H * (32 + 2 * 32) + 32 * H, 2 * H * 128
    expert = 8 * H + 2 * 2 * H * 64
    matmuls = 3 * PROJECTIONS + attention + 2 * mlp + 2 * expert
    found = forward_flops_per_token(hybrid_context())
    assert found == pytest.approx((2 * matmuls, S * 2 * 32, 3 * SCAN, 2 * H * V))
    ctx = hybrid_context()
    assert model_flops(ctx) == pytest.approx(3 * 8 * S * sum(found))
    assert expert_share(ctx) == pytest.approx(2 * 2 * 2 * H * 64 / matmuls)


def test_prediction_layers_of_a_hybrid_count_as_their_letters() -> None:
    """One that attends and one with experts, the matmul that joins them, a head."""
    toy = hybrid_model(mtp_layers=1, mtp_pattern="*E")
    plain, more = (forward_flops_per_token(hybrid_context(toy=t)) for t in (hybrid_model(), toy))
    extra = H * (32 + 2 * 32) + 32 * H + 8 * H + 2 * 2 * H * 64
    assert more.layers - plain.layers == pytest.approx(2 * extra)
    assert more.attention == pytest.approx(2 * plain.attention)
    assert more.scans == pytest.approx(plain.scans)
    assert more.head - plain.head == pytest.approx(2 * H * V + 2 * 2 * H * H)


def test_scans_run_again_with_their_layers() -> None:
    ctx = hybrid_context()
    flops = {kind: float(executed_flops(ctx, Layout(recompute=kind))) for kind in RECOMPUTE}
    scans = 8 * S * 3 * SCAN
    attention = 8 * S * S * 2 * 32
    head = 3 * 8 * S * 2 * H * V
    matmuls = flops["none"] - 3.5 * attention - 3 * scans - head
    assert flops["full"] == pytest.approx(4 / 3 * matmuls + 4.5 * attention + 4 * scans + head)
    for kind in ("selective", "act", "act_norm", "moe"):
        without = flops[kind] - scans * 3
        assert without == pytest.approx(
            float(executed_flops(hybrid_context(toy=_scanless()), Layout(recompute=kind)))
            + 3 * 8 * S * 2 * 3 * PROJECTIONS
        )


def _scanless() -> Any:
    """The toy without its state-space layers."""
    return hybrid_model(PATTERN.replace("M", ""))


# ---------------------------------------------------------------- memory


ACTIVATIONS = {
    # the layer's input, the norm's output
    "mamba": 64 + 64 + 2 * 152 + 2 * 2 * 64 + 2 * 64,  # projected; y, the norm's input, its output
    "attention": 64 + 64 + 2 * 3 * 32 + 2 * 32 + 4 * 4,
    "mlp": 64 + 64 + 2 * 2 * 128,
    "experts": 64 + 64 + 2 * (2 * H + 2 * 64 + 2 * 64),
}
"""Bytes per token that a layer of one block keeps."""


@pytest.mark.parametrize("block", ACTIVATIONS)
def test_activations_of_each_block_by_hand(block: Block) -> None:
    ctx = hybrid_context()
    assert float(layer_activations(ctx, Layout(), (block,)).kept) == S * ACTIVATIONS[block]
    kept = {
        kind: float(layer_activations(ctx, Layout(recompute=kind), (block,)).kept)
        for kind in RECOMPUTE
    }
    assert kept["full"] == S * 64
    assert kept["alternate"] == pytest.approx(S * (64 + (ACTIVATIONS[block] - 64) / 2))
    if block == "mamba":
        # modules are other layers'; of operators every second matmul's output is kept
        assert len({kept[kind] for kind in ("none", "selective", "act", "act_norm", "moe")}) == 1
        assert kept["operators"] == S * (64 + 152)


def test_activations_are_cut_with_the_heads_and_the_sequence() -> None:
    """tp cuts all but inputs and norms; sequence parallelism those too."""
    ctx = hybrid_context()
    cut = float(layer_activations(ctx, Layout(tp=2, sp=True), ("mamba",)).kept)
    assert cut == S * ACTIVATIONS["mamba"] / 2
    # beyond a group a rank, B and C are copied: 4 elements of each more
    both = float(layer_activations(ctx, Layout(tp=2, sp=True, cp=2), ("mamba",)).kept)
    assert both == cut / 2 + S / 2 * 2 * 2 * 4
    whole = float(layer_activations(ctx, Layout(tp=2), ("mamba",)).kept)
    assert whole == S * (128 + (ACTIVATIONS["mamba"] - 128) / 2)


def test_a_scan_passed_back_needs_its_states() -> None:
    """x, B and C convolved again with their gradient, the projection's, 16 states and as many
    gradients in FP32."""
    ctx = hybrid_context()
    layer = layer_activations(ctx, Layout(), ("mamba",))
    found = float(working_bytes(ctx, Layout(), layer, ("mamba",)))
    assert found == S * (2 * (2 * 80 + 152) + 8 * 16)


def test_experts_on_a_latent_travel_and_wait_as_wide_as_it() -> None:
    """Copies of 16 elements; beside them what comes back, 16 of each token."""
    toy = hybrid_model("*E", moe=experts(latent_size=16))
    ctx = hybrid_context(toy=toy)
    expected = 64 + 64 + 2 * (2 * 16 + 2 * 64 + 2 * 64) + 2 * 16
    assert float(layer_activations(ctx, Layout(), ("experts",)).kept) == S * expected
    layout = Layout(dp_shard=4, ep=4)
    wide, narrow = (
        moved(sized_for(hybrid_context(toy=t), layout), layout, "ep")
        for t in (hybrid_model("*E"), toy)
    )
    assert narrow == pytest.approx(wide / 2)
    # routers and the latent's projections are whole on every rank, of its own tokens
    one, four = (float(layer_parameters(ctx, tp, ("experts",))) for tp in (1, 4))
    assert four - one == 3 * (8 * H + 2 * H * 16)


def test_parameters_of_a_stage_by_hand() -> None:
    """M-M* E-ME over two stages: the second has the only experts."""
    ctx = hybrid_context()
    layout = Layout(pp=2, dp_shard=2, ep=2)
    toy = ctx.model
    ranks = candidate_stages(ctx, layout)
    assert ranks.layers.tolist() == [4, 4]
    found = stage_parameters(ctx, layout, rank_stages(ctx, layout, ranks))
    scan, mlp = toy.num_block_parameters("mamba"), toy.num_block_parameters("mlp")
    attention, around = toy.num_block_parameters("attention"), toy.num_block_parameters("experts")
    first = 2 * scan + mlp + attention + V * H
    second = 2 * around + mlp + scan + V * H + H
    assert np.asarray(found.dense).tolist() == [first, second]
    assert np.asarray(found.experts).tolist() == [0, 2 * 8 * 2 * H * 64 / 2]


# ---------------------------------------------------------------- kinds by stage


@st.composite
def staged(draw: st.DrawFn) -> tuple[Any, Layout]:
    """A pattern over a pipeline, split evenly, nearly so, or as it says."""
    pattern = draw(st.text("M*-E", min_size=1, max_size=40))
    predicts = draw(st.booleans())
    toy = hybrid_model(
        pattern, mtp_layers=int(predicts), mtp_pattern=pattern[:2] if predicts else None
    )
    pp = draw(st.integers(1, len(pattern)))
    split = None
    if len(pattern) > 1 and draw(st.booleans()):
        cuts = draw(st.sets(st.integers(1, len(pattern) - 1), min_size=pp - 1, max_size=pp - 1))
        ends = [0, *sorted(cuts), len(pattern)]
        split = tuple(b - a for a, b in pairwise(ends))
    return toy, Layout(pp=pp, stage_layers=split)


@given(staged())
@settings(deadline=None)
def test_letters_of_every_stage_walked_one_by_one(case: tuple[Any, Layout]) -> None:
    toy, layout = case
    base, rest = divmod(toy.num_layers, layout.pp)
    first = (layout.pp - rest) // 2
    sizes = layout.stage_layers or [
        base + (first <= stage < first + rest) for stage in range(layout.pp)
    ]
    ctx = hybrid_context(toy=toy)
    ranks = candidate_stages(ctx, layout)
    assert ranks.stage.tolist() == list(range(layout.pp))
    assert ranks.layers.tolist() == list(sizes)
    found = stage_of(ctx, layout, ranks).layers_by_kind
    letters = {("mamba",): "M", ("attention",): "*", ("mlp",): "-", ("experts",): "E"}
    for kind, held in zip(layer_kinds(toy), found, strict=True):
        letter, start, expected = letters[kind.blocks], 0, []
        for size in sizes:
            expected.append(toy.layer_pattern[start : start + size].count(letter))
            start += size
        if toy.mtp_layers:
            expected[-1] += toy.mtp_pattern.count(letter)
        assert held.tolist() == expected
    assert sum(kind.share for kind in layer_kinds(toy)) == pytest.approx(1.0)
    assert sum(np.sum(held) for held in found) == num_layers(toy)


def test_tables_repeat_the_last_stage_of_short_pipelines() -> None:
    ctx = hybrid_context(toy=hybrid_model())
    rows = [Layout(pp=pp) for pp in (1, 2, 8)]
    table = LayoutTable.from_layouts(rows)
    ranks = candidate_stages(ctx, table)
    assert ranks.stage.shape == (8, 3)
    found = stage_of(ctx, table, ranks).layers_by_kind
    for i, row in enumerate(rows):
        alone = stage_of(ctx, row, candidate_stages(ctx, row)).layers_by_kind
        for held, own in zip(found, alone, strict=True):
            padded = own.tolist() + [own.tolist()[-1]] * (8 - row.pp)
            assert held[:, i].tolist() == padded


# ---------------------------------------------------------------- steps


def spent(ctx: CostContext, layout: Layout) -> dict[str, float]:
    found = evaluate(ctx, layout, innermost_splits(layout, len(ctx.ramp)))
    return {name: float(getattr(found, name)) for name in TERMS}


def silent(toy: Any) -> CostContext:
    return hybrid_context(toy=toy, topology=unlimited_topology())


@pytest.mark.parametrize("recompute", ["none", "selective", "operators", "alternate", "full"])
@pytest.mark.parametrize(
    "layout",
    [
        Layout(num_microbatches=8),
        Layout(tp=2, cp=2, dp_shard=2, num_microbatches=4, sp=True),
        Layout(pp=2, num_microbatches=4),
    ],
)
def test_ideal_scans_take_their_matmuls_at_the_peak(layout: Layout, recompute: str) -> None:
    """Beside what the same layers without scans take; groups are as many as tp·cp. Of memory
    without limit the convolution, of 64 + 2·4·4 channels, waits for its instructions alone."""
    toy = hybrid_model("MMMM", mamba=mamba(num_groups=4))
    layout = replace(layout, recompute=recompute)
    ctx = sized_for(silent(toy), layout)
    flops = scan_flops(toy.mamba, scan_widths(toy.mamba, 1, 1))
    tokens = ctx.training.global_batch_size * ctx.training.sequence_length
    again = {"operators": 1.0, "alternate": 0.5, "full": 1.0}.get(recompute, 0.0)
    found = spent(ctx, layout)
    assert found["compute_attention"] == 0.0
    convolution = ForwardBackward(2 * 96, 5 * 96).times(PEAK / 1.85e12)
    scans = tokens * 4 * (flops + convolution).both
    assert found["compute_memory_bound"] * layout.num_ranks * PEAK == pytest.approx(scans)
    # the projections are the matmuls, half of which operators runs again
    gemms = tokens * 4 * 2 * (PROJECTIONS + H * 2 * 2 * 4)
    rerun = tokens * 4 * (flops + convolution).forward * again
    rerun += gemms * {"operators": 0.5, "alternate": 0.5, "full": 1.0}.get(recompute, 0.0)
    assert found["recompute"] * layout.num_ranks * PEAK == pytest.approx(rerun)
    heads = tokens * 3 * 2 * H * V
    assert found["compute_gemm"] * layout.num_ranks * PEAK == pytest.approx(3 * gemms + heads)


def test_scans_wait_for_memory_where_it_is_slow() -> None:
    """Bytes of four layers at one byte a second, times the software's multiplier."""
    toy = hybrid_model("MMMM")
    part = accelerator(hbm_bytes_per_second=1.0)
    with_scans, without = (
        spent(
            hybrid_context(toy=t, topology=unlimited_topology().replace(accelerator=part)),
            Layout(num_microbatches=8),
        )["compute_memory_bound"]
        for t in (toy, toy.replace(mamba=mamba(num_heads=2, head_dim=1, num_groups=2,
                                               state_size=1)))
    )  # fmt: skip

    def moved_bytes(sizes: Any) -> float:
        return scan_bytes(scan_widths(sizes, 1, 1), 2.0).both

    small = mamba(num_heads=2, head_dim=1, num_groups=2, state_size=1)
    expected = 8 * S * 4 * (moved_bytes(mamba()) - moved_bytes(small))
    assert with_scans - without == pytest.approx(expected, rel=1e-9)


def test_exchanges_of_context_parallel_scans_by_hand() -> None:
    """x, z and y of 64, B and C of 2 groups of 4, 8 steps: to heads and back, once either way."""
    layout = Layout(cp=2, num_microbatches=4)
    ctx = sized_for(hybrid_context("MMMM"), layout)
    per_token = 2 * (3 * 64 + 2 * 2 * 4 + 8)
    assert moved(ctx, layout, "cp") == pytest.approx(4 * 4 * 2 * 32 * per_token / 2)
    assert spent(ctx, layout)["cp"] == pytest.approx(4 * 4 * 2 * 32 * per_token / 2)
    # run again, they travel again
    again = replace(layout, recompute="full")
    assert moved(ctx, again, "cp") == pytest.approx(1.5 * moved(ctx, layout, "cp"))
    assert moved(ctx, replace(layout, recompute="selective"), "cp") == moved(ctx, layout, "cp")


def test_rings_turn_in_layers_that_attend_alone() -> None:
    layout = Layout(cp=2, num_microbatches=4)
    one, four = (
        moved(sized_for(hybrid_context(pattern), layout), layout, "cp")
        for pattern in ("*---", "****")
    )
    assert four == pytest.approx(4 * one) and one > 0


def test_tensor_parallel_traffic_of_each_block() -> None:
    """One exchange a block, none of routed experts; two blocks a layer are the same in turns."""
    layout = Layout(tp=2, sp=True, num_microbatches=4)
    found = {
        pattern: moved(sized_for(hybrid_context(pattern), layout), layout, "tp")
        for pattern in ("MM", "**", "--", "*E", "*-*-")
    }
    assert found["MM"] == found["**"] == found["--"] == 2 * found["*E"]
    dense = moved(sized_for(context(model=model(num_layers=2)), layout), layout, "tp")
    assert found["*-*-"] == pytest.approx(dense)


@pytest.mark.parametrize(
    "layout",
    [
        Layout(num_microbatches=4),
        Layout(tp=2, sp=True, cp=2, num_microbatches=4),
        Layout(pp=2, dp_shard=4, ep=2, num_microbatches=4, zero_stage=1),
        Layout(dp_shard=4, ep=4, num_microbatches=2, zero_stage=3),
    ],
)
@pytest.mark.parametrize("recompute", ["none", "full", "selective", "alternate"])
def test_blocks_in_turns_cost_what_layers_of_two_do(layout: Layout, recompute: str) -> None:
    """Attention and experts one a layer, or two: the same work and traffic, another bookkeeping.

    Whole layers run again keep their inputs, of which there are twice as many."""
    layout = replace(layout, recompute=recompute)
    latent = experts(num_shared_experts=1, latent_size=16)
    turns, pairs = (
        sized_for(sparse_context(toy=toy, training=training(**EVEN)), layout)
        for toy in (
            hybrid_model("*E*E*E*E", moe=latent),
            sparse_model(num_layers=4, moe=latent),
        )
    )
    assert spent(turns, layout) == pytest.approx(spent(pairs, layout), rel=1e-9, abs=1e-8)
    assert model_flops(turns) == pytest.approx(model_flops(pairs))
    mine, theirs = (worst_stage(ctx, layout)[0] for ctx in (turns, pairs))
    for name in ("parameters", "gradients", "optimizer", "buffers", "logits"):
        if layout.zero_stage < 3:  # which gathers a layer at a time
            assert np.max(getattr(mine, name)) == pytest.approx(np.max(getattr(theirs, name)))
    if recompute == "none":
        assert np.max(mine.activations) == pytest.approx(np.max(theirs.activations), rel=0.2)


def test_kernels_that_the_host_launches() -> None:
    """Of attention and MLP in turns as many as of dense layers; those of scans beside."""
    nothing = RecomputedShares()
    dense = kernel_launches(context(model=model(num_layers=4)), Layout(), nothing)
    turns = kernel_launches(hybrid_context("*-*-*-*-"), Layout(), nothing)
    assert 2 * turns == pytest.approx(dense)
    scans = kernel_launches(hybrid_context("MMMM"), Layout(), nothing)
    assert scans > turns


# ---------------------------------------------------------------- one formula


@settings(max_examples=30, deadline=None)
@given(rows=st.lists(placed_expert_layouts(8), min_size=1, max_size=5))
def test_table_equals_numbers(rows: list[Any]) -> None:
    ctx = shipped_hybrid()
    flat = [(replace(layout, vp=1), split) for layout, split in rows]
    assert_table_equals_numbers(ctx, flat, EXPERT_GRID)


@settings(max_examples=30, deadline=None)
@given(rows=st.lists(placed_expert_layouts(8), min_size=1, max_size=5))
def test_memory_of_a_table_equals_numbers(rows: list[Any]) -> None:
    ctx = shipped_hybrid()
    layouts = [replace(layout, vp=1) for layout, _ in rows]
    _, peaks = worst_stage(ctx, LayoutTable.from_layouts(layouts))
    alone = [float(worst_stage(ctx, layout)[1]) for layout in layouts]
    assert peaks.tolist() == pytest.approx(alone, rel=1e-12)


@settings(max_examples=30, deadline=None)
@given(row=placed_expert_layouts(8))
def test_step_does_not_fall_as_any_cost_grows(row: Any) -> None:
    layout, split = row
    step, flat = step_of_costs(shipped_hybrid(), replace(layout, vp=1), split)
    assert first_decrease(step, flat) is None
