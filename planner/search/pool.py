"""Partial layouts by rising bound, taken part by part."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from planner.layouts.layout import LayoutTable

FloatArray = NDArray[np.float64]


class Pool:
    """Rows of a table by rising bound, of which the first part is taken."""

    def __init__(self, table: LayoutTable, lower: FloatArray) -> None:
        order = np.argsort(lower, kind="stable")
        self.table, self.lower = table.take(order), lower[order]
        self.taken = 0

    @property
    def rest(self) -> float:
        """The least bound of what is left; inf where nothing is."""
        return float(self.lower[self.taken]) if self.taken < len(self.lower) else np.inf

    @property
    def left(self) -> int:
        """How many are not taken."""
        return len(self.lower) - self.taken

    def take(self, most: int, within: float) -> LayoutTable:
        """The next ones, of a bound within a threshold, at most so many."""
        near = int(np.searchsorted(self.lower[self.taken :], within, side="right"))
        part = slice(self.taken, self.taken + min(near, most))
        self.taken = part.stop
        return self.table.take(part)

    def add(self, table: LayoutTable, lower: FloatArray) -> None:
        """Put more beside what is left; what is taken stays first."""
        left = slice(self.taken, None)
        more = Pool(self.table.take(left).joined(table), np.append(self.lower[left], lower))
        self.table = self.table.take(slice(self.taken)).joined(more.table)
        self.lower = np.append(self.lower[: self.taken], more.lower)
