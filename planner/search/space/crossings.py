"""What a partial layout may be crossed with: parts of a batch, sets of overlaps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.cost.context import CostContext
from planner.cost.model_states import state_shards
from planner.layouts.keys import OVERLAPS
from planner.layouts.layout import LayoutTable
from planner.problem.scenario import Search

Ints = NDArray[np.int64]

AXES = tuple(name for name in OVERLAPS if name != "ep")
"""Axes whose overlap belongs to a family; whether dispatch and combine overlap comes later."""


def divisors(number: int) -> list[int]:
    """All divisors, rising."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return small + [number // d for d in reversed(small) if d * d != number]


def microbatch_sizes(least: int, most: int, ranks: int) -> list[int]:
    """Sizes of which some whole number makes a batch of least to most on so many ranks."""
    if least == most:
        return [1] if most % ranks else divisors(most // ranks)
    low, high = -(-least // ranks), most // ranks
    return [size for size in range(1, high + 1) if high // size > (low - 1) // size]


def microbatch_counts(least: int, most: int, ranks: int, size: int) -> range:
    """How many micro-batches of a size make a batch of least to most on so many ranks."""
    unit = ranks * size
    if least == most:
        return range(most // unit, most // unit + 1)
    return range(-(-least // unit), most // unit + 1)


def overlaps_exchanges(ctx: CostContext, search: Search) -> bool:
    """Whether dispatch and combine may overlap another micro-batch."""
    listed = search.overlap
    if listed is None:
        return "ep" in ctx.software.overlap
    return any("ep" in one.split("+") for one in listed)


def sets_of(ctx: CostContext, search: Search) -> Ints:
    """The sets of AXES that may overlap, as 0 or 1, shape (sets, AXES)."""
    listed = search.overlap or ("+".join(ctx.software.overlap),)
    return np.array([[int(name in one.split("+")) for name in AXES] for one in listed])


def live_axes(table: LayoutTable) -> list[Ints]:
    """Whether each of AXES has several ranks: an overlap of one that has not means nothing."""
    sharing = table.dp_shard * table.dp_replicate * table.cp
    return [1 * (table.tp > 1), 1 * (sharing > 1), 1 * (table.pp > 1)]


def of_axes(table: LayoutTable) -> list[Ints]:
    """What overlaps of AXES, and which of them are live: what `dispatch_overlap_choices` reads."""
    return [*(getattr(table, f"overlap_{name}") for name in AXES), *live_axes(table)]


def distinct_sets(sets: Ints, live: Sequence[int]) -> list[int]:
    """Positions of the sets that differ on live axes, the first of those alike."""
    seen: dict[tuple[int, ...], int] = {}
    for number, on in enumerate(sets.tolist()):
        seen.setdefault(tuple(v * alive for v, alive in zip(on, live, strict=True)), number)
    return list(seen.values())


def listed_overlaps(search: Search, table: LayoutTable) -> NDArray[np.bool_]:
    """Whether what overlaps is listed, on the axes that have several ranks, shape (rows).

    Exchanges with experts that do not overlap where they are listed are taken as unable to.
    """
    found = np.zeros(len(table), dtype=bool)
    live = live_axes(table)
    for one in search.overlap or ():
        names = one.split("+")
        same = np.asarray(table.overlap_ep <= int("ep" in names))
        for axis, alive in zip(AXES, live, strict=True):
            same = same & ((alive == 0) | (getattr(table, f"overlap_{axis}") == int(axis in names)))
        found |= same
    return found


def dispatch_overlap_choices(search: Search, row: Sequence[Any]) -> tuple[int, ...]:
    """Whether dispatch and combine overlap, of a layout where they can: 0, 1 or both.

    row: what overlaps of AXES, and which of them are live.
    """
    if search.overlap is None:
        return (0, 1)
    on, live = row[: len(AXES)], row[len(AXES) :]
    listed = [one.split("+") for one in search.overlap]
    alike = [
        names
        for names in listed
        if all((axis in names) == bool(v) for axis, v, alive in zip(AXES, on, live, strict=True)
               if alive)
    ]  # fmt: skip
    return tuple(sorted({int("ep" in names) for names in alike}))


def canonical_zero(ctx: CostContext, search: Search, table: LayoutTable) -> NDArray[np.bool_]:
    """Whether states are shared, or the ZeRO stage is the lowest that may be; shape (rows).

    Where no states are shared a higher stage costs as much, or more.
    """
    wanted = search.zero_stage
    allowed = [stage for stage in ctx.software.zero_stages if wanted is None or stage in wanted]
    lowest = table.zero_stage == min(allowed, default=0)
    return np.asarray(state_shards(ctx, table).shared | lowest)


def recompute_kinds(ctx: CostContext) -> list[str]:
    """The software's recompute kinds that mean something for the model.

    Modules are recomputed where experts make them a large part; elsewhere kinds are coarser.
    """
    modules = {"mla_up_proj": ctx.model.mla, "act": ctx.model.moe, "act_norm": ctx.model.moe}
    modules["moe"] = ctx.model.moe
    return [name for name in ctx.software.recompute if modules.get(name, True) is not None]
