"""Bytes that layers keep for their backward pass, and what passing one back needs beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from planner.cost.context import SCORE_WRITING_BACKENDS, CostContext
from planner.cost.experts import imbalance, own_tokens
from planner.cost.layers import key_value_sizes, shared_ffn
from planner.cost.statespace import scan_kept, scan_widths
from planner.layouts.layout import RECOMPUTE, LayoutLike, Numeric
from planner.problem.blocks import Blocks, MoE

KEPT_SHARES: Mapping[str, np.ndarray] = {
    # none, selective, operators, alternate, full, mla_up_proj, act, act_norm, moe
    "input": np.array([1.0, 1.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]),
    "entry": np.array([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]),
    "always": np.array([1.0, 1.0, 0.0, 0.5, 0.0, 1.0, 1.0, 1.0, 1.0]),
    "norms": np.array([1.0, 1.0, 0.0, 0.5, 0.0, 1.0, 1.0, 0.0, 1.0]),
    "projected": np.array([1.0, 1.0, 0.5, 0.5, 0.0, 1.0, 1.0, 1.0, 1.0]),
    "up_projected": np.array([1.0, 1.0, 0.5, 0.5, 0.0, 0.0, 1.0, 1.0, 1.0]),
    "output": np.array([1.0, 1.0, 1.0, 0.5, 0.0, 1.0, 1.0, 1.0, 1.0]),
    "mlp": np.array([1.0, 1.0, 0.5, 0.5, 0.0, 1.0, 1.0, 1.0, 1.0]),
    "activation": np.array([1.0, 1.0, 0.0, 0.5, 0.0, 1.0, 0.0, 0.0, 1.0]),
    "scores": np.array([1.0, 0.0, 0.0, 0.5, 0.0, 1.0, 1.0, 1.0, 1.0]),
    "shared": np.array([1.0, 1.0, 0.5, 0.5, 0.0, 1.0, 1.0, 1.0, 1.0]),
    "experts": np.array([1.0, 1.0, 1.0, 0.5, 0.0, 1.0, 1.0, 1.0, 0.0]),
    "expert_activation": np.array([1.0, 1.0, 1.0, 0.5, 0.0, 1.0, 0.0, 0.0, 0.0]),
}
"""Share of each part of a layer that is kept, by RECOMPUTE (columns); `operators` keeps every
second matmul's output and attention's, and the input of both blocks (entry: of the only one)."""

WHOLE_LAYERS = np.isin(RECOMPUTE, ("alternate", "full"))
"""Whether whole layers are run again, by RECOMPUTE."""


@dataclass(frozen=True, slots=True)
class LayerActivations:
    """Bytes of one layer and micro-batch: all it has, its scores, what recomputing keeps of it."""

    everything: Numeric
    scores: Numeric
    kept: Numeric


def layer_activations(ctx: CostContext, layout: LayoutLike, blocks: Blocks) -> LayerActivations:
    """What a layer holds on its forward pass, and keeps under the layout's recompute."""
    parts = layer_parts(ctx, layout, blocks)
    kinds = layout.recompute_index
    return LayerActivations(
        everything=sum(parts.values()),
        scores=parts.get("scores", 0.0),
        kept=sum(KEPT_SHARES[name][kinds] * held for name, held in parts.items()),
    )


def activation_bytes(ctx: CostContext, layout: LayoutLike, blocks: Blocks) -> Numeric:
    """Bytes one layer keeps per micro-batch for its backward pass, under the layout's recompute."""
    return layer_activations(ctx, layout, blocks).kept


