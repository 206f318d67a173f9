"""What limits a table of layouts: the memory of an accelerator and its host, and its own length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from planner.cost import memory, prediction_intervals
from planner.cost.context import CostContext
from planner.cost.stage_split_bounds import any_split_floor_bytes
from planner.layouts.arrays import BoolArray, FloatArray
from planner.layouts.layout import LayoutTable
from planner.layouts.numeric import Numeric
from planner.problem.scenario import Search

BLOCK_ROWS = 1 << 15
"""Rows costed at once: the arrays of more would not stay in the processor's caches."""

MOST_UNRULED = 1 << 22
"""Most layouts that are enumerated without applying their rules."""


class TooManyRowsError(Exception):
    """More layouts than are looked at without their rules."""


def in_blocks(table: LayoutTable, formula: Callable[[LayoutTable], Any]) -> FloatArray:
    """`formula` of a table, one number per row, computed in blocks of BLOCK_ROWS."""
    starts = range(0, len(table), BLOCK_ROWS)
    blocks = [formula(table.take(slice(start, start + BLOCK_ROWS))) for start in starts]
    return np.concatenate([np.zeros(0), *blocks])


def searches_splits(ctx: CostContext, search: Search) -> bool:
    """Whether other stage splits than the default one are searched."""
    return search.stages == "any" and ctx.software.stage_splits != "even"


# --- memory -----------------------------------------------------------------------------------


def peak_limit_bytes(ctx: CostContext, search: Search) -> float:
    """The highest peak memory that the search accepts, by the verdict that it asks for."""
    return ctx.limit_bytes[search.memory]


def fits_in_memory(ctx: CostContext, search: Search, table: LayoutTable) -> BoolArray:
    """Which layouts memory allows, (rows): by the verdict that `search:` accepts.

    With `search: {robust: true}` a layout is left out as well if the upper end of its peak's
    prediction interval exceeds the capacity, so fewer layouts are allowed, never more.
    """

    def fits(block: LayoutTable) -> BoolArray:
        usage, peak = memory.worst_stage(ctx, block)
        return within_limits(ctx, search, block, usage, peak) & memory.host_holds(ctx, block)

    return in_blocks(table, fits).astype(bool)


def within_limits(
    ctx: CostContext,
    search: Search,
    table: LayoutTable,
    usage: memory.StageMemory,
    peak_bytes: Numeric,
) -> BoolArray:
    """Which peaks an accelerator's memory allows, of layouts (rows) or of stages of one layout.

    usage: the terms of the peaks, from which their prediction intervals follow. Whether the host's
    memory holds what is offloaded is not checked here.
    """
    allowed = np.asarray(peak_bytes <= peak_limit_bytes(ctx, search))
    if search.robust:
        capacity = ctx.limit_bytes["fragile"]
        allowed = allowed & (peak_upper_ends(ctx, table, usage) <= capacity)
    return allowed


def peak_upper_ends(ctx: CostContext, table: LayoutTable, usage: memory.StageMemory) -> FloatArray:
    """Bytes at the upper end of the prediction interval of each peak, (rows)."""
    intervals = prediction_intervals.shipped()
    interval = prediction_intervals.peak_interval(intervals, ctx, table, usage)
    return np.asarray(interval.high, dtype=np.float64)


def may_fit(ctx: CostContext, search: Search, table: LayoutTable) -> BoolArray:
    """Which rows memory may hold, however much is recomputed and however layers are split, (rows).

    By a lower bound of their peaks, so that nothing that fits is ruled out.
    """
    lower_bound = any_split_floor_bytes if searches_splits(ctx, search) else memory.floor_bytes
    lowest = in_blocks(table, lambda block: lower_bound(ctx, block))
    return np.asarray(lowest <= peak_limit_bytes(ctx, search))
