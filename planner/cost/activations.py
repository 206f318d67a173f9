"""Bytes that layers keep for their backward pass, and what passing one back needs besides.

Of one layer and micro-batch on one rank. Everything a layer has is told apart by what it is
(`Activation`), and a layout's recompute keeps a share of each (`planner.cost.recompute`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from planner.cost.context import SCORE_WRITING_BACKENDS, CostContext
from planner.cost.experts import experts_per_rank, imbalance, own_tokens
from planner.cost.layers import key_value_sizes, shared_ffn
from planner.cost.recompute import Activation, kept_share, recomputes_layers
from planner.cost.stages import IS_FOLDED
from planner.cost.statespace import scan_activations, scan_widths
from planner.layouts.layout import LayoutLike
from planner.layouts.numeric import Numeric
from planner.problem.blocks import Blocks, Mamba, MoE

Bytes = dict[Activation, Numeric]
"""Bytes of one layer and micro-batch, by what they are."""


@dataclass(frozen=True, slots=True)
class LayerActivations:
    """Bytes of one layer and micro-batch: all it has, its scores, what recompute keeps of it."""

    everything: Numeric
    scores: Numeric
    kept: Numeric


def layer_activations(ctx: CostContext, layout: LayoutLike, blocks: Blocks) -> LayerActivations:
    """Bytes that a layer holds on its forward pass, and keeps under the layout's recompute."""
    held = activation_bytes(ctx, layout, blocks)
    return LayerActivations(
        everything=sum(held.values()),
        scores=held.get(Activation.SCORES, 0.0),
        kept=sum(kept_share(layout, activation) * held[activation] for activation in held),
    )


def activation_bytes(ctx: CostContext, layout: LayoutLike, blocks: Blocks) -> Bytes:
    """Bytes that a layer keeps per micro-batch without recompute, by what they are.

    Korthikanti et al. 2022, table 2, for any head and feed-forward size; flash attention keeps
    the output and a row statistic in place of the scores. A layer of one block has no residual
    inside.
    """
    tokens = shard_tokens(ctx, layout)
    cut_tokens = tokens / layout.tp
    held = _residual_stream(ctx, layout, blocks, tokens)
    held[Activation.ALWAYS] += cut_tokens * _always_cut(ctx, blocks)
    if "attention" in blocks:
        held |= _attention(ctx, layout, cut_tokens)
    if ctx.model.mamba is not None and "mamba" in blocks:
        held = _with_scan(ctx, layout, ctx.model.mamba, tokens, held)
    held |= _feed_forward(ctx, blocks, cut_tokens)
    if "attention" in blocks and ctx.attention_backend in SCORE_WRITING_BACKENDS:
        held |= _scores(ctx, layout)
    if "experts" in blocks and ctx.model.moe is not None:
        held |= _experts(ctx, layout, ctx.model.moe)
    return held


def shard_tokens(ctx: CostContext, layout: LayoutLike) -> Numeric:
    """Tokens of a micro-batch on one cp rank, mbs · s / cp."""
    return layout.mbs * ctx.training.sequence_length / layout.cp


EAGER_NORM_BYTES = 6.0
"""Kept per element by a norm that runs operator by operator, besides its input and output: the
FP32 copy whose square is summed, and the normalised value that the weight multiplies."""


def _residual_stream(
    ctx: CostContext, layout: LayoutLike, blocks: Blocks, tokens: Numeric
) -> Bytes:
    """The layer's input, what norms give the matmuls, and what is kept whatever is recomputed."""
    m, e, num_blocks = ctx.model, ctx.element_bytes, len(blocks)
    h, sequence_cut = m.hidden_size, np.where(layout.sp, layout.tp, 1)
    norms = m.num_norms(blocks)
    before_blocks = min(norms, num_blocks)  # the others are after blocks, and keep what those gave
    # as wide as gathered where autograd keeps what was gathered; low-precision matmuls keep their
    # inputs as cast
    input_cut = 1 if ctx.software.keeps_gathered_inputs else sequence_cut
    norm_output = before_blocks * ctx.matmul_bytes * h / input_cut
    residual = (norms - 1) * e * h + norms * h * EAGER_NORM_BYTES * ctx.software.eager_norm
    mask = 1.0 * num_blocks * h if m.dropout else 0.0
    latents = 0.0
    if m.mla is not None and "attention" in blocks:
        width = (m.mla.q_lora_rank or 0) + m.mla.kv_lora_rank + m.mla.qk_rope_head_dim
        latents = (e + ctx.matmul_bytes) * width
    layer_input = Activation.LAYER_INPUT if num_blocks > 1 else Activation.BLOCK_INPUT
    return {
        layer_input: tokens * e * h / sequence_cut,
        Activation.ALWAYS: tokens * (residual + mask + latents) / sequence_cut,
        Activation.NORM_OUTPUT: tokens * norm_output,
    }


