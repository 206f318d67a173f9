"""What each communicating group of a layout moves, how long it waits, and what limits it.

Three phases. First every channel's traffic of a step is taken as if nothing else ran. Then the
seconds of a step in which communication is exposed, which the step knows by term of time, are
divided among the term's channels in proportion to their busy time. Last both are summed by group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from planner.cost.channels import SPECS, Channel, occurrences
from planner.cost.collectives import GroupCost, duration
from planner.cost.context import CostContext, TierArrays
from planner.cost.overlap import channel_skew_seconds
from planner.cost.traffic import Traffic, channel_costs
from planner.layouts.grids import GROUPS
from planner.layouts.layout import Layout
from planner.planning.plan import GroupLoss, GroupReport

FloatArray = NDArray[np.float64]

Splits = Mapping[str, Sequence[float]]
"""Group → its members in each tier, inner to outer; they multiply to the group's size."""

EXPOSED_TERMS = {
    "tp": "tp", "cp": "cp", "etp": "ep", "ep": "ep", "shard": "dp", "edp": "dp",
    "replicate": "dp", "pp": "pp",
}  # fmt: skip
"""The term of time that holds each group's exposed seconds; some share one."""


@dataclass(frozen=True, slots=True)
class CostedStep:
    """A layout in one place, costed.

    traffic: channel → what one run of it moves. costs: channel → what one run of it takes in this
    place. time: seconds of a step by term. flops_per_accelerator: what one executes in a step,
    recompute included.
    """

    ctx: CostContext
    layout: Layout
    splits: Splits
    traffic: Traffic
    costs: Mapping[Channel, GroupCost]
    time: Mapping[str, float]
    flops_per_accelerator: float


def group_reports(costed: CostedStep) -> dict[str, GroupReport]:
    """A report of every group with more than one member."""
    by_group: dict[str, list[_ChannelUse]] = {}
    for use in _with_exposed_seconds(_channel_uses(costed), costed.time):
        by_group.setdefault(use.group, []).append(use)
    return {
        group: _report(costed, group, by_group[group])
        for group in GROUPS
        if group in by_group and np.prod(costed.splits[group]) > 1
    }


@dataclass(frozen=True, slots=True)
class _ChannelUse:
    """The traffic of one channel in a step, with the links to itself. T tiers, inner to outer."""

    group: str
    term: str  # of time
    latency_seconds: float
    busy_seconds: float
    tier_busy_seconds: FloatArray  # (T)
    tier_bytes: FloatArray  # (T)
    exposed_seconds: float = 0.0


def _channel_uses(costed: CostedStep) -> Iterator[_ChannelUse]:
    ctx = costed.ctx
    runs = occurrences(ctx, costed.layout)
    # on tiers of one byte per second the busy seconds are the bytes
    moved = channel_costs(ctx, costed.traffic, costed.splits, _unit_tiers(ctx.tiers))
    for channel in costed.traffic:
        cost, count = costed.costs[channel], float(runs[channel])
        skew = float(channel_skew_seconds(ctx, costed.layout, costed.traffic, channel))
        yield _ChannelUse(
            group=SPECS[channel].group,
            term=SPECS[channel].time_term,
            latency_seconds=count * (float(cost.latency_seconds) + skew),
            busy_seconds=count * (float(duration(cost, ctx.ramp)) + skew),
            tier_busy_seconds=count * np.array([float(busy) for busy in cost.busy_seconds]),
            tier_bytes=count * np.array([float(num) for num in moved[channel].busy_seconds]),
        )


def _with_exposed_seconds(
    uses: Iterator[_ChannelUse], time: Mapping[str, float]
) -> list[_ChannelUse]:
    """The channels, each with its share of its term's exposed seconds."""
    known = list(uses)
    busy_of_term: dict[str, float] = {}
    for use in known:
        busy_of_term[use.term] = busy_of_term.get(use.term, 0.0) + use.busy_seconds
    return [
        replace(use, exposed_seconds=time[use.term] * use.busy_seconds / busy_of_term[use.term])
        if busy_of_term[use.term] > 0
        else use
        for use in known
    ]


