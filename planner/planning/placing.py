"""Where the groups of a layout lie: a placement of the search, or the software's own rank order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from planner.cost.context import CostContext
from planner.layouts.layout import Layout
from planner.layouts.rank_orders import framework_order, order_atoms, order_splits
from planner.planning.groups import Splits
from planner.planning.nodes import seat_framework, seat_plan
from planner.planning.plan import NodesReport, Swap
from planner.search.interface import PlacedLayout
from planner.search.layout_problem import grid_of, splits_of
from planner.search.one_layout import swap_costs
from planner.search.placement import rank_order

RankOrder = tuple[tuple[str, int], ...]
"""(atom, factor) pairs, innermost first."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a layout's groups lie, and what is known of other places; as in `Plan`.

    Fill, placement and what follows from them are None, or empty, where the groups do not nest in
    evenly filled domains.
    """

    splits: Splits
    rank_order: RankOrder
    rank_order_name: str | None
    nodes: NodesReport | None = None
    fill: Mapping[str, int] | None = None
    placement: Mapping[str, Mapping[str, int]] | None = None
    custom_order_gain_fraction: float | None = None
    swaps: tuple[Swap, ...] = ()


def place_of(
    ctx: CostContext, layout: Layout, placed: PlacedLayout, lowest_step_seconds: float
) -> Place:
    """The place of a layout in a placement of the search, on nodes where there is an inventory.

    lowest_step_seconds: of the layout in its best placement.
    """
    grid, tiers = grid_of(ctx.model), ctx.topology.tier_names
    order, name = rank_order_of(ctx, placed), _framework_order_name(ctx, placed)
    splits: Splits = splits_of_groups(placed)
    nodes = None
    if ctx.cluster is not None:
        seated = seat_plan(ctx, layout, order, placed.fill)
        nodes = seated.nodes
        splits = seated.splits if nodes.shared else splits
    placement = np.array(placed.placement, dtype=np.int64)
    swaps = swap_costs(ctx, layout, placement, lowest_step_seconds)
    return Place(
        splits=splits,
        rank_order=order,
        rank_order_name=name,
        nodes=nodes,
        fill=dict(zip(tiers, placed.fill, strict=True)),
        placement={
            atom: dict(zip(tiers, factors, strict=True))
            for atom, factors in zip(grid.atoms, placed.placement, strict=True)
        },
        custom_order_gain_fraction=(
            None if name is None else placed.step_seconds / lowest_step_seconds - 1.0
        ),
        swaps=tuple(Swap(atoms, seconds) for atoms, seconds in swaps.items()),
    )


def place_in_framework_order(ctx: CostContext, layout: Layout) -> Place:
    """The place of a layout whose groups do not nest in domains: read off the rank table.

    Every group is costed as its worst one.
    """
    name, axes = next(iter(ctx.software.orders.items()))
    order = tuple(pair for pair in framework_order(layout, axes) if pair[1] > 1)
    if ctx.cluster is None:
        return Place(order_splits(layout, axes, ctx.topology.widths), order, name)
    seated = seat_framework(ctx, layout)
    return Place(seated.splits, order, name, seated.nodes)


def splits_of_groups(placed: PlacedLayout) -> dict[str, list[float]]:
    """Members of every group per tier."""
    splits = splits_of(np.array(placed.placement, dtype=np.int64))
    return {name: [float(members) for members in split] for name, split in splits.items()}


def rank_order_of(ctx: CostContext, placed: PlacedLayout) -> RankOrder:
    """The order in which ranks count up, innermost first."""
    atoms = grid_of(ctx.model).atoms
    pairs = rank_order(np.array(placed.placement, dtype=np.int64), placed.order)
    return tuple((atoms[atom], factor) for atom, factor in pairs)


def _framework_order_name(ctx: CostContext, placed: PlacedLayout) -> str | None:
    """The software's order that gives the placement, if one does."""
    if placed.order is None:
        return None
    grid = grid_of(ctx.model)
    atoms: Sequence[str] = [grid.atoms[atom] for atom in placed.order]
    orders = ctx.software.orders.items()
    return next((name for name, axes in orders if order_atoms(axes, grid) == atoms), None)
