"""Time of a collective over the tiers its group spans: start-up, bytes, and the ramp between.

A group of n ranks has a *split* over tiers, inner to outer: g_1 … g_T members with Π g_t = n (a
sequence of T numbers, or of arrays of one shape). Costs come as a vector (`GroupCost`): seconds
of latency, and busy seconds of each tier's links per rank. `duration` joins them.

Rings run through all members, and as many rings side by side as the group has members in a domain:
with inner_t = Π_{u<t} g_u members below tier t, each of their links carries 1/inner_t of what
crosses. Of S gathered bytes tier t carries S·(n−1)/n/inner_t per rank: NVLink the whole ring, the
network that over the NICs of all the node's members. What crosses an outer tier also passes the
tiers between, but not links inside a domain that holds one member only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numeric = Any
PerTier = Sequence[float] | NDArray[np.float64]
"""One number per tier, inner to outer."""


@dataclass(frozen=True, slots=True)
class GroupCost:
    """Cost vector of one group's traffic: seconds of latency, and of each tier's links."""

    latency_seconds: Numeric
    busy_seconds: tuple[Numeric, ...]


def duration(cost: GroupCost, ramp: PerTier) -> Numeric:
    """Seconds of the traffic alone: L + max over tiers of B_t + 2·ramp_t·√(L·B_t).

    Tiers are pipelined, so the slowest sets the pace. ramp = 0 is the plain α-β line; ramp = 1 is
    the p-norm with p = ½. Between start-up and full rate real collectives lie above the line
    (protocol switches): over 40 nccl-tests sweeps a p-norm with p ≈ 0.59 halves the error of
    α + S/β. Non-decreasing in every component.
    """
    latency = cost.latency_seconds
    slowest: Numeric = 0.0
    for busy, factor in zip(cost.busy_seconds, ramp, strict=True):
        slowest = np.maximum(slowest, busy + 2.0 * factor * np.sqrt(latency * busy))
    return latency + slowest


def gather_busy(split: Sequence[Numeric], rate: PerTier) -> tuple[Numeric, ...]:
    """Busy seconds of each tier per gathered byte: all-gather and reduce-scatter by ring.

    split: T numbers (or arrays); rate: achieved bytes per second of each tier, per accelerator.
    """
    size = _product(split)
    ring = 1.0 - 1.0 / size
    inner: Numeric = 1.0
    out = []
    for tier, (members, bytes_per_second) in enumerate(zip(split, rate, strict=True)):
        carries = _carries(tier, members, inner, size)
        out.append(carries * ring / (inner * bytes_per_second))
        inner = inner * members
    return tuple(out)


def _carries(tier: int, members: Numeric, inner: Numeric, size: Numeric) -> Numeric:
    """Whether a tier's links carry the group's traffic: inside a domain, or on the way out."""
    return np.asarray(members) > 1 if tier == 0 else np.asarray(inner) < size


def _product(split: Sequence[Numeric]) -> Numeric:
    size: Numeric = 1.0
    for members in split:
        size = size * members
    return size


def all_reduce_busy(
    split: Sequence[Numeric], gather_rate: PerTier, reduce_rate: PerTier
) -> tuple[Numeric, ...]:
    """Busy seconds of each tier per byte all-reduced: twice the ring's traffic.

    Between exactly two domains a tree halves what crosses: each sends its sum once (nccl-tests on
    two nodes show the rate inside a node). In-switch reduction lifts the innermost rate from
    `gather_rate` to `reduce_rate` where at least IN_SWITCH_MEMBERS ranks sit under one switch.
    """
    size = _product(split)
    inner: Numeric = 1.0
    ring = []
    for tier, (members, rate) in enumerate(zip(split, reduce_rate, strict=True)):
        passes = np.where((inner > 1) & (2 * inner == size), 0.5, 1.0 - 1.0 / size)
        ring.append(_carries(tier, members, inner, size) * passes / (inner * rate))
        inner = inner * members
    lifted = np.where(
        np.asarray(split[0]) >= IN_SWITCH_MEMBERS, 1.0, reduce_rate[0] / gather_rate[0]
    )
    return (2.0 * ring[0] * np.maximum(lifted, 1.0), *(2.0 * seconds for seconds in ring[1:]))


IN_SWITCH_MEMBERS = 6
"""NVLS raises all-reduce from five or six ranks on (nccl-tests logs of 2, 4 and 8 ranks)."""


def all_to_all_busy(split: Sequence[Numeric], rate: PerTier) -> tuple[Numeric, ...]:
    """Busy seconds of each tier per byte a rank holds: tier t carries what leaves its domain."""
    size = _product(split)
    inner: Numeric = 1.0
    out = []
    for tier, (members, bytes_per_second) in enumerate(zip(split, rate, strict=True)):
        carries = _carries(tier, members, inner, size)
        out.append(carries * (1.0 - inner / size) / bytes_per_second)
        inner = inner * members
    return tuple(out)


def point_to_point_busy(split: Sequence[Numeric], rate: PerTier) -> tuple[Numeric, ...]:
    """Busy seconds of each tier per byte sent to the next member; the worst pair counts."""
    size = _product(split)
    inner: Numeric = 1.0
    out = []
    for tier, (members, bytes_per_second) in enumerate(zip(split, rate, strict=True)):
        out.append(_carries(tier, members, inner, size) / bytes_per_second)
        inner = inner * members
    return tuple(out)


def ring_latency(split: Sequence[Numeric], hop: PerTier, base: PerTier) -> Numeric:
    """Seconds one ring all-gather or reduce-scatter takes to pass an empty message round.

    The ring passes all n members: of its n − 1 hops, as many stay inside a domain of tier t as
    members (or inner domains) it joins there, in all of the group's domains (NCCL's ring model).
    """
    domains = _product(split)
    start: Numeric = 0.0
    hops: Numeric = 0.0
    for members, hop_seconds, base_seconds in zip(split, hop, base, strict=True):
        start = np.maximum(start, (np.asarray(members) > 1) * base_seconds)
        domains = domains / members
        hops = hops + domains * (members - 1.0) * hop_seconds
    return start + hops


def tree_latency(split: Sequence[Numeric], hop: PerTier, base: PerTier) -> Numeric:
    """Seconds an empty all-reduce takes: up and down a tree over domains, a chain inside one."""
    start: Numeric = 0.0
    hops: Numeric = 0.0
    for tier, (members, hop_seconds, base_seconds) in enumerate(zip(split, hop, base, strict=True)):
        start = np.maximum(start, (np.asarray(members) > 1) * base_seconds)
        depth = members - 1.0 if tier == 0 else np.log2(members)
        hops = hops + 2.0 * depth * hop_seconds
    return start + hops


def pair_latency(split: Sequence[Numeric], hop: PerTier, base: PerTier) -> Numeric:
    """Seconds an empty message takes to the next member; the worst pair counts."""
    start: Numeric = 0.0
    for members, hop_seconds, base_seconds in zip(split, hop, base, strict=True):
        start = np.maximum(start, (np.asarray(members) > 1) * (hop_seconds + base_seconds))
    return start
