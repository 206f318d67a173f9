"""Bytes a rank holds at its peak, by stage, in additive terms.

Terms: parameters, gradients, optimizer, activations, logits, buffers, runtime, allocator.
Stage arrays carry the stages first: shape (S, …) for S stages considered.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import reduce

import numpy as np

from planner.cost.activations import (
    exchange_bytes,
    fragmented_bytes,
    layer_activations,
    loss_bytes,
    recomputed_score_bytes,
    whole_layers,
    working_bytes,
)
from planner.cost.context import CostContext
from planner.cost.experts import own_tokens
from planner.cost.folds import Held, microbatches_in_flight
from planner.cost.layers import attention_matmuls, held_stages, latent_matmuls, model_stages
from planner.cost.pipeline import DIRECTIONS
from planner.cost.recompute import counts_any, kept_whole
from planner.cost.traffic import Parameters
from planner.cost.ways import offloads_activations, offloads_any, offloads_optimizer
from planner.layouts.layout import LayoutLike, Numeric
from planner.problem.blocks import Blocks

OPTIMIZER_BYTES = 12.0
"""FP32 master weight and Adam's two moments, per parameter."""

Holds = tuple[tuple[Held, tuple[Numeric, ...]], ...]
"""The stages that ranks hold, and their layers of each kind; ranks first, shape (S, …)."""

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


def layer_parameters(ctx: CostContext, tp: Numeric, blocks: Blocks) -> Numeric:
    """Parameters of one decoder layer over its tp ranks, without routed experts.

    Key/value heads replicate beyond kv; latent attention's down-projections, routers and
    projections to the experts' latent are whole on every rank.
    """
    m = ctx.model
    parameters: Numeric = m.num_parameters_of(blocks)
    wholes = latent_matmuls(m) if "experts" in blocks else ()
    whole = m.hidden_size * m.moe.num_experts if "experts" in blocks and m.moe is not None else 0
    if "attention" in blocks and m.mla is None:
        replicated = ctx.keys_values_size(tp) - ctx.keys_values_size(1)
        parameters = parameters + replicated * (m.hidden_size + m.has_bias("qkv"))
    elif "attention" in blocks:
        wholes += tuple(matmul for matmul in attention_matmuls(m, 1) if matmul.whole)
    whole += int(sum(matmul.inputs * matmul.outputs for matmul in wholes))
    return parameters + (tp - 1.0) * whole if whole else parameters


def stage_parameters(
    ctx: CostContext, layout: LayoutLike, stage: Numeric, layers: Numeric
) -> Parameters:
    """Parameters of one rank of `stage` before data-parallel sharding; tp cuts matrices."""
    return parameters_of(ctx, layout, rank_holds(ctx, layout, stage, layers))


def parameters_of(ctx: CostContext, layout: LayoutLike, holds: Holds) -> Parameters:
    """The same of ranks that hold these stages."""
    parts = [_held_parameters(ctx, layout, part, by_kind) for part, by_kind in holds]
    return reduce(
        lambda one, other: Parameters(one.dense + other.dense, one.experts + other.experts), parts
    )


def rank_holds(ctx: CostContext, layout: LayoutLike, stage: Numeric, layers: Numeric) -> Holds:
    """The stages that the rank of each of these holds, and their layers of each kind."""
    plain = ctx.software.only_1f1b
    return held_stages(ctx.model, layout, stage, layers, ctx.reserved, plain)


def rank_classes(
    ctx: CostContext, layout: LayoutLike, latest: bool = False
) -> tuple[Numeric, Numeric]:
    """Stages that can be the fullest, or (`latest`) the one that the step waits for, and the
    model's layers on them: (S, …) each."""
    return model_stages(ctx.model, layout, ctx.reserved, ctx.software.only_1f1b, latest)


