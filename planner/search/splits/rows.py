"""Layouts in their best splits beside those in the default one: rows of one search problem.

A layout whose bound over all splits (`planner.search.problem.OtherSplit`) lies within the search's
threshold is given its best split: over all placements, that of least step
(`planner.search.splits.best_split`).
Where it beats the default split it becomes a row of its own. So a search over both is one over
every split: what has no row lies above the threshold, or is no better than the default.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import cached_property
from math import inf

import numpy as np
from numpy.typing import NDArray

from planner.cost.channels import Channel
from planner.cost.collectives import GroupCost
from planner.cost.context import CostContext
from planner.cost.memory import limit_bytes
from planner.cost.offload import offloads_any
from planner.cost.stage_split_bounds import (
    any_split_floor_bytes,
    any_split_peak_bytes,
    mean_stage_costs,
)
from planner.cost.step import LayoutCosts, evaluate
from planner.cost.traffic import Splits, channel_costs
from planner.layouts.layout import Layout, LayoutTable
from planner.problem.scenario import Search
from planner.search.placement import MAX_BLOCK_ROWS, SideConstraints
from planner.search.pool import Pool
from planner.search.problem import LayoutProblem, OtherSplit, RowFormula, splits_of
from planner.search.protocol import SearchResult
from planner.search.robust import weights
from planner.search.rows import blocks, framework_rows, rows_of
from planner.search.rules.recompute import counts_within_chunks
from planner.search.space.room import accepted, in_blocks
from planner.search.splits.best_split import (
    CLOSE,
    Split,
    best_split,
    is_searched,
    least_step,
    options_of,
)

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
StageLayers = tuple[int, ...]

FIRST_PLACED, MOST_PLACED = 64, 1024
"""Layouts whose placements are costed before time is looked at: at first, doubling, at most."""


class SplitProblem(LayoutProblem):
    """`SearchProblem` over layouts in the default split and, after them, in splits of their own.

    Rows of one layout count as one among the best.
    """

    def __init__(self, ctx: CostContext, table: LayoutTable, named: LayoutTable,
                 splits: Sequence[StageLayers]) -> None:  # fmt: skip
        """named: the layouts of `splits`, their rows in the default split or not in `table`."""
        super().__init__(ctx, table.joined(named))
        self.default, self.splits = len(table), list(splits)

    def layout(self, i: int) -> Layout:
        row = self.table.row(i)
        return row if i < self.default else replace(row, stage_layers=self._split(i))

    def key(self, i: int) -> Hashable:
        return self._base[i]

    @cached_property
    def _base(self) -> dict[int, int]:
        """Of every row the first of the same layout, whatever its split."""
        base = {i: i for i in range(self.num_shapes)}
        for i in range(self.default, self.num_shapes):
            base[i] = self.table.first_like(i)
        return base

    def degrees_sum(self, shapes: IntArray) -> IntArray:
        """As ever, and of equals the default split."""
        return 2 * super().degrees_sum(shapes) + (shapes >= self.default)

    def _bound(
        self, degrees: IntArray, table: LayoutTable, shape: LayoutCosts, tp_inside: int | None
    ) -> FloatArray:
        """Of a split that is named no more than in any: where the host sets the pace and a stage
        has most layers, all that traffic adds to its work is hidden, and it waits less for others.
        """
        found = super()._bound(degrees, table, shape, tp_inside)
        if table.stage_layers is None:
            return found
        table = replace(table, stage_layers=None)
        least = super()._bound(degrees, table, mean_stage_costs(self.ctx, table), tp_inside)
        return np.minimum(found, least)

    def _split(self, i: int) -> StageLayers:
        return self.splits[i - self.default]

    def _rows(self, shapes: IntArray | slice, formula: RowFormula) -> FloatArray:
        """One split after another, the default first."""
        shapes = np.arange(self.num_shapes)[shapes] if isinstance(shapes, slice) else shapes
        found = np.zeros(len(shapes))
        plain = np.flatnonzero(shapes < self.default)
        if len(plain):
            found[plain] = formula(plain, self.table.take(shapes[plain]))
        for shape in np.unique(shapes[shapes >= self.default]).tolist():
            at = np.flatnonzero(shapes == shape)
            table = replace(self.table.take(shapes[at]), stage_layers=self._split(shape))
            found[at] = formula(at, table)
        return found


class BestSplits:
    """Layouts that wait for their best split, and those that have one better than the default.

    They wait twice: by a bound over the cheapest place of each group, many of them then by one over
    their placements, which is costed for many at once. open_seconds: what a split that is not told
    apart from those that were found could take; inf: none.
    """

    def __init__(self, ctx: CostContext, asked: Search, top_k: int, empty: LayoutTable) -> None:
        self.ctx, self.asked, self.top_k = ctx, asked, top_k
        self.waiting, self.placed = Pool(empty, np.zeros(0)), Pool(empty, np.zeros(0))
        self.named, self.splits = empty, list[StageLayers]()
        self.solved = 0
        self._unbounded: list[tuple[LayoutTable, NDArray[np.bool_]]] = []
        self.open_seconds = self._floor = inf
        self._steps: dict[Layout, float] = {}

    def problem(self, table: LayoutTable) -> LayoutProblem:
        """Layouts in the default split, and beside them those in a better one."""
        if not self.splits:
            return LayoutProblem(self.ctx, table)
        return SplitProblem(self.ctx, table, self.named, self.splits)

    def add(self, table: LayoutTable, fits: NDArray[np.bool_], floor: float) -> None:
        """Put layouts beside those that wait; fits: whether they do in the default split; floor:
        none of their steps is below, in any split."""
        able = np.broadcast_to(is_searched(self.ctx, table), fits.shape)
        self._unbounded.append((table.take(np.flatnonzero(able)), fits[able]))
        self._floor = min(self._floor, floor)

    @property
    def rest(self) -> float:
        """The least bound of those that wait; inf where none does."""
        return min(self._floor, self._next)

    @property
    def bound(self) -> float:
        """What no split that waits, is not told apart or was found goes under; inf: none."""
        return min(self.rest, self.open_seconds, min(self._steps.values(), default=inf))

    @property
    def _next(self) -> float:
        return min(self.waiting.rest, self.placed.rest)

    def _bound(self) -> None:
        """Let those wait by their bounds which fit and can be among the best."""
        for table, fits in self._unbounded:
            table = table.take(np.flatnonzero(fits | self._may_fit(table)))
            lower = self._lower(table, OtherSplit(self.ctx, table).lower_bounds())
            near = np.flatnonzero(lower <= self.threshold)
            table = table.take(near)
            tighter = OtherSplit(self.ctx, table).tighter_bounds(np.arange(len(table)))
            self.waiting.add(table, np.maximum(lower[near], self._lower(table, tighter)))
        self._unbounded, self._floor = [], inf

    def _may_fit(self, table: LayoutTable) -> NDArray[np.bool_]:
        """Whether a split may exist that memory holds."""
        least = any_split_floor_bytes if offloads_any(table) else any_split_peak_bytes
        limit = limit_bytes(self.ctx, self.asked.memory)
        return in_blocks(table, lambda part: least(self.ctx, part)) <= limit

    def _lower(self, table: LayoutTable, bounds: FloatArray) -> FloatArray:
        return bounds * self._factor(table) * (1.0 - CLOSE)

    def seen(self, problem: LayoutProblem, result: SearchResult) -> None:
        """What a search found: the least steps of its best layouts."""
        for row in (result.least, result.best, *result.runners_up):
            if row is not None:
                layout = replace(problem.layout(row.shape), stage_layers=None)
                known = self._steps.get(layout, inf)
                self._steps[layout] = min(known, row.step_seconds)

    @property
    def threshold(self) -> float:
        """What a layout's step must not exceed to be among the best, or tied with the best."""
        steps = sorted(self._steps.values())
        if len(steps) < self.top_k:
            return inf
        return max(steps[self.top_k - 1], steps[0] * (1.0 + self.asked.tie_fraction))

    def solve(self, is_over: Callable[[bool], bool]) -> int:
        """Find best splits by rising bound, until the next bound lies above the threshold; how many
        were better than the default."""
        before, size = len(self.splits), FIRST_PLACED
        self._bound()
        while self._next < inf and self._next <= self.threshold:
            if is_over(bool(self.splits)):
                break
            if self.placed.rest <= self.waiting.rest:
                self._solve(self.placed.take(1, inf))
                continue
            table = self.waiting.take(size, self.threshold)
            lower = self._lower(table, _placed_bounds(self.ctx, self.asked, table))
            near = lower <= self.threshold
            self.placed.add(table.take(near), lower[near])
            size = min(2 * size, MOST_PLACED)
        return len(self.splits) - before

    def _solve(self, one: LayoutTable) -> None:
        self.solved += 1
        factor = float(self._factor(one)[0])
        found, left = _best_of(self.ctx, self.asked, one, self.threshold / factor)
        self.open_seconds = min(self.open_seconds, left * factor)
        if found is not None:
            split, seconds = found.stage_layers, found.step_seconds
            self.named = self.named.joined(one)
            self.splits.append(split)
            layout = one.row(0)
            self._steps[layout] = min(self._steps.get(layout, inf), seconds * factor)

    def _factor(self, table: LayoutTable) -> FloatArray:
        """What steps are compared by: themselves, or the upper ends of their bars, by the token."""
        factor = weights(self.ctx, self.asked, table)
        return np.ones(len(table)) if factor is None else factor


