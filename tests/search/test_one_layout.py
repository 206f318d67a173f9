"""Exchanging the places of two groups: against brute force over all refills of their room."""

from math import log, prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.cost.context import CostContext
from planner.layouts.grids import DENSE_GRID
from planner.layouts.layout import Layout, LayoutTable
from planner.search.layout_problem import LayoutProblem
from planner.search.one_layout import best_placement, swap_costs, swapped
from tests.oracles import (
    Placement,
    all_placements,
    divisors,
    factorisations,
    plain_least_step,
    plain_step,
)
from tests.scenarios import small_scenario, small_topology

WIDTHS = ((2, 4, 4), (4, 8), (8, 3), (6, 4), (72, 2), (48, 3), (2, 2, 3, 2), (3, 4, 2))


def least_step(ctx: CostContext, layout: Layout) -> float:
    found = best_placement(LayoutProblem(ctx, LayoutTable.from_layouts([layout])), 0)
    assert found is not None
    return found[1]


def costs_of_stages(ctx: CostContext, layout: Layout, row: Placement) -> dict[tuple[str, str], Any]:
    return swap_costs(ctx, layout, np.array(row), least_step(ctx, layout))


def depth(factors: tuple[int, ...]) -> float:
    """Mean tier of an atom's factors, by their logarithms: 0 where all is innermost."""
    return sum(t * log(f) for t, f in enumerate(factors)) / log(prod(factors))


def plain_swap(placement: Placement, a: int, b: int) -> Placement:
    """The refill of two atoms' common room that puts the outer of them furthest in.

    Furthest in: the greatest factor in the innermost tier, then in the next, and so on.
    """
    outer, inner = (a, b) if depth(placement[a]) < depth(placement[b]) else (b, a)
    room = [x * y for x, y in zip(placement[a], placement[b], strict=True)]
    options = [
        factors
        for factors in factorisations(prod(placement[inner]), len(room))
        if all(size % factor == 0 for size, factor in zip(room, factors, strict=True))
    ]
    best = max(options)
    rows = list(placement)
    rows[inner] = best
    rows[outer] = tuple(size // factor for size, factor in zip(room, best, strict=True))
    return tuple(rows)


@st.composite
def placed(draw: st.DrawFn) -> tuple[tuple[int, ...], Placement]:
    widths = draw(st.sampled_from(WIDTHS))
    num = draw(st.sampled_from([n for n in divisors(prod(widths)) if 4 <= n <= 96]))
    degrees = draw(st.sampled_from(factorisations(num, len(DENSE_GRID.atoms))))
    options = all_placements(degrees, widths)
    if not options:
        return widths, ((1,) * len(widths),) * len(DENSE_GRID.atoms)
    return widths, draw(st.sampled_from(options))


@given(placed(), st.integers(0, 4), st.integers(0, 4))
@settings(max_examples=150, deadline=None, derandomize=True)
def test_swapped_equals_brute_force(
    case: tuple[tuple[int, ...], Placement], a: int, b: int
) -> None:
    _, placement = case
    if a == b or prod(placement[a]) == 1 or prod(placement[b]) == 1:
        return
    a, b = min(a, b), max(a, b)
    found = swapped(np.array(placement), a, b)
    assert tuple(map(tuple, found.tolist())) == plain_swap(placement, a, b)
    others = [i for i in range(len(DENSE_GRID.atoms)) if i not in (a, b)]
    assert (found[others] == np.array(placement)[others]).all()
    assert (found.prod(axis=0) == np.array(placement).prod(axis=0)).all()
    assert (found.prod(axis=1) == np.array(placement).prod(axis=1)).all()


def test_swapping_apart_atoms_twice_is_where_it_began() -> None:
    placement = np.array([(4, 1), (1, 1), (1, 4), (1, 1), (1, 2)])
    once = swapped(placement, 0, 2)
    assert once.tolist() == [[1, 4], [1, 1], [4, 1], [1, 1], [1, 2]]
    assert swapped(once, 0, 2).tolist() == placement.tolist()


def test_what_does_not_fit_inside_goes_further_out() -> None:
    placement = np.array([(2, 1, 1), (1, 1, 1), (1, 4, 2), (1, 1, 1), (1, 1, 1)])
    assert swapped(placement, 0, 2).tolist()[0] == [1, 1, 2]
    assert swapped(placement, 0, 2).tolist()[2] == [2, 4, 1]


@pytest.mark.parametrize(
    ("widths", "layout"),
    [
        ((2, 4, 4), Layout(tp=2, cp=2, pp=2, dp_shard=2, dp_replicate=2, sp=True)),
        ((4, 8), Layout(tp=4, pp=2, dp_shard=4, zero_stage=3, sp=True)),
        ((6, 4), Layout(tp=2, cp=3, dp_shard=4)),
    ],
)  # fmt: skip
def test_costs_are_over_the_least_step_and_never_negative(
    widths: tuple[int, ...], layout: Layout
) -> None:
    num = layout.num_ranks
    scenario = small_scenario(num, topology=small_topology(widths))
    ctx = CostContext.of(scenario)
    least = plain_least_step(ctx, layout)
    assert least_step(ctx, layout) == pytest.approx(least, rel=1e-12)
    for row in all_placements(layout.degrees(), widths):
        costs = costs_of_stages(ctx, layout, row)
        used = [atom for atom in DENSE_GRID.atoms if getattr(layout, atom) > 1]
        assert set(costs) == {(x, y) for i, x in enumerate(used) for y in used[i + 1 :]}
        for (x, y), seconds in costs.items():
            moved = plain_swap(row, DENSE_GRID.atoms.index(x), DENSE_GRID.atoms.index(y))
            if moved == row:
                assert seconds is None
                continue
            assert seconds is not None and seconds >= 0
            expected = plain_step(ctx, layout, moved) - least
            assert seconds == pytest.approx(expected, rel=1e-6, abs=1e-12)


def test_a_pair_that_shares_its_only_tier_has_nothing_to_exchange() -> None:
    ctx = CostContext.of(small_scenario(4))
    row = ((2, 1), (1, 1), (2, 1), (1, 1), (1, 1))
    assert costs_of_stages(ctx, Layout(tp=2, dp_shard=2), row) == {("tp", "dp_shard"): None}


@pytest.mark.parametrize("layout", [Layout(), Layout(dp_shard=4)])
def test_one_group_has_no_pair(layout: Layout) -> None:
    ctx = CostContext.of(small_scenario(layout.num_ranks))
    assert costs_of_stages(ctx, layout, tuple((d, 1) for d in layout.degrees())) == {}
