"""FLOPs of a training step, by the conventions of MFU and HFU.

Model FLOPs: three forward passes' worth of matmuls with the LM head, attention's causal half
counted once, nothing recomputed (PaLM, arXiv 2204.02311, appendix B, with the causal half). HFU
counts what kernels execute: recomputation, the QKᵀ that flash attention's backward pass repeats,
and the masked half where a backend computes it.
"""

from __future__ import annotations

from planner.cost.compute import RECOMPUTED_SHARES
from planner.cost.context import SCORE_WRITING_BACKENDS, CostContext
from planner.cost.layers import attention_matmuls, mlp_matmuls, num_layers
from planner.layout import LayoutLike, Numeric


def forward_flops_per_token(ctx: CostContext) -> tuple[float, float, float]:
    """Forward FLOPs per token: the layers' matmuls, attention cores, the LM head.

    Of a layer's routed experts a token meets top_k. Prediction layers count as layers; with the
    head go their own and the matmuls that join their inputs.
    """
    m = ctx.model
    layers = num_layers(m)
    weights = sum(kind.share * layers * _layer_weights(ctx, kind.experts) for kind in ctx.kinds)
    width = (ctx.query_size + ctx.output_size) * ctx.attended_share
    attention = layers * ctx.training.sequence_length * width
    heads = (1.0 + m.mtp_layers) * m.vocab_size + m.mtp_layers * 2.0 * m.hidden_size
    return 2.0 * weights, attention, heads * 2.0 * m.hidden_size


def _layer_weights(ctx: CostContext, experts: bool) -> float:
    """Weights of one layer's matmuls that a token meets."""
    m = ctx.model
    matmuls = attention_matmuls(m, 1)
    blocks = [float(m.shared_ffn_hidden_size if experts else m.ffn_hidden_size)]
    if experts and m.moe is not None:
        blocks += [float(m.moe.expert_ffn_hidden_size)] * m.moe.top_k
    for ffn in blocks:
        matmuls = (*matmuls, *mlp_matmuls(m, ffn, 1))
    router = m.hidden_size * m.moe.num_experts if experts and m.moe is not None else 0
    return float(sum(matmul.inputs * matmul.outputs for matmul in matmuls)) + router


def up_projection_share(ctx: CostContext) -> float:
    """Share of the layers' matmul FLOPs that are latent attention's up-projections."""
    weights = sum(kind.share * _layer_weights(ctx, kind.experts) for kind in ctx.kinds)
    ups = [m.inputs * m.outputs for m in attention_matmuls(ctx.model, 1) if m.up_projection]
    return float(sum(ups)) / weights


def expert_share(ctx: CostContext) -> float:
    """Share of the layers' matmul FLOPs that are routed experts'."""
    if ctx.model.moe is None:
        return 0.0
    weights = sum(kind.share * _layer_weights(ctx, kind.experts) for kind in ctx.kinds)
    share = sum(kind.share for kind in ctx.kinds if kind.experts)
    visited = ctx.model.moe.top_k * ctx.model.moe.expert_ffn_hidden_size
    met = sum(m.inputs * m.outputs for m in mlp_matmuls(ctx.model, float(visited), 1))
    return share * float(met) / weights


def recomputed_matmuls(ctx: CostContext, layout: LayoutLike) -> Numeric:
    """Share of the layers' forward matmul FLOPs that a layout runs again."""
    again = RECOMPUTED_SHARES[:, layout.recompute_index]
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
    layers, attention, head = forward_flops_per_token(ctx)
    again = RECOMPUTED_SHARES[:, layout.recompute_index]
    matmuls = layers * (3.0 + recomputed_matmuls(ctx, layout))
    if ctx.attention_backend in SCORE_WRITING_BACKENDS:
        cores = 2.0 * attention / ctx.attended_share * (3.0 + again[1])
    else:
        cores = attention * (3.5 + again[1])
    return tokens_per_step(ctx) * (matmuls + cores + 3.0 * head)
