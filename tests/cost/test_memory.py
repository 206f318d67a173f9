"""Bytes of a rank against users' cases, published tables and sums by hand."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.cost import activations, model_states
from planner.cost.context import CostContext
from planner.cost.memory import (
    VERDICTS,
    StageMemory,
    stage_memory,
    verdict_index,
    worst_stage,
)
from planner.cost.model_states import stage_parameters, weight_bytes
from planner.cost.offload import state_traffic_bytes
from planner.cost.stages import StageLayers, layers_by_rank, rank_stages
from planner.inputs.quantities import Figure
from planner.inputs.values import load
from planner.layouts.keys import RECOMPUTE, SCHEDULES
from planner.layouts.layout import Layout, LayoutTable
from planner.problem.blocks import DENSE
from planner.problem.model import Model
from planner.problem.software import GraphPools, Software
from tests.oracles import layouts
from tests.scenarios import (
    BACKENDS,
    LOSSY,
    accelerator,
    context,
    figure,
    model,
    software,
    topology,
    training,
)

TERMS = tuple(f.name for f in fields(StageMemory))


def terms(ctx: CostContext, layout: Layout, stage: int = 0, layers: int = 8) -> dict[str, float]:
    usage = stage_memory(ctx, layout, StageLayers(np.array([stage]), np.array([layers])))
    return {name: float(np.ravel(getattr(usage, name))[0]) for name in TERMS}


def parameters(ctx: CostContext, layout: Layout, layers: list[int]) -> list[float]:
    """Parameters of one rank of every stage."""
    ranks = StageLayers(np.arange(layout.pp), np.array(layers))
    found = stage_parameters(ctx, layout, rank_stages(ctx, layout, ranks))
    return [float(count) for count in np.broadcast_to(found.dense, (layout.pp,))]


def activation_bytes(ctx: CostContext, layout: Layout) -> float:
    return float(activations.layer_activations(ctx, layout, DENSE).kept)


def layer_parameters(ctx: CostContext, tp: int) -> float:
    return float(model_states.layer_parameters(ctx, tp, DENSE))


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
    found = parameters(ctx, layout, layers_by_rank(ctx.model.num_layers, layout))
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


@pytest.mark.parametrize("zero_stage", [2, 3])
@pytest.mark.parametrize(("pp", "whole"), [(1, False), (2, True)])
def test_pipelines_may_gather_once_a_step(pp: int, whole: bool, zero_stage: int) -> None:
    """Then the stage's weights are all there, and its gradients whole beside their shards."""
    layout = Layout(pp=pp, num_microbatches=2, dp_shard=4, zero_stage=zero_stage)
    resharding, gathering = (
        terms(context(software=software(gathers_once_in_pipelines=once)), layout)
        for once in (False, True)
    )
    count = parameters(context(), layout, [8] * pp)[0]
    more = {name: gathering[name] - resharding[name] for name in TERMS}
    held = 2 * count - resharding["parameters"]
    assert more["parameters"] == pytest.approx(whole * held)
    assert more["gradients"] == pytest.approx(whole * 4 * count)
    assert held > 0 or zero_stage == 2
    assert not any(more[name] for name in TERMS if name not in ("parameters", "gradients"))


def test_gradient_bytes_are_the_software_s() -> None:
    found = terms(context(software=software(gradient_bytes=2.0)), Layout())
    assert found["gradients"] == found["parameters"]


@pytest.mark.parametrize(("states", "moved"), [(None, 26.0), (12.0, 26.0), (8.0, 18.0)])
def test_optimizer_bytes_are_the_software_s(states: float | None, moved: float) -> None:
    """FP32 master weight and moments take 12 bytes; with moments in BF16 (DeepSeek-V3) 8. A step
    reads and writes them, and writes a 16-bit weight."""
    ctx = context(software=software(optimizer_bytes=states))
    found = terms(ctx, Layout())
    assert found["optimizer"] == (states or 12) / 2 * found["parameters"]
    assert state_traffic_bytes(ctx) == moved
    shipped = load("deepseek", "software", Software).optimizer_bytes
    assert shipped is not None and float(shipped) == 4 + 2 + 2


