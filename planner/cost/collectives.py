"""Time of a collective over the tiers its group spans: start-up, bytes, and what lies between.

A group of n ranks has a *split* over tiers, inner to outer: g_1 … g_T members with Π g_t = n (a
sequence of T numbers, or of arrays of one shape). Costs come as a vector (`GroupCost`): seconds
of latency, seconds of the switch to what carries large messages, and busy seconds of each tier's
links per rank. `duration` joins them.

Rings run through all members, and as many rings side by side as the group has members in a domain:
with inner_t = Π_{u<t} g_u members below tier t, each of their links carries 1/inner_t of what
crosses. Of S gathered bytes tier t carries S·(n−1)/n/inner_t per rank: NVLink all of the ring, the
network that over the NICs of all the node's members. What crosses an outer tier also passes the
tiers between, but not links inside a domain that holds one member only.

The formulas of each collective are here: `…_busy`, seconds of the links per byte, and `…_latency`,
seconds of an empty message. `planner.cost.collective_costs` says which collective takes which, at
the rates of a topology.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

import numpy as np
from numpy.typing import NDArray

from planner.layouts.numeric import Boolean, Numeric

PerTier = Sequence[Numeric] | NDArray[np.float64]
"""One number (or array over groups) per tier, inner to outer."""


@dataclass(frozen=True, slots=True)
class GroupCost:
    """Cost vector of one group's traffic, in seconds.

    latency: of start-up; busy: of each tier's links; switch: how much later than the small-message
    protocol and algorithm those for large messages start.
    """

    latency_seconds: Numeric
    busy_seconds: tuple[Numeric, ...]
    switch_seconds: Numeric = 0.0

    def __add__(self, other: GroupCost) -> GroupCost:
        """One after the other."""
        busy = zip(self.busy_seconds, other.busy_seconds, strict=True)
        return GroupCost(
            self.latency_seconds + other.latency_seconds,
            tuple(mine + others for mine, others in busy),
            self.switch_seconds + other.switch_seconds,
        )


def duration(cost: GroupCost, ramp: PerTier) -> Numeric:
    """Seconds of the traffic when nothing hides it.

        L + max over tiers t of (B_t + min(W, 2·ramp_t·√(W·B_t)))

    with L, B_t and W the latency, busy and switch seconds of the cost vector.

    Tiers are pipelined, so the slowest sets the pace. Small messages start at L and large ones at
    L + W, for they take protocols and algorithms with slower hops and full rate (NCCL: LL, LL128,
    Simple; tree, ring). Between the two the best of many lies near a square root; ramp_t says how
    early it starts, W = 0 or ramp = 0 is the plain α-β line. Non-decreasing in every component.
    """
    switch = cost.switch_seconds
    slowest: Numeric = 0.0
    for busy, factor in zip(cost.busy_seconds, ramp, strict=True):
        later = np.minimum(switch, 2.0 * factor * np.sqrt(switch * busy))
        slowest = np.maximum(slowest, busy + later)
    return cost.latency_seconds + slowest


SWITCH_ALL_GATHER = 2.0
SWITCH_POINT_TO_POINT = 0.7
SWITCH_TREE, SWITCH_RING = 5.0, 0.5
"""Switch seconds per second of latency, from nccl-tests sweeps of many fabrics. NCCL's hops slow
down 5.7-fold from LL to Simple inside a node and 2.8 to 5.2-fold between nodes; an all-reduce moves
from trees to rings besides, so it counts both; an all-gather counts what is inside a domain only;
sends are Simple all along."""

SWITCH_ALL_TO_ALL_HOPS = 40.0
"""Switch of an all-to-all, in hops inside a domain: 35 fit H100 and H200, and 40 fit B200 and B300,
whose hops take twice as long (aiconfigurator-core 0.12.0, systems/data/*/comm/nccl, 2 to 8 GPUs).
"""

SWITCH_CROSSING_SECONDS = 11.3e-6
"""Switch of an all-gather per hop between domains: 14 us of Simple less 2.7 of LL, NCCL's constants
for a ring. It does not grow with the fabric's hop: a software network's is slow in every protocol.
"""


# ---------------------------------------------------------------- kinds of collectives


class CollectiveKind(Enum):
    """What a group does with its bytes, as frameworks and NCCL name it."""

    ALL_GATHER = auto()  # by ring; a reduce-scatter costs the same. Bytes of the gathered total
    ALL_REDUCE = auto()  # bytes reduced
    BROADCAST = auto()  # bytes broadcast
    RING_SENDS = auto()  # each member's bytes sent round a ring to all; bytes of all members
    ALL_TO_ALL = auto()  # bytes a rank holds
    DISPATCH = auto()  # bytes of tokens that each go to some experts, a copy to a domain and a rank
    POINT_TO_POINT = auto()  # bytes sent to the next member


class Half(Enum):
    """Of a group cut into groups of neighbours: those groups, or the groups across them."""

    INNER = auto()
    OUTER = auto()


@dataclass(frozen=True, slots=True)
class Subgroup:
    """One half of a hierarchical group whose inner groups have so many members."""

    half: Half
    inner_members: int


@dataclass(frozen=True, slots=True)
class Collective:
    """A kind of collective and its parameters.

    num_experts_per_token: of a dispatch; subgroup: the half of a hierarchical group that runs it,
    where that is not the group as a whole.
    """

    kind: CollectiveKind
    num_experts_per_token: int | None = None
    subgroup: Subgroup | None = None


# ---------------------------------------------------------------- splits


def num_members(split: Sequence[Numeric]) -> Numeric:
    """Members of a group: the product of its split, T numbers or arrays of one shape."""
    size, *others = split
    for members in others:
        size = size * members
    return size


def subgroup_split(split: Sequence[Numeric], subgroup: Subgroup) -> list[Numeric]:
    """The split of one half of a group whose inner groups are `inner_members` next to each other.

    The inner ones fill tiers from the innermost out, as far as their number divides: of [8, 4] cut
    at 16, [8, 2] and [1, 2]. What groups that lie unevenly leave over lies in the outermost.
    """
    inner: list[Numeric] = []
    outer: list[Numeric] = []
    left: Numeric = subgroup.inner_members
    for members in split:
        taken = np.gcd(np.asarray(members).astype(np.int64), left)
        inner.append(taken)
        outer.append(members / taken)
        left = left // taken
    if subgroup.half is Half.INNER:
        return [*inner[:-1], inner[-1] * left]
    return [*outer[:-1], np.maximum(outer[-1] / left, 1.0)]


@dataclass(frozen=True, slots=True)
class _Crossing:
    """Of one tier: whether its links carry a group's traffic, and the members below it."""

    carries: Boolean
    inner: Numeric


def _crossings(split: Sequence[Numeric]) -> tuple[Numeric, list[_Crossing]]:
    """Members of a group, and how its traffic crosses each tier.

    Links carry inside a domain or on the way out, so not where a domain holds one member only.
    """
    size = num_members(split)
    inner: Numeric = 1.0
    tiers = []
    for tier, members in enumerate(split):
        carries = np.asarray(members) > 1 if tier == 0 else np.asarray(inner) < size
        tiers.append(_Crossing(carries, inner))
        inner = inner * members
    return size, tiers


# ---------------------------------------------------------------- busy seconds of links


def all_gather_busy(split: Sequence[Numeric], rate: PerTier) -> tuple[Numeric, ...]:
    """Busy seconds of each tier per gathered byte: all-gather and reduce-scatter by ring.

    split: T numbers (or arrays); rate: achieved bytes per second of each tier, per accelerator.
    """
    size, tiers = _crossings(split)
    ring = 1.0 - 1.0 / size
    return tuple(
        tier.carries * ring / (tier.inner * bytes_per_second)
        for tier, bytes_per_second in zip(tiers, rate, strict=True)
    )


def ring_sends_busy(split: Sequence[Numeric], rate: PerTier) -> tuple[Numeric, ...]:
    """Busy seconds of each tier per byte of all members sent round a group: one ring.

    Unlike an all-gather's, whose rings side by side share the NICs of a domain, a ring of sends
    leaves a domain over one rank's: each of its links carries everything.
    """
    size, tiers = _crossings(split)
    ring = 1.0 - 1.0 / size
    return tuple(
        tier.carries * ring / bytes_per_second
        for tier, bytes_per_second in zip(tiers, rate, strict=True)
    )


def all_reduce_busy(
    split: Sequence[Numeric], all_gather_rate: PerTier, reduce_rate: PerTier
) -> tuple[Numeric, ...]:
    """Busy seconds of each tier per byte all-reduced: twice the ring's traffic.

    Between exactly two domains a tree halves what crosses: each sends its sum once (nccl-tests on
    two nodes show the rate inside a node). In-switch reduction lifts the innermost rate from
    `all_gather_rate` to `reduce_rate` where at least IN_SWITCH_MEMBERS ranks sit under one switch.
    """
    size, tiers = _crossings(split)
    ring = []
    for tier, rate in zip(tiers, reduce_rate, strict=True):
        in_two_domains = (tier.inner > 1) & (2 * tier.inner == size)
        passes = np.where(in_two_domains, 0.5, 1.0 - 1.0 / size)
        ring.append(tier.carries * passes / (tier.inner * rate))
    lifted = np.where(
        np.asarray(split[0]) >= IN_SWITCH_MEMBERS, 1.0, reduce_rate[0] / all_gather_rate[0]
    )
    return (2.0 * ring[0] * np.maximum(lifted, 1.0), *(2.0 * seconds for seconds in ring[1:]))


def sharp_busy(
    split: Sequence[Numeric], busy: Sequence[Numeric], rate: PerTier
) -> tuple[Numeric, ...]:
    """Busy seconds per byte all-reduced where switches of the network reduce, if less than `busy`.

    A domain's members hand its sum, S in all, up to the switches and get the total down, both at
    once: each link carries S/inner_t, where a ring carries 2·(n − 1)/n of that. rate: a number per
    tier, 0 where switches do not reduce; the innermost tier is left as it is, for all_reduce_busy
    has its switches.
    """
    _, tiers = _crossings(split)
    reduced = list(busy)
    for t in range(1, len(busy)):
        if rate[t] > 0:
            passed = tiers[t].carries / (tiers[t].inner * rate[t])
            reduced[t] = np.minimum(busy[t], passed)
    return tuple(reduced)


IN_SWITCH_MEMBERS = 6
"""NVLS raises all-reduce from five or six ranks on (nccl-tests logs of 2, 4 and 8 ranks)."""


def own_share_busy(split: Sequence[Numeric], share: float, rate: Numeric) -> Numeric:
    """Busy seconds of the innermost tier per byte for a rank's own bytes, 1/n of a collective's.

    They move from input to output over no link but by the same channels, in `share` of the time
    that as many take at `rate`; so two H100 reach three quarters of the bus bandwidth of eight.
    """
    return (np.asarray(split[0]) > 1) * (share / rate) / num_members(split)


def broadcast_busy(split: Sequence[Numeric], rate: PerTier) -> tuple[Numeric, ...]:
    """Busy seconds of each tier per byte broadcast along rings: every link carries all of it."""
    _, tiers = _crossings(split)
    return tuple(
        tier.carries / (tier.inner * bytes_per_second)
        for tier, bytes_per_second in zip(tiers, rate, strict=True)
    )


def mesh_share(members: Numeric, mesh_members: float) -> Numeric:
    """Share of an accelerator's links that a group uses in a full mesh: one link per other member.

    Two of a mesh of eight have one link of seven; all eight have all.
    """
    share: Numeric = np.clip(
        (members - 1.0) / (mesh_members - 1.0), 1.0 / (mesh_members - 1.0), 1.0
    )
    return share


def all_to_all_busy(split: Sequence[Numeric], rate: PerTier) -> tuple[Numeric, ...]:
    """Busy seconds of each tier per byte a rank holds: tier t carries what leaves its domain."""
    size, tiers = _crossings(split)
    return tuple(
        tier.carries * (1.0 - tier.inner / size) / bytes_per_second
        for tier, bytes_per_second in zip(tiers, rate, strict=True)
    )


def dispatch_busy(
    split: Sequence[Numeric], rate: PerTier, num_experts_per_token: int
) -> tuple[Numeric, ...]:
    """Busy seconds of each tier per byte of tokens that each go to k experts spread evenly.

    One copy crosses to an innermost domain, however many of its experts are chosen, and one goes on
    to each rank (DeepEP, HybridEP). One of D places is chosen with 1 − (1 − 1/D)^k.
    """
    size, tiers = _crossings(split)
    domains = size / split[0]
    rank_chosen = 1.0 - (1.0 - 1.0 / size) ** num_experts_per_token
    domain_chosen = 1.0 - (1.0 - 1.0 / domains) ** num_experts_per_token
    busy = []
    for t, (tier, bytes_per_second) in enumerate(zip(tiers, rate, strict=True)):
        to_ranks = (size - 1.0) * rank_chosen
        to_domains = (size - tier.inner) / split[0] * domain_chosen
        busy.append(tier.carries * (to_domains if t else to_ranks) / bytes_per_second)
    return tuple(busy)


def point_to_point_busy(split: Sequence[Numeric], rate: PerTier) -> tuple[Numeric, ...]:
    """Busy seconds of each tier per byte sent to the next member; the farthest one counts."""
    _, tiers = _crossings(split)
    return tuple(
        tier.carries / bytes_per_second for tier, bytes_per_second in zip(tiers, rate, strict=True)
    )


# ---------------------------------------------------------------- latency


def ring_latency(split: Sequence[Numeric], hop: PerTier, base: PerTier) -> Numeric:
    """Seconds one ring all-gather or reduce-scatter takes to pass an empty message round.

    split, hop and base: T numbers (or arrays of one shape), inner to outer.
    """
    return ring_hops(split, hop, base).latency_seconds


@dataclass(frozen=True, slots=True)
class RingHops:
    """What the latency of a ring is made of.

    inside_seconds: its start and the hops in innermost domains; between_seconds: the hops between
    domains; crossings: how many those are.
    """

    inside_seconds: Numeric
    between_seconds: Numeric
    crossings: Numeric

    @property
    def latency_seconds(self) -> Numeric:
        """Seconds of all of it."""
        return self.inside_seconds + self.between_seconds


def ring_hops(split: Sequence[Numeric], hop: PerTier, base: PerTier) -> RingHops:
    """The hops that the slowest message of a ring passes.

    Of the ring's n links a message passes all but one. The slowest messages are spared one inside
    a domain: of 2 nodes of 8 they pass 13 inside and both between. A hop between domains is
    RING_HOP of one in a tree.
    """
    size = num_members(split)
    domains = domains_joined = size / split[0]
    several = np.asarray(split[0]) > 1
    spared = several & (domains > 1)
    start = several * base[0]
    # groups that lie unevenly have fractions of members in a domain
    inside = np.maximum(size - domains - spared, 0.0) * hop[0]
    outside: Numeric = 0.0
    closing: Numeric = 0.0
    for members, hop_seconds, base_seconds in zip(split[1:], hop[1:], base[1:], strict=True):
        spans = np.asarray(members) > 1
        wider = domains / members
        outside = outside + (domains - wider) * hop_seconds
        start = np.maximum(start, spans * base_seconds)
        closing = np.maximum(closing, spans * hop_seconds)
        domains = wider
    outside = RING_HOP * (outside + several * closing)
    return RingHops(start + inside, outside, domains_joined - 1.0 + spared)


RING_HOP = 0.75
"""Of a tree's hop between domains: NCCL's tuning constants have 0.5 (LL, LL128) to 1 (Simple);
all-gathers over two nodes show 0.65 (A3 Mega) and 0.85 (B200 on InfiniBand)."""


def tree_latency(split: Sequence[Numeric], hop: PerTier, base: PerTier) -> Numeric:
    """Seconds an empty all-reduce takes: up and down a tree over domains, a chain inside one.

    start + 2·[(g_0 − 1)·hop_0 + Σ over levels l = 0, 1, … of (1 + FARTHER_PER_LEVEL·l)·hop_t], with
    log2 g_t levels in tier t (NCCL's tree model has all levels alike).
    """
    start: Numeric = 0.0
    hops: Numeric = 0.0
    below: Numeric = 0.0
    for tier, (members, hop_seconds, base_seconds) in enumerate(zip(split, hop, base, strict=True)):
        start = np.maximum(start, (np.asarray(members) > 1) * base_seconds)
        if tier == 0:
            hops = 2.0 * (members - 1.0) * hop_seconds
            continue
        levels = np.log2(members)
        farther = 1.0 + FARTHER_PER_LEVEL * (below + 0.5 * (levels - 1.0))
        hops = hops + 2.0 * levels * farther * hop_seconds
        below = below + levels
    return start + hops


FARTHER_PER_LEVEL = 0.1
"""How much longer a hop takes at each level of a tree over domains: twice as many domains lie more
switches and longer cables apart (H100 on InfiniBand: 25 us over 2 nodes, 36 over 4; GH200 on
Slingshot: 4.9 us a hop in 2 nodes, 6.7 in 512)."""


POSTING_SHARE = 0.25
"""Of the base latency: seconds of posting a send of an all-to-all to one peer, where a fabric does
not say (8 A100 with an old driver: 85 us against 35 of an all-reduce)."""

SIMPLE_BASE = 8.4 / 6.6
"""Base latency of protocol Simple, which sends use, over that of LL: NCCL's tuning constants."""


def pairwise_latency(
    split: Sequence[Numeric], hop: PerTier, base: PerTier, posting: PerTier
) -> Numeric:
    """Seconds an empty all-to-all takes: a message to and from every peer, posted in turn.

    start + hop + Σ over tiers of posting_t for each peer that tier t is the first to join. Posting
    to a peer across a network takes its proxy some microseconds, inside a domain half a one.
    """
    reach = _reach(split, hop, base)
    inner: Numeric = 1.0
    posted: Numeric = 0.0
    for members, seconds in zip(split, posting, strict=True):
        posted = posted + inner * (members - 1.0) * seconds
        inner = inner * members
    return reach.start_seconds + reach.hop_seconds + posted


def pairwise_switch(split: Sequence[Numeric], hop: PerTier) -> Numeric:
    """Seconds by which large messages of an all-to-all start later: hops inside a domain alone.

    Neither the number of peers, whose sends are posted alike, nor the start-up time enters.
    """
    return (np.asarray(split[0]) > 1) * (SWITCH_ALL_TO_ALL_HOPS * hop[0])


def point_to_point_latency(split: Sequence[Numeric], hop: PerTier, base: PerTier) -> Numeric:
    """Seconds an empty message takes to the next member; the farthest one counts."""
    reach = _reach(split, hop, base)
    return reach.start_seconds * SIMPLE_BASE + reach.hop_seconds


@dataclass(frozen=True, slots=True)
class _Reach:
    """Largest base latency and largest hop of the tiers a group spans; zeros for one member."""

    start_seconds: Numeric
    hop_seconds: Numeric


def _reach(split: Sequence[Numeric], hop: PerTier, base: PerTier) -> _Reach:
    start: Numeric = 0.0
    farthest: Numeric = 0.0
    for members, hop_seconds, base_seconds in zip(split, hop, base, strict=True):
        spans = np.asarray(members) > 1
        start = np.maximum(start, spans * base_seconds)
        farthest = np.maximum(farthest, spans * hop_seconds)
    return _Reach(start, farthest)
