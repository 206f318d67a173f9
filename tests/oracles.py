"""What tests compare with: plain enumeration, ranks counted one by one, random layouts.

Itertools and scalars; of `planner` the layout and the scalar step alone, nothing of the search.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from planner.cost.channels import SPECS, occurrences
from planner.cost.collectives import GroupCost
from planner.cost.context import CostContext
from planner.cost.step import StepTime, evaluate, layout_costs, step_time
from planner.cost.traffic import channel_costs
from planner.layouts.grids import DENSE_GRID, EXPERT_GRID, Grid
from planner.layouts.keys import CP_KINDS, DISPATCHERS, RECOMPUTE
from planner.layouts.layout import Layout, LayoutTable
from tests.scenarios import LOSSY

Placement = tuple[tuple[int, ...], ...]
"""Factors of every atom in every tier, atoms of a grid × tiers."""

# ---------------------------------------------------------------- placements


def divisors(number: int) -> list[int]:
    """Divisors, rising."""
    return [d for d in range(1, number + 1) if number % d == 0]


@lru_cache(maxsize=4096)
def factorisations(number: int, parts: int) -> tuple[tuple[int, ...], ...]:
    """Every way to write a number as an ordered product."""
    found = itertools.product(divisors(number), repeat=parts)
    return tuple(factors for factors in found if prod(factors) == number)


@lru_cache(maxsize=256)
def all_placements(degrees: tuple[int, ...], widths: tuple[int, ...]) -> tuple[Placement, ...]:
    """Every placement over every fill, atom after atom."""
    room: list[tuple[Placement, tuple[int, ...]]] = [((), (1,) * len(widths))]
    for degree in degrees:
        grown = []
        for (rows, used), factors in itertools.product(room, factorisations(degree, len(widths))):
            filled = tuple(u * f for u, f in zip(used, factors, strict=True))
            if all(f <= w for f, w in zip(filled, widths, strict=True)):
                grown.append(((*rows, factors), filled))
        room = grown
    return tuple(rows for rows, _ in room)


def plain_splits(placement: Sequence[Sequence[int]]) -> dict[str, list[int]]:
    """Members of every group in every tier, of the grid that has so many atoms."""
    (grid,) = [g for g in (DENSE_GRID, EXPERT_GRID) if len(g.atoms) == len(placement)]
    return {
        group: [
            prod(placement[grid.atoms.index(a)][t] for a in atoms) for t in range(len(placement[0]))
        ]
        for group, atoms in grid.groups.items()
    }


def group_sizes(layout: Layout) -> dict[str, int]:
    """Members of every group, experts' among them."""
    shard = layout.cp * layout.dp_shard
    return {
        "tp": layout.tp, "cp": layout.cp, "etp": layout.etp, "ep": layout.ep, "shard": shard,
        "edp": layout.tp * shard // (layout.etp * layout.ep), "replicate": layout.dp_replicate,
        "pp": layout.pp,
    }  # fmt: skip


def innermost_splits(layout: Layout, num_tiers: int = 2) -> dict[str, list[float]]:
    """Splits of a layout that lives in the innermost tier alone."""
    outside = [1.0] * (num_tiers - 1)
    return {name: [float(size), *outside] for name, size in group_sizes(layout).items()}


def moved(ctx: CostContext, layout: Layout, group: str) -> float:
    """Bytes a rank's links carry for a group in a step, all members in one domain."""
    traffic = layout_costs(ctx, layout).traffic
    costs = channel_costs(ctx, traffic, innermost_splits(layout))
    times = occurrences(ctx, layout)
    return sum(
        float(times[name] * costs[name].busy_seconds[0])
        for name in traffic
        if SPECS[name].group == group
    )


def ring(members: int) -> float:
    """The share of a message that a rank of a ring sends or receives."""
    return (members - 1) / members


# ---------------------------------------------------------------- step


def plain_step(ctx: CostContext, layout: Layout, placement: Placement) -> float:
    """The scalar step of one row."""
    return plain_steps(ctx, layout, [placement])[0]


def plain_steps(ctx: CostContext, layout: Layout, placements: Sequence[Placement]) -> list[float]:
    """The scalar step of each placement; what hangs on the layout alone is costed once."""
    shape = layout_costs(ctx, layout)
    every = (channel_costs(ctx, shape.traffic, plain_splits(row)) for row in placements)
    return [float(step_time(ctx, layout, shape, costs).total) for costs in every]


