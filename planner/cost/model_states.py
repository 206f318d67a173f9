"""Model states of a rank: how many parameters, how they shard, their bytes, the optimizer's step.

States are parameters, gradients and optimizer states. Over the data-parallel ranks of a stage they
shard by ZeRO stage: 1 optimizer states, 2 also gradients, 3 also parameters. Dense ones shard over
cp·dp_shard ranks, routed experts' over edp = tp·cp·dp_shard / (etp·ep).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import numpy as np

from planner.cost.context import CostContext
from planner.cost.layers import attention_matmuls, latent_matmuls
from planner.cost.offload import (
    host_step_seconds,
    offloads_any,
    offloads_optimizer,
    optimizer_bytes,
    state_traffic_bytes,
)
from planner.cost.stages import DIRECTIONS, RankStage, RankStages
from planner.layouts.layout import LayoutLike
from planner.layouts.numeric import Boolean, Numeric
from planner.problem.blocks import Blocks

GRADIENT_PASSES = 4.0
"""Times a gradient passes HBM in a step: its norm, its scaling in and out, the update."""

# ---------------------------------------------------------------- numbers of parameters


@dataclass(frozen=True, slots=True)
class Parameters:
    """Parameters on one rank before they are sharded over data-parallel ranks."""

    dense: Numeric
    experts: Numeric

    def __add__(self, other: Parameters) -> Parameters:
        return Parameters(self.dense + other.dense, self.experts + other.experts)


def layer_parameters(ctx: CostContext, tp: Numeric, blocks: Blocks) -> Numeric:
    """Parameters of one decoder layer over its tp ranks, without routed experts.

    Key/value heads replicate beyond kv; latent attention's down-projections, routers and
    projections to the experts' latent are on every rank.
    """
    m = ctx.model
    parameters: Numeric = m.num_parameters_of(blocks)
    unsharded = latent_matmuls(m) if "experts" in blocks else ()
    # counted once in the model's parameters, held tp times
    on_every_rank = 0
    if "experts" in blocks and m.moe is not None:
        on_every_rank = m.hidden_size * m.moe.num_experts
    if "attention" in blocks and m.mla is None:
        replicated = ctx.keys_values_size(tp) - ctx.keys_values_size(1)
        parameters = parameters + replicated * (m.hidden_size + m.has_bias("qkv"))
    elif "attention" in blocks:
        unsharded += tuple(matmul for matmul in attention_matmuls(m, 1) if matmul.unsharded)
    on_every_rank += int(sum(matmul.inputs * matmul.outputs for matmul in unsharded))
    return parameters + (tp - 1.0) * on_every_rank if on_every_rank else parameters


def stage_parameters(ctx: CostContext, layout: LayoutLike, stages: RankStages) -> Parameters:
    """Parameters of ranks that hold given stages, shape (S, …)."""
    return reduce(Parameters.__add__, [_parameters_on(ctx, layout, stage) for stage in stages])


def _parameters_on(ctx: CostContext, layout: LayoutLike, stage: RankStage) -> Parameters:
    """Parameters of one stage that a rank holds.

    The first stage holds the embedding, the last the LM head: a copy of the embedding where they
    are tied and live on different stages. Prediction layers on the last stage read a copy too.
    """
    m = ctx.model
    first = np.asarray(stage.is_first, dtype=bool)
    last = np.asarray(stage.is_last, dtype=bool)
    table = float(m.vocab_size) * m.hidden_size
    positions = float(m.num_position_embeddings) * m.hidden_size
    head = last & ~(first & m.tied_embeddings)
    sharded = first * table + head * table
    if m.has_bias("head"):
        sharded = sharded + last * m.vocab_size
    experts: Numeric = 0.0
    for kind, layers in zip(ctx.layer_kinds, stage.layers_by_kind, strict=True):
        sharded = sharded + layers * layer_parameters(ctx, layout.tp, kind.blocks)
        if kind.has_experts:
            experts = experts + layers * (float(m.num_expert_parameters) / layout.ep)
    if m.mtp_layers:
        joins = m.mtp_layers * (2.0 * m.hidden_size * m.hidden_size)
        sharded = sharded + last * (joins + ~(first | m.tied_embeddings) * table)
    dense = sharded / layout.tp + first * positions + last * m.num_norm_parameters
    return Parameters(dense, experts / layout.etp)


# ---------------------------------------------------------------- sharding


@dataclass(frozen=True, slots=True)
class StateShards:
    """Ranks that share the states of a stage, of dense parameters and of experts'."""

    dense: Numeric
    experts: Numeric

    @property
    def shared(self) -> Boolean:
        """Whether several ranks share any states; else ZeRO has nothing to shard or gather."""
        return (np.asarray(self.dense) > 1) | (np.asarray(self.experts) > 1)


def state_shards(ctx: CostContext, layout: LayoutLike) -> StateShards:
    """cp·dp_shard ranks, and edp; under dualpipe twice as many, for two ranks hold each stage."""
    shards = 1.0 * layout.cp * layout.dp_shard
    if "dualpipe" in ctx.software.schedules:
        shards = shards * DIRECTIONS[layout.schedule_index]
    if ctx.model.moe is None:
        return StateShards(shards, shards)
    return StateShards(shards, shards * layout.tp / (layout.etp * layout.ep))