def layer_parts(ctx: CostContext, layout: LayoutLike, blocks: Blocks) -> dict[str, Numeric]:
    """Bytes kept per layer and micro-batch, by what they are; without recomputation all of them.

    Korthikanti et al. 2022, table 2, for any head and feed-forward size; flash attention keeps
    the output and a row statistic in place of the scores. norms: what they give the matmuls;
    projected (latent attention: up_projected): queries, keys and values; mlp, activation: outputs
    of the MLP's first matmul and of its activation; shared: both, of shared experts; experts: the
    inputs and outputs of routed experts' first matmul. A layer of one block has no residual inside.
    """
    m, e, number = ctx.model, ctx.element_bytes, len(blocks)
    h, attends, experts = m.hidden_size, "attention" in blocks, "experts" in blocks
    heads, f = m.num_attention_heads * attends, shared_ffn(m, blocks)
    up = 2 * f if m.gated_mlp else f
    tokens = layout.mbs * ctx.training.sequence_length / layout.cp
    cut, mine = np.where(layout.sp, layout.tp, 1), tokens / layout.tp
    b = ctx.matmul_bytes  # low-precision matmuls keep their inputs as cast
    norms = m.num_norms(blocks)
    before = min(norms, number)  # the others are after blocks, and keep what those gave
    # the blocks' inputs, whole where autograd keeps what was gathered
    into = before * b * h / (1 if ctx.software.keeps_gathered_inputs else cut)
    residual = (norms - 1) * e * h + norms * h * EAGER_NORM_BYTES * ctx.software.eager_norm
    mask = 1.0 * number * h if m.dropout else 0.0
    latents = 0.0
    if m.mla is not None and attends:
        width = (m.mla.q_lora_rank or 0) + m.mla.kv_lora_rank + m.mla.qk_rope_head_dim
        latents = (e + b) * width
    # the gate's activation; rotation is linear and keeps nothing
    gate = e * f * m.gated_mlp * ctx.software.eager_elementwise
    parts = {
        "input" if number > 1 else "entry": tokens * e * h / cut,
        "always": tokens * (residual + mask + latents) / cut + mine * (4.0 * heads + gate),
        "norms": tokens * into,
    }
    if attends:
        parts |= {
            "projected" if m.mla is None else "up_projected": (
                mine * e * (ctx.query_size + sum(key_value_sizes(m, layout.tp)))
            ),
            "output": mine * e * ctx.output_size,
        }
    if m.mamba is not None and "mamba" in blocks:
        w = scan_widths(m.mamba, layout.tp, layout.cp)
        # what the norms give the projections is kept whatever is run again by module
        kept = scan_kept(w, e)[0] + b * w.inner + parts.pop("norms") / tokens
        parts["projected"] = tokens * e * (2 * w.inner + 2 * w.inputs + w.heads)
        parts["always"] = parts["always"] + tokens * kept
    if experts:
        parts["shared"] = mine * (e * up + b * f)
    elif f:
        parts |= {"mlp": mine * e * up, "activation": mine * b * f}
    if attends and ctx.attention_backend in SCORE_WRITING_BACKENDS:
        # the softmax's output (naive: also in FP32), the dropout's mask and output
        naive = 4.0 if ctx.attention_backend == "naive" else 0.0
        per_score = e + (1 + e if m.dropout else 0) + naive
        parts["scores"] = per_score * score_elements(ctx, layout)
    if experts and m.moe is not None:
        width = m.moe.expert_ffn_hidden_size / layout.etp
        rows = expert_rows(ctx, layout, m.moe)
        inputs = b * m.expert_hidden_size
        parts["experts"] = rows * (inputs + e * (2 if m.gated_mlp else 1) * width)
        if m.moe.latent_size:  # and what comes back to be projected up
            parts["experts"] = parts["experts"] + own_tokens(ctx, layout) * inputs
        parts["expert_activation"] = rows * b * width
    return parts


def expert_rows(ctx: CostContext, layout: LayoutLike, moe: MoE) -> Numeric:
    """Copies of tokens that the fullest rank's experts get of a micro-batch."""
    copies = own_tokens(ctx, layout) * moe.top_k * layout.etp
    return copies * imbalance(ctx, moe, layout.ep)


def score_elements(ctx: CostContext, layout: LayoutLike) -> Numeric:
    """Attention scores of one layer and micro-batch on one rank: mbs · s² · heads / (cp · tp)."""
    s = ctx.training.sequence_length
    return layout.mbs * float(s) * s / layout.cp * ctx.model.num_attention_heads / layout.tp


SCORE_WORKSPACE = {"fused-softmax": 4.0, "naive": 10.0}
"""Bytes per score that passing them back needs beside what is kept: the gradients of softmax's
output and input in 16 bits; without a fused kernel also the first one's FP32 copy and the second
in FP32. With the 6 bytes kept that makes the 16 that VITA-MLLM/Long-VITA#7 measured."""