@pytest.mark.parametrize(
    ("primary", "matmul_bytes", "weight"),
    # 16 bits; 16 bits and a copy in FP8; FP8 by rows and by columns
    [((), 2.0, 2.0), ((), 1.0, 3.0), (("fp8",), 1.0, 2.0), (("mxfp8",), 1.0, 3.0)],
)
def test_weights_in_low_precision(
    primary: tuple[str, ...], matmul_bytes: float, weight: float
) -> None:
    ctx = context(software=software(low_precision_parameters=primary))
    ctx = replace(ctx, training=ctx.training.replace(precision="fp8"), matmul_bytes=matmul_bytes)
    assert weight_bytes(ctx) == weight


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
        # unfused also what comes out in FP32; softmax needs its input no more
        ("naive", False, 6),
        ("naive", True, 9),
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


def kept_more(ctx: CostContext, layout: Layout, **flags: bool) -> float:
    """Bytes a layer keeps more of where the software has these flags."""
    flagged = replace(ctx, software=software(**flags))
    return float(activation_bytes(flagged, layout)) - float(activation_bytes(ctx, layout))


def test_eager_activations_keep_the_gate_s_output() -> None:
    """SiLU's output, f elements of 2 bytes a token; rotation by constants keeps nothing."""
    ctx = gpt("flash", gated_mlp=True, num_key_value_heads=1)
    assert kept_more(ctx, Layout(), eager_elementwise=True) == S * 2 * 4 * H
    ungated = gpt("flash")
    assert kept_more(ungated, Layout(), eager_elementwise=True) == 0


@pytest.mark.parametrize(("sp", "share"), [(False, 1), (True, 4)])
def test_eager_norms_keep_their_fp32_steps(sp: bool, share: int) -> None:
    """Two norms a layer: x in FP32, 4 bytes, and the normalised x in 16 bits, 2, an element."""
    found = kept_more(gpt("flash"), Layout(tp=4, sp=sp), eager_norm=True)
    assert found == 2 * (4 + 2) * S * H / share


def test_gathered_inputs_are_kept_whole_where_they_are_not_gathered_again() -> None:
    """The two blocks' inputs: 2·2h bytes a token instead of a fourth of them, under sp alone."""
    sp = Layout(tp=4, sp=True)
    assert kept_more(gpt("flash"), sp, keeps_gathered_inputs=True) == 4 * S * H * (1 - 1 / 4)
    assert kept_more(gpt("flash"), Layout(tp=4), keeps_gathered_inputs=True) == 0


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


MLP_GRADIENTS = 2 * 2 * 4 * H * S
"""Bytes of the gradients of the MLP's activations, in and out of GELU, of one sequence."""


def test_a_recomputed_layer_is_whole_while_it_runs() -> None:
    """8 layers' inputs, 2 micro-batches in flight, and everything of the one that is run again,
    with the gradients of softmax's output and input beside its scores."""
    layout = Layout(pp=2, num_microbatches=4, recompute="full")
    found = terms(gpt("fused-softmax"), layout, stage=0, layers=8)["activations"]
    once = 34 * S * H + (5 + 4) * A * S * S
    assert found == pytest.approx(2 * 8 * 2 * S * H + once + MLP_GRADIENTS, rel=0.01)


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_recomputed_scores_are_there_beside_the_loss(recompute: str) -> None:
    """Whatever the loss takes: blocks of scores that the forward pass left are no room for it."""
    layout = Layout(recompute=recompute, mbs=2)
    huge = software(logits_bytes=1e9)
    with_scores, without = (
        terms(replace(gpt(backend), software=huge), layout)["activations"]
        - 8 * float(activation_bytes(gpt(backend), layout))
        for backend in ("fused-softmax", "flash")
    )
    assert without == pytest.approx(0)
    assert with_scores == pytest.approx((recompute != "none") * 5 * A * S * S * 2)


