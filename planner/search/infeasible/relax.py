"""When nothing fits: the nearest miss, and what would make it fit, each verified."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import combinations
from typing import Any

import numpy as np

from planner.cost import memory
from planner.cost.context import CostContext
from planner.cost.stages import candidate_stages
from planner.layouts.layout import LayoutTable
from planner.problem.cluster import Cluster
from planner.problem.precision import RECIPES
from planner.problem.scenario import Scenario, Search
from planner.search.families import search_families
from planner.search.placement import fills
from planner.search.problem import LayoutProblem
from planner.search.rows import order_rows
from planner.search.space.enumerate import layouts
from planner.search.space.restrictions import restricted
from planner.search.space.room import accepted, upper_ends


def nearest_miss(ctx: CostContext, search: Search, table: LayoutTable) -> dict[str, Any] | None:
    """The legal layout that exceeds the limit least: by how much, in which stage and term.

    Over the capacity, or, for a peak within it, over the fragile band's lower edge; for a robust
    search whose limit it keeps, the upper end of its bar over the capacity. None where no layout is
    legal, or where one fits (and cannot be placed).
    """
    if not len(table):
        return None
    usage, peaks = memory.worst_stage(ctx, table)
    peak, total = np.asarray(peaks), np.asarray(usage.total)
    held = memory.host_holds(ctx, table)
    i = int(np.argmin(np.where(held | ~np.any(held), peak, np.inf)))
    if accepted(ctx, search, table).any():
        return None
    capacity, limit = (memory.limit_bytes(ctx, v) for v in ("fragile", search.memory))
    over = float(peak[i]) - (capacity if peak[i] > capacity else limit)
    if peak[i] <= limit:
        over = float(upper_ends(ctx, table, usage)[i]) - capacity
    layout = table.row(i)
    worst = int(np.argmax(total[:, i]))
    stage = np.asarray(candidate_stages(ctx, layout).stage)
    terms = {
        f.name: float(np.broadcast_to(getattr(usage, f.name), total.shape)[worst, i])
        for f in fields(usage)
    }
    return {
        "layout": layout.to_document(),
        "peak_bytes": float(peak[i]),
        "over_bytes": over,
        "stage": int(stage[worst]),
        "term": max(terms, key=lambda term: terms[term]),
        "terms": terms,
    }


def relaxations(scenario: Scenario) -> tuple[dict[str, Any], ...]:
    """Changes of the scenario after which a layout fits and can be placed, each planned.

    Restrictions lifted, one by one and all together, the fragile band, another precision, what may
    live on the host, and the least multiple of the accelerators that serves; where none of these
    does by itself, two at once. Cheapest first: by accelerators, then by the step found
    (`step_seconds`, the best layout's; within PLAN_SECONDS the best one's so far).
    """
    changes = list(_changes(scenario))
    found = [_planned(change, relaxed) for change, relaxed in changes]
    found.append(_more_accelerators(scenario, {}))
    if not any(found):
        pairs = combinations(changes, 2)
        found += [_planned(*both) for one, other in pairs if (both := _both(scenario, one, other))]
        own = [name for name in restricted(scenario.search) if name not in KEPT]
        lifts = {f"search.{name}" for name in own}
        found += [_more_accelerators(s, c) for c, s in changes if lifts & set(c) in (set(), lifts)]
    served = [one for one in found if one is not None]
    return tuple(sorted(served, key=lambda one: (one["num_accelerators"], one["step_seconds"])))


def of_open(scenario: Scenario, found: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], ...]:
    """Relaxations of one count and precision as changes of the scenario that left them open: what
    is changed is open no more."""
    search = scenario.search
    own = {"num_accelerators": search.num_accelerators, "training.precision": search.precision}
    shut = {key: f"search.{key.rpartition('.')[2]}" for key, asked in own.items() if asked}
    return tuple(
        {**one, "change": {**one["change"], **{shut[k]: None for k in one["change"] if k in shut}}}
        for one in found
    )


PLAN_SECONDS = 10.0
"""A relaxation is planned at most so long; a layout that fits is enough."""


def _planned(change: dict[str, Any], scenario: Scenario) -> dict[str, Any] | None:
    """What a relaxed scenario has: layouts that fit, their least peak, the best step; none where
    none can be placed."""
    ctx = CostContext.of(scenario)
    table, _ = layouts(ctx, scenario.search)
    fitting = table.take(accepted(ctx, scenario.search, table))
    if not placeable(LayoutProblem(ctx, fitting), scenario.search.orders):
        return None
    answer = search_families(ctx, scenario.search, 1, PLAN_SECONDS)
    if answer.result is None or answer.result.least is None:
        return None
    _, peak = memory.worst_stage(ctx, fitting)
    return {
        "change": change,
        "layouts_that_fit": len(fitting),
        "peak_bytes": float(np.min(peak)),
        "step_seconds": answer.result.least.step_seconds,
        "num_accelerators": scenario.num_accelerators,
        "layout": answer.problem.layout(answer.result.least.shape).to_document(),
    }


def placeable(problem: LayoutProblem, orders: str) -> bool:
    """Whether some layout has a placement over some fill, in a framework's order where asked."""
    if not problem.num_shapes:
        return False
    if orders == "framework":
        _, rows = order_rows(problem, np.arange(problem.num_shapes))
        return bool(problem.held(rows).any())
    cluster = problem.ctx.cluster
    possible = fills(problem.widths, problem.ctx.num_accelerators)
    return any(cluster is None or cluster.holds(fill) for fill in possible)


