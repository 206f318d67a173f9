"""Bytes a rank holds at its peak, by stage, in additive terms.

Terms: parameters, gradients, optimizer, activations, logits, buffers, runtime, allocator.
Stage arrays carry the stages first: shape (S, …) for S stages considered.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from planner.cost.context import SCORE_WRITING_BACKENDS, CostContext
from planner.cost.experts import imbalance, own_tokens
from planner.cost.layers import attention_matmuls, key_value_sizes, layers_by_kind, model_stages
from planner.cost.pipeline import layers_in_flight
from planner.cost.traffic import Parameters
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


def layer_parameters(ctx: CostContext, tp: Numeric, experts: bool) -> Numeric:
    """Parameters of one decoder layer over its tp ranks, without routed experts.

    Key/value heads replicate beyond kv; latent attention's down-projections and routers are whole
    on every rank.
    """
    m = ctx.model
    whole: Numeric = sum(
        matmul.whole * matmul.inputs * matmul.outputs for matmul in attention_matmuls(m, 1)
    )
    if m.mla is None:
        replicated = ctx.keys_values_size(tp) - ctx.keys_values_size(1)
        whole = 0.0
        cut = replicated * (m.hidden_size + m.linear_bias)
    else:
        cut = 0.0
    if experts and m.moe is not None:
        whole = whole + m.hidden_size * m.moe.num_experts
        return m.num_moe_layer_parameters + cut + (tp - 1.0) * whole
    return m.num_layer_parameters + cut + (tp - 1.0) * whole


def stage_parameters(
    ctx: CostContext, layout: LayoutLike, stage: Numeric, layers: Numeric
) -> Parameters:
    """Parameters of one rank of `stage` before data-parallel sharding; tp cuts matrices.

    The first stage holds the embedding, the last the LM head: a copy of the embedding where they
    are tied and live on different stages.
    """
    m = ctx.model
    first, last = stage == 0, stage == layout.pp - 1
    table = float(m.vocab_size) * m.hidden_size
    positions = float(m.num_position_embeddings) * m.hidden_size
    head = last & ~(first & m.tied_embeddings)
    cut = first * table + head * table
    experts: Numeric = 0.0
    by_kind = layers_by_kind(m, layout, stage, layers)
    for kind, held in zip(ctx.kinds, by_kind, strict=True):
        cut = cut + held * layer_parameters(ctx, layout.tp, kind.experts)
        experts = experts + kind.experts * held * (float(m.num_expert_parameters) / layout.ep)
    if m.mtp_layers:
        cut = cut + last * m.mtp_layers * (2.0 * m.hidden_size * m.hidden_size)
    dense = cut / layout.tp + first * positions + last * m.num_norm_parameters
    return Parameters(dense, experts / layout.etp)


def stage_memory(
    ctx: CostContext, layout: LayoutLike, stage: Numeric, layers: Numeric
) -> StageMemory:
    """Peak memory of one rank of each of the given stages with the given numbers of layers."""
    software = ctx.software
    parameters = stage_parameters(ctx, layout, stage, layers)
    tokens = layout.mbs * ctx.training.sequence_length / layout.cp
    last = stage == layout.pp - 1
    heads = 1 + ctx.model.mtp_layers
    vocabulary = ctx.model.vocab_size / (1 if software.gathers_logits else layout.tp)
    logits = last * tokens * vocabulary * software.logits_bytes * heads
    gathered = tokens * ctx.model.hidden_size * ctx.element_bytes * (np.asarray(layout.tp) > 1)
    zeros = 0.0 * parameters.dense
    terms = {
        **_state_bytes(ctx, layout, parameters),
        "activations": stage_activations(ctx, layout, stage, layers),
        "logits": logits,
        "buffers": 2 * gathered + exchange_bytes(ctx, layout) + zeros,
    }
    allocated = sum(terms.values())
    return StageMemory(
        **terms,
        runtime=software.runtime_bytes
        + num_communicators(ctx, layout) * software.communicator_bytes
        + zeros,
        allocator=allocated * software.coefficients.allocator_fraction,
    )


def num_communicators(ctx: CostContext, layout: LayoutLike) -> Numeric:
    """Communicating groups of more than one rank that a rank belongs to."""
    shards = 1.0 * layout.cp * layout.dp_shard
    sizes = [layout.tp, layout.cp, layout.pp, shards, layout.dp_replicate]
    if ctx.model.moe is not None:
        edp = layout.tp * shards / (layout.etp * layout.ep)
        sizes += [layout.ep, layout.etp, np.where(np.asarray(layout.ep) > 1, edp, 1)]
    return sum(1.0 * (np.asarray(size) > 1) for size in sizes)


def _state_bytes(
    ctx: CostContext, layout: LayoutLike, parameters: Parameters
) -> dict[str, Numeric]:
    """Parameters, gradients and optimizer states; experts' shard over edp alone."""
    shards = 1.0 * layout.cp * layout.dp_shard
    # what ZeRO-3 gathers at a time, twice with prefetch
    unit: Numeric = 0.0
    for kind in ctx.kinds:
        unit = np.maximum(unit, layer_parameters(ctx, layout.tp, kind.experts) / layout.tp)
    found = _sharded_bytes(ctx, layout, parameters.dense, shards, unit)
    if ctx.model.moe is None:
        return found
    edp = shards * layout.tp / (layout.etp * layout.ep)
    experts = float(ctx.model.num_expert_parameters) / (layout.ep * layout.etp)
    of_experts = _sharded_bytes(ctx, layout, parameters.experts, edp, experts)
    return {name: found[name] + of_experts[name] for name in found}


