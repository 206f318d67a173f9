"""Component minima of a group's cost over its splits: what lower bounds of a step are made of.

A group's cost is a vector: latency, switch, and busy seconds of each tier. The step is
non-decreasing in every component, so the step at every component's own least over the group's
splits is at most the step of any placement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from planner.cost.collectives import Numeric
from planner.cost.context import TierArrays
from planner.cost.prices import Price, price
from planner.layouts.arrays import distinct_values
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
    held: tuple[tuple[int, ...], ...] | None = None,
) -> tuple[Price, BoolArray]:
    """Least seconds of a call and least busy seconds per byte of groups of these sizes.

    Each component's least over the splits of a group that some fill of `num_ranks` realises with
    inner[0] to inner[1] members in one innermost domain; held: of these fills only. Second, whether
    there is such a split;
    the costs are zeros where not. Shapes are that of `sizes`.
    """
    distinct, position = distinct_values(sizes)
    rows = [
        _minima(kind, size, widths, num_ranks, _Tiers(tiers), inner, held)
        for size in distinct.tolist()
    ]
    possible = np.array([row is not None for row in rows], dtype=bool)[position]
    return _columns(rows, len(widths), position), possible


def _columns(rows: Sequence[Price | None], num_tiers: int, position: IntArray) -> Price:
    """Prices of numbers as one price of arrays, zeros where there is none."""
    known = [row for row in rows if row is not None]
    nothing = Price(0.0, 0.0, (0.0,) * num_tiers)
    filled = [nothing if row is None else row for row in rows]

    def column(read: Callable[[Price], Numeric]) -> Numeric:
        return np.array([read(row) or 0.0 for row in filled], dtype=np.float64)[position]

    def optional(read: Callable[[Price], Numeric | None]) -> Numeric | None:
        return column(read) if any(read(row) is not None for row in known) else None

    return Price(
        latency_seconds=column(lambda row: row.latency_seconds),
        switch_seconds=column(lambda row: row.switch_seconds),
        busy_seconds=tuple(
            np.array([row.busy_seconds[t] for row in filled], dtype=np.float64)[position]
            for t in range(num_tiers)
        ),
        short_busy_seconds=optional(lambda row: row.short_busy_seconds),
        rendezvous_seconds=optional(lambda row: row.rendezvous_seconds),
        long_calls_per_byte=column(lambda row: row.long_calls_per_byte),
    )


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
    held: tuple[tuple[int, ...], ...] | None,
) -> Price | None:
    options = splits(size, widths, num_ranks, held=held)
    options = options[(inner[0] <= options[:, 0]) & (options[:, 0] <= inner[1])]
    if not len(options):
        return None
    unit = price(kind, list(options.T), tiers.tiers)

    def least(part: Numeric) -> float:
        return float(np.min(np.broadcast_to(part, len(options))))

    def optional(part: Numeric | None) -> float | None:
        return None if part is None else least(part)

    return Price(
        latency_seconds=least(unit.latency_seconds),
        switch_seconds=least(unit.switch_seconds),
        busy_seconds=tuple(least(seconds) for seconds in unit.busy_seconds),
        short_busy_seconds=optional(unit.short_busy_seconds),
        rendezvous_seconds=optional(unit.rendezvous_seconds),
        long_calls_per_byte=least(unit.long_calls_per_byte),
    )
