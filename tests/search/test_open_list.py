"""The open list: rows leave it by rising bound, whatever the order in which they came."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.layouts.layout import Layout, LayoutTable
from planner.search.open_list import OpenList

BOUNDS = st.lists(st.sampled_from([1.0, 2.0, 3.0, 4.5, inf]), max_size=12)


def rows(numbers: list[int]) -> LayoutTable:
    """A table whose micro-batch sizes are the numbers."""
    table = LayoutTable.uniform(Layout(), len(numbers))
    return replace(table, mbs=np.array(numbers, dtype=np.int64))


@given(BOUNDS, BOUNDS, st.integers(0, 6), st.sampled_from([0.5, 2.0, 3.5, inf]))
@settings(max_examples=200, deadline=None)
def test_rows_are_taken_by_rising_bound(
    first: list[float], second: list[float], most: int, threshold: float
) -> None:
    open_list = OpenList(rows(list(range(len(first)))), np.array(first))
    taken = open_list.take(most, threshold).mbs.tolist()
    by_bound = sorted(range(len(first)), key=lambda i: first[i])
    assert taken == [i for i in by_bound if first[i] <= threshold][:most]
    left = [i for i in by_bound if i not in taken]
    assert len(open_list) == len(left)
    assert open_list.bound == min((first[i] for i in left), default=inf)
    # rows that come later are merged with those that are still open
    open_list.add(rows([100 + i for i in range(len(second))]), np.array(second))
    known = {i: first[i] for i in left} | {100 + i: bound for i, bound in enumerate(second)}
    assert len(open_list) == len(known)
    assert open_list.take(len(known)).mbs.tolist() == sorted(known, key=lambda i: known[i])
    assert len(open_list) == 0 and open_list.bound == inf


def test_an_empty_list_has_the_columns_of_its_table() -> None:
    open_list = OpenList.empty(rows([1, 2]))
    assert len(open_list) == 0 and open_list.bound == inf
    open_list.add(rows([7]), np.array([3.0]))
    assert open_list.bound == 3.0 and open_list.take(5).mbs.tolist() == [7]
