"""The CP-SAT assignment model: exactly one row (a layout with its placement) is chosen.

Rows are placements of opened layouts with their exactly costed step. Side constraints forbid rows
by name. Two solves, the second among the ties of the first one's answer:

1. the lowest step;
2. the tie rule: among rows within tie_fraction of it, a framework order's placement first, then
   the fewest busy seconds on slow tiers, then smaller degrees, then the lower step, then the row
   number. The objective is the row's rank under that lexicographic rule.

**Integers.** CP-SAT solves in integers, and version 9.15 has returned wrong optima where Σ |c| of
the objective's coefficients reached 2^31. So a step s becomes floor((s - lowest) / unit), where the
unit is 2^-20 of the largest difference among the rows within the threshold, doubled until
Σ |c| < 2^31. Rounding down is monotone, so a row of the lowest step keeps the lowest coefficient;
steps that share one are compared as floats afterwards. Floats never enter the model, and every
answer is compared with the vectorised minimum: a disagreement is an error, never an answer.

ortools is imported only where the model is built.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from planner.errors import PlannerError
from planner.layouts.arrays import BoolArray, FloatArray, IntArray
from planner.search.interface import SearchProblem, SideConstraints
from planner.search.placement_rows import constraint_violations, order_numbers

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

__all__ = [
    "Assignment",
    "Candidates",
    "SolverError",
    "assign",
    "candidate_rows",
    "choose_row",
    "quantise",
    "solve",
    "tie_ranks",
]

MAX_COEFFICIENT_SUM = 2**31 - 1
RESOLUTION_BITS = 20
MAX_ROWS = 4096
"""Most rows in one model: 100 000 Booleans take CP-SAT seconds to build and to solve."""

_SLOW_LEVELS = 2**30  # slow-tier seconds are compared at this resolution of the largest
_SOLVER_SECONDS = 60.0


class SolverError(PlannerError):
    """CP-SAT gave no proven answer, or one that a direct check contradicts. Never 'no fit'."""

    exit_code: ClassVar[int] = 1


# --- what is chosen from ----------------------------------------------------------------------


@dataclass(frozen=True)
class Candidates:
    """The rows to choose from, as arrays of one length R.

    step_seconds; in_framework_order: some rank order of the framework gives the placement;
    slow_tier_seconds, degrees_sum: what the tie rule compares next; forbidden: side constraint's
    name → rows that it forbids.
    """

    step_seconds: FloatArray
    in_framework_order: BoolArray
    slow_tier_seconds: FloatArray
    degrees_sum: IntArray
    forbidden: Mapping[str, BoolArray]

    def __len__(self) -> int:
        return len(self.step_seconds)

    def allowed(self) -> BoolArray:
        """Rows that no side constraint forbids."""
        allowed = np.ones(len(self), dtype=bool)
        for rows in self.forbidden.values():
            allowed &= ~rows
        return allowed

    def take(self, index: IntArray) -> Candidates:
        """The rows at `index`."""
        return Candidates(
            self.step_seconds[index],
            self.in_framework_order[index],
            self.slow_tier_seconds[index],
            self.degrees_sum[index],
            {name: rows[index] for name, rows in self.forbidden.items()},
        )


def candidate_rows(
    problem: SearchProblem,
    indices: IntArray,
    placements: IntArray,
    step_seconds: FloatArray,
    constraints: SideConstraints,
) -> Candidates:
    """Costed rows, (R), (R, A, T) and (R), with all that the tie rule and the constraints read."""
    in_order = order_numbers(problem, indices, placements) >= 0
    forbidden = constraint_violations(problem, indices, placements, constraints)
    if constraints.orders == "framework":
        forbidden["framework orders only"] = ~in_order
    return Candidates(
        step_seconds=step_seconds,
        in_framework_order=in_order,
        slow_tier_seconds=problem.slow_tier_seconds(indices, placements),
        degrees_sum=problem.degrees_sum(indices),
        forbidden=forbidden,
    )


def tie_ranks(candidates: Candidates) -> IntArray:
    """Position 0 .. R-1 of every row under the tie rule, 0 the first choice."""
    slow = candidates.slow_tier_seconds
    largest = slow.max(initial=0.0)
    # levels, so that sums rounded apart are equal
    slow_level = np.floor(slow / largest * _SLOW_LEVELS) if largest > 0 else np.zeros(len(slow))
    order = np.lexsort(  # the last key counts first
        (
            np.arange(len(candidates)),
            candidates.step_seconds,
            candidates.degrees_sum,
            slow_level,
            ~candidates.in_framework_order,
        )
    )
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(len(order))
    return ranks


# --- the model --------------------------------------------------------------------------------


def quantise(step_seconds: FloatArray, upper_seconds: float) -> tuple[IntArray, IntArray]:
    """(kept rows, their integer excess over the lowest step); see the module for the unit.

    Rows above `upper_seconds` are dropped, unless all are.

    Raises:
        SolverError: so many rows that their coefficients overflow at any resolution.
    """
    lowest = step_seconds.min()
    kept = np.flatnonzero(step_seconds <= max(upper_seconds, lowest))
    excess = step_seconds[kept] - lowest
    span = excess.max()
    if span == 0.0:
        return kept, np.zeros(len(kept), dtype=np.int64)
    for bits in range(RESOLUTION_BITS, -1, -1):
        units = np.floor(excess / span * 2.0**bits).astype(np.int64)
        if units.sum() <= MAX_COEFFICIENT_SUM:
            return kept, units
    raise SolverError(f"{len(kept)} candidate rows are too many for one assignment model")


def solve(model: cp_model.CpModel) -> cp_model.CpSolver | None:
    """Solve to proven optimality: the solver, or None where the model has no solution.

    Raises:
        SolverError: anything else: MODEL_INVALID, UNKNOWN, or FEASIBLE without proof.
    """
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    # one worker and one seed: the same answer on every machine
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.max_time_in_seconds = _SOLVER_SECONDS
    status = solver.solve(model)
    if status == cp_model.OPTIMAL:
        return solver
    if status == cp_model.INFEASIBLE:
        return None
    reason = f": {model.validate()}" if status == cp_model.MODEL_INVALID else ""
    raise SolverError(f"the assignment model ended {solver.status_name(status)}{reason}")


def choose_row(coefficients: IntArray, forbidden: Mapping[str, BoolArray]) -> int | None:
    """Solve the assignment model: the allowed row of the lowest coefficient, or None.

    One Boolean per row, exactly one of them true: of the encodings tried (a table constraint with
    a cost column, one table per term) it solves fastest by an order of magnitude.
    """
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    chosen = [model.new_bool_var(f"row_{i}") for i in range(len(coefficients))]
    model.add_exactly_one(chosen)
    for name, rows in forbidden.items():
        outside = [chosen[i] for i in np.flatnonzero(rows)]
        if outside:
            model.add(sum(outside) == 0).with_name(name)
    model.minimize(cp_model.LinearExpr.weighted_sum(chosen, coefficients.tolist()))
    solver = solve(model)
    if solver is None:
        return None
    return next(i for i, variable in enumerate(chosen) if solver.boolean_value(variable))


def _checked_choice(
    coefficients: IntArray, forbidden: Mapping[str, BoolArray], allowed: BoolArray
) -> int | None:
    """The model's choice, compared with the vectorised minimum over the allowed rows."""
    row = choose_row(coefficients, forbidden)
    if (row is None) != (not allowed.any()):
        raise SolverError("the assignment model and its side constraints disagree on feasibility")
    if row is not None and (not allowed[row] or coefficients[row] > coefficients[allowed].min()):
        raise SolverError("the assignment model's answer is not the vectorised minimum")
    return row


