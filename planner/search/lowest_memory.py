"""The layouts of the lowest peak memory, proven, and among them the fastest placement.

A peak depends on the layout, not on its placement. Families are enumerated by rising lower
bound of their peaks (`planner.search.family_bounds`), until the next bound lies above the lowest
peak so far. Layouts within the tie fraction of that are ties; of those the best-first search names
the fastest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

import numpy as np

from planner.cost import memory
from planner.cost.context import CostContext
from planner.layouts.arrays import FloatArray
from planner.layouts.layout import LayoutTable
from planner.problem.scenario import Search
from planner.search.families import BOUND_RULE, Answer, certified_search
from planner.search.family_bounds import peak_bounds
from planner.search.interface import Budget, Watch, unwatched
from planner.search.layout_problem import LayoutProblem
from planner.search.open_list import OpenList
from planner.search.space.enumerate import MEMORY_RULE, families, kinds, members
from planner.search.space.limits import fits_in_memory, in_blocks

FIRST_FAMILIES, MOST_FAMILIES = 256, 8192
"""Families enumerated at first and at most at a time, doubling."""


@dataclass(frozen=True)
class LowestMemory:
    """The fastest of the layouts of the lowest peak, that peak, and a lower bound of every peak.

    lowest_bytes: None where no layout fits.
    """

    answer: Answer
    lowest_bytes: float | None
    bound_bytes: float


def search_lowest_memory(
    ctx: CostContext,
    search: Search,
    top_k: int,
    time_limit_seconds: float | None,
    watch: Watch = unwatched,
) -> LowestMemory:
    """The layouts of lowest peak that fit and can be placed; the fastest of them with its place."""
    budget = Budget.of(time_limit_seconds, watch)
    table, excluded = families(ctx, search)
    bounds = peak_bounds(ctx, table)
    above = -inf  # layouts of peaks up to here cannot be placed
    while True:
        ties = _lowest_peaks(ctx, search, OpenList(table, bounds), above, budget)
        problem = LayoutProblem(ctx, ties.table)
        result = certified_search(problem, search, top_k, budget.seconds_left, watch)
        if result is None or result.status != "infeasible":
            break
        above = ties.lowest_bytes * (1.0 + search.tie_fraction)
    answer = Answer(problem, ties.table, result, excluded + ties.excluded)
    if result is None:
        return LowestMemory(answer, None, ties.open_bound_bytes)
    bound = min(ties.lowest_bytes, ties.open_bound_bytes)
    return LowestMemory(answer, ties.lowest_bytes, bound)


@dataclass(frozen=True)
class _Ties:
    """Layouts within the tie fraction of the lowest peak, and what else the search knows.

    lowest_bytes: inf where no layout fits; open_bound_bytes: the lowest bound of the families that
    were not enumerated for want of time, inf where there are none; excluded: rule → layouts.
    """

    table: LayoutTable
    lowest_bytes: float
    open_bound_bytes: float
    excluded: Counter[str]


def _lowest_peaks(
    ctx: CostContext, search: Search, open_families: OpenList, above: float, budget: Budget
) -> _Ties:
    """The layouts of the lowest peaks above a number of bytes, enumerated by rising bound."""
    lowest, size = inf, FIRST_FAMILIES
    excluded: Counter[str] = Counter()
    ties, peaks = open_families.take(0), np.zeros(0)
    while len(open_families) and open_families.bound <= lowest * (1.0 + search.tie_fraction):
        if budget.is_out_of_time:
            return _Ties(ties, lowest, open_families.bound, excluded)
        of_kinds, by_kinds = kinds(ctx, search, open_families.take(size))
        layouts, by_members = members(ctx, search, of_kinds)
        fits = fits_in_memory(ctx, search, layouts)
        excluded += by_kinds + by_members
        excluded[MEMORY_RULE] += int(np.count_nonzero(~fits))
        layouts = layouts.take(fits)
        of_layouts = _peaks(ctx, layouts)
        within = of_layouts > above
        ties, peaks = ties.joined(layouts.take(within)), np.append(peaks, of_layouts[within])
        lowest = min(lowest, float(peaks.min(initial=inf)))
        kept = peaks <= lowest * (1.0 + search.tie_fraction)
        excluded[BOUND_RULE] += int(np.count_nonzero(~kept))
        ties, peaks = ties.take(kept), peaks[kept]
        size = min(2 * size, MOST_FAMILIES)
    excluded[BOUND_RULE] += len(open_families)
    return _Ties(ties, lowest, inf, excluded)


def _peaks(ctx: CostContext, table: LayoutTable) -> FloatArray:
    return in_blocks(table, lambda block: memory.worst_stage(ctx, block)[1])


# --- layouts that are given -----------------------------------------------------------------------


@dataclass(frozen=True)
class _Given:
    """Legal layouts of one table, those that fit, and what is compared before their steps."""

    legal: LayoutTable
    fitting: LayoutTable
    peaks: FloatArray


def best_of(
    ctx: CostContext, search: Search, tables: Iterable[LayoutTable], watch: Watch = unwatched
) -> Answer | None:
    """The best of some tables' legal layouts, with its place; None where none fits and is placed.

    The fastest or, where the search's objective is memory, the fastest of the lowest peak. Each
    table may have a stage split of its own, which is why they are searched one by one.
    """
    by_memory = search.objective == "least_memory"
    given = []
    for legal in tables:
        fitting = legal.take(fits_in_memory(ctx, search, legal))
        peaks = _peaks(ctx, fitting) if by_memory else np.zeros(len(fitting))
        given.append(_Given(legal, fitting, peaks))
    above = -inf  # layouts of peaks up to here cannot be placed
    while True:
        left = (float(one.peaks[one.peaks > above].min(initial=inf)) for one in given)
        lowest = min(left, default=inf)
        if lowest == inf:
            return None
        limit = lowest * (1.0 + search.tie_fraction)
        answers = []
        for one in given:
            ties = one.fitting.take((one.peaks > above) & (one.peaks <= limit))
            problem = LayoutProblem(ctx, ties)
            result = certified_search(problem, search, 1, None, watch)
            if result is not None and result.best is not None:
                excluded = Counter({
                    MEMORY_RULE: len(one.legal) - len(one.fitting),
                    BOUND_RULE: len(one.fitting) - problem.num_layouts,
                })  # fmt: skip
                answer = Answer(problem, one.legal, result, excluded)
                answers.append((result.objective_seconds or inf, answer))
        if answers:
            return min(answers, key=lambda pair: pair[0])[1]
        above = limit
