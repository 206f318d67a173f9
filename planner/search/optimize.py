"""Best-first search over layouts ("shapes") and their placements, exact under any coupled step.

The problem gives a lower bound L_i of every shape over its placements, and the exact step of any
rows. The search

1. tightens the bounds of the most promising shapes, costs the framework's own rank orders of the
   first of them over all fills (incumbents), and tightens every bound still below U. Where only
   framework orders are allowed, costing them by rising L is already everything;
2. opens shapes by rising L and costs every placement of each over every fill, in blocks;
3. stops when every unopened L_i ≥ U and L_i > least · (1 + tie_fraction), where U is the K-th best
   distinct layout seen. So the K best layouts are exact, and so is the set of ties;
4. lets the CP-SAT assignment model (`planner.search.assign`) choose among the rows that are left.

Side constraints only remove rows, so a bound over all placements stays valid. At a time limit the
answer is feasible, with bound min(least L of the unopened shapes, least step seen).
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Hashable
from math import inf

import numpy as np
from numpy.typing import NDArray

from planner.search.assign import Candidates, SolverError, assign, tie_ranks
from planner.search.placement import MAX_BLOCK_ROWS, IntArray, SideConstraints
from planner.search.protocol import (
    Counts,
    Progress,
    Row,
    SearchProblem,
    SearchResult,
    Status,
    Watch,
    unwatched,
)
from planner.search.rows import (
    blocks,
    framework_rows,
    order_rows,
    outside_rows,
    rows_of,
    unplaceable,
)

__all__ = [
    "Counts",
    "Row",
    "SearchProblem",
    "SearchResult",
    "SideConstraints",
    "best_placement",
    "search",
]

FloatArray = NDArray[np.float64]

BOUND_SLACK = 1e-12
"""Relative slack on L against rounding: bound and step may add the same terms in another order."""

_FIRST_SHAPES, _MAX_SHAPES = 64, 1024  # shapes per batch of incumbents, doubling
_TIGHTENED_FIRST = 4096  # shapes whose bounds are tightened before there is an incumbent
_FIRST_ROWS = 512  # rows per batch of opened shapes, doubling up to MAX_BLOCK_ROWS


# --- what has been seen -----------------------------------------------------------------------


class _Seen:
    """Costed rows that can still matter: ties of the least step, and each layout's best row."""

    def __init__(self, problem: SearchProblem, top_k: int, tie_fraction: float) -> None:
        self._problem, self._top_k, self._tie_fraction = problem, top_k, tie_fraction
        self._ties: list[tuple[IntArray, IntArray, FloatArray]] = []
        self._layouts: dict[Hashable, tuple[float, int, IntArray]] = {}
        self.least = self.kth = inf
        self.rows = 0

    @property
    def tie_limit(self) -> float:
        return self.least * (1.0 + self._tie_fraction)

    def needs(self, bound: float) -> bool:
        """Whether a shape of this bound could hold a tie or one of the K best layouts."""
        return bound < inf and (bound < self.kth or bound <= self.tie_limit)

    def cost(self, shapes: IntArray, placements: IntArray) -> None:
        """Cost rows, in blocks, and keep those that matter."""
        for start in range(0, len(shapes), MAX_BLOCK_ROWS):
            part = slice(start, start + MAX_BLOCK_ROWS)
            self._add(shapes[part], placements[part])

    def cost_blocks(self, blocks: list[tuple[int, IntArray]]) -> None:
        """Cost blocks of placements, each of one shape, together."""
        if blocks:
            self.cost(*rows_of(blocks))

    def _add(self, shapes: IntArray, placements: IntArray) -> None:
        seconds = np.asarray(self._problem.score_rows(shapes, placements), dtype=np.float64)
        if np.isnan(seconds).any():
            raise ValueError("score_rows gave a step that is not a number")
        self.rows += len(shapes)
        self.least = min(self.least, seconds.min(initial=inf).item())
        tied = np.flatnonzero((seconds <= self.tie_limit) & np.isfinite(seconds))
        if len(tied):
            self._ties.append((shapes[tied], placements[tied], seconds[tied]))
        better = np.flatnonzero(seconds < self.kth)
        better = better[np.lexsort((seconds[better], shapes[better]))]
        _, first = np.unique(shapes[better], return_index=True)
        for row in better[first].tolist():
            shape, step = shapes[row].item(), seconds[row].item()
            key = self._problem.key(shape)
            if step < self._layouts.get(key, (inf,))[0]:
                self._layouts[key] = (step, shape, placements[row].copy())
        if len(self._layouts) >= self._top_k:
            steps = (step for step, _, _ in self._layouts.values())
            self.kth = heapq.nsmallest(self._top_k, steps)[-1]

    def candidates(self) -> tuple[IntArray, IntArray, FloatArray]:
        """Distinct rows for the final choice: all ties, and the best row of the K best layouts.

        Sorted by shape, then fuller inner tiers, then larger inner factors.
        """
        rows = [
            (shapes[tied], placements[tied], seconds[tied])
            for shapes, placements, seconds in self._ties
            for tied in [seconds <= self.tie_limit]
        ]
        steps, numbers, best = zip(*self.layouts()[: self._top_k], strict=True)
        rows.append((np.array(numbers), np.array(best), np.array(steps)))
        shapes, placements, seconds = (
            np.concatenate([part[column] for part in rows]) for column in range(3)
        )
        flat = placements.transpose(0, 2, 1).reshape(len(shapes), -1)
        order = np.column_stack([shapes, -placements.prod(axis=1), -flat])
        _, first = np.unique(order, axis=0, return_index=True)
        return shapes[first], placements[first], seconds[first]

    def layouts(self) -> list[tuple[float, int, IntArray]]:
        """Best row seen of every distinct layout, by rising step."""
        return sorted(self._layouts.values(), key=lambda row: row[:2])


