"""When nothing fits: the nearest miss, and relaxations that make it fit, each planned.

A relaxation is a change of the scenario: a restriction of `search:` lifted, the fragile band
accepted, another precision, states offloaded to the host, or more accelerators.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import combinations
from typing import Any

import numpy as np

from planner.cost import memory
from planner.cost.context import CostContext
from planner.cost.stages import candidate_ranks
from planner.layouts.layout import LayoutTable
from planner.problem.cluster import Cluster
from planner.problem.precision import RECIPES
from planner.problem.scenario import Scenario, Search
from planner.search.families import search_families
from planner.search.layout_problem import LayoutProblem
from planner.search.placement_rows import order_rows
from planner.search.space.enumerate import layouts
from planner.search.space.limits import fits_in_memory, peak_limit_bytes, peak_upper_ends
from planner.search.space.restrictions import restricted

# --- the nearest miss -----------------------------------------------------------------------------


def nearest_miss(ctx: CostContext, search: Search, table: LayoutTable) -> dict[str, Any] | None:
    """The legal layout that exceeds the memory limit least: by how much, in which stage and term.

    Over the capacity; for a peak within it, over the fragile band's lower edge; for a robust search
    whose limit it keeps, the interval's upper end over the capacity. Bytes. None where no layout is
    legal, or where one fits (and cannot be placed).
    """
    if not len(table):
        return None
    usage, peaks = memory.worst_stage(ctx, table)
    peak, total = np.asarray(peaks), np.asarray(usage.total)
    in_host = memory.host_holds(ctx, table)
    # layouts that the host cannot hold count only where there are no others
    i = int(np.argmin(np.where(in_host | ~np.any(in_host), peak, np.inf)))
    if fits_in_memory(ctx, search, table).any():
        return None
    capacity, limit = ctx.limit_bytes["fragile"], peak_limit_bytes(ctx, search)
    over = float(peak[i]) - (capacity if peak[i] > capacity else limit)
    if peak[i] <= limit:
        over = float(peak_upper_ends(ctx, table, usage)[i]) - capacity
    layout = table.row(i)
    worst = int(np.argmax(total[:, i]))
    stage = np.asarray(candidate_ranks(ctx, layout).stage)
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


# --- relaxations, planned -------------------------------------------------------------------------

PLAN_SECONDS = 10.0
"""A relaxation is planned for at most so long; that a layout fits is enough."""

UNRELAXED = ("memory", "tie_fraction", "objective", "stages")
"""Keys of `search:` whose default allows no more layouts than another value."""

MAX_MULTIPLE = 64
"""Largest multiple of the accelerators that is tried in search of a count that fits."""


@dataclass(frozen=True)
class _Change:
    """Dotted keys of the scenario with their new values, and the scenario that has them."""

    keys: Mapping[str, Any]
    scenario: Scenario


def relaxations(scenario: Scenario) -> tuple[dict[str, Any], ...]:
    """Changes of the scenario after which a layout fits and can be placed, each planned.

    One at a time: restrictions lifted (by themselves and all together), the fragile band, another
    precision, what may live on the host, the smallest multiple of the accelerators that serves.
    Where none of these does by itself, two at once. Cheapest first: by accelerators, then by
    `step_seconds`, the best step within PLAN_SECONDS of search.
    """
    changes = list(_changes(scenario))
    planned = [_planned(change) for change in changes]
    planned.append(_more_accelerators(_Change({}, scenario)))
    if not any(planned):
        pairs = combinations(changes, 2)
        planned += [_planned(both) for one, other in pairs if (both := _both(scenario, one, other))]
        lifted = {f"search.{key}" for key in restricted(scenario.search) if key not in UNRELAXED}
        planned += [
            _more_accelerators(change)
            for change in changes
            if lifted & set(change.keys) in (set(), lifted)  # no restriction is lifted, or all are
        ]
    serving = [one for one in planned if one is not None]
    return tuple(sorted(serving, key=lambda one: (one["num_accelerators"], one["step_seconds"])))


def of_open(scenario: Scenario, planned: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], ...]:
    """Relaxations of one count and precision as changes of the scenario that left them open.

    A change of what was open also closes it.
    """
    search = scenario.search
    own = {"num_accelerators": search.num_accelerators, "training.precision": search.precision}
    closing = {key: f"search.{key.rpartition('.')[2]}" for key, open_to in own.items() if open_to}
    return tuple(
        {
            **one,
            "change": {
                **one["change"],
                **{closing[k]: None for k in one["change"] if k in closing},
            },
        }
        for one in planned
    )


def _planned(change: _Change) -> dict[str, Any] | None:
    """What a relaxed scenario has: layouts that fit, their lowest peak, the best one's step.

    None where nothing fits or can be placed.
    """
    scenario = change.scenario
    ctx = CostContext.of(scenario)
    table, _ = layouts(ctx, scenario.search)
    fitting = table.take(fits_in_memory(ctx, scenario.search, table))
    if not is_placeable(LayoutProblem(ctx, fitting), scenario.search.orders):
        return None
    answer = search_families(ctx, scenario.search, 1, PLAN_SECONDS)
    if answer.result is None or answer.result.fastest is None:
        return None
    _, peak = memory.worst_stage(ctx, fitting)
    fastest = answer.result.fastest
    return {
        "change": dict(change.keys),
        "layouts_that_fit": len(fitting),
        "peak_bytes": float(np.min(peak)),
        "step_seconds": fastest.step_seconds,
        "num_accelerators": scenario.num_accelerators,
        "layout": answer.problem.layout(fastest.layout_index).to_document(),
    }


def is_placeable(problem: LayoutProblem, orders: str) -> bool:
    """Whether some layout has a placement over a possible fill; orders as in `SideConstraints`."""
    if not problem.num_layouts:
        return False
    if orders == "framework":
        _, rows = order_rows(problem, np.arange(problem.num_layouts))
        return bool(problem.fit_inventory(rows).any())
    # where nothing restricts the order, any fill takes any degrees of its product
    return bool(problem.space.fills)


# --- the changes that are tried -------------------------------------------------------------------


def _changes(scenario: Scenario) -> Iterator[_Change]:
    """Single changes of the search and the training job."""
    search = scenario.search
    if search.memory == "fits":
        yield _searching(scenario, memory="fragile")
    lifted = {
        name: default
        for name, default in Search()
        if name not in UNRELAXED and getattr(search, name) != default
    }
    for name, default in lifted.items():
        yield _searching(scenario, **{name: default})
    if len(lifted) > 1:
        yield _searching(scenario, **lifted)
    if search.offload is None and scenario.topology.accelerator.host is not None:
        for offloaded in scenario.software.offloads:
            yield _searching(scenario, offload=(offloaded,))
    yield from _precisions(scenario)


def _searching(scenario: Scenario, **changes: Any) -> _Change:
    keys = {
        f"search.{name}": value[0] if isinstance(value, tuple) else value
        for name, value in changes.items()
    }
    return _Change(keys, scenario.replace(search=scenario.search.replace(**changes)))


def _precisions(scenario: Scenario) -> Iterator[_Change]:
    """The other precisions that the accelerator has figures for."""
    accelerator = scenario.topology.accelerator
    for precision, recipe in RECIPES.items():
        able = recipe.peak in accelerator.peak_flops and recipe.peak in accelerator.gemm
        if able and precision != scenario.training.precision:
            training = scenario.training.replace(precision=precision)
            yield _Change({"training.precision": precision}, scenario.replace(training=training))


def _both(scenario: Scenario, one: _Change, other: _Change) -> _Change | None:
    """Two changes at once; None where they change the same key."""
    if set(one.keys) & set(other.keys):
        return None
    keys: dict[str, Any] = {**one.keys, **other.keys}
    relaxed = scenario
    for key, value in keys.items():
        section, _, name = key.partition(".")
        if section == "search":
            single = name in ("memory", "orders", "robust") or value is None
            changed = {name: value if single else (value,)}
            relaxed = relaxed.replace(search=relaxed.search.replace(**changed))
        else:
            relaxed = relaxed.replace(training=relaxed.training.replace(**{name: value}))
    return _Change(keys, relaxed)


def multiples(scenario: Scenario) -> Iterator[Scenario]:
    """The scenario on multiples of its accelerators, as many as there are."""
    available = scenario.topology.num_accelerators
    if scenario.inventory is not None:
        available = Cluster.of(scenario.inventory, scenario.topology).largest
    most = available // scenario.num_accelerators
    for factor in range(2, min(most, MAX_MULTIPLE) + 1):
        yield scenario.replace(num_accelerators=scenario.num_accelerators * factor)


def _more_accelerators(change: _Change) -> dict[str, Any] | None:
    """The smallest multiple of the accelerators that serves, on top of another change."""
    for more in multiples(change.scenario):
        keys = {**change.keys, "num_accelerators": more.num_accelerators}
        planned = _planned(_Change(keys, more))
        if planned is not None:
            return planned
    return None
