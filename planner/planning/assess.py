"""One layout in one place, assessed: its time, memory, groups and utilisation, as plan parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from planner.cost import flops, memory, step
from planner.cost import prediction_intervals as bars
from planner.cost.collectives import GroupCost, duration
from planner.cost.context import CostContext, TierArrays
from planner.cost.layers import model_layers_by_stage
from planner.cost.traffic import Channel, channel_costs, occurrences
from planner.layouts.grids import GROUPS
from planner.layouts.layout import Layout
from planner.planning.plan import GroupLoss, GroupReport, MemoryReport
from planner.problem.scenario import Scenario

Split = Mapping[str, Sequence[float]]

EXPOSED_TERMS = {
    "tp": "tp", "cp": "cp", "etp": "ep", "ep": "ep", "shard": "dp", "edp": "dp",
    "replicate": "dp", "pp": "pp",
}  # fmt: skip
"""The time term that holds each group's exposed seconds; some share one."""


@dataclass(frozen=True, slots=True)
class Assessment:
    """Parts of a plan that one layout in one place determines."""

    step_seconds: float
    step_bar: tuple[float, float]  # seconds
    interval_kind: str
    time: dict[str, float]
    memory: MemoryReport
    groups: dict[str, GroupReport]
    mfu: float
    mfu_bf16: float | None
    hfu: float


def assess(ctx: CostContext, layout: Layout, splits: Split) -> Assessment:
    """Cost a layout whose groups are split over tiers as given, in full."""
    shape = step.shape_costs(ctx, layout)
    costs = channel_costs(ctx, shape.traffic, splits)
    spent = step.step_time(ctx, layout, shape, costs)
    time = {f.name: float(getattr(spent, f.name)) for f in fields(spent)}
    seconds = sum(time.values())
    executed = float(flops.executed_flops(ctx, layout))
    budget = seconds * ctx.num_accelerators
    low, high = bars.step_ends(bars.shipped(), ctx, layout)
    bf16 = ctx.accelerator.peak_flops.get("bf16")
    return Assessment(
        step_seconds=seconds,
        step_bar=(seconds * float(low), seconds * float(high)),
        interval_kind=bars.KINDS[int(bars.kind_index(ctx, layout))],
        time=time,
        memory=memory_report(ctx, layout),
        groups=_groups(
            ctx, layout, splits, shape.traffic, costs, time, executed / ctx.num_accelerators
        ),
        mfu=flops.model_flops(ctx) / (budget * ctx.peak_flops),
        mfu_bf16=None if bf16 is None else flops.model_flops(ctx) / (budget * float(bf16)),
        hfu=executed / (budget * ctx.peak_flops),
    )


def memory_report(ctx: CostContext, layout: Layout) -> MemoryReport:
    """Memory of every stage; terms are of the stage with the highest peak."""
    stage = np.arange(layout.pp)
    layers = model_layers_by_stage(ctx.model, layout, ctx.reserved)
    usage = memory.stage_memory(ctx, layout, stage, np.array(layers))
    total = np.broadcast_to(np.asarray(usage.total, dtype=float), stage.shape)
    worst = int(np.argmax(total))
    low, high = bars.peak_ends(bars.shipped(), ctx, layout, usage)
    terms = {
        f.name: np.broadcast_to(np.asarray(getattr(usage, f.name), dtype=float), stage.shape)
        for f in fields(usage)
    }
    return MemoryReport(
        terms={name: float(values[worst]) for name, values in terms.items()},
        peak_bytes=float(total[worst]),
        capacity_bytes=float(ctx.accelerator.hbm_bytes),
        verdict=memory.VERDICTS[int(memory.verdict_index(ctx, layout, total[worst]))],
        worst_stage=worst,
        by_stage=tuple(
            {"stage": i, "layers": layers[i], "peak_bytes": float(total[i])}
            | {name: float(values[i]) for name, values in terms.items()}
            for i in range(layout.pp)
        ),
        peak_low_bytes=float(low),
        peak_high_bytes=float(high),
        **_host(ctx, layout),
    )


def _host(ctx: CostContext, layout: Layout) -> dict[str, float]:
    host = ctx.accelerator.host
    if host is None or layout.offload == "none":
        return {}
    return {
        "host_bytes": float(memory.host_bytes(ctx, layout)),
        "host_capacity_bytes": memory.PINNED_SHARE * float(host.memory_bytes),
    }


