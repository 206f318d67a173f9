"""Best-first search over layouts and their placements, exact under any coupled step.

The problem gives a lower bound L_i of every layout over its placements, and the exact step of any
row (a layout with one placement). The search

1. *bounds*: tightens the bounds of the most promising layouts, and later of all that are left;
2. *seeds*: costs the framework's own rank orders of the most promising layouts over all fills,
   which gives the first incumbents. Where only framework orders are allowed, costing them by
   rising bound is all there is to do;
3. *opens* layouts by rising L_i: every placement of each over every fill is costed, in blocks;
4. *stops* when no unopened layout is needed. With U the step of the K-th best distinct layout so
   far, a layout is needed if L_i < U or L_i ≤ lowest · (1 + tie_fraction);
5. *chooses* among the rows that are left by the CP-SAT assignment model (`planner.search.assign`).

**Why it is exact.** When it stops, every unopened layout has L_i ≥ U and L_i beyond the tie band.
No placement of it is faster, so none of them is among the K best layouts or the ties;
all placements of the others have been costed. Side constraints only remove rows, so a bound over
all placements stays valid. Stopped early, the answer is feasible, with the bound
min(lowest L_i of the unopened layouts, lowest step so far).
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from dataclasses import dataclass
from math import inf

import numpy as np

from planner.layouts.arrays import BoolArray, FloatArray, IntArray
from planner.search.assign import SolverError, assign, candidate_rows
from planner.search.interface import (
    NO_CONSTRAINTS,
    Budget,
    Counts,
    PlacedLayout,
    Progress,
    SearchProblem,
    SearchResult,
    SideConstraints,
    Status,
    Watch,
    unwatched,
)
from planner.search.placement import MAX_BLOCK_ROWS
from planner.search.placement_rows import (
    allowed_blocks,
    constraint_violations,
    join_blocks,
    order_rows,
    placed_layout,
    unplaceable,
)

__all__ = ["BOUND_SLACK", "search"]

BOUND_SLACK = 1e-12
"""Relative slack on bounds: bound and step may add the same terms in another order."""

_FIRST_SEEDS, _MAX_SEEDS = 64, 1024  # layouts per batch of framework orders, doubling
_TIGHTENED_FIRST = 4096  # layouts whose bounds are tightened before there is an incumbent
_FIRST_ROWS = 512  # rows per batch of opened layouts, doubling up to MAX_BLOCK_ROWS


def search(
    problem: SearchProblem,
    *,
    top_k: int = 1,
    tie_fraction: float = 0.005,
    time_limit_seconds: float | None = None,
    constraints: SideConstraints = NO_CONSTRAINTS,
    watch: Watch = unwatched,
) -> SearchResult:
    """The `top_k` best distinct layouts, each with its best placement, proven.

    Status: optimal (proven), feasible (stopped early; see the gap), infeasible (no row is allowed,
    proven) or unknown (stopped before any row was costed).

    Raises:
        ValueError: an option out of range, an unknown group, or a bound or step that is no number.
        SolverError: the assignment model has no proof.
    """
    if top_k < 1 or not tie_fraction >= 0.0:
        raise ValueError(f"top_k {top_k} must be >= 1 and tie_fraction {tie_fraction} >= 0")
    run = _BestFirst(
        problem,
        _Incumbents(problem, top_k, tie_fraction),
        constraints,
        Budget.of(time_limit_seconds, watch),
    )
    if constraints.orders == "framework":
        run.opened = run.seed(run.by_bound())
    else:
        promising = run.tighten(run.by_bound()[:_TIGHTENED_FIRST])
        run.seed(promising[:_FIRST_SEEDS])
        run.open(run.tighten(run.needed()))
    return run.result()


# --- what has been costed -------------------------------------------------------------------------


@dataclass(frozen=True)
class _Rows:
    """Costed rows: layout indices (R), placements (R, A, T), steps (R)."""

    indices: IntArray
    placements: IntArray
    seconds: FloatArray

    def take(self, rows: IntArray | BoolArray) -> _Rows:
        return _Rows(self.indices[rows], self.placements[rows], self.seconds[rows])


@dataclass(frozen=True)
class _BestRow:
    """The fastest row so far of one layout."""

    seconds: float
    index: int
    placement: IntArray


class _Incumbents:
    """Costed rows that can still matter: ties of the lowest step, and each layout's best row."""

    def __init__(self, problem: SearchProblem, top_k: int, tie_fraction: float) -> None:
        self.problem, self.top_k, self.tie_fraction = problem, top_k, tie_fraction
        self.lowest_seconds = inf
        self.kth_seconds = inf  # step of the K-th best distinct layout
        self.num_rows = 0
        self._ties: list[_Rows] = []
        self._best: dict[Hashable, _BestRow] = {}  # by the layout's identity

    @property
    def tie_limit_seconds(self) -> float:
        """The end of the tie band."""
        return self.lowest_seconds * (1.0 + self.tie_fraction)

    def needs(self, bound: float) -> bool:
        """Whether a layout of this bound could hold a tie or be one of the K best."""
        return bound < inf and (bound < self.kth_seconds or bound <= self.tie_limit_seconds)

    def cost(self, indices: IntArray, placements: IntArray) -> None:
        """Cost rows, in blocks, and keep those that matter.

        Raises:
            ValueError: a step is not a number.
        """
        for start in range(0, len(indices), MAX_BLOCK_ROWS):
            block = slice(start, start + MAX_BLOCK_ROWS)
            seconds = self.problem.step_seconds(indices[block], placements[block])
            seconds = np.asarray(seconds, dtype=np.float64)
            if np.isnan(seconds).any():
                raise ValueError("step_seconds gave a step that is not a number")
            self._keep(_Rows(indices[block], placements[block], seconds))

    def _keep(self, rows: _Rows) -> None:
        """Keep the ties and each layout's best row, and lower the thresholds."""
        seconds = rows.seconds
        self.num_rows += len(seconds)
        self.lowest_seconds = min(self.lowest_seconds, seconds.min(initial=inf).item())
        tied = np.flatnonzero((seconds <= self.tie_limit_seconds) & np.isfinite(seconds))
        if len(tied):
            self._ties.append(rows.take(tied))
        better = np.flatnonzero(seconds < self.kth_seconds)
        # of rows sorted by layout and step, the first of each layout
        better = better[np.lexsort((seconds[better], rows.indices[better]))]
        _, first = np.unique(rows.indices[better], return_index=True)
        for row in better[first].tolist():
            index, step = rows.indices[row].item(), seconds[row].item()
            identity = self.problem.identity(index)
            if identity not in self._best or step < self._best[identity].seconds:
                self._best[identity] = _BestRow(step, index, rows.placements[row].copy())
        if len(self._best) >= self.top_k:
            steps = (row.seconds for row in self._best.values())
            self.kth_seconds = heapq.nsmallest(self.top_k, steps)[-1]

    def best_rows(self) -> list[_BestRow]:
        """Every distinct layout's best row, by rising step."""
        return sorted(self._best.values(), key=lambda row: (row.seconds, row.index))

    def candidates(self) -> _Rows:
        """Distinct rows for the final choice: all ties, and the best row of the K best layouts.

        Sorted by layout, then fuller inner tiers, then larger inner factors, so that the answer
        does not depend on the order in which rows were costed.
        """
        best = self.best_rows()[: self.top_k]
        rows = [
            *(ties.take(ties.seconds <= self.tie_limit_seconds) for ties in self._ties),
            _Rows(
                np.array([row.index for row in best]),
                np.array([row.placement for row in best]),
                np.array([row.seconds for row in best]),
            ),
        ]
        every = _Rows(
            np.concatenate([each.indices for each in rows]),
            np.concatenate([each.placements for each in rows]),
            np.concatenate([each.seconds for each in rows]),
        )
        flat = every.placements.transpose(0, 2, 1).reshape(len(every.indices), -1)
        order = np.column_stack([every.indices, -every.placements.prod(axis=1), -flat])
        _, first = np.unique(order, axis=0, return_index=True)
        return every.take(first)


