"""Array types of tables, and the distinct rows of integer columns.

A table of millions of layouts has few distinct values in any one column. What depends on some
columns alone is computed once per distinct row and gathered to all rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

MAX_COUNTED_RANGE = 1 << 22
"""Largest range of values that is marked in one mask; wider columns are sorted."""


def distinct_rows(columns: Sequence[IntArray]) -> tuple[IntArray, IntArray]:
    """The distinct rows of integer columns of one length N.

    Returns one representative row of each, (D), in the order of their values, and the position
    of every row among them, (N): `column[first][position]` is `column`.
    """
    code = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        values, place = distinct_values(column)
        code = code * len(values) + place
    keys, position = distinct_values(code)
    # rows of one key have the same values, so whichever is assigned last can represent them
    first = np.empty(len(keys), dtype=np.int64)
    first[position] = np.arange(len(code))
    return first, position


def distinct_values(column: IntArray) -> tuple[IntArray, IntArray]:
    """Distinct values of a column, rising, (D), and the position of every row among them, (N)."""
    low, high = int(column.min()), int(column.max())
    if high - low > MAX_COUNTED_RANGE:
        values, position = np.unique(column, return_inverse=True)
        return values, position
    # counting takes linear time, np.unique sorts
    present = np.zeros(high - low + 1, dtype=bool)
    present[column - low] = True
    position = np.cumsum(present) - 1
    return np.flatnonzero(present) + low, position[column - low]