def _always_cut(ctx: CostContext, blocks: Blocks) -> float:
    """Bytes per token, cut over tp, that are kept whatever is recomputed: attention's row
    statistics, and where it runs operator by operator the gate's activation."""
    m = ctx.model
    # rotation, the other elementwise operator, is linear and keeps nothing
    gate = ctx.element_bytes * shared_ffn(m, blocks) * m.gated_mlp * ctx.software.eager_elementwise
    return 4.0 * (m.num_attention_heads * ("attention" in blocks)) + gate


def _attention(ctx: CostContext, layout: LayoutLike, cut_tokens: Numeric) -> Bytes:
    """Queries, keys and values, and the output of the core."""
    m, e = ctx.model, ctx.element_bytes
    projected = Activation.PROJECTED if m.mla is None else Activation.UP_PROJECTED
    return {
        projected: cut_tokens * e * (ctx.query_size + key_value_sizes(m, layout.tp).total),
        Activation.ATTENTION_OUTPUT: cut_tokens * e * ctx.output_size,
    }


def _with_scan(
    ctx: CostContext, layout: LayoutLike, mamba: Mamba, tokens: Numeric, held: Bytes
) -> Bytes:
    """What a layer holds, and a state-space block's projected inputs and what its scan keeps.

    The norm's output counts as kept whatever is recomputed: recompute by module does not reach it.
    """
    e = ctx.element_bytes
    widths = scan_widths(mamba, layout.tp, layout.cp)
    kept = scan_activations(widths, e).kept + ctx.matmul_bytes * widths.inner
    kept = kept + held[Activation.NORM_OUTPUT] / tokens
    projected = 2 * widths.inner + 2 * widths.inputs + widths.heads
    others = {key: value for key, value in held.items() if key is not Activation.NORM_OUTPUT}
    return others | {
        Activation.ALWAYS: held[Activation.ALWAYS] + tokens * kept,
        Activation.PROJECTED: tokens * e * projected,
    }


def _feed_forward(ctx: CostContext, blocks: Blocks, cut_tokens: Numeric) -> Bytes:
    """Outputs of the first matmul and of the activation, of an MLP or of shared experts."""
    ffn, e, b = shared_ffn(ctx.model, blocks), ctx.element_bytes, ctx.matmul_bytes
    up = 2 * ffn if ctx.model.gated_mlp else ffn
    if "experts" in blocks:
        return {Activation.SHARED_EXPERTS: cut_tokens * (e * up + b * ffn)}
    if not ffn:
        return {}
    return {
        Activation.MLP_UP: cut_tokens * e * up,
        Activation.MLP_ACTIVATION: cut_tokens * b * ffn,
    }


def _scores(ctx: CostContext, layout: LayoutLike) -> Bytes:
    """The softmax's output (naive: also in FP32), the dropout's mask and output."""
    e = ctx.element_bytes
    naive = 4.0 if ctx.attention_backend == "naive" else 0.0
    per_score = e + (1 + e if ctx.model.dropout else 0) + naive
    return {Activation.SCORES: per_score * score_elements(ctx, layout)}


