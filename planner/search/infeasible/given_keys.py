"""Layout keys that a user gives: their legal completions, what forbids them, and near values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from planner.cost.context import CostContext
from planner.layouts.arrays import BoolArray
from planner.layouts.keys import OVERLAPS, RECOMPUTE
from planner.layouts.layout import Layout, LayoutTable
from planner.problem.scenario import Search
from planner.search.infeasible.conflict import rule_masks, smallest_conflict
from planner.search.rules.catalog import rules_for
from planner.search.rules.legality import split_holds
from planner.search.space.enumerate import families, layouts
from planner.search.space.limits import TooManyRowsError, fits_in_memory
from planner.search.space.restrictions import (
    SEARCH_PREFIX,
    fixed,
    listed,
    restriction_masks,
    unsearched,
)

INSIDE_DOMAINS = ("tp", "cp", "ep", "etp")
"""Degrees whose nearest values are those that fill domains evenly, where there are such."""

MAX_TRIED = 24
"""Most values that are tried on either side of a given one."""


# --- completions ----------------------------------------------------------------------------------


def completions(
    ctx: CostContext, search: Search, values: Mapping[str, Any], prune: bool
) -> Iterator[LayoutTable]:
    """Every legal layout with these keys in a search that is restricted to them.

    prune: some that cannot fit in memory are left out. Each table has one stage split.
    """
    restricted, given = fixed(search, ctx.software, values), unsearched(ctx.software, values)
    if not given:
        yield layouts(ctx, restricted, prune)[0]
        return
    for table in _with_keys(_before_given(ctx, restricted, given, prune), given):
        for alike in _by_split(ctx, table):
            yield alike.take(np.logical_and.reduce(list(rule_masks(ctx, alike).values())))


def _before_given(
    ctx: CostContext, restricted: Search, given: Mapping[str, Any], prune: bool
) -> LayoutTable:
    """Layouts to set keys of that no search crosses, before the rules are judged with them."""
    if "recompute" in given:
        restricted = restricted.replace(recompute=ctx.software.recompute[:1])
    if "overlap" in given:
        restricted = restricted.replace(overlap=None)
    if "stage_layers" in given:
        # rules and memory depend on the split, so neither may remove layouts before it is set
        with suppress(TooManyRowsError):
            return layouts(ctx, restricted, prune=False, ruled=False)[0]
    table, _ = layouts(ctx, restricted, prune and "stage_layers" not in given)
    return table.take(table.overlap_ep == 0) if "overlap" in given else table


def _with_keys(table: LayoutTable, values: Mapping[str, Any]) -> Iterator[LayoutTable]:
    """The layouts with keys that no search crosses set; a stage split needs one schedule."""
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
        of_schedule = table.take(table.schedule_index == code)
        yield replace(of_schedule, stage_layers=values["stage_layers"])


def _with_columns(table: LayoutTable, values: Mapping[str, int]) -> LayoutTable:
    columns: dict[str, Any] = {n: np.full(len(table), v) for n, v in values.items()}
    return replace(table, **columns)


def _by_split(ctx: CostContext, table: LayoutTable) -> Iterator[LayoutTable]:
    """The layouts that can have the table's stage split, by their numbers of stages and chunks."""
    if table.stage_layers is None:
        if len(table):
            yield table
        return
    for pp, vp in np.unique(np.stack([table.pp, table.vp], axis=1), axis=0).tolist():
        alike = table.take((table.pp == pp) & (table.vp == vp))
        if split_holds(ctx, alike.row(0)):
            yield alike


# --- what forbids them ----------------------------------------------------------------------------


@dataclass(frozen=True)
class KeyConflict:
    """Ids of rules and restrictions that leave no layout.

    each_suffices: any of them by itself leaves none; else only all of them together do.
    """

    ids: tuple[str, ...]
    each_suffices: bool


def conflict_of_keys(
    ctx: CostContext, search: Search, values: Mapping[str, Any]
) -> KeyConflict | None:
    """The rules and restrictions that leave no layout with these keys.

    None where the definitions of degrees and batch leave none before any rule, or there are too
    many layouts to look at.
    """
    free = fixed(Search().replace(offload=search.offload), ctx.software, values)
    try:
        every, _ = layouts(ctx, free, prune=False, ruled=False)
    except TooManyRowsError:
        return None
    by_table: dict[str, list[BoolArray]] = {}
    for table in _with_keys(every, unsearched(ctx.software, values)):
        for name, keeps in {**rule_masks(ctx, table), **restriction_masks(search, table)}.items():
            if name.removeprefix(SEARCH_PREFIX) not in values:
                by_table.setdefault(name, []).append(keeps)
    if not len(every):
        return None
    masks = {name: np.concatenate(tables) for name, tables in by_table.items()}
    sufficient = tuple(name for name, kept in masks.items() if not kept.any())
    if sufficient:
        return KeyConflict(sufficient, True)
    ids = smallest_conflict(masks)
    return None if ids is None else KeyConflict(ids, False)


def rules_of_keys(ctx: CostContext, values: Mapping[str, Any]) -> tuple[str, ...]:
    """Ids of the rules that read only given keys and are broken by their values."""
    names = {name: value for name, value in values.items() if name in Layout.__slots__}
    layout = Layout(**names)
    return tuple(
        rule.id
        for rule in rules_for(ctx)
        if set(rule.keys) <= names.keys() and not np.all(rule.holds(ctx, layout))
    )


# --- nearest values -------------------------------------------------------------------------------


def nearest_values(
    ctx: CostContext, search: Search, values: Mapping[str, Any], key: str, fits: bool
) -> tuple[Any, ...]:
    """The values of a key nearest to its own with which some layout has the other given keys.

    One below and one above; of a key with names all others. fits: the layout must fit in memory.
    Of degrees of groups only those that fill domains evenly, where there are such.
    """
    others = {k: v for k, v in values.items() if k != key}
    if not isinstance(values[key], int) or isinstance(values[key], bool):
        names = [name for name in _names(ctx, search, key) if name != values[key]]
        return tuple(v for v in names if _has_layout(ctx, search, {**others, key: v}, fits))
    table, _ = families(ctx, fixed(search, ctx.software, others))
    if key in ("cp_a2a", "stage_layers") or not hasattr(table, key):
        return ()
    known = [v for v in np.unique(getattr(table, key)).tolist() if v != values[key]]
    if key in INSIDE_DOMAINS:
        known = _in_domains(ctx, known) or known
    below = sorted((v for v in known if v < values[key]), reverse=True)[:MAX_TRIED]
    above = sorted(v for v in known if v > values[key])[:MAX_TRIED]
    nearest = (
        next((v for v in side if _has_layout(ctx, search, {**others, key: v}, fits)), None)
        for side in (below, above)
    )
    return tuple(v for v in nearest if v is not None)


def _names(ctx: CostContext, search: Search, key: str) -> tuple[Any, ...]:
    """The values of a key without an order, as `search:` lists them or the software has them."""
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
    used = {fill[0] for fill in ctx.topology.fills(ctx.num_accelerators)}
    return [v for v in known if any(inner % v == 0 or v % inner == 0 for inner in used)]


def _has_layout(ctx: CostContext, search: Search, values: Mapping[str, Any], fits: bool) -> bool:
    for table in completions(ctx, search, values, prune=fits):
        if fits:
            table = table.take(fits_in_memory(ctx, search, table))
        if len(table):
            return True
    return False