# --- the two passes ---------------------------------------------------------------------------


def _seed(
    problem: SearchProblem,
    order: IntArray,
    lower: FloatArray,
    seen: _Seen,
    constraints: SideConstraints,
    stops: Callable[[float, int], bool],
) -> list[int]:
    """Incumbents: all framework orders of shapes by rising bound, until the bound rules.

    Returns the shapes whose framework orders are costed.
    """
    start, size = 0, _FIRST_SHAPES
    while start < len(order) and seen.needs(lower[order[start]].item()):
        shapes, rows = order_rows(problem, order[start : start + size])
        outside = outside_rows(problem, shapes, rows, constraints)
        allowed = ~np.any([np.zeros(len(shapes), dtype=bool), *outside.values()], axis=0)
        seen.cost(shapes[allowed], rows[allowed])
        start, size = start + size, min(2 * size, _MAX_SHAPES)
        if stops(lower[order[0]].item(), 0):
            break
    return [int(shape) for shape in order[:start]]


def _tighten(problem: SearchProblem, shapes: IntArray, lower: FloatArray) -> IntArray:
    """Raise the bounds of the shapes in place where the problem can; the shapes by rising bound."""
    if len(shapes):
        tighter = np.asarray(problem.tighter_bounds(shapes), dtype=np.float64)
        if np.isnan(tighter).any():
            raise ValueError("tighter_bounds gave a bound that is not a number")
        lower[shapes] = np.maximum(lower[shapes], tighter * (1.0 - BOUND_SLACK))
    return shapes[np.argsort(lower[shapes], kind="stable")]


