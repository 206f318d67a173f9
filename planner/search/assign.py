"""The CP-SAT assignment model: exactly one row (a layout with its placement) is chosen.

Rows are placements of opened layouts with their exactly costed step. Side constraints forbid rows
by name; the tie rule is a second solve with the first one's least fixed:

1. least step, as integer excess over the rows' least in units of (U - least) / 2^20, rounded down;
2. among rows within tie_fraction of the least step: a framework order's placement first, then
   fewest byte-seconds on slow tiers, then smaller degrees, then least step, then row number.

The second objective is the row's rank under that lexicographic rule. Σ |coefficients| stays below
2^31 (CP-SAT 9.15 has returned wrong optima above). Floats never enter the model, and its answer is
checked against the vectorised minimum. ortools is imported only where the model is built.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from planner.errors import PlannerError
from planner.search.placement import IntArray

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

__all__ = [
    "Assignment",
    "Candidates",
    "SolverError",
    "assign",
    "choose_row",
    "quantise",
    "solve",
    "tie_ranks",
]

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

MAX_COEFFICIENT_SUM = 2**31 - 1
RESOLUTION_BITS = 20
MAX_ROWS = 4096
"""Most rows in one model: 100 000 Booleans take CP-SAT seconds to build and to solve."""

_SLOW_LEVELS = 2**30  # slow-tier byte-seconds are compared at this resolution of the largest
_SOLVER_SECONDS = 60.0


class SolverError(PlannerError):
    """CP-SAT gave no proven answer, or one that a direct check contradicts. Never 'no fit'."""

    exit_code: ClassVar[int] = 1


@dataclass(frozen=True)
class Candidates:
    """The rows to choose from, arrays of one length R.

    step_seconds (float); framework: a rank order of the framework gives the placement;
    slow_byte_seconds and degrees_sum: what the tie rule compares; forbidden: side constraint's
    name → rows that it forbids.
    """

    step_seconds: FloatArray
    framework: BoolArray
    slow_byte_seconds: FloatArray
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
            self.framework[index],
            self.slow_byte_seconds[index],
            self.degrees_sum[index],
            {name: rows[index] for name, rows in self.forbidden.items()},
        )


@dataclass(frozen=True)
class Assignment:
    """Row chosen by the tie rule, and the row of the least step; both keep the side constraints."""

    row: int
    least_row: int
    least_seconds: float


def quantise(step_seconds: FloatArray, upper_seconds: float) -> tuple[IntArray, IntArray]:
    """(kept rows, their integer excess over the least step).

    The unit is (upper - least) / 2^20, doubled until the coefficients sum below 2^31; each excess
    is rounded down, and rows above `upper_seconds` are dropped.
    """
    least = step_seconds.min()
    kept = np.flatnonzero(step_seconds <= max(upper_seconds, least))
    excess = step_seconds[kept] - least
    span = excess.max()
    if span == 0.0:
        return kept, np.zeros(len(kept), dtype=np.int64)
    for bits in range(RESOLUTION_BITS, -1, -1):
        units = np.floor(excess / span * 2.0**bits).astype(np.int64)
        if units.sum() <= MAX_COEFFICIENT_SUM:
            return kept, units
    raise SolverError(f"{len(kept)} candidate rows are too many for one assignment model")


def tie_ranks(candidates: Candidates) -> IntArray:
    """Position 0 .. R-1 of every row under the tie rule, 0 the first choice."""
    slow = candidates.slow_byte_seconds
    largest = slow.max(initial=0.0)
    slow_level = np.floor(slow / largest * _SLOW_LEVELS) if largest > 0 else np.zeros(len(slow))
    order = np.lexsort(
        (
            np.arange(len(candidates)),
            candidates.step_seconds,
            candidates.degrees_sum,
            slow_level,
            ~candidates.framework,
        )
    )
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(len(order))
    return ranks


def solve(model: cp_model.CpModel) -> cp_model.CpSolver | None:
    """Solve to proven optimality: the solver, or None where the model has no solution.

    Anything else (MODEL_INVALID, UNKNOWN, FEASIBLE without proof) raises SolverError.
    """
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
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
    """Solve the assignment model: the one allowed row of least coefficient, or None."""
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


def _reduce(candidates: Candidates, tie_limit: float) -> IntArray:
    """At most MAX_ROWS rows that still hold the least allowed row and the tie rule's choice."""
    rows = np.arange(len(candidates))
    if len(rows) <= MAX_ROWS:
        return rows
    allowed = candidates.allowed()
    outside = ~(allowed & (candidates.step_seconds <= tie_limit))
    best = np.lexsort((tie_ranks(candidates), outside, ~allowed))[: MAX_ROWS - 1]
    least = int(np.argmin(np.where(allowed, candidates.step_seconds, np.inf)))
    return np.union1d(best, [least])


def _checked_choice(
    coefficients: IntArray, forbidden: Mapping[str, BoolArray], allowed: BoolArray
) -> int | None:
    row = choose_row(coefficients, forbidden)
    if (row is None) != (not allowed.any()):
        raise SolverError("the assignment model and its side constraints disagree on feasibility")
    if row is not None and (not allowed[row] or coefficients[row] > coefficients[allowed].min()):
        raise SolverError("the assignment model's answer is not the vectorised minimum")
    return row


def assign(
    candidates: Candidates, *, upper_seconds: float, tie_fraction: float
) -> Assignment | None:
    """Choose one row by CP-SAT: least step, then the tie rule; None where all are forbidden.

    `upper_seconds` is the threshold of the search: rows above it are dropped, unless side
    constraints leave none below. Steps must be finite.
    """
    allowed = candidates.allowed()
    if not allowed.any():
        return None
    least = candidates.step_seconds[allowed].min().item()
    tie_limit = least * (1.0 + tie_fraction)
    rows = _reduce(candidates, tie_limit)
    kept, units = quantise(candidates.step_seconds[rows], max(upper_seconds, tie_limit))
    rows = rows[kept]
    few = candidates.take(rows)
    first = _checked_choice(units, few.forbidden, few.allowed())
    if first is None:
        raise SolverError("rows within the threshold are all forbidden though others are allowed")
    # Steps below the resolution share a coefficient; the float step decides among them.
    same = few.allowed() & (units == units[first])
    least_row = int(np.argmin(np.where(same, few.step_seconds, np.inf)))
    forbidden = {**few.forbidden, "outside the tie band": few.step_seconds > tie_limit}
    second = _checked_choice(
        tie_ranks(few), forbidden, few.allowed() & (few.step_seconds <= tie_limit)
    )
    if second is None:
        raise SolverError("the tie rule found no row within the tie band of the least step")
    return Assignment(int(rows[second]), int(rows[least_row]), few.step_seconds[least_row].item())
