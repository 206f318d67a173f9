"""FLOPs of a training step, by the conventions of MFU and HFU.

Model FLOPs: three forward passes' worth of matmuls with the LM head, attention's causal half
counted once, state-space scans as Megatron-LM counts them, nothing recomputed (PaLM, arXiv
2204.02311, appendix B, with the causal half). HFU counts what kernels execute: recomputation, the
QKᵀ that flash attention's backward pass repeats, and the masked half where a backend computes it.
"""

from __future__ import annotations

from typing import NamedTuple

from planner.cost.context import SCORE_WRITING_BACKENDS, CostContext
from planner.cost.layers import (
    attention_matmuls,
    expert_matmuls,
    layer_matmuls,
    num_attention_layers,
    num_layers,
    share_of,
)
from planner.cost.recompute import RecomputedShares, recomputed_shares
from planner.cost.statespace import SCAN_FLOPS
from planner.layouts.layout import LayoutLike
from planner.layouts.numeric import Numeric
from planner.problem.blocks import Blocks


class ForwardFlops(NamedTuple):
    """Forward FLOPs per token; prediction layers count as layers."""

    layers: float  # matmuls; of a layer's routed experts the top_k that a token meets
    attention: float  # cores
    scans: float
    head: float  # with prediction layers' own heads and the matmuls that join their inputs


def forward_flops_per_token(ctx: CostContext) -> ForwardFlops:
    """What a token costs on its way through the model."""
    m = ctx.model
    layers = num_layers(m)
    weights = sum(
        kind.share * layers * _layer_weights(ctx, kind.blocks) for kind in ctx.layer_kinds
    )
    width = (ctx.query_size + ctx.output_size) * ctx.attended_share
    attention = num_attention_layers(m) * ctx.training.sequence_length * width
    scans = 0.0
    if m.mamba is not None:
        each = SCAN_FLOPS * m.mamba.inner_size * m.mamba.state_size
        scans = share_of(ctx.layer_kinds, "mamba") * layers * each
    heads = (1.0 + m.mtp_layers) * m.vocab_size + m.mtp_layers * 2.0 * m.hidden_size
    return ForwardFlops(2.0 * weights, attention, scans, heads * 2.0 * m.hidden_size)


def _layer_weights(ctx: CostContext, blocks: Blocks) -> float:
    """Weights of one layer's matmuls that a token meets."""
    m = ctx.model
    matmuls = layer_matmuls(m, blocks, 1)
    router = 0
    if "experts" in blocks and m.moe is not None:
        matmuls += expert_matmuls(m, float(m.moe.expert_ffn_hidden_size), 1) * m.moe.top_k
        router = m.hidden_size * m.moe.num_experts
    return float(sum(matmul.inputs * matmul.outputs for matmul in matmuls)) + router


def up_projection_share(ctx: CostContext) -> float:
    """Share of the layers' matmul FLOPs that are latent attention's up-projections."""
    weights = sum(kind.share * _layer_weights(ctx, kind.blocks) for kind in ctx.layer_kinds)
    attending = num_attention_layers(ctx.model) / num_layers(ctx.model)
    ups = [m.inputs * m.outputs for m in attention_matmuls(ctx.model, 1) if m.up_projection]
    return attending * float(sum(ups)) / weights


def expert_share(ctx: CostContext) -> float:
    """Share of the layers' matmul FLOPs that are routed experts'."""
    if ctx.model.moe is None:
        return 0.0
    weights = sum(kind.share * _layer_weights(ctx, kind.blocks) for kind in ctx.layer_kinds)
    share = share_of(ctx.layer_kinds, "experts")
    visited = ctx.model.moe.top_k * ctx.model.moe.expert_ffn_hidden_size
    met = sum(m.inputs * m.outputs for m in expert_matmuls(ctx.model, float(visited), 1))
    return share * float(met) / weights


def recomputed_matmuls(ctx: CostContext, layout: LayoutLike) -> Numeric:
    """Share of the layers' forward matmul FLOPs that a layout recomputes."""
    return _recomputed_matmuls(ctx, recomputed_shares(ctx, layout))


def _recomputed_matmuls(ctx: CostContext, recomputed: RecomputedShares) -> Numeric:
    experts, ups = expert_share(ctx), up_projection_share(ctx)
    return (
        recomputed.gemm * (1.0 - experts)
        + recomputed.experts * experts
        + recomputed.up_projection * ups
    )


def tokens_per_step(ctx: CostContext) -> float:
    """Tokens of the global batch."""
    return float(ctx.training.global_batch_size) * ctx.training.sequence_length


def model_flops(ctx: CostContext) -> float:
    """Model FLOPs of a step over all accelerators."""
    return 3.0 * tokens_per_step(ctx) * sum(forward_flops_per_token(ctx))


def executed_flops(ctx: CostContext, layout: LayoutLike) -> Numeric:
    """FLOPs that kernels execute in a step over all accelerators; at least the model's."""
    forward = forward_flops_per_token(ctx)
    recomputed = recomputed_shares(ctx, layout)
    matmuls = forward.layers * (3.0 + _recomputed_matmuls(ctx, recomputed))
    if ctx.attention_backend in SCORE_WRITING_BACKENDS:
        # the square of scores, of which the causal half counts for MFU
        cores = 2.0 * forward.attention / ctx.attended_share * (3.0 + recomputed.attention)
    else:
        cores = forward.attention * (3.5 + recomputed.attention)
    scans = forward.scans * (3.0 + recomputed.scan)
    return tokens_per_step(ctx) * (matmuls + cores + scans + 3.0 * forward.head)
