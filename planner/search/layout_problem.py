"""A training job's layouts as a search problem: their bounds, exact steps and rank orders.

`LayoutProblem` is the `SearchProblem` of a table of legal layouts that fit in memory. Everything it
answers is vectorised over rows; what a step costs is written once, in `planner.cost.step`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from functools import cache, cached_property

import numpy as np

from planner.cost.channels import SPECS, Channel, occurrences
from planner.cost.collectives import GroupCost
from planner.cost.context import CostContext
from planner.cost.stage_split_bounds import (
    layers_are_alike,
    mean_stage_costs,
    other_split_costs,
)
from planner.cost.step import LayoutCosts, layout_costs, step_time
from planner.cost.traffic import Splits, channel_costs
from planner.layouts.arrays import BoolArray, FloatArray, IntArray
from planner.layouts.grids import DENSE_GRID, EXPERT_GRID, Grid
from planner.layouts.layout import Layout, LayoutTable
from planner.layouts.rank_orders import order_atoms
from planner.problem.fills import Fill
from planner.problem.model import Model
from planner.search.bounds import TierSpace, minimum_costs
from planner.search.space.limits import BLOCK_ROWS

Positions = IntArray | slice
"""Positions in a table; a slice of it copies nothing."""

Costing = Callable[[CostContext, LayoutTable], LayoutCosts]
"""What layouts cost wherever they live: `cost.step.layout_costs`, or a lower bound of it."""

RowFormula = Callable[[Positions, LayoutTable], FloatArray]
"""One number per row of some rows, from positions among them and the layouts there."""


# --- groups and their splits ----------------------------------------------------------------------


def grid_of(model: Model) -> Grid:
    """The placement variables of a model's layouts."""
    return DENSE_GRID if model.moe is None else EXPERT_GRID


@cache
def group_atoms(dense: bool) -> Mapping[str, tuple[int, ...]]:
    """Positions of every group's atoms in the grid of dense models, or of those with experts."""
    grid = DENSE_GRID if dense else EXPERT_GRID
    return {
        name: tuple(grid.atoms.index(atom) for atom in atoms) for name, atoms in grid.groups.items()
    }


def splits_of(placements: IntArray) -> Splits:
    """Each group's members per tier under placements of shape (..., A, T): T arrays (...)."""
    groups = group_atoms(placements.shape[-2] == len(DENSE_GRID.atoms))
    return {
        name: [placements[..., atoms, t].prod(axis=-1) for t in range(placements.shape[-1])]
        for name, atoms in groups.items()
    }


# --- the problem ----------------------------------------------------------------------------------


