"""Bytes of a rank that holds experts: users' cases, sums by hand, tables."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.cost.activations import layer_activations
from planner.cost.context import CostContext
from planner.cost.memory import (
    VERDICTS,
    StageMemory,
    floor_bytes,
    stage_memory,
    verdict_index,
    worst_stage,
)
from planner.cost.model_states import layer_parameters, stage_parameters
from planner.cost.stages import StageLayers, layers_by_rank, rank_stages
from planner.layouts.keys import RECOMPUTE
from planner.layouts.layout import Layout, LayoutTable
from planner.problem.blocks import DENSE, SPARSE
from planner.problem.model import Model
from tests.expert_scenarios import (
    LATENT,
    SHIPPED,
    experts,
    shipped_context,
    shipped_scenario,
    sparse_context,
    sparse_model,
    sparse_software,
)
from tests.oracles import expert_layouts

GIB = 2**30
TERMS = tuple(f.name for f in fields(StageMemory))
STATES = ("parameters", "gradients", "optimizer")
S, H, F = 64, 32, 64  # tokens, hidden, an expert's feed-forward size
EXPERT = 2 * H * F


def terms(ctx: CostContext, layout: Layout, stage: int = 0, layers: int = 8) -> dict[str, float]:
    usage = stage_memory(ctx, layout, StageLayers(np.array([stage]), np.array([layers])))
    return {name: float(np.ravel(getattr(usage, name))[0]) for name in TERMS}


def counted(ctx: CostContext, layout: Layout, layers: list[int]) -> tuple[list[float], list[float]]:
    """Dense and expert parameters of one rank of every stage."""
    ranks = StageLayers(np.arange(layout.pp), np.array(layers))
    found = stage_parameters(ctx, layout, rank_stages(ctx, layout, ranks))
    dense, routed = (
        np.broadcast_to(part, (layout.pp,)).tolist() for part in (found.dense, found.experts)
    )
    return dense, routed


# ---------------------------------------------------------------- users' cases


def test_mem_01_qwen3_30b_on_one_node() -> None:
    """NVIDIA/Megatron-LM#2762: EP 8 on 8 H100; 18 bytes of every expert parameter stay.

    Expert states cannot shard (edp 1): 60.8 GiB; dense ones take 7.5 bytes over 8 ranks: 10.7 GiB.
    """
    ctx = CostContext.of(shipped_scenario("qwen3-30b-a3b", "dgx-h100", 8))
    layout = Layout(dp_shard=8, ep=8, num_microbatches=128)
    (dense,), (routed,) = counted(ctx, layout, [48])
    assert layout.edp == 1
    assert 18 * routed / GIB == pytest.approx(60.8, rel=0.01)
    assert 7.5 * dense / GIB == pytest.approx(10.7, rel=0.01)
    found = terms(ctx, layout, layers=48)
    states = sum(found[name] for name in STATES)
    assert states / GIB == pytest.approx(71.5, rel=0.01)
    assert found["optimizer"] == pytest.approx(12 * routed + 12 * dense / 8, rel=1e-12)
    _, peak = worst_stage(ctx, layout)
    assert VERDICTS[int(verdict_index(ctx, layout, peak))] in ("fragile", "no")
    # the lever: more nodes, so that experts have replicas to shard over; the user ran on four
    four = CostContext.of(shipped_scenario("qwen3-30b-a3b", "dgx-h100", 32))
    wider = Layout(dp_shard=32, ep=8, num_microbatches=32)
    assert terms(four, wider, layers=48)["optimizer"] == pytest.approx(found["optimizer"] / 4)
    _, less = worst_stage(four, wider)
    assert VERDICTS[int(verdict_index(four, wider, less))] == "fits"


# ---------------------------------------------------------------- parameters


@st.composite
def toys(draw: st.DrawFn) -> Model:
    layers = draw(st.integers(4, 12))
    return sparse_model(
        num_layers=layers,
        num_key_value_heads=2,
        gated_mlp=draw(st.booleans()),
        mla=draw(st.sampled_from([None, LATENT, LATENT.replace(q_lora_rank=None)])),
        mtp_layers=draw(st.integers(0, 1)),
        moe=experts(
            num_shared_experts=draw(st.integers(0, 2)), num_dense_layers=draw(st.integers(0, 3))
        ),
    )


@given(toys(), st.integers(1, 4))
@settings(deadline=None)
def test_stages_together_have_the_model_s_parameters(toy: Model, pp: int) -> None:
    """And a prediction layer's, but for its three norms; on a stage of its own it reads a copy of
    the embedding."""
    ctx, layout = sparse_context(toy=toy), Layout(pp=pp)
    dense, routed = counted(ctx, layout, layers_by_rank(toy.num_layers, layout, ctx.reserved))
    ahead = toy.mtp_layers * (toy.num_prediction_parameters - 3 * toy.num_norm_parameters)
    copies = toy.num_embedding_parameters * (toy.mtp_layers > 0) * (pp > 1)
    copies *= not toy.tied_embeddings  # the head is one
    assert sum(dense) + sum(routed) == pytest.approx(toy.num_parameters + ahead + copies, rel=1e-12)
    with_experts = toy.num_moe_layers + toy.mtp_layers
    assert sum(routed) == pytest.approx(with_experts * 8 * EXPERT * (1.5 if toy.gated_mlp else 1))


def test_latent_down_projections_and_routers_are_whole_on_every_rank() -> None:
    """Of one layer over tp 4: three copies more of 32·(16 + 4), 32·24 and a router of 32·8."""
    ctx = sparse_context(toy=sparse_model(mla=LATENT))
    one, four = (float(layer_parameters(ctx, tp, SPARSE)) for tp in (1, 4))
    assert four - one == 3 * (32 * 20 + 32 * 24 + 32 * 8)
    dense = (float(layer_parameters(ctx, tp, DENSE)) for tp in (4, 1))
    assert next(dense) - next(dense) == 3 * (32 * 20 + 32 * 24)


# ---------------------------------------------------------------- states


@pytest.mark.parametrize(
    ("zero_stage", "weights", "gradients", "optimizer"),
    [(0, 2, 4, (12, 12)), (1, 2, 4, (12 / 16, 12 / 4)), (2, 2, (4 / 16, 4 / 4), (12 / 16, 12 / 4))],
)
def test_experts_shard_over_their_replicas_alone(
    zero_stage: int, weights: Any, gradients: Any, optimizer: Any
) -> None:
    """cp 2, dp_shard 8: dense states over 16 ranks, those of ep 4 over 4."""
    ctx, layout = sparse_context(), Layout(cp=2, dp_shard=8, ep=4, zero_stage=zero_stage)
    (dense,), (routed,) = counted(ctx, layout, [8])
    assert routed == 8 * 2 * EXPERT
    found = terms(ctx, layout)
    for name, bytes_ in zip(STATES, (weights, gradients, optimizer), strict=True):
        of_dense, of_routed = bytes_ if isinstance(bytes_, tuple) else (bytes_, bytes_)
        assert found[name] == pytest.approx(of_dense * dense + of_routed * routed), name


@pytest.mark.parametrize(("ep", "etp"), [(1, 1), (2, 1), (8, 1), (4, 2), (1, 4)])
def test_expert_parallelism_cuts_weights_and_gradients_not_the_optimizer(ep: int, etp: int) -> None:
    """Sharded or cut, a rank's share of FP32 states is the same: 12/(ep·etp·edp)."""
    ctx = sparse_context()
    layout = Layout(tp=4, sp=True, dp_shard=8, ep=ep, etp=etp)
    (_,), (routed,) = counted(ctx, layout, [8])
    assert routed == 8 * 8 * EXPERT / (ep * etp)
    alone = terms(ctx, Layout(tp=4, sp=True, dp_shard=8))
    found = terms(ctx, layout)
    assert found["optimizer"] == pytest.approx(alone["optimizer"])
    whole = 6 * 8 * 8 * EXPERT
    saved = sum(alone[name] - found[name] for name in ("parameters", "gradients"))
    assert saved == pytest.approx(whole * (1 - 1 / (ep * etp)))


