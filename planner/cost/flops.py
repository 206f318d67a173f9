"""FLOPs of a training step, by the conventions of MFU and HFU.

Model FLOPs: three forward passes' worth of matmuls with the LM head, attention's causal half
counted once, nothing recomputed (PaLM, arXiv 2204.02311, appendix B, with the causal half). HFU
counts what kernels execute: recomputation, the QKᵀ that flash attention's backward pass repeats,
and the masked half where a backend computes it.
"""

from __future__ import annotations

from planner.cost.compute import RECOMPUTED_SHARES
from planner.cost.context import SCORE_WRITING_BACKENDS, CostContext
from planner.layout import LayoutLike, Numeric


def forward_flops_per_token(ctx: CostContext) -> tuple[float, float, float]:
    """Forward FLOPs per token: the layers' matmuls, attention cores, the LM head."""
    m = ctx.model
    h, q, f = m.hidden_size, ctx.query_size, m.ffn_hidden_size
    kv = float(ctx.key_value_size(1))
    up = 2 * f if m.gated_mlp else f
    layers = 2.0 * m.num_layers * (h * (q + 2 * kv) + q * h + h * up + f * h)
    attention = 2.0 * m.num_layers * ctx.training.sequence_length * q
    return layers, attention, 2.0 * h * m.vocab_size


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
    if ctx.attention_backend in SCORE_WRITING_BACKENDS:
        cores = 2.0 * attention * (3.0 + again[1])
    else:
        cores = attention * (3.5 + again[1])
    return tokens_per_step(ctx) * (layers * (3.0 + again[0]) + cores + 3.0 * head)
