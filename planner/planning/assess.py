"""A layout in one place assessed: its time, memory, groups and utilisation, as values of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TypedDict

import numpy as np

from planner.cost import flops, memory, prediction_intervals, step
from planner.cost.context import CostContext
from planner.cost.stages import StageLayers, layers_by_rank
from planner.cost.traffic import channel_costs
from planner.layouts.layout import Layout
from planner.planning.groups import CostedStep, Splits, group_reports
from planner.planning.plan import GroupReport, MemoryReport
from planner.problem.overheads import ENDS, End
from planner.problem.scenario import Scenario


@dataclass(frozen=True, slots=True)
class Assessment:
    """What one layout in one place determines of a plan.

    The step and the ends of its prediction interval, in seconds, which `interval_coverage` of
    published runs lie between; time by term, whose sum is the step; memory, groups; MFU over the
    declared precision's peak and over that of BF16 (None without one), and HFU.
    """

    step_seconds: float
    step_seconds_low: float
    step_seconds_high: float
    interval_coverage: float
    interval_kind: str
    interval_reason: str
    time: dict[str, float]
    memory: MemoryReport
    groups: dict[str, GroupReport]
    mfu: float
    mfu_bf16: float | None
    hfu: float


def assess(ctx: CostContext, layout: Layout, splits: Splits) -> Assessment:
    """Cost a layout whose groups are split over tiers as given, in full."""
    shape = step.layout_costs(ctx, layout)
    costs = channel_costs(ctx, shape.traffic, splits)
    terms = step.step_time(ctx, layout, shape, costs)
    time = {term.name: float(getattr(terms, term.name)) for term in fields(terms)}
    seconds = sum(time.values())

    intervals = prediction_intervals.shipped()
    interval = prediction_intervals.step_interval(intervals, ctx, layout)
    kind = prediction_intervals.KINDS[int(prediction_intervals.kind_index(ctx, layout))]
    fastest, slowest = (_step_at(ctx, layout, splits, end) for end in ENDS)
    accelerator_seconds = seconds * ctx.num_accelerators
    model_flops, executed = flops.model_flops(ctx), float(flops.executed_flops(ctx, layout))
    costed = CostedStep(
        ctx, layout, splits, shape.traffic, costs, time,
        flops_per_accelerator=executed / ctx.num_accelerators,
    )  # fmt: skip
    bf16 = ctx.accelerator.peak_flops.get("bf16")
    return Assessment(
        step_seconds=seconds,
        step_seconds_low=fastest * float(interval.low),
        step_seconds_high=slowest * float(interval.high),
        interval_coverage=float(intervals.coverage),
        interval_kind=kind,
        interval_reason=prediction_intervals.reason(intervals, ctx, kind),
        time=time,
        memory=memory_report(ctx, layout),
        groups=group_reports(costed),
        mfu=model_flops / (accelerator_seconds * ctx.peak_flops),
        mfu_bf16=None if bf16 is None else model_flops / (accelerator_seconds * float(bf16)),
        hfu=executed / (accelerator_seconds * ctx.peak_flops),
    )


def _step_at(ctx: CostContext, layout: Layout, splits: Splits, end: End) -> float:
    """The step on a cluster whose overheads are at an end of their range."""
    return float(step.evaluate(ctx.at_cluster_end(end), layout, splits).total)


def memory_report(ctx: CostContext, layout: Layout) -> MemoryReport:
    """Memory of every stage, in bytes; terms are those of the stage with the highest peak."""
    stage = np.arange(layout.pp)
    layers = layers_by_rank(ctx.model.num_layers, layout, ctx.reserved)
    usage = memory.stage_memory(ctx, layout, StageLayers(stage, np.array(layers)))
    # a term that is the same on all stages is one number
    total = np.broadcast_to(np.asarray(usage.total, dtype=float), stage.shape)
    terms = {
        term.name: np.broadcast_to(np.asarray(getattr(usage, term.name), dtype=float), stage.shape)
        for term in fields(usage)
    }
    worst = int(np.argmax(total))
    intervals = prediction_intervals.shipped()
    interval = prediction_intervals.peak_interval(intervals, ctx, layout, usage)
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
        peak_low_bytes=float(interval.low),
        peak_high_bytes=float(interval.high),
        **_host_memory(ctx, layout),
    )


def _host_memory(ctx: CostContext, layout: Layout) -> Mapping[str, float]:
    """What offloading pins of the host's memory; nothing where nothing is offloaded."""
    host = ctx.accelerator.host
    if host is None or layout.offload == "none":
        return {}
    return {
        "host_bytes": float(memory.host_bytes(ctx, layout)),
        "host_capacity_bytes": memory.PINNED_SHARE * float(host.memory_bytes),
    }


class Economics(TypedDict):
    """Throughput of the job and of one accelerator; length, accelerator-hours and cost of the run,
    None where the scenario gives no tokens or no price."""

    tokens_per_second: float
    tokens_per_second_per_accelerator: float
    days: float | None
    accelerator_hours: float | None
    cost: float | None


def economics(scenario: Scenario, step_seconds: float) -> Economics:
    """What a step of so many seconds means for the run."""
    training, count = scenario.training, scenario.num_accelerators
    tokens = float(training.global_batch_size) * training.sequence_length
    rate = tokens / step_seconds
    hours = None if training.total_tokens is None else training.total_tokens / rate / 3600
    price = scenario.price_per_accelerator_hour
    return {
        "tokens_per_second": rate,
        "tokens_per_second_per_accelerator": rate / count,
        "days": None if hours is None else hours / 24,
        "accelerator_hours": None if hours is None else hours * count,
        "cost": None if hours is None or price is None else hours * count * price,
    }
