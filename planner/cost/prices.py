"""What one collective costs a group by where its members are: seconds a call and a byte."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from planner.cost import collectives
from planner.cost.collectives import GroupCost, Numeric, PerTier
from planner.cost.context import Array, TierArrays


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
    """What a kind of collective costs a group split over tiers so.

    inner/a/kind and outer/a/kind are of the groups of a members next to each other that it is cut
    into, and of those across them.
    """
    if kind.startswith(("inner/", "outer/")):
        half, members, whole = kind.split("/", 2)
        inner, outer = collectives.halves(split, int(members))
        return price(whole, inner if half == "inner" else outer, tiers)
    hop, base = tiers.hop_seconds, tiers.base_seconds
    gather = _in_mesh(tiers.gather, split, tiers)
    late = None if tiers.rendezvous_seconds is None else _rendezvous(kind, split, tiers)
    short = None
    if kind in RINGS:
        inside, outside, crossings = collectives.ring_parts(split, hop, base)
        latency = inside + outside
        switch = collectives.SWITCH_GATHER * inside
        switch = switch + collectives.SWITCH_CROSSING_SECONDS * crossings
        # sends round a mesh have one link each
        linked = [np.minimum(members, 2.0) for members in split] if kind == "ring" else split
        busy = RINGS[kind](split, _in_mesh(tiers.gather, linked, tiers))
    elif kind == "all_reduce":
        latency, switch = _all_reduce_starts(split, tiers, late)
        busy = collectives.all_reduce_busy(split, gather, _in_mesh(tiers.all_reduce, split, tiers))
        if tiers.sharp is not None:
            busy = collectives.sharp_busy(split, busy, tiers.sharp)
    elif kind == "all_to_all":
        latency = collectives.pairwise_latency(split, hop, base)
        switch = collectives.SWITCH_ALL_TO_ALL * latency
        busy = collectives.all_to_all_busy(split, _in_mesh(tiers.all_to_all, split, tiers))
    elif kind.startswith("dispatch/"):
        latency = collectives.pair_latency(split, hop, base)
        switch = collectives.SWITCH_PAIR * latency
        rate = _in_mesh(tiers.all_to_all, split, tiers)
        busy = collectives.dispatch_busy(split, rate, int(kind.removeprefix("dispatch/")))
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
    return LATENCY[kind.partition("/")[0]](
        split, tiers.rendezvous_seconds, np.zeros_like(tiers.base_seconds)
    )


RINGS: Mapping[str, Callable[..., tuple[Numeric, ...]]] = {
    "gather": collectives.gather_busy,
    "broadcast": collectives.broadcast_busy,
    "ring": collectives.ring_busy,
}
"""What passes from member to member → its busy seconds of each tier per byte."""

LATENCY: Mapping[str, Callable[..., Numeric]] = {
    "gather": collectives.ring_latency,
    "broadcast": collectives.ring_latency,
    "ring": collectives.ring_latency,
    "all_reduce": collectives.tree_latency,
    "all_to_all": collectives.pairwise_latency,
    "dispatch": collectives.pair_latency,
    "pair": collectives.pair_latency,
}


def _long_calls(kind: str, split: Sequence[Numeric], tiers: TierArrays) -> Numeric:
    """Calls at the eager limit per byte: gathers and exchanges send a rank's part at a time."""
    parts = collectives.num_members(split) if kind in ("gather", "ring", "all_to_all") else 1.0
    return 1.0 / (tiers.eager_bytes * parts)


def _in_mesh(rate: Array, split: Sequence[Numeric], tiers: TierArrays) -> PerTier:
    """Rates that the group's links reach together: in a full mesh, of those it has."""
    if tiers.mesh_members is None:
        return rate
    return [
        tier_rate if mesh is None else tier_rate * collectives.mesh_share(members, mesh)
        for tier_rate, members, mesh in zip(rate, split, tiers.mesh_members, strict=True)
    ]
