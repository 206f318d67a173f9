"""Placements: which share of each degree lives in which bandwidth tier (integers only).

A *fill* (f_1 .. f_T) says how many children are used in each domain of tier t, inner to outer:
f_t ≤ width_t and Π_t f_t = number of ranks. A *placement* of atoms with degrees d_a is an integer
matrix x of shape (A, T) with Π_t x[a, t] = d_a and Π_a x[a, t] = f_t. A *split* of a group is
(g_1 .. g_T): how many of its members sit in each tier, g_t = Π_{a in group} x[a, t].

Prime by prime the exponents of x form a contingency table with given row and column sums, and the
primes do not interact: placements are the cross product of the primes' tables.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from math import prod
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from planner.errors import IllegalLayoutError

__all__ = [
    "IntArray",
    "NotNestedError",
    "SideConstraints",
    "count_placements",
    "fills",
    "order_placement",
    "order_placements",
    "placement_blocks",
    "placements",
    "rank_order",
    "rank_table",
    "refine",
    "spans_beyond",
    "splits",
]

IntArray = NDArray[np.int64]

MAX_BLOCK_ROWS = 50_000
"""Most placements held in one array, so that memory stays flat."""

_MAX_CROSS = 1_000_000  # table-extension candidates held at once


class NotNestedError(IllegalLayoutError):
    """Boundaries of two grids over the same ranks do not divide each other."""


@dataclass(frozen=True)
class SideConstraints:
    """Restrictions on where groups may live.

    `keep_within` maps a group's name to a tier index: beyond that tier, every factor of the
    group's atoms is 1. `orders='framework'` allows only placements that a rank order of the
    framework gives.
    """

    keep_within: Mapping[str, int] = field(default_factory=dict)
    orders: Literal["any", "framework"] = "any"


# --- fills and splits -------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def _factorisations(num: int, widths: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    if not widths:
        return ((),) if num == 1 else ()
    return tuple(
        (first, *rest)
        for first in range(min(num, widths[0]), 0, -1)
        if num % first == 0
        for rest in _factorisations(num // first, widths[1:])
    )


def fills(widths: Sequence[int], num: int) -> list[tuple[int, ...]]:
    """All fills of `num` ranks: f_t ≤ width_t, Π f_t = num; the innermost fullest first."""
    if num < 1 or any(width < 1 for width in widths):
        raise ValueError(f"fills need positive counts, not {num} over {tuple(widths)}")
    return list(_factorisations(num, tuple(widths)))


@lru_cache(maxsize=4096)
def _splits(
    size: int,
    widths: tuple[int, ...],
    num: int | None,
    beside: tuple[int, ...] | None,
    held: tuple[tuple[int, ...], ...] | None,
) -> IntArray:
    found = np.array(fills(widths, size), dtype=np.int64).reshape(-1, len(widths))
    if num is not None:
        possible = fills(widths, num) if held is None else held
        room = np.array(possible, dtype=np.int64).reshape(-1, len(widths))
        if beside is not None:
            taken = np.array(beside, dtype=np.int64)
            room = room[(room % taken == 0).all(axis=1)] // taken
        fits = (room[None, :, :] % found[:, None, :] == 0).all(axis=2).any(axis=1)
        found = found[fits]
    found.setflags(write=False)
    return found


def splits(
    size: int,
    widths: Sequence[int],
    num: int | None = None,
    beside: Sequence[int] | None = None,
    held: tuple[tuple[int, ...], ...] | None = None,
) -> IntArray:
    """All splits (g_1 .. g_T) of a group of `size` members, shape (S, T).

    With `num` ranks given, exactly those that some placement of some fill realises: g_t divides
    f_t for one fill of `num` (the other atoms can always take the rest). Without, a superset.
    With `beside`, the split of another group that shares no atom with this one, exactly those
    that occur together with it. With `held`, of these fills of `num` only.
    """
    if beside is not None and num is None:
        raise ValueError("splits beside another group need the number of ranks")
    return _splits(size, tuple(widths), num, None if beside is None else tuple(beside), held)


# --- placements -------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _exponents(number: int) -> dict[int, int]:
    found: dict[int, int] = {}
    divisor = 2
    while number > 1:
        if divisor * divisor > number:
            divisor = number
        while number % divisor == 0:
            found[divisor] = found.get(divisor, 0) + 1
            number //= divisor
        divisor += 1
    return found


@lru_cache(maxsize=1024)
def _compositions(total: int, caps: tuple[int, ...]) -> NDArray[np.int8]:
    """All vectors c with 0 ≤ c_t ≤ caps_t and Σ c_t = total, innermost largest first."""
    grid = np.indices([cap + 1 for cap in caps], dtype=np.int8).reshape(len(caps), -1).T[::-1]
    return np.ascontiguousarray(grid[grid.sum(axis=1, dtype=np.int64) == total])


@lru_cache(maxsize=256)
def _tables(rows: tuple[int, ...], columns: tuple[int, ...]) -> NDArray[np.int8]:
    """All non-negative integer tables with these row and column sums, shape (n, rows, columns)."""
    tables = np.zeros((1, 0, len(columns)), dtype=np.int8)
    left = np.array([columns], dtype=np.int8)
    for total in rows[:-1]:
        choices = _compositions(total, tuple(min(total, column) for column in columns))
        step = max(1, _MAX_CROSS // max(1, len(choices)))
        grown, rest = [], []
        for start in range(0, len(left), step):
            state, choice = np.nonzero(
                (choices[None, :, :] <= left[start : start + step, None, :]).all(axis=2)
            )
            state += start
            grown.append(np.concatenate([tables[state], choices[choice][:, None, :]], axis=1))
            rest.append(left[state] - choices[choice])
        tables, left = np.concatenate(grown), np.concatenate(rest)
    tables = np.concatenate([tables, left[:, None, :]], axis=1)
    tables.setflags(write=False)
    return tables


def _prime_factors(degrees: Sequence[int], fill: Sequence[int]) -> list[IntArray] | None:
    """Per prime, the factors p^table of every table, shape (n_p, A, T); None where no table is."""
    if prod(degrees) != prod(fill):
        return None
    result = []
    for prime in sorted(_exponents(prod(fill)), reverse=True):
        rows = tuple(_exponents(degree).get(prime, 0) for degree in degrees)
        columns = tuple(_exponents(used).get(prime, 0) for used in fill)
        result.append(np.int64(prime) ** _tables(rows, columns).astype(np.int64))
    return result


def count_placements(degrees: Sequence[int], fill: Sequence[int]) -> int:
    """Number of placements of atoms with these degrees over this fill."""
    factors = _prime_factors(degrees, fill)
    return 0 if factors is None else prod(len(tables) for tables in factors)


def placement_blocks(
    degrees: Sequence[int], fill: Sequence[int], max_rows: int = MAX_BLOCK_ROWS
) -> Iterator[IntArray]:
    """All placements over one fill in arrays of shape (≤ max_rows, A, T), in a fixed order."""
    factors = _prime_factors(degrees, fill)
    if factors is None:
        return
    counts = [len(tables) for tables in factors]
    total = prod(counts)
    for start in range(0, total, max_rows):
        index = np.arange(start, min(start + max_rows, total), dtype=np.int64)
        block = np.ones((len(index), len(degrees), len(fill)), dtype=np.int64)
        for tables, count in zip(factors, counts, strict=True):
            index, digit = np.divmod(index, count)
            block *= tables[digit]
        yield block


def placements(degrees: Sequence[int], fill: Sequence[int]) -> IntArray:
    """All placements over one fill, shape (P, A, T); P = 0 where the products differ."""
    blocks = list(placement_blocks(degrees, fill))
    return np.concatenate(blocks) if blocks else np.ones((0, len(degrees), len(fill)), np.int64)


def spans_beyond(placement: IntArray, atoms: Sequence[int], tier: int) -> NDArray[np.bool_]:
    """Where the group of these atoms reaches past `tier`; placement (..., A, T) → bool (...)."""
    beyond = placement[..., list(atoms), tier + 1 :] > 1
    return np.asarray(beyond.any(axis=(-2, -1)))


# --- rank orders ------------------------------------------------------------------------------


def order_placements(
    degrees: IntArray, order: Sequence[int], fill: Sequence[int] | IntArray
) -> tuple[IntArray, NDArray[np.bool_]]:
    """Placements that one rank order gives many layouts.

    `degrees` has shape (R, A); `order` lists the atoms innermost first; `fill` is one fill (T) or
    one per row (R, T). Ranks are numbered along the order and laid on accelerators in sequence,
    so an atom occupies the range from the product of the degrees inside it to that product times
    its own, and a tier likewise: the factor is their overlap. Returns placements (R, A, T) and,
    per row, whether it is a product placement (every atom boundary divides every tier boundary or
    is divided by it).
    """
    if sorted(order) != list(range(degrees.shape[1])):
        raise ValueError(f"order {tuple(order)} must name each of {degrees.shape[1]} atoms once")
    ordered = degrees[:, list(order), None]
    used = np.asarray(fill, dtype=np.int64)[..., None, :].reshape(-1, 1, np.shape(fill)[-1])
    atom_end, tier_end = np.cumprod(ordered, axis=1), np.cumprod(used, axis=2)
    nested = ((atom_end % tier_end == 0) | (tier_end % atom_end == 0)).all(axis=(1, 2))
    nested &= (atom_end[:, -1] == tier_end[..., -1]).all(axis=1)
    low = np.maximum(atom_end // ordered, tier_end // used)
    high = np.minimum(atom_end, tier_end)
    result = np.empty((len(degrees), degrees.shape[1], used.shape[2]), dtype=np.int64)
    result[:, list(order), :] = np.maximum(high // low, 1)
    return result, nested


def order_placement(degrees: Sequence[int], fill: Sequence[int]) -> IntArray | None:
    """Factors (A, T) of atoms given innermost first, or None where the order is no placement."""
    table = np.array([degrees], dtype=np.int64)
    found, nested = order_placements(table, range(len(degrees)), fill)
    return found[0] if nested[0] else None


def rank_order(placement: IntArray, order: Sequence[int] | None = None) -> list[tuple[int, int]]:
    """The (atom, factor) list, innermost first, that numbers ranks along a placement (A, T).

    Within a tier, atoms follow `order` (default: as given). Factors of 1 are left out and one
    atom's neighbouring factors are merged, so a framework's placement shows as its order.
    """
    num_atoms, num_tiers = placement.shape
    result: list[tuple[int, int]] = []
    for tier in range(num_tiers):
        for atom in range(num_atoms) if order is None else order:
            factor = int(placement[atom, tier])
            if factor > 1 and result and result[-1][0] == atom:
                result[-1] = (atom, result[-1][1] * factor)
            elif factor > 1:
                result.append((atom, factor))
    return result


def rank_table(ranks: Sequence[tuple[int, int]], fill: Sequence[int], num_atoms: int) -> IntArray:
    """Atom coordinates of every rank, shape (num_ranks, num_atoms).

    Rank r sits on the r-th used accelerator, innermost tier first. Its digits in the mixed radix
    of `ranks` (a `rank_order`) are the coordinates; an atom met twice continues where it stopped.
    """
    num = prod(fill)
    if prod(factor for _, factor in ranks) != num:
        raise ValueError(f"rank order {list(ranks)} does not number {num} ranks")
    index = np.arange(num, dtype=np.int64)
    table = np.zeros((num, num_atoms), dtype=np.int64)
    stride = [1] * num_atoms
    for atom, factor in ranks:
        index, digit = np.divmod(index, factor)
        table[:, atom] += digit * stride[atom]
        stride[atom] *= factor
    return table


# --- grids ------------------------------------------------------------------------------------


def refine(
    *chains: Sequence[int],
) -> tuple[tuple[int, ...], tuple[tuple[tuple[int, ...], ...], ...]]:
    """Atoms of the common refinement of divisor chains, and each chain's groups of atoms.

    A chain lists the boundaries of one grid over the same ranks, innermost first, for example
    (tp, tp·cp, tp·cp·dp) and (etp, etp·ep, tp·cp·dp). Returns the atoms' degrees, innermost
    first, and per chain one tuple of atom indices per block: block k lies between boundaries
    k - 1 and k. Equal boundaries keep an atom of degree 1, so that the number of atoms,
    Σ(len(chain) - 1) + 1, depends on the chains' lengths only.
    """
    total = chains[0][-1]
    if any(chain[-1] != total for chain in chains):
        raise ValueError(f"chains must end at the same number of ranks, not {chains}")
    inner = sorted(
        (boundary, number, k)
        for number, chain in enumerate(chains)
        for k, boundary in enumerate(chain[:-1])
    )
    boundaries = [1, *(boundary for boundary, _, _ in inner), total]
    for low, high in pairwise(boundaries):
        if high % low:
            raise NotNestedError(
                rule="grids-nest",
                source="planner.search.placement",
                value=(low, high),
                message=f"group boundaries {low} and {high} of two grids over {total} ranks do "
                "not divide each other, so no product placement serves both",
            )
    atoms = tuple(high // low for low, high in pairwise(boundaries))
    place = {(number, k): index + 1 for index, (_, number, k) in enumerate(inner)}
    groups = []
    for number, chain in enumerate(chains):
        ends = [0, *(place[number, k] for k in range(len(chain) - 1)), len(atoms)]
        groups.append(tuple(tuple(range(a, b)) for a, b in pairwise(ends)))
    return atoms, tuple(groups)