def _best_of(
    ctx: CostContext, asked: Search, one: LayoutTable, limit: float
) -> tuple[Split | None, float]:
    """The best split of the layout in a table of one, over all its placements, and the least that
    another could take.

    None where it is no better than the default split or lies above the limit.
    """
    problem = LayoutProblem(ctx, one)
    rows = _placements(problem, asked, 0)
    if not len(rows):
        return None, inf
    placed = splits_of(rows)
    if np.all(counts_within_chunks(ctx, one)) and accepted(ctx, asked, one)[0]:
        own = np.min(evaluate(ctx, one, placed).total)
        limit = min(limit, float(own) * (1.0 - CLOSE))
    options = options_of(ctx, asked, one)
    if least_step(ctx, one, options, lambda shape: problem.least_costs(0, shape)) > limit:
        return None, inf
    found, left = None, inf
    lower = OtherSplit(ctx, one).score_rows(np.zeros(len(rows), dtype=np.int64), rows)
    for row in np.argsort(lower, kind="stable").tolist():
        if lower[row] > limit:
            break
        better = best_split(ctx, one, options, _priced(ctx, _row(placed, row)), limit)
        left = min(left, better.open_seconds)
        if better.split is None:
            continue
        # in its own best placement
        table = replace(one, stage_layers=better.split.stage_layers)
        own = float(np.min(evaluate(ctx, table, placed).total))
        limit = min(better.split.step_seconds, own)
        found = Split(better.split.stage_layers, limit)
    return found, left