def test_loss_and_backward_pass_are_not_at_once() -> None:
    """What the last stage holds beside kept inputs is the larger of the two."""
    layout = Layout(recompute="full")
    whole = terms(gpt("flash"), layout)
    working = whole["activations"] + whole["logits"] - 8 * 2 * S * H
    assert whole["logits"] < working == pytest.approx(34 * S * H + MLP_GRADIENTS, rel=0.01)
    heavy = terms(replace(gpt("flash"), software=software(logits_bytes=1e6)), layout)
    assert heavy["activations"] == pytest.approx(8 * 2 * S * H)


def test_fresh_gradients_are_those_of_one_layer_s_mlp() -> None:
    """8h² weights over tp, 4 bytes each, before they are added to the gradients held."""
    layout = Layout(tp=2, pp=2, num_microbatches=2)
    fused = terms(gpt("flash"), layout)["activations"]
    fresh = replace(gpt("flash"), software=software(fresh_gradient_bytes=4.0))
    assert terms(fresh, layout)["activations"] - fused == pytest.approx(8 * H**2 / 2 * 4)


def test_activations_are_held_once_for_each_micro_batch_in_flight() -> None:
    layout = Layout(pp=4, num_microbatches=16)
    ctx = gpt("flash")
    per_layer = float(activation_bytes(ctx, layout))
    held = [terms(ctx, layout, stage, layers=2) for stage in range(4)]
    beside = [MLP_GRADIENTS] * 3 + [max(MLP_GRADIENTS - held[3]["logits"], 0)]
    expected = [
        2 * per_layer * count + more for count, more in zip((4, 3, 2, 1), beside, strict=True)
    ]
    assert [usage["activations"] for usage in held] == pytest.approx(expected)


# ---------------------------------------------------------------- the rest


def test_logits_weigh_on_the_last_stage_alone() -> None:
    ctx = context(software=software(logits_bytes=10.0))
    layout = Layout(pp=2, num_microbatches=2, mbs=3)
    first, last = (terms(ctx, layout, stage)["logits"] for stage in (0, 1))
    assert first == 0.0
    assert last == 3 * 64 * 64 * 10
    assert terms(ctx, replace(layout, tp=2), 1)["logits"] == last / 2
    assert terms(ctx, replace(layout, cp=2), 1)["logits"] == last / 2


def test_a_loss_in_chunks_has_logits_of_one_chunk_and_gradients_of_all_hidden_states() -> None:
    """The latter in FP32, and whole on every tensor-parallel rank."""
    ctx = context(software=software(logits_bytes=10.0))
    tokens, vocabulary, hidden = 3 * 64, 64, 32
    whole, gradients = tokens * vocabulary * 10, tokens * hidden * 4
    assert terms(ctx, Layout(mbs=3, loss_chunks=8))["logits"] == whole / 8 + gradients
    assert terms(ctx, Layout(mbs=3, loss_chunks=8, tp=2))["logits"] == whole / 16 + gradients
    pipeline = Layout(mbs=3, loss_chunks=8, pp=2, num_microbatches=2)
    assert terms(ctx, pipeline, 0)["logits"] == 0


def test_gathered_logits_are_whole_on_every_rank() -> None:
    """And beside them the gathered 16-bit logits and their gradient, 4 bytes an entry."""
    ctx = context(software=software(logits_bytes=10.0, gathers_logits=True))
    entries = 3 * 64 * 64
    assert terms(ctx, Layout(mbs=3))["logits"] == entries * 10
    assert terms(ctx, Layout(mbs=3, tp=2))["logits"] == entries * 14


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


@pytest.mark.parametrize(("recompute", "share"), [("none", 0.1), ("selective", 0.1), ("full", 0)])
def test_allocator_takes_its_share_of_what_is_kept_in_many_sizes(
    recompute: str, share: float
) -> None:
    layout = Layout(pp=2, num_microbatches=2, recompute=recompute)
    ctx = context(software=software({"allocator_fraction": 0.1}))
    kept = 2 * 8 * float(activation_bytes(ctx, layout))
    assert terms(ctx, layout)["allocator"] == pytest.approx(share * kept)


