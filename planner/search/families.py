"""Searching layouts family by family: most need never be written out.

Layouts of a family differ in their kind of context parallelism, in what they run again and in
whether exchanges with experts overlap. Running something again never makes a step shorter, and no
kind of context parallelism is faster than free. So, whether or not such a layout fits,

    L(family) = min over the overlaps of L(nothing run again, context-parallel traffic free)
    L(kind)   = min over the overlaps of L(nothing run again), of a family in one kind

are lower bounds of all that is in them. By rising bound families are split into kinds and kinds
written out, a first part of each, and searched as ever (`planner.search.optimize`). What is left
with a bound within the search's own threshold follows; the answer is proven once nothing is.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.cost.context import CostContext
from planner.layouts.layout import LayoutTable
from planner.problem.scenario import Search
from planner.search.certify import certify
from planner.search.optimize import BOUND_SLACK, search
from planner.search.placement import SideConstraints
from planner.search.pool import Pool
from planner.search.problem import AnySplit, LayoutProblem, any_kind_bounds
from planner.search.protocol import Progress, SearchProblem, SearchResult, Status, Watch, unwatched
from planner.search.robust import Scaled, weights
from planner.search.rules.experts import can_overlap_dispatch
from planner.search.space.crossings import overlaps_exchanges
from planner.search.space.enumerate import MEMORY_RULE, families, kinds, members
from planner.search.space.recompute import counts_in_splits, in_every_count
from planner.search.space.room import accepted, searches_splits
from planner.search.splits.rows import BestSplits, SplitProblem

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

BOUND_RULE = "bound"
"""Id under which families and kinds are counted whose bound lies above all that is asked for."""

FIRST_FAMILIES, FIRST_KINDS, GROWTH = 4096, 4096, 4
"""Families split into kinds and kinds written out at first, and how many times as many each time
that nothing of them fits; with a threshold all within it follow at once."""


MOST_KINDS = 1024
"""More kinds of context parallelism than a family has."""


@dataclass(frozen=True)
class Answer:
    """The layouts that were written out and fit, the search's answer over them, what was not.

    result is null where no layout fits; legal has those written out, whether they fit or not;
    best_splits: how many were given their best split of layers over stages.
    """

    problem: LayoutProblem
    legal: LayoutTable
    result: SearchResult | None
    excluded: Counter[str]
    best_splits: int = 0


class _StoppedError(Exception):
    """The search is to stop, and has something to show."""


class _Watched:
    """A search in parts: its best so far, its watch and its time limit."""

    def __init__(self, watch: Watch, time_limit_seconds: float | None) -> None:
        self.watch = watch
        self.deadline = np.inf if time_limit_seconds is None else time.monotonic()
        self.deadline += time_limit_seconds or 0.0
        self.limited = time_limit_seconds is not None
        self.result: SearchResult | None = None
        self.layouts = 0
        self.rest = 0.0

    @property
    def seconds_left(self) -> float | None:
        """Of the time limit."""
        return max(0.0, self.deadline - time.monotonic()) if self.limited else None

    def is_over(self, found_more: bool = False) -> bool:
        """Whether time is up or the watch, which is told how far the search is, wishes to stop, and
        there is an answer: from a search, or to be had by one of what was found since."""
        found, best = self.result, self.best
        spent = 0 if found is None else found.counts.placements
        stops = self.watch(Progress(self.layouts, 0, spent, best, min(best, self.rest)))
        return (stops or time.monotonic() >= self.deadline) and (best < np.inf or found_more)

    def stopped(
        self, now: LayoutProblem, then: LayoutProblem, asked: Search, top_k: int
    ) -> tuple[LayoutProblem, SearchResult]:
        """The best so far, and its problem: splits found since the last search count too."""
        found = self.result
        assert found is not None
        if isinstance(now, SplitProblem) and now.splits != getattr(then, "splits", []):
            found, then = search_table(now, asked, top_k) or found, now
        bound = _least(found.bound_seconds, self.rest)
        return then, replace(found, status="feasible", bound_seconds=bound)

    @property
    def best(self) -> float:
        """The least seen so far; inf before there is any."""
        return np.inf if self.result is None else self.result.objective_seconds or np.inf

    def told(self, progress: Progress, /) -> bool:
        """The watch, told of the best before, and of bounds that hold for all that is left."""
        best, bound = min(progress.best_seconds, self.best), min(progress.bound_seconds, self.rest)
        return self.watch(replace(progress, best_seconds=best, bound_seconds=bound))

    def by_parts(self, table: LayoutTable, formula: Callable[[LayoutTable], Any]) -> Any:
        """`formula` of a table, one value a row, in parts between which the watch is told."""
        starts = range(0, len(table), PART_ROWS) or [0]
        parts = []
        for start in starts:
            if self.is_over():
                raise _StoppedError
            parts.append(formula(table.take(slice(start, start + PART_ROWS))))
        return np.concatenate(parts)


PART_ROWS = 1 << 18
"""Rows whose bounds or memory are computed before the watch is told again."""


def search_families(
    ctx: CostContext,
    asked: Search,
    top_k: int,
    time_limit_seconds: float | None,
    watch: Watch = unwatched,
) -> Answer:
    """The `top_k` best layouts of the scenario's, proven, with what ruled out the others.

    Out of time, or stopped by its watch, the best so far.
    """
    known = _Watched(watch, time_limit_seconds)
    table, excluded = families(ctx, asked)
    whole = Pool(table, known.by_parts(table, lambda part: family_bounds(ctx, asked, part)))
    split = Pool(table.take(slice(0)), np.zeros(0))
    legal = fit = table.take(slice(0))
    best = BestSplits(ctx, asked, top_k, legal)
    threshold, size = np.inf, FIRST_KINDS
    problem = LayoutProblem(ctx, legal)
    if searches_splits(ctx, asked):
        # the best in the default split is found much sooner, and what is worse is left out
        usual = asked.replace(stages="default")
        first = search_families(ctx, usual, top_k, known.seconds_left, known.told)
        problem, known.result = first.problem, first.result
        if first.result is not None and first.result.status in ("feasible", "unknown"):
            return replace(first, result=replace(first.result, bound_seconds=whole.rest))
        if first.result is not None and first.result.status == "optimal":
            threshold = first.result.threshold_seconds
    more_rows = len(table) > 0
    while more_rows:
        known.rest = min(whole.rest, split.rest, best.bound)
        try:
            # families first: one that is left may hold a better kind than those that are split
            of_kinds, more = kinds(ctx, asked, whole.take(max(FIRST_FAMILIES, size), threshold))
            excluded += more
            lower = known.by_parts(of_kinds, lambda part: kind_bounds(ctx, asked, part))
            split.add(of_kinds, lower)
            floor, near_kinds = split.rest, split.take(size, threshold)
            written, more = members(ctx, asked, near_kinds)
            excluded += more
            legal = legal.joined(written)
            known.layouts = problem.num_shapes
            fits = known.by_parts(written, lambda part: accepted(ctx, asked, part))
            fitting = written.take(fits)
            excluded[MEMORY_RULE] += len(written) - len(fitting)
            lower = known.by_parts(fitting, lambda part: kind_bounds(ctx, asked, part, False))
        except _StoppedError:
            problem, stopped = known.stopped(best.problem(fit), problem, asked, top_k)
            return Answer(problem, legal, stopped, excluded, best.solved)
        near = lower <= threshold
        excluded[BOUND_RULE] += int(np.count_nonzero(~near))
        fit = fit.joined(fitting.take(near))
        if searches_splits(ctx, asked):
            plain = written.recompute_layers == 0
            best.add(written.take(plain), fits[plain], floor)
            best.add(*_only_in_splits(ctx, asked, near_kinds), floor)
        earlier, before = problem, known.result
        problem, known.rest = best.problem(fit), min(whole.rest, split.rest, best.bound)
        result = search_table(problem, asked, top_k, known.seconds_left, known.told)
        known.result = result
        if result is not None and result.status not in ("optimal", "infeasible"):
            known.result = _better(before, result)
            problem = problem if known.result is result else earlier
            break  # out of time, or stopped
        if result is not None and result.status == "optimal":
            threshold = result.threshold_seconds
            best.seen(problem, result)
        more_rows = min(whole.rest, split.rest) <= threshold and bool(whole.left or split.left)
        more_rows = more_rows or best.solve(known.is_over) > 0
        size = size * GROWTH if threshold == np.inf else len(table) * MOST_KINDS
    rest, result = min(whole.rest, split.rest, best.rest), known.result
    if result is not None and min(rest, best.open_seconds) < np.inf:
        excluded[BOUND_RULE] += whole.left + split.left
        result = _bounded_by(result, min(rest, best.open_seconds), best.rest <= threshold)
    return Answer(problem, legal, result, excluded, best.solved)


def _bounded_by(result: SearchResult, rest: float, waits: bool) -> SearchResult:
    """What was found, with the bound of what is left; waits: whether some of it may be among the
    best, and time is over."""
    bound, least = _least(result.bound_seconds, rest), result.objective_seconds or np.inf
    proven = result.status == "optimal" and not waits and bound >= least
    status: Status = result.status if proven or result.status != "optimal" else "feasible"
    return replace(result, status=status, bound_seconds=bound)


def _only_in_splits(
    ctx: CostContext, asked: Search, of_kinds: LayoutTable
) -> tuple[LayoutTable, BoolArray]:
    """Layouts that only another split can need: they run again what the default split need not, or
    another count of layers. Whether they fit in that one is not asked."""
    found = members(ctx, asked, of_kinds, spared=True)[0]
    found = found.take(found.recompute_layers == 0)
    if counts_in_splits(ctx, asked):
        whole = asked.replace(recompute=("full",), recompute_layers=(0,))
        found = found.joined(in_every_count(ctx, asked, members(ctx, whole, of_kinds)[0]))
    return found, np.zeros(len(found), dtype=bool)


def family_bounds(ctx: CostContext, asked: Search, table: LayoutTable) -> FloatArray:
    """Lower bounds, in seconds, of the steps of each family's layouts, shape (families), in any
    split of their layers where splits are searched.

    With `search: {robust: true}` of the upper ends of their bars, whose kind a family shares; where
    the batch is a band, of the greatest batch's tokens at the layout's rate.
    """
    any_split = searches_splits(ctx, asked)

    def bounds(part: LayoutTable) -> FloatArray:
        lower, cut = np.zeros(len(part)), np.asarray(part.cp > 1)
        lower[~cut] = bounded(ctx, part.take(~cut), any_split)
        lower[cut] = any_kind_bounds(ctx, part.take(cut), any_split)
        return lower

    return _least_over_overlaps(ctx, asked, table, bounds)


def kind_bounds(
    ctx: CostContext, asked: Search, table: LayoutTable, any_split: bool = True
) -> FloatArray:
    """As of `family_bounds`, of families in one kind of context parallelism."""
    any_split = any_split and searches_splits(ctx, asked)
    return _least_over_overlaps(ctx, asked, table, lambda part: bounded(ctx, part, any_split))


def bounded(ctx: CostContext, table: LayoutTable, any_split: bool) -> FloatArray:
    """Lower bounds of a table's layouts in the default split, or in any."""
    return (AnySplit if any_split else LayoutProblem)(ctx, table).lower_bounds()


