"""Bytes a rank holds at its peak, by stage, in additive terms.

Terms: parameters, gradients, optimizer, activations, logits, buffers, runtime, allocator.
Stage arrays carry the stages first: shape (S, …) for S stages considered.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np

from planner.cost.context import SCORE_WRITING_BACKENDS, CostContext
from planner.cost.pipeline import layers_in_flight, stages
from planner.layout import RECOMPUTE, LayoutLike, Numeric

OPTIMIZER_BYTES = 12.0
"""FP32 master weight and Adam's two moments, per parameter."""

VERDICTS = ("fits", "fragile", "no")


@dataclass(frozen=True, slots=True)
class StageMemory:
    """Bytes of each term on one rank of each stage, shape (S, …)."""

    parameters: Numeric
    gradients: Numeric
    optimizer: Numeric
    activations: Numeric
    logits: Numeric
    buffers: Numeric
    runtime: Numeric
    allocator: Numeric

    @property
    def total(self) -> Numeric:
        """Peak bytes, shape (S, …)."""
        return sum(getattr(self, f.name) for f in fields(self))


def layer_parameters(ctx: CostContext, tp: Numeric) -> Numeric:
    """Parameters of one decoder layer over its tp ranks; key/value heads replicate beyond kv."""
    m = ctx.model
    replicated = ctx.key_value_size(tp) - ctx.key_value_size(1)
    return m.num_layer_parameters + 2.0 * replicated * (m.hidden_size + m.linear_bias)


def stage_parameters(
    ctx: CostContext, layout: LayoutLike, stage: Numeric, layers: Numeric
) -> Numeric:
    """Parameters of one rank of `stage` before data-parallel sharding; tp cuts matrices.

    The first stage holds the embedding, the last the LM head: a copy of the embedding where they
    are tied and live on different stages.
    """
    m = ctx.model
    first, last = stage == 0, stage == layout.pp - 1
    table = float(m.vocab_size) * m.hidden_size
    positions = float(m.num_position_embeddings) * m.hidden_size
    head = last & ~(first & m.tied_embeddings)
    cut = layers * layer_parameters(ctx, layout.tp) + first * table + head * table
    return cut / layout.tp + first * positions + last * m.num_norm_parameters


def stage_memory(
    ctx: CostContext, layout: LayoutLike, stage: Numeric, layers: Numeric
) -> StageMemory:
    """Peak memory of one rank of each of the given stages with the given numbers of layers."""
    software = ctx.software
    parameters = stage_parameters(ctx, layout, stage, layers)
    zero = np.asarray(layout.zero_stage)
    shards = 1.0 * layout.cp * layout.dp_shard
    unit = (
        layer_parameters(ctx, layout.tp) / layout.tp
    )  # what ZeRO-3 gathers at a time, twice with prefetch
    weights, once = weight_bytes(ctx), gathers_once(ctx, layout)
    tokens = layout.mbs * ctx.training.sequence_length / layout.cp
    layer = layer_activations(ctx, layout)
    kept = layers_in_flight(layout, stage, layers) * _under_recompute(layout, layer)
    logits = (stage == layout.pp - 1) * loss_bytes(ctx, layout)
    groups = sum(
        1.0 * (np.asarray(size) > 1)
        for size in (layout.tp, layout.cp, layout.pp, shards, layout.dp_replicate)
    )
    gathered = tokens * ctx.model.hidden_size * ctx.element_bytes * (np.asarray(layout.tp) > 1)
    zeros = 0.0 * parameters
    terms = {
        "parameters": np.where((zero == 3) & ~once, 2 * unit * weights, parameters * weights),
        "gradients": parameters
        * software.gradient_bytes
        * np.where(zero >= 2, 1 / shards + once, 1)
        + (zero == 3) * unit * ctx.element_bytes,
        "optimizer": parameters * OPTIMIZER_BYTES / np.where(zero >= 1, shards, 1),
        # the loss is over before the first layer is passed back: what one frees the other takes
        "activations": kept
        + recomputed_score_bytes(ctx, layout, layer)
        + np.maximum(working_bytes(ctx, layout, layer) - logits, 0.0),
        "logits": logits,
        "buffers": 2 * gathered + zeros,
    }
    return StageMemory(
        **terms,
        runtime=software.runtime_bytes + groups * software.communicator_bytes + zeros,
        allocator=fragmented_bytes(ctx, layout, kept) + zeros,
    )


