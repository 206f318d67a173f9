"""What it costs to exchange the places of two atoms of a placement."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from planner.cost.context import CostContext
from planner.layouts.layout import Layout, LayoutTable
from planner.search.problem import LayoutProblem

IntArray = NDArray[np.int64]


def swapped(placement: IntArray, a: int, b: int) -> IntArray:
    """The placement with the room that atoms a and b share refilled in the other order.

    Whichever of the two lies further in now goes outside: the other takes what it can of their
    common room from the innermost tier outwards.
    """
    result = placement.copy()
    room = placement[a] * placement[b]
    depth = np.arange(len(room))
    reach = {x: float(depth @ np.log(placement[x]) / np.log(placement[x].prod())) for x in (a, b)}
    outer, inner = (a, b) if reach[a] < reach[b] else (b, a)
    left = int(placement[inner].prod())
    for tier, size in enumerate(room.tolist()):
        factor = int(np.gcd(left, size))
        result[inner, tier], result[outer, tier] = factor, size // factor
        left //= factor
    return result


def swap_costs(
    ctx: CostContext, layout: Layout, placement: IntArray, least_seconds: float
) -> dict[tuple[str, str], float | None]:
    """Seconds over the layout's least step when a pair of atoms exchanges places.

    Never negative, since the least is over every placement. None where both share their tiers, so
    that there is nothing to exchange.
    """
    problem = LayoutProblem(ctx, LayoutTable.from_layouts([layout]))
    atoms = problem.grid.atoms
    used = [i for i in range(len(atoms)) if placement[i].prod() > 1]
    pairs = list(combinations(used, 2))
    if not pairs:
        return {}
    moved = np.stack([swapped(placement, a, b) for a, b in pairs])
    seconds = problem.score_rows(np.zeros(len(moved), dtype=np.int64), moved)
    return {
        (atoms[a], atoms[b]): None
        if np.array_equal(row, placement)
        else float(step) - least_seconds
        for (a, b), row, step in zip(pairs, moved, seconds, strict=True)
    }
