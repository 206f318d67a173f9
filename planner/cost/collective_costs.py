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

SHORT_SEND_BYTES = 64 * 2.0**20
"""Sends of up to so many bytes run at the short rate; longer ones take no less (sendrecv logs of
8 H100 and 8 B200: 82 GB/s to 64 MiB, then the same 0.8 ms to 256 MiB)."""


@dataclass(frozen=True, slots=True)
class UnitCost:
    """What a collective costs a group: seconds per call, and busy seconds per byte.

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


def unit_cost(collective: Collective, split: Split, tiers: TierArrays) -> UnitCost:
    """What a collective costs a group that is split over tiers so."""
    kind = collective.kind
    if collective.subgroup is not None:
        split = collectives.subgroup_split(split, collective.subgroup)
    if kind in RINGS:
        unit = _ring(kind, split, tiers)
    elif kind is CollectiveKind.ALL_REDUCE:
        unit = _all_reduce(split, tiers)
    elif kind is CollectiveKind.ALL_TO_ALL:
        unit = _all_to_all(split, tiers)
    elif kind is CollectiveKind.DISPATCH:
        unit = _dispatch(split, tiers, collective.num_experts_per_token or 1)
    else:
        unit = _point_to_point(split, tiers)
    if tiers.own_share is not None and kind in HAS_OWN_SHARE:
        own = _own_share_busy(kind, split, tiers, tiers.own_share)
        unit = replace(unit, busy_seconds=(unit.busy_seconds[0] + own, *unit.busy_seconds[1:]))
    if tiers.rendezvous_seconds is None:
        return unit
    return replace(
        unit,
        rendezvous_seconds=_rendezvous(kind, split, tiers),
        long_calls_per_byte=_long_calls(kind, split, tiers),
    )


RINGS: Mapping[CollectiveKind, Callable[[Split, PerTier], tuple[Numeric, ...]]] = {
    CollectiveKind.ALL_GATHER: collectives.all_gather_busy,
    CollectiveKind.BROADCAST: collectives.broadcast_busy,
    CollectiveKind.RING_SENDS: collectives.ring_sends_busy,
}
"""What passes from member to member → its busy seconds of each tier per byte."""

LATENCY: Mapping[CollectiveKind, Callable[[Split, PerTier, PerTier], Numeric]] = {
    CollectiveKind.ALL_GATHER: collectives.ring_latency,
    CollectiveKind.BROADCAST: collectives.ring_latency,
    CollectiveKind.RING_SENDS: collectives.ring_latency,
    CollectiveKind.ALL_REDUCE: collectives.tree_latency,
    CollectiveKind.ALL_TO_ALL: collectives.pairwise_latency,
    CollectiveKind.DISPATCH: collectives.point_to_point_latency,
    CollectiveKind.POINT_TO_POINT: collectives.point_to_point_latency,
}
"""Seconds of an empty message, of hop and base latencies."""

HAS_OWN_SHARE = (
    CollectiveKind.ALL_GATHER, CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_TO_ALL,
)  # fmt: skip
"""Collectives in which a rank's own bytes move from input to output."""

SENDS_OWN_SHARE = (
    CollectiveKind.ALL_GATHER, CollectiveKind.RING_SENDS, CollectiveKind.ALL_TO_ALL,
)  # fmt: skip
"""Collectives whose messages are of one rank's bytes each."""


def _ring(kind: CollectiveKind, split: Split, tiers: TierArrays) -> UnitCost:
    """All-gather, broadcast and sends round a ring."""
    hops = collectives.ring_hops(split, tiers.hop_seconds, tiers.base_seconds)
    switch = collectives.SWITCH_ALL_GATHER * hops.inside_seconds
    switch = switch + collectives.SWITCH_CROSSING_SECONDS * hops.crossings
    linked: Split = split
    if kind is CollectiveKind.RING_SENDS:  # round a mesh they have one link each
        linked = [np.minimum(members, 2.0) for members in split]
    busy = RINGS[kind](split, _in_mesh(tiers.all_gather, linked, tiers))
    return UnitCost(hops.latency_seconds, switch, busy)