def test_zero_3_shards_experts_over_their_replicas() -> None:
    """12 + 4 bytes of an expert parameter over edp 4; a layer or two at work, whole."""
    ctx, layout = sparse_context(), Layout(dp_shard=16, ep=4, zero_stage=3)
    few, many = (
        sum(terms(ctx, layout, layers=count)[name] for name in STATES) for count in (10, 110)
    )
    layer = float(layer_parameters(ctx, 1, SPARSE))
    by_hand = 16 * (layer / 16 + 2 * EXPERT / 4)
    assert by_hand <= (many - few) / 100 <= by_hand * 18 / 16


# ---------------------------------------------------------------- activations


@pytest.mark.parametrize(("gated", "width"), [(False, 1), (True, 2)])
@pytest.mark.parametrize("shared", [0, 2])
def test_every_copy_of_a_token_is_kept(gated: bool, width: int, shared: int) -> None:
    """An expert's input, its up-projections and its activation, in 16 bits; shared ones likewise.

    Around them as in a dense layer: norms' and blocks' inputs 8h, Q K V and output 8h.
    """
    toy = sparse_model(gated_mlp=gated, moe=experts(num_shared_experts=shared))
    found = float(layer_activations(sparse_context(toy=toy), Layout(), SPARSE).kept)
    kept = 2 * (2 * H + 2 * (width + 1) * F) + shared * 2 * (width + 1) * F
    by_hand = S * (16 * H + kept)
    assert by_hand <= found <= by_hand + 4 * 4 * S


