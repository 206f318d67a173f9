"""Which pictures a plan or a sweep has."""

from __future__ import annotations

from collections.abc import Sequence

from planner.advise.what_if import WhatIf
from planner.layouts.timeline import Timeline
from planner.planning.plan import Plan
from planner.report.page.render import Picture
from planner.report.plots.breakdown import plot_memory, plot_time
from planner.report.plots.placement import plot_placement
from planner.report.plots.sweep_curves import plot_pareto, plot_scaling
from planner.report.plots.sweep_grid import plot_heat_map, plot_layout_map
from planner.report.plots.timeline import plot_timeline
from planner.report.plots.tornado import base_of, changes_from, plot_tornado
from planner.report.plots.upgrades import plot_upgrades
from planner.report.text.sweep_rows import COUNT, Row, done, values_of, varying, with_figure
from planner.report.text.what_if import scaling_rows

PARETO_LEAST = 3
"""Plans from which on a front says something."""


def plan_pictures(plan: Plan, timeline: Timeline | None = None) -> list[Picture]:
    """Placement, time, memory and (of a pipeline that was played) its timeline."""
    if plan.layout is None:
        return []
    found = []
    if plan.fill is not None and plan.rank_order is not None and max(plan.fill.values()) > 1:
        found.append(
            Picture(
                "placement",
                "Who sits in which domain: a box is a child of the domain and says its ranks, or "
                "the first of many.",
                plot_placement(plan),
            )
        )
    if plan.time and plan.step_seconds:
        found.append(
            Picture("time", "Where the time of a step goes; tp to dp is what computing does not "
                    "hide.", plot_time(plan))
        )  # fmt: skip
    if timeline is not None:
        found.append(
            Picture(
                "timeline",
                "What every rank of the pipeline runs when; steady state is cut out.",
                plot_timeline(timeline, None, plan.layout.num_microbatches),
            )
        )
    if plan.memory is not None:
        found.append(
            Picture("memory", "Memory of one accelerator by pipeline stage, in 10⁹ bytes.",
                    plot_memory(plan))
        )  # fmt: skip
    return found


def outlook_pictures(found: WhatIf) -> list[Picture]:
    """What changes of the machine would buy, and how far the job scales."""
    pictures = []
    if any(upgrade.gain_fraction is not None for upgrade in found.upgrades):
        pictures.append(
            Picture("upgrades", "What each change of machine or job that can be made saves, "
                    "planned anew: by the layout as it is, and more by another.",
                    plot_upgrades(found))
        )  # fmt: skip
    rows = [] if found.scaling is None else done(scaling_rows(found.scaling))
    if len(rows) > 1:
        pictures.append(
            Picture("scaling", "What an accelerator does against how many there are, the batch as "
                    "it is; level is perfect scaling. Percent: of the most efficient count.",
                    plot_scaling(rows, [COUNT]))
        )  # fmt: skip
    return pictures


def sweep_pictures(rows: Sequence[Row], axes: Sequence[str]) -> list[Picture]:
    """Those that the axes allow: a map needs an axis, a curve counts, a front a choice."""
    known, moving = done(rows), varying(rows, axes)
    found = []
    if known and moving:
        found.append(
            Picture("heat-map", "MFU of the winning layout, which is written in the cell; hatched "
                    "where there is none.", plot_heat_map(rows, axes))
        )  # fmt: skip
    if known and len(moving) > 1:
        found.append(
            Picture("layout-map", "Which degrees win where; data parallelism fills the rest.",
                    plot_layout_map(rows, axes))
        )  # fmt: skip
    counts = values_of(known, COUNT)
    if len(counts) > 1:
        found.append(
            Picture("scaling", "What an accelerator does against how many there are; level is "
                    "perfect scaling.", plot_scaling(rows, axes))
        )  # fmt: skip
    if len(known) >= PARETO_LEAST and len(counts) > 1:
        found.append(
            Picture("pareto-accelerators", "Time against accelerators: a plan on the line is "
                    "beaten by none in both.", plot_pareto(rows))
        )  # fmt: skip
    costs = with_figure(rows, "cost")
    if len(costs) >= PARETO_LEAST:
        found.append(
            Picture("pareto-cost", "Time against cost: a plan on the line is beaten by none in "
                    "both.", plot_pareto(rows, "cost"))
        )  # fmt: skip
    base = base_of(rows, axes)
    if base is not None and changes_from(base, rows, axes):
        found.append(
            Picture("tornado", f"What changing one axis alone does to point {base.get('point')}.",
                    plot_tornado(rows, axes, base))
        )  # fmt: skip
    return found