def _held_parameters(
    ctx: CostContext, layout: LayoutLike, part: Held, by_kind: tuple[Numeric, ...]
) -> Parameters:
    """Parameters of a stage that a rank holds.

    The first stage holds the embedding, the last the LM head: a copy of the embedding where they
    are tied and live on different stages. Prediction layers on the last stage read a copy too.
    """
    m = ctx.model
    first, last = part.first, part.last
    table = float(m.vocab_size) * m.hidden_size
    positions = float(m.num_position_embeddings) * m.hidden_size
    head = last & ~(first & m.tied_embeddings)
    cut = first * table + head * table
    if m.has_bias("head"):
        cut = cut + last * m.vocab_size
    experts: Numeric = 0.0
    for kind, held in zip(ctx.kinds, by_kind, strict=True):
        cut = cut + held * layer_parameters(ctx, layout.tp, kind.blocks)
        if kind.experts:
            experts = experts + held * (float(m.num_expert_parameters) / layout.ep)
    if m.mtp_layers:
        joins = m.mtp_layers * (2.0 * m.hidden_size * m.hidden_size)
        cut = cut + last * (joins + ~(first | m.tied_embeddings) * table)
    dense = cut / layout.tp + first * positions + last * m.num_norm_parameters
    return Parameters(dense, experts / layout.etp)


def stage_memory(
    ctx: CostContext, layout: LayoutLike, stage: Numeric, layers: Numeric
) -> StageMemory:
    """Peak memory of one rank of each of the given stages with the given numbers of layers."""
    return memory_of(ctx, layout, rank_holds(ctx, layout, stage, layers))


def memory_of(ctx: CostContext, layout: LayoutLike, holds: Holds) -> StageMemory:
    """The same of ranks that hold these stages."""
    software = ctx.software
    parameters = parameters_of(ctx, layout, holds)
    tokens = layout.mbs * ctx.training.sequence_length / layout.cp
    kept, plain, working, again = _activations(ctx, layout, holds)
    last = reduce(np.logical_or, [part.last for part, _ in holds])
    logits = last * loss_bytes(ctx, layout)
    gathered = tokens * ctx.model.hidden_size * ctx.element_bytes * (np.asarray(layout.tp) > 1)
    communicators = num_communicators(ctx, layout) * software.communicator_bytes
    zeros = 0.0 * parameters.dense
    if offloads_any(layout):
        kept, _ = on_device(layout, kept, two_layers_bytes(ctx, layout))
        plain = np.minimum(plain, kept)
    return StageMemory(
        **_on_host(layout, state_bytes(ctx, layout, parameters)),
        # the loss is over before the first layer is passed back: what one frees the other takes
        activations=kept + again + np.maximum(working - logits, 0.0),
        logits=logits,
        buffers=2 * gathered + exchange_bytes(ctx, layout) + zeros,
        runtime=software.runtime_bytes + communicators + zeros,
        allocator=fragmented_bytes(ctx, layout, plain) + zeros,
    )


def _activations(
    ctx: CostContext, layout: LayoutLike, holds: Holds
) -> tuple[Numeric, Numeric, Numeric, Numeric]:
    """Bytes of what layers in flight keep, of it (where layers are counted) by those that are not
    run again whole, of the layer being passed back, of its scores again."""
    kept: Numeric = 0.0
    plain: Numeric = 0.0
    working: Numeric = 0.0
    again: Numeric = 0.0
    only_1f1b = ctx.software.only_1f1b
    flights = [microbatches_in_flight(layout, part, only_1f1b) for part, _ in holds]
    counted = counts_any(layout)
    for i, kind in enumerate(ctx.kinds):
        layer = layer_activations(ctx, layout, kind.blocks)
        for (_, by_kind), flight in zip(holds, flights, strict=True):
            kept = kept + by_kind[i] * flight * layer.kept
            if counted:
                others = kept_whole(layout, by_kind[i]) * flight
                kept = kept + others * (layer.everything - layer.kept)
                plain = plain + others * layer.everything
        working = np.maximum(working, working_bytes(ctx, layout, layer, kind.blocks))
        again = np.maximum(again, recomputed_score_bytes(layout, layer))
    plain = plain + ~whole_layers(layout) * kept if counted else kept
    return kept, plain, working, again


