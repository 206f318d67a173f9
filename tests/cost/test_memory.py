"""Bytes of a rank against users' cases, published tables and sums by hand."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.cost import memory
from planner.cost.context import CostContext
from planner.cost.memory import (
    VERDICTS,
    StageMemory,
    stage_memory,
    stage_parameters,
    verdict_index,
    worst_stage,
)
from planner.cost.pipeline import layers_by_stage
from planner.files import load
from planner.layout import RECOMPUTE, Layout, LayoutTable
from planner.problem.model import Model
from tests.oracles import layouts
from tests.scenarios import (
    BACKENDS,
    LOSSY,
    accelerator,
    context,
    model,
    software,
    topology,
    training,
)

TERMS = tuple(f.name for f in fields(StageMemory))


def terms(ctx: CostContext, layout: Layout, stage: int = 0, layers: int = 8) -> dict[str, float]:
    usage = stage_memory(ctx, layout, np.array([stage]), np.array([layers]))
    return {name: float(np.ravel(getattr(usage, name))[0]) for name in TERMS}


def parameters(ctx: CostContext, layout: Layout, layers: list[int]) -> list[float]:
    """Parameters of one rank of every stage."""
    found = stage_parameters(ctx, layout, np.arange(layout.pp), np.array(layers))
    return [float(count) for count in np.broadcast_to(found.dense, (layout.pp,))]


def activation_bytes(ctx: CostContext, layout: Layout) -> float:
    return float(memory.activation_bytes(ctx, layout, experts=False))


def layer_parameters(ctx: CostContext, tp: int) -> float:
    return float(memory.layer_parameters(ctx, tp, experts=False))


# ---------------------------------------------------------------- parameters


def test_heaviest_stage_of_a_toy_that_was_reported_evenly() -> None:
    """NVIDIA-NeMo/Megatron-Bridge#5077: 9 952 on the last of stages 1, 2, 2, 3, not the mean.

    4·16² + 2·16·64 + two LayerNorms of 32 a layer; three of them, the head's 32·16 and the final
    LayerNorm.
    """
    toy = model(hidden_size=16, ffn_hidden_size=64, vocab_size=32, norm="layernorm")
    found = parameters(context(model=toy), Layout(pp=4), [1, 2, 2, 3])
    assert max(found) == found[3] == 9952
    assert found[:3] == [3136 + 512, 2 * 3136, 2 * 3136]


@given(
    st.integers(1, 8),
    st.booleans(),
    st.sampled_from(["rmsnorm", "layernorm"]),
    st.booleans(),
    st.booleans(),
)
def test_stages_together_have_the_model_s_parameters(
    pp: int, tied: bool, norm: str, bias: bool, gated: bool
) -> None:
    toy = model(
        num_key_value_heads=2, tied_embeddings=tied, norm=norm, linear_bias=bias, gated_mlp=gated,
        num_position_embeddings=64,
    )  # fmt: skip
    layout, ctx = Layout(pp=pp), context(model=toy)
    found = parameters(ctx, layout, layers_by_stage(ctx.model.num_layers, layout))
    # tied embeddings on different stages are two copies
    copies = toy.vocab_size * toy.hidden_size if tied and pp > 1 else 0
    assert sum(found) == toy.num_parameters + copies


def test_tensor_parallelism_cuts_matrices() -> None:
    """4·32² + 2·32·128 of one layer and two tables of 64·32; norms are 96 parameters in all."""
    matrices = 4 * 32**2 + 2 * 32 * 128 + 2 * 64 * 32
    for tp in (1, 2, 4):
        (found,) = parameters(context(), Layout(tp=tp), [1])
        assert matrices / tp <= found <= matrices / tp + 96


def test_key_value_heads_are_copied_beyond_their_number() -> None:
    """One KV head over tp 4: each rank holds a whole one."""
    ctx = context(model=model(num_key_value_heads=1))
    assert layer_parameters(ctx, 4) - layer_parameters(ctx, 1) == 2 * 32 * 8 * 3


# ---------------------------------------------------------------- states


@pytest.mark.parametrize(
    ("zero_stage", "weights", "gradients", "optimizer"),
    [(0, 2, 4, 12), (1, 2, 4, 12 / 8), (2, 2, 4 / 8, 12 / 8)],
)
def test_zero_shards_states_over_cp_and_dp_shard(
    zero_stage: int, weights: float, gradients: float, optimizer: float
) -> None:
    layout = Layout(cp=2, dp_shard=4, dp_replicate=16, zero_stage=zero_stage)
    ctx = context()
    count = parameters(ctx, layout, [8])[0]
    found = terms(ctx, layout)
    assert found["parameters"] == pytest.approx(weights * count)
    assert found["gradients"] == pytest.approx(gradients * count)
    assert found["optimizer"] == pytest.approx(optimizer * count)


def test_zero_3_holds_a_layer_or_two_whole_and_the_rest_in_shards() -> None:
    layout, ctx = Layout(cp=2, dp_shard=4, zero_stage=3), context()
    one_layer = layer_parameters(ctx, 1)
    states = ("parameters", "gradients", "optimizer")
    few, many = (
        sum(terms(ctx, layout, layers=count)[name] for name in states) for count in (10, 110)
    )
    # FP32 master and moments, FP32 gradient, and at most a 16-bit shard
    assert 16 / 8 <= (many - few) / (100 * one_layer) <= 18 / 8
    assert terms(ctx, layout)["parameters"] >= 2 * one_layer
    whole = terms(ctx, replace(layout, zero_stage=2), layers=100)
    assert terms(ctx, layout, layers=100)["parameters"] < whole["parameters"] / 4


def test_gradient_bytes_are_the_software_s() -> None:
    found = terms(context(software=software(gradient_bytes=2.0)), Layout())
    assert found["gradients"] == found["parameters"]


# ---------------------------------------------------------------- activations

S, B, H, A = 256, 2, 192, 4


def gpt(attention: str, **changes: Any) -> CostContext:
    """GPT's layer: h = 192, 4 heads of 48, 4h in the MLP, LayerNorm, GELU, dropout."""
    layer = {
        "hidden_size": H,
        "ffn_hidden_size": 4 * H,
        "num_attention_heads": A,
        "norm": "layernorm",
        "linear_bias": True,
        "dropout": True,
    }
    return context(
        model=model(**(layer | changes)),
        training=training(sequence_length=S, attention=attention),
    )