# --- the search -----------------------------------------------------------------------------------


class _BestFirst:
    """The state of one search: bounds so far, layouts opened, incumbents."""

    def __init__(
        self,
        problem: SearchProblem,
        incumbents: _Incumbents,
        constraints: SideConstraints,
        budget: Budget,
    ) -> None:
        self.problem, self.incumbents = problem, incumbents
        self.constraints, self.budget = constraints, budget
        self.lower = _lower_bounds(problem, constraints)
        self.opened: list[int] = []

    def by_bound(self) -> IntArray:
        """Layouts of a finite bound, by rising bound."""
        order = np.argsort(self.lower, kind="stable")
        return order[self.lower[order] < inf]

    def needed(self) -> IntArray:
        """Layouts that could still hold a tie or be one of the K best, by index."""
        finite = np.flatnonzero(self.lower < inf)
        return finite[[self.incumbents.needs(bound) for bound in self.lower[finite].tolist()]]

    def tighten(self, indices: IntArray) -> IntArray:
        """Raise the bounds of some layouts where the problem can; the same by rising bound."""
        if len(indices):
            tighter = _finite_or_inf(self.problem.tighter_bounds(indices), "tighter_bounds")
            self.lower[indices] = np.maximum(self.lower[indices], tighter)
        return indices[np.argsort(self.lower[indices], kind="stable")]

    def seed(self, order: IntArray) -> list[int]:
        """Cost all framework orders of layouts by rising bound, while they are needed.

        Returns the layouts whose framework orders are costed.
        """
        start, size = 0, _FIRST_SEEDS
        while start < len(order) and self.incumbents.needs(self.lower[order[start]].item()):
            indices, rows = order_rows(self.problem, order[start : start + size])
            violated = constraint_violations(self.problem, indices, rows, self.constraints)
            allowed = ~np.any([np.zeros(len(indices), dtype=bool), *violated.values()], axis=0)
            self.incumbents.cost(indices[allowed], rows[allowed])
            start, size = start + size, min(2 * size, _MAX_SEEDS)
            if self._must_stop(self.lower[order[0]].item()):
                break
        return [int(index) for index in order[:start]]

    def open(self, order: IntArray) -> None:
        """Cost every placement of layouts by rising bound, while they are needed."""
        waiting: list[tuple[int, IntArray]] = []  # blocks that are costed together
        num_rows, target = 0, _FIRST_ROWS
        for index in order.tolist():
            bound = self.lower[index].item()
            # the first of the rows that wait may be faster than this layout can be
            lowest_open = self.lower[waiting[0][0]].item() if waiting else bound
            if not self.incumbents.needs(bound) or self._must_stop(lowest_open):
                break
            for block in allowed_blocks(self.problem, index, self.constraints):
                if num_rows + len(block) > MAX_BLOCK_ROWS:
                    self._cost_blocks(waiting)
                    num_rows = 0
                    if self._must_stop(bound):
                        return
                waiting.append((index, block))
                num_rows += len(block)
            self.opened.append(index)
            if num_rows >= target:
                self._cost_blocks(waiting)
                num_rows, target = 0, min(2 * target, MAX_BLOCK_ROWS)
        self._cost_blocks(waiting)

    def _cost_blocks(self, waiting: list[tuple[int, IntArray]]) -> None:
        """Cost blocks of placements together, and empty the list."""
        if waiting:
            self.incumbents.cost(*join_blocks(waiting))
            waiting.clear()

    def _must_stop(self, open_bound: float) -> bool:
        """Report the progress, of open layouts with this lowest bound; whether to stop."""
        lowest = self.incumbents.lowest_seconds
        return self.budget.is_spent(
            Progress(
                layouts=self.problem.num_layouts,
                opened=len(self.opened),
                placements=self.incumbents.num_rows,
                best_seconds=lowest,
                bound_seconds=min(open_bound, lowest),
            )
        )

    def result(self) -> SearchResult:
        """The answer, and whether the bounds of the unopened layouts prove it."""
        unopened = np.ones(len(self.lower), dtype=bool)
        unopened[self.opened] = False
        open_bound = self.lower[unopened].min(initial=inf).item()
        proven = not self.incumbents.needs(open_bound)
        lowest = self.incumbents.lowest_seconds
        best = fastest = None
        runners_up: tuple[PlacedLayout, ...] = ()
        status: Status = "infeasible" if proven else "unknown"
        if lowest < inf:
            best, fastest = self._choose()
            runners_up = self._runners_up(best)
            status = "optimal" if proven else "feasible"
        bound = min(open_bound, lowest)
        return SearchResult(
            status=status,
            best=best,
            fastest=fastest,
            objective_seconds=None if fastest is None else lowest,
            bound_seconds=bound if bound < inf else None,
            threshold_seconds=max(self.incumbents.kth_seconds, self.incumbents.tie_limit_seconds),
            runners_up=runners_up,
            counts=Counts(self.problem.num_layouts, len(self.opened), self.incumbents.num_rows),
            opened_layouts=tuple(sorted(self.opened)),
        )

    def _choose(self) -> tuple[PlacedLayout, PlacedLayout]:
        """The tie rule's choice and the row of the lowest step, by the assignment model."""
        rows = self.incumbents.candidates()
        chosen = assign(
            candidate_rows(
                self.problem, rows.indices, rows.placements, rows.seconds, self.constraints
            ),
            upper_seconds=self.incumbents.kth_seconds,
            tie_fraction=self.incumbents.tie_fraction,
        )
        if chosen is None:
            raise SolverError("rows that keep the side constraints were all forbidden in the model")
        best, fastest = (
            placed_layout(
                self.problem,
                rows.indices[row].item(),
                rows.placements[row],
                rows.seconds[row].item(),
            )
            for row in (chosen.row, chosen.fastest_row)
        )
        return best, fastest

    def _runners_up(self, best: PlacedLayout) -> tuple[PlacedLayout, ...]:
        """The best rows of the next distinct layouts after the chosen one."""
        own = self.problem.identity(best.layout_index)
        others = [
            row for row in self.incumbents.best_rows() if self.problem.identity(row.index) != own
        ]
        return tuple(
            placed_layout(self.problem, row.index, row.placement, row.seconds)
            for row in others[: self.incumbents.top_k - 1]
        )


def _lower_bounds(problem: SearchProblem, constraints: SideConstraints) -> FloatArray:
    """Bounds (num_layouts); inf where the side constraints cannot be kept."""
    for group in constraints.keep_within if problem.num_layouts else ():
        if group not in problem.groups(0):
            raise ValueError(f"keep_within names {group!r}; groups: {sorted(problem.groups(0))}")
    lower = _finite_or_inf(problem.lower_bounds(), "lower_bounds")
    return np.where(unplaceable(problem, constraints), inf, lower)


def _finite_or_inf(bounds: FloatArray, name: str) -> FloatArray:
    """A problem's bounds with slack for rounding.

    Raises:
        ValueError: a bound is not a number.
    """
    lower = np.asarray(bounds, dtype=np.float64) * (1.0 - BOUND_SLACK)
    if np.isnan(lower).any():
        raise ValueError(f"{name} gave a bound that is not a number")
    return lower
