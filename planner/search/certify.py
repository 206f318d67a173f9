"""Check an answer of the search without its solver: legality, score, bound, order of the answers.

Nothing here runs the search or CP-SAT. What a check recomputes comes from the problem itself (its
step, its bounds) and from plain arithmetic on the placement.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isclose, isfinite, prod

import numpy as np
from numpy.typing import NDArray

from planner.search.placement import SideConstraints, rank_order, rank_table
from planner.search.protocol import Row, SearchProblem, SearchResult
from planner.search.rows import unplaceable

__all__ = ["Certificate", "certify"]

FloatArray = NDArray[np.float64]

RELATIVE_TOLERANCE = 1e-9
_MAX_RANK_TABLE = 1 << 20


@dataclass(frozen=True)
class Certificate:
    """What was checked (names) and what failed (one sentence each); valid when nothing failed."""

    checks: tuple[str, ...]
    failures: tuple[str, ...]

    @property
    def valid(self) -> bool:
        return not self.failures


def _placement_failures(problem: SearchProblem, row: Row) -> list[str]:
    """Legality of one row by arithmetic on Python integers."""
    degrees = tuple(problem.degrees[row.shape].tolist())
    widths, fill, factors = tuple(problem.widths), row.fill, row.placement
    if len(fill) != len(widths) or len(factors) != len(degrees):
        return [f"placement {factors} does not have {len(degrees)} atoms and {len(widths)} tiers"]
    found = []
    if any(len(atom) != len(widths) or min(atom) < 1 for atom in factors):
        return [f"placement {factors} has a factor below 1 or not one factor per tier"]
    for atom, degree in enumerate(degrees):
        if prod(factors[atom]) != degree:
            found.append(f"factors {factors[atom]} of atom {atom} do not give its degree {degree}")
    for tier, (used, width) in enumerate(zip(fill, widths, strict=True)):
        if prod(atom[tier] for atom in factors) != used:
            found.append(f"factors in tier {tier} do not give its fill {used}")
        if not 1 <= used <= width:
            found.append(f"fill {used} of tier {tier} does not lie within its width {width}")
    return found


def _rank_failures(row: Row) -> list[str]:
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
    problem: SearchProblem, row: Row, constraints: SideConstraints
) -> list[str]:
    found = []
    for group, last in constraints.keep_within.items():
        atoms = problem.groups(row.shape)[group]
        if any(factor > 1 for atom in atoms for factor in row.placement[atom][last + 1 :]):
            found.append(f"group {group} reaches past tier {last}")
    if constraints.orders == "framework" and row.order is None:
        found.append("the placement is no framework order's")
    if row.order is not None and row.order not in [tuple(o) for o in problem.orders(row.shape)]:
        found.append(f"order {row.order} is not among the framework's")
    return found


def _score_failures(problem: SearchProblem, row: Row, lower: FloatArray) -> list[str]:
    """The stored step is the problem's own, and not below the shape's bounds."""
    placement = np.array([row.placement], dtype=np.int64)
    step = float(problem.score_rows(np.array([row.shape]), placement)[0])
    tighter = float(problem.tighter_bounds(np.array([row.shape]))[0])
    bound = max(float(lower[row.shape]), tighter)
    found = []
    if not isclose(step, row.step_seconds, rel_tol=RELATIVE_TOLERANCE):
        found.append(f"step {row.step_seconds} s of the answer is {step} s when costed again")
    if bound > step * (1.0 + RELATIVE_TOLERANCE):
        found.append(f"shape {row.shape} has bound {bound} s above the step {step} s of its row")
    return found


def _bound_failures(problem: SearchProblem, result: SearchResult, lower: FloatArray) -> list[str]:
    """Bound ≤ objective; the bound is true of the unopened shapes; optimal means none is left."""
    unopened = np.ones(problem.num_shapes, dtype=bool)
    unopened[list(result.opened_shapes)] = False
    near = np.flatnonzero(unopened & (lower < result.threshold_seconds))
    if len(near):
        lower = lower.copy()
        lower[near] = np.maximum(lower[near], problem.tighter_bounds(near))
    least_open = float(lower[unopened].min(initial=inf))
    slack = 1.0 + RELATIVE_TOLERANCE
    objective, bound = result.objective_seconds, result.bound_seconds
    found = []
    if objective is not None and (bound is None or bound > objective * slack):
        found.append(f"bound {bound} s lies above the objective {objective} s")
    if bound is not None and bound > least_open * slack:
        found.append(f"bound {bound} s lies above an unopened shape's bound {least_open} s")
    if result.status == "optimal" and least_open * slack < result.threshold_seconds:
        found.append(f"an unopened shape of bound {least_open} s may beat the threshold")
    if result.status == "infeasible" and isfinite(least_open):
        found.append("called infeasible while a shape of finite bound is unopened")
    if (objective is not None) != (result.status in ("optimal", "feasible")):
        found.append(f"status {result.status} does not fit an objective of {objective}")
    return found


def _order_failures(problem: SearchProblem, result: SearchResult, tie_fraction: float) -> list[str]:
    """Best lies in the tie band of the least; runners-up are distinct, sorted, none better."""
    best, least, objective = result.best, result.least, result.objective_seconds
    if best is None or least is None or objective is None:
        return ["runners-up without a best"] if result.runners_up else []
    slack = 1.0 + RELATIVE_TOLERANCE
    steps = [row.step_seconds for row in result.runners_up]
    keys = [problem.key(row.shape) for row in (best, *result.runners_up)]
    found = []
    if not isclose(least.step_seconds, objective, rel_tol=RELATIVE_TOLERANCE):
        found.append(f"objective {objective} s is not the step of its row")
    if best.step_seconds > objective * (1.0 + tie_fraction) * slack:
        found.append(f"step {best.step_seconds} s lies outside the tie band of {objective} s")
    if min(steps, default=inf) * slack < objective or steps != sorted(steps):
        found.append("runners-up are out of order")
    if len(set(keys)) != len(keys):
        found.append("runners-up repeat a layout")
    return found


def certify(
    problem: SearchProblem,
    result: SearchResult,
    *,
    tie_fraction: float,
    constraints: SideConstraints | None = None,
) -> Certificate:
    """Re-check a result: each row's legality, constraints, ranks and step; the bound; the order."""
    rules = constraints or SideConstraints()
    lower = np.asarray(problem.lower_bounds(), dtype=np.float64)
    lower = np.where(unplaceable(problem, rules), inf, lower)
    failures: list[str] = []
    for row in (result.best, result.least, *result.runners_up):
        if row is None:
            continue
        broken = _placement_failures(problem, row)
        if not broken:
            broken = [
                *_rank_failures(row),
                *_constraint_failures(problem, row, rules),
                *_score_failures(problem, row, lower),
            ]
        failures += broken
    failures += _bound_failures(problem, result, lower)
    failures += _order_failures(problem, result, tie_fraction)
    checks = ("placement", "rank table", "side constraints", "step", "bound", "order of answers")
    return Certificate(checks, tuple(dict.fromkeys(failures)))