# --- the choice -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Assignment:
    """The tie rule's row and the row of the lowest step; both keep the side constraints."""

    row: int
    fastest_row: int
    fastest_seconds: float


def _reduce(candidates: Candidates, tie_limit_seconds: float) -> IntArray:
    """At most MAX_ROWS rows that still hold the fastest allowed row and the tie rule's choice."""
    rows = np.arange(len(candidates))
    if len(rows) <= MAX_ROWS:
        return rows
    allowed = candidates.allowed()
    outside = ~(allowed & (candidates.step_seconds <= tie_limit_seconds))
    best = np.lexsort((tie_ranks(candidates), outside, ~allowed))[: MAX_ROWS - 1]
    fastest = int(np.argmin(np.where(allowed, candidates.step_seconds, np.inf)))
    return np.union1d(best, [fastest])


def assign(
    candidates: Candidates, *, upper_seconds: float, tie_fraction: float
) -> Assignment | None:
    """Choose one row by CP-SAT: the lowest step, then the tie rule; None where all are forbidden.

    upper_seconds: the threshold of the search; rows above it are dropped, unless side constraints
    leave none below. Steps must be finite.

    Raises:
        SolverError: the solver has no proof, or a direct check contradicts its answer.
    """
    allowed = candidates.allowed()
    if not allowed.any():
        return None
    lowest = candidates.step_seconds[allowed].min().item()
    tie_limit = lowest * (1.0 + tie_fraction)
    rows = _reduce(candidates, tie_limit)
    kept, units = quantise(candidates.step_seconds[rows], max(upper_seconds, tie_limit))
    rows = rows[kept]
    few = candidates.take(rows)
    first = _checked_choice(units, few.forbidden, few.allowed())
    if first is None:
        raise SolverError("rows within the threshold are all forbidden though others are allowed")
    # steps below the resolution share a coefficient; the float step decides among them
    same = few.allowed() & (units == units[first])
    fastest = int(np.argmin(np.where(same, few.step_seconds, np.inf)))
    forbidden = {**few.forbidden, "outside the tie band": few.step_seconds > tie_limit}
    second = _checked_choice(
        tie_ranks(few), forbidden, few.allowed() & (few.step_seconds <= tie_limit)
    )
    if second is None:
        raise SolverError("no row lies within the tie band of the lowest step")
    return Assignment(int(rows[second]), int(rows[fastest]), few.step_seconds[fastest].item())