def _sharded_bytes(
    ctx: CostContext, layout: LayoutLike, parameters: Numeric, shards: Numeric, unit: Numeric
) -> dict[str, Numeric]:
    software, zero = ctx.software, np.asarray(layout.zero_stage)
    weights = ctx.element_bytes + ctx.low_precision * ctx.matmul_bytes
    return {
        "parameters": np.where(
            zero == 3,
            2 * unit * weights,
            parameters * weights,
        ),
        "gradients": np.where(
            zero == 3,
            parameters * software.gradient_bytes / shards + unit * ctx.element_bytes,
            parameters * software.gradient_bytes / np.where(zero == 2, shards, 1),
        ),
        "optimizer": parameters * OPTIMIZER_BYTES / np.where(zero >= 1, shards, 1),
    }


WHOLE_LAYERS = (RECOMPUTE.index("alternate"), RECOMPUTE.index("full"))
"""Positions in RECOMPUTE at which whole layers are run again."""


def stage_activations(
    ctx: CostContext, layout: LayoutLike, stage: Numeric, layers: Numeric
) -> Numeric:
    """Bytes of what layers in flight keep, and of the layer being run again."""
    whole = np.isin(layout.recompute_index, WHOLE_LAYERS)
    kept: Numeric = 0.0
    working: Numeric = 0.0
    by_kind = layers_by_kind(ctx.model, layout, stage, layers)
    for kind, held in zip(ctx.kinds, by_kind, strict=True):
        in_flight = layers_in_flight(layout, stage, held)
        kept = kept + in_flight * activation_bytes(ctx, layout, kind.experts)
        everything = _everything(ctx, layout, kind.experts)
        working = np.maximum(working, np.where(whole, everything, 0.0))
    return kept + working


def activation_bytes(ctx: CostContext, layout: LayoutLike, experts: bool) -> Numeric:
    """Bytes one layer keeps per micro-batch for its backward pass, under the layout's recompute."""
    parts = kept_parts(ctx, layout, experts)
    everything = sum(parts.values())
    inputs = parts["input"]
    m, e = ctx.model, ctx.element_bytes
    tokens = layout.mbs * ctx.training.sequence_length / layout.cp
    cut = np.where(layout.sp, layout.tp, 1)
    up = (2 if m.gated_mlp else 1) * m.ffn_hidden_size
    widths = ctx.query_size + ctx.keys_values_size(layout.tp) + up
    matmuls = tokens * e * (widths / layout.tp + 2 * m.hidden_size / cut)
    options = {
        "none": everything,
        "selective": everything - parts["scores"],
        "operators": inputs + tokens * e * ctx.output_size / layout.tp + matmuls / 2,
        "alternate": (everything + inputs) / 2,
        "full": inputs,
        "mla_up_proj": everything - parts["projected"] * (m.mla is not None),
        "act": everything - parts["activation"],
        "act_norm": everything - parts["activation"] - parts["norms"],
        "moe": everything - experts * (parts["experts"] + parts["activation"] + parts["mlp"]),
    }
    return np.choose(
        np.asarray(layout.recompute_index),
        np.broadcast_arrays(*(options[name] for name in RECOMPUTE)),
    )


