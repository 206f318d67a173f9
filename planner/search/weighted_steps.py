"""Searching by steps times a factor per layout, exactly.

Two searches compare layouts by more than their steps: a robust one by the upper end of each step's
prediction interval, one over a band of batch sizes by the time per token.

**Why that stays exact.** The factor f > 0 belongs to the layout, not to its placement. So
step(p) ≥ L for every placement p gives f·step(p) ≥ f·L: weighted bounds are bounds of the weighted
steps, a layout's best placement stays its best, and the certificate compares weighted numbers.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from planner.cost import prediction_intervals
from planner.cost.context import CostContext
from planner.layouts.arrays import FloatArray, IntArray
from planner.layouts.layout import LayoutTable
from planner.problem.scenario import Search
from planner.search.interface import SearchProblem


def step_weights(ctx: CostContext, search: Search, table: LayoutTable) -> FloatArray | None:
    """What each layout's step is multiplied by before steps are compared, (rows); None: nothing.

    Robust: the upper end of the prediction interval over the step. A band of batch sizes: the
    largest batch over the layout's own, so that steps compare as if at the same number of tokens.
    """
    smallest, largest = ctx.training.batch_range
    if not search.robust and smallest == largest:
        return None
    factor = np.ones(len(table))
    if search.robust:
        intervals = prediction_intervals.shipped()
        factor = factor * prediction_intervals.step_interval(intervals, ctx, table).high
    if smallest != largest:
        factor = factor * (largest / (table.num_microbatches * table.mbs * table.dp))
    return np.asarray(factor, dtype=np.float64)


class WeightedProblem:
    """A `SearchProblem` whose steps and bounds are another's times a positive factor per layout.

    All else is the other problem's.
    """

    def __init__(self, problem: SearchProblem, factor: FloatArray) -> None:
        """factor: (num_layouts), finite and above 0.

        Raises:
            ValueError: another shape, or a factor that is not finite and positive.
        """
        self.problem = problem
        self.factor = np.asarray(factor, dtype=np.float64)
        if self.factor.shape != (problem.num_layouts,):
            raise ValueError(f"{self.factor.shape} factors for {problem.num_layouts} layouts")
        if not (np.isfinite(self.factor) & (self.factor > 0)).all():
            raise ValueError("a factor is not above 0")

    def lower_bounds(self) -> FloatArray:
        """Bounds of the weighted steps, (num_layouts)."""
        return self.problem.lower_bounds() * self.factor

    def tighter_bounds(self, indices: IntArray) -> FloatArray:
        """Closer bounds of the weighted steps, (R) → (R)."""
        return self.problem.tighter_bounds(indices) * self.factor[indices]

    def step_seconds(self, indices: IntArray, placements: IntArray) -> FloatArray:
        """Weighted steps of rows, (R), (R, A, T) → (R)."""
        return self.problem.step_seconds(indices, placements) * self.factor[indices]

    @property
    def num_layouts(self) -> int:
        return self.problem.num_layouts

    @property
    def widths(self) -> tuple[int, ...]:
        return self.problem.widths

    @property
    def degrees(self) -> IntArray:
        return self.problem.degrees

    def slow_tier_seconds(self, indices: IntArray, placements: IntArray) -> FloatArray:
        return self.problem.slow_tier_seconds(indices, placements)

    def degrees_sum(self, indices: IntArray) -> IntArray:
        return self.problem.degrees_sum(indices)

    def framework_orders(self, i: int) -> Sequence[tuple[int, ...]]:
        return self.problem.framework_orders(i)

    def groups(self, i: int) -> Mapping[str, tuple[int, ...]]:
        return self.problem.groups(i)

    def identity(self, i: int) -> Hashable:
        return self.problem.identity(i)
