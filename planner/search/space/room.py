"""Which layouts memory allows, for tables of any length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.cost import memory
from planner.cost import prediction_intervals as intervals
from planner.cost.context import CostContext
from planner.cost.stage_split_bounds import any_split_floor_bytes
from planner.layouts.layout import LayoutTable
from planner.problem.scenario import Search

BLOCK_ROWS = 1 << 15
"""Rows costed at once: more would not stay in the processor's caches."""

MOST_UNRULED = 1 << 22
"""Layouts enumerated at most without their rules."""


class TooManyRowsError(Exception):
    """More layouts than are looked at without their rules."""


def searches_splits(ctx: CostContext, search: Search) -> bool:
    """Whether layers may be split over stages in other ways than the default one."""
    return search.stages == "any" and ctx.software.stage_splits != "even"


def in_blocks(table: LayoutTable, formula: Callable[[LayoutTable], Any]) -> NDArray[np.float64]:
    """`formula` of a table, one number a row, computed block by block."""
    starts = range(0, len(table), BLOCK_ROWS)
    parts = [formula(table.take(slice(i, i + BLOCK_ROWS))) for i in starts]
    return np.concatenate([np.zeros(0), *parts])


def may_fit(ctx: CostContext, search: Search, leanest: LayoutTable) -> NDArray[np.bool_]:
    """Which rows memory may hold, however much is run again and however layers are split."""
    floor = any_split_floor_bytes if searches_splits(ctx, search) else memory.floor_bytes
    least = in_blocks(leanest, lambda part: floor(ctx, part))
    return np.asarray(least <= memory.limit_bytes(ctx, search.memory))


def accepted(ctx: CostContext, search: Search, table: LayoutTable) -> NDArray[np.bool_]:
    """Which layouts memory allows: the verdict asked for; robust, also the bar's upper end fits.

    With `search: {robust: true}` a layout is left out if its peak at the upper end of the error bar
    exceeds the capacity, so fewer layouts are allowed, never more.
    """
    return in_blocks(table, lambda part: _accepted(ctx, search, part)).astype(bool)


def _accepted(ctx: CostContext, search: Search, table: LayoutTable) -> NDArray[np.bool_]:
    usage, peak = memory.worst_stage(ctx, table)
    allowed = peak <= memory.limit_bytes(ctx, search.memory)
    allowed = np.asarray(allowed & memory.host_holds(ctx, table))
    if search.robust:
        allowed &= upper_ends(ctx, table, usage) <= memory.limit_bytes(ctx, "fragile")
    return allowed


def upper_ends(
    ctx: CostContext, table: LayoutTable, usage: memory.StageMemory
) -> NDArray[np.float64]:
    """Peaks at the upper end of the error bar, shape (rows)."""
    interval = intervals.peak_interval(intervals.shipped(), ctx, table, usage)
    return np.asarray(interval.high, dtype=np.float64)
