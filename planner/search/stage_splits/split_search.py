"""Best stage splits within the search: which layouts need one, and the problem that has both.

A search over every stage split is one over layouts in their default split together with layouts in
the one split that is best for each:

- a layout whose bound over all other splits lies above the search's threshold needs none;
- every other layout is given its best split over all placements, by rising bound
  (`planner.search.stage_splits.best_split`); where that beats the default split it becomes a row.

So what has no row is no better than the threshold, or no better than its default split.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import cached_property
from math import inf

import numpy as np

from planner.cost.channels import Channel
from planner.cost.collectives import GroupCost
from planner.cost.context import CostContext
from planner.cost.offload import offloads_any
from planner.cost.stage_split_bounds import (
    any_split_floor_bytes,
    any_split_peak_bytes,
    mean_stage_costs,
)
from planner.cost.step import LayoutCosts, evaluate
from planner.cost.traffic import Splits, channel_costs
from planner.layouts.arrays import BoolArray, FloatArray, IntArray
from planner.layouts.layout import Layout, LayoutTable
from planner.problem.scenario import Search
from planner.search.interface import SearchResult, SideConstraints
from planner.search.layout_problem import (
    LayoutProblem,
    Positions,
    RowFormula,
    changed_split_problem,
    splits_of,
)
from planner.search.one_layout import allowed_placements
from planner.search.open_list import OpenList
from planner.search.placement import MAX_BLOCK_ROWS
from planner.search.placement_rows import join_blocks
from planner.search.rules.recompute import counts_within_chunks
from planner.search.space.limits import fits_in_memory, in_blocks, peak_limit_bytes
from planner.search.stage_splits.best_split import (
    CLOSE,
    BestSplit,
    StageSplit,
    best_split,
    split_bound,
)
from planner.search.stage_splits.options import TrafficCosts, is_searched, stage_options
from planner.search.weighted_steps import step_weights

StageLayers = tuple[int, ...]

FIRST_PLACED, MOST_PLACED = 64, 1024
"""Layouts whose placements are costed between two looks at the clock: at first, doubling, most."""


# --- the problem with both ------------------------------------------------------------------------


class NamedSplitProblem(LayoutProblem):
    """Layouts in the default split and, after them, layouts in splits of their own.

    Rows of one layout share their identity, so that it counts once among the best.
    """

    def __init__(
        self,
        ctx: CostContext,
        table: LayoutTable,
        named: LayoutTable,
        splits: Sequence[StageLayers],
    ) -> None:
        """named: the layouts of `splits`; each may be in `table` in its default split, or not."""
        super().__init__(ctx, table.joined(named))
        self.num_default, self.splits = len(table), list(splits)

    def layout(self, i: int) -> Layout:
        row = self.table.row(i)
        return row if i < self.num_default else replace(row, stage_layers=self._split(i))

    def identity(self, i: int) -> Hashable:
        return self._first_rows[i]

    @cached_property
    def _first_rows(self) -> dict[int, int]:
        """Of every row the first of the same layout, whatever its split."""
        first = {i: i for i in range(self.num_layouts)}
        for i in range(self.num_default, self.num_layouts):
            first[i] = self.table.first_like(i)
        return first

    def degrees_sum(self, indices: IntArray) -> IntArray:
        """The sum of degrees; of equal ones the default split is lower."""
        return 2 * super().degrees_sum(indices) + (indices >= self.num_default)

    def _bound(
        self, degrees: IntArray, table: LayoutTable, costs: LayoutCosts, tp_innermost: int | None
    ) -> FloatArray:
        """Of a named split, the lower of its own bound and that of any split.

        Its own does not always hold: where the host sets the pace and one stage has most layers,
        all that traffic adds to its work is hidden, and the stage then waits less for others.
        """
        own = super()._bound(degrees, table, costs, tp_innermost)
        if table.stage_layers is None:
            return own
        table = replace(table, stage_layers=None)
        any_split = mean_stage_costs(self.ctx, table)
        return np.minimum(own, super()._bound(degrees, table, any_split, tp_innermost))

    def _split(self, i: int) -> StageLayers:
        return self.splits[i - self.num_default]

    def _per_row(self, rows: Positions, formula: RowFormula) -> FloatArray:
        """One split after another, the default first: a table has one split for all its rows."""
        indices = np.arange(self.num_layouts)[rows] if isinstance(rows, slice) else rows
        result = np.zeros(len(indices))
        default = np.flatnonzero(indices < self.num_default)
        if len(default):
            result[default] = formula(default, self.table.take(indices[default]))
        for index in np.unique(indices[indices >= self.num_default]).tolist():
            at = np.flatnonzero(indices == index)
            table = replace(self.table.take(indices[at]), stage_layers=self._split(index))
            result[at] = formula(at, table)
        return result


# --- which layouts need a split of their own ------------------------------------------------------


class StageSplitSearch:
    """Layouts that wait for their best stage split, and the splits that beat the default.

    Layouts wait in two open lists: first by a bound over the cheapest place of each group, then,
    many at a time, by a bound over their placements. Both hold in every split but the default.
    """

    def __init__(self, ctx: CostContext, search: Search, top_k: int, empty: LayoutTable) -> None:
        """empty: a table without rows."""
        self.ctx, self.search, self.top_k = ctx, search, top_k
        self.num_solved = 0
        self.open_seconds = inf
        """The lowest step that splits which stay open might have (see `best_split`); inf: none."""
        self._waiting, self._placed = OpenList.empty(empty), OpenList.empty(empty)
        self._unbounded: list[tuple[LayoutTable, BoolArray]] = []
        self._unbounded_floor = inf
        self._named, self._splits = empty, list[StageLayers]()
        self._steps: dict[Layout, float] = {}
        """The lowest step so far of each of the best layouts, whatever its split."""

    # --- what is known ---

    @property
    def splits(self) -> tuple[StageLayers, ...]:
        """The splits so far that beat their layout's default split."""
        return tuple(self._splits)

    def problem(self, table: LayoutTable) -> LayoutProblem:
        """The layouts in the default split together with those in a better one."""
        if not self._splits:
            return LayoutProblem(self.ctx, table)
        return NamedSplitProblem(self.ctx, table, self._named, self._splits)

    @property
    def waiting_bound(self) -> float:
        """The lowest bound of the layouts that wait; inf where none does."""
        return min(self._unbounded_floor, self._next_bound)

    @property
    def bound(self) -> float:
        """No split that waits, stays open or was computed is faster; inf where there is none."""
        best = min(self._steps.values(), default=inf)
        return min(self.waiting_bound, self.open_seconds, best)

    @property
    def threshold_seconds(self) -> float:
        """What a layout's step must not exceed to be among the K best, or tied with the best."""
        steps = sorted(self._steps.values())
        if len(steps) < self.top_k:
            return inf
        return max(steps[self.top_k - 1], steps[0] * (1.0 + self.search.tie_fraction))

    # --- what comes in ---

    def add(self, table: LayoutTable, fits: BoolArray, floor_seconds: float) -> None:
        """Let layouts wait whose splits are searched.

        fits: which layouts fit in the default split; floor_seconds: no step of theirs is below, in
        any split. Their own bounds are computed once it is clear that families need no opening.
        """
        able = np.broadcast_to(is_searched(self.ctx, table), fits.shape)
        self._unbounded.append((table.take(np.flatnonzero(able)), fits[able]))
        self._unbounded_floor = min(self._unbounded_floor, floor_seconds)

    def record(self, problem: LayoutProblem, result: SearchResult) -> None:
        """Note the steps of a search's best layouts."""
        for row in (result.fastest, result.best, *result.runners_up):
            if row is not None:
                layout = replace(problem.layout(row.layout_index), stage_layers=None)
                self._note(layout, row.step_seconds)

    def _note(self, layout: Layout, step_seconds: float) -> None:
        self._steps[layout] = min(self._steps.get(layout, inf), step_seconds)

    # --- the search ---

    def solve(self, must_stop: Callable[[bool], bool]) -> int:
        """Compute best splits by rising bound while bounds lie within the threshold.

        must_stop: called before each layout, with whether there is a better split to show. Returns
        how many layouts have a split that is better than the default.
        """
        before, size = len(self._splits), FIRST_PLACED
        self._bound_all()
        while self._next_bound < inf and self._next_bound <= self.threshold_seconds:
            if must_stop(bool(self._splits)):
                break
            if self._placed.bound <= self._waiting.bound:
                self._solve(self._placed.take(1))
                continue
            table = self._waiting.take(size, self.threshold_seconds)
            lower = self._weighted(table, _placed_bounds(self.ctx, self.search, table))
            near = lower <= self.threshold_seconds
            self._placed.add(table.take(near), lower[near])
            size = min(2 * size, MOST_PLACED)
        return len(self._splits) - before

    @property
    def _next_bound(self) -> float:
        return min(self._waiting.bound, self._placed.bound)

    def _bound_all(self) -> None:
        """Bound what was added; what fits in some split and can be among the best waits."""
        for table, fits in self._unbounded:
            table = table.take(np.flatnonzero(fits | self._may_fit(table)))
            lower = self._weighted(table, changed_split_problem(self.ctx, table).lower_bounds())
            near = np.flatnonzero(lower <= self.threshold_seconds)
            table = table.take(near)
            problem = changed_split_problem(self.ctx, table)
            tighter = self._weighted(table, problem.tighter_bounds(np.arange(len(table))))
            self._waiting.add(table, np.maximum(lower[near], tighter))
        self._unbounded, self._unbounded_floor = [], inf

    def _may_fit(self, table: LayoutTable) -> BoolArray:
        """Whether a split may exist that memory holds, by a lower bound of its peak, (rows)."""
        lower_bound = any_split_floor_bytes if offloads_any(table) else any_split_peak_bytes
        limit = peak_limit_bytes(self.ctx, self.search)
        return in_blocks(table, lambda block: lower_bound(self.ctx, block)) <= limit

    def _solve(self, one: LayoutTable) -> None:
        """Compute the best split of the layout in a table of one."""
        self.num_solved += 1
        weight = float(self._weights(one)[0])
        best = _best_over_placements(self.ctx, self.search, one, self.threshold_seconds / weight)
        self.open_seconds = min(self.open_seconds, best.open_seconds * weight)
        if best.split is not None:
            self._named = self._named.joined(one)
            self._splits.append(best.split.stage_layers)
            self._note(one.row(0), best.split.step_seconds * weight)

    def _weighted(self, table: LayoutTable, bounds: FloatArray) -> FloatArray:
        """Bounds in what the search compares, with slack for rounding."""
        return bounds * self._weights(table) * (1.0 - CLOSE)

    def _weights(self, table: LayoutTable) -> FloatArray:
        weights = step_weights(self.ctx, self.search, table)
        return np.ones(len(table)) if weights is None else weights


