"""Lower bounds of a step over all placements of a layout, by monotonicity alone.

A group's cost is a vector c_G(split): latency seconds, busy seconds per tier, and any further
non-negative combination of them that the step reads. With step = F(c) non-decreasing in every
component, F at each component's minimum over that group's own splits is at most F anywhere.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement

import numpy as np
from numpy.typing import NDArray

from planner.search.placement import IntArray

__all__ = [
    "GroupMinima",
    "component_minima",
    "group_minima",
    "link_bound",
    "simplex_weights",
]

FloatArray = NDArray[np.float64]


def component_minima(costs: FloatArray) -> FloatArray:
    """Least value of each cost component over a group's splits, (S, ...) → (...)."""
    if len(costs) == 0:
        raise ValueError("a group without a split has no least cost: its layout fits no fill")
    return np.asarray(costs.min(axis=0), dtype=np.float64)


@dataclass(frozen=True)
class GroupMinima:
    """Component minima of one group, each over all its splits by itself.

    latency_seconds; busy_seconds (T); serial_seconds, the least of latency + Σ_t busy_t, for a
    step in which the group's tiers follow one another; weighted_seconds (W), the least of
    Σ_t λ_t · busy_t per row λ of the weights, for links shared with other groups.
    """

    latency_seconds: float
    busy_seconds: FloatArray
    serial_seconds: float
    weighted_seconds: FloatArray


def group_minima(
    latency: Callable[[IntArray], FloatArray],
    busy: Callable[[IntArray], FloatArray],
    splits: IntArray,
    weights: FloatArray | None = None,
) -> GroupMinima:
    """Component minima of a group whose cost functions map splits (S, T) to (S) and to (S, T)."""
    latency_seconds = np.asarray(latency(splits), dtype=np.float64)
    busy_seconds = np.asarray(busy(splits), dtype=np.float64)
    if weights is None:
        weights = np.eye(splits.shape[1])
    serial = latency_seconds + busy_seconds.sum(axis=1)
    return GroupMinima(
        latency_seconds=component_minima(latency_seconds).item(),
        busy_seconds=component_minima(busy_seconds),
        serial_seconds=component_minima(serial).item(),
        weighted_seconds=component_minima(busy_seconds @ weights.T),
    )


def link_bound(groups: Sequence[GroupMinima]) -> float:
    """Bound of max_t Σ_G busy_G[t], the busiest of the links that these groups share, seconds.

    For λ ≥ 0 with Σ λ_t = 1, max_t Σ_G busy_G[t] ≥ Σ_G min over splits of Σ_t λ_t · busy_G[t].
    Returns the best over the weights that the minima were taken with (rows of the unit simplex).
    """
    if not groups:
        return 0.0
    return float(np.sum([group.weighted_seconds for group in groups], axis=0).max())


def simplex_weights(num_tiers: int, steps: int) -> FloatArray:
    """All weight vectors λ ≥ 0, Σ λ = 1 on a grid of 1/steps, shape (W, num_tiers)."""
    rows = [
        np.bincount(chosen, minlength=num_tiers)
        for chosen in combinations_with_replacement(range(num_tiers), steps)
    ]
    return np.array(rows, dtype=np.float64) / steps
