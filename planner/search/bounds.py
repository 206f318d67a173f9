"""Component minima of a group's cost over its splits: what lower bounds of a step are made of.

A group's cost is a vector: latency, switch, and busy seconds of each tier. The step is
non-decreasing in every component, so the step at every component's own least over the group's
splits is at most the step of any placement.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from planner.cost.compute import distinct_values
from planner.cost.context import TierArrays
from planner.cost.traffic import Price, price
from planner.search.placement import splits

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


def component_minima(
    kind: str,
    sizes: IntArray,
    widths: tuple[int, ...],
    num_ranks: int,
    tiers: TierArrays,
    inner: tuple[int, int],
) -> tuple[Price, BoolArray]:
    """Least seconds of a call and least busy seconds per byte of groups of these sizes.

    Each component's least over the splits of a group that some fill of `num_ranks` realises with
    inner[0] to inner[1] members in one innermost domain. Second, whether there is such a split;
    the costs are zeros where not. Shapes are that of `sizes`.
    """
    distinct, position = distinct_values(sizes)
    rows = [
        _minima(kind, size, widths, num_ranks, _Tiers(tiers), inner) for size in distinct.tolist()
    ]
    length = max((len(row) for row in rows if row is not None), default=2 + len(widths))
    table = np.array([row or (0.0,) * length for row in rows], dtype=np.float64)
    latency, switch, *busy = table.T[:, position]
    possible = np.array([row is not None for row in rows], dtype=bool)[position]
    short = busy.pop() if len(busy) > len(widths) else None
    return Price(latency, switch, tuple(busy), short), possible


class _Tiers:
    """Tiers by identity, so that they can be part of a cache's key."""

    def __init__(self, tiers: TierArrays) -> None:
        self.tiers = tiers

    def __hash__(self) -> int:
        return id(self.tiers)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Tiers) and other.tiers is self.tiers


@lru_cache(maxsize=4096)
def _minima(
    kind: str,
    size: int,
    widths: tuple[int, ...],
    num_ranks: int,
    tiers: _Tiers,
    inner: tuple[int, int],
) -> tuple[float, ...] | None:
    options = splits(size, widths, num_ranks)
    options = options[(inner[0] <= options[:, 0]) & (options[:, 0] <= inner[1])]
    if not len(options):
        return None
    unit = price(kind, list(options.T), tiers.tiers)
    parts = [unit.latency_seconds, unit.switch_seconds, *unit.busy_seconds]
    if unit.short_busy_seconds is not None:
        parts.append(unit.short_busy_seconds)
    return tuple(float(np.min(np.broadcast_to(part, len(options)))) for part in parts)
