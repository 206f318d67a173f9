"""Choosing how many layers each stage has, exactly, by dynamic programming over layers placed.

Costs are arrays (S, I, N): of stage s, with i layers before it, the cost of holding n layers; inf
where that is not allowed. I is 1 where what comes before does not matter.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

__all__ = ["least_maximum", "least_sum"]


def least_maximum(cost: FloatArray, total: int) -> float:
    """The least, over all counts that sum to `total`, of the greatest stage's cost."""
    reached, _ = _last(cost, total, np.maximum, -np.inf)
    return float(reached[-1][total])


def least_sum(cost: FloatArray, total: int) -> list[int] | None:
    """The counts of least summed cost, the first stages' fewest of equals; none where none is."""
    reached, moves = _last(cost, total, np.add, 0.0)
    if not np.isfinite(reached[-1][total]):
        return None
    counts, placed = [], total
    for move in reversed(moves):
        counts.append(int(move[placed]))
        placed -= counts[-1]
    return counts[::-1]


def _last(
    cost: FloatArray,
    total: int,
    join: Callable[[FloatArray, FloatArray], FloatArray],
    empty: float,
) -> tuple[list[FloatArray], list[NDArray[np.int64]]]:
    """Least joined cost of the first stages by layers placed, and the last one's count there."""
    sizes = np.arange(cost.shape[2])
    before = np.arange(total + 1)[:, None] - sizes  # of j placed, n by this stage
    possible = before >= 0
    before = np.maximum(before, 0)
    at = before if cost.shape[1] > 1 else np.zeros_like(before)
    # with nothing placed before the first stage
    reached = [np.where(np.arange(total + 1) == 0, empty, np.inf)]
    moves = []
    for stage in cost:
        joined = np.where(possible, join(reached[-1][before], stage[at, sizes]), np.inf)
        move = np.argmin(joined, axis=1)
        moves.append(move)
        reached.append(joined[np.arange(total + 1), move])
    return reached, moves