def plain_least_step(ctx: CostContext, layout: Layout) -> float:
    """Least step of a layout over every fill and placement, inf where there is none."""
    grid = EXPERT_GRID if ctx.model.moe else DENSE_GRID
    rows = all_placements(layout.degrees(grid), ctx.topology.widths)
    return min(plain_steps(ctx, layout, rows), default=float("inf"))


def step_of_costs(
    ctx: CostContext, layout: Layout, splits: Any
) -> tuple[Callable[[Any], Any], list[float]]:
    """The step as a function of flat vectors (..., C) of all costs, and the vector of the splits.

    Many vectors are one table, of the same layout in every row.
    """
    costs = channel_costs(ctx, layout_costs(ctx, layout).traffic, splits)
    names, width = list(costs), 2 + len(ctx.topology.widths)
    flat = [
        float(part)
        for c in costs.values()
        for part in (c.latency_seconds, c.switch_seconds, *c.busy_seconds)
    ]
    one = LayoutTable.from_layouts([layout])

    def step(vectors: Any) -> Any:
        parts = np.asarray(vectors, dtype=np.float64).reshape(-1, len(names), width)
        table = one.take(np.zeros(len(parts), dtype=np.intp))
        given = {
            name: GroupCost(rows[0], tuple(rows[2:]), rows[1])
            for name, rows in zip(names, np.moveaxis(parts, 0, -1), strict=True)
        }
        total = step_time(ctx, table, layout_costs(ctx, table), given).total
        return np.reshape(total, np.shape(vectors)[:-1])

    return step, flat


# ---------------------------------------------------------------- ranks


def rank_coordinates(order: list[tuple[str, int]]) -> list[dict[str, int]]:
    """Every rank's coordinates: mixed radix along the order, innermost first."""
    ranks = []
    for rank in range(prod(factor for _, factor in order)):
        rest, coordinates, stride = (
            rank,
            dict.fromkeys(DENSE_GRID.atoms, 0),
            dict.fromkeys(DENSE_GRID.atoms, 1),
        )
        for atom, factor in order:
            rest, digit = divmod(rest, factor)
            coordinates[atom] += digit * stride[atom]
            stride[atom] *= factor
        ranks.append(coordinates)
    return ranks


