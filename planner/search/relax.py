"""When nothing fits: the nearest miss, and what would make it fit, each verified."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import numpy as np

from planner.cost import memory
from planner.cost.context import CostContext
from planner.cost.layers import model_stages
from planner.layout import LayoutTable
from planner.problem.scenario import Scenario, Search
from planner.search.enumerate import layouts
from planner.search.placement import fills
from planner.search.problem import LayoutProblem
from planner.search.room import accepted, upper_ends
from planner.search.rows import order_rows


def nearest_miss(ctx: CostContext, search: Search, table: LayoutTable) -> dict[str, Any] | None:
    """The legal layout that exceeds the limit least: by how much, in which stage and term.

    Over the capacity, or, for a peak within it, over the fragile band's lower edge; for a robust
    search whose limit it keeps, the upper end of its bar over the capacity. None where no layout is
    legal, or where one fits (and cannot be placed).
    """
    if not len(table):
        return None
    usage, peak = memory.worst_stage(ctx, table)
    held = memory.host_holds(ctx, table)
    i = int(np.argmin(np.where(held | ~np.any(held), peak, np.inf)))
    if accepted(ctx, search, table).any():
        return None
    capacity, limit = (memory.limit_bytes(ctx, v) for v in ("fragile", search.memory))
    over = float(peak[i]) - (capacity if peak[i] > capacity else limit)
    if peak[i] <= limit:
        over = float(upper_ends(ctx, table, usage)[i]) - capacity
    layout = table.row(i)
    worst = int(np.argmax(usage.total[:, i]))
    stage, _ = model_stages(ctx.model, layout, ctx.reserved)
    terms = {
        f.name: float(np.broadcast_to(getattr(usage, f.name), usage.total.shape)[worst, i])
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


def relaxations(scenario: Scenario) -> Iterator[dict[str, Any]]:
    """Changes of the scenario after which some layout fits and can be placed, each verified.

    Restrictions lifted, one by one and all together, and the least multiple of the accelerators
    that serves.
    """
    for change, relaxed in _changes(scenario):
        found = _fitting(relaxed)
        if found is not None:
            yield {"change": change, **found}
    for change, relaxed in _more_accelerators(scenario):
        found = _fitting(relaxed)
        if found is not None:
            yield {"change": change, **found}
            return


def _fitting(scenario: Scenario) -> dict[str, Any] | None:
    ctx = CostContext.of(scenario)
    table, _ = layouts(ctx, scenario.search)
    fitting = table.take(accepted(ctx, scenario.search, table))
    if not _placeable(LayoutProblem(ctx, fitting), scenario.search.orders):
        return None
    _, peak = memory.worst_stage(ctx, fitting)
    return {"layouts_that_fit": len(fitting), "peak_bytes": float(peak.min())}


def _placeable(problem: LayoutProblem, orders: str) -> bool:
    """Whether some layout has a placement over some fill, in a framework's order where asked."""
    if not problem.num_shapes:
        return False
    if orders == "framework":
        shapes, _ = order_rows(problem, np.arange(problem.num_shapes))
        return len(shapes) > 0
    return bool(fills(problem.widths, problem.ctx.num_accelerators))


def _changes(scenario: Scenario) -> Iterator[tuple[dict[str, Any], Scenario]]:
    search = scenario.search
    if search.memory == "fits":
        yield (
            {"search.memory": "fragile"},
            scenario.replace(search=search.replace(memory="fragile")),
        )
    for name, default in Search():
        if name not in ("memory", "tie_fraction") and getattr(search, name) != default:
            relaxed = search.replace(**{name: default})
            yield {f"search.{name}": default}, scenario.replace(search=relaxed)
    free = Search(memory=search.memory, tie_fraction=search.tie_fraction)
    if search != free:
        yield {"search": {}}, scenario.replace(search=free)


def _more_accelerators(scenario: Scenario) -> Iterator[tuple[dict[str, Any], Scenario]]:
    most = scenario.topology.num_accelerators // scenario.num_accelerators
    for factor in range(2, min(most, MOST_TIMES) + 1):
        more = scenario.num_accelerators * factor
        yield {"num_accelerators": more}, scenario.replace(num_accelerators=more)


MOST_TIMES = 64
"""Accelerators are multiplied at most so often in search of a count that fits."""