def weight_bytes(ctx: CostContext) -> float:
    """Bytes a parameter's weight takes: in 16 bits, and as low-precision matmuls read it.

    Software whose low-precision weights are primary holds them by rows and by columns, and no
    16-bit ones; what stays in 16 bits (tables, norms) takes as much.
    """
    primary = ctx.training.precision in ctx.software.low_precision_parameters
    copies = ctx.low_precision * ctx.matmul_bytes
    return 2.0 * ctx.matmul_bytes if primary else ctx.element_bytes + copies


def gathers_once(ctx: CostContext, layout: LayoutLike) -> Numeric:
    """Whether ZeRO-2 and 3 leave a stage's weights and gradients whole between micro-batches."""
    if not ctx.software.gathers_once_in_pipelines:
        return np.False_
    return (np.asarray(layout.zero_stage) >= 2) & (np.asarray(layout.pp) > 1)


def loss_bytes(ctx: CostContext, layout: LayoutLike) -> Numeric:
    """Bytes of the loss of one micro-batch: logits, copies and gradients of a rank's vocabulary.

    Gathered over tp, each rank holds the whole vocabulary, and beside it the gathered 16-bit
    logits and their gradient.
    """
    software, tp = ctx.software, np.asarray(layout.tp)
    tokens = layout.mbs * ctx.training.sequence_length / layout.cp
    if software.gathers_logits:
        gathered = 2.0 * ctx.element_bytes * (tp > 1)
        return tokens * ctx.model.vocab_size * (software.logits_bytes + gathered)
    return tokens * (ctx.model.vocab_size * software.logits_bytes) / tp


def working_bytes(ctx: CostContext, layout: LayoutLike, layer: LayerActivations) -> Numeric:
    """Bytes of the layer being passed back, beside what is kept for it and recomputed scores.

    All of it where it is run again; what unfused attention needs to pass its scores back; the
    gradients of the MLP's activations and, before they are added up, of its weights.
    """
    m, software = ctx.model, ctx.software
    width = (3 if m.gated_mlp else 2) * m.ffn_hidden_size / layout.tp
    tokens = layout.mbs * ctx.training.sequence_length / layout.cp
    fresh = m.hidden_size * (software.fresh_gradient_bytes or 0.0)
    working = whole_layers(layout) * layer.without_scores
    if ctx.attention_backend in SCORE_WORKSPACE:
        working = working + score_elements(ctx, layout) * SCORE_WORKSPACE[ctx.attention_backend]
    return working + width * (tokens * ctx.element_bytes + fresh)


def recomputed_score_bytes(
    ctx: CostContext, layout: LayoutLike, layer: LayerActivations
) -> Numeric:
    """Bytes of one layer's scores where they are run again.

    The forward pass writes and frees them, but what is kept meanwhile splits their large blocks:
    the loss cannot take them, passing the layer back can.
    """
    if ctx.attention_backend not in SCORE_WRITING_BACKENDS:
        return 0.0
    again = np.asarray(layout.recompute_index) >= RECOMPUTE.index("selective")
    return again * (layer.everything - layer.without_scores)


def whole_layers(layout: LayoutLike) -> Numeric:
    """Whether whole layers are run again."""
    return np.asarray(layout.recompute_index) >= WHOLE_LAYER_FROM


def fragmented_bytes(ctx: CostContext, layout: LayoutLike, kept: Numeric) -> Numeric:
    """Bytes of the caching allocator's blocks that fit nothing asked for.

    A share of the kept activations, which come in many sizes; where layers are run again, blocks
    of one size are kept, which take each other's place.
    """
    share = ctx.software.coefficients.allocator_fraction
    return kept * (share * ~whole_layers(layout))


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

