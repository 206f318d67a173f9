"""Bytes a rank holds at its peak, by stage, in additive terms.

Terms: parameters, gradients, optimizer, activations, logits, buffers, runtime, allocator.
Stage arrays carry the stages first: shape (S, …) for S stages considered.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

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
    weights = ctx.element_bytes + ctx.low_precision * ctx.matmul_bytes
    tokens = layout.mbs * ctx.training.sequence_length / layout.cp
    per_layer = activation_bytes(ctx, layout)
    in_flight = layers_in_flight(layout, stage, layers)
    whole = np.asarray(layout.recompute_index) >= WHOLE_LAYER_FROM
    working = np.where(whole, _kept(ctx, layout)[0], 0.0)  # the layer being recomputed
    last = stage == layout.pp - 1
    vocabulary = ctx.model.vocab_size / (1 if software.gathers_logits else layout.tp)
    logits = last * tokens * vocabulary * software.logits_bytes
    groups = sum(
        1.0 * (np.asarray(size) > 1)
        for size in (layout.tp, layout.cp, layout.pp, shards, layout.dp_replicate)
    )
    gathered = tokens * ctx.model.hidden_size * ctx.element_bytes * (np.asarray(layout.tp) > 1)
    zeros = 0.0 * parameters
    terms = {
        "parameters": np.where(zero == 3, 2 * unit * weights, parameters * weights),
        "gradients": np.where(
            zero == 3,
            parameters * software.gradient_bytes / shards + unit * ctx.element_bytes,
            parameters * software.gradient_bytes / np.where(zero == 2, shards, 1),
        ),
        "optimizer": parameters * OPTIMIZER_BYTES / np.where(zero >= 1, shards, 1),
        "activations": in_flight * per_layer + working,
        "logits": logits,
        "buffers": 2 * gathered + zeros,
    }
    allocated = sum(terms.values())
    return StageMemory(
        **terms,
        runtime=software.runtime_bytes + groups * software.communicator_bytes + zeros,
        allocator=allocated * software.coefficients.allocator_fraction,
    )


WHOLE_LAYER_FROM = RECOMPUTE.index("alternate")
"""First position in RECOMPUTE at which whole layers are run again."""


def activation_bytes(ctx: CostContext, layout: LayoutLike) -> Numeric:
    """Bytes one layer keeps per micro-batch for its backward pass, under the layout's recompute."""
    everything, no_scores, operators, inputs = _kept(ctx, layout)
    kinds = np.asarray(layout.recompute_index)
    options = [everything, no_scores, operators, (everything + inputs) / 2, inputs]
    return np.choose(kinds, np.broadcast_arrays(*options))


def _kept(ctx: CostContext, layout: LayoutLike) -> tuple[Numeric, Numeric, Numeric, Numeric]:
    """Bytes kept per layer and micro-batch: everything, without scores, per operator, inputs only.

    Korthikanti et al. 2022, table 2, for any head and feed-forward size; flash attention keeps
    the output and a row statistic in place of the scores.
    """
    m, e = ctx.model, ctx.element_bytes
    h, f, q = m.hidden_size, m.ffn_hidden_size, ctx.query_size
    kv = ctx.key_value_size(layout.tp)
    up = 2 * f if m.gated_mlp else f
    s = ctx.training.sequence_length
    tokens = layout.mbs * s / layout.cp
    cut = np.where(layout.sp, layout.tp, 1)
    mask = 2.0 * h if m.dropout else 0.0
    inputs = tokens * e * h / cut
    b = ctx.matmul_bytes  # low-precision matmuls keep their inputs as cast
    rest = tokens / layout.tp * (e * (2 * q + 2 * kv + up) + b * f + 4.0 * m.num_attention_heads)
    if ctx.software.keeps_every_output:
        # the gate's activation, and queries and keys before and after rotation
        rest = rest + tokens / layout.tp * e * (f * m.gated_mlp + q + kv)
    no_scores = tokens * (2 * e * h + 2 * b * h + mask) / cut + rest
    # the softmax's output (naive: also its FP32 input and output), the dropout's mask and output
    per_score = e + (1 + e if m.dropout else 0) + (8.0 if ctx.attention_backend == "naive" else 0)
    scores = (
        per_score * layout.mbs * float(s) * s / layout.cp * m.num_attention_heads / layout.tp
        if ctx.attention_backend in SCORE_WRITING_BACKENDS
        else 0.0
    )
    matmuls = tokens * e * ((q + 2 * kv + up) / layout.tp + 2 * h / cut)
    operators = inputs + tokens * e * q / layout.tp + matmuls / 2
    return no_scores + scores, no_scores + 0.0 * scores, operators, inputs


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
