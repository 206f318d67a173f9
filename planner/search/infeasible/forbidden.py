"""Why given layout keys have no legal completion, and which of their values would have one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.cost.context import CostContext
from planner.layouts.grids import grids_nest
from planner.layouts.layout import OVERLAPS, RECOMPUTE, Layout, LayoutTable
from planner.problem.scenario import Search
from planner.search.infeasible.hitting import smallest_hitting_set
from planner.search.placement import fills
from planner.search.rules.catalog import rules_for
from planner.search.rules.legality import split_holds
from planner.search.space.enumerate import NESTED_RULE, families, layouts
from planner.search.space.restrictions import (
    SEARCH_PREFIX,
    fixed,
    listed,
    restriction_masks,
    unsearched,
)
from planner.search.space.room import TooManyRowsError, accepted

BoolArray = NDArray[np.bool_]

INSIDE_DOMAINS = ("tp", "cp", "ep", "etp")
"""Degrees whose nearest values are those that fill domains evenly, where there are such."""

MOST_TRIED = 24
"""Values tried on either side of a given one."""


@dataclass(frozen=True)
class Forbidding:
    """Ids of what leaves no layout: each of them by itself (`alone`), or only together."""

    ids: tuple[str, ...]
    alone: bool


def with_keys(table: LayoutTable, values: Mapping[str, Any]) -> Iterator[LayoutTable]:
    """The layouts with keys that no search crosses set; a split of stages needs one schedule."""
    if "overlap" in values:
        names = values["overlap"].split("+")
        columns = {f"overlap_{name}": int(name in names) for name in OVERLAPS}
        table = _with_columns(table, columns)
    if "recompute" in values:
        table = _with_columns(table, {"recompute_index": RECOMPUTE.index(values["recompute"])})
    if "stage_layers" not in values:
        yield table
        return
    for code in np.unique(table.schedule_index).tolist():
        part = table.take(table.schedule_index == code)
        yield replace(part, stage_layers=values["stage_layers"])


def _with_columns(table: LayoutTable, values: Mapping[str, int]) -> LayoutTable:
    columns: dict[str, Any] = {n: np.full(len(table), v) for n, v in values.items()}
    return replace(table, **columns)


def completions(
    ctx: CostContext, search: Search, values: Mapping[str, Any], prune: bool
) -> Iterator[LayoutTable]:
    """Every legal layout with these keys that a search restricted to them holds; with `prune` some
    that cannot fit in memory are left out."""
    asked, given = fixed(search, ctx.software, values), unsearched(ctx.software, values)
    if not given:
        yield layouts(ctx, asked, prune)[0]
        return
    for table in with_keys(_without(ctx, asked, given, prune), given):
        for part in _split_alike(ctx, table):
            yield part.take(np.logical_and.reduce(list(rule_masks(ctx, part).values())))


def _without(ctx: CostContext, asked: Search, given: Mapping[str, Any], prune: bool) -> LayoutTable:
    """Layouts to set keys of that no search crosses, before the rules are judged with them."""
    if "recompute" in given:
        asked = asked.replace(recompute=ctx.software.recompute[:1])
    if "overlap" in given:
        asked = asked.replace(overlap=None)
    if "stage_layers" in given:  # rules and memory are of the split
        with suppress(TooManyRowsError):
            return layouts(ctx, asked, prune=False, ruled=False)[0]
    table, _ = layouts(ctx, asked, prune and "stage_layers" not in given)
    return table.take(table.overlap_ep == 0) if "overlap" in given else table


def _split_alike(ctx: CostContext, table: LayoutTable) -> Iterator[LayoutTable]:
    """The layouts that can have the table's split of the layers, of as many chunks each."""
    if table.stage_layers is None:
        if len(table):
            yield table
        return
    for pp, vp in np.unique(np.stack([table.pp, table.vp], axis=1), axis=0).tolist():
        part = table.take((table.pp == pp) & (table.vp == vp))
        if split_holds(ctx, part.row(0)):
            yield part


def rule_masks(ctx: CostContext, table: LayoutTable) -> dict[str, BoolArray]:
    """Rule's id → the layouts that keep it."""
    size = (len(table),)
    found = {
        rule.id: np.broadcast_to(np.asarray(rule.holds(ctx, table), dtype=bool), size)
        for rule in rules_for(ctx)
    }
    if ctx.model.moe is not None:
        found[NESTED_RULE] = np.broadcast_to(np.asarray(grids_nest(table), dtype=bool), size)
    return found