@pytest.mark.parametrize(("graphs", "share"), [("none", 0.0), ("partial", 0.1), ("full", 0.5)])
def test_pools_of_cuda_graphs_hold_a_share_of_the_activations(graphs: str, share: float) -> None:
    pools = GraphPools(partial=figure(0.1), full=figure(0.5))
    captured = training(cuda_graphs=graphs)
    layout = Layout(pp=2, num_microbatches=2)
    found = terms(context(training=captured, software=software(graph_pools=pools)), layout)
    assert found["allocator"] == pytest.approx(share * found["activations"])
    without = terms(context(training=captured), layout)
    assert without["allocator"] == 0 and without["activations"] == found["activations"]


@pytest.mark.parametrize(
    ("peak", "verdict"),
    [(0.0, "fits"), (94e9, "fits"), (96e9, "fragile"), (100e9, "fragile"), (100.1e9, "no")],
)
def test_verdict(peak: float, verdict: str) -> None:
    part = accelerator(hbm_bytes=100e9)
    ctx = context(topology=topology(accelerator=part), software=software(fragile_fraction=0.05))
    assert VERDICTS[int(verdict_index(ctx, Layout(), peak))] == verdict


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
        layers = np.array(layers_by_rank(ctx.model.num_layers, layout))
        usage = stage_memory(ctx, layout, StageLayers(np.arange(8), layers))
        peaks.append(float(np.max(usage.total)))
        states.append(float(np.mean(usage.optimizer + usage.gradients)))
    assert peaks[1:3] == pytest.approx([peaks[0]] * 2, rel=0.04)
    assert states == pytest.approx([states[0]] * 4, rel=1e-12)
    # 16 bytes of 405.9e9/64 parameters over 8 ranks, and at most two layers' gradients at work
    at_work = 2 * 2 * layer_parameters(ctx, 8) / 8
    assert 11.75 * 2**30 <= states[0] <= 11.85 * 2**30 + at_work


# ---------------------------------------------------------------- tables


def lavish(ctx: CostContext) -> CostContext:
    """The context under software that keeps all that any keeps."""
    flags = (
        "gathers_logits", "eager_elementwise", "eager_norm", "keeps_gathered_inputs",
        "gathers_once_in_pipelines",
    )  # fmt: skip
    fresh = Figure(4.0, "test", "assumed")
    held = ctx.software.replace(fresh_gradient_bytes=fresh, **dict.fromkeys(flags, True))
    return replace(ctx, software=held)


CONTEXTS = [known for b in BACKENDS for known in (LOSSY[b, "bf16"], lavish(LOSSY[b, "bf16"]))]


@settings(deadline=None)
@given(layouts(), st.sampled_from(CONTEXTS))
def test_lavish_software_holds_no_less(layout: Layout, ctx: CostContext) -> None:
    _, peak = worst_stage(ctx, layout)
    _, most = worst_stage(lavish(ctx), layout)
    assert float(most) >= float(peak)


@settings(deadline=None)
@given(layouts(), st.sampled_from(CONTEXTS))
def test_worst_stage_is_the_worst_of_all(layout: Layout, ctx: CostContext) -> None:
    layers = layers_by_rank(ctx.model.num_layers, layout)
    every = stage_memory(ctx, layout, StageLayers(np.arange(layout.pp), np.array(layers)))
    _, peak = worst_stage(ctx, layout)
    assert float(peak) == pytest.approx(float(np.max(every.total)), rel=1e-12)


@settings(deadline=None)
@given(st.lists(layouts(), min_size=1, max_size=6), st.sampled_from(CONTEXTS))
def test_table_equals_numbers(rows: list[Layout], ctx: CostContext) -> None:
    table, peaks = worst_stage(ctx, LayoutTable.from_layouts(rows))
    verdicts = verdict_index(ctx, LayoutTable.from_layouts(rows), peaks)
    assert peaks.dtype == np.float64
    assert peaks.shape == verdicts.shape == (len(rows),)
    for i, row in enumerate(rows):
        usage, peak = worst_stage(ctx, row)
        assert peaks[i] == pytest.approx(float(peak), rel=1e-12)
        assert verdicts[i] == verdict_index(ctx, row, peak)
        for name in TERMS:
            column = np.asarray(getattr(table, name))
            assert column.dtype == np.float64, name
            mine = np.broadcast_to(column, (3, len(rows)))[:, i]
            theirs = np.broadcast_to(getattr(usage, name), (3,))
            np.testing.assert_allclose(mine, theirs, rtol=1e-12, err_msg=name)


