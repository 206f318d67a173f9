"""Searching layouts family by family: most need never be written out.

A family's layouts differ in what they run again, in their kind of context parallelism and in
whether exchanges with experts overlap (`planner.search.enumerate.MEMBER_KEYS`). Running something
again never makes a step shorter, and no kind of context parallelism is faster than free, so

    L(family) = min over the overlaps of L(nothing run again, context-parallel traffic free)

is a lower bound of all of them, whether or not such a layout fits. Families are written out by
rising L, a growing first part at a time, and searched as ever (`planner.search.optimize`); the
answer is proven once every family that is left has L above the search's own threshold.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from planner import bars
from planner.cost.context import CostContext
from planner.layout import LayoutTable
from planner.problem.scenario import Search
from planner.search.certify import certify
from planner.search.enumerate import MEMORY_RULE, families, members
from planner.search.optimize import BOUND_SLACK, search
from planner.search.placement import SideConstraints
from planner.search.problem import LayoutProblem, any_kind_bounds
from planner.search.protocol import SearchProblem, SearchResult
from planner.search.robust import Scaled
from planner.search.room import accepted
from planner.search.rules import can_overlap_exchanges

FloatArray = NDArray[np.float64]

BOUND_RULE = "bound"
"""Id under which families are counted whose bound lies above all that is asked for."""

FIRST_FAMILIES, GROWTH = 1024, 4
"""Families written out at first, and how many times as many each time that is too few."""


@dataclass(frozen=True)
class Answer:
    """The layouts that were written out and fit, the search's answer over them, what was not.

    result is null where no layout fits; legal has those written out, whether they fit or not.
    """

    problem: LayoutProblem
    legal: LayoutTable
    result: SearchResult | None
    excluded: Counter[str]


def search_families(
    ctx: CostContext, asked: Search, top_k: int, time_limit_seconds: float | None
) -> Answer:
    """The `top_k` best layouts of the scenario's, proven, with what ruled out the others."""
    started = time.monotonic()
    table, excluded = families(ctx, asked)
    lower = family_bounds(ctx, asked, table)
    order = np.argsort(lower, kind="stable")
    size = FIRST_FAMILIES
    while True:
        legal, more = members(ctx, asked, table.take(order[:size]))
        problem = LayoutProblem(ctx, legal.take(accepted(ctx, asked, legal)))
        more[MEMORY_RULE] += len(legal) - problem.num_shapes
        rest = float(lower[order[size]]) if size < len(order) else np.inf
        left = None
        if time_limit_seconds is not None:
            left = max(0.0, time_limit_seconds - (time.monotonic() - started))
        result = _searched(problem, asked, top_k, left)
        if rest == np.inf or _settled(result, rest):
            break
        size *= GROWTH
    if rest < np.inf:
        more[BOUND_RULE] += len(order) - size
        assert result is not None
        result = replace(result, bound_seconds=_least(result.bound_seconds, rest))
    return Answer(problem, legal, result, excluded + more)


def family_bounds(ctx: CostContext, asked: Search, table: LayoutTable) -> FloatArray:
    """Lower bounds, in seconds, of the steps of each family's layouts, shape (families).

    With `search: {robust: true}` of the upper ends of their bars, whose kind a family shares.
    """
    if not len(table):
        return np.zeros(0)
    lower = _bounds(ctx, table)
    if "ep" in ctx.software.overlap:
        able = np.flatnonzero(can_overlap_exchanges(ctx, table))
        beside = replace(table.take(able), overlap_ep=np.ones(len(able), dtype=np.int64))
        lower[able] = np.minimum(lower[able], _bounds(ctx, beside))
    if asked.robust:
        lower = lower * bars.step_ends(bars.shipped(), ctx, table)[1]
    return np.asarray(lower * (1.0 - BOUND_SLACK))


def _bounds(ctx: CostContext, table: LayoutTable) -> FloatArray:
    """Lower bounds of layouts whatever their kind of context parallelism, shape (rows)."""
    lower = np.zeros(len(table))
    cut = np.asarray(table.cp > 1)
    lower[~cut] = LayoutProblem(ctx, table.take(~cut)).lower_bounds()
    lower[cut] = any_kind_bounds(ctx, table.take(cut))
    return lower


def _searched(
    plain: LayoutProblem, asked: Search, top_k: int, time_limit_seconds: float | None
) -> SearchResult | None:
    """The search's answer, checked without its solver; null where there is nothing to search."""
    if not plain.num_shapes:
        return None
    problem: SearchProblem = plain
    if asked.robust:
        problem = Scaled(plain, bars.step_ends(bars.shipped(), plain.ctx, plain.table)[1])
    constraints = SideConstraints(orders=asked.orders)
    result = search(
        problem,
        top_k=top_k,
        tie_fraction=asked.tie_fraction,
        time_limit_seconds=time_limit_seconds,
        constraints=constraints,
    )
    certificate = certify(problem, result, tie_fraction=asked.tie_fraction, constraints=constraints)
    if not certificate.valid:
        raise AssertionError("; ".join(certificate.failures))
    return result


def _settled(result: SearchResult | None, rest: float) -> bool:
    """Whether families of a bound of `rest` or more cannot change the answer, or time is up."""
    if result is None or result.status == "infeasible":
        return False
    return result.status != "optimal" or rest > result.threshold_seconds


def _least(bound: float | None, rest: float) -> float:
    return rest if bound is None else min(bound, rest)