def forbidding(ctx: CostContext, search: Search, values: Mapping[str, Any]) -> Forbidding | None:
    """The rules and restrictions that leave no layout with these keys; none where the definitions
    of degrees and batch leave none before any rule, or there are too many to look at."""
    free = fixed(Search().replace(offload=search.offload), ctx.software, values)
    try:
        whole, _ = layouts(ctx, free, prune=False, ruled=False)
    except TooManyRowsError:
        return None
    masks: dict[str, list[BoolArray]] = {}
    for table in with_keys(whole, unsearched(ctx.software, values)):
        for name, keeps in {**rule_masks(ctx, table), **restriction_masks(search, table)}.items():
            if name.removeprefix(SEARCH_PREFIX) not in values:
                masks.setdefault(name, []).append(keeps)
    if not len(whole):
        return None
    kept_by = {name: np.concatenate(parts) for name, parts in masks.items()}
    alone = tuple(name for name, kept in kept_by.items() if not kept.any())
    if alone:
        return Forbidding(alone, True)
    names = list(kept_by)
    broken = np.unique(~np.stack([kept_by[name] for name in names], axis=1), axis=0)
    sets = [frozenset(names[i] for i in np.flatnonzero(row)) for row in broken]
    found = smallest_hitting_set(sets, names)
    return None if found is None else Forbidding(found, False)


def rules_of_keys(ctx: CostContext, values: Mapping[str, Any]) -> tuple[str, ...]:
    """Ids of the rules that read given keys alone and are broken by their values."""
    names = {name: value for name, value in values.items() if name in Layout.__slots__}
    layout = Layout(**names)
    return tuple(
        rule.id
        for rule in rules_for(ctx)
        if set(rule.keys) <= names.keys() and not np.all(rule.holds(ctx, layout))
    )


def nearest(
    ctx: CostContext, search: Search, values: Mapping[str, Any], key: str, fits: bool
) -> tuple[Any, ...]:
    """The values of a given key nearest to its own with which, the other given keys as they are,
    some layout is legal (`fits`: and fits in memory): below and above, or of names all.

    Of degrees of groups only those that fill domains evenly, where there are such.
    """
    others = {k: v for k, v in values.items() if k != key}
    if not isinstance(values[key], int) or isinstance(values[key], bool):
        names = [name for name in _names(ctx, search, key) if name != values[key]]
        return tuple(v for v in names if _some(ctx, search, {**others, key: v}, fits))
    table, _ = families(ctx, fixed(search, ctx.software, others))
    if key in ("cp_a2a", "stage_layers") or not hasattr(table, key):
        return ()
    known = [v for v in np.unique(getattr(table, key)).tolist() if v != values[key]]
    if key in INSIDE_DOMAINS:
        known = _in_domains(ctx, known) or known
    below = sorted((v for v in known if v < values[key]), reverse=True)[:MOST_TRIED]
    above = sorted(v for v in known if v > values[key])[:MOST_TRIED]
    ends = (
        next((v for v in side if _some(ctx, search, {**others, key: v}, fits)), None)
        for side in (below, above)
    )
    return tuple(v for v in ends if v is not None)


def _names(ctx: CostContext, search: Search, key: str) -> tuple[Any, ...]:
    software = ctx.software
    known: dict[str, tuple[Any, ...]] = {
        "recompute": software.recompute,
        "cp_kind": software.cp_kinds,
        "schedule": software.schedules,
        "dispatcher": software.dispatchers,
        "offload": ("none", *software.offloads),
        "sp": (False, True),
    }
    return tuple(listed(search, key) or known.get(key, ()))


def _in_domains(ctx: CostContext, known: list[int]) -> list[int]:
    used = {fill[0] for fill in fills(ctx.topology.widths, ctx.num_accelerators)}
    return [v for v in known if any(inner % v == 0 or v % inner == 0 for inner in used)]


def _some(ctx: CostContext, search: Search, values: Mapping[str, Any], fits: bool) -> bool:
    for table in completions(ctx, search, values, prune=fits):
        if fits:
            table = table.take(accepted(ctx, search, table))
        if len(table):
            return True
    return False
