"""Bytes and calls each communicating group moves, and what a placement makes them cost.

`channels` lists the traffic of a layout, what hides behind different work apart; `channel_costs`
prices it for the groups' splits over tiers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from planner.cost import collectives
from planner.cost.collectives import GroupCost, Numeric, PerTier
from planner.cost.compute import RECOMPUTED_SHARES
from planner.cost.context import Array, CostContext, TierArrays
from planner.layout import CP_KINDS, LayoutLike

Splits = Mapping[str, Sequence[Numeric]]
"""Group name → its members per tier, inner to outer."""

BUCKET_PARAMETERS = 40e6
"""Parameters per gradient bucket (Megatron-Core's default bucket size)."""


@dataclass(frozen=True, slots=True)
class Part:
    """Collectives of one kind: how many, and the bytes they move in all.

    kind: gather (all-gather or reduce-scatter; bytes of the gathered whole), all_reduce (bytes
    reduced), broadcast (bytes broadcast), all_to_all (bytes a rank holds), pair (bytes sent to the
    next member).
    """

    kind: str
    calls: Numeric
    num_bytes: Numeric


@dataclass(frozen=True, slots=True)
class Channel:
    """Traffic of one group that hides behind one kind of work."""

    group: str
    parts: tuple[Part, ...]


def channels(ctx: CostContext, layout: LayoutLike, stage_parameters: Numeric) -> dict[str, Channel]:
    """The traffic of a dense layout on the rank with the most of it.

    Per layer and micro-batch: tp_forward and tp_backward (on the critical path), tp_beside
    (beside the weight and data gradients), cp_forward, cp_backward. Per micro-batch: pp. Per
    gathering of parameters (every micro-batch with ZeRO-3, else every step): gather_forward,
    gather_backward. Per reduction of gradients (every micro-batch with ZeRO-2 and 3): reduce. Per
    step: replicate. `stage_parameters` counts one rank's parameters before sharding over
    data-parallel ranks.
    """
    model, e = ctx.model, ctx.element_bytes
    sp = np.asarray(layout.sp) > 0
    tokens = layout.mbs * ctx.training.sequence_length / layout.cp
    activation = tokens * model.hidden_size * e
    again = RECOMPUTED_SHARES[:, layout.recompute_index]
    forward = 1 + again[3]
    # an all-gather and a reduce-scatter stand for each all-reduce with sequence parallelism,
    # and the weight gradient gathers its input again
    gathers, reduces = np.where(sp, 1.0, 0.0), np.where(sp, 0.0, 1.0)
    a2a = np.asarray(layout.cp_kind_index) == CP_KINDS.index("a2a")
    rings, exchanges = np.where(a2a, 0.0, 1.0), np.where(a2a, 1.0, 0.0)
    kv = ctx.key_value_size(layout.tp)
    key_values = 2 * tokens * kv / layout.tp * e * layout.cp
    heads = 2 * tokens * (ctx.query_size + kv) / layout.tp * e

    def cp_parts(gathers: Numeric, exchanged: Numeric) -> tuple[Part, ...]:
        return (
            Part("gather", rings * gathers, rings * gathers * key_values),
            Part("all_to_all", 2 * exchanges * exchanged, exchanges * exchanged * heads),
        )

    def tp_parts(num_gathers: Numeric, num_reduces: Numeric) -> tuple[Part, ...]:
        g, r = gathers * num_gathers, reduces * num_reduces
        return (Part("gather", g, g * activation), Part("all_reduce", r, r * activation))

    zero = np.asarray(layout.zero_stage)
    whole = np.where(zero == 3, 1.0, 0.0)
    sharded = np.where(zero >= 1, 1.0, 0.0)
    parameters = stage_parameters * e
    gradients = stage_parameters * ctx.software.gradient_bytes
    buckets = np.ceil(stage_parameters / BUCKET_PARAMETERS)
    calls = np.where(zero == 3, model.num_layers / layout.pp, buckets)
    boundary = activation / np.where(sp, layout.tp, 1)
    # without ZeRO gradients are reduced whole over shard and replicate groups alike
    shards = np.where(zero >= 1, layout.cp * layout.dp_shard, 1)
    found = {
        "tp_forward": Channel("tp", tp_parts(4 * forward, 2 * forward)),
        "tp_backward": Channel("tp", tp_parts(2.0, 0.0)),
        "tp_beside": Channel("tp", tp_parts(4.0, 2.0)),
        "cp_forward": Channel("cp", cp_parts(1 + again[1], 1 + again[1])),
        # gradients of keys and values travel beside them; an exchange is undone once
        "cp_backward": Channel("cp", cp_parts(2.0, 1.0)),
        "pp": Channel("pp", (Part("pair", 2.0 * layout.vp, 2.0 * layout.vp * boundary),)),
        "gather_forward": Channel(
            "shard", (Part("gather", sharded * calls, sharded * parameters),)
        ),
        "gather_backward": Channel("shard", (Part("gather", whole * calls, whole * parameters),)),
        "reduce": Channel(
            "shard",
            (
                Part("gather", sharded * calls, sharded * gradients),
                Part("all_reduce", (1 - sharded) * calls, (1 - sharded) * gradients),
            ),
        ),
        "replicate": Channel("replicate", (Part("all_reduce", buckets, gradients / shards),)),
    }
    return {name: Channel(c.group, _used(c.parts)) for name, c in found.items()}


def _used(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """The parts that any row calls, one at least: the others need not be priced."""
    return tuple(part for part in parts if np.any(part.calls)) or parts[:1]


@dataclass(frozen=True, slots=True)
class Price:
    """What a kind of collective costs a group: seconds per call, and busy seconds per byte.

    short_busy: the innermost tier's per byte of short sends, where those are slower.
    rendezvous: what calls of long messages take longer; long_calls: how many calls' worth of
    messages at the eager limit a byte is.
    """

    latency_seconds: Numeric
    switch_seconds: Numeric
    busy_seconds: tuple[Numeric, ...]
    short_busy_seconds: Numeric | None = None
    rendezvous_seconds: Numeric | None = None
    long_calls_per_byte: Numeric = 0.0

    def cost(self, calls: Numeric, num_bytes: Numeric) -> GroupCost:
        """Cost vector of so many calls that move so many bytes in all."""
        busy = tuple(num_bytes * seconds for seconds in self.busy_seconds)
        if self.short_busy_seconds is not None:
            short = np.minimum(num_bytes, calls * SHORT_SEND_BYTES) * self.short_busy_seconds
            busy = (np.maximum(busy[0], short), *busy[1:])
        latency = calls * self.latency_seconds
        if self.rendezvous_seconds is not None:
            # none of the calls at half the eager limit, all of them at the limit
            late = np.clip(2.0 * num_bytes * self.long_calls_per_byte - calls, 0.0, calls)
            latency = latency + late * self.rendezvous_seconds
        return GroupCost(latency, busy, calls * self.switch_seconds)


SHORT_SEND_BYTES = 64 * 2.0**20
"""Sends of up to so many bytes run at the short rate; longer ones take no less (sendrecv logs of
8 H100 and 8 B200: 82 GB/s to 64 MiB, then the same 0.8 ms to 256 MiB)."""


def price(kind: str, split: Sequence[Numeric], tiers: TierArrays) -> Price:
    """What a kind of collective costs a group split over tiers so."""
    hop, base = tiers.hop_seconds, tiers.base_seconds
    gather = _in_mesh(tiers.gather, split, tiers)
    late = None if tiers.rendezvous_seconds is None else _rendezvous(kind, split, tiers)
    short = None
    if kind in ("gather", "broadcast"):
        inside, outside, crossings = collectives.ring_parts(split, hop, base)
        latency = inside + outside
        switch = collectives.SWITCH_GATHER * inside
        switch = switch + collectives.SWITCH_CROSSING_SECONDS * crossings
        ring = collectives.gather_busy if kind == "gather" else collectives.broadcast_busy
        busy = ring(split, gather)
    elif kind == "all_reduce":
        latency, switch = _all_reduce_starts(split, tiers, late)
        busy = collectives.all_reduce_busy(split, gather, _in_mesh(tiers.all_reduce, split, tiers))
        if tiers.sharp is not None:
            busy = collectives.sharp_busy(split, busy, tiers.sharp)
    elif kind == "all_to_all":
        latency = collectives.pairwise_latency(split, hop, base)
        switch = collectives.SWITCH_ALL_TO_ALL * latency
        busy = collectives.all_to_all_busy(split, _in_mesh(tiers.all_to_all, split, tiers))
    else:
        latency = collectives.pair_latency(split, hop, base)
        switch = collectives.SWITCH_PAIR * latency
        busy = collectives.point_to_point_busy(split, tiers.point_to_point)
        if tiers.short_send is not None:
            short, *_ = collectives.point_to_point_busy(split, tiers.short_send)
    if tiers.own_part is not None and kind in ("gather", "all_reduce", "all_to_all"):
        rate = tiers.all_to_all[0] if kind == "all_to_all" else tiers.gather[0]
        own = collectives.own_part_busy(split, tiers.own_part, rate)
        if kind == "all_reduce" and tiers.all_reduce[0] > tiers.gather[0]:
            own = own * (np.asarray(split[0]) < collectives.IN_SWITCH_MEMBERS)
        busy = (busy[0] + own, *busy[1:])
    long_calls = 0.0 if late is None else _long_calls(kind, split, tiers)
    return Price(latency, switch, busy, short, late, long_calls)


def _all_reduce_starts(
    split: Sequence[Numeric], tiers: TierArrays, late: Numeric | None
) -> tuple[Numeric, Numeric]:
    """Latency and switch of an all-reduce.

    Where switches of the network reduce, small and large messages each take the lesser of that and
    of trees and rings: it never costs more. A pass through them takes both alike.
    """
    hop, base = tiers.hop_seconds, tiers.base_seconds
    tree = collectives.tree_latency(split, hop, base)
    switch = collectives.SWITCH_TREE * (tree if late is None else tree + late)
    switch = switch + collectives.SWITCH_RING * collectives.ring_latency(split, hop, base)
    if tiers.sharp is None or tiers.sharp_seconds is None:
        return tree, switch
    around = collectives.tree_latency(split, np.where(tiers.sharp > 0, 0.0, hop), base)
    passed: Numeric = 0.0
    for members, seconds in zip(split[1:], tiers.sharp_seconds[1:], strict=True):
        passed = passed + (np.asarray(members) > 1) * seconds
    latency = np.minimum(tree, around + passed)
    large = np.minimum(tree + switch, (1.0 + collectives.SWITCH_TREE) * around + passed)
    return latency, large - latency


def _rendezvous(kind: str, split: Sequence[Numeric], tiers: TierArrays) -> Numeric:
    return LATENCY[kind](split, tiers.rendezvous_seconds, np.zeros_like(tiers.base_seconds))


LATENCY: Mapping[str, Callable[..., Numeric]] = {
    "gather": collectives.ring_latency,
    "broadcast": collectives.ring_latency,
    "all_reduce": collectives.tree_latency,
    "all_to_all": collectives.pairwise_latency,
    "pair": collectives.pair_latency,
}


def _long_calls(kind: str, split: Sequence[Numeric], tiers: TierArrays) -> Numeric:
    """Calls at the eager limit per byte: gathers and exchanges send a rank's part at a time."""
    parts = collectives.num_members(split) if kind in ("gather", "all_to_all") else 1.0
    return 1.0 / (tiers.eager_bytes * parts)


def _in_mesh(rate: Array, split: Sequence[Numeric], tiers: TierArrays) -> PerTier:
    """Rates that the group's links reach together: in a full mesh, of those it has."""
    if tiers.mesh_members is None:
        return rate
    return [
        tier_rate if mesh is None else tier_rate * collectives.mesh_share(members, mesh)
        for tier_rate, members, mesh in zip(rate, split, tiers.mesh_members, strict=True)
    ]


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
    passes = m * (ctx.model.num_layers / layout.pp)
    zero = np.asarray(layout.zero_stage)
    gathers = np.where(zero == 3, m, 1)
    reductions = np.where(zero >= 2, m, 1)
    return {
        "tp_forward": passes,
        "tp_backward": passes,
        "tp_beside": passes,
        "cp_forward": passes,
        "cp_backward": passes,
        "pp": m,
        "gather_forward": gathers,
        "gather_backward": gathers,
        "reduce": reductions,
        "replicate": 1,
    }
