"""What each collective costs a group on the tiers of a topology: seconds a call and a byte.

Which formulas of `planner.cost.collectives` a collective takes, at which of the tiers' rates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.cost import collectives
from planner.cost.collectives import Collective, CollectiveKind, GroupCost, PerTier
from planner.cost.context import Array, TierArrays
from planner.layouts.numeric import Numeric

Split = Sequence[Numeric]
"""A group's members per tier, inner to outer: T numbers or arrays of one shape."""

DISPATCH_OWN_COPIES = 2.0
"""What a dispatch's kernels take to read and write a rank's own tokens, in copies to other ranks.

Fitted together with `dispatch_efficiency` to 432 times of DeepEP's combine inside nodes of
H100, H200, B200 and B300 (aiconfigurator-core 0.12.0, sglang 0.5.12 wideep_deepep_normal_perf,
4,096 tokens and more, the best number of multiprocessors): mean error 6 % on Hopper and 13 % on
Blackwell; 18 and 27 % with none."""

SHORT_SEND_BYTES = 64 * 2.0**20
"""Sends of up to so many bytes run at the short rate; longer ones take no less (sendrecv logs of
8 H100 and 8 B200: 82 GB/s to 64 MiB, then the same 0.8 ms to 256 MiB)."""


@dataclass(frozen=True, slots=True)
class UnitCost:
    """What a collective costs a group: seconds per call, and busy seconds per byte of each tier.

    short_busy: of the innermost tier per byte of short sends, where those are slower.
    rendezvous: by how much calls of long messages take longer. long_calls_per_byte: how many
    messages at the eager limit a byte is worth.
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


def unit_cost(collective: Collective, split: Split, tiers: TierArrays) -> UnitCost:
    """What a collective costs a group that is split over tiers so."""
    formula = FORMULAS[collective.kind]
    if collective.subgroup is not None:
        split = collectives.subgroup_split(split, collective.subgroup)
    unit = formula.cost(collective, split, tiers)
    if tiers.own_share is not None and formula.keeps_own_share:
        own = _own_share_busy(collective.kind, split, tiers, tiers.own_share)
        unit = replace(unit, busy_seconds=(unit.busy_seconds[0] + own, *unit.busy_seconds[1:]))
    if tiers.rendezvous_seconds is None:
        return unit
    messages = collectives.num_members(split) if formula.sends_shares else 1.0
    return replace(
        unit,
        rendezvous_seconds=_rendezvous(formula.latency, split, tiers),
        long_calls_per_byte=1.0 / (tiers.eager_bytes * messages),
    )


# ---------------------------------------------------------------- one collective each


def _all_gather(collective: Collective, split: Split, tiers: TierArrays) -> UnitCost:
    """Rings side by side; a reduce-scatter costs the same."""
    rate = _in_mesh(tiers.all_gather, split, tiers)
    return _ring(collectives.all_gather_busy(split, rate), split, tiers)


def _broadcast(collective: Collective, split: Split, tiers: TierArrays) -> UnitCost:
    """Along rings side by side."""
    rate = _in_mesh(tiers.all_gather, split, tiers)
    return _ring(collectives.broadcast_busy(split, rate), split, tiers)


def _ring_sends(collective: Collective, split: Split, tiers: TierArrays) -> UnitCost:
    """Round one ring, whose sends have one link of a full mesh each."""
    pairs = [np.minimum(members, 2.0) for members in split]
    rate = _in_mesh(tiers.all_gather, pairs, tiers)
    return _ring(collectives.ring_sends_busy(split, rate), split, tiers)


def _ring(busy: tuple[Numeric, ...], split: Split, tiers: TierArrays) -> UnitCost:
    """What passes from member to member, and keeps links busy so."""
    hops = collectives.ring_hops(split, tiers.hop_seconds, tiers.base_seconds)
    switch = collectives.SWITCH_ALL_GATHER * hops.inside_seconds
    switch = switch + collectives.SWITCH_CROSSING_SECONDS * hops.crossings
    return UnitCost(hops.latency_seconds, switch, busy)


def _all_reduce(collective: Collective, split: Split, tiers: TierArrays) -> UnitCost:
    """By trees when small and by rings when large, or in the switches of links and networks.

    Where switches of the network reduce, small and large messages each take the lesser of that and
    of trees and rings: it never costs more. A pass through them takes both alike.
    """
    hop, base = tiers.hop_seconds, tiers.base_seconds
    all_gather = _in_mesh(tiers.all_gather, split, tiers)
    all_reduce = _in_mesh(tiers.all_reduce, split, tiers)
    busy = collectives.all_reduce_busy(split, all_gather, all_reduce)
    tree = collectives.tree_latency(split, hop, base)
    late_tree = tree
    if tiers.rendezvous_seconds is not None:
        late_tree = tree + _rendezvous(collectives.tree_latency, split, tiers)
    switch = collectives.SWITCH_TREE * late_tree
    switch = switch + collectives.SWITCH_RING * collectives.ring_latency(split, hop, base)
    if tiers.sharp is None or tiers.sharp_seconds is None:
        return UnitCost(tree, switch, busy)
    around = collectives.tree_latency(split, np.where(tiers.sharp > 0, 0.0, hop), base)
    passed: Numeric = 0.0
    for members, seconds in zip(split[1:], tiers.sharp_seconds[1:], strict=True):
        passed = passed + (np.asarray(members) > 1) * seconds
    latency = np.minimum(tree, around + passed)
    large = np.minimum(tree + switch, (1.0 + collectives.SWITCH_TREE) * around + passed)
    return UnitCost(latency, large - latency, collectives.sharp_busy(split, busy, tiers.sharp))


def _all_to_all(collective: Collective, split: Split, tiers: TierArrays) -> UnitCost:
    """A message from every rank to every other."""
    hop, base = tiers.hop_seconds, tiers.base_seconds
    latency = collectives.pairwise_latency(split, hop, base, tiers.posting_seconds)
    busy = collectives.all_to_all_busy(split, _in_mesh(tiers.all_to_all, split, tiers))
    return UnitCost(latency, collectives.pairwise_switch(split, hop), busy)


def _dispatch(collective: Collective, split: Split, tiers: TierArrays) -> UnitCost:
    """Tokens to their experts, or back, one copy to a domain and one to a rank.

    By kernels that take few multiprocessors: where their rate on the innermost links was measured,
    a rank's own tokens take part of it too.
    """
    latency = collectives.point_to_point_latency(split, tiers.hop_seconds, tiers.base_seconds)
    reached = tiers.all_to_all if tiers.dispatch is None else tiers.dispatch
    rate = _in_mesh(reached, split, tiers)
    busy = collectives.dispatch_busy(split, rate, collective.num_experts_per_token or 1)
    if tiers.dispatch is not None:
        travels = collectives.num_members(split) > 1
        busy = (busy[0] + DISPATCH_OWN_COPIES * travels / tiers.dispatch[0], *busy[1:])
    return UnitCost(latency, collectives.SWITCH_POINT_TO_POINT * latency, busy)


def _point_to_point(collective: Collective, split: Split, tiers: TierArrays) -> UnitCost:
    """A send to the next member."""
    latency = collectives.point_to_point_latency(split, tiers.hop_seconds, tiers.base_seconds)
    short = None
    if tiers.short_send is not None:
        short, *_ = collectives.point_to_point_busy(split, tiers.short_send)
    return UnitCost(
        latency_seconds=latency,
        switch_seconds=collectives.SWITCH_POINT_TO_POINT * latency,
        busy_seconds=collectives.point_to_point_busy(split, tiers.point_to_point),
        short_busy_seconds=short,
    )


@dataclass(frozen=True, slots=True)
class Formula:
    """How a kind of collective is costed.

    cost: per call and byte, but for the rest. latency: seconds of an empty message's hops, of hop
    and base latencies. keeps_own_share: whether a rank's own bytes move from its input to its
    output, which takes time too. sends_shares: whether each message is of one rank's bytes, not of
    all.
    """

    cost: Callable[[Collective, Split, TierArrays], UnitCost]
    latency: Callable[[Split, PerTier, PerTier], Numeric]
    keeps_own_share: bool = False
    sends_shares: bool = False


FORMULAS: Mapping[CollectiveKind, Formula] = {
    CollectiveKind.ALL_GATHER: Formula(
        _all_gather, collectives.ring_latency, keeps_own_share=True, sends_shares=True
    ),
    CollectiveKind.ALL_REDUCE: Formula(_all_reduce, collectives.tree_latency, keeps_own_share=True),
    CollectiveKind.BROADCAST: Formula(_broadcast, collectives.ring_latency),
    CollectiveKind.RING_SENDS: Formula(_ring_sends, collectives.ring_latency, sends_shares=True),
    CollectiveKind.ALL_TO_ALL: Formula(
        _all_to_all, collectives.point_to_point_latency, keeps_own_share=True, sends_shares=True
    ),
    CollectiveKind.DISPATCH: Formula(_dispatch, collectives.point_to_point_latency),
    CollectiveKind.POINT_TO_POINT: Formula(_point_to_point, collectives.point_to_point_latency),
}


# ---------------------------------------------------------------- what fabrics add


def _own_share_busy(kind: CollectiveKind, split: Split, tiers: TierArrays, share: float) -> Numeric:
    """Busy seconds of the innermost tier per byte for what a rank keeps."""
    sends = kind is CollectiveKind.ALL_TO_ALL
    rate = tiers.all_to_all[0] if sends else tiers.all_gather[0]
    own = collectives.own_share_busy(split, share, rate)
    if kind is CollectiveKind.ALL_REDUCE and tiers.all_reduce[0] > tiers.all_gather[0]:
        # switches that reduce take a rank's own bytes with the others
        return own * (np.asarray(split[0]) < collectives.IN_SWITCH_MEMBERS)
    return own


def _rendezvous(
    latency: Callable[[Split, PerTier, PerTier], Numeric], split: Split, tiers: TierArrays
) -> Numeric:
    """Seconds by which calls of long messages start later: each hop waits for its other end."""
    assert tiers.rendezvous_seconds is not None
    return latency(split, tiers.rendezvous_seconds, np.zeros_like(tiers.base_seconds))


def _in_mesh(rate: Array, split: Split, tiers: TierArrays) -> PerTier:
    """Rates that the group's links reach together: in a full mesh, of those it has."""
    if tiers.mesh_members is None:
        return rate
    return [
        tier_rate if mesh is None else tier_rate * collectives.mesh_share(members, mesh)
        for tier_rate, members, mesh in zip(rate, split, tiers.mesh_members, strict=True)
    ]
