"""The dense training job as a search problem: layouts that fit, their bounds and exact steps."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from planner.cost.context import CostContext
from planner.cost.step import evaluate, shape_costs, step_time
from planner.cost.traffic import Price, Splits, channel_costs, joined, occurrences
from planner.layout import ATOMS, GROUPS, LayoutTable
from planner.ranks import order_atoms
from planner.search.bounds import component_minima

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

GROUP_ATOMS: Mapping[str, tuple[int, ...]] = {
    name: tuple(ATOMS.index(atom) for atom in atoms) for name, atoms in GROUPS.items()
}


def splits_of(placements: IntArray) -> Splits:
    """Each group's members per tier under placements of shape (..., A, T): T arrays (...)."""
    return {
        name: [placements[..., atoms, t].prod(axis=-1) for t in range(placements.shape[-1])]
        for name, atoms in GROUP_ATOMS.items()
    }


class DenseProblem:
    """`SearchProblem` over the rows of a table of legal layouts that fit in memory."""

    def __init__(self, ctx: CostContext, table: LayoutTable) -> None:
        self.ctx = ctx
        self.table = table

    @property
    def num_shapes(self) -> int:
        """Layouts to choose among."""
        return len(self.table)

    @property
    def widths(self) -> tuple[int, ...]:
        """Children per domain of every tier, inner to outer."""
        return self.ctx.topology.widths

    @cached_property
    def degrees(self) -> IntArray:
        """Degrees of the atoms, shape (num_shapes, A)."""
        return self.table.degrees()

    def lower_bounds(self) -> FloatArray:
        """The step at each component's least over the group's own splits, shape (num_shapes)."""
        return self._bound(np.arange(self.num_shapes), None)

    def tighter_bounds(self, shapes: IntArray) -> FloatArray:
        """The least, over what tp takes of the innermost domain, of the step at minima given that.

        With a of the domain's w members in one tp group, every other group has at most w/a inside.
        """
        tp = self.table.tp[shapes]
        inside = [a for a in range(1, self.widths[0] + 1) if np.any(tp % a == 0)]
        bounds = [self._bound(shapes, a) for a in inside]
        return np.asarray(np.min(bounds, axis=0), dtype=np.float64)

    def _bound(self, shapes: IntArray, tp_inside: int | None) -> FloatArray:
        """The bound of the shapes, or that of placements with so much of tp innermost."""
        table = self.table.take(shapes)
        shape = shape_costs(self.ctx, table)
        degrees, width = self.degrees[shapes], self.widths[0]
        possible = np.ones(len(shapes), dtype=bool)
        least: dict[tuple[str, str], Price] = {}
        for group, kind in {(c.group, p.kind) for c in shape.traffic.values() for p in c.parts}:
            inner = (1, width // (tp_inside or 1))
            if group == "tp" and tp_inside is not None:
                inner = (tp_inside, tp_inside)
            sizes = degrees[:, list(GROUP_ATOMS[group])].prod(axis=1)
            least[group, kind], some = component_minima(
                kind, sizes, self.widths, self.ctx.num_accelerators, self.ctx.tiers, inner
            )
            possible &= some
        costs = {name: joined(channel, least) for name, channel in shape.traffic.items()}
        total = np.asarray(step_time(self.ctx, table, shape, costs).total, dtype=np.float64)
        return np.where(possible, total, np.inf)

    def score_rows(self, shapes: IntArray, placements: IntArray) -> FloatArray:
        """Exact step seconds of rows: (R), (R, A, T) → (R)."""
        step = evaluate(self.ctx, self.table.take(shapes), splits_of(placements))
        return np.asarray(step.total, dtype=np.float64)

    def slow_byte_seconds(self, shapes: IntArray, placements: IntArray) -> FloatArray:
        """Busy seconds of the links outside the innermost tier in a step, summed over groups."""
        layout = self.table.take(shapes)
        shape = shape_costs(self.ctx, layout)
        costs = channel_costs(self.ctx, shape.traffic, splits_of(placements))
        times = occurrences(self.ctx, layout)
        total = np.zeros(len(shapes))
        for name, cost in costs.items():
            for busy in cost.busy_seconds[1:]:
                total = total + times[name] * busy
        return total

    def degrees_sum(self, shapes: IntArray) -> IntArray:
        """Sum of tp, cp, pp and vp: what makes a layout more complicated to run."""
        t = self.table
        return (t.tp + t.cp + t.pp + t.vp)[shapes]

    @cached_property
    def _orders(self) -> tuple[tuple[int, ...], ...]:
        orders = self.ctx.software.orders.values()
        return tuple(tuple(ATOMS.index(atom) for atom in order_atoms(axes)) for axes in orders)

    def orders(self, i: int) -> Sequence[tuple[int, ...]]:
        """The software's rank orders as atom indices, innermost first."""
        return self._orders

    def groups(self, i: int) -> Mapping[str, tuple[int, ...]]:
        """Atom indices of every communicating group."""
        return GROUP_ATOMS

    def key(self, i: int) -> Hashable:
        """Every row is a layout of its own."""
        return i
