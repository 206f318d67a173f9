"""Splits, placements, rank orders and grids against plain enumeration."""

import itertools
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.problem.fills import fills
from planner.search.placement import (
    count_placements,
    order_placements,
    placement_blocks,
    placements,
    rank_order,
    rank_table,
    spans_beyond,
    splits,
)
from tests.oracles import all_placements
from tests.search.synthetic import gives_order


def order_placement(degrees, fill):
    """Factors of atoms given innermost first, or None where the order is no placement."""
    rows, nested = order_placements(np.array([degrees]), range(len(degrees)), fill)
    return rows[0] if nested[0] else None


DEGREES = st.lists(st.sampled_from([1, 2, 3, 4, 6, 8]), min_size=2, max_size=4)
WIDTHS = st.sampled_from([(4, 8), (72, 2), (48, 3, 2), (2, 3, 4), (2, 2, 2, 3), (8, 2, 2, 2)])


@given(DEGREES, WIDTHS)
@settings(max_examples=60, deadline=None)
def test_placements_equal_plain_enumeration(degrees, widths):
    expected = sorted(all_placements(tuple(degrees), widths))
    found = [
        tuple(map(tuple, row))
        for fill in fills(widths, prod(degrees))
        for row in placements(degrees, fill).tolist()
    ]
    assert sorted(found) == expected
    assert len(set(found)) == len(found)


def test_blocks_hold_all_rows_and_keep_memory_flat():
    degrees, fill = (12, 4, 6, 2, 8), (8, 24, 24)
    blocks = list(placement_blocks(degrees, fill, max_rows=100))
    assert max(map(len, blocks)) <= 100
    assert (np.concatenate(blocks) == placements(degrees, fill)).all()
    assert sum(map(len, blocks)) == count_placements(degrees, fill)


def test_placements_of_another_number_of_ranks_are_none():
    assert placements((4, 2), (4, 4)).shape == (0, 2, 2)
    assert count_placements((4, 2), (4, 4)) == 0


@given(DEGREES, WIDTHS, st.data())
@settings(max_examples=60, deadline=None)
def test_splits_are_exactly_those_of_some_placement(degrees, widths, data):
    num = prod(degrees)
    group = data.draw(st.sets(st.sampled_from(range(len(degrees))), min_size=1))
    seen = {
        tuple(prod(row[a][t] for a in group) for t in range(len(widths)))
        for row in all_placements(tuple(degrees), widths)
    }
    size = prod(degrees[a] for a in group)
    assert set(map(tuple, splits(size, widths, num).tolist())) == seen
    assert seen <= set(map(tuple, splits(size, widths).tolist()))


@given(DEGREES, WIDTHS, st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_order_placement_is_where_the_ranks_sit(degrees, widths, random):
    order = list(range(len(degrees)))
    random.shuffle(order)
    table = np.array([degrees])
    for fill in fills(widths, prod(degrees)):
        rows, nested = order_placements(table, order, fill)
        matching = [
            row
            for row in placements(degrees, fill).tolist()
            if gives_order(order, tuple(map(tuple, row)))
        ]
        assert matching == ([rows[0].tolist()] if nested[0] else [])


def test_one_fill_per_row_equals_row_by_row():
    degrees = np.array([[4, 2, 8], [8, 8, 1], [2, 16, 2], [6, 2, 4]])
    fill = np.array([[8, 8], [8, 8], [16, 4], [12, 4]])
    rows, nested = order_placements(degrees, (0, 2, 1), fill)
    for i in range(len(degrees)):
        alone = order_placement(degrees[i, [0, 2, 1]], fill[i])
        assert (alone is not None) == nested[i]
        assert alone is None or (alone[[0, 2, 1]] == rows[i]).all()
    with pytest.raises(ValueError, match="must name each"):
        order_placements(degrees, (0, 1, 1), fill)


def test_order_of_tp6_in_nodes_of_8_is_no_placement():
    assert order_placement((6, 8), (8, 6)) is None
    assert order_placement((2, 6, 4), (8, 6)) is None
    assert order_placement((2, 4, 6), (8, 6)).tolist() == [[2, 1], [4, 1], [1, 6]]


@given(DEGREES, WIDTHS)
@settings(max_examples=40, deadline=None)
def test_rank_table_covers_the_grid_and_keeps_groups_in_their_tiers(degrees, widths):
    for fill in fills(widths, prod(degrees))[:3]:
        for row in placements(degrees, fill)[:5]:
            table = rank_table(rank_order(row), fill, len(degrees))
            assert {tuple(c) for c in table.tolist()} == set(
                itertools.product(*map(range, degrees))
            )
            domain, size = np.arange(len(table)), 1
            for tier, used in enumerate(fill):
                size *= used
                for atom in range(len(degrees)):
                    members = {
                        (d, c) for d, c in zip(domain // size, table[:, atom].tolist(), strict=True)
                    }
                    in_one_domain = len(members) // len(set(domain // size))
                    assert in_one_domain == prod(row[atom, : tier + 1])


def test_rank_order_of_a_framework_placement_is_the_order():
    row = order_placement((4, 4, 2), (8, 4))
    assert rank_order(row) == [(0, 4), (1, 4), (2, 2)]
    assert rank_order(row, order=(1, 0, 2)) == [(1, 2), (0, 4), (1, 2), (2, 2)]
    with pytest.raises(ValueError, match="does not number 16 ranks"):
        rank_table([(0, 4)], (8, 2), 1)


def test_spans_beyond():
    rows = np.array([[[4, 1], [2, 2]], [[2, 2], [4, 1]]])
    assert spans_beyond(rows, (0,), 0).tolist() == [False, True]
    assert spans_beyond(rows, (0, 1), 0).tolist() == [True, True]
    assert spans_beyond(rows, (0, 1), 1).tolist() == [False, False]
