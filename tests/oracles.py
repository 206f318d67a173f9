"""What tests compare with: plain enumeration, ranks counted one by one, random layouts.

Itertools and scalars; of `planner` the layout and the scalar step alone, nothing of the search.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from hypothesis import strategies as st

from planner.cost.collectives import GroupCost
from planner.cost.context import CostContext
from planner.cost.step import evaluate, shape_costs, step_time
from planner.cost.traffic import channel_costs
from planner.layout import ATOMS, CP_KINDS, GROUPS, RECOMPUTE, Layout
from tests.scenarios import LOSSY

Placement = tuple[tuple[int, ...], ...]
"""Factors of every atom in every tier, ATOMS × tiers."""

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
    """Members of every group in every tier."""
    return {
        group: [prod(placement[ATOMS.index(a)][t] for a in atoms) for t in range(len(placement[0]))]
        for group, atoms in GROUPS.items()
    }


def innermost_splits(layout: Layout, num_tiers: int = 2) -> dict[str, list[float]]:
    """Splits of a layout that lives in the innermost tier alone."""
    sizes = {name: prod(getattr(layout, a) for a in atoms) for name, atoms in GROUPS.items()}
    return {name: [float(size), *[1.0] * (num_tiers - 1)] for name, size in sizes.items()}


# ---------------------------------------------------------------- step


def plain_step(ctx: CostContext, layout: Layout, placement: Placement) -> float:
    """The scalar step of one row."""
    return float(evaluate(ctx, layout, plain_splits(placement)).total)


def plain_least_step(ctx: CostContext, layout: Layout) -> float:
    """Least step of a layout over every fill and placement, inf where there is none."""
    rows = all_placements(layout.degrees(), ctx.topology.widths)
    return min((plain_step(ctx, layout, row) for row in rows), default=float("inf"))


def step_of_costs(
    ctx: CostContext, layout: Layout, splits: Any
) -> tuple[Callable[[Any], float], list[float]]:
    """The scalar step as a function of one flat vector of all costs, and that vector."""
    shape = shape_costs(ctx, layout)
    costs = channel_costs(ctx, shape.traffic, splits)
    names, width = list(costs), 2 + len(ctx.topology.widths)
    flat = [
        float(part)
        for c in costs.values()
        for part in (c.latency_seconds, c.switch_seconds, *c.busy_seconds)
    ]

    def step(vector: Any) -> float:
        rows = np.asarray(vector).reshape(len(names), width).tolist()
        given = {
            name: GroupCost(row[0], tuple(row[2:]), row[1])
            for name, row in zip(names, rows, strict=True)
        }
        return float(step_time(ctx, layout, shape, given).total)

    return step, flat


# ---------------------------------------------------------------- ranks


def rank_coordinates(order: list[tuple[str, int]]) -> list[dict[str, int]]:
    """Every rank's coordinates: mixed radix along the order, innermost first."""
    ranks = []
    for rank in range(prod(factor for _, factor in order)):
        rest, coordinates, stride = rank, dict.fromkeys(ATOMS, 0), dict.fromkeys(ATOMS, 1)
        for atom, factor in order:
            rest, digit = divmod(rest, factor)
            coordinates[atom] += digit * stride[atom]
            stride[atom] *= factor
        ranks.append(coordinates)
    return ranks


def rank_factors(order: list[tuple[str, int]], fill: Sequence[int]) -> dict[str, list[int]]:
    """How many members of each atom's group share a domain of every tier, off the rank table."""
    ranks = rank_coordinates(order)
    found: dict[str, list[int]] = {atom: [] for atom in ATOMS}
    for atom in ATOMS:
        own = [{**c, atom: 0} == dict.fromkeys(ATOMS, 0) for c in ranks]
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


@st.composite
def layouts(draw: st.DrawFn, num_layers: int = 11) -> Layout:
    """Any layout whose every chunk has a layer; frameworks may forbid it."""
    tp, pp = draw(DEGREES), draw(DEGREES)
    vp = draw(st.integers(1, num_layers // pp)) if pp > 1 else 1
    return Layout(
        tp=tp,
        cp=draw(DEGREES),
        pp=pp,
        dp_shard=draw(DEGREES),
        dp_replicate=draw(DEGREES),
        vp=vp,
        mbs=draw(st.integers(1, 4)),
        num_microbatches=draw(st.integers(1, 40)),
        zero_stage=draw(st.integers(0, 3)),
        sp=draw(st.booleans()) and tp > 1,
        recompute=draw(st.sampled_from(RECOMPUTE)),
        cp_kind=draw(st.sampled_from(CP_KINDS)),
        overlap=draw(st.sampled_from(["none", "tp", "dp", "pp", "tp+dp", "dp+pp", "tp+dp+pp"])),
    )


@st.composite
def placed_layouts(draw: st.DrawFn, num_tiers: int = 3) -> tuple[Layout, dict[str, list[float]]]:
    """A layout and the splits of its groups when every prime of a degree takes any tier."""
    layout = draw(layouts())
    placement = [[1] * num_tiers for _ in ATOMS]
    for factors, degree in zip(placement, layout.degrees(), strict=True):
        for prime in _primes(degree):
            factors[draw(st.integers(0, num_tiers - 1))] *= prime
    splits = plain_splits(placement)
    return layout, {name: [float(size) for size in split] for name, split in splits.items()}


def _primes(number: int) -> list[int]:
    for prime in range(2, number + 1):
        if number % prime == 0:
            return [prime, *_primes(number // prime)]
    return []