# --- the best split over all placements -----------------------------------------------------------


def _best_over_placements(
    ctx: CostContext, search: Search, one: LayoutTable, limit_seconds: float
) -> BestSplit:
    """The best split of the layout in a table of one, over all its placements.

    No split where it is no better than the default one, or lies above the limit.
    """
    problem = LayoutProblem(ctx, one)
    rows = allowed_placements(problem, 0, SideConstraints(orders=search.orders))
    if not len(rows):
        return BestSplit(None)
    members = splits_of(rows)
    limit = limit_seconds
    if np.all(counts_within_chunks(ctx, one)) and fits_in_memory(ctx, search, one)[0]:
        default = np.min(evaluate(ctx, one, members).total)
        limit = min(limit, float(default) * (1.0 - CLOSE))
    options = stage_options(ctx, search, one)
    if split_bound(ctx, one, options, lambda costs: problem.minimum_costs(0, costs)) > limit:
        return BestSplit(None)
    best, still_open = None, inf
    zeros = np.zeros(len(rows), dtype=np.int64)
    lower = changed_split_problem(ctx, one).step_seconds(zeros, rows)
    for row in np.argsort(lower, kind="stable").tolist():
        if lower[row] > limit:
            break
        better = best_split(ctx, one, options, _traffic_costs(ctx, members, row), limit)
        still_open = min(still_open, better.open_seconds)
        if better.split is None:
            continue
        # the same split may be faster in another placement
        table = replace(one, stage_layers=better.split.stage_layers)
        lowest = float(np.min(evaluate(ctx, table, members).total))
        limit = min(better.split.step_seconds, lowest)
        best = StageSplit(better.split.stage_layers, limit)
    return BestSplit(best, still_open)


def _traffic_costs(ctx: CostContext, members: Splits, row: int) -> TrafficCosts:
    """Costs of the groups' traffic in one row of the placements."""
    own = {group: [np.asarray(tier)[row] for tier in tiers] for group, tiers in members.items()}

    def costs(of_stages: LayoutCosts) -> dict[Channel, GroupCost]:
        return channel_costs(ctx, of_stages.traffic, own)

    return costs


def _placed_bounds(ctx: CostContext, search: Search, table: LayoutTable) -> FloatArray:
    """Bounds of layouts in every split but the default, the lowest over placements, (rows)."""
    problem, lowest = changed_split_problem(ctx, table), np.full(len(table), inf)
    constraints = SideConstraints(orders=search.orders)
    waiting, num_rows = list[tuple[int, IntArray]](), 0
    for index in range(len(table)):
        waiting.append((index, allowed_placements(problem, index, constraints)))
        num_rows += len(waiting[-1][1])
        if num_rows >= MAX_BLOCK_ROWS or index == len(table) - 1:
            indices, rows = join_blocks(waiting)
            if len(rows):
                np.minimum.at(lowest, indices, problem.step_seconds(indices, rows))
            waiting, num_rows = [], 0
    return lowest