def test_recomputed_modules_are_not_kept() -> None:
    """The activation's outputs; also what norms give; all that two copies a token keep."""
    ctx = sparse_context()
    kept = {
        kind: float(layer_activations(ctx, Layout(recompute=kind), SPARSE).kept)
        for kind in RECOMPUTE
    }
    none = kept["none"]
    assert none - kept["act"] == S * 2 * 2 * F
    assert none - kept["act_norm"] == S * (2 * 2 * F + 4 * H)
    assert none - kept["moe"] == S * 2 * (2 * H + 4 * F)
    assert none == kept["mla_up_proj"]  # no latent attention


def test_recomputed_up_projections_are_not_kept() -> None:
    """Queries and keys of 4·12 and values of 4·6, in 16 bits."""
    ctx = sparse_context(toy=sparse_model(mla=LATENT))
    kept = [
        float(layer_activations(ctx, Layout(recompute=kind), SPARSE).kept)
        for kind in ("none", "mla_up_proj")
    ]
    assert kept[0] - kept[1] == S * 2 * 4 * (12 + 12 + 6)


@given(expert_layouts(11, 8), st.sampled_from(["bf16", "fp8"]), st.booleans())
@settings(deadline=None)
def test_recompute_keeps_less(layout: Layout, precision: str, latent: bool) -> None:
    ctx = sparse_context(toy=sparse_model(mla=LATENT if latent else None))
    ctx = replace(ctx, matmul_bytes={"bf16": 2.0, "fp8": 1.0}[precision])
    for kind in (DENSE, SPARSE):
        kept = {
            name: float(layer_activations(ctx, replace(layout, recompute=name), kind).kept)
            for name in RECOMPUTE
        }
        assert min(kept.values()) == kept["full"] > 0
        assert max(kept.values()) == kept["none"]
        assert kept["none"] > kept["act"] > kept["act_norm"]


def layers_held(chunk_layers: int, ahead: int, chunks: int) -> int:
    """Layers held at the peak of a rank that passes forward `ahead` chunks, then one more beside
    each backward pass, layer by layer as Megatron-Core's combined 1F1B does: a layer of the pass
    forward is kept before the layer that is passed back beside it is freed."""
    ahead = min(ahead, chunks)
    held = peak = ahead * chunk_layers
    for _ in range(chunks - ahead):
        for _ in range(chunk_layers):
            peak = max(peak, held + 1)
    return peak


@pytest.mark.parametrize(("pp", "vp", "stage"), [(1, 1, 0), (2, 2, 0), (2, 2, 1), (4, 2, 1)])
def test_a_pass_beside_another_holds_one_layer_more(pp: int, vp: int, stage: int) -> None:
    """Megatron-Core runs one chunk more ahead, in place of the one that a plain 1F1B starts with;
    NVIDIA-NeMo/Megatron-Bridge ran Qwen3 30B with 8 sequences a micro-batch in 298 GB so."""
    ctx = sparse_context(software=sparse_software(logits_bytes=1e-6))
    plain = Layout(pp=pp, vp=vp, ep=2, num_microbatches=8, overlap="none")
    beside = replace(plain, overlap="ep")
    kept = layer_activations(ctx, plain, SPARSE).everything
    layers, chunks = 2 * vp, 8 * vp
    warm_up = 2 * (pp - stage - 1) + (vp - 1) * pp if vp > 1 else pp - stage - 1
    peak = layers_held(2, warm_up + 1, chunks)
    # a layer that is passed back needs as much besides either way
    working = terms(ctx, plain, stage, layers)["activations"] - (warm_up + 1) * 2 * kept
    assert terms(ctx, beside, stage, layers)["activations"] - working == pytest.approx(peak * kept)