def kept_parts(ctx: CostContext, layout: LayoutLike, experts: bool) -> dict[str, Numeric]:
    """Bytes kept per layer and micro-batch, by what they are; without recomputation all of them.

    Korthikanti et al. 2022, table 2, for any head and feed-forward size; flash attention keeps
    the output and a row statistic in place of the scores. input: the layer's; norms: what norms
    give the matmuls; projected: queries, keys and values; activation: its output; experts: what
    their matmuls keep of every copy of a token.
    """
    m, e = ctx.model, ctx.element_bytes
    h, q, o = m.hidden_size, ctx.query_size, ctx.output_size
    f = m.shared_ffn_hidden_size if experts else m.ffn_hidden_size
    keys, values = key_value_sizes(m, layout.tp)
    up = 2 * f if m.gated_mlp else f
    s = ctx.training.sequence_length
    tokens = layout.mbs * s / layout.cp
    cut = np.where(layout.sp, layout.tp, 1)
    mask = 2.0 * h if m.dropout else 0.0
    b = ctx.matmul_bytes  # low-precision matmuls keep their inputs as cast
    mine = tokens / layout.tp
    outputs: Numeric = 0.0
    if ctx.software.keeps_every_output:
        # the gate's activation, and queries and keys before and after rotation
        outputs = mine * e * (f * m.gated_mlp + q + keys)
    latents = 0.0
    if m.mla is not None:
        width = (m.mla.q_lora_rank or 0) + m.mla.kv_lora_rank + m.mla.qk_rope_head_dim
        latents = tokens * (e + b) * width / cut
    # the softmax's output (naive: also its FP32 input and output), the dropout's mask and output
    per_score = e + (1 + e if m.dropout else 0) + (8.0 if ctx.attention_backend == "naive" else 0)
    scores = (
        per_score * layout.mbs * float(s) * s / layout.cp * m.num_attention_heads / layout.tp
        if ctx.attention_backend in SCORE_WRITING_BACKENDS
        else 0.0
    )
    parts = {
        "input": tokens * e * h / cut,
        "middle": tokens * (e * h + mask) / cut + latents,
        "norms": tokens * 2 * b * h / cut,
        "projected": mine * e * (q + keys + values),
        "output": mine * (e * o + 4.0 * m.num_attention_heads),
        "mlp": mine * e * up,
        "activation": mine * b * f,
        "every_output": outputs,
        "scores": scores,
        "experts": 0.0,
    }
    if experts and m.moe is not None:
        width = m.moe.expert_ffn_hidden_size / layout.etp
        rows = own_tokens(ctx, layout) * m.moe.top_k * layout.etp * imbalance(ctx, m.moe, layout.ep)
        kept = b * h + e * (2 if m.gated_mlp else 1) * width
        parts["experts"] = rows * kept
        parts["activation"] = parts["activation"] + rows * b * width
    return parts


def _everything(ctx: CostContext, layout: LayoutLike, experts: bool) -> Numeric:
    return sum(kept_parts(ctx, layout, experts).values())


def exchange_bytes(ctx: CostContext, layout: LayoutLike) -> Numeric:
    """Buffers of tokens on their way to experts and back: what leaves and what comes in."""
    moe = ctx.model.moe
    if moe is None:
        return 0.0
    copies = own_tokens(ctx, layout) * moe.top_k * imbalance(ctx, moe, layout.ep)
    moved = copies * ctx.model.hidden_size * ctx.element_bytes
    return 2 * moved * (np.asarray(layout.ep) > 1)


def worst_stage(ctx: CostContext, layout: LayoutLike) -> tuple[StageMemory, Numeric]:
    """Memory of the stages that can be fullest, and the peak over them (shape of the layout)."""
    stage, layers = model_stages(ctx.model, layout)
    memory = stage_memory(ctx, layout, stage, layers)
    return memory, np.max(memory.total, axis=0)


def floor_bytes(ctx: CostContext, layout: LayoutLike) -> Numeric:
    """Peak bytes that no way of recomputing goes under: layers keep their inputs alone."""
    stage, layers = model_stages(ctx.model, layout)
    parameters = stage_parameters(ctx, layout, stage, layers)
    kept: Numeric = sum(_state_bytes(ctx, layout, parameters).values())
    tokens = own_tokens(ctx, layout) * ctx.model.hidden_size * ctx.element_bytes
    for held in layers_by_kind(ctx.model, layout, stage, layers):
        kept = kept + layers_in_flight(layout, stage, held) * tokens
    return np.max(kept, axis=0) + ctx.software.runtime_bytes


def limit_bytes(ctx: CostContext, verdict: str) -> float:
    """Bytes up to which a peak has this verdict or a better one."""
    capacity = float(ctx.accelerator.hbm_bytes)
    return capacity * (1.0 - float(ctx.software.fragile_fraction) * (verdict == "fits"))


def verdict_index(ctx: CostContext, peak_bytes: Numeric) -> Numeric:
    """Position in VERDICTS: fits below the band under capacity, fragile inside it, no above."""
    return sum(1 * (peak_bytes > limit_bytes(ctx, verdict)) for verdict in VERDICTS[:-1])
