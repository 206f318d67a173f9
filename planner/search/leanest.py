"""The layouts of the lowest peak of memory, proven, and among them the fastest placement.

A peak belongs to the layout alone, not to its placement. `memory.floor_bytes` is a lower bound of
the peaks of a family, whatever it runs again: by rising floor families are written out, until the
next floor lies above the least peak seen. Layouts within the tie fraction of it are alike; of
those the search (`planner.search.families`) names the fastest.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from planner.cost import memory
from planner.cost.context import CostContext
from planner.layouts.layout import LayoutTable
from planner.problem.scenario import Search
from planner.search.families import BOUND_RULE, Answer, search_table
from planner.search.pool import Pool
from planner.search.problem import LayoutProblem
from planner.search.protocol import Watch, unwatched
from planner.search.space.enumerate import MEMORY_RULE, families, kinds, members
from planner.search.space.room import accepted, in_blocks

FloatArray = NDArray[np.float64]

FIRST_FAMILIES, MOST_FAMILIES = 256, 8192
"""Families written out at first and at most at a time, twice as many each time."""


@dataclass(frozen=True)
class Leanest:
    """The fastest of the layouts of the least peak, that peak, and a bound of every peak."""

    answer: Answer
    least_bytes: float | None
    bound_bytes: float


def floors(ctx: CostContext, table: LayoutTable) -> FloatArray:
    """A lower bound, in bytes, of the peaks of each family's layouts, shape (families)."""
    return in_blocks(table, lambda part: memory.floor_bytes(ctx, part))


def search_leanest(
    ctx: CostContext,
    asked: Search,
    top_k: int,
    time_limit_seconds: float | None,
    watch: Watch = unwatched,
) -> Leanest:
    """The layouts of least peak that fit and can be placed; the fastest of them with its place."""
    deadline = inf if time_limit_seconds is None else time.monotonic() + time_limit_seconds
    table, excluded = families(ctx, asked)
    pool = Pool(table, floors(ctx, table))
    above = -inf  # peaks up to here belong to layouts that cannot be placed
    while True:
        near, least, rest, ruled_out = _nearest(ctx, asked, pool, above, deadline)
        problem = LayoutProblem(ctx, near)
        left = None if time_limit_seconds is None else max(0.0, deadline - time.monotonic())
        result = search_table(problem, asked, top_k, left, watch)
        if result is None or result.status != "infeasible":
            break
        above = least * (1.0 + asked.tie_fraction)
        pool.taken = 0
    counts = excluded + ruled_out
    if result is None:
        return Leanest(Answer(problem, near, None, counts), None, rest)
    return Leanest(Answer(problem, near, result, counts), least, min(least, rest))


def best_of(
    ctx: CostContext, asked: Search, tables: Iterable[LayoutTable], watch: Watch = unwatched
) -> Answer | None:
    """The best of some tables' layouts that fit, with its place: the fastest, or where the least
    memory is asked the fastest of the least peak. None where none fits or none can be placed."""
    lean = asked.objective == "least_memory"
    parts = []
    for legal in tables:
        fit = legal.take(accepted(ctx, asked, legal))
        parts.append((legal, fit, _peaks(ctx, fit) if lean else np.zeros(len(fit))))
    above = -inf  # peaks up to here belong to layouts that cannot be placed
    while True:
        rest = [float(peaks[peaks > above].min(initial=inf)) for *_, peaks in parts]
        least = min(rest, default=inf)
        if least == inf:
            return None
        most = least * (1.0 + asked.tie_fraction)
        answers = []
        for legal, fit, peaks in parts:
            problem = LayoutProblem(ctx, fit.take((peaks > above) & (peaks <= most)))
            result = search_table(problem, asked, 1, None, watch)
            if result is not None and result.best is not None:
                left = Counter({
                    MEMORY_RULE: len(legal) - len(fit),
                    BOUND_RULE: len(fit) - problem.num_shapes,
                })  # fmt: skip
                answers.append(
                    (result.objective_seconds or inf, Answer(problem, legal, result, left))
                )
        if answers:
            return min(answers, key=lambda pair: pair[0])[1]
        above = most


def _peaks(ctx: CostContext, table: LayoutTable) -> FloatArray:
    return in_blocks(table, lambda part: memory.worst_stage(ctx, part)[1])


def _nearest(
    ctx: CostContext, asked: Search, pool: Pool, above: float, deadline: float
) -> tuple[LayoutTable, float, float, Counter[str]]:
    """Layouts of a peak > above within the tie fraction of the least such; that least; the least
    floor of what was not looked at (inf: of nothing); what was ruled out."""
    least, size = inf, FIRST_FAMILIES
    excluded: Counter[str] = Counter()
    near, peaks = pool.table.take(slice(0)), np.zeros(0)
    while pool.left and pool.rest <= least * (1.0 + asked.tie_fraction):
        if time.monotonic() >= deadline:
            return near, least, pool.rest, excluded
        of_kinds, ruled = kinds(ctx, asked, pool.take(size, np.inf))
        written, more = members(ctx, asked, of_kinds)
        fits = accepted(ctx, asked, written)
        excluded += ruled + more
        excluded[MEMORY_RULE] += int(np.count_nonzero(~fits))
        written = written.take(fits)
        found = _peaks(ctx, written)
        within = found > above
        near, peaks = near.joined(written.take(within)), np.append(peaks, found[within])
        least = min(least, float(peaks.min(initial=np.inf)))
        kept = peaks <= least * (1.0 + asked.tie_fraction)
        excluded[BOUND_RULE] += int(np.count_nonzero(~kept))
        near, peaks = near.take(kept), peaks[kept]
        size = min(2 * size, MOST_FAMILIES)
    excluded[BOUND_RULE] += pool.left
    return near, least, inf, excluded