EAGER_NORM_BYTES = 6.0
"""Kept per element by a norm that runs operator by operator, beside its input and output: the
FP32 copy whose square is summed, and the normalised value that the weight multiplies."""


def whole_layers(layout: LayoutLike) -> Numeric:
    """Whether whole layers are run again."""
    return WHOLE_LAYERS[layout.recompute_index]


def working_bytes(
    ctx: CostContext, layout: LayoutLike, layer: LayerActivations, blocks: Blocks
) -> Numeric:
    """Bytes of the layer being passed back, beside what is kept for it and recomputed scores.

    All of it where it is run again; what unfused attention needs to pass its scores back, and a
    scan its states; the gradients of the MLP's activations and, before they are added up, of its
    weights.
    """
    m, software = ctx.model, ctx.software
    tokens = layout.mbs * ctx.training.sequence_length / layout.cp
    matrices = 3 if m.gated_mlp else 2
    fresh = m.hidden_size * (software.fresh_gradient_bytes or 0.0)
    ffn = shared_ffn(m, blocks)
    working = whole_layers(layout) * (layer.everything - layer.scores)
    if m.mamba is not None and "mamba" in blocks:
        w = scan_widths(m.mamba, layout.tp, layout.cp)
        working = working + tokens * scan_kept(w, ctx.element_bytes)[1]
    if "attention" in blocks and ctx.attention_backend in SCORE_WORKSPACE:
        working = working + score_elements(ctx, layout) * SCORE_WORKSPACE[ctx.attention_backend]
    working = working + matrices * ffn / layout.tp * (tokens * ctx.element_bytes + fresh)
    if "experts" not in blocks or m.moe is None:
        return working
    width = matrices * m.moe.expert_ffn_hidden_size / layout.etp
    held = np.maximum(m.moe.num_experts / layout.ep, 1.0)
    rows = expert_rows(ctx, layout, m.moe)
    return working + width * (rows * ctx.element_bytes + held * fresh)


def recomputed_score_bytes(layout: LayoutLike, layer: LayerActivations) -> Numeric:
    """Bytes of one layer's scores where they are run again.

    The forward pass writes and frees them, but what is kept meanwhile splits their large blocks:
    the loss cannot take them, passing the layer back can.
    """
    return (KEPT_SHARES["scores"][layout.recompute_index] < 1.0) * layer.scores


def fragmented_bytes(ctx: CostContext, layout: LayoutLike, kept: Numeric) -> Numeric:
    """Bytes of the caching allocator's blocks that fit nothing asked for.

    A share of what layers keep that are not run again whole, which comes in many sizes: where such
    layers are counted `kept` is theirs. Of the others blocks of one size are kept, which take each
    other's place.
    """
    share = ctx.software.coefficients.allocator_fraction
    many = ~whole_layers(layout) | (np.asarray(layout.recompute_layers) > 0)
    return kept * (share * many)


def loss_bytes(ctx: CostContext, layout: LayoutLike) -> Numeric:
    """Bytes of the loss of one micro-batch: logits, copies and gradients of a rank's vocabulary.

    Gathered over tp, each rank holds the whole vocabulary, and beside it the gathered 16-bit
    logits and their gradient. Prediction layers have a loss each.
    """
    software, tp = ctx.software, np.asarray(layout.tp)
    tokens = layout.mbs * ctx.training.sequence_length / layout.cp * (1 + ctx.model.mtp_layers)
    if software.gathers_logits:
        gathered = 2.0 * ctx.element_bytes * (tp > 1)
        return tokens * ctx.model.vocab_size * (software.logits_bytes + gathered)
    return tokens * (ctx.model.vocab_size * software.logits_bytes) / tp


def exchange_bytes(ctx: CostContext, layout: LayoutLike) -> Numeric:
    """Buffers of tokens on their way to experts and back: what leaves and what comes in."""
    moe = ctx.model.moe
    if moe is None:
        return 0.0
    copies = own_tokens(ctx, layout) * moe.top_k * imbalance(ctx, moe, layout.ep)
    moved = copies * ctx.model.expert_hidden_size * ctx.element_bytes
    return 2 * moved * (np.asarray(layout.ep) > 1)