KEPT = ("memory", "tie_fraction", "objective", "stages")
"""Choices of `search:` whose default allows no more layouts."""

Change = tuple[dict[str, Any], Scenario]


def _changes(scenario: Scenario) -> Iterator[Change]:
    search = scenario.search
    if search.memory == "fits":
        yield _searching(scenario, memory="fragile")
    lifted = {
        name: default
        for name, default in Search()
        if name not in KEPT and getattr(search, name) != default
    }
    for name, default in lifted.items():
        yield _searching(scenario, **{name: default})
    if len(lifted) > 1:
        yield _searching(scenario, **lifted)
    if search.offload is None and scenario.topology.accelerator.host is not None:
        for away in scenario.software.offloads:
            yield _searching(scenario, offload=(away,))
    yield from _precisions(scenario)


def _searching(scenario: Scenario, **changes: Any) -> Change:
    told = {
        f"search.{name}": value[0] if isinstance(value, tuple) else value
        for name, value in changes.items()
    }
    return told, scenario.replace(search=scenario.search.replace(**changes))


def _precisions(scenario: Scenario) -> Iterator[Change]:
    """The other precisions that the accelerator has figures for."""
    part = scenario.topology.accelerator
    for precision, recipe in RECIPES.items():
        able = recipe.peak in part.peak_flops and recipe.peak in part.gemm
        if able and precision != scenario.training.precision:
            training = scenario.training.replace(precision=precision)
            yield {"training.precision": precision}, scenario.replace(training=training)


def _both(scenario: Scenario, one: Change, other: Change) -> Change | None:
    """Two changes at once, of different parts of the scenario."""
    (first, _), (second, _) = one, other
    if set(first) & set(second):
        return None
    changes: dict[str, Any] = {**first, **second}
    relaxed = scenario
    for key, value in changes.items():
        part, _, name = key.partition(".")
        if part == "search":
            listed = value if name in ("memory", "orders", "robust") or value is None else (value,)
            relaxed = relaxed.replace(search=relaxed.search.replace(**{name: listed}))
        else:
            relaxed = relaxed.replace(training=relaxed.training.replace(**{name: value}))
    return changes, relaxed


def multiples(scenario: Scenario) -> Iterator[Scenario]:
    """The scenario on multiples of its accelerators, as many as there are."""
    whole = scenario.topology.num_accelerators
    if scenario.inventory is not None:
        whole = Cluster.of(scenario.inventory, scenario.topology).largest
    most = whole // scenario.num_accelerators
    for factor in range(2, min(most, MOST_TIMES) + 1):
        yield scenario.replace(num_accelerators=scenario.num_accelerators * factor)


def _more_accelerators(scenario: Scenario, change: dict[str, Any]) -> dict[str, Any] | None:
    """The least multiple of the accelerators that serves, beside another change."""
    for more in multiples(scenario):
        found = _planned({**change, "num_accelerators": more.num_accelerators}, more)
        if found is not None:
            return found
    return None


MOST_TIMES = 64
"""Accelerators are multiplied at most so often in search of a count that fits."""
