"""When nothing fits: the nearest miss, and what would make it fit, each verified."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import numpy as np

from planner.cost import memory
from planner.cost.context import CostContext
from planner.layout import LayoutTable
from planner.problem.scenario import Scenario, Search
from planner.search.enumerate import layouts


def nearest_miss(ctx: CostContext, table: LayoutTable) -> dict[str, Any] | None:
    """The legal layout that exceeds the capacity least: by how much, in which stage and term."""
    if not len(table):
        return None
    usage, peak = memory.worst_stage(ctx, table)
    i = int(np.argmin(peak))
    layout = table.row(i)
    stage = int(np.argmax(usage.total[:, i]))
    terms = {
        f.name: float(np.broadcast_to(getattr(usage, f.name), usage.total.shape)[stage, i])
        for f in fields(usage)
    }
    return {
        "layout": layout.to_document(),
        "peak_bytes": float(peak[i]),
        "over_bytes": float(peak[i] - ctx.accelerator.hbm_bytes),
        "stage": (0, None, layout.pp - 1)[stage],
        "term": max(terms, key=lambda term: terms[term]),
        "terms": terms,
    }


def relaxations(scenario: Scenario) -> Iterator[dict[str, Any]]:
    """Changes of the scenario after which some layout fits, each verified.

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
    if not len(table):
        return None
    _, peak = memory.worst_stage(ctx, table)
    fits = memory.verdict_index(ctx, peak) <= memory.VERDICTS.index(scenario.search.memory)
    if not fits.any():
        return None
    return {
        "layouts_that_fit": int(np.count_nonzero(fits)),
        "peak_bytes": float(peak[fits].min()),
    }


def _changes(scenario: Scenario) -> Iterator[tuple[dict[str, Any], Scenario]]:
    search = scenario.search
    if search.memory == "fits":
        yield (
            {"search.memory": "fragile"},
            scenario.replace(search=search.replace(memory="fragile")),
        )
    for name in type(search).model_fields:
        if isinstance(getattr(search, name), tuple):
            yield (
                {f"search.{name}": None},
                scenario.replace(search=search.replace(**{name: None})),
            )
    free = Search(memory=search.memory)
    if search != free:
        yield {"search": None}, scenario.replace(search=free)


def _more_accelerators(scenario: Scenario) -> Iterator[tuple[dict[str, Any], Scenario]]:
    most = scenario.topology.num_accelerators // scenario.num_accelerators
    for factor in range(2, min(most, MOST_TIMES) + 1):
        more = scenario.num_accelerators * factor
        yield {"num_accelerators": more}, scenario.replace(num_accelerators=more)


MOST_TIMES = 64
"""Accelerators are multiplied at most so often in search of a count that fits."""
