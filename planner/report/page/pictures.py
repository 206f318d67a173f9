"""Which pictures a plan, a what-if or a sweep has, and what is written under them."""

from __future__ import annotations

from collections.abc import Sequence

from planner.advise.what_if import WhatIf
from planner.layouts.timeline import Timeline
from planner.planning.plan import Plan
from planner.report.page.frame import Picture
from planner.report.plots.placement import plot_placement
from planner.report.plots.sweep_curves import plot_pareto, plot_scaling
from planner.report.plots.sweep_grid import plot_heat_map, plot_layout_map
from planner.report.plots.time_memory import plot_memory, plot_time
from planner.report.plots.timeline import plot_timeline
from planner.report.plots.tornado import base_of, changes_from, plot_tornado
from planner.report.plots.upgrades import plot_upgrades
from planner.report.text.sweep_rows import COUNT, Row, planned, values_of, varying, with_figure
from planner.report.text.what_if import scaling_rows

FEWEST_FOR_A_FRONT = 3
"""Plans from which on a Pareto front is informative."""


def plan_pictures(plan: Plan, timeline: Timeline | None = None) -> list[Picture]:
    """Placement, time, timeline (of a pipeline) and memory."""
    if plan.layout is None:
        return []
    pictures = []
    if plan.fill is not None and plan.rank_order is not None and max(plan.fill.values()) > 1:
        pictures.append(
            Picture(
                "placement",
                "Which ranks live in which domain: a box is a child of the domain, with its ranks "
                "or the first of many.",
                plot_placement(plan),
            )
        )
    if plan.time and plan.step_seconds:
        pictures.append(
            Picture(
                "time",
                "Where the time of a step goes; tp to dp is communication that computation does "
                "not hide.",
                plot_time(plan),
            )
        )
    if timeline is not None:
        pictures.append(
            Picture(
                "timeline",
                "What every rank of the pipeline runs when; steady state is cut out.",
                plot_timeline(timeline, None, plan.layout.num_microbatches),
            )
        )
    if plan.memory is not None:
        pictures.append(
            Picture(
                "memory",
                "Memory of one accelerator by pipeline stage, in 10⁹ bytes.",
                plot_memory(plan),
            )
        )
    return pictures


def outlook_pictures(outlook: WhatIf) -> list[Picture]:
    """What changes of hardware or job would save, and how far the job scales."""
    pictures = []
    if any(upgrade.gain_fraction is not None for upgrade in outlook.upgrades):
        pictures.append(
            Picture(
                "upgrades",
                "What each possible change of hardware or job saves, planned anew: with the same "
                "layout, and more with another.",
                plot_upgrades(outlook),
            )
        )
    rows = [] if outlook.scaling is None else planned(scaling_rows(outlook.scaling))
    if len(rows) > 1:
        pictures.append(
            Picture(
                "scaling",
                "Throughput of one accelerator against their number, same batch; level is perfect "
                "scaling. Percent: of the most efficient count.",
                plot_scaling(rows, [COUNT]),
            )
        )
    return pictures


def sweep_pictures(rows: Sequence[Row], axes: Sequence[str]) -> list[Picture]:
    """Those that the axes allow: a map needs an axis, a curve counts, a front a choice."""
    with_plan, moving = planned(rows), varying(rows, axes)
    pictures = []
    if with_plan and moving:
        pictures.append(
            Picture(
                "heat-map",
                "MFU of the winning layout, which is written in the cell; hatched where there is "
                "none.",
                plot_heat_map(rows, axes),
            )
        )
    if with_plan and len(moving) > 1:
        pictures.append(
            Picture(
                "layout-map",
                "Which degrees win where; data parallelism fills the rest.",
                plot_layout_map(rows, axes),
            )
        )
    counts = values_of(with_plan, COUNT)
    if len(counts) > 1:
        pictures.append(
            Picture(
                "scaling",
                "Throughput of one accelerator against their number; level is perfect scaling.",
                plot_scaling(rows, axes),
            )
        )
    if len(with_plan) >= FEWEST_FOR_A_FRONT and len(counts) > 1:
        pictures.append(
            Picture(
                "pareto-accelerators",
                "Time against accelerators: no other plan beats one on the line in both.",
                plot_pareto(rows),
            )
        )
    if len(with_figure(rows, "cost")) >= FEWEST_FOR_A_FRONT:
        pictures.append(
            Picture(
                "pareto-cost",
                "Time against cost: no other plan beats one on the line in both.",
                plot_pareto(rows, "cost"),
            )
        )
    base = base_of(rows, axes)
    if base is not None and changes_from(base, rows, axes):
        pictures.append(
            Picture(
                "tornado",
                f"What changing only one axis does to point {base.get('point')}.",
                plot_tornado(rows, axes, base),
            )
        )
    return pictures
