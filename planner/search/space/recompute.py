"""What of a layout is run again: kinds that can matter, and of whole layers how many.

Of one layout the step grows and the peak falls with every layer more that each chunk runs again, so
of the counts that fit the least is the fastest: it is found by bisection over the peak, and no
other is written out.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from planner.cost.context import CostContext
from planner.cost.offload import offloads_activations
from planner.frameworks.rule import runs
from planner.layouts.layout import RECOMPUTE, LayoutTable
from planner.layouts.stage_split import chunk_range
from planner.problem.scenario import Search
from planner.search.rules.experts import can_overlap_dispatch
from planner.search.rules.recompute import FULL, layers_alike
from planner.search.space.crossings import overlaps_exchanges, recompute_kinds
from planner.search.space.room import accepted

Ints = NDArray[np.int64]


def kinds_asked(ctx: CostContext, search: Search) -> list[int]:
    """The recompute kinds that mean something for the model and that `search:` leaves, as codes."""
    wanted, counts = search.recompute, search.recompute_layers
    names = [name for name in recompute_kinds(ctx) if wanted is None or name in wanted]
    if counts is not None and 0 not in counts:
        names = [name for name in names if name == "full"]
    return [RECOMPUTE.index(name) for name in names]


def fits_bare(ctx: CostContext, search: Search, table: LayoutTable) -> NDArray[np.bool_]:
    """Which layouts fit with nothing run again, and exchanges with experts overlapped if any can
    be."""
    if overlaps_exchanges(ctx, search):
        beside = can_overlap_dispatch(ctx, table).astype(np.int64)
        table = replace(table, overlap_ep=beside)
    return accepted(ctx, search, table)


def chooses_counts(ctx: CostContext, search: Search) -> bool:
    """Whether the search chooses counts itself: where software can count, the layers are alike, and
    `search:` names none."""
    free = search.recompute_layers is None and search.objective != "least_memory"
    return free and _can_count(ctx)


def counts_in_splits(ctx: CostContext, search: Search) -> bool:
    """Whether layouts that run layers again by count are searched in every split: where the search
    chooses counts, or `search:` names some."""
    asked = chooses_counts(ctx, search) or any(search.recompute_layers or ())
    return asked and _can_count(ctx) and FULL in kinds_asked(ctx, search)


def _can_count(ctx: CostContext) -> bool:
    return ctx.software.recompute_counts and layers_alike(ctx)


def in_every_count(ctx: CostContext, search: Search, table: LayoutTable) -> LayoutTable:
    """Layouts that run all layers again, in every count of some that `search:` leaves and that some
    split of the layers has; all other layouts are left out."""
    counts = search.recompute_layers
    full = table.take(_countable(table))
    most = (ctx.model.num_layers - 1) // (full.pp * full.vp)
    wanted = range(1, int(most.max(initial=0)) + 1)
    found = table.take(slice(0))
    for layers in wanted if counts is None else sorted(set(counts) & set(wanted)):
        at = np.flatnonzero(most >= layers)
        found = found.joined(_counted(full.take(at), np.full(len(at), layers)))
    return found


def _countable(table: LayoutTable) -> Ints:
    """Positions of the layouts that run all layers again and may count them."""
    whole = (table.recompute_index == FULL) & (table.recompute_layers == 0)
    plain = runs(table, "1f1b", "interleaved") & ~offloads_activations(table)
    return np.flatnonzero(whole & plain)


def with_counts(ctx: CostContext, search: Search, table: LayoutTable) -> LayoutTable:
    """A table crossed with recompute kinds, and of each layout that runs all layers again, and does
    not fit with nothing run again, the one with the fewest that fits."""
    at = _countable(table)
    if not len(at):
        return table
    full = table.take(at)
    ends = chunk_range(ctx.model.num_layers, full, ctx.reserved)
    fewest, most = (np.broadcast_to(n, (len(full),)) for n in ends)
    most = np.minimum(fewest, most - 1)
    open_ = most > 0
    if RECOMPUTE.index("none") in kinds_asked(ctx, search):
        bare = replace(full, recompute_index=np.zeros(len(full), dtype=np.int64))
        open_ = open_ & ~accepted(ctx, search, bare)
    full, most = full.take(open_), most[open_]
    fits = accepted(ctx, search, _counted(full, most))
    full = full.take(fits)
    return table.joined(_counted(full, _fewest_that_fit(ctx, search, full, most[fits])))


def _fewest_that_fit(ctx: CostContext, search: Search, table: LayoutTable, most: Ints) -> Ints:
    """The least count with which each layout fits; all fit with `most`. Shape (rows)."""
    low, high = np.zeros_like(most), most.copy()  # low does not fit, or is none; high fits
    while np.any(left := high - low > 1):
        at = np.flatnonzero(left)
        middle = (low[at] + high[at]) // 2
        fits = accepted(ctx, search, _counted(table.take(at), middle))
        high[at[fits]], low[at[~fits]] = middle[fits], middle[~fits]
    return high


def _counted(table: LayoutTable, layers: Ints) -> LayoutTable:
    return replace(table, recompute_layers=np.asarray(layers, dtype=np.int64))
