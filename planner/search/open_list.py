"""The open list of a branch-and-bound search: partial layouts by rising lower bound."""

from __future__ import annotations

from math import inf

import numpy as np

from planner.layouts.arrays import FloatArray
from planner.layouts.layout import LayoutTable


class OpenList:
    """Rows of a table by rising bound. Taking rows closes them; the others stay open."""

    def __init__(self, table: LayoutTable, lower: FloatArray) -> None:
        """lower: a bound of each row, (rows); in the unit that the search compares."""
        order = np.argsort(lower, kind="stable")
        self._table, self._lower = table.take(order), lower[order]
        self._num_closed = 0

    @classmethod
    def empty(cls, table: LayoutTable) -> OpenList:
        """A list without rows, of the table's columns."""
        return cls(table.take(slice(0)), np.zeros(0))

    def __len__(self) -> int:
        """How many rows are open."""
        return len(self._lower) - self._num_closed

    @property
    def bound(self) -> float:
        """The lowest bound of an open row; inf where none is open."""
        return float(self._lower[self._num_closed]) if len(self) else inf

    def take(self, most: int, threshold: float = inf) -> LayoutTable:
        """Close the first rows whose bound is at most the threshold, at most so many of them."""
        near = int(np.searchsorted(self._lower[self._num_closed :], threshold, side="right"))
        rows = slice(self._num_closed, self._num_closed + min(near, most))
        self._num_closed = rows.stop
        return self._table.take(rows)

    def add(self, table: LayoutTable, lower: FloatArray) -> None:
        """Open more rows. Of equal bounds, those that were open come first."""
        still_open = slice(self._num_closed, None)
        merged = OpenList(
            self._table.take(still_open).joined(table), np.append(self._lower[still_open], lower)
        )
        self._table, self._lower, self._num_closed = merged._table, merged._lower, 0
