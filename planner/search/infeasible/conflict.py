"""Why nothing fits: a minimal infeasible subset of restrictions, limits and rules.

**Deletion filter.** The restrictions of `search:`, the memory and the count of accelerators are
left out one after another, and each stays out where nothing fits without it either. What is left
is, together with the software's rules, infeasible; without any one member of it some layout can be.

**Smallest hitting set.** Of the rules then a smallest set of which every layout breaks one that
keeps what is left. Dropping a set of constraints frees a layout exactly if the set holds all that
the layout breaks. So a set of constraints leaves nothing if and only if it meets ("hits") what each
layout breaks, and the smallest such set is the shortest reason.

The reasons together are infeasible on the scenario's count of accelerators (on any multiple of it,
where the count is no member), and whatever member is dropped, some layout is left.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from planner.cost.context import CostContext
from planner.layouts.arrays import BoolArray
from planner.layouts.layout import LayoutTable
from planner.problem.scenario import Scenario, Search
from planner.search.infeasible.relaxation import is_placeable, multiples
from planner.search.layout_problem import LayoutProblem
from planner.search.rules.catalog import rules_for
from planner.search.space.enumerate import NESTED_RULE, layouts
from planner.search.space.limits import TooManyRowsError, fits_in_memory
from planner.search.space.restrictions import SEARCH_PREFIX, restricted

MEMORY, COUNT, ORDERS = "memory", "num_accelerators", SEARCH_PREFIX + "orders"

MAX_SECONDS = 60.0
"""Reasons are looked for at most so long; then none are given."""


def conflict(scenario: Scenario) -> tuple[dict[str, Any], ...]:
    """Of a scenario that nothing fits, a minimal set of reasons: {id, kind, value, text, source}.

    Empty where something fits, where reasons take too long to find, or where no member is to
    blame: then nothing in the scenario but the model and the software could change it.
    """
    kept = list(_members(scenario))
    deadline = time.monotonic() + MAX_SECONDS
    if _is_feasible(scenario, kept):
        return ()
    for member in tuple(kept):
        if time.monotonic() > deadline:
            return ()
        others = [other for other in kept if other != member]
        if not _is_feasible(scenario, others):
            kept = others
    return (*(_member_reason(scenario, one) for one in kept), *_rule_reasons(scenario, kept))


# --- the deletion filter --------------------------------------------------------------------------


def _members(scenario: Scenario) -> tuple[str, ...]:
    """What may be dropped, in the order in which it is tried."""
    search = scenario.search
    orders = (ORDERS,) if search.orders == "framework" else ()
    return (*(SEARCH_PREFIX + key for key in restricted(search)), *orders, MEMORY, COUNT)


def _is_feasible(scenario: Scenario, kept: Collection[str]) -> bool:
    """Whether some layout keeps these members and all rules, and can be placed."""
    narrowed = _keeping(scenario, kept)
    counts = [narrowed] if COUNT in kept else [narrowed, *multiples(narrowed)]
    return any(_has_layout(one, MEMORY in kept) for one in counts)


def _keeping(scenario: Scenario, kept: Collection[str]) -> Scenario:
    """The scenario with the restrictions that are not kept lifted."""
    search, free = scenario.search, Search()
    dropped = [key for key in restricted(search) if SEARCH_PREFIX + key not in kept]
    changes: dict[str, Any] = {key: getattr(free, key) for key in dropped}
    if ORDERS not in kept:
        changes["orders"] = "any"
    return scenario.replace(search=search.replace(**changes))


def _has_layout(scenario: Scenario, in_memory: bool) -> bool:
    ctx = CostContext.of(scenario)
    table, _ = layouts(ctx, scenario.search, prune=in_memory)
    if in_memory:
        table = table.take(fits_in_memory(ctx, scenario.search, table))
    return is_placeable(LayoutProblem(ctx, table), scenario.search.orders)


# --- rules that all layouts break -----------------------------------------------------------------


def rule_masks(ctx: CostContext, table: LayoutTable) -> dict[str, BoolArray]:
    """Rule's id → the layouts that keep it, (rows)."""
    rows = (len(table),)
    masks = {
        rule.id: np.broadcast_to(np.asarray(rule.holds(ctx, table), dtype=bool), rows)
        for rule in rules_for(ctx)
    }
    if ctx.model.moe is not None:
        masks[NESTED_RULE] = table.grids_nest
    return masks