def _open(
    problem: SearchProblem,
    order: IntArray,
    lower: FloatArray,
    seen: _Seen,
    constraints: SideConstraints,
    stops: Callable[[float, int], bool],
) -> list[int]:
    """Cost every placement of shapes by rising bound; returns the shapes costed completely."""
    opened: list[int] = []
    waiting: list[tuple[int, IntArray]] = []
    num_rows, target = 0, _FIRST_ROWS
    for shape in order.tolist():
        bound = lower[shape].item()
        # those that wait to be costed may hold less than the next one can
        least = lower[waiting[0][0]].item() if waiting else bound
        if not seen.needs(bound) or stops(least, len(opened)):
            break
        for block in blocks(problem, shape, constraints):
            if num_rows + len(block) > MAX_BLOCK_ROWS:
                seen.cost_blocks(waiting)
                waiting, num_rows = [], 0
                if stops(bound, len(opened)):
                    return opened
            waiting.append((shape, block))
            num_rows += len(block)
        opened.append(shape)
        if num_rows >= target:
            seen.cost_blocks(waiting)
            waiting, num_rows, target = [], 0, min(2 * target, MAX_BLOCK_ROWS)
    seen.cost_blocks(waiting)
    return opened


# --- the answer -------------------------------------------------------------------------------


def _choose(
    problem: SearchProblem, seen: _Seen, constraints: SideConstraints, tie_fraction: float
) -> tuple[Row, Row]:
    """The tie rule's choice and the least row, by the CP-SAT assignment model."""
    shapes, placements, seconds = seen.candidates()
    framework = framework_rows(problem, shapes, placements) >= 0
    forbidden = outside_rows(problem, shapes, placements, constraints)
    if constraints.orders == "framework":
        forbidden["framework orders only"] = ~framework
    candidates = Candidates(
        step_seconds=seconds,
        framework=framework,
        slow_byte_seconds=problem.slow_byte_seconds(shapes, placements),
        degrees_sum=problem.degrees_sum(shapes),
        forbidden=forbidden,
    )
    found = assign(candidates, upper_seconds=seen.kth, tie_fraction=tie_fraction)
    if found is None:
        raise SolverError("rows that keep the side constraints were all forbidden in the model")
    best, least = (
        _row(problem, shapes[row].item(), placements[row], seconds[row].item())
        for row in (found.row, found.least_row)
    )
    return best, least


def best_placement(
    problem: SearchProblem,
    shape: int,
    tie_fraction: float = 0.0,
    constraints: SideConstraints | None = None,
) -> tuple[Row, float] | None:
    """One layout's placement by the tie rule, and its least step; None where none is allowed.

    Every placement over every fill is costed, so both are exact.
    """
    rules = constraints or SideConstraints()
    found = [block for block in blocks(problem, shape, rules) if len(block)]
    if not found:
        return None
    rows = np.concatenate(found)
    shapes = np.full(len(rows), shape)
    framework = framework_rows(problem, shapes, rows) >= 0
    if rules.orders == "framework":
        rows, shapes, framework = rows[framework], shapes[framework], framework[framework]
    seconds = np.asarray(problem.score_rows(shapes, rows), dtype=np.float64)
    if not len(rows) or not np.isfinite(seconds).any():
        return None
    least = float(seconds.min())
    tied = np.flatnonzero(seconds <= least * (1.0 + tie_fraction))
    candidates = Candidates(
        step_seconds=seconds[tied],
        framework=framework[tied],
        slow_byte_seconds=problem.slow_byte_seconds(shapes[tied], rows[tied]),
        degrees_sum=problem.degrees_sum(shapes[tied]),
        forbidden={},
    )
    chosen = tied[np.argmin(tie_ranks(candidates))]
    return _row(problem, shape, rows[chosen], float(seconds[chosen])), least


def _row(problem: SearchProblem, shape: int, placement: IntArray, seconds: float) -> Row:
    number = framework_rows(problem, np.array([shape]), placement[None]).item()
    return Row(
        shape=shape,
        fill=tuple(placement.prod(axis=0).tolist()),
        placement=tuple(tuple(factors) for factors in placement.tolist()),
        step_seconds=seconds,
        order=tuple(problem.orders(shape)[number]) if number >= 0 else None,
    )