@given(st.lists(layouts(), min_size=1, max_size=4), st.sampled_from(CONTEXTS))
def test_terms_sum_to_the_total_and_are_not_negative(rows: list[Layout], ctx: CostContext) -> None:
    usage, _ = worst_stage(ctx, LayoutTable.from_layouts(rows))
    columns = [np.broadcast_to(getattr(usage, name), (3, len(rows))) for name in TERMS]
    assert np.min(columns) >= 0
    np.testing.assert_allclose(usage.total, np.sum(columns, axis=0), rtol=1e-12)


def test_comparison_with_a_table_sees_every_verdict() -> None:
    ctx = LOSSY["flash", "bf16"]
    rows = [Layout(tp=tp, mbs=mbs, num_microbatches=8) for tp in (1, 2, 4) for mbs in (1, 2, 4)]
    table = LayoutTable.from_layouts(rows)
    _, peaks = worst_stage(ctx, table)
    assert set(verdict_index(ctx, table, peaks).tolist()) == {0, 1, 2}


# ---------------------------------------------------------------- schedules


def scheduled(schedule: str, vp: int = 1) -> dict[str, list[float]]:
    """Memory terms of every rank of four under a schedule."""
    ctx = context(model=model(vocab_size=1), software=software(schedules=SCHEDULES))
    layout = Layout(pp=4, vp=vp, dp_shard=2, num_microbatches=8, zero_stage=1, schedule=schedule)
    layers = np.array(layers_by_rank(ctx.model.num_layers, layout))
    usage = stage_memory(ctx, layout, StageLayers(np.arange(4), layers))
    return {f.name: np.broadcast_to(getattr(usage, f.name), 4).tolist() for f in fields(usage)}


def stages_held(plain: dict[str, list[float]], number: float) -> float:
    """Activations of so many stages and the layer being passed back, off 1F1B's four and one."""
    first, *_, last = plain["activations"]
    return last + (number - 1) * (first - last) / 3


def test_dualpipe_holds_two_stages_and_shares_their_states() -> None:
    """DeepSeek-V3, table 2: twice the parameters, PP + 1 stages' activations; next to no head."""
    plain, both = scheduled("1f1b"), scheduled("dualpipe")
    for term in ("parameters", "gradients"):
        assert both[term] == pytest.approx([2 * held for held in plain[term]], rel=0.01)
    # each stage's on twice the ranks
    assert both["optimizer"] == pytest.approx(plain["optimizer"], rel=0.01)
    assert both["activations"] == pytest.approx([stages_held(plain, 5.0)] * 4, rel=1e-2)


def test_dualpipev_holds_every_stage_once() -> None:
    plain, turned = scheduled("1f1b"), scheduled("dualpipev", vp=2)
    for term in ("parameters", "gradients", "optimizer"):
        assert turned[term] == pytest.approx(plain[term], rel=0.01)
    assert turned["activations"] == pytest.approx([stages_held(plain, 4.5)] * 4, rel=1e-2)


@pytest.mark.parametrize(("schedule", "vp"), [("zb-h1", 1), ("interleaved-zb", 2), ("zb-v", 2)])
def test_zero_bubble_ranks_hold_what_the_first_holds_under_1f1b(schedule: str, vp: int) -> None:
    expected = scheduled("1f1b")["activations"][0]
    assert scheduled(schedule, vp)["activations"] == pytest.approx([expected] * 4, rel=1e-2)


def test_ends_of_a_v_meet_on_the_first_rank() -> None:
    ctx = context(software=software(schedules=SCHEDULES))
    layout = Layout(pp=4, vp=2, num_microbatches=8, schedule="zb-v")
    usage = stage_memory(ctx, layout, StageLayers(np.arange(4), np.array([2, 2, 2, 2])))
    assert [float(held) > 0 for held in usage.logits] == [True, False, False, False]
    table = 64 * 32 * 2.0
    assert usage.parameters[0] - usage.parameters[1] == pytest.approx(2 * table, rel=0.05)