def two_layers_bytes(ctx: CostContext, layout: LayoutLike) -> Numeric:
    """Bytes that two layers keep, of the kind that keeps the most."""
    most: Numeric = 0.0
    for kind in ctx.kinds:
        most = np.maximum(most, layer_activations(ctx, layout, kind.blocks).kept)
    return 2.0 * most


def on_device(layout: LayoutLike, kept: Numeric, two: Numeric) -> tuple[Numeric, Numeric]:
    """Bytes of activations on the device and on the host.

    Of what is offloaded two layers' stay: one is computed on while the other travels.
    """
    stay = np.where(offloads_activations(layout), np.minimum(kept, two), kept)
    return stay, kept - stay


def host_bytes(ctx: CostContext, layout: LayoutLike) -> Numeric:
    """Pinned bytes of the host's memory that the rank with the most takes (shape of the layout).

    Of the optimizer: master weights, both moments and a copy of the gradients, of a rank's share.
    """
    stage, layers = rank_classes(ctx, layout)
    found = host_bytes_of(ctx, layout, rank_holds(ctx, layout, stage, layers))
    return np.max(found, axis=0)


def host_bytes_of(ctx: CostContext, layout: LayoutLike, holds: Holds) -> Numeric:
    """The same of ranks that hold these stages, shape (S, …)."""
    kept, _, _, _ = _activations(ctx, layout, holds)
    _, away = on_device(layout, kept, two_layers_bytes(ctx, layout))
    per_state = OPTIMIZER_BYTES + ctx.software.gradient_bytes
    states = per_state * own_parameters(ctx, layout, parameters_of(ctx, layout, holds))
    return away + offloads_optimizer(layout) * states


def own_parameters(ctx: CostContext, layout: LayoutLike, parameters: Parameters) -> Numeric:
    """Parameters whose optimizer states a rank holds; experts' shard over edp alone."""
    sharded = np.asarray(layout.zero_stage) >= 1
    shards = state_shards(ctx, layout)
    own = parameters.dense / np.where(sharded, shards, 1)
    if ctx.model.moe is None:
        return own
    edp = shards * layout.tp / (layout.etp * layout.ep)
    return own + parameters.experts / np.where(sharded, edp, 1)


def num_communicators(ctx: CostContext, layout: LayoutLike) -> Numeric:
    """Communicating groups of more than one rank that a rank belongs to."""
    shards = 1.0 * layout.cp * layout.dp_shard
    sizes = [layout.tp, layout.cp, layout.pp, shards, layout.dp_replicate]
    if ctx.model.moe is not None:
        edp = layout.tp * shards / (layout.etp * layout.ep)
        sizes += [
            layout.ep,
            layout.etp,
            np.where((np.asarray(layout.ep) > 1) | (edp != shards), edp, 1),
        ]
    return sum(1.0 * (np.asarray(size) > 1) for size in sizes)


def state_bytes(ctx: CostContext, layout: LayoutLike, parameters: Parameters) -> dict[str, Numeric]:
    """Parameters, gradients and optimizer states; experts' shard over edp alone."""
    shards = state_shards(ctx, layout)
    # what ZeRO-3 gathers at a time, twice with prefetch
    unit: Numeric = 0.0
    for kind in ctx.kinds:
        unit = np.maximum(unit, layer_parameters(ctx, layout.tp, kind.blocks) / layout.tp)
    found = _sharded_bytes(ctx, layout, parameters.dense, shards, unit)
    if ctx.model.moe is None:
        return found
    edp = shards * layout.tp / (layout.etp * layout.ep)
    experts = float(ctx.model.num_expert_parameters) / (layout.ep * layout.etp)
    of_experts = _sharded_bytes(ctx, layout, parameters.experts, edp, experts)
    return {name: found[name] + of_experts[name] for name in found}


