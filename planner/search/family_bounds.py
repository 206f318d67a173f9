"""Lower bounds that all layouts of a family share, so that most need never be enumerated.

Layouts of a family differ only in recompute, in the kind of context parallelism and in whether
dispatch and combine overlap; families in one kind differ in the first and the last. Recomputing
something never makes a step shorter, and no kind of context parallelism is faster than one that
moves nothing. A step is non-decreasing in its terms, so, whether or not any such layout fits,

    L(family)         = min over the overlaps of L(no recompute, context-parallel traffic free)
    L(family, a kind) = min over the overlaps of L(no recompute)

are lower bounds of all layouts in them, with L the bound of `planner.search.bounds`. Peak memory
has such bounds too: layers keep at least their inputs, whatever is recomputed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf

import numpy as np

from planner.cost import memory
from planner.cost.context import CostContext
from planner.cost.step import layout_costs
from planner.layouts.arrays import FloatArray
from planner.layouts.keys import CP_KINDS
from planner.layouts.layout import LayoutTable
from planner.problem.scenario import Search
from planner.search.layout_problem import LayoutProblem, any_split_problem
from planner.search.optimize import BOUND_SLACK
from planner.search.rules.experts import can_overlap_dispatch
from planner.search.space.crossings import overlaps_exchanges
from planner.search.space.enumerate import families
from planner.search.space.limits import in_blocks, searches_splits
from planner.search.weighted_steps import step_weights

# --- of steps -------------------------------------------------------------------------------------


def family_bounds(ctx: CostContext, search: Search, table: LayoutTable) -> FloatArray:
    """Seconds below which no step of a family's layouts lies, shape (families).

    In any stage split, where those are searched. In what the search compares: of a robust search
    the upper end of the interval (a family shares its interval), of a batch that is a band the step
    at the largest batch (see `planner.search.weighted_steps`).
    """
    any_split = searches_splits(ctx, search)

    def bounds(block: LayoutTable) -> FloatArray:
        lower, has_cp = np.zeros(len(block)), np.asarray(block.cp > 1)
        lower[~has_cp] = _kind_bounds(ctx, block.take(~has_cp), any_split)
        lower[has_cp] = any_kind_bounds(ctx, block.take(has_cp), any_split)
        return lower

    return _lowest_over_overlaps(ctx, search, table, bounds)


def kind_bounds(
    ctx: CostContext, search: Search, table: LayoutTable, any_split: bool = True
) -> FloatArray:
    """As `family_bounds`, of families in one kind of context parallelism.

    any_split: whether the bounds hold in any stage split, if those are searched.
    """
    any_split = any_split and searches_splits(ctx, search)
    return _lowest_over_overlaps(
        ctx, search, table, lambda block: _kind_bounds(ctx, block, any_split)
    )


def _kind_bounds(ctx: CostContext, table: LayoutTable, any_split: bool) -> FloatArray:
    problem = any_split_problem(ctx, table) if any_split else LayoutProblem(ctx, table)
    return problem.lower_bounds()


def any_kind_bounds(ctx: CostContext, table: LayoutTable, any_split: bool = False) -> FloatArray:
    """Bounds of layouts whatever their kind of context parallelism (and stage split), (rows).

    Context-parallel traffic costs nothing, and attention is that of all-gathered keys and values:
    no kind's kernels are faster than those of one rank that has all of them.
    """
    all_gather = np.full(len(table), CP_KINDS.index("all_gather"))
    gathered = replace(table, cp_kind_index=all_gather, cp_a2a=np.ones_like(all_gather))
    if any_split:
        return any_split_problem(ctx, gathered, free_groups=("cp",)).lower_bounds()
    return LayoutProblem(ctx, gathered, layout_costs, free_groups=("cp",)).lower_bounds()


def _lowest_over_overlaps(
    ctx: CostContext,
    search: Search,
    table: LayoutTable,
    bounds: Callable[[LayoutTable], FloatArray],
) -> FloatArray:
    """The lower of the bounds without and, where that can be, with overlapped expert traffic."""
    if not len(table):
        return np.zeros(0)
    lower = bounds(table)
    if overlaps_exchanges(ctx, search):
        able = np.flatnonzero(can_overlap_dispatch(ctx, table))
        if len(able):
            ones = np.ones(len(able), dtype=np.int64)
            overlapped = replace(table.take(able), overlap_ep=ones)
            lower[able] = np.minimum(lower[able], bounds(overlapped))
    weights = step_weights(ctx, search, table)
    if weights is not None:
        lower = lower * weights
    return np.asarray(lower * (1.0 - BOUND_SLACK))


# --- of peak memory -------------------------------------------------------------------------------


def peak_bounds(ctx: CostContext, table: LayoutTable) -> FloatArray:
    """Bytes below which no peak memory of a family's layouts lies, shape (families)."""
    return in_blocks(table, lambda block: memory.floor_bytes(ctx, block))


# --- of all families of a scenario ----------------------------------------------------------------


def lowest_step_bound(ctx: CostContext, search: Search) -> float:
    """Seconds below which no step of the scenario's layouts lies; inf where none is legal."""
    table, _ = families(ctx, search)
    return float(family_bounds(ctx, search, table).min(initial=inf))


def lowest_peak_bound(ctx: CostContext, search: Search) -> float:
    """Bytes below which no peak of the scenario's layouts lies; inf where none is legal."""
    table, _ = families(ctx, search)
    return float(peak_bounds(ctx, table).min(initial=inf))