def _groups(
    ctx: CostContext,
    layout: Layout,
    splits: Split,
    traffic: Mapping[str, Channel],
    costs: Mapping[str, GroupCost],
    time: Mapping[str, float],
    flops_per_accelerator: float,
) -> dict[str, GroupReport]:
    times = occurrences(ctx, layout)
    moved = channel_costs(ctx, traffic, splits, _unit_tiers(ctx.tiers))
    names = ctx.topology.tier_names
    alone = {name: float(times[name] * duration(costs[name], ctx.ramp)) for name in traffic}
    # what dualpipe's ranks exchange of gradients travels over the pipeline
    terms = {
        name: "dp" if name.endswith("mirror") else EXPOSED_TERMS[channel.group]
        for name, channel in traffic.items()
    }
    of_term: dict[str, float] = {}
    for name, term in terms.items():
        of_term[term] = of_term.get(term, 0.0) + alone[name]
    totals: dict[str, dict[str, Any]] = {}
    for name, channel in traffic.items():
        count = float(times[name])
        total = totals.setdefault(
            channel.group,
            {
                "latency": 0.0,
                "alone": 0.0,
                "exposed": 0.0,
                "busy": np.zeros(len(names)),
                "bytes": np.zeros(len(names)),
            },
        )
        total["latency"] += count * float(costs[name].latency_seconds)
        total["alone"] += alone[name]
        if of_term[terms[name]] > 0:
            total["exposed"] += time[terms[name]] * alone[name] / of_term[terms[name]]
        total["busy"] += count * np.array([float(b) for b in costs[name].busy_seconds])
        total["bytes"] += count * np.array([float(b) for b in moved[name].busy_seconds])
    reports = {}
    for group, total in totals.items():
        members = float(np.prod(splits[group]))
        if members <= 1:
            continue
        exposed = total["exposed"] if total["alone"] > 0 else time[EXPOSED_TERMS[group]]
        num_bytes = float(np.max(total["bytes"]))
        walls = {
            "compute": flops_per_accelerator / ctx.peak_flops,
            "bandwidth": float(np.max(total["busy"])),
            "latency": total["latency"],
        }
        share = exposed / total["alone"] if total["alone"] > 0 else 0.0
        reports[group] = GroupReport(
            members=round(members),
            bytes=num_bytes,
            flops=flops_per_accelerator,
            intensity=flops_per_accelerator / num_bytes if num_bytes else None,
            exposed_intensity=(
                flops_per_accelerator / (num_bytes * share) if num_bytes * share > 0 else None
            ),
            busy_seconds=total["alone"],
            exposed_seconds=exposed,
            latency_seconds=total["latency"],
            tiers={
                tier: {
                    "bytes": float(total["bytes"][t]),
                    "busy_seconds": float(total["busy"][t]),
                    "ridge": ctx.peak_flops / float(ctx.tiers.bytes_per_second[t]),
                }
                for t, tier in enumerate(names)
                if splits[group][t] > 1
            },
            split={tier: float(splits[group][t]) for t, tier in enumerate(names)},
            wall=max(walls, key=lambda wall: walls[wall]),
            busbw=num_bytes / total["alone"] if total["alone"] > 0 else None,
        )
    return {group: reports[group] for group in GROUPS if group in reports}


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


def _unit_tiers(tiers: TierArrays) -> TierArrays:
    """Tiers of one byte per second, so that busy seconds are bytes."""
    ones = np.ones_like(tiers.gather)
    return TierArrays(
        bytes_per_second=ones, gather=ones, all_reduce=ones, all_to_all=ones, point_to_point=ones,
        hop_seconds=tiers.hop_seconds, base_seconds=tiers.base_seconds,
    )  # fmt: skip


def economics(scenario: Scenario, step_seconds: float) -> dict[str, Any]:
    """Tokens per second, and days, accelerator-hours and cost where the scenario gives them."""
    training, n = scenario.training, scenario.num_accelerators
    tokens = float(training.global_batch_size) * training.sequence_length
    rate = tokens / step_seconds
    hours = None if training.total_tokens is None else training.total_tokens / rate / 3600
    price = scenario.price_per_accelerator_hour
    return {
        "tokens_per_second": rate,
        "tokens_per_second_per_accelerator": rate / n,
        "days": None if hours is None else hours / 24,
        "accelerator_hours": None if hours is None else hours * n,
        "cost": None if hours is None or price is None else hours * n * price,
    }