@pytest.mark.parametrize(
    ("layout", "per_sbh", "per_score"),
    [
        (Layout(), 34, 5),
        (Layout(tp=4), 10 + 24 / 4, 5 / 4),
        (Layout(tp=4, sp=True), 34 / 4, 5 / 4),
        (Layout(tp=4, sp=True, recompute="selective"), 34 / 4, 0),
        (Layout(recompute="selective"), 34, 0),
        (Layout(recompute="full"), 2, 0),
    ],
)
def test_activations_of_a_layer_as_published(
    layout: Layout, per_sbh: float, per_score: float
) -> None:
    """Korthikanti et al. 2022, table 2; up to a softmax statistic of 4 bytes a head and token."""
    found = activation_bytes(gpt("fused-softmax"), replace(layout, mbs=B))
    table = S * B * H * per_sbh + A * S * S * B * per_score
    assert table <= found <= table + 4 * A * S * B


def test_flash_attention_keeps_no_scores() -> None:
    found = activation_bytes(gpt("flash"), Layout(mbs=B))
    assert found == pytest.approx(S * B * H * 34, rel=0.01)


@pytest.mark.parametrize(
    ("backend", "dropout", "per_score"),
    [
        # the softmax's output; with dropout its mask and output
        ("fused-softmax", False, 2),
        ("fused-softmax", True, 5),
        # unfused also what goes into the softmax and comes out, in FP32
        ("naive", False, 10),
        ("naive", True, 13),
    ],
)
def test_scores_that_are_written_are_kept(backend: str, dropout: bool, per_score: int) -> None:
    kept = (activation_bytes(gpt(name, dropout=dropout), Layout()) for name in (backend, "flash"))
    scores = next(kept) - next(kept)
    assert scores == pytest.approx(per_score * A * S * S, rel=0.01)


def test_gated_mlp_and_fewer_key_value_heads_by_hand() -> None:
    """Per token: norms' and blocks' inputs 4·2h, Q K V and output 2(2q + 2kv), MLP 2(2f + f)."""
    ctx = gpt("flash", gated_mlp=True, num_key_value_heads=1, dropout=False, norm="rmsnorm")
    found = activation_bytes(ctx, Layout())
    by_hand = S * (8 * H + 2 * (2 * H + 2 * H / 4) + 2 * 3 * 4 * H)
    assert by_hand <= found <= by_hand + 4 * A * S


def test_eager_software_keeps_what_others_fuse() -> None:
    """The gate's activation, and queries and keys before rotation: f + q + kv elements a token."""
    changes = {"gated_mlp": True, "num_key_value_heads": 1}
    ctx, profile = gpt("flash", **changes), software(keeps_every_output=True)
    fused, eager = (activation_bytes(c, Layout()) for c in (ctx, replace(ctx, software=profile)))
    assert eager - fused == S * 2 * (4 * H + H + H / 4)