def _all_reduce(split: Split, tiers: TierArrays) -> UnitCost:
    """By trees when small and by rings when large, or in the switches of links and networks."""
    latency, switch = _all_reduce_starts(split, tiers)
    busy = collectives.all_reduce_busy(
        split,
        _in_mesh(tiers.all_gather, split, tiers),
        _in_mesh(tiers.all_reduce, split, tiers),
    )
    if tiers.sharp is not None:
        busy = collectives.sharp_busy(split, busy, tiers.sharp)
    return UnitCost(latency, switch, busy)


def _all_reduce_starts(split: Split, tiers: TierArrays) -> tuple[Numeric, Numeric]:
    """Latency and switch seconds of an all-reduce.

    Where switches of the network reduce, small and large messages each take the lesser of that and
    of trees and rings: it never costs more. A pass through them takes both alike.
    """
    hop, base = tiers.hop_seconds, tiers.base_seconds
    tree = collectives.tree_latency(split, hop, base)
    late_tree = tree
    if tiers.rendezvous_seconds is not None:
        late_tree = tree + _rendezvous(CollectiveKind.ALL_REDUCE, split, tiers)
    switch = collectives.SWITCH_TREE * late_tree
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


def _all_to_all(split: Split, tiers: TierArrays) -> UnitCost:
    """A message from every rank to every other."""
    latency = collectives.pairwise_latency(split, tiers.hop_seconds, tiers.base_seconds)
    busy = collectives.all_to_all_busy(split, _in_mesh(tiers.all_to_all, split, tiers))
    return UnitCost(latency, collectives.SWITCH_ALL_TO_ALL * latency, busy)


def _dispatch(split: Split, tiers: TierArrays, num_experts_per_token: int) -> UnitCost:
    """Tokens to their experts, or back, one copy to a domain and one to a rank."""
    latency = collectives.point_to_point_latency(split, tiers.hop_seconds, tiers.base_seconds)
    rate = _in_mesh(tiers.all_to_all, split, tiers)
    busy = collectives.dispatch_busy(split, rate, num_experts_per_token)
    return UnitCost(latency, collectives.SWITCH_POINT_TO_POINT * latency, busy)


def _point_to_point(split: Split, tiers: TierArrays) -> UnitCost:
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


def _own_share_busy(kind: CollectiveKind, split: Split, tiers: TierArrays, share: float) -> Numeric:
    """Busy seconds of the innermost tier per byte for what a rank keeps."""
    sends = kind is CollectiveKind.ALL_TO_ALL
    rate = tiers.all_to_all[0] if sends else tiers.all_gather[0]
    own = collectives.own_share_busy(split, share, rate)
    if kind is CollectiveKind.ALL_REDUCE and tiers.all_reduce[0] > tiers.all_gather[0]:
        # switches that reduce take a rank's own bytes with the others
        return own * (np.asarray(split[0]) < collectives.IN_SWITCH_MEMBERS)
    return own


def _rendezvous(kind: CollectiveKind, split: Split, tiers: TierArrays) -> Numeric:
    """Seconds by which calls of long messages start later: each hop waits for its other end."""
    hops = tiers.rendezvous_seconds
    assert hops is not None
    return LATENCY[kind](split, hops, np.zeros_like(tiers.base_seconds))


def _long_calls(kind: CollectiveKind, split: Split, tiers: TierArrays) -> Numeric:
    """Calls at the eager limit per byte."""
    messages = collectives.num_members(split) if kind in SENDS_OWN_SHARE else 1.0
    return 1.0 / (tiers.eager_bytes * messages)


def _in_mesh(rate: Array, split: Split, tiers: TierArrays) -> PerTier:
    """Rates that the group's links reach together: in a full mesh, of those it has."""
    if tiers.mesh_members is None:
        return rate
    return [
        tier_rate if mesh is None else tier_rate * collectives.mesh_share(members, mesh)
        for tier_rate, members, mesh in zip(rate, split, tiers.mesh_members, strict=True)
    ]
