"""Searching by a step that is weighed: every shape's step times a factor of its own, exactly.

A pessimistic step is one at the upper end of its error bar; a step of a batch that may be chosen
counts by the token, as if at its rate it processed the greatest batch.

Where the factor belongs to the shape and not to its placement, all that the search rests on keeps
holding: step(p) >= L for every placement p gives f step(p) >= f L with f > 0, so scaled bounds are
bounds of the scaled steps; a shape's best placement stays its best; and the certificate re-scores
and compares scaled numbers alone. Where all shapes have one factor the choice is the plain one.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from planner.cost import prediction_intervals as intervals
from planner.cost.context import CostContext
from planner.layouts.layout import LayoutTable
from planner.problem.scenario import Search
from planner.search.placement import IntArray
from planner.search.protocol import SearchProblem

FloatArray = NDArray[np.float64]


class Scaled:
    """A `SearchProblem` whose steps and bounds are another's times a positive factor per shape."""

    def __init__(self, problem: SearchProblem, factor: FloatArray) -> None:
        """factor: shape (num_shapes), finite and above 0."""
        self.problem = problem
        self.factor = np.asarray(factor, dtype=np.float64)
        if self.factor.shape != (problem.num_shapes,):
            raise ValueError(f"{self.factor.shape} factors for {problem.num_shapes} shapes")
        if not (np.isfinite(self.factor) & (self.factor > 0)).all():
            raise ValueError("a factor is not above 0")

    @property
    def num_shapes(self) -> int:
        """As the problem's; so are all that follow but steps and bounds."""
        return self.problem.num_shapes

    @property
    def widths(self) -> tuple[int, ...]:
        return self.problem.widths

    @property
    def degrees(self) -> IntArray:
        return self.problem.degrees

    def lower_bounds(self) -> FloatArray:
        """Bounds of the scaled steps, (num_shapes)."""
        return self.problem.lower_bounds() * self.factor

    def tighter_bounds(self, shapes: IntArray) -> FloatArray:
        """Closer bounds of the scaled steps, (R) -> (R)."""
        return self.problem.tighter_bounds(shapes) * self.factor[shapes]

    def score_rows(self, shapes: IntArray, placements: IntArray) -> FloatArray:
        """Scaled steps of rows, (R), (R, A, T) -> (R)."""
        return self.problem.score_rows(shapes, placements) * self.factor[shapes]

    def slow_byte_seconds(self, shapes: IntArray, placements: IntArray) -> FloatArray:
        return self.problem.slow_byte_seconds(shapes, placements)

    def degrees_sum(self, shapes: IntArray) -> IntArray:
        return self.problem.degrees_sum(shapes)

    def orders(self, i: int) -> Sequence[tuple[int, ...]]:
        return self.problem.orders(i)

    def groups(self, i: int) -> Mapping[str, tuple[int, ...]]:
        return self.problem.groups(i)

    def key(self, i: int) -> Hashable:
        return self.problem.key(i)


def weights(ctx: CostContext, asked: Search, table: LayoutTable) -> FloatArray | None:
    """What each layout's step is multiplied by before steps are compared, (rows); None: nothing."""
    least, most = ctx.training.batch_range
    if not asked.robust and least == most:
        return None
    factor = np.ones(len(table))
    if asked.robust:
        factor = factor * intervals.step_interval(intervals.shipped(), ctx, table).high
    if least != most:
        factor = factor * (most / (table.num_microbatches * table.mbs * table.dp))
    return np.asarray(factor, dtype=np.float64)