def test_folded_schedules_have_counted_both_passes() -> None:
    """PP + 1 stages of a rank, of which one is passed forward while another is passed back."""
    ctx = sparse_context(software=sparse_software(schedules=("1f1b", "dualpipe")))
    layout = Layout(pp=4, ep=2, num_microbatches=8, schedule="dualpipe", overlap="none")
    beside = replace(layout, overlap="ep")
    assert terms(ctx, beside, 1, 2)["activations"] == terms(ctx, layout, 1, 2)["activations"]
    plain = replace(layout, schedule="1f1b")
    more = replace(beside, schedule="1f1b")
    assert terms(ctx, more, 1, 2)["activations"] > terms(ctx, plain, 1, 2)["activations"]


# ---------------------------------------------------------------- the rest


def test_tokens_on_their_way_have_buffers() -> None:
    """Two copies of 64 tokens leave and as many come in; without expert parallelism none."""
    assert terms(sparse_context(), Layout(dp_shard=8, ep=8))["buffers"] == 2 * 2 * S * H * 2
    assert terms(sparse_context(), Layout(dp_shard=8))["buffers"] == 0.0


@pytest.mark.parametrize(
    ("layout", "groups"),
    [
        (Layout(dp_shard=8, ep=8), 2),  # its own, and the shards'
        (Layout(dp_shard=8, ep=4), 3),  # and replicas of experts
        (Layout(dp_shard=8), 1),
        (Layout(tp=4, sp=True, dp_shard=2), 3),  # replicas of experts over all eight
        (Layout(tp=4, sp=True, dp_shard=2, etp=2, ep=2), 5),
    ],
)
def test_every_group_of_several_has_a_communicator(layout: Layout, groups: int) -> None:
    profile = sparse_software(runtime_bytes=1000.0, communicator_bytes=10.0)
    assert terms(sparse_context(software=profile), layout)["runtime"] == 1000 + 10 * groups


def test_a_prediction_layer_has_logits_of_its_own() -> None:
    plain, ahead = (sparse_context(toy=sparse_model(mtp_layers=count)) for count in (0, 1))
    assert terms(ahead, Layout())["logits"] == 2 * terms(plain, Layout())["logits"] > 0


# ---------------------------------------------------------------- tables


@pytest.mark.parametrize("name", SHIPPED)
@settings(max_examples=25, deadline=None)
@given(st.lists(expert_layouts(48, 128), min_size=1, max_size=5))
def test_table_equals_numbers(name: str, rows: list[Layout]) -> None:
    ctx = shipped_context(name)
    table = LayoutTable.from_layouts(rows)
    usage, peaks = worst_stage(ctx, table)
    floors = floor_bytes(ctx, table)
    assert peaks.dtype == np.float64 and peaks.shape == (len(rows),)
    for i, row in enumerate(rows):
        one, peak = worst_stage(ctx, row)
        assert peaks[i] == pytest.approx(float(peak), rel=1e-12)
        assert floors[i] == pytest.approx(float(floor_bytes(ctx, row)), rel=1e-12)
        for term in TERMS:
            mine, theirs = np.asarray(getattr(usage, term)), np.asarray(getattr(one, term))
            shape = np.shape(usage.total)
            np.testing.assert_allclose(
                np.broadcast_to(mine, shape)[:, i],
                np.broadcast_to(theirs, shape[:1]),
                rtol=1e-12,
                err_msg=term,
            )


@pytest.mark.parametrize("name", SHIPPED)
@settings(max_examples=60, deadline=None)
@given(expert_layouts(48, 128))
def test_worst_stage_is_the_worst_of_all(name: str, layout: Layout) -> None:
    ctx = shipped_context(name)
    layers = np.array(layers_by_rank(ctx.model.num_layers, layout, ctx.reserved))
    every = stage_memory(ctx, layout, StageLayers(np.arange(layout.pp), layers))
    _, peak = worst_stage(ctx, layout)
    assert float(peak) == pytest.approx(float(np.max(every.total)), rel=1e-12)


@pytest.mark.parametrize("name", SHIPPED)
@settings(max_examples=40, deadline=None)
@given(expert_layouts(48, 128))
def test_no_recomputation_goes_under_the_floor(name: str, layout: Layout) -> None:
    ctx = shipped_context(name)
    peaks = [float(worst_stage(ctx, replace(layout, recompute=kind))[1]) for kind in RECOMPUTE]
    assert float(floor_bytes(ctx, layout)) <= min(peaks)
    assert ctx.limit_bytes["fits"] < float(ctx.accelerator.hbm_bytes)