def _least_over_overlaps(
    ctx: CostContext,
    asked: Search,
    table: LayoutTable,
    bounds: Callable[[LayoutTable], FloatArray],
) -> FloatArray:
    """The least of the bounds without and, where that can be, with overlapped exchanges."""
    if not len(table):
        return np.zeros(0)
    lower = bounds(table)
    if overlaps_exchanges(ctx, asked):
        able = np.flatnonzero(can_overlap_dispatch(ctx, table))
        if len(able):
            beside = replace(table.take(able), overlap_ep=np.ones(len(able), dtype=np.int64))
            lower[able] = np.minimum(lower[able], bounds(beside))
    factor = weights(ctx, asked, table)
    if factor is not None:
        lower = lower * factor
    return np.asarray(lower * (1.0 - BOUND_SLACK))


def _better(before: SearchResult | None, stopped: SearchResult) -> SearchResult:
    """What a search that was stopped found, or the one before it where that found better; its
    layouts come first in both tables."""
    if before is None or before.objective_seconds is None:
        return stopped
    if (stopped.objective_seconds or np.inf) <= before.objective_seconds:
        return stopped
    bound = _least(stopped.bound_seconds, before.objective_seconds)
    return replace(before, status="feasible", bound_seconds=bound, counts=stopped.counts)


def search_table(
    plain: LayoutProblem,
    asked: Search,
    top_k: int,
    time_limit_seconds: float | None = None,
    watch: Watch = unwatched,
) -> SearchResult | None:
    """The search's answer, checked without its solver; null where there is nothing to search."""
    if not plain.num_shapes:
        return None
    problem: SearchProblem = plain
    factor = weights(plain.ctx, asked, plain.table)
    if factor is not None:
        problem = Scaled(plain, factor)
    constraints = SideConstraints(orders=asked.orders)
    result = search(
        problem,
        top_k=top_k,
        tie_fraction=asked.tie_fraction,
        time_limit_seconds=time_limit_seconds,
        constraints=constraints,
        watch=watch,
    )
    certificate = certify(problem, result, tie_fraction=asked.tie_fraction, constraints=constraints)
    if not certificate.valid:
        raise AssertionError("; ".join(certificate.failures))
    return result


def _least(bound: float | None, rest: float) -> float:
    return rest if bound is None else min(bound, rest)