def _experts(ctx: CostContext, layout: LayoutLike, moe: MoE) -> Bytes:
    """Inputs and outputs of routed experts' first matmul, and of their activation."""
    m, b = ctx.model, ctx.matmul_bytes
    width = moe.expert_ffn_hidden_size / layout.etp
    rows = expert_rows(ctx, layout, moe)
    input_bytes = b * m.expert_hidden_size
    first_matmul = rows * (input_bytes + ctx.element_bytes * (2 if m.gated_mlp else 1) * width)
    if moe.latent_size:  # and what comes back to be projected up
        first_matmul = first_matmul + own_tokens(ctx, layout) * input_bytes
    return {
        Activation.EXPERTS: first_matmul,
        Activation.EXPERT_ACTIVATION: rows * b * width,
    }


def expert_rows(ctx: CostContext, layout: LayoutLike, moe: MoE) -> Numeric:
    """Copies of tokens that the fullest rank's experts get of a micro-batch."""
    copies = own_tokens(ctx, layout) * moe.top_k * layout.etp
    return copies * imbalance(ctx, moe, layout.ep)


def score_elements(ctx: CostContext, layout: LayoutLike) -> Numeric:
    """Attention scores of one layer and micro-batch on one rank: mbs · s² · heads / (cp · tp)."""
    s = ctx.training.sequence_length
    return layout.mbs * float(s) * s / layout.cp * ctx.model.num_attention_heads / layout.tp


# ---------------------------------------------------------------- passing a layer back

SCORE_WORKSPACE: Mapping[str, float] = {"fused-softmax": 4.0, "naive": 10.0}
"""Bytes per score that passing them back needs besides what is kept: the gradients of softmax's
output and input in 16 bits; without a fused kernel also the first one's FP32 copy and the second
in FP32. With the 6 bytes kept that makes the 16 that VITA-MLLM/Long-VITA#7 measured."""


def working_bytes(
    ctx: CostContext, layout: LayoutLike, layer: LayerActivations, blocks: Blocks
) -> Numeric:
    """Bytes of the layer being passed back, besides what is kept for it and recomputed scores.

    All of it where it is recomputed; what unfused attention needs to pass its scores back, and a
    scan its states; the gradients of the MLP's activations and, before they are added up, of its
    weights.
    """
    m, software, tokens = ctx.model, ctx.software, shard_tokens(ctx, layout)
    matrices = 3 if m.gated_mlp else 2
    fresh_gradients = m.hidden_size * (software.fresh_gradient_bytes or 0.0)
    ffn = shared_ffn(m, blocks)
    working = recomputes_layers(layout) * (layer.everything - layer.scores)
    if m.mamba is not None and "mamba" in blocks:
        widths = scan_widths(m.mamba, layout.tp, layout.cp)
        working = working + tokens * scan_activations(widths, ctx.element_bytes).working
    if "attention" in blocks and ctx.attention_backend in SCORE_WORKSPACE:
        working = working + score_elements(ctx, layout) * SCORE_WORKSPACE[ctx.attention_backend]
    working = working + matrices * ffn / layout.tp * (tokens * ctx.element_bytes + fresh_gradients)
    if "experts" not in blocks or m.moe is None:
        return working
    width = matrices * m.moe.expert_ffn_hidden_size / layout.etp
    rows = expert_rows(ctx, layout, m.moe)
    experts = experts_per_rank(m.moe, layout.ep)
    return working + width * (rows * ctx.element_bytes + experts * fresh_gradients)


def beside_bytes(layout: LayoutLike, layer: LayerActivations) -> Numeric:
    """Bytes of the layer that runs forward while another micro-batch's is passed back.

    Where dispatch and combine overlap, the two passes go through their layers in step: what a layer
    keeps of one micro-batch is freed as a layer of the next begins to keep as much, so that one
    layer is held twice (megatron-core 0.16.1, models/common/model_chunk_schedule_plan.py, `run`;
    pipeline_parallel/schedules.py, `get_pp_rank_microbatches`). Folded schedules count both
    micro-batches in flight as it is.
    """
    return layout.overlap_ep * ~IS_FOLDED[layout.schedule_index] * layer.everything


def recomputed_score_bytes(layout: LayoutLike, layer: LayerActivations) -> Numeric:
    """Bytes of one layer's scores where they are recomputed.

    The forward pass writes and frees them, but what is kept meanwhile splits their large blocks:
    the loss cannot take them, passing the layer back can.
    """
    return (kept_share(layout, Activation.SCORES) < 1.0) * layer.scores
