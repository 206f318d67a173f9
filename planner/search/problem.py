"""The training job as a search problem: layouts that fit, their bounds and exact steps."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property

import numpy as np
from numpy.typing import NDArray

from planner.cost.channels import SPECS, Channel, occurrences
from planner.cost.collective_costs import UnitCost
from planner.cost.collectives import GroupCost
from planner.cost.context import CostContext
from planner.cost.stage_split_bounds import layers_are_alike, mean_stage_costs, other_split_costs
from planner.cost.step import LayoutCosts, layout_costs, step_time
from planner.cost.traffic import GroupCollective, Splits, channel_costs, group_collectives, priced
from planner.layouts.grids import DENSE_GRID, EXPERT_GRID, Grid
from planner.layouts.layout import CP_KINDS, Layout, LayoutTable
from planner.layouts.rank_orders import order_atoms
from planner.problem.model import Model
from planner.search.bounds import component_minima
from planner.search.placement import fills
from planner.search.space.room import BLOCK_ROWS

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
RowFormula = Callable[[IntArray | slice, LayoutTable], FloatArray]
"""One number a row, of positions among the rows asked for and of their layouts."""


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


class LayoutProblem:
    """`SearchProblem` over the rows of a table of legal layouts that fit in memory."""

    def __init__(self, ctx: CostContext, table: LayoutTable) -> None:
        self.ctx = ctx
        self.table = table
        self.grid = grid_of(ctx.model)

    @property
    def num_shapes(self) -> int:
        """Layouts to choose among."""
        return len(self.table)

    @property
    def widths(self) -> tuple[int, ...]:
        """Children per domain of every tier, inner to outer; of an inventory, most blocks."""
        cluster = self.ctx.cluster
        return self.ctx.topology.widths if cluster is None else cluster.widths

    @cached_property
    def _held_fills(self) -> tuple[tuple[int, ...], ...] | None:
        """The fills that nodes of the inventory hold; None without one."""
        cluster = self.ctx.cluster
        if cluster is None:
            return None
        return tuple(f for f in fills(self.widths, self.ctx.num_accelerators) if cluster.holds(f))

    @cached_property
    def degrees(self) -> IntArray:
        """Degrees of the atoms, shape (num_shapes, A)."""
        return self.table.degrees(self.grid)

    def lower_bounds(self) -> FloatArray:
        """The step at each component's least over the group's own splits, shape (num_shapes)."""
        # slices, which copy nothing
        blocks = [slice(i, i + BLOCK_ROWS) for i in range(0, self.num_shapes, BLOCK_ROWS)]
        return np.concatenate([np.zeros(0), *(self._bounds(block, [None]) for block in blocks)])

    def tighter_bounds(self, shapes: IntArray) -> FloatArray:
        """The least, over what tp takes of the innermost domain, of the step at minima given that.

        With a of the domain's w members in one tp group, every other group has at most w/a inside.
        """
        blocks = [shapes[i : i + BLOCK_ROWS] for i in range(0, len(shapes), BLOCK_ROWS)]
        return np.concatenate([np.zeros(0), *map(self._tighter, blocks)])

    def _tighter(self, shapes: IntArray) -> FloatArray:
        tp = self.table.tp[shapes]
        inside = [a for a in range(1, self.widths[0] + 1) if np.any(tp % a == 0)]
        return self._bounds(shapes, inside)

    def _rows(self, shapes: IntArray | slice, formula: RowFormula) -> FloatArray:
        """`formula` of all the shapes' rows at once, and where they are among the shapes."""
        return np.asarray(formula(slice(None), self.table.take(shapes)), dtype=np.float64)

    def _bounds(self, shapes: IntArray | slice, tps_inside: Sequence[int | None]) -> FloatArray:
        """The least bound of the shapes over how much of tp is innermost, None for any."""
        degrees = self.degrees[shapes]

        def bounds(at: IntArray | slice, table: LayoutTable) -> FloatArray:
            shape = self._costs(table)
            found = [self._bound(degrees[at], table, shape, inside) for inside in tps_inside]
            return np.asarray(np.min(found, axis=0))

        return self._rows(shapes, bounds)

    def _costs(self, table: LayoutTable) -> LayoutCosts:
        """What bounds take the shapes to cost wherever they live."""
        return layout_costs(self.ctx, table)

    def _bound(
        self, degrees: IntArray, table: LayoutTable, shape: LayoutCosts, tp_inside: int | None
    ) -> FloatArray:
        """The bound of the table's shapes, or of their placements with so much of tp innermost."""
        costs, possible = self._least(degrees, shape, tp_inside)
        total = np.asarray(step_time(self.ctx, table, shape, costs).total, dtype=np.float64)
        return np.where(possible, total, np.inf)

    def least_costs(self, i: int, shape: LayoutCosts) -> dict[Channel, GroupCost]:
        """Of shape i, costed as given, the least cost vectors of its groups' traffic."""
        return self._least(self.degrees[i : i + 1], shape, None)[0]

    def _least(
        self, degrees: IntArray, shape: LayoutCosts, tp_inside: int | None
    ) -> tuple[dict[Channel, GroupCost], BoolArray]:
        """Least cost vectors of the traffic, and whether there are such placements."""
        width = self.widths[0]
        possible = np.ones(len(degrees), dtype=bool)
        groups = self.groups(0)
        least: dict[GroupCollective, UnitCost] = {}
        for group, collective in group_collectives(shape.traffic):
            # groups that share atoms with tp may share its room
            shares = not set(groups[group]).isdisjoint(groups["tp"])
            inner = (1, width if shares else width // (tp_inside or 1))
            if group == "tp" and tp_inside is not None:
                inner = (tp_inside, tp_inside)
            sizes = degrees[:, list(groups[group])].prod(axis=1)
            least[group, collective], some = component_minima(
                collective,
                sizes,
                self.widths,
                self.ctx.num_accelerators,
                self.ctx.tiers,
                inner,
                self._held_fills,
            )
            possible &= some
        return self._least_costs(shape, least), possible

    def _least_costs(
        self, shape: LayoutCosts, least: Mapping[GroupCollective, UnitCost]
    ) -> dict[Channel, GroupCost]:
        return priced(shape.traffic, least)

    def score_rows(self, shapes: IntArray, placements: IntArray) -> FloatArray:
        """Exact step seconds of rows: (R), (R, A, T) → (R); inf where no nodes hold the fill."""
        if self.ctx.cluster is not None:
            held = self.held(placements)
            if not held.all():
                total = np.full(len(shapes), np.inf)
                total[held] = self._scored(shapes[held], placements[held])
                return total
        return self._scored(shapes, placements)

    def _scored(self, shapes: IntArray, placements: IntArray) -> FloatArray:
        def seconds(at: IntArray | slice, table: LayoutTable) -> FloatArray:
            shape = self._costs(table)
            costs = channel_costs(self.ctx, shape.traffic, splits_of(placements[at]))
            return np.asarray(step_time(self.ctx, table, shape, costs).total, dtype=np.float64)

        return self._rows(shapes, seconds)

    def held(self, placements: IntArray) -> BoolArray:
        """Which placements (R, A, T) some nodes of the inventory hold, (R)."""
        cluster = self.ctx.cluster
        if cluster is None or not len(placements):
            return np.ones(len(placements), dtype=bool)
        found, inverse = np.unique(placements.prod(axis=1), axis=0, return_inverse=True)
        return np.array([cluster.holds(fill) for fill in found.tolist()])[inverse.reshape(-1)]

    def slow_byte_seconds(self, shapes: IntArray, placements: IntArray) -> FloatArray:
        """Busy seconds of the links outside the innermost tier in a step, summed over groups."""

        def seconds(at: IntArray | slice, layout: LayoutTable) -> FloatArray:
            shape = layout_costs(self.ctx, layout)
            costs = channel_costs(self.ctx, shape.traffic, splits_of(placements[at]))
            times = occurrences(self.ctx, layout)
            total = np.zeros(len(layout))
            for name, cost in costs.items():
                for busy in cost.busy_seconds[1:]:
                    total = total + times[name] * busy
            return total

        return self._rows(shapes, seconds)

    def degrees_sum(self, shapes: IntArray) -> IntArray:
        """Sum of tp, cp, ep, etp, pp and vp: what makes a layout more complicated to run."""
        t = self.table
        return (t.tp + t.cp + t.ep + t.etp + t.pp + t.vp)[shapes]

    @cached_property
    def _orders(self) -> tuple[tuple[tuple[int, ...], bool], ...]:
        """Rank orders as atom indices, and whether dp_shard follows cp at once in them."""
        found = []
        for axes in self.ctx.software.orders.values():
            atoms = order_atoms(axes, self.grid)
            together = atoms[: atoms.index("dp_shard") + 1]
            found.append(
                (
                    tuple(self.grid.atoms.index(atom) for atom in atoms),
                    all(atom.partition(".")[0] in ("tp", "cp", "dp_shard") for atom in together),
                )
            )
        return tuple(found)

    @cached_property
    def _beyond_cp(self) -> BoolArray:
        """Shapes whose experts reach past tp·cp, so that dp_shard must follow at once."""
        t = self.table
        return np.asarray(t.etp * t.ep > t.tp * t.cp)

    def orders(self, i: int) -> Sequence[tuple[int, ...]]:
        """The software's rank orders as atom indices, innermost first."""
        beyond = bool(self._beyond_cp[i])
        return [order for order, together in self._orders if together or not beyond]

    def groups(self, i: int) -> Mapping[str, tuple[int, ...]]:
        """Atom indices of every communicating group."""
        return group_atoms(self.ctx.model.moe is None)

    def key(self, i: int) -> Hashable:
        """Every row is a layout of its own."""
        return i

    def layout(self, i: int) -> Layout:
        """The layout of shape i."""
        return self.table.row(i)


class AnySplit(LayoutProblem):
    """Layouts whose bounds hold whatever the split of their layers over stages."""

    def _costs(self, table: LayoutTable) -> LayoutCosts:
        return mean_stage_costs(self.ctx, table)


class OtherSplit(AnySplit):
    """Layouts whose bounds hold in every split of their layers but the default."""

    def _costs(self, table: LayoutTable) -> LayoutCosts:
        alike = layers_are_alike(self.ctx)
        return (other_split_costs if alike else mean_stage_costs)(self.ctx, table)


class _FreeContext(LayoutProblem):
    """Layouts whose context-parallel traffic costs nothing."""

    def _least_costs(
        self, shape: LayoutCosts, least: Mapping[GroupCollective, UnitCost]
    ) -> dict[Channel, GroupCost]:
        costs = super()._least_costs(shape, least)
        for channel in shape.traffic:
            if SPECS[channel].group == "cp":
                free = tuple(0.0 * busy for busy in costs[channel].busy_seconds)
                costs[channel] = GroupCost(0.0 * costs[channel].latency_seconds, free)
        return costs


class _FreeContextAnySplit(_FreeContext, AnySplit):
    """The same in any split."""


def any_kind_bounds(ctx: CostContext, table: LayoutTable, any_split: bool = False) -> FloatArray:
    """Bounds of layouts whatever their kind of context parallelism, and split, shape (rows).

    The step is non-decreasing in traffic and in attention's seconds: none of either's is less than
    that of keys and values which are everywhere already, whole.
    """
    whole = np.full(len(table), CP_KINDS.index("all_gather"))
    gathered = replace(table, cp_kind_index=whole, cp_a2a=np.ones_like(whole))
    free = _FreeContextAnySplit if any_split else _FreeContext
    return free(ctx, gathered).lower_bounds()
