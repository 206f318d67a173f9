"""Rank tables against group truth of frameworks and against plain loops."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import accumulate
from math import prod
from operator import mul
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.inputs.values import load
from planner.layouts.grids import DENSE_GRID
from planner.layouts.layout import Layout
from planner.layouts.rank_orders import (
    atom_coordinates,
    framework_order,
    group_ranks,
    order_splits,
    worst_of,
)
from planner.problem.software import Software

Order = Sequence[tuple[str, int]]

CUBE = Layout(tp=2, cp=2, pp=2, dp_shard=2)

# Groups of rank 13 of 16 as Megatron's and torchtitan's own group creation makes them.
DEFAULT = {"tp": [12, 13], "cp": [13, 15], "dp_shard": [9, 13], "pp": [5, 13]}
PP_BEFORE_DP = {"tp": [12, 13], "cp": [13, 15], "dp_shard": [5, 13], "pp": [9, 13]}


def worst_split(order: Order, atoms: Sequence[str], domain_sizes: Sequence[int]) -> list[float]:
    """The split of the group of an order that crosses most, on domains of consecutive ranks."""
    ranks = np.arange(num_ranks(order))
    return worst_of(group_ranks(order, atoms), [ranks // size for size in domain_sizes])


def groups_of(rank: int, order: Order) -> dict[str, list[int]]:
    found = {}
    for atom in DEFAULT:
        (group,) = [g for g in group_ranks(order, (atom,)).tolist() if rank in g]
        found[atom] = sorted(group)
    return found


@pytest.mark.parametrize(
    ("axes", "truth"),
    [(("tp", "cp", "dp", "pp"), DEFAULT), (("tp", "cp", "pp", "dp"), PP_BEFORE_DP)],
)
def test_groups_of_rank_13(axes: tuple[str, ...], truth: dict[str, list[int]]) -> None:
    assert groups_of(13, framework_order(CUBE, axes)) == truth


@pytest.mark.parametrize(
    ("software", "name", "truth"),
    [
        ("megatron-core", "tp-cp-dp-pp", DEFAULT),
        ("megatron-core", "tp-cp-pp-dp", PP_BEFORE_DP),
        ("torchtitan", "tp-cp-dp_shard-dp_replicate-pp", DEFAULT),
    ],
)
def test_shipped_orders_give_the_frameworks_groups(
    software: str, name: str, truth: dict[str, list[int]]
) -> None:
    axes = load(software, "software", Software).orders[name]
    assert groups_of(13, framework_order(CUBE, axes)) == truth


def test_dp_is_shard_inside_replicate_and_unnamed_axes_come_last() -> None:
    layout = Layout(tp=2, cp=3, pp=5, dp_shard=7, dp_replicate=11)
    order = [("tp", 2), ("dp_shard", 7), ("dp_replicate", 11), ("cp", 3), ("pp", 5)]
    assert framework_order(layout, ("tp", "dp")) == order
    order = [("dp_replicate", 11), ("tp", 2), ("dp_shard", 7), ("pp", 5), ("cp", 3)]
    assert framework_order(layout, ("dp_replicate", "tp", "dp", "ep", "pp")) == order


def test_coordinates_count_up_innermost_first() -> None:
    found = atom_coordinates([("tp", 2), ("pp", 3)])
    assert found["tp"].tolist() == [0, 1, 0, 1, 0, 1]
    assert found["pp"].tolist() == [0, 0, 1, 1, 2, 2]


def test_atom_in_two_pieces_counts_through_both() -> None:
    """dp 4 as 2 inside a domain and 2 across, with tp between: the first piece is the low digit."""
    found = atom_coordinates([("dp_shard", 2), ("tp", 2), ("dp_shard", 2)])
    assert found["dp_shard"].tolist() == [0, 1, 0, 1, 2, 3, 2, 3]
    assert found["tp"].tolist() == [0, 0, 1, 1, 0, 0, 1, 1]
    groups = group_ranks([("dp_shard", 2), ("tp", 2), ("dp_shard", 2)], ("dp_shard",))
    assert groups.tolist() == [[0, 1, 4, 5], [2, 3, 6, 7]]


def test_group_of_no_atom_is_one_rank_each() -> None:
    assert group_ranks([("tp", 3)], ("pp",)).tolist() == [[0], [1], [2]]


def test_worst_split_of_groups_that_do_not_nest() -> None:
    """tp·cp = 6 in nodes of 8: ranks 6…11 lie on two nodes, and so does cp group 6, 8, 10."""
    order = [("tp", 2), ("cp", 3), ("dp_shard", 4)]
    sizes = (8, 24)
    assert worst_split(order, ("tp", "cp"), sizes) == [3.0, 2.0]
    assert worst_split(order, ("cp",), sizes) == [1.5, 2.0]
    assert worst_split(order, ("tp",), sizes) == [2.0, 1.0]
    # 0, 6, 12, 18 lie on three nodes
    assert worst_split(order, ("dp_shard",), sizes) == pytest.approx([4 / 3, 3.0])


def test_the_group_that_crosses_most_counts() -> None:
    """Of tp 3 in nodes of 8 groups 0-2 and 3-5 stay inside, 6-8 does not."""
    assert worst_split([("tp", 3), ("dp_shard", 8)], ("tp",), (8, 24)) == [1.5, 2.0]
    assert worst_split([("tp", 3), ("dp_shard", 2)], ("tp",), (8, 8)) == [3.0, 1.0]


def test_splits_of_an_order_that_fills_whole_domains() -> None:
    """128 ranks on 4 leaves of 4 nodes of 8, by hand."""
    layout = Layout(tp=4, cp=2, dp_shard=2, dp_replicate=2, pp=4)
    assert order_splits(layout, ("tp", "cp", "dp", "pp"), (8, 4, 4)) == {
        "tp": [4.0, 1.0, 1.0],
        "cp": [2.0, 1.0, 1.0],
        # without expert parallelism every rank holds all experts
        "etp": [1.0, 1.0, 1.0],
        "ep": [1.0, 1.0, 1.0],
        "edp": [8.0, 2.0, 1.0],
        "shard": [2.0, 2.0, 1.0],
        "replicate": [1.0, 2.0, 1.0],
        "pp": [1.0, 1.0, 4.0],
    }


@st.composite
def orders(draw: st.DrawFn) -> list[tuple[str, int]]:
    """Up to six factors of at most 72 ranks; an atom may come twice."""
    order: list[tuple[str, int]] = []
    ranks = 1
    for _ in range(draw(st.integers(1, 6))):
        factor = draw(st.integers(1, max(1, min(6, 72 // ranks))))
        order.append((draw(st.sampled_from(DENSE_GRID.atoms)), factor))
        ranks *= factor
    return order


def digits(rank: int, order: Order) -> list[tuple[str, int]]:
    """(atom, digit) of every factor."""
    found = []
    for atom, factor in order:
        found.append((atom, rank % factor))
        rank //= factor
    return found


def plain_groups(order: Order, atoms: Collection[str]) -> list[tuple[int, ...]]:
    """Ranks that agree in every factor of the other atoms, by comparing all pairs."""
    ranks = range(num_ranks(order))
    fixed = [[pair for pair in digits(r, order) if pair[0] not in atoms] for r in ranks]
    return sorted({tuple(b for b in ranks if fixed[a] == fixed[b]) for a in ranks})


def num_ranks(order: Order) -> int:
    return prod(factor for _, factor in order)


@given(orders(), st.sets(st.sampled_from(DENSE_GRID.atoms)))
def test_groups_are_the_ranks_that_agree_elsewhere(order: Any, atoms: set[str]) -> None:
    found = group_ranks(order, sorted(atoms))
    assert sorted(tuple(sorted(group)) for group in found.tolist()) == plain_groups(order, atoms)


@given(orders())
def test_coordinates_tell_ranks_apart(order: Any) -> None:
    found = atom_coordinates(order)
    places = set(zip(*(column.tolist() for column in found.values()), strict=True))
    assert len(places) == num_ranks(order)
    for atom, column in found.items():
        degree = num_ranks([(a, f) for a, f in order if a == atom])
        assert set(column.tolist()) == set(range(degree))


@given(orders(), st.lists(st.integers(1, 9), min_size=1, max_size=3))
def test_worst_split_counts_domains(order: Any, widths: list[int]) -> None:
    sizes = [*accumulate(widths, mul)]
    sizes[-1] = max(sizes[-1], num_ranks(order))  # the outermost domain holds all
    for atoms in DENSE_GRID.groups.values():
        groups = plain_groups(order, atoms)
        most = [len(groups[0])]
        for size in sizes[:-1]:
            most.append(max(len({rank // size for rank in group}) for group in groups))
        expected = [inner / outer for inner, outer in zip(most, [*most[1:], 1], strict=True)]
        assert worst_split(order, atoms, sizes) == pytest.approx(expected, rel=1e-15)
