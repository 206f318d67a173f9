"""Bytes and calls each communicating group moves, and what a placement makes them cost.

`channels` lists the traffic of a layout, what hides behind different work apart; `channel_costs`
prices it for the groups' splits over tiers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from planner.cost.collectives import GroupCost, Numeric
from planner.cost.context import CostContext, TierArrays
from planner.cost.experts import imbalance, own_tokens
from planner.cost.layers import num_attention_layers, num_layers, share_of
from planner.cost.pipeline import DIRECTIONS
from planner.cost.prices import Price, price
from planner.cost.recompute import recomputed_shares
from planner.cost.statespace import EXCHANGES, exchanged_elements
from planner.layouts.arrays import distinct_values
from planner.layouts.layout import CP_KINDS, DISPATCHERS, LayoutLike
from planner.problem.model import MoE
from planner.problem.pattern import Mamba

Splits = Mapping[str, Sequence[Numeric]]
"""Group name → its members per tier, inner to outer."""

BUCKET_PARAMETERS, BUCKET_PARAMETERS_PER_RANK = 40e6, 1e6
"""Parameters per gradient bucket, and of software whose buckets grow with the data-parallel ranks
so many for each, if that is more (Megatron-Core's defaults)."""


@dataclass(frozen=True, slots=True)
class Part:
    """Collectives of one kind: how many, and the bytes they move in all.

    kind: gather (all-gather or reduce-scatter; bytes of the gathered whole), all_reduce (bytes
    reduced), broadcast (bytes broadcast), all_to_all (bytes a rank holds), dispatch/k (bytes of
    tokens that each go to k experts, one copy to a domain and one to a rank), pair (bytes sent to
    the next member), ring (bytes of all members, each sent round); inner/a/… and outer/a/…, of the
    groups of a members next to each other and of those across them.
    """

    kind: str
    calls: Numeric
    num_bytes: Numeric


@dataclass(frozen=True, slots=True)
class Channel:
    """Traffic of one group that hides behind one kind of work."""

    group: str
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Parameters:
    """Parameters of one rank's fullest stage before sharding over data-parallel ranks."""

    dense: Numeric
    experts: Numeric


def channels(ctx: CostContext, layout: LayoutLike, parameters: Parameters) -> dict[str, Channel]:
    """The traffic of a layout on the rank with the most of it.

    Per layer (the mean one) and micro-batch: tp_forward and tp_backward (on the critical path),
    tp_beside (beside the weight and data gradients), cp_forward, cp_backward, cp_inner (exchanges
    of hierarchical context parallelism, both ways, where there is any), with state-space layers
    cp_scan_forward, cp_scan_backward; with experts, per layer that has them: ep_forward,
    ep_backward, etp_forward, etp_backward. Per micro-batch: pp, and tp_logits on the last stage
    where software gathers them.
    Per gathering of parameters (every micro-batch with ZeRO-3, else every step): gather_forward,
    gather_backward. Per reduction of gradients (every micro-batch with ZeRO-2 and 3): reduce. Per
    step: replicate, and of software with dualpipe mirror, between the two ranks of a stage.
    Experts' parameters have the last ones under expert_…
    """
    shards = layout.cp * layout.dp_shard
    found = {
        **_tensor_channels(ctx, layout),
        **_context_channels(ctx, layout),
        "pp": _pipeline_channel(ctx, layout),
        **_state_channels(ctx, layout, parameters.dense, "shard", shards, ""),
    }
    if ctx.model.mamba is not None:
        found |= _scan_channels(ctx, layout, ctx.model.mamba)
    if ctx.model.moe is not None:
        edp = layout.tp * layout.cp * layout.dp_shard / (layout.etp * layout.ep)
        found |= _expert_channels(ctx, layout, ctx.model.moe)
        found |= _state_channels(ctx, layout, parameters.experts, "edp", edp, "expert_")
    return {name: Channel(c.group, _used(c.parts)) for name, c in found.items()}


def _activation_bytes(ctx: CostContext, layout: LayoutLike) -> Numeric:
    """Bytes of one sequence shard's hidden states."""
    tokens = layout.mbs * ctx.training.sequence_length / layout.cp
    return tokens * ctx.model.hidden_size * ctx.element_bytes


def _tensor_channels(ctx: CostContext, layout: LayoutLike) -> dict[str, Channel]:
    """Of a layer's blocks; of experts, only shared ones are cut over tp."""
    sp = np.asarray(layout.sp) > 0
    again = recomputed_shares(ctx, layout)
    activation = _activation_bytes(ctx, layout)
    uncut = not ctx.model.shared_ffn_hidden_size
    blocks = sum(kind.share * (len(kind.blocks) - (kind.experts and uncut)) for kind in ctx.kinds)
    # an all-gather and a reduce-scatter stand for each all-reduce with sequence parallelism,
    # and the weight gradient gathers its input again
    gathers, reduces = np.where(sp, blocks, 0.0), np.where(sp, 0.0, blocks)
    as_cast = ctx.training.precision in ctx.software.gathers_as_cast
    cast = ctx.matmul_bytes / ctx.element_bytes if as_cast else 1.0

    def parts(num_gathers: Numeric, num_scatters: Numeric, num_reduces: Numeric) -> Channel:
        r = reduces * num_reduces
        return Channel(
            "tp",
            (
                Part(
                    "gather",
                    gathers * (num_gathers + num_scatters),
                    gathers * (num_gathers * cast + num_scatters) * activation,
                ),
                Part("all_reduce", r, r * activation),
            ),
        )

    forward = 1 + again[3]
    found = {
        "tp_forward": parts(forward, forward, forward),
        "tp_backward": parts(1.0, 0.0, 0.0),
        "tp_beside": parts(1.0, 1.0, 1.0),
    }
    if ctx.software.gathers_logits:
        heads = 1.0 + ctx.model.mtp_layers
        logits = activation / ctx.model.hidden_size * ctx.model.vocab_size
        found["tp_logits"] = Channel("tp", (Part("gather", heads, heads * logits),))
    return found


CARRIERS = {"ring": "ring", "all_gather": "gather"}
"""Kinds of context parallelism that bring keys and values of all → the collective that does."""


def _context_channels(ctx: CostContext, layout: LayoutLike) -> dict[str, Channel]:
    again = recomputed_shares(ctx, layout)
    e, tokens = ctx.element_bytes, layout.mbs * ctx.training.sequence_length / layout.cp
    attending = num_attention_layers(ctx.model) / num_layers(ctx.model)
    kind = np.atleast_1d(layout.cp_kind_index)
    present = [CP_KINDS[i] for i in distinct_values(kind)[0].tolist()]
    by = {
        name: np.where(np.asarray(layout.cp_kind_index) == CP_KINDS.index(name), attending, 0.0)
        for name in present
    }
    keys_values = ctx.keys_values_size(layout.tp)
    own = tokens * keys_values / layout.tp * e
    heads = tokens * (ctx.query_size + ctx.output_size + keys_values) / layout.tp * e
    inner = {}
    if "hierarchical" in present:
        sizes = distinct_values(np.atleast_1d(layout.cp_a2a))[0].tolist()
        inner = {a: by["hierarchical"] * (np.asarray(layout.cp_a2a) == a) for a in sizes if a > 1}

    def parts(sent: Numeric, exchanged: Numeric) -> Channel:
        whole = sent * own
        found = [
            Part(CARRIERS[name], here * sent, here * whole * layout.cp)
            for name, here in by.items()
            if name in CARRIERS
        ]
        if "a2a" in by:
            exchanges = by["a2a"] * exchanged
            found.append(Part("all_to_all", 2 * exchanges, exchanges * heads))
        for a, here in inner.items():
            found.append(Part(f"outer/{a}/ring", here * sent, here * whole * (layout.cp / a)))
        return Channel("cp", tuple(found))

    forward = 1 + again[1]
    found = {
        "cp_forward": parts(forward, forward),
        # gradients of keys and values travel beside them; an exchange is undone once
        "cp_backward": parts(2.0, 1.0),
    }
    if inner:
        # not hidden: attention waits for heads, what follows it for tokens
        both = forward + 1.0
        exchanges = (
            Part(f"inner/{a}/all_to_all", 2 * here * both, here * both * heads)
            for a, here in inner.items()
        )
        found["cp_inner"] = Channel("cp", tuple(exchanges))
    return found


def _scan_channels(ctx: CostContext, layout: LayoutLike, mamba: Mamba) -> dict[str, Channel]:
    """State-space layers' exchange of sequence shards for heads and back; nothing hides it."""
    again = recomputed_shares(ctx, layout)
    scanning = share_of(ctx.kinds, "mamba")
    tokens = layout.mbs * ctx.training.sequence_length / layout.cp
    moved = tokens * exchanged_elements(mamba, layout.tp, layout.cp) * ctx.element_bytes

    def exchange(times: Numeric) -> Channel:
        part = Part("all_to_all", scanning * times * EXCHANGES, scanning * times * moved)
        return Channel("cp", (part,))

    forward = 1 + again[6]
    return {
        "cp_scan_forward": exchange(forward),
        "cp_scan_backward": exchange(np.ones_like(forward)),
    }


def _pipeline_channel(ctx: CostContext, layout: LayoutLike) -> Channel:
    # each tp rank sends its part, of a sequence shard or of a hidden state cut for the purpose
    parted = (np.asarray(layout.sp) > 0) | ctx.software.scatters_boundaries
    boundary = _activation_bytes(ctx, layout) / np.where(parted, layout.tp, 1)
    return Channel("pp", (Part("pair", 2.0 * layout.vp, 2.0 * layout.vp * boundary),))


def _state_channels(
    ctx: CostContext,
    layout: LayoutLike,
    parameters: Numeric,
    group: str,
    shards: Numeric,
    prefix: str,
) -> dict[str, Channel]:
    """Parameters and gradients over the group that shards their states, and over its replicas."""
    zero = np.asarray(layout.zero_stage)
    whole = np.where(zero == 3, 1.0, 0.0)
    sharded = np.where(zero >= 1, 1.0, 0.0)
    as_cast = ctx.training.precision in ctx.software.gathers_weights_as_cast
    weights = parameters * (ctx.matmul_bytes if as_cast else ctx.element_bytes)
    gradients = parameters * ctx.software.gradient_bytes
    ranks = ctx.software.buckets_grow * shards * layout.dp_replicate
    size = np.maximum(BUCKET_PARAMETERS, BUCKET_PARAMETERS_PER_RANK * ranks)
    buckets = np.ceil(parameters / size)
    # each rank sends its part of the weights to the others, one after another
    sent = sharded * (1 - whole) * ctx.software.broadcasts_weights
    gathered = sharded - sent
    calls = np.where(zero == 3, num_layers(ctx.model) / layout.pp, buckets)
    # without ZeRO gradients are reduced whole over shard and replicate groups alike
    own = gradients / np.where(zero >= 1, shards, 1)
    reduced = (
        Part("gather", sharded * calls, sharded * gradients),
        Part("all_reduce", (1 - sharded) * calls, (1 - sharded) * gradients),
    )
    return {
        f"{prefix}gather_forward": Channel(
            group,
            (
                Part("gather", gathered * calls, gathered * weights),
                Part("broadcast", sent * shards, sent * weights),
            ),
        ),
        f"{prefix}gather_backward": Channel(
            group, (Part("gather", whole * calls, whole * weights),)
        ),
        f"{prefix}reduce": Channel(group, reduced),
        f"{prefix}replicate": Channel("replicate", (Part("all_reduce", buckets, own),)),
        **_mirror_channel(ctx, layout, buckets, own / ctx.software.gradient_bytes, prefix),
    }


def _mirror_channel(
    ctx: CostContext,
    layout: LayoutLike,
    buckets: Numeric,
    parameters: Numeric,
    prefix: str,
) -> dict[str, Channel]:
    """What ranks r and pp − 1 − r exchange under dualpipe, who hold the same two stages.

    Of gradients, reduced over the shard group, each sends the half whose states the other updates,
    and its own updated weights back; without ZeRO, all gradients. `parameters`: those reduced.
    """
    if "dualpipe" not in ctx.software.schedules:
        return {}
    sharded = np.asarray(layout.zero_stage) >= 1
    both = DIRECTIONS[layout.schedule_index] > 1
    gradient, weight = ctx.software.gradient_bytes, ctx.element_bytes
    sent = parameters * np.where(sharded, (gradient + weight) / 2, gradient)
    calls = np.where(sharded, 2.0, 1.0) * buckets
    return {f"{prefix}mirror": Channel("pp", (Part("pair", both * calls, both * sent),))}


def _expert_channels(ctx: CostContext, layout: LayoutLike, moe: MoE) -> dict[str, Channel]:
    """Tokens to experts and back, once in each direction of a layer; within etp they are gathered.

    NCCL's all-to-all learns how much it will receive from an exchange of counts before it.
    """
    again = recomputed_shares(ctx, layout)
    tokens = own_tokens(ctx, layout) * ctx.model.expert_hidden_size * ctx.element_bytes
    fullest = imbalance(ctx, moe, layout.ep)
    copies = tokens * moe.top_k * fullest
    kind = np.asarray(layout.dispatcher_index)
    by = {name: np.where(kind == i, 1.0, 0.0) for i, name in enumerate(DISPATCHERS)}

    def exchange(times: Numeric) -> Channel:
        gathered, sent = times * by["allgather"], times * by["alltoall"]
        flex = times * by["flex"]
        return Channel(
            "ep",
            (
                Part("all_to_all", 3 * sent, 2 * sent * copies),
                Part(f"dispatch/{moe.top_k}", 2 * flex, 2 * flex * tokens * fullest),
                Part("gather", 2 * gathered, 2 * gathered * tokens * layout.ep),
            ),
        )

    def spread(times: Numeric) -> Channel:
        return Channel("etp", (Part("gather", 2 * times, 2 * times * copies * layout.etp),))

    forward = 1 + again[4]
    return {
        "ep_forward": exchange(forward),
        "ep_backward": exchange(np.ones_like(forward)),
        "etp_forward": spread(forward),
        "etp_backward": spread(np.ones_like(forward)),
    }


def _used(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """The parts that any row calls, one at least: the others need not be priced."""
    return tuple(part for part in parts if np.any(part.calls)) or parts[:1]


def channel_costs(
    ctx: CostContext,
    traffic: Mapping[str, Channel],
    splits: Splits,
    tiers: TierArrays | None = None,
) -> dict[str, GroupCost]:
    """Cost vector of every channel on the topology's tiers (or others): parts one by one."""
    kinds = {(c.group, part.kind) for c in traffic.values() for part in c.parts}
    prices = {
        (group, kind): price(kind, splits[group], tiers or ctx.tiers) for group, kind in kinds
    }
    return {name: joined(channel, prices) for name, channel in traffic.items()}


def joined(channel: Channel, prices: Mapping[tuple[str, str], Price]) -> GroupCost:
    """Cost vector of a channel whose parts run one after another, at the prices of each kind."""
    first, *others = [
        prices[channel.group, part.kind].cost(part.calls, part.num_bytes) for part in channel.parts
    ]
    for other in others:
        first = GroupCost(
            first.latency_seconds + other.latency_seconds,
            tuple(a + b for a, b in zip(first.busy_seconds, other.busy_seconds, strict=True)),
            first.switch_seconds + other.switch_seconds,
        )
    return first


def occurrences(ctx: CostContext, layout: LayoutLike) -> dict[str, Numeric]:
    """How many times a step runs each channel on one rank."""
    m = layout.num_microbatches
    passes = m * (num_layers(ctx.model) / layout.pp)
    zero = np.asarray(layout.zero_stage)
    gathers = np.where(zero == 3, m, 1)
    reductions = np.where(zero >= 2, m, 1)
    states = {
        "gather_forward": gathers,
        "gather_backward": gathers,
        "reduce": reductions,
        "replicate": 1,
    }
    if "dualpipe" in ctx.software.schedules:
        states["mirror"] = 1
    found = {
        "tp_forward": passes,
        "tp_backward": passes,
        "tp_beside": passes,
        "cp_forward": passes,
        "cp_backward": passes,
        "cp_inner": passes,
        "pp": m,
        **states,
    }
    if ctx.software.gathers_logits:
        found["tp_logits"] = m
    if ctx.model.mamba is not None:
        found |= dict.fromkeys(("cp_scan_forward", "cp_scan_backward"), passes)
    if ctx.model.moe is not None:
        with_experts = passes * share_of(ctx.kinds, "experts")
        exchanges = ("ep_forward", "ep_backward", "etp_forward", "etp_backward")
        found |= dict.fromkeys(exchanges, with_experts)
        found |= {f"expert_{name}": times for name, times in states.items()}
    return found
