"""Bytes a rank holds at its peak, by stage, in additive terms, and whether they fit.

Terms: parameters, gradients, optimizer, activations, logits, buffers, runtime, allocator. Model
states are counted in `planner.cost.model_states`, what a layer keeps in `planner.cost.activations`.
Stage arrays carry the stages first: shape (S, …) for S stages considered.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import reduce

import numpy as np

from planner.cost.activations import (
    beside_bytes,
    layer_activations,
    recomputed_score_bytes,
    shard_tokens,
    working_bytes,
)
from planner.cost.context import CostContext
from planner.cost.experts import imbalance, own_tokens
from planner.cost.model_states import (
    device_state_bytes,
    own_parameters,
    stage_parameters,
)
from planner.cost.offload import (
    offloads_activations,
    offloads_any,
    offloads_nothing,
    offloads_optimizer,
    optimizer_bytes,
    place_activations,
)
from planner.cost.pipeline import microbatches_in_flight
from planner.cost.recompute import counts_layers, layers_kept, recomputes_layers
from planner.cost.stages import RankStages, StageLayers, candidate_ranks, rank_stages
from planner.layouts.layout import LayoutLike
from planner.layouts.numeric import Boolean, Integer, Numeric

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
        peak_bytes: Numeric = sum(getattr(self, f.name) for f in fields(self))
        return peak_bytes


def stage_memory(ctx: CostContext, layout: LayoutLike, ranks: StageLayers) -> StageMemory:
    """Peak memory of ranks with given numbers of layers, shape (S, …)."""
    return memory_of(ctx, layout, rank_stages(ctx, layout, ranks))


def memory_of(ctx: CostContext, layout: LayoutLike, stages: RankStages) -> StageMemory:
    """Peak memory of ranks that hold given stages, shape (S, …)."""
    states = device_state_bytes(ctx, layout, stage_parameters(ctx, layout, stages))
    flight = _activations_in_flight(ctx, layout, stages)
    kept, fragmenting = flight.kept, flight.fragmenting
    if offloads_any(layout):
        kept = place_activations(layout, kept, largest_layer_bytes(ctx, layout)).on_device
        fragmenting = np.minimum(fragmenting, kept)
    is_last = reduce(np.logical_or, [stage.is_last for stage in stages])
    logits = is_last * logits_memory_bytes(ctx, layout)
    # the loss is over before the first layer is passed back, which takes what it frees
    activations = kept + flight.recomputed_scores + np.maximum(flight.working - logits, 0.0)
    unused = fragmentation_bytes(ctx, layout, fragmenting) + graph_pool_bytes(ctx, activations)
    zeros = 0.0 * states.parameters  # so that terms alike on all stages have the others' shape
    return StageMemory(
        parameters=states.parameters,
        gradients=states.gradients,
        optimizer=states.optimizer,
        activations=activations,
        logits=logits,
        buffers=buffer_bytes(ctx, layout) + zeros,
        runtime=runtime_bytes(ctx, layout) + zeros,
        allocator=unused + zeros,
    )


# ---------------------------------------------------------------- activations


@dataclass(frozen=True, slots=True)
class _ActivationsInFlight:
    """Bytes of activations on ranks at their peak, shape (S, …).

    kept: what layers keep of all micro-batches in flight. fragmenting: what of it fragments the
    allocator's memory. working: of the layer being passed back and of one that runs beside it, of
    the kinds that take the most; recomputed_scores: of its attention scores, where they are
    computed a second time.
    """

    kept: Numeric
    fragmenting: Numeric
    working: Numeric
    recomputed_scores: Numeric


def _activations_in_flight(
    ctx: CostContext, layout: LayoutLike, stages: RankStages
) -> _ActivationsInFlight:
    """Activations of ranks that hold given stages."""
    kept: Numeric = 0.0
    of_kept_layers: Numeric = 0.0
    working: Numeric = 0.0
    beside: Numeric = 0.0
    scores: Numeric = 0.0
    in_flight = [microbatches_in_flight(layout, stage, ctx.software.only_1f1b) for stage in stages]
    counted = counts_layers(layout)
    for i, kind in enumerate(ctx.layer_kinds):
        layer = layer_activations(ctx, layout, kind.blocks)
        for stage, microbatches in zip(stages, in_flight, strict=True):
            layers = stage.layers_by_kind[i]
            kept = kept + layers * microbatches * layer.kept
            if counted:
                # layers beyond those that are counted keep everything
                others = layers_kept(layout, layers) * microbatches
                kept = kept + others * (layer.everything - layer.kept)
                of_kept_layers = of_kept_layers + others * layer.everything
        working = np.maximum(working, working_bytes(ctx, layout, layer, kind.blocks))
        beside = np.maximum(beside, beside_bytes(layout, layer))
        scores = np.maximum(scores, recomputed_score_bytes(layout, layer))
    fragmenting = of_kept_layers + ~recomputes_layers(layout) * kept if counted else kept
    return _ActivationsInFlight(kept, fragmenting, working + beside, scores)


def largest_layer_bytes(ctx: CostContext, layout: LayoutLike) -> Numeric:
    """Bytes that one layer and micro-batch keep, of the kind that keeps the most."""
    largest: Numeric = 0.0
    for kind in ctx.layer_kinds:
        largest = np.maximum(largest, layer_activations(ctx, layout, kind.blocks).kept)
    return largest


# ---------------------------------------------------------------- other terms

FP32_BYTES = 4


def logits_memory_bytes(ctx: CostContext, layout: LayoutLike) -> Numeric:
    """Bytes of the loss of one micro-batch: logits, copies and gradients of a rank's vocabulary.

    Gathered over tp, each rank holds the whole vocabulary, and with it the gathered 16-bit
    logits and their gradient. Prediction layers have a loss each. In chunks there are the logits
    of one at a time, and the gradients of all hidden states, summed in FP32 (torchtitan 0.3.0,
    components/loss.py, GradAccumulator).
    """
    software, tp, chunks = ctx.software, np.asarray(layout.tp), np.asarray(layout.loss_chunks)
    all_tokens = shard_tokens(ctx, layout) * (1 + ctx.model.mtp_layers)
    hidden_gradients: Numeric = (chunks > 1) * all_tokens * ctx.model.hidden_size * FP32_BYTES
    tokens = all_tokens / chunks
    if software.gathers_logits:
        gathered = 2.0 * ctx.element_bytes * (tp > 1)
        logits = tokens * ctx.model.vocab_size * (software.logits_bytes + gathered)
    else:
        logits = tokens * (ctx.model.vocab_size * software.logits_bytes) / tp
    return hidden_gradients + logits


def buffer_bytes(ctx: CostContext, layout: LayoutLike) -> Numeric:
    """Bytes of the buffers of traffic: gathered hidden states, and tokens of experts."""
    hidden = shard_tokens(ctx, layout) * ctx.model.hidden_size * ctx.element_bytes
    gathered = hidden * (np.asarray(layout.tp) > 1)
    return 2 * gathered + dispatch_bytes(ctx, layout)


def dispatch_bytes(ctx: CostContext, layout: LayoutLike) -> Numeric:
    """Bytes of tokens on their way to experts and back: what leaves and what comes in."""
    moe = ctx.model.moe
    if moe is None:
        return 0.0
    copies = own_tokens(ctx, layout) * moe.top_k * imbalance(ctx, moe, layout.ep)
    moved = copies * ctx.model.expert_hidden_size * ctx.element_bytes
    return 2 * moved * (np.asarray(layout.ep) > 1)


def runtime_bytes(ctx: CostContext, layout: LayoutLike) -> Numeric:
    """Bytes of a process's context and libraries, and of its communicators' buffers."""
    communicators = num_communicators(ctx, layout) * ctx.software.communicator_bytes
    return ctx.software.runtime_bytes + communicators


def num_communicators(ctx: CostContext, layout: LayoutLike) -> Numeric:
    """Communicating groups of more than one rank that a rank belongs to."""
    shards = 1.0 * layout.cp * layout.dp_shard
    sizes = [layout.tp, layout.cp, layout.pp, shards, layout.dp_replicate]
    if ctx.model.moe is not None:
        edp = layout.tp * shards / (layout.etp * layout.ep)
        own_group = (np.asarray(layout.ep) > 1) | (edp != shards)
        sizes += [layout.ep, layout.etp, np.where(own_group, edp, 1)]
    return sum(1.0 * (np.asarray(size) > 1) for size in sizes)


def fragmentation_bytes(ctx: CostContext, layout: LayoutLike, fragmenting: Numeric) -> Numeric:
    """Bytes of the caching allocator's blocks that fit no request.

    A share of what layers keep that are not recomputed as a whole (`fragmenting`), which comes in
    many sizes. Layers that are keep blocks of one size, which take each other's place.
    """
    share = ctx.software.coefficients.allocator_fraction
    many_sizes = ~recomputes_layers(layout) | (np.asarray(layout.recompute_layers) > 0)
    return fragmenting * (share * many_sizes)


def graph_pool_bytes(ctx: CostContext, activations: Numeric) -> Numeric:
    """Bytes that the pools of CUDA graphs hold besides `activations`, a share of them."""
    pools = ctx.software.graph_pools
    return activations * (pools.share_of(ctx.training.cuda_graphs) if pools else 0.0)


# ---------------------------------------------------------------- the fullest rank


def worst_stage(ctx: CostContext, layout: LayoutLike) -> tuple[StageMemory, Numeric]:
    """Memory of the ranks that can be fullest, shape (S, …), and the peak over them, shape (…)."""
    memory = stage_memory(ctx, layout, candidate_ranks(ctx, layout))
    peak: Numeric = np.max(memory.total, axis=0)
    return memory, peak


def floor_bytes(ctx: CostContext, layout: LayoutLike) -> Numeric:
    """Lower bound of the peak bytes under any recompute, shape of the layout.

    Layers keep at least their inputs.
    """
    stages = rank_stages(ctx, layout, candidate_ranks(ctx, layout))
    held = device_state_bytes(ctx, layout, stage_parameters(ctx, layout, stages)).total
    layer_input = own_tokens(ctx, layout) * ctx.model.hidden_size * ctx.element_bytes
    on_device = ~offloads_activations(layout)
    for stage in stages:
        microbatches = on_device * microbatches_in_flight(layout, stage, ctx.software.only_1f1b)
        for layers in stage.layers_by_kind:
            held = held + layers * microbatches * layer_input
    peak: Numeric = np.max(held, axis=0)
    return peak + ctx.software.runtime_bytes


# ---------------------------------------------------------------- the host's memory


def host_bytes(ctx: CostContext, layout: LayoutLike) -> Numeric:
    """Pinned bytes of the host's memory that the rank with the most takes (shape of the layout)."""
    stages = rank_stages(ctx, layout, candidate_ranks(ctx, layout))
    most: Numeric = np.max(host_bytes_of(ctx, layout, stages), axis=0)
    return most