def _runners_up(problem: SearchProblem, seen: _Seen, best: Row, top_k: int) -> tuple[Row, ...]:
    """Best rows of the next distinct layouts after the chosen one."""
    own = problem.key(best.shape)
    others = [row for row in seen.layouts() if problem.key(row[1]) != own]
    return tuple(_row(problem, shape, rows, step) for step, shape, rows in others[: top_k - 1])


def _lower_bounds(problem: SearchProblem, constraints: SideConstraints) -> FloatArray:
    """Bounds with slack for rounding; inf where the side constraints cannot be kept."""
    for group in constraints.keep_within if problem.num_shapes else ():
        if group not in problem.groups(0):
            raise ValueError(f"keep_within names {group!r}; groups: {sorted(problem.groups(0))}")
    lower = np.asarray(problem.lower_bounds(), dtype=np.float64) * (1.0 - BOUND_SLACK)
    if np.isnan(lower).any():
        raise ValueError("lower_bounds gave a bound that is not a number")
    return np.where(unplaceable(problem, constraints), inf, lower)


def search(
    problem: SearchProblem,
    *,
    top_k: int = 1,
    tie_fraction: float = 0.005,
    time_limit_seconds: float | None = None,
    constraints: SideConstraints | None = None,
    watch: Watch = unwatched,
) -> SearchResult:
    """Find the `top_k` best distinct layouts, each with its best placement, and prove it.

    The threshold is max(K-th best distinct layout, least · (1 + tie_fraction)): shapes are opened
    until every unopened bound has reached the first and passed the second, so that runners-up and
    ties are both complete. Status: optimal (proven), feasible (time limit; see the gap),
    infeasible (no row is allowed, proven), unknown (time limit before any row). `watch` is told how
    far it is and may stop it as a time limit does.
    """
    if top_k < 1 or not tie_fraction >= 0.0:
        raise ValueError(f"top_k {top_k} must be >= 1 and tie_fraction {tie_fraction} >= 0")
    rules = constraints or SideConstraints()
    deadline = inf if time_limit_seconds is None else time.monotonic() + time_limit_seconds
    lower = _lower_bounds(problem, rules)
    order = np.argsort(lower, kind="stable")
    order = order[lower[order] < inf]
    seen = _Seen(problem, top_k, tie_fraction)

    def stops(bound: float, opened: int) -> bool:
        known = Progress(problem.num_shapes, opened, seen.rows, seen.least, min(bound, seen.least))
        return watch(known) or time.monotonic() >= deadline

    if rules.orders == "framework":
        opened = _seed(problem, order, lower, seen, rules, stops)
    else:
        order = _tighten(problem, order[:_TIGHTENED_FIRST], lower)
        _seed(problem, order[:_FIRST_SHAPES], lower, seen, rules, stops)
        order = np.flatnonzero(lower < inf)
        order = _tighten(problem, order[[seen.needs(b) for b in lower[order].tolist()]], lower)
        opened = _open(problem, order, lower, seen, rules, stops)

    unopened = np.ones(len(lower), dtype=bool)
    unopened[opened] = False
    open_bound = lower[unopened].min(initial=inf).item()
    proven = not seen.needs(open_bound)
    if seen.least == inf:
        best = least = None
        runners_up: tuple[Row, ...] = ()
        status: Status = "infeasible" if proven else "unknown"
    else:
        best, least = _choose(problem, seen, rules, tie_fraction)
        runners_up = _runners_up(problem, seen, best, top_k)
        status = "optimal" if proven else "feasible"
    bound = min(open_bound, seen.least)
    return SearchResult(
        status=status,
        best=best,
        least=least,
        objective_seconds=None if least is None else seen.least,
        bound_seconds=bound if bound < inf else None,
        threshold_seconds=max(seen.kth, seen.tie_limit),
        runners_up=runners_up,
        counts=Counts(problem.num_shapes, len(opened), seen.rows),
        opened_shapes=tuple(sorted(opened)),
    )