class LayoutProblem:
    """`SearchProblem` over the rows of a table of legal layouts that fit in memory."""

    def __init__(
        self,
        ctx: CostContext,
        table: LayoutTable,
        costs: Costing = layout_costs,
        free_groups: Collection[str] = (),
    ) -> None:
        """A problem whose bounds take layouts to cost `costs`, and free groups' traffic nothing."""
        self.ctx = ctx
        self.table = table
        self.grid = grid_of(ctx.model)
        self._costs = costs
        self._free_groups = free_groups

    @property
    def num_layouts(self) -> int:
        """Layouts to choose among."""
        return len(self.table)

    @cached_property
    def space(self) -> TierSpace:
        """The tiers, and the fills that are possible."""
        return TierSpace.of(self.ctx)

    @property
    def widths(self) -> tuple[int, ...]:
        """Children per domain of every tier, inner to outer; of an inventory, its most blocks."""
        return self.space.widths

    @cached_property
    def degrees(self) -> IntArray:
        """Degrees of the atoms, shape (num_layouts, A)."""
        return self.table.degrees(self.grid)

    def layout(self, i: int) -> Layout:
        """The layout of index i."""
        return self.table.row(i)

    def identity(self, i: int) -> Hashable:
        """Every row is a layout of its own."""
        return i

    def groups(self, i: int) -> Mapping[str, tuple[int, ...]]:
        """Atoms of every communicating group, the same of all layouts."""
        return group_atoms(self.ctx.model.moe is None)

    # --- bounds (see `planner.search.bounds`) ---

    def lower_bounds(self) -> FloatArray:
        """The step at each component's minimum over the group's own splits, (num_layouts)."""
        starts = range(0, self.num_layouts, BLOCK_ROWS)
        blocks = (slice(start, start + BLOCK_ROWS) for start in starts)
        return _concatenated(self._bounds(block, [None]) for block in blocks)

    def tighter_bounds(self, indices: IntArray) -> FloatArray:
        """The minimum of such bounds over what tp takes of the innermost domain, (R) → (R)."""
        starts = range(0, len(indices), BLOCK_ROWS)
        blocks = (indices[start : start + BLOCK_ROWS] for start in starts)
        return _concatenated(self._bounds(block, self._tp_innermost(block)) for block in blocks)

    def _tp_innermost(self, indices: IntArray) -> list[int | None]:
        """Numbers of members that tp groups of some layout may have in one innermost domain."""
        tp = self.table.tp[indices]
        return [a for a in range(1, self.widths[0] + 1) if np.any(tp % a == 0)]

    def _bounds(self, rows: Positions, tp_innermost: Sequence[int | None]) -> FloatArray:
        """The lowest of the bounds given each number of tp members, None for any number."""
        degrees = self.degrees[rows]

        def bounds(at: Positions, table: LayoutTable) -> FloatArray:
            costs = self._costs(self.ctx, table)
            each = [self._bound(degrees[at], table, costs, number) for number in tp_innermost]
            return np.asarray(np.min(each, axis=0))

        return self._per_row(rows, bounds)

    def _bound(
        self, degrees: IntArray, table: LayoutTable, costs: LayoutCosts, tp_innermost: int | None
    ) -> FloatArray:
        """The step at component minima; inf where no placement has such a number of tp members."""
        traffic, possible = self._minimum_costs(degrees, costs, tp_innermost)
        total = np.asarray(step_time(self.ctx, table, costs, traffic).total, dtype=np.float64)
        return np.where(possible, total, np.inf)

    def _minimum_costs(
        self, degrees: IntArray, costs: LayoutCosts, tp_innermost: int | None
    ) -> tuple[dict[Channel, GroupCost], BoolArray]:
        minima, possible = minimum_costs(
            self.space, costs.traffic, degrees, self.groups(0), tp_innermost
        )
        for channel in costs.traffic:
            if SPECS[channel].group in self._free_groups:
                minima[channel] = _free(minima[channel])
        return minima, possible

    def minimum_costs(self, i: int, costs: LayoutCosts) -> dict[Channel, GroupCost]:
        """Of layout i, costed as given, the component minima of its groups' traffic."""
        return self._minimum_costs(self.degrees[i : i + 1], costs, None)[0]

    # --- exact steps ---

    def step_seconds(self, indices: IntArray, placements: IntArray) -> FloatArray:
        """Exact steps of rows: (R), (R, A, T) → (R); inf where the nodes cannot take the fill."""
        available = self.fit_inventory(placements)
        if available.all():
            return self._placed_steps(indices, placements)
        total = np.full(len(indices), np.inf)
        total[available] = self._placed_steps(indices[available], placements[available])
        return total

    def fit_inventory(self, placements: IntArray) -> BoolArray:
        """Which placements (R, A, T) have a fill that the inventory's nodes can take, (R)."""
        if self.ctx.cluster is None or not len(placements):
            return np.ones(len(placements), dtype=bool)
        distinct, inverse = np.unique(placements.prod(axis=1), axis=0, return_inverse=True)
        possible: set[Fill] = set(self.space.fills)
        fits = np.array([tuple(fill) in possible for fill in distinct.tolist()])
        return fits[inverse.reshape(-1)]

    def _placed_steps(self, indices: IntArray, placements: IntArray) -> FloatArray:
        def seconds(at: Positions, table: LayoutTable) -> FloatArray:
            costs = self._costs(self.ctx, table)
            traffic = channel_costs(self.ctx, costs.traffic, splits_of(placements[at]))
            return np.asarray(step_time(self.ctx, table, costs, traffic).total, dtype=np.float64)

        return self._per_row(indices, seconds)

    def _per_row(self, rows: Positions, formula: RowFormula) -> FloatArray:
        """`formula` of the rows' layouts, all at once."""
        return np.asarray(formula(slice(None), self.table.take(rows)), dtype=np.float64)

    # --- the tie rule ---

    def slow_tier_seconds(self, indices: IntArray, placements: IntArray) -> FloatArray:
        """Busy seconds of all tiers but the innermost in a step, summed over groups, (R)."""

        def seconds(at: Positions, table: LayoutTable) -> FloatArray:
            costs = self._costs(self.ctx, table)
            traffic = channel_costs(self.ctx, costs.traffic, splits_of(placements[at]))
            times = occurrences(self.ctx, table)
            total = np.zeros(len(table))
            for channel, cost in traffic.items():
                for busy in cost.busy_seconds[1:]:
                    total = total + times[channel] * busy
            return total

        return self._per_row(indices, seconds)

    def degrees_sum(self, indices: IntArray) -> IntArray:
        """Sum of tp, cp, ep, etp, pp and vp: what makes a layout more complicated to run."""
        t = self.table
        return (t.tp + t.cp + t.ep + t.etp + t.pp + t.vp)[indices]

    def framework_orders(self, i: int) -> Sequence[tuple[int, ...]]:
        """The software's rank orders as atoms, innermost first.

        Experts that reach past tp·cp take up part of dp_shard: it must then follow tp and cp at
        once, for their ranks to be consecutive.
        """
        past_cp = bool(self._experts_reach_past_cp[i])
        return [order for order, consecutive in self._orders if consecutive or not past_cp]

    @cached_property
    def _orders(self) -> tuple[tuple[tuple[int, ...], bool], ...]:
        """Rank orders as atoms, and whether dp_shard follows tp and cp at once in them."""
        orders = []
        for axes in self.ctx.software.orders.values():
            atoms = order_atoms(axes, self.grid)
            up_to_shard = atoms[: atoms.index("dp_shard") + 1]
            consecutive = all(
                atom.partition(".")[0] in ("tp", "cp", "dp_shard") for atom in up_to_shard
            )
            orders.append((tuple(self.grid.atoms.index(atom) for atom in atoms), consecutive))
        return tuple(orders)

    @cached_property
    def _experts_reach_past_cp(self) -> BoolArray:
        t = self.table
        return np.asarray(t.etp * t.ep > t.tp * t.cp)


def _concatenated(blocks: Iterable[FloatArray]) -> FloatArray:
    return np.concatenate([np.zeros(0), *blocks])


def _free(cost: GroupCost) -> GroupCost:
    """The same traffic at no cost, of the same shape."""
    busy = tuple(0.0 * seconds for seconds in cost.busy_seconds)
    return GroupCost(0.0 * cost.latency_seconds, busy)


# --- problems whose bounds hold in other stage splits ---------------------------------------------


def any_split_problem(
    ctx: CostContext, table: LayoutTable, free_groups: Collection[str] = ()
) -> LayoutProblem:
    """A problem whose bounds hold whatever the split of the layers over stages."""
    return LayoutProblem(ctx, table, mean_stage_costs, free_groups)


def changed_split_problem(ctx: CostContext, table: LayoutTable) -> LayoutProblem:
    """A problem whose bounds hold in every split of the layers but the default."""
    return LayoutProblem(
        ctx, table, other_split_costs if layers_are_alike(ctx) else mean_stage_costs
    )
