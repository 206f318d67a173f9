"""One layout: its best placement by the tie rule, and what it costs to swap two atoms' places.

All placements of one layout are few enough to cost every one, so neither needs bounds or a solver.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from planner.cost.context import CostContext
from planner.layouts.arrays import IntArray
from planner.layouts.layout import Layout, LayoutTable
from planner.search.assign import candidate_rows, tie_ranks
from planner.search.interface import NO_CONSTRAINTS, PlacedLayout, SearchProblem, SideConstraints
from planner.search.layout_problem import LayoutProblem
from planner.search.placement_rows import allowed_blocks, order_numbers, placed_layout

# --- the best placement -----------------------------------------------------------------------


def best_placement(
    problem: SearchProblem,
    index: int,
    tie_fraction: float = 0.0,
    constraints: SideConstraints = NO_CONSTRAINTS,
) -> tuple[PlacedLayout, float] | None:
    """One layout's placement by the tie rule, and its lowest step; None where none is allowed.

    Every placement over every fill is costed, so both are exact.
    """
    rows = allowed_placements(problem, index, constraints)
    if not len(rows):
        return None
    indices = np.full(len(rows), index)
    seconds = np.asarray(problem.step_seconds(indices, rows), dtype=np.float64)
    if not np.isfinite(seconds).any():
        return None
    lowest = float(seconds.min())
    tied = np.flatnonzero(seconds <= lowest * (1.0 + tie_fraction))
    candidates = candidate_rows(problem, indices[tied], rows[tied], seconds[tied], constraints)
    chosen = tied[np.argmin(tie_ranks(candidates))]
    return placed_layout(problem, index, rows[chosen], float(seconds[chosen])), lowest


def allowed_placements(
    problem: SearchProblem, index: int, constraints: SideConstraints = NO_CONSTRAINTS
) -> IntArray:
    """All placements (P, A, T) of one layout that keep the side constraints."""
    none = np.ones((0, problem.degrees.shape[1], len(problem.widths)), dtype=np.int64)
    rows = np.concatenate([none, *allowed_blocks(problem, index, constraints)])
    if constraints.orders == "framework" and len(rows):
        rows = rows[order_numbers(problem, np.full(len(rows), index), rows) >= 0]
    return rows


# --- swapping the places of two atoms -----------------------------------------------------------


def swapped(placement: IntArray, a: int, b: int) -> IntArray:
    """The placement (A, T) with the factors that atoms a and b share filled in the other order.

    Whichever of the two lies further in now goes outside: the other takes what it can of their
    common product per tier, from the innermost tier outwards.
    """
    result = placement.copy()
    common = placement[a] * placement[b]
    tier = np.arange(len(common))
    # an atom's mean tier, each weighed by the logarithm of its factor there
    depth = {x: float(tier @ np.log(placement[x]) / np.log(placement[x].prod())) for x in (a, b)}
    outer, inner = (a, b) if depth[a] < depth[b] else (b, a)
    left = int(placement[inner].prod())
    for t, size in enumerate(common.tolist()):
        factor = int(np.gcd(left, size))
        result[inner, t], result[outer, t] = factor, size // factor
        left //= factor
    return result


def swap_costs(
    ctx: CostContext, layout: Layout, placement: IntArray, lowest_seconds: float
) -> dict[tuple[str, str], float | None]:
    """Seconds over the layout's lowest step when a pair of atoms swaps places, by the pair.

    Never negative, since the lowest is over every placement. None where the swap changes nothing.
    """
    problem = LayoutProblem(ctx, LayoutTable.from_layouts([layout]))
    atoms = problem.grid.atoms
    used = [i for i in range(len(atoms)) if placement[i].prod() > 1]
    pairs = list(combinations(used, 2))
    if not pairs:
        return {}
    moved = np.stack([swapped(placement, a, b) for a, b in pairs])
    seconds = problem.step_seconds(np.zeros(len(moved), dtype=np.int64), moved)
    return {
        (atoms[a], atoms[b]): None
        if np.array_equal(row, placement)
        else float(step) - lowest_seconds
        for (a, b), row, step in zip(pairs, moved, seconds, strict=True)
    }
