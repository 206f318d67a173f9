"""Why nothing fits: a smallest set of restrictions, limits and rules that together leave nothing.

A deletion filter over the restrictions of `search:`, the memory and the count of accelerators:
each is left out in turn and stays out where nothing fits without it either. What is left, with the
software's rules, is infeasible, and without any one of it some layout can be. Of the rules then a
smallest set that all layouts break which keep what is left (`search.infeasible.hitting`). So the
whole is infeasible on the scenario's count of accelerators (any multiple, where the count is no
member), and whatever member is dropped, some layout is left.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np

from planner.cost.context import CostContext
from planner.problem.scenario import Scenario, Search
from planner.search.infeasible.forbidden import rule_masks
from planner.search.infeasible.hitting import smallest_hitting_set
from planner.search.infeasible.relax import multiples, placeable
from planner.search.problem import LayoutProblem
from planner.search.rules.catalog import rules_for
from planner.search.space.enumerate import layouts
from planner.search.space.restrictions import SEARCH_PREFIX, restricted
from planner.search.space.room import TooManyRowsError, accepted

MEMORY, COUNT, ORDERS = "memory", "num_accelerators", SEARCH_PREFIX + "orders"

MOST_SECONDS = 60.0
"""Reasons are looked for at most so long; then none are given."""


def members(scenario: Scenario) -> tuple[str, ...]:
    """What may be dropped, in the order in which it is tried."""
    search = scenario.search
    orders = (ORDERS,) if search.orders == "framework" else ()
    return (*(SEARCH_PREFIX + key for key in restricted(search)), *orders, MEMORY, COUNT)


def feasible(scenario: Scenario, kept: Collection[str]) -> bool:
    """Whether some layout keeps these members and all rules, and can be placed."""
    narrowed = _keeping(scenario, kept)
    counts = [narrowed] if COUNT in kept else [narrowed, *multiples(narrowed)]
    return any(_some(one, MEMORY in kept) for one in counts)


def _keeping(scenario: Scenario, kept: Collection[str]) -> Scenario:
    """The scenario with the restrictions that are not kept lifted."""
    search, free = scenario.search, Search()
    dropped = [key for key in restricted(search) if SEARCH_PREFIX + key not in kept]
    changes: dict[str, Any] = {key: getattr(free, key) for key in dropped}
    if ORDERS not in kept:
        changes["orders"] = "any"
    return scenario.replace(search=search.replace(**changes))


def _some(scenario: Scenario, in_memory: bool) -> bool:
    ctx = CostContext.of(scenario)
    table, _ = layouts(ctx, scenario.search, prune=in_memory)
    if in_memory:
        table = table.take(accepted(ctx, scenario.search, table))
    return placeable(LayoutProblem(ctx, table), scenario.search.orders)


def reasons(scenario: Scenario) -> tuple[dict[str, Any], ...]:
    """Of a scenario that nothing fits a smallest set of reasons: {id, kind, value, text, source}.

    Empty where they take too long to find, or where no member is to blame: then nothing in the
    scenario but the model and the software could change it.
    """
    kept = list(members(scenario))
    deadline = time.monotonic() + MOST_SECONDS
    if feasible(scenario, kept):
        return ()
    for member in tuple(kept):
        if time.monotonic() > deadline:
            return ()
        others = [other for other in kept if other != member]
        if not feasible(scenario, others):
            kept = others
    return (*(_member(scenario, one) for one in kept), *_rules(scenario, kept))


def broken_by_all(scenario: Scenario, kept: Collection[str]) -> tuple[str, ...]:
    """A smallest set of rules of which every layout that keeps the members, on the scenario's count
    of accelerators, breaks one; empty where there is no such layout before any rule."""
    narrowed = _keeping(scenario, kept)
    ctx = CostContext.of(narrowed)
    try:
        table, _ = layouts(ctx, narrowed.search, prune=False, ruled=False)
    except TooManyRowsError:
        return ()
    if MEMORY in kept and len(table):
        with np.errstate(all="ignore"):
            table = table.take(accepted(ctx, narrowed.search, table))
    if not len(table):
        return ()
    masks = rule_masks(ctx, table)
    names = list(masks)
    broken = np.unique(~np.stack([masks[name] for name in names], axis=1), axis=0)
    sets = (frozenset(names[i] for i in np.flatnonzero(row)) for row in broken)
    return smallest_hitting_set(sets, names) or ()


def _rules(scenario: Scenario, kept: Collection[str]) -> Iterator[dict[str, Any]]:
    ctx = CostContext.of(scenario)
    known = {rule.id: rule for rule in rules_for(ctx)}
    for name in broken_by_all(scenario, kept):
        rule = known.get(name)
        yield {
            "id": name,
            "kind": "rule",
            "value": None,
            "text": "groups of experts and of tp, cp and dp nest"
            if rule is None
            else rule.sentence,
            "source": "definition" if rule is None else rule.source,
        }


def _member(scenario: Scenario, name: str) -> dict[str, Any]:
    ctx = CostContext.of(scenario)
    if name == MEMORY:
        capacity = float(ctx.accelerator.hbm_bytes)
        text = f"memory of {capacity / 1e9:.1f} GB on each {ctx.accelerator.name}"
        return _reason(name, "memory", capacity, text, "the topology's accelerator")
    if name == COUNT:
        text = f"{scenario.num_accelerators:,} accelerators"
        return _reason(name, "count", scenario.num_accelerators, text, "the scenario")
    key = name.removeprefix(SEARCH_PREFIX)
    value = getattr(scenario.search, key)
    listed = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    plain = list(value) if isinstance(value, tuple) else value
    return _reason(name, "search", plain, f"search: restricts {key} to {listed}", "the scenario")


def _reason(name: str, kind: str, value: Any, text: str, source: str) -> dict[str, Any]:
    return {"id": name, "kind": kind, "value": value, "text": text, "source": source}