def rank_factors(order: list[tuple[str, int]], fill: Sequence[int]) -> dict[str, list[int]]:
    """How many members of each atom's group share a domain of every tier, off the rank table."""
    ranks = rank_coordinates(order)
    found: dict[str, list[int]] = {atom: [] for atom in DENSE_GRID.atoms}
    for atom in DENSE_GRID.atoms:
        own = [{**c, atom: 0} == dict.fromkeys(DENSE_GRID.atoms, 0) for c in ranks]
        group = [rank for rank, inside in enumerate(own) if inside]
        reached = len(group)
        size = 1
        for children in fill:
            size *= children
            domains = len({rank // size for rank in group})
            found[atom].append(reached // domains)
            reached = domains
    return found


# ---------------------------------------------------------------- hypothesis

DEGREES = st.sampled_from([1, 1, 2, 3, 4, 8])

lossy_kinds = st.sampled_from(sorted(LOSSY))
"""Keys of the lossy contexts."""


def able_schedules(pp: int, vp: int) -> list[tuple[str, int]]:
    """Schedules that ranks of vp chunks can run, and the fewest micro-batches of each."""
    if pp == 1:
        return [("1f1b", 1)]
    if vp == 1:
        both = [("dualpipe", 2 * pp)] if pp % 2 == 0 else []
        return [("1f1b", 1), ("zb-h1", 1), *both]
    v = [("zb-v", 2 * pp - 1), ("dualpipev", 2 * pp)] if vp == 2 else []
    return [("interleaved", 1), ("interleaved-zb", 1), *v]


@st.composite
def layouts(draw: st.DrawFn, num_layers: int = 11) -> Layout:
    """Any layout whose every chunk has a layer; frameworks may forbid it."""
    tp, pp, cp = draw(DEGREES), draw(DEGREES), draw(DEGREES)
    inner = [a for a in range(2, cp) if cp % a == 0]
    kind = draw(st.sampled_from(CP_KINDS if inner else CP_KINDS[:3]))
    vp = draw(st.integers(1, num_layers // pp)) if pp > 1 else 1
    schedule, fewest = draw(st.sampled_from(able_schedules(pp, vp)))
    m = draw(st.integers(fewest, 40))
    recompute = draw(st.sampled_from(RECOMPUTE))
    can_count = recompute == "full" and schedule in ("1f1b", "interleaved")
    counted = draw(st.integers(0, num_layers // (pp * vp) - 1)) if can_count else 0
    return Layout(
        tp=tp,
        cp=cp,
        pp=pp,
        dp_shard=draw(DEGREES),
        dp_replicate=draw(DEGREES),
        vp=vp,
        mbs=draw(st.integers(1, 4)),
        num_microbatches=m + m % 2 if schedule == "dualpipe" else m,
        zero_stage=draw(st.integers(0, 3)),
        sp=draw(st.booleans()) and tp > 1,
        schedule=schedule,
        recompute=recompute,
        recompute_layers=counted,
        cp_kind=kind,
        cp_a2a=draw(st.sampled_from(inner)) if kind == "hierarchical" else 1,
        overlap=draw(st.sampled_from(["none", "tp", "dp", "pp", "tp+dp", "dp+pp", "tp+dp+pp"])),
    )


@st.composite
def placed_layouts(draw: st.DrawFn, num_tiers: int = 3) -> tuple[Layout, dict[str, list[float]]]:
    """A layout and the splits of its groups when every prime of a degree takes any tier."""
    return _placed(draw, draw(layouts()), DENSE_GRID, num_tiers)


def _placed(
    draw: st.DrawFn, layout: Layout, grid: Grid, num_tiers: int
) -> tuple[Layout, dict[str, list[float]]]:
    placement = [[1] * num_tiers for _ in grid.atoms]
    for factors, degree in zip(placement, layout.degrees(grid), strict=True):
        for prime in _primes(degree):
            factors[draw(st.integers(0, num_tiers - 1))] *= prime
    splits = plain_splits(placement)
    return layout, {name: [float(size) for size in split] for name, split in splits.items()}


def _primes(number: int) -> list[int]:
    for prime in range(2, number + 1):
        if number % prime == 0:
            return [prime, *_primes(number // prime)]
    return []


def nests(layout: Layout) -> bool:
    """Whether all boundaries of the dense and the experts' grid lie on one chain of divisors."""
    inside = layout.tp * layout.cp
    marks = {1, layout.tp, inside, inside * layout.dp_shard, layout.etp, layout.etp * layout.ep}
    return all(outer % inner == 0 for inner, outer in itertools.pairwise(sorted(marks)))


EXPERT_OVERLAPS = ["none", "ep", "tp+dp+pp", "tp+dp+pp+ep"]


@st.composite
def expert_layouts(draw: st.DrawFn, num_layers: int, num_experts: int = 256) -> Layout:
    """Any layout whose experts fill the ranks of a stage, nested or not; sp wherever tp > 1."""
    base = draw(layouts(num_layers))
    ranks = base.tp * base.cp * base.dp_shard
    etp = draw(st.sampled_from([d for d in (1, 2, 4, 8) if ranks % d == 0]))
    degrees = [d for d in divisors(ranks // etp) if num_experts % d == 0]
    ep = draw(st.sampled_from(degrees))
    return replace(
        base,
        etp=etp,
        ep=ep,
        sp=base.tp > 1,
        recompute_layers=0,  # of layers of several kinds
        dispatcher=draw(st.sampled_from(DISPATCHERS)) if ep > 1 else "alltoall",
        overlap=draw(st.sampled_from(EXPERT_OVERLAPS)),
    )


@st.composite
def placed_expert_layouts(
    draw: st.DrawFn, num_layers: int, num_tiers: int = 3
) -> tuple[Layout, dict[str, list[float]]]:
    """The same with splits, of layouts whose two grids nest."""
    layout = draw(expert_layouts(num_layers).filter(nests))
    return _placed(draw, layout, EXPERT_GRID, num_tiers)


# ---------------------------------------------------------------- one formula


def assert_table_equals_numbers(ctx: CostContext, rows: Sequence[Any], grid: Grid) -> None:
    """Every term of the step, of a table of (layout, splits) and of its rows one by one."""
    table = LayoutTable.from_layouts([layout for layout, _ in rows])
    splits = {
        group: [np.array(tier) for tier in zip(*(split[group] for _, split in rows), strict=True)]
        for group in grid.groups
    }
    found = evaluate(ctx, table, splits)
    for i, (layout, split) in enumerate(rows):
        one = evaluate(ctx, layout, split)
        for term in (*(field.name for field in fields(StepTime)), "total"):
            column = np.asarray(getattr(found, term))
            assert column.dtype == np.float64 and column.shape == (len(rows),), term
            # imbalance is a difference of sums of the step's size
            tolerance = 1e-12 * float(one.total) if term == "stage_imbalance" else 0.0
            scalar = float(getattr(one, term))
            assert column[i] == pytest.approx(scalar, rel=1e-12, abs=tolerance), term
