"""Bytes and calls of each channel, and what a placement makes them cost.

`layout_traffic` counts what a layout moves on each of its channels (`planner.cost.channels`), and
`channel_costs` prices that for the groups' splits over tiers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from planner.cost.channels import DENSE_STATES, EXPERT_STATES, SPECS, Channel, StateChannels
from planner.cost.collective_costs import UnitCost, unit_cost
from planner.cost.collectives import Collective, CollectiveKind, GroupCost, Half, Subgroup
from planner.cost.context import CostContext, TierArrays
from planner.cost.experts import imbalance, own_tokens
from planner.cost.layers import num_attention_layers, num_layers, share_of
from planner.cost.model_states import Parameters
from planner.cost.recompute import RecomputedShares
from planner.cost.stages import DIRECTIONS
from planner.cost.statespace import ALL_TO_ALLS, all_to_all_elements
from planner.layouts.arrays import distinct_values
from planner.layouts.keys import CP_KINDS, DISPATCHERS
from planner.layouts.layout import LayoutLike
from planner.layouts.numeric import Numeric
from planner.problem.blocks import Mamba, MoE

Splits = Mapping[str, Sequence[Numeric]]
"""Group name → its members per tier, inner to outer."""


@dataclass(frozen=True, slots=True)
class Transfers:
    """Collectives of one kind: how many calls, and the bytes they move in all.

    What the bytes are of is said with each `CollectiveKind`.
    """

    collective: Collective
    calls: Numeric
    num_bytes: Numeric


Traffic = Mapping[Channel, tuple[Transfers, ...]]
"""What a layout moves on each channel, on the rank with the most of it; one run of the channel."""

BUCKET_PARAMETERS, BUCKET_PARAMETERS_PER_RANK = 40e6, 1e6
"""Parameters per gradient bucket, and of software whose buckets grow with the data-parallel ranks
so many for each, if that is more (Megatron-Core's defaults)."""

_ALL_GATHER = Collective(CollectiveKind.ALL_GATHER)
_ALL_REDUCE = Collective(CollectiveKind.ALL_REDUCE)
_ALL_TO_ALL = Collective(CollectiveKind.ALL_TO_ALL)
_BROADCAST = Collective(CollectiveKind.BROADCAST)
_POINT_TO_POINT = Collective(CollectiveKind.POINT_TO_POINT)
_RING_SENDS = Collective(CollectiveKind.RING_SENDS)


def layout_traffic(
    ctx: CostContext, layout: LayoutLike, parameters: Parameters, recomputed: RecomputedShares
) -> Traffic:
    """The traffic of a layout: of each channel that a model and its software have.

    parameters: of the largest stage; recomputed: shares of the mean layer's forward pass, whose
    collectives run once more.
    """
    shards = layout.cp * layout.dp_shard
    dense = _States(parameters.dense, shards, DENSE_STATES)
    traffic = {
        **_tensor_channels(ctx, layout, recomputed),
        **_context_channels(ctx, layout, recomputed),
        Channel.PP: _stage_sends(ctx, layout),
        **_state_channels(ctx, layout, dense),
    }
    if ctx.model.mamba is not None:
        traffic |= _scan_channels(ctx, layout, ctx.model.mamba, recomputed)
    if ctx.model.moe is not None:
        edp = layout.tp * layout.cp * layout.dp_shard / (layout.etp * layout.ep)
        experts = _States(parameters.experts, edp, EXPERT_STATES)
        traffic |= _expert_channels(ctx, layout, ctx.model.moe, recomputed)
        traffic |= _state_channels(ctx, layout, experts)
    return {channel: _used(transfers) for channel, transfers in traffic.items()}


def _used(transfers: tuple[Transfers, ...]) -> tuple[Transfers, ...]:
    """The transfers that any row calls, one at least: the others need not be priced."""
    return tuple(one for one in transfers if np.any(one.calls)) or transfers[:1]


# ---------------------------------------------------------------- layers


def _activation_bytes(ctx: CostContext, layout: LayoutLike) -> Numeric:
    """Bytes of one sequence shard's hidden states."""
    tokens = layout.mbs * ctx.training.sequence_length / layout.cp
    return tokens * ctx.model.hidden_size * ctx.element_bytes


def _tensor_channels(
    ctx: CostContext, layout: LayoutLike, recomputed: RecomputedShares
) -> dict[Channel, tuple[Transfers, ...]]:
    """Of a layer's blocks; of experts, only shared ones are cut over tp."""
    sp = np.asarray(layout.sp) > 0
    activation = _activation_bytes(ctx, layout)
    uncut_experts = not ctx.model.shared_ffn_hidden_size
    blocks = sum(
        kind.share * (len(kind.blocks) - (kind.has_experts and uncut_experts))
        for kind in ctx.layer_kinds
    )
    # an all-gather and a reduce-scatter stand for each all-reduce with sequence parallelism,
    # and the weight gradient gathers its input again
    with_sp, without_sp = np.where(sp, blocks, 0.0), np.where(sp, 0.0, blocks)
    as_cast = ctx.training.precision in ctx.software.gathers_as_cast
    cast = ctx.matmul_bytes / ctx.element_bytes if as_cast else 1.0

    def transfers(
        all_gathers: Numeric, reduce_scatters: Numeric, all_reduces: Numeric
    ) -> tuple[Transfers, ...]:
        """So many of each, a block."""
        calls = without_sp * all_reduces
        return (
            Transfers(
                _ALL_GATHER,
                with_sp * (all_gathers + reduce_scatters),
                with_sp * (all_gathers * cast + reduce_scatters) * activation,
            ),
            Transfers(_ALL_REDUCE, calls, calls * activation),
        )

    forward = 1 + recomputed.collectives
    traffic = {
        Channel.TP_FORWARD: transfers(forward, forward, forward),
        Channel.TP_BACKWARD: transfers(1.0, 0.0, 0.0),
        Channel.TP_GRADIENTS: transfers(1.0, 1.0, 1.0),
    }
    if ctx.software.gathers_logits:
        heads = 1.0 + ctx.model.mtp_layers
        logits = activation / ctx.model.hidden_size * ctx.model.vocab_size
        traffic[Channel.TP_LOGITS] = (Transfers(_ALL_GATHER, heads, heads * logits),)
    return traffic


BRINGS_ALL_KEYS: Mapping[str, Collective] = {"ring": _RING_SENDS, "all_gather": _ALL_GATHER}
"""Kinds of context parallelism that bring keys and values of all ranks → how."""


def _context_channels(
    ctx: CostContext, layout: LayoutLike, recomputed: RecomputedShares
) -> dict[Channel, tuple[Transfers, ...]]:
    """Keys and values sent round or gathered, or heads and tokens in all-to-alls."""
    tokens = layout.mbs * ctx.training.sequence_length / layout.cp
    keys_values = ctx.keys_values_size(layout.tp)
    key_value_bytes = tokens * keys_values / layout.tp * ctx.element_bytes
    head_elements = tokens * (ctx.query_size + ctx.output_size + keys_values) / layout.tp
    head_bytes = head_elements * ctx.element_bytes
    by_kind = _attention_layers_by_cp_kind(ctx, layout)
    by_inner_degree = _hierarchical_by_inner_degree(layout, by_kind)

    def transfers(key_value_sends: Numeric, head_rounds: Numeric) -> tuple[Transfers, ...]:
        """Keys and values sent so often, heads so often there and back, an attention layer."""
        sent_bytes = key_value_sends * key_value_bytes
        found = [
            Transfers(
                BRINGS_ALL_KEYS[kind],
                layers * key_value_sends,
                layers * sent_bytes * layout.cp,
            )
            for kind, layers in by_kind.items()
            if kind in BRINGS_ALL_KEYS
        ]
        if "a2a" in by_kind:
            rounds = by_kind["a2a"] * head_rounds
            found.append(Transfers(_ALL_TO_ALL, 2 * rounds, rounds * head_bytes))
        for degree, layers in by_inner_degree.items():
            across = Collective(CollectiveKind.RING_SENDS, subgroup=Subgroup(Half.OUTER, degree))
            num_bytes = layers * sent_bytes * (layout.cp / degree)
            found.append(Transfers(across, layers * key_value_sends, num_bytes))
        return tuple(found)

    forward = 1 + recomputed.attention
    traffic = {
        Channel.CP_FORWARD: transfers(forward, forward),
        # gradients of keys and values travel with them; heads go there and back once
        Channel.CP_BACKWARD: transfers(2.0, 1.0),
    }
    if by_inner_degree:
        # not hidden: attention waits for heads, what follows it for tokens
        both = forward + 1.0
        traffic[Channel.CP_HEADS] = tuple(
            Transfers(
                Collective(CollectiveKind.ALL_TO_ALL, subgroup=Subgroup(Half.INNER, degree)),
                2 * layers * both,
                layers * both * head_bytes,
            )
            for degree, layers in by_inner_degree.items()
        )
    return traffic


def _attention_layers_by_cp_kind(ctx: CostContext, layout: LayoutLike) -> dict[str, Numeric]:
    """Of the mean layer the share that attends, where a layout's kind of context parallelism is
    this one, else 0; of the kinds that any row has."""
    attending = num_attention_layers(ctx.model) / num_layers(ctx.model)
    index = np.asarray(layout.cp_kind_index)
    present = [CP_KINDS[i] for i in distinct_values(np.atleast_1d(index))[0].tolist()]
    return {kind: np.where(index == CP_KINDS.index(kind), attending, 0.0) for kind in present}


def _hierarchical_by_inner_degree(
    layout: LayoutLike, by_kind: Mapping[str, Numeric]
) -> dict[int, Numeric]:
    """The same of hierarchical context parallelism, by the inner degree."""
    if "hierarchical" not in by_kind:
        return {}
    inner = np.asarray(layout.cp_a2a)
    degrees = distinct_values(np.atleast_1d(inner))[0].tolist()
    return {degree: by_kind["hierarchical"] * (inner == degree) for degree in degrees if degree > 1}


def _scan_channels(
    ctx: CostContext, layout: LayoutLike, mamba: Mamba, recomputed: RecomputedShares
) -> dict[Channel, tuple[Transfers, ...]]:
    """State-space layers' all-to-alls of sequence shards for heads and back."""
    scanning = share_of(ctx.layer_kinds, "mamba")
    tokens = layout.mbs * ctx.training.sequence_length / layout.cp
    elements = all_to_all_elements(mamba, layout.tp, layout.cp)
    moved_bytes = tokens * elements * ctx.element_bytes

    def transfers(passes: Numeric) -> tuple[Transfers, ...]:
        layers = scanning * passes
        return (Transfers(_ALL_TO_ALL, layers * ALL_TO_ALLS, layers * moved_bytes),)

    forward = 1 + recomputed.scan
    return {
        Channel.CP_SCAN_FORWARD: transfers(forward),
        Channel.CP_SCAN_BACKWARD: transfers(np.ones_like(forward)),
    }


def _stage_sends(ctx: CostContext, layout: LayoutLike) -> tuple[Transfers, ...]:
    """A micro-batch's sends to the next chunk and back, of every chunk of a rank."""
    # each tp rank sends its share, of a sequence shard or of a hidden state cut for the purpose
    is_cut = (np.asarray(layout.sp) > 0) | ctx.software.scatters_boundaries
    boundary = _activation_bytes(ctx, layout) / np.where(is_cut, layout.tp, 1)
    return (Transfers(_POINT_TO_POINT, 2.0 * layout.vp, 2.0 * layout.vp * boundary),)


def _expert_channels(
    ctx: CostContext, layout: LayoutLike, moe: MoE, recomputed: RecomputedShares
) -> dict[Channel, tuple[Transfers, ...]]:
    """Dispatch and combine, once in each pass of a layer; within etp tokens are gathered.

    NCCL's all-to-all learns how much it will receive from another one, of counts, before it.
    """
    tokens = own_tokens(ctx, layout) * ctx.model.expert_hidden_size * ctx.element_bytes
    fullest = imbalance(ctx, moe, layout.ep)
    copies = tokens * moe.top_k * fullest
    dispatch = Collective(CollectiveKind.DISPATCH, num_experts_per_token=moe.top_k)
    index = np.asarray(layout.dispatcher_index)
    uses = {name: np.where(index == i, 1.0, 0.0) for i, name in enumerate(DISPATCHERS)}

    def ep_transfers(passes: Numeric) -> tuple[Transfers, ...]:
        gathers, sends = passes * uses["allgather"], passes * uses["alltoall"]
        flex = passes * uses["flex"]
        return (
            Transfers(_ALL_TO_ALL, 3 * sends, 2 * sends * copies),
            Transfers(dispatch, 2 * flex, 2 * flex * tokens * fullest),
            Transfers(_ALL_GATHER, 2 * gathers, 2 * gathers * tokens * layout.ep),
        )

    def etp_transfers(passes: Numeric) -> tuple[Transfers, ...]:
        return (Transfers(_ALL_GATHER, 2 * passes, 2 * passes * copies * layout.etp),)

    forward = 1 + recomputed.experts
    return {
        Channel.EP_FORWARD: ep_transfers(forward),
        Channel.EP_BACKWARD: ep_transfers(np.ones_like(forward)),
        Channel.ETP_FORWARD: etp_transfers(forward),
        Channel.ETP_BACKWARD: etp_transfers(np.ones_like(forward)),
    }


# ---------------------------------------------------------------- parameters and gradients


@dataclass(frozen=True, slots=True)
class _States:
    """Parameters of a rank before sharding, the ranks that share their states, their channels."""

    parameters: Numeric
    shards: Numeric
    channels: StateChannels


def _state_channels(
    ctx: CostContext, layout: LayoutLike, states: _States
) -> dict[Channel, tuple[Transfers, ...]]:
    """Parameters and gradients over the group that shards their states, and over its replicas."""
    zero, shards = np.asarray(layout.zero_stage), states.shards
    whole = np.where(zero == 3, 1.0, 0.0)
    sharded = np.where(zero >= 1, 1.0, 0.0)
    as_cast = ctx.training.precision in ctx.software.gathers_weights_as_cast
    weights = states.parameters * (ctx.matmul_bytes if as_cast else ctx.element_bytes)
    gradients = states.parameters * ctx.software.gradient_bytes
    buckets = num_buckets(ctx, layout, states.parameters, shards)
    # each rank sends its share of the weights to the others, one after another
    broadcast = sharded * (1 - whole) * ctx.software.broadcasts_weights
    gathered = sharded - broadcast
    calls = np.where(zero == 3, num_layers(ctx.model) / layout.pp, buckets)
    # without ZeRO gradients are reduced in full over shard and replicate groups alike
    own_gradients = gradients / np.where(zero >= 1, shards, 1)
    own_parameters = own_gradients / ctx.software.gradient_bytes
    return {
        states.channels.parameters_forward: (
            Transfers(_ALL_GATHER, gathered * calls, gathered * weights),
            Transfers(_BROADCAST, broadcast * shards, broadcast * weights),
        ),
        states.channels.parameters_backward: (
            Transfers(_ALL_GATHER, whole * calls, whole * weights),
        ),
        states.channels.gradients: (
            Transfers(_ALL_GATHER, sharded * calls, sharded * gradients),
            Transfers(_ALL_REDUCE, (1 - sharded) * calls, (1 - sharded) * gradients),
        ),
        states.channels.gradients_replicate: (Transfers(_ALL_REDUCE, buckets, own_gradients),),
        **_mirror_channel(ctx, layout, buckets, own_parameters, states.channels.gradients_mirror),
    }


def num_buckets(
    ctx: CostContext, layout: LayoutLike, parameters: Numeric, shards: Numeric
) -> Numeric:
    """Buckets in which gradients are reduced."""
    ranks = ctx.software.buckets_grow * shards * layout.dp_replicate
    size = np.maximum(BUCKET_PARAMETERS, BUCKET_PARAMETERS_PER_RANK * ranks)
    buckets: Numeric = np.ceil(parameters / size)
    return buckets


def _mirror_channel(
    ctx: CostContext,
    layout: LayoutLike,
    buckets: Numeric,
    parameters: Numeric,
    channel: Channel,
) -> dict[Channel, tuple[Transfers, ...]]:
    """What ranks r and pp − 1 − r send each other under dualpipe, who hold the same two stages.

    Of gradients, reduced over the shard group, each sends the half whose states the other updates,
    and its own updated weights back; without ZeRO, all gradients. `parameters`: those reduced.
    """
    if "dualpipe" not in ctx.software.schedules:
        return {}
    sharded = np.asarray(layout.zero_stage) >= 1
    mirrored = DIRECTIONS[layout.schedule_index] > 1
    gradient, weight = ctx.software.gradient_bytes, ctx.element_bytes
    sent = parameters * np.where(sharded, (gradient + weight) / 2, gradient)
    calls = np.where(sharded, 2.0, 1.0) * buckets
    return {channel: (Transfers(_POINT_TO_POINT, mirrored * calls, mirrored * sent),)}


# ---------------------------------------------------------------- costs

GroupCollective = tuple[str, Collective]
"""A collective of a group: what has one price under a placement."""


def group_collectives(traffic: Traffic) -> set[GroupCollective]:
    """What of a layout's traffic has a price of its own."""
    return {
        (SPECS[channel].group, transfer.collective)
        for channel, transfers in traffic.items()
        for transfer in transfers
    }


def channel_costs(
    ctx: CostContext, traffic: Traffic, splits: Splits, tiers: TierArrays | None = None
) -> dict[Channel, GroupCost]:
    """Cost vector of one run of every channel, on the topology's tiers or on others."""
    units = {
        (group, collective): unit_cost(collective, splits[group], tiers or ctx.tiers)
        for group, collective in group_collectives(traffic)
    }
    return priced(traffic, units)


def priced(traffic: Traffic, units: Mapping[GroupCollective, UnitCost]) -> dict[Channel, GroupCost]:
    """Cost vector of one run of every channel, whose transfers run one after another."""
    costs = {}
    for channel, transfers in traffic.items():
        group = SPECS[channel].group
        first, *others = [
            units[group, one.collective].cost(one.calls, one.num_bytes) for one in transfers
        ]
        for other in others:
            first = first + other
        costs[channel] = first
    return costs
