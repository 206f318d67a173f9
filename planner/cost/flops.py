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
from planner.cost.recompute import recomputed_shares
from planner.cost.statespace import SCAN_FLOPS
from planner.layouts.layout import LayoutLike, Numeric
from planner.problem.blocks import Blocks


class ForwardFlops(NamedTuple):
    """Forward FLOPs per token; prediction layers count as layers.

    With the head go their own and the matmuls that join their inputs.
    """

    layers: float  # matmuls; of a layer's routed experts a token meets top_k
    attention: float  # cores
    scans: float
    head: float


def forward_flops_per_token(ctx: CostContext) -> ForwardFlops:
    """What a token costs on its way through the model."""
    m = ctx.model
    layers = num_layers(m)
    weights = sum(kind.share * layers * _layer_weights(ctx, kind.blocks) for kind in ctx.kinds)
    width = (ctx.query_size + ctx.output_size) * ctx.attended_share
    attention = num_attention_layers(m) * ctx.training.sequence_length * width
    scans = 0.0
    if m.mamba is not None:
        each = SCAN_FLOPS * m.mamba.inner_size * m.mamba.state_size
        scans = share_of(ctx.kinds, "mamba") * layers * each
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
    weights = sum(kind.share * _layer_weights(ctx, kind.blocks) for kind in ctx.kinds)
    attending = num_attention_layers(ctx.model) / num_layers(ctx.model)
    ups = [m.inputs * m.outputs for m in attention_matmuls(ctx.model, 1) if m.up_projection]
    return attending * float(sum(ups)) / weights


def expert_share(ctx: CostContext) -> float:
    """Share of the layers' matmul FLOPs that are routed experts'."""
    if ctx.model.moe is None:
        return 0.0
    weights = sum(kind.share * _layer_weights(ctx, kind.blocks) for kind in ctx.kinds)
    share = share_of(ctx.kinds, "experts")
    visited = ctx.model.moe.top_k * ctx.model.moe.expert_ffn_hidden_size
    met = sum(m.inputs * m.outputs for m in expert_matmuls(ctx.model, float(visited), 1))
    return share * float(met) / weights


def recomputed_matmuls(ctx: CostContext, layout: LayoutLike) -> Numeric:
    """Share of the layers' forward matmul FLOPs that a layout runs again."""
    again = recomputed_shares(ctx, layout)
    experts, ups = expert_share(ctx), up_projection_share(ctx)
    return again[0] * (1.0 - experts) + again[4] * experts + again[5] * ups


def tokens_per_step(ctx: CostContext) -> float:
    """Tokens of the global batch."""
    return float(ctx.training.global_batch_size) * ctx.training.sequence_length


def model_flops(ctx: CostContext) -> float:
    """Model FLOPs of a step over all accelerators."""
    return 3.0 * tokens_per_step(ctx) * sum(forward_flops_per_token(ctx))


def executed_flops(ctx: CostContext, layout: LayoutLike) -> Numeric:
    """FLOPs that kernels execute in a step over all accelerators; at least the model's."""
    layers, attention, scans, head = forward_flops_per_token(ctx)
    again = recomputed_shares(ctx, layout)
    matmuls = layers * (3.0 + recomputed_matmuls(ctx, layout))
    if ctx.attention_backend in SCORE_WRITING_BACKENDS:
        cores = 2.0 * attention / ctx.attended_share * (3.0 + again[1])
    else:
        cores = attention * (3.5 + again[1])
    return tokens_per_step(ctx) * (matmuls + cores + scans * (3.0 + again[6]) + 3.0 * head)