def test_low_precision_keeps_matmul_inputs_as_cast() -> None:
    """Inputs of the two blocks and of the last matmul in one byte instead of two."""
    ctx = gpt("flash")
    low = replace(ctx, matmul_bytes=1.0)
    saved = activation_bytes(ctx, Layout()) - activation_bytes(low, Layout())
    assert saved == S * (2 * H + 4 * H)


@pytest.mark.parametrize("recompute", RECOMPUTE)
def test_context_parallelism_cuts_activations(recompute: str) -> None:
    halves = [activation_bytes(gpt("flash"), Layout(cp=n, recompute=recompute)) for n in (1, 2)]
    assert halves[1] == halves[0] / 2


def test_alternate_is_half_of_all_and_half_of_none() -> None:
    kinds = ("none", "full", "alternate")
    ctx = gpt("fused-softmax")
    none, full, half = (activation_bytes(ctx, Layout(recompute=kind)) for kind in kinds)
    assert half == (none + full) / 2


@given(layouts(), st.sampled_from(BACKENDS))
def test_recompute_keeps_less(layout: Layout, backend: str) -> None:
    kept = {
        kind: activation_bytes(LOSSY[backend, "bf16"], replace(layout, recompute=kind))
        for kind in RECOMPUTE
    }
    assert kept["none"] >= kept["selective"] >= kept["full"]
    assert kept["none"] >= kept["operators"] >= kept["full"]
    assert kept["none"] >= kept["alternate"] >= kept["full"]


def test_a_recomputed_layer_is_whole_while_it_runs() -> None:
    """8 layers' inputs, 2 micro-batches in flight, and everything of the one that is run again."""
    layout = Layout(pp=2, num_microbatches=4, recompute="full")
    found = terms(gpt("fused-softmax"), layout, stage=0, layers=8)["activations"]
    once = 34 * S * H + 5 * A * S * S
    assert found == pytest.approx(2 * 8 * 2 * S * H + once, rel=0.01)


def test_activations_are_held_once_for_each_micro_batch_in_flight() -> None:
    layout = Layout(pp=4, num_microbatches=16)
    per_layer = activation_bytes(gpt("flash"), layout)
    held = [terms(gpt("flash"), layout, stage, layers=2)["activations"] for stage in range(4)]
    assert held == pytest.approx([2 * per_layer * count for count in (4, 3, 2, 1)])


# ---------------------------------------------------------------- the rest


def test_logits_weigh_on_the_last_stage_alone() -> None:
    ctx = context(software=software(logits_bytes=10.0))
    layout = Layout(pp=2, num_microbatches=2, mbs=3)
    first, last = (terms(ctx, layout, stage)["logits"] for stage in (0, 1))
    assert first == 0.0
    assert last == 3 * 64 * 64 * 10
    assert terms(ctx, replace(layout, tp=2), 1)["logits"] == last / 2
    assert terms(ctx, replace(layout, cp=2), 1)["logits"] == last / 2
    gathering = context(software=software(logits_bytes=10.0, gathers_logits=True))
    assert terms(gathering, replace(layout, tp=2), 1)["logits"] == last


@pytest.mark.parametrize(
    ("layout", "groups"),
    [
        (Layout(), 0),
        (Layout(tp=2, pp=2, dp_shard=4), 3),
        (Layout(cp=2), 2),  # its own, and the shards'
        (Layout(tp=2, cp=2, pp=2, dp_shard=2, dp_replicate=2), 5),
    ],
)
def test_every_group_of_several_has_a_communicator(layout: Layout, groups: int) -> None:
    ctx = context(software=software(runtime_bytes=1000.0, communicator_bytes=10.0))
    assert terms(ctx, layout)["runtime"] == 1000 + 10 * groups


def test_allocator_takes_its_share_of_what_is_allocated() -> None:
    ctx = context(software=software({"allocator_fraction": 0.1}, runtime_bytes=1000.0))
    found = terms(ctx, Layout(tp=2, dp_shard=2, num_microbatches=2))
    allocated = sum(found[name] for name in TERMS if name not in ("runtime", "allocator"))
    assert found["allocator"] == pytest.approx(0.1 * allocated)


@pytest.mark.parametrize(
    ("peak", "verdict"),
    [(0.0, "fits"), (94e9, "fits"), (96e9, "fragile"), (100e9, "fragile"), (100.1e9, "no")],
)
def test_verdict(peak: float, verdict: str) -> None:
    part = accelerator(hbm_bytes=100e9)
    ctx = context(topology=topology(accelerator=part), software=software(fragile_fraction=0.05))
    assert VERDICTS[int(verdict_index(ctx, peak))] == verdict