def _report(costed: CostedStep, group: str, uses: Sequence[_ChannelUse]) -> GroupReport:
    ctx, split = costed.ctx, costed.splits[group]
    tiers = ctx.topology.tier_names
    none = np.zeros(len(tiers))
    tier_bytes = sum((use.tier_bytes for use in uses), none)
    tier_busy_seconds = sum((use.tier_busy_seconds for use in uses), none)
    busy_seconds = sum(use.busy_seconds for use in uses)
    exposed_seconds = sum(use.exposed_seconds for use in uses)
    if busy_seconds <= 0:  # without traffic, what a term has is its groups' own
        exposed_seconds = costed.time[EXPOSED_TERMS[group]]
    exposed_share = exposed_seconds / busy_seconds if busy_seconds > 0 else 0.0

    executed, num_bytes = costed.flops_per_accelerator, float(np.max(tier_bytes))
    exposed_bytes = num_bytes * exposed_share
    walls = {
        "compute": executed / ctx.peak_flops,
        "bandwidth": float(np.max(tier_busy_seconds)),
        "latency": sum(use.latency_seconds for use in uses),
    }
    return GroupReport(
        members=round(float(np.prod(split))),
        bytes=num_bytes,
        flops=executed,
        intensity=executed / num_bytes if num_bytes else None,
        exposed_intensity=executed / exposed_bytes if exposed_bytes > 0 else None,
        busy_seconds=busy_seconds,
        exposed_seconds=exposed_seconds,
        latency_seconds=walls["latency"],
        tiers={
            tier: {
                "bytes": float(tier_bytes[t]),
                "busy_seconds": float(tier_busy_seconds[t]),
                "ridge": ctx.peak_flops / float(ctx.tiers.bytes_per_second[t]),
            }
            for t, tier in enumerate(tiers)
            if split[t] > 1
        },
        split={tier: float(split[t]) for t, tier in enumerate(tiers)},
        wall=max(walls, key=lambda wall: walls[wall]),
        busbw=num_bytes / busy_seconds if busy_seconds > 0 else None,
    )


def _unit_tiers(tiers: TierArrays) -> TierArrays:
    """Tiers of one byte per second."""
    ones = np.ones_like(tiers.all_gather)
    return TierArrays(
        bytes_per_second=ones, all_gather=ones, all_reduce=ones, all_to_all=ones,
        point_to_point=ones, hop_seconds=tiers.hop_seconds, base_seconds=tiers.base_seconds,
        posting_seconds=tiers.posting_seconds,
    )  # fmt: skip


# ---------------------------------------------------------------- two layouts compared


def group_losses(
    best: Mapping[str, GroupReport], other: Mapping[str, GroupReport]
) -> dict[str, GroupLoss]:
    """What each group of another layout exposes more than the best one's, greatest loss first."""
    losses: dict[str, GroupLoss] = {}
    for name in GROUPS:
        ours, theirs = best.get(name), other.get(name)
        either = theirs or ours
        if either is None:
            continue
        exposed = 0.0 if theirs is None else theirs.exposed_seconds
        best_exposed = 0.0 if ours is None else ours.exposed_seconds
        losses[name] = GroupLoss(
            tier=busiest_tier(either),
            members=1 if theirs is None else theirs.members,
            best_members=1 if ours is None else ours.members,
            exposed_seconds=exposed,
            best_exposed_seconds=best_exposed,
            extra_seconds=exposed - best_exposed,
        )
    return dict(sorted(losses.items(), key=lambda item: -item[1].extra_seconds))


def busiest_tier(group: GroupReport) -> str | None:
    """The tier whose links a group keeps busy longest; None where it crosses none."""
    tiers = group.tiers
    return max(tiers, key=lambda tier: tiers[tier]["busy_seconds"], default=None)