def _priced(ctx: CostContext, placed: Splits) -> Callable[[LayoutCosts], dict[Channel, GroupCost]]:
    return lambda shape: dict(channel_costs(ctx, shape.traffic, placed))


def _row(placed: Splits, row: int) -> Splits:
    return {
        group: [np.asarray(members)[row] for members in tiers] for group, tiers in placed.items()
    }


def _placed_bounds(ctx: CostContext, asked: Search, table: LayoutTable) -> FloatArray:
    """Bounds of layouts in every split but the default, the least over their placements."""
    problem, least = OtherSplit(ctx, table), np.full(len(table), inf)
    waiting, number = list[tuple[int, IntArray]](), 0
    for shape in range(len(table)):
        waiting.append((shape, _placements(problem, asked, shape)))
        number += len(waiting[-1][1])
        if number >= MAX_BLOCK_ROWS or shape == len(table) - 1:
            shapes, rows = rows_of(waiting)
            if len(rows):
                np.minimum.at(least, shapes, problem.score_rows(shapes, rows))
            waiting, number = [], 0
    return least


def _placements(problem: LayoutProblem, asked: Search, shape: int) -> IntArray:
    """All placements of a shape, in a framework's orders where those are asked for."""
    empty = np.ones((0, problem.degrees.shape[1], len(problem.widths)), dtype=np.int64)
    rows = np.concatenate([empty, *blocks(problem, shape, SideConstraints())])
    if asked.orders == "framework" and len(rows):
        rows = rows[framework_rows(problem, np.full(len(rows), shape), rows) >= 0]
    return rows
