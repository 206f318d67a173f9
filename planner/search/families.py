"""The search of a scenario: branch and bound over families of layouts, proven.

A scenario may have millions of legal layouts. They form a tree, with a lower bound at every node
(`planner.search.family_bounds`):

    family                                all choices but those below
      family in one kind                  + kind of context parallelism
        layout                            + recompute, overlap of dispatch and combine
          layout with a placement         + which degree lives in which tier

The search repeats three phases until no family is needed:

1. *branch*: open families and kinds by rising bound, up to a number or, once there is a threshold,
   all whose bound lies within it; keep the layouts that fit in memory;
2. *search* the layouts so far: open them best first, cost every placement exactly, choose by the
   assignment model and certify the answer (`planner.search.optimize`, `assign`, `certify`). Its
   threshold is max(step of the K-th best layout, end of the tie band);
3. where other stage splits are searched, find the best split of the layouts that could still be
   among the best (`planner.search.stage_splits`).

**Why that is a proof.** What was never enumerated has a bound above the threshold; what was
enumerated is in the last search, which is exact, or has a bound above the threshold too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import numpy as np

from planner.cost.context import CostContext
from planner.layouts.arrays import BoolArray
from planner.layouts.layout import LayoutTable
from planner.problem.scenario import Search
from planner.search import optimize
from planner.search.certify import certify
from planner.search.family_bounds import family_bounds, kind_bounds
from planner.search.interface import (
    Budget,
    Progress,
    SearchProblem,
    SearchResult,
    SideConstraints,
    Status,
    Watch,
    unwatched,
)
from planner.search.layout_problem import LayoutProblem
from planner.search.open_list import OpenList
from planner.search.space.enumerate import MEMORY_RULE, families, kinds, members
from planner.search.space.limits import fits_in_memory, searches_splits
from planner.search.space.recompute import counts_in_splits, in_every_count
from planner.search.stage_splits.split_search import StageSplitSearch
from planner.search.weighted_steps import WeightedProblem, step_weights

BOUND_RULE = "bound"
"""Id under which families and layouts are counted whose bound lies above the threshold."""

FIRST_FAMILIES, FIRST_KINDS, GROWTH = 4096, 4096, 4
"""Families and kinds that are opened at first, and how many times as many in each further round
while there is no threshold; once there is one, all within it are opened at once."""

MOST_KINDS = 1024
"""No family has so many kinds of context parallelism."""

REPORTED_ROWS = 1 << 18
"""Rows whose bounds or memory are computed between two reports of progress."""


@dataclass(frozen=True)
class Answer:
    """The search's answer, the layouts that it is over, and what was ruled out.

    problem: the enumerated layouts that fit; legal: those enumerated, whether they fit or not;
    result: None where no layout fits; excluded: rule → (partial) layouts that it ruled out;
    best_splits: layouts whose best stage split was computed.
    """

    problem: LayoutProblem
    legal: LayoutTable
    result: SearchResult | None
    excluded: Counter[str]
    best_splits: int = 0


def search_families(
    ctx: CostContext,
    search: Search,
    top_k: int,
    time_limit_seconds: float | None,
    watch: Watch = unwatched,
) -> Answer:
    """The `top_k` best layouts of a scenario, proven, with what ruled out the others.

    Out of time, or stopped by its watch, the best so far with its gap.

    Raises:
        SolverError: the assignment model has no proof.
    """
    run = _FamilySearch(ctx, search, top_k, Budget.of(time_limit_seconds, watch))
    if searches_splits(ctx, search):
        # the default split is searched much faster, and its threshold closes most families
        default = run.search_default_split()
        if default.result is not None and default.result.status in ("feasible", "unknown"):
            return run.unfinished_default(default)
        run.start_from(default)
    more = run.num_families > 0
    while more:
        try:
            run.branch()
        except _StoppedError:
            return run.stopped_answer()
        if not run.search_layouts():
            break
        more = run.has_open_families or run.finds_better_splits()
        run.grow()
    return run.answer()


class _StoppedError(Exception):
    """The budget is spent, and there is an answer to show."""


class _Tracker:
    """The best result of a search in rounds so far, the bound of what is open, and its budget.

    open_bound: seconds; no layout that is still open is faster.
    """

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.result: SearchResult | None = None
        self.num_layouts = 0
        self.open_bound = 0.0

    @property
    def best_seconds(self) -> float:
        """The lowest step so far; inf before there is any."""
        return inf if self.result is None else self.result.objective_seconds or inf

    def must_stop(self, has_other_answer: bool = False) -> bool:
        """Report the progress; whether the budget is spent and there is an answer to show.

        has_other_answer: whether one can be had that `result` does not know of yet.
        """
        best = self.best_seconds
        progress = Progress(
            layouts=self.num_layouts,
            opened=0,
            placements=0 if self.result is None else self.result.counts.placements,
            best_seconds=best,
            bound_seconds=min(best, self.open_bound),
        )
        return self.budget.is_spent(progress) and (best < inf or has_other_answer)

    def watch(self, progress: Progress, /) -> bool:
        """The watch of an inner search: best and bound count what is outside it as well."""
        return self.budget.watch(
            replace(
                progress,
                best_seconds=min(progress.best_seconds, self.best_seconds),
                bound_seconds=min(progress.bound_seconds, self.open_bound),
            )
        )

    def in_blocks(self, table: LayoutTable, formula: Callable[[LayoutTable], Any]) -> Any:
        """`formula` of a table, one value per row; progress is reported between blocks.

        Raises:
            _StoppedError: the budget is spent.
        """
        blocks = []
        for start in range(0, len(table), REPORTED_ROWS) or [0]:
            if self.must_stop():
                raise _StoppedError
            blocks.append(formula(table.take(slice(start, start + REPORTED_ROWS))))
        return np.concatenate(blocks)


class _FamilySearch:
    """The state of one search; its methods are the phases of `search_families`."""

    def __init__(self, ctx: CostContext, search: Search, top_k: int, budget: Budget) -> None:
        """Enumerate the families and bound them."""
        self.ctx, self.search, self.top_k = ctx, search, top_k
        self.tracker = _Tracker(budget)
        table, self.excluded = families(ctx, search)
        self.num_families = len(table)
        lower = self.tracker.in_blocks(table, lambda block: family_bounds(ctx, search, block))
        self.open_families, self.open_kinds = OpenList(table, lower), OpenList.empty(table)
        self.legal = self.fitting = table.take(slice(0))
        self.stage_splits = StageSplitSearch(ctx, search, top_k, self.legal)
        self.problem = LayoutProblem(ctx, self.legal)
        self.threshold = inf
        self.batch = FIRST_KINDS

    @property
    def families_bound(self) -> float:
        """No layout that is not enumerated is faster; inf where all are."""
        return min(self.open_families.bound, self.open_kinds.bound)

    # --- the default split first ---

    def search_default_split(self) -> Answer:
        """The same search over the default split of the layers only."""
        default = self.search.replace(stages="default")
        seconds_left = self.tracker.budget.seconds_left
        return search_families(self.ctx, default, self.top_k, seconds_left, self.tracker.watch)

    def unfinished_default(self, default: Answer) -> Answer:
        """The answer of a search stopped in the default split: families bound the other splits."""
        assert default.result is not None
        bounded = replace(default.result, bound_seconds=self.open_families.bound)
        return replace(default, result=bounded)

    def start_from(self, default: Answer) -> None:
        """Take the answer in the default split as the best so far."""
        self.problem, self.tracker.result = default.problem, default.result
        if default.result is not None and default.result.status == "optimal":
            self.threshold = default.result.threshold_seconds

    # --- phase 1: branch ---

    def branch(self) -> None:
        """Open families and kinds by rising bound; keep the layouts that fit and may be needed.

        Raises:
            _StoppedError: the budget is spent.
        """
        self._update_open_bound()
        # families first: one that is left may hold a better kind than those opened before
        self._open_families()
        floor_seconds = self.open_kinds.bound
        of_kinds = self.open_kinds.take(self.batch, self.threshold)
        layouts = self._counted(members(self.ctx, self.search, of_kinds))
        self.legal = self.legal.joined(layouts)
        self.tracker.num_layouts = self.problem.num_layouts
        fits = self._keep_fitting(layouts)
        if searches_splits(self.ctx, self.search):
            plain = layouts.recompute_layers == 0
            self.stage_splits.add(layouts.take(plain), fits[plain], floor_seconds)
            others = _layouts_of_other_splits(self.ctx, self.search, of_kinds)
            self.stage_splits.add(others, np.zeros(len(others), dtype=bool), floor_seconds)

    def _open_families(self) -> None:
        """Split families into kinds of context parallelism, and bound those."""
        near = self.open_families.take(max(FIRST_FAMILIES, self.batch), self.threshold)
        of_kinds = self._counted(kinds(self.ctx, self.search, near))
        lower = self.tracker.in_blocks(
            of_kinds, lambda block: kind_bounds(self.ctx, self.search, block)
        )
        self.open_kinds.add(of_kinds, lower)

    def _keep_fitting(self, layouts: LayoutTable) -> BoolArray:
        """Keep layouts that fit and whose bound, in the default split, lies within the threshold.

        Returns which of them fit.
        """
        fits: BoolArray = self.tracker.in_blocks(
            layouts, lambda block: fits_in_memory(self.ctx, self.search, block)
        )
        fitting = layouts.take(fits)
        self.excluded[MEMORY_RULE] += len(layouts) - len(fitting)
        lower = self.tracker.in_blocks(
            fitting, lambda block: kind_bounds(self.ctx, self.search, block, any_split=False)
        )
        near = lower <= self.threshold
        self.excluded[BOUND_RULE] += int(np.count_nonzero(~near))
        self.fitting = self.fitting.joined(fitting.take(near))
        return fits

    def _counted(self, branched: tuple[LayoutTable, Counter[str]]) -> LayoutTable:
        """The table of an enumeration, whose exclusions are added up."""
        table, excluded = branched
        self.excluded += excluded
        return table

    def _update_open_bound(self) -> None:
        self.tracker.open_bound = min(self.families_bound, self.stage_splits.bound)

    # --- phase 2: search what is enumerated ---

    def search_layouts(self) -> bool:
        """Search the layouts so far, in the default split and in better ones.

        Returns whether the search came to its end.
        """
        earlier, before = self.problem, self.tracker.result
        self.problem = self.stage_splits.problem(self.fitting)
        self._update_open_bound()
        result = certified_search(
            self.problem,
            self.search,
            self.top_k,
            self.tracker.budget.seconds_left,
            self.tracker.watch,
        )
        self.tracker.result = result
        if result is not None and result.status not in ("optimal", "infeasible"):
            self.tracker.result = _better(before, result)
            self.problem = self.problem if self.tracker.result is result else earlier
            return False
        if result is not None and result.status == "optimal":
            self.threshold = result.threshold_seconds
            self.stage_splits.record(self.problem, result)
        return True

    # --- phase 3: other stage splits, and what is left ---

    @property
    def has_open_families(self) -> bool:
        """Whether a family or a kind is open that could hold one of the best layouts."""
        num_open = len(self.open_families) + len(self.open_kinds)
        return num_open > 0 and self.families_bound <= self.threshold

    def finds_better_splits(self) -> bool:
        """Compute best splits of the layouts that wait; whether some beat the default split."""
        return self.stage_splits.solve(self.tracker.must_stop) > 0

    def grow(self) -> None:
        """Open more in the next round; with a threshold all that lies within it."""
        has_threshold = self.threshold < inf
        self.batch = self.num_families * MOST_KINDS if has_threshold else self.batch * GROWTH

    # --- the answer ---

    def answer(self) -> Answer:
        """The best of all rounds, with the bound of what was not searched."""
        result = self.tracker.result
        waiting = self.stage_splits.waiting_bound
        rest = min(self.families_bound, waiting, self.stage_splits.open_seconds)
        if result is not None and rest < inf:
            self.excluded[BOUND_RULE] += len(self.open_families) + len(self.open_kinds)
            result = _bounded_by(result, rest, splits_wait=waiting <= self.threshold)
        return self._answer(self.problem, result)

    def stopped_answer(self) -> Answer:
        """The best so far; stage splits computed since the last search count too."""
        result, problem = self.tracker.result, self.problem
        assert result is not None  # there was something to show
        if self.stage_splits.splits != tuple(getattr(problem, "splits", ())):
            problem = self.stage_splits.problem(self.fitting)
            result = certified_search(problem, self.search, self.top_k) or result
        bound = _lower_of(result.bound_seconds, self.tracker.open_bound)
        return self._answer(problem, replace(result, status="feasible", bound_seconds=bound))

    def _answer(self, problem: LayoutProblem, result: SearchResult | None) -> Answer:
        return Answer(problem, self.legal, result, self.excluded, self.stage_splits.num_solved)


def _layouts_of_other_splits(
    ctx: CostContext, search: Search, of_kinds: LayoutTable
) -> LayoutTable:
    """Layouts that only another stage split can need.

    They recompute what the default split, in which they fit without, need not; or they recompute
    another count of layers. Whether they fit in the default split does not matter.
    """
    spared = members(ctx, search, of_kinds, spared=True)[0]
    layouts = spared.take(spared.recompute_layers == 0)
    if counts_in_splits(ctx, search):
        full = search.replace(recompute=("full",), recompute_layers=(0,))
        of_full = members(ctx, full, of_kinds)[0]
        layouts = layouts.joined(in_every_count(ctx, search, of_full))
    return layouts


def certified_search(
    problem: LayoutProblem,
    search: Search,
    top_k: int,
    time_limit_seconds: float | None = None,
    watch: Watch = unwatched,
) -> SearchResult | None:
    """The best-first search of a problem's layouts, certified; None where there are no layouts.

    Raises:
        AssertionError: the certificate fails, so that no answer can be shown.
    """
    if not problem.num_layouts:
        return None
    compared: SearchProblem = problem
    weights = step_weights(problem.ctx, search, problem.table)
    if weights is not None:
        compared = WeightedProblem(problem, weights)
    constraints = SideConstraints(orders=search.orders)
    result = optimize.search(
        compared,
        top_k=top_k,
        tie_fraction=search.tie_fraction,
        time_limit_seconds=time_limit_seconds,
        constraints=constraints,
        watch=watch,
    )
    certificate = certify(
        compared, result, tie_fraction=search.tie_fraction, constraints=constraints
    )
    if not certificate.valid:
        raise AssertionError("; ".join(certificate.failures))
    return result


# --- results with the bound of the rest -----------------------------------------------------------


def _bounded_by(result: SearchResult, rest_seconds: float, splits_wait: bool) -> SearchResult:
    """A result that also counts the bound of the rest.

    splits_wait: whether layouts that could be among the best still wait for their best split.
    """
    bound = _lower_of(result.bound_seconds, rest_seconds)
    reached = bound >= (result.objective_seconds or inf)
    status: Status = result.status
    if status == "optimal" and (splits_wait or not reached):
        status = "feasible"
    return replace(result, status=status, bound_seconds=bound)


def _better(before: SearchResult | None, stopped: SearchResult) -> SearchResult:
    """The result of a search that was stopped, or of the one before it where that is better.

    The layouts of the one before come first in both tables, so its indices stay true.
    """
    if before is None or before.objective_seconds is None:
        return stopped
    if (stopped.objective_seconds or inf) <= before.objective_seconds:
        return stopped
    bound = _lower_of(stopped.bound_seconds, before.objective_seconds)
    return replace(before, status="feasible", bound_seconds=bound, counts=stopped.counts)


def _lower_of(bound_seconds: float | None, rest_seconds: float) -> float:
    return rest_seconds if bound_seconds is None else min(bound_seconds, rest_seconds)
