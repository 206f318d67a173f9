"""A plan and its bounds held against the least step of every layout that fits."""

from __future__ import annotations

from dataclasses import replace
from math import isclose

import numpy as np
import pytest

from planner.cost.context import CostContext
from planner.layouts.layout import Layout
from planner.planning.assess import memory_report
from planner.planning.plan import Plan
from planner.problem.scenario import Scenario
from planner.search.layout_problem import LayoutProblem
from planner.search.space.enumerate import layouts

TOP_K = 4


def fitting_layouts(ctx: CostContext, scenario: Scenario) -> list[Layout]:
    table, _ = layouts(ctx, scenario.search, prune=False)
    rows = [table.row(i) for i in range(len(table))]
    accepted = ("fits",) if scenario.search.memory == "fits" else ("fits", "fragile")
    return [row for row in rows if memory_report(ctx, row).verdict in accepted]


def as_layout(layout: Layout) -> Layout:
    """The layout of a plan as the table has it, whose rows name no default split."""
    return replace(layout, stage_layers=None)


def check_plan(plan: Plan, scenario: Scenario, least: dict[Layout, float]) -> None:
    """The plan is the enumeration's optimum, its runners-up the next best layouts."""
    best = min(least.values())
    assert plan.status == "optimal"
    assert plan.objective_seconds is not None and plan.step_seconds is not None
    assert isclose(plan.objective_seconds, best, rel_tol=1e-9)
    assert plan.bound_seconds is not None
    assert isclose(plan.bound_seconds, best, rel_tol=1e-9)
    assert plan.step_seconds <= best * (1 + scenario.search.tie_fraction) * (1 + 1e-9)
    own = as_layout(plan.layout)
    assert plan.step_seconds >= least[own] * (1 - 1e-9)
    others = sorted(seconds for layout, seconds in least.items() if layout != own)[: TOP_K - 1]
    assert [r.step_seconds for r in plan.runners_up] == pytest.approx(others, rel=1e-9)
    named = [as_layout(r.layout) for r in plan.runners_up]
    assert len({own, *named}) == 1 + len(named)
    for layout, runner in zip(named, plan.runners_up, strict=True):
        assert isclose(runner.step_seconds, least[layout], rel_tol=1e-9)


def check_bounds(problem: LayoutProblem, least: dict[Layout, float]) -> None:
    """Both bounds of every layout lie at or below its least step."""
    every = np.arange(problem.num_layouts)
    true = np.array([least[problem.table.row(i)] for i in every.tolist()])
    for bounds in (problem.lower_bounds(), problem.tighter_bounds(every)):
        assert bounds.shape == true.shape
        assert (bounds > 0).all()
        assert (bounds <= true * (1 + 1e-9)).all()