def own_parameters(ctx: CostContext, layout: LayoutLike, parameters: Parameters) -> Numeric:
    """Parameters whose optimizer states a rank has."""
    sharded = np.asarray(layout.zero_stage) >= 1
    shards = state_shards(ctx, layout)
    own = parameters.dense / np.where(sharded, shards.dense, 1)
    if ctx.model.moe is None:
        return own
    return own + parameters.experts / np.where(sharded, shards.experts, 1)


# ---------------------------------------------------------------- bytes


@dataclass(frozen=True, slots=True)
class StateBytes:
    """Bytes of a rank's model states."""

    parameters: Numeric
    gradients: Numeric
    optimizer: Numeric

    def __add__(self, other: StateBytes) -> StateBytes:
        return StateBytes(
            self.parameters + other.parameters,
            self.gradients + other.gradients,
            self.optimizer + other.optimizer,
        )

    @property
    def total(self) -> Numeric:
        """Bytes of all three."""
        return self.parameters + self.gradients + self.optimizer


def state_bytes(ctx: CostContext, layout: LayoutLike, parameters: Parameters) -> StateBytes:
    """Bytes of the model states, wherever they live."""
    shards = state_shards(ctx, layout)
    gathers = (np.asarray(layout.zero_stage) == 3) & shards.shared
    # what ZeRO-3 gathers at a time: a layer, of the kind with the most parameters
    unit: Numeric = 0.0
    for kind in ctx.layer_kinds:
        unit = np.maximum(unit, layer_parameters(ctx, layout.tp, kind.blocks) / layout.tp)
    dense = _sharded_bytes(ctx, layout, parameters.dense, shards.dense, gathers * unit)
    if ctx.model.moe is None:
        return dense
    unit = float(ctx.model.num_expert_parameters) / (layout.ep * layout.etp)
    return dense + _sharded_bytes(ctx, layout, parameters.experts, shards.experts, gathers * unit)


def _sharded_bytes(
    ctx: CostContext, layout: LayoutLike, parameters: Numeric, shards: Numeric, gathered: Numeric
) -> StateBytes:
    """Bytes of states shared by `shards` ranks.

    gathered: parameters that ZeRO-3 gathers at a time; 0 where nothing is gathered.
    """
    software, zero = ctx.software, np.asarray(layout.zero_stage)
    weights, once = weight_bytes(ctx), gathers_once(ctx, layout)
    return StateBytes(
        # two units: one is computed with while the next is gathered
        parameters=np.where(
            (np.asarray(gathered) > 0) & ~once, 2 * gathered * weights, parameters * weights
        ),
        gradients=parameters * software.gradient_bytes * np.where(zero >= 2, 1 / shards + once, 1)
        + gathered * ctx.element_bytes,
        optimizer=parameters * optimizer_bytes(ctx) / np.where(zero >= 1, shards, 1),
    )


def device_state_bytes(ctx: CostContext, layout: LayoutLike, parameters: Parameters) -> StateBytes:
    """Bytes of the model states on the device: without optimizer states that are offloaded."""
    states = state_bytes(ctx, layout, parameters)
    if not offloads_any(layout):
        return states
    optimizer = np.where(offloads_optimizer(layout), 0.0, states.optimizer)
    return StateBytes(states.parameters, states.gradients, optimizer)


def weight_bytes(ctx: CostContext) -> float:
    """Bytes a parameter's weight takes: in 16 bits, and as low-precision matmuls read it.

    Software whose low-precision weights are primary holds them by rows and by columns, and no
    16-bit ones; what stays in 16 bits (tables, norms) takes as much.
    """
    primary = ctx.training.precision in ctx.software.low_precision_parameters
    copies = ctx.low_precision * ctx.matmul_bytes
    return 2.0 * ctx.matmul_bytes if primary else ctx.element_bytes + copies


def gathers_once(ctx: CostContext, layout: LayoutLike) -> Boolean:
    """Whether ZeRO-2 and 3 leave a stage's weights and gradients whole between micro-batches."""
    if not ctx.software.gathers_once_in_pipelines:
        return np.asarray(False)
    return (np.asarray(layout.zero_stage) >= 2) & (np.asarray(layout.pp) > 1)


# ---------------------------------------------------------------- the optimizer's step


def optimizer_seconds(ctx: CostContext, layout: LayoutLike, parameters: Parameters) -> Numeric:
    """Seconds of Adam over a rank's share of the states, and of clearing its gradients.

    At the HBM rate; offloaded states are stepped on the host.
    """
    shards = state_shards(ctx, layout)
    moved = _step_bytes(ctx, layout, parameters.dense, shards.dense)
    if ctx.model.moe is not None:
        moved = moved + _step_bytes(ctx, layout, parameters.experts, shards.experts)
    if not offloads_any(layout):
        return moved / ctx.hbm_bytes_per_second
    own = own_parameters(ctx, layout, parameters)
    offloaded = offloads_optimizer(layout)
    on_device = np.where(offloaded, moved - own * state_traffic_bytes(ctx), moved)
    on_host = offloaded * host_step_seconds(ctx, own)
    return on_device / ctx.hbm_bytes_per_second + on_host


def _step_bytes(
    ctx: CostContext, layout: LayoutLike, parameters: Numeric, shards: Numeric
) -> Numeric:
    """Bytes that a step's update and clearing move of states shared by `shards` ranks."""
    zero = np.asarray(layout.zero_stage)
    per_parameter = state_traffic_bytes(ctx) + GRADIENT_PASSES * ctx.software.gradient_bytes
    own = parameters / np.where(zero >= 1, shards, 1)
    gradients = parameters / np.where(zero >= 2, shards, 1) * ctx.software.gradient_bytes
    return own * per_parameter + gradients