# ---------------------------------------------------------------- long sequences


def long_context(llama: Model, cp: int) -> tuple[CostContext, Layout]:
    """pytorch/torchtitan#800: 8 K tokens a rank on tp 8, pp 8, cp·dp_shard 8, local batch 8."""
    layout = Layout(
        tp=8, cp=cp, pp=8, dp_shard=8 // cp, num_microbatches=8, zero_stage=3, sp=True,
        recompute="full",
    )  # fmt: skip
    ctx = context(
        model=llama,
        training=training(sequence_length=32768 * cp, global_batch_size=64),
        software=software(communicator_bytes=1.0),
    )
    return ctx, layout


def test_memory_is_flat_while_shards_and_tokens_a_rank_are_constant() -> None:
    """Measured 75.3, 75.9, 77.1 GB at cp 1, 2, 4; states stay sharded over cp·dp_shard."""
    llama = load("llama3-405b", "model", Model)
    peaks, states = [], []
    for cp in (1, 2, 4, 8):
        ctx, layout = long_context(llama, cp)
        layers = np.array(layers_by_stage(ctx.model.num_layers, layout))
        usage = stage_memory(ctx, layout, np.arange(8), layers)
        peaks.append(float(np.max(usage.total)))
        states.append(float(np.mean(usage.optimizer + usage.gradients)))
    assert peaks[1:3] == pytest.approx([peaks[0]] * 2, rel=0.04)
    assert states == pytest.approx([states[0]] * 4, rel=1e-12)
    # 16 bytes of 405.9e9/64 parameters over 8 ranks, and at most two layers' gradients at work
    at_work = 2 * 2 * layer_parameters(ctx, 8) / 8
    assert 11.75 * 2**30 <= states[0] <= 11.85 * 2**30 + at_work


# ---------------------------------------------------------------- tables


@settings(deadline=None)
@given(layouts(), st.sampled_from(BACKENDS))
def test_worst_stage_is_the_worst_of_all(layout: Layout, backend: str) -> None:
    ctx = LOSSY[backend, "bf16"]
    layers = layers_by_stage(ctx.model.num_layers, layout)
    every = stage_memory(ctx, layout, np.arange(layout.pp), np.array(layers))
    _, peak = worst_stage(ctx, layout)
    assert float(peak) == pytest.approx(float(np.max(every.total)), rel=1e-12)


@settings(deadline=None)
@given(st.lists(layouts(), min_size=1, max_size=6), st.sampled_from(BACKENDS))
def test_table_equals_numbers(rows: list[Layout], backend: str) -> None:
    ctx = LOSSY[backend, "bf16"]
    table, peaks = worst_stage(ctx, LayoutTable.from_layouts(rows))
    verdicts = verdict_index(ctx, peaks)
    assert peaks.dtype == np.float64
    assert peaks.shape == verdicts.shape == (len(rows),)
    for i, row in enumerate(rows):
        usage, peak = worst_stage(ctx, row)
        assert peaks[i] == pytest.approx(float(peak), rel=1e-12)
        assert verdicts[i] == verdict_index(ctx, peak)
        for name in TERMS:
            column = np.asarray(getattr(table, name))
            assert column.dtype == np.float64, name
            mine = np.broadcast_to(column, (3, len(rows)))[:, i]
            theirs = np.broadcast_to(getattr(usage, name), (3,))
            np.testing.assert_allclose(mine, theirs, rtol=1e-12, err_msg=name)


@given(st.lists(layouts(), min_size=1, max_size=4))
def test_terms_sum_to_the_total_and_are_not_negative(rows: list[Layout]) -> None:
    usage, _ = worst_stage(LOSSY["flash", "bf16"], LayoutTable.from_layouts(rows))
    columns = [np.broadcast_to(getattr(usage, name), (3, len(rows))) for name in TERMS]
    assert np.min(columns) >= 0
    np.testing.assert_allclose(usage.total, np.sum(columns, axis=0), rtol=1e-12)


def test_comparison_with_a_table_sees_every_verdict() -> None:
    ctx = LOSSY["flash", "bf16"]
    rows = [Layout(tp=tp, mbs=mbs, num_microbatches=8) for tp in (1, 2, 4) for mbs in (1, 2, 4)]
    _, peaks = worst_stage(ctx, LayoutTable.from_layouts(rows))
    assert set(verdict_index(ctx, peaks).tolist()) == {0, 1, 2}