def host_bytes_of(ctx: CostContext, layout: LayoutLike, stages: RankStages) -> Numeric:
    """The same of ranks that hold these stages, shape (S, …).

    Of the optimizer: master weights, both moments and a copy of the gradients, of a rank's share.
    """
    kept = _activations_in_flight(ctx, layout, stages).kept
    placed = place_activations(layout, kept, largest_layer_bytes(ctx, layout))
    per_state = optimizer_bytes(ctx) + ctx.software.gradient_bytes
    own = own_parameters(ctx, layout, stage_parameters(ctx, layout, stages))
    return placed.on_host + offloads_optimizer(layout) * (per_state * own)


PINNED_SHARE = 0.9
"""Of the host's memory, what can be pinned besides the system, its page cache and the data."""


def host_holds(ctx: CostContext, layout: LayoutLike) -> Boolean:
    """Whether the host's memory holds what is offloaded."""
    host = ctx.accelerator.host
    if host is None or not offloads_any(layout):
        return offloads_nothing(layout)
    return host_bytes(ctx, layout) <= PINNED_SHARE * host.memory_bytes


# ---------------------------------------------------------------- verdicts


def verdict_index(ctx: CostContext, layout: LayoutLike, peak_bytes: Numeric) -> Integer:
    """Position in VERDICTS: fits below the band under capacity, fragile inside it, no above.

    No as well where the host's memory does not hold what is offloaded.
    """
    fits, fragile, no = (VERDICTS.index(verdict) for verdict in ("fits", "fragile", "no"))
    in_band = peak_bytes > ctx.limit_bytes["fits"]
    above = (peak_bytes > ctx.limit_bytes["fragile"]) | ~np.asarray(host_holds(ctx, layout))
    return np.where(above, no, np.where(in_band, fragile, fits))
