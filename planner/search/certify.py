"""Check an answer of the search without its solver.

Nothing here runs the search or CP-SAT. What a check recomputes comes from the problem itself (its
steps, its bounds) and from plain arithmetic on the placement:

- placement: factors multiply to the degrees and to the fill, which lies within the widths;
- rank table: it holds every coordinate of the grid exactly once;
- side constraints: groups stay within their tiers, a claimed framework order is one;
- step: the problem gives the row the stored step, and no bound of its layout lies above it;
- bound: no unopened layout's bound lies below what is claimed;
- order of answers: the best lies in the tie band, runners-up are distinct and sorted.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isclose, isfinite, prod

import numpy as np

from planner.layouts.arrays import FloatArray
from planner.search.interface import (
    NO_CONSTRAINTS,
    PlacedLayout,
    SearchProblem,
    SearchResult,
    SideConstraints,
)
from planner.search.placement import rank_order, rank_table
from planner.search.placement_rows import unplaceable

__all__ = ["Certificate", "certify"]

RELATIVE_TOLERANCE = 1e-9
_MAX_RANK_TABLE = 1 << 20  # larger jobs' rank tables would take seconds


@dataclass(frozen=True)
class Certificate:
    """What was checked (names) and what failed (one sentence each); valid when nothing failed."""

    checks: tuple[str, ...]
    failures: tuple[str, ...]

    @property
    def valid(self) -> bool:
        return not self.failures


def certify(
    problem: SearchProblem,
    result: SearchResult,
    *,
    tie_fraction: float,
    constraints: SideConstraints = NO_CONSTRAINTS,
) -> Certificate:
    """Check each row of a result by itself, then the bound, then the order of the answers."""
    lower = np.asarray(problem.lower_bounds(), dtype=np.float64)
    lower = np.where(unplaceable(problem, constraints), inf, lower)
    failures: list[str] = []
    for row in (result.best, result.fastest, *result.runners_up):
        if row is not None:
            failures += _row_failures(problem, row, lower, constraints)
    failures += _bound_failures(problem, result, lower)
    failures += _order_failures(problem, result, tie_fraction)
    checks = ("placement", "rank table", "side constraints", "step", "bound", "order of answers")
    return Certificate(checks, tuple(dict.fromkeys(failures)))


# --- one row ------------------------------------------------------------------------------------


def _row_failures(
    problem: SearchProblem, row: PlacedLayout, lower: FloatArray, constraints: SideConstraints
) -> list[str]:
    # the other checks need factors that are a placement
    return _placement_failures(problem, row) or [
        *_rank_failures(row),
        *_constraint_failures(problem, row, constraints),
        *_step_failures(problem, row, lower),
    ]


def _placement_failures(problem: SearchProblem, row: PlacedLayout) -> list[str]:
    """Legality of one row by arithmetic on Python integers."""
    degrees = tuple(problem.degrees[row.layout_index].tolist())
    widths, fill, factors = tuple(problem.widths), row.fill, row.placement
    if len(fill) != len(widths) or len(factors) != len(degrees):
        return [f"placement {factors} does not have {len(degrees)} atoms and {len(widths)} tiers"]
    if any(len(atom) != len(widths) or min(atom) < 1 for atom in factors):
        return [f"placement {factors} has a factor below 1 or not one factor per tier"]
    failures = []
    for atom, degree in enumerate(degrees):
        if prod(factors[atom]) != degree:
            failures.append(
                f"factors {factors[atom]} of atom {atom} do not give its degree {degree}"
            )
    for tier, (used, width) in enumerate(zip(fill, widths, strict=True)):
        if prod(atom[tier] for atom in factors) != used:
            failures.append(f"factors in tier {tier} do not give its fill {used}")
        if not 1 <= used <= width:
            failures.append(f"fill {used} of tier {tier} does not lie within its width {width}")
    return failures


def _rank_failures(row: PlacedLayout) -> list[str]:
    """The rank table of the placement names every coordinate of the grid exactly once."""
    placement = np.array(row.placement, dtype=np.int64)
    degrees = placement.prod(axis=1)
    if prod(row.fill) > _MAX_RANK_TABLE:
        return []
    table = rank_table(rank_order(placement, row.order), row.fill, len(degrees))
    strides = np.concatenate([[1], np.cumprod(degrees)[:-1]])
    numbers = np.sort(table @ strides)
    complete = bool((numbers == np.arange(prod(row.fill))).all())
    return [] if complete else ["the rank table does not cover every coordinate once"]


def _constraint_failures(
    problem: SearchProblem, row: PlacedLayout, constraints: SideConstraints
) -> list[str]:
    failures = []
    for group, last in constraints.keep_within.items():
        atoms = problem.groups(row.layout_index)[group]
        if any(factor > 1 for atom in atoms for factor in row.placement[atom][last + 1 :]):
            failures.append(f"group {group} reaches past tier {last}")
    if constraints.orders == "framework" and row.order is None:
        failures.append("the placement is no framework order's")
    orders = [tuple(order) for order in problem.framework_orders(row.layout_index)]
    if row.order is not None and row.order not in orders:
        failures.append(f"order {row.order} is not among the framework's")
    return failures


def _step_failures(problem: SearchProblem, row: PlacedLayout, lower: FloatArray) -> list[str]:
    """The stored step is the problem's own, and not below the layout's bounds."""
    placement, index = np.array([row.placement], dtype=np.int64), np.array([row.layout_index])
    step = float(problem.step_seconds(index, placement)[0])
    tighter = float(problem.tighter_bounds(index)[0])
    bound = max(float(lower[row.layout_index]), tighter)
    failures = []
    if not isclose(step, row.step_seconds, rel_tol=RELATIVE_TOLERANCE):
        failures.append(f"step {row.step_seconds} s of the answer is {step} s when costed again")
    if bound > step * (1.0 + RELATIVE_TOLERANCE):
        failures.append(
            f"layout {row.layout_index} has bound {bound} s above the step {step} s of its row"
        )
    return failures


# --- all rows together --------------------------------------------------------------------------


def _bound_failures(problem: SearchProblem, result: SearchResult, lower: FloatArray) -> list[str]:
    """Bound ≤ objective; the bound is true of the unopened layouts; optimal: none is needed."""
    unopened = np.ones(problem.num_layouts, dtype=bool)
    unopened[list(result.opened_layouts)] = False
    near = np.flatnonzero(unopened & (lower < result.threshold_seconds))
    if len(near):
        lower = lower.copy()
        lower[near] = np.maximum(lower[near], problem.tighter_bounds(near))
    open_bound = float(lower[unopened].min(initial=inf))
    slack = 1.0 + RELATIVE_TOLERANCE
    objective, bound = result.objective_seconds, result.bound_seconds
    failures = []
    if objective is not None and (bound is None or bound > objective * slack):
        failures.append(f"bound {bound} s lies above the objective {objective} s")
    if bound is not None and bound > open_bound * slack:
        failures.append(f"bound {bound} s lies above an unopened layout's bound {open_bound} s")
    if result.status == "optimal" and open_bound * slack < result.threshold_seconds:
        failures.append(f"an unopened layout of bound {open_bound} s may beat the threshold")
    if result.status == "infeasible" and isfinite(open_bound):
        failures.append("called infeasible while a layout of finite bound is unopened")
    if (objective is not None) != (result.status in ("optimal", "feasible")):
        failures.append(f"status {result.status} does not fit an objective of {objective}")
    return failures


def _order_failures(problem: SearchProblem, result: SearchResult, tie_fraction: float) -> list[str]:
    """The best lies in the tie band of the fastest; runners-up are distinct and sorted."""
    best, fastest, objective = result.best, result.fastest, result.objective_seconds
    if best is None or fastest is None or objective is None:
        return ["runners-up without a best"] if result.runners_up else []
    slack = 1.0 + RELATIVE_TOLERANCE
    steps = [row.step_seconds for row in result.runners_up]
    identities = [problem.identity(row.layout_index) for row in (best, *result.runners_up)]
    failures = []
    if not isclose(fastest.step_seconds, objective, rel_tol=RELATIVE_TOLERANCE):
        failures.append(f"objective {objective} s is not the step of its row")
    if best.step_seconds > objective * (1.0 + tie_fraction) * slack:
        failures.append(f"step {best.step_seconds} s lies outside the tie band of {objective} s")
    if min(steps, default=inf) * slack < objective or steps != sorted(steps):
        failures.append("runners-up are out of order")
    if len(set(identities)) != len(identities):
        failures.append("runners-up repeat a layout")
    return failures