def resident_bytes(ctx: CostContext, layout: LayoutLike, parameters: Parameters) -> Numeric:
    """Parameters, gradients and optimizer states on the device."""
    return sum(_on_host(layout, state_bytes(ctx, layout, parameters)).values())


def _on_host(layout: LayoutLike, states: dict[str, Numeric]) -> dict[str, Numeric]:
    """The states on the device where those of the optimizer are offloaded."""
    if not offloads_any(layout):
        return states
    return states | {"optimizer": np.where(offloads_optimizer(layout), 0.0, states["optimizer"])}


def state_shards(ctx: CostContext, layout: LayoutLike) -> Numeric:
    """Ranks that share the states of a stage: cp·dp_shard, in each direction of dualpipe."""
    shards = 1.0 * layout.cp * layout.dp_shard
    if "dualpipe" not in ctx.software.schedules:
        return shards
    return shards * DIRECTIONS[layout.schedule_index]


def _sharded_bytes(
    ctx: CostContext, layout: LayoutLike, parameters: Numeric, shards: Numeric, unit: Numeric
) -> dict[str, Numeric]:
    software, zero = ctx.software, np.asarray(layout.zero_stage)
    weights, once = weight_bytes(ctx), gathers_once(ctx, layout)
    return {
        "parameters": np.where((zero == 3) & ~once, 2 * unit * weights, parameters * weights),
        "gradients": parameters
        * software.gradient_bytes
        * np.where(zero >= 2, 1 / shards + once, 1)
        + (zero == 3) * unit * ctx.element_bytes,
        "optimizer": parameters * OPTIMIZER_BYTES / np.where(zero >= 1, shards, 1),
    }


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


def worst_stage(ctx: CostContext, layout: LayoutLike) -> tuple[StageMemory, Numeric]:
    """Memory of the stages that can be fullest, and the peak over them (shape of the layout)."""
    stage, layers = rank_classes(ctx, layout)
    memory = stage_memory(ctx, layout, stage, layers)
    return memory, np.max(memory.total, axis=0)


def floor_bytes(ctx: CostContext, layout: LayoutLike) -> Numeric:
    """Peak bytes that no way of recomputing goes under: layers keep their inputs alone."""
    stage, layers = rank_classes(ctx, layout)
    parameters = stage_parameters(ctx, layout, stage, layers)
    kept = resident_bytes(ctx, layout, parameters)
    tokens = own_tokens(ctx, layout) * ctx.model.hidden_size * ctx.element_bytes
    stays = ~offloads_activations(layout)
    for part, by_kind in rank_holds(ctx, layout, stage, layers):
        flight = stays * microbatches_in_flight(layout, part, ctx.software.only_1f1b)
        for held in by_kind:
            kept = kept + held * flight * tokens
    return np.max(kept, axis=0) + ctx.software.runtime_bytes


def limit_bytes(ctx: CostContext, verdict: str) -> float:
    """Bytes up to which a peak has this verdict or a better one."""
    capacity = float(ctx.accelerator.hbm_bytes)
    return capacity * (1.0 - float(ctx.software.fragile_fraction) * (verdict == "fits"))


def verdict_index(ctx: CostContext, layout: LayoutLike, peak_bytes: Numeric) -> Numeric:
    """Position in VERDICTS: fits below the band under capacity, fragile inside it, no above.

    No as well where the host's memory does not hold what is offloaded.
    """
    device = sum(1 * (peak_bytes > limit_bytes(ctx, verdict)) for verdict in VERDICTS[:-1])
    return np.where(host_holds(ctx, layout), device, len(VERDICTS) - 1)


PINNED_SHARE = 0.9
"""Of the host's memory, what can be pinned beside the system, its page cache and the data."""


def host_holds(ctx: CostContext, layout: LayoutLike) -> Numeric:
    """Whether the host's memory holds what is offloaded."""
    host = ctx.accelerator.host
    if host is None or not offloads_any(layout):
        return np.asarray(layout.offload_index) == 0
    return host_bytes(ctx, layout) <= PINNED_SHARE * host.memory_bytes
