"""Distinct rows of integer columns, against Python's own sets."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.layouts.arrays import MAX_COUNTED_RANGE, distinct_rows, distinct_values

ROWS = st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 5)), min_size=1, max_size=40)


@given(ROWS)
@settings(max_examples=100, deadline=None)
def test_representatives_are_the_distinct_rows_in_order(rows: list[tuple[int, int]]) -> None:
    columns = [np.array(column, dtype=np.int64) for column in zip(*rows, strict=True)]
    first, position = distinct_rows(columns)
    assert [rows[i] for i in first] == sorted(set(rows))
    for column in columns:
        assert np.array_equal(column[first][position], column)


@pytest.mark.parametrize("spread", [7, 4 * MAX_COUNTED_RANGE])
def test_values_are_the_same_counted_and_sorted(spread: int) -> None:
    column = np.array([spread, -1, 3, spread, -1], dtype=np.int64)
    values, position = distinct_values(column)
    assert values.tolist() == sorted({-1, 3, spread})
    assert np.array_equal(values[position], column)