def smallest_conflict(masks: Mapping[str, BoolArray]) -> tuple[str, ...] | None:
    """A smallest set of constraints of which every layout breaks one, in the order of the masks.

    masks: constraint → the layouts that keep it. None where some layout keeps all.
    """
    names = list(masks)
    # millions of layouts break few different sets
    broken = np.unique(~np.stack([masks[name] for name in names], axis=1), axis=0)
    sets = (frozenset(names[i] for i in np.flatnonzero(row)) for row in broken)
    return smallest_hitting_set(sets, names)


def _rules_broken_by_all(scenario: Scenario, kept: Collection[str]) -> tuple[str, ...]:
    """A smallest set of rules of which every layout that keeps the members breaks one.

    On the scenario's count of accelerators; empty where there is no such layout before any rule.
    """
    narrowed = _keeping(scenario, kept)
    ctx = CostContext.of(narrowed)
    try:
        table, _ = layouts(ctx, narrowed.search, prune=False, ruled=False)
    except TooManyRowsError:
        return ()
    if MEMORY in kept and len(table):
        # formulas may divide by zero for layouts that no rule allows
        with np.errstate(all="ignore"):
            table = table.take(fits_in_memory(ctx, narrowed.search, table))
    if not len(table):
        return ()
    return smallest_conflict(rule_masks(ctx, table)) or ()


# --- reasons as values ----------------------------------------------------------------------------


def _rule_reasons(scenario: Scenario, kept: Collection[str]) -> Iterator[dict[str, Any]]:
    ctx = CostContext.of(scenario)
    known = {rule.id: rule for rule in rules_for(ctx)}
    for name in _rules_broken_by_all(scenario, kept):
        rule = known.get(name)
        if rule is None:  # a definition, not a framework's rule
            text, source = "groups of experts and of tp, cp and dp nest", "definition"
        else:
            text, source = rule.sentence, rule.source
        yield _reason(name, "rule", None, text, source)


def _member_reason(scenario: Scenario, name: str) -> dict[str, Any]:
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


# --- smallest hitting sets ------------------------------------------------------------------------


def minimal(sets: Iterable[frozenset[str]]) -> list[frozenset[str]]:
    """The sets that contain no other, smallest first, in an order of their own."""
    kept: list[frozenset[str]] = []
    for one in sorted(set(sets), key=lambda members: (len(members), sorted(members))):
        if not any(other <= one for other in kept):
            kept.append(one)
    return kept


def smallest_hitting_set(
    sets: Iterable[frozenset[str]], order: Sequence[str]
) -> tuple[str, ...] | None:
    """A smallest set that meets all the sets; None where a set is empty, which nothing meets.

    Members are in `order`, and of several smallest sets it is the first by that order. Plain branch
    and bound: sets that contain another are met with it, some member of the smallest set that is
    not met must be taken, and disjoint sets each need a member of their own.
    """
    unmet = minimal(sets)
    if unmet and not unmet[0]:
        return None
    rank = {name: position for position, name in enumerate(order)}
    best: list[tuple[str, ...]] = [tuple(rank)]

    def extend(chosen: tuple[str, ...], unmet: list[frozenset[str]]) -> None:
        if not unmet:
            hitting = tuple(sorted(chosen, key=rank.__getitem__))
            if _size_and_ranks(hitting, rank) < _size_and_ranks(best[0], rank):
                best[0] = hitting
            return
        if len(chosen) + _num_disjoint(unmet) > len(best[0]):
            return
        for member in sorted(unmet[0], key=rank.__getitem__):
            extend((*chosen, member), [one for one in unmet if member not in one])

    extend((), unmet)
    return best[0]


def _size_and_ranks(members: Sequence[str], rank: Mapping[str, int]) -> tuple[int, list[int]]:
    return len(members), [rank[member] for member in members]


def _num_disjoint(sets: Sequence[frozenset[str]]) -> int:
    """How many sets share no member with one before: each needs a member of its own."""
    seen: set[str] = set()
    count = 0
    for one in sets:
        if seen.isdisjoint(one):
            seen |= one
            count += 1
    return count
