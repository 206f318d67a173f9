"""Recompute in the search: which kinds matter, and how many layers of each chunk.

Of one layout the step grows and the peak memory falls with every further layer that each chunk
recomputes. So of the counts that fit the lowest is the fastest: bisection over the peak
finds it, and no other is enumerated.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.cost.context import CostContext
from planner.cost.offload import offloads_activations
from planner.cost.stage_split import chunk_range
from planner.frameworks.rule import runs
from planner.layouts.arrays import BoolArray, IntArray
from planner.layouts.keys import RECOMPUTE
from planner.layouts.layout import LayoutTable
from planner.problem.scenario import Search
from planner.search.rules.experts import can_overlap_dispatch
from planner.search.rules.recompute import FULL, layers_alike
from planner.search.space.crossings import overlaps_exchanges, recompute_kinds
from planner.search.space.limits import fits_in_memory

# --- kinds ------------------------------------------------------------------------------------


def searched_kinds(ctx: CostContext, search: Search) -> list[int]:
    """Codes of the recompute kinds that mean something for the model and that `search:` leaves."""
    wanted, counts = search.recompute, search.recompute_layers
    names = [name for name in recompute_kinds(ctx) if wanted is None or name in wanted]
    if counts is not None and 0 not in counts:  # only layers of kind full are counted
        names = [name for name in names if name == "full"]
    return [RECOMPUTE.index(name) for name in names]


def fits_without_recompute(ctx: CostContext, search: Search, table: LayoutTable) -> BoolArray:
    """Which layouts fit with nothing recomputed, (rows).

    Dispatch and combine overlap wherever they can, which takes the most memory.
    """
    if overlaps_exchanges(ctx, search):
        overlapped = can_overlap_dispatch(ctx, table).astype(np.int64)
        table = replace(table, overlap_ep=overlapped)
    return fits_in_memory(ctx, search, table)


# --- counts of layers -------------------------------------------------------------------------


def chooses_counts(ctx: CostContext, search: Search) -> bool:
    """Whether the search chooses how many layers are recomputed.

    It does where `search:` names no counts, the software can count, and layers are alike.
    """
    free = search.recompute_layers is None and search.objective != "least_memory"
    return free and _can_count(ctx)


def counts_in_splits(ctx: CostContext, search: Search) -> bool:
    """Whether layouts with counted layers are searched in every stage split.

    They are where the search chooses counts, or `search:` names some.
    """
    counted = chooses_counts(ctx, search) or any(search.recompute_layers or ())
    return counted and _can_count(ctx) and FULL in searched_kinds(ctx, search)


def _can_count(ctx: CostContext) -> bool:
    return ctx.software.recompute_counts and layers_alike(ctx)


def in_every_count(ctx: CostContext, search: Search, table: LayoutTable) -> LayoutTable:
    """Layouts that recompute all layers, in every count that some split of the layers has.

    Where `search:` lists counts, in those of them. All other layouts are left out.
    """
    counts = search.recompute_layers
    full = table.take(_countable(table))
    most = (ctx.model.num_layers - 1) // (full.pp * full.vp)
    possible = range(1, int(most.max(initial=0)) + 1)
    counted = table.take(slice(0))
    for layers in possible if counts is None else sorted(set(counts) & set(possible)):
        at = np.flatnonzero(most >= layers)
        counted = counted.joined(_with_layers(full.take(at), np.full(len(at), layers)))
    return counted


def with_counts(ctx: CostContext, search: Search, table: LayoutTable) -> LayoutTable:
    """A table and, for each of its layouts that recomputes all layers, the lowest count that fits.

    None is added where the layout fits with nothing recomputed, which is faster still.
    """
    at = _countable(table)
    if not len(at):
        return table
    full = table.take(at)
    ends = chunk_range(ctx.model.num_layers, full, ctx.reserved)
    fewest, most = (np.broadcast_to(n, (len(full),)) for n in ends)
    most = np.minimum(fewest, most - 1)  # counting all layers of all chunks is the layout itself
    worth_counting = most > 0
    if RECOMPUTE.index("none") in searched_kinds(ctx, search):
        without = replace(full, recompute_index=np.zeros(len(full), dtype=np.int64))
        worth_counting = worth_counting & ~fits_in_memory(ctx, search, without)
    full, most = full.take(worth_counting), most[worth_counting]
    fits = fits_in_memory(ctx, search, _with_layers(full, most))
    full = full.take(fits)
    return table.joined(_with_layers(full, _lowest_that_fits(ctx, search, full, most[fits])))


def _countable(table: LayoutTable) -> IntArray:
    """Positions of the layouts that recompute all layers and may count them."""
    all_layers = (table.recompute_index == FULL) & (table.recompute_layers == 0)
    plain = runs(table, "1f1b", "interleaved") & ~offloads_activations(table)
    return np.flatnonzero(all_layers & plain)


def _lowest_that_fits(
    ctx: CostContext, search: Search, table: LayoutTable, most: IntArray
) -> IntArray:
    """The lowest count with which each layout fits, by bisection, (rows); all fit with `most`."""
    low, high = np.zeros_like(most), most.copy()  # low does not fit (or is none), high fits
    while np.any(left := high - low > 1):
        at = np.flatnonzero(left)
        middle = (low[at] + high[at]) // 2
        fits = fits_in_memory(ctx, search, _with_layers(table.take(at), middle))
        high[at[fits]], low[at[~fits]] = middle[fits], middle[~fits]
    return high


def _with_layers(table: LayoutTable, layers: IntArray) -> LayoutTable:
    return replace(table, recompute_layers=np.asarray(layers, dtype=np.int64))