WHOLE_LAYER_FROM = RECOMPUTE.index("alternate")
"""First position in RECOMPUTE at which whole layers are run again."""


class LayerActivations(NamedTuple):
    """Bytes of one layer and micro-batch, by what of it is kept, shape of the layout."""

    everything: Numeric
    without_scores: Numeric
    operators: Numeric
    inputs: Numeric


def activation_bytes(ctx: CostContext, layout: LayoutLike) -> Numeric:
    """Bytes one layer keeps per micro-batch for its backward pass, under the layout's recompute."""
    return _under_recompute(layout, layer_activations(ctx, layout))


def _under_recompute(layout: LayoutLike, layer: LayerActivations) -> Numeric:
    everything, without_scores, operators, inputs = layer
    kinds = np.asarray(layout.recompute_index)
    options = [everything, without_scores, operators, (everything + inputs) / 2, inputs]
    return np.choose(kinds, np.broadcast_arrays(*options))


def layer_activations(ctx: CostContext, layout: LayoutLike) -> LayerActivations:
    """Bytes kept per layer and micro-batch: everything, without scores, per operator, inputs only.

    Korthikanti et al. 2022, table 2, for any head and feed-forward size; flash attention keeps
    the output and a row statistic in place of the scores.
    """
    m, e = ctx.model, ctx.element_bytes
    h, f, q = m.hidden_size, m.ffn_hidden_size, ctx.query_size
    kv = ctx.key_value_size(layout.tp)
    up = 2 * f if m.gated_mlp else f
    tokens = layout.mbs * ctx.training.sequence_length / layout.cp
    cut = np.where(layout.sp, layout.tp, 1)
    mask = 2.0 * h if m.dropout else 0.0
    inputs = tokens * e * h / cut
    b = ctx.matmul_bytes  # low-precision matmuls keep their inputs as cast
    # the two blocks' inputs, whole where autograd keeps what was gathered
    blocks = 2 * b * h / (1 if ctx.software.keeps_gathered_inputs else cut)
    rest = tokens / layout.tp * (e * (2 * q + 2 * kv + up) + b * f + 4.0 * m.num_attention_heads)
    if ctx.software.keeps_every_output:
        # the gate's activation; rotation is linear and keeps nothing
        rest = rest + tokens / layout.tp * e * f * m.gated_mlp
    norms = 2 * h * (e + EAGER_NORM_BYTES * ctx.software.eager_norm)
    without_scores = tokens * ((norms + mask) / cut + blocks) + rest
    # the softmax's output (naive: also in FP32), the dropout's mask and output
    per_score = e + (1 + e if m.dropout else 0) + (4.0 if ctx.attention_backend == "naive" else 0)
    scores = (
        per_score * score_elements(ctx, layout)
        if ctx.attention_backend in SCORE_WRITING_BACKENDS
        else 0.0
    )
    matmuls = tokens * e * ((q + 2 * kv + up) / layout.tp + 2 * h / cut)
    operators = inputs + tokens * e * q / layout.tp + matmuls / 2
    return LayerActivations(
        without_scores + scores, without_scores + 0.0 * scores, operators, inputs
    )


def worst_stage(ctx: CostContext, layout: LayoutLike) -> tuple[StageMemory, Numeric]:
    """Memory of the stages that can be fullest, and the peak over them (shape of the layout)."""
    stage, layers = stages(ctx.model.num_layers, layout)
    memory = stage_memory(ctx, layout, stage, layers)
    return memory, np.max(memory.total, axis=0)


def limit_bytes(ctx: CostContext, verdict: str) -> float:
    """Bytes up to which a peak has this verdict or a better one."""
    capacity = float(ctx.accelerator.hbm_bytes)
    return capacity * (1.0 - float(ctx.software.fragile_fraction) * (verdict == "fits"))


def verdict_index(ctx: CostContext, peak_bytes: Numeric) -> Numeric:
    """Position in VERDICTS: fits below the band under capacity, fragile inside it, no above."""
    return sum(1 * (peak_bytes > limit_bytes(ctx, verdict)) for verdict in VERDICTS[:-1])
