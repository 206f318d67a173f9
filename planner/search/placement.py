"""Placements: which factor of each degree lives in which bandwidth tier. Integers only.

Tiers are counted from the innermost outwards, t = 1 .. T; tier t has width_t children per domain.

- A *fill* (f_1 .. f_T) says how many children of each domain are used: Π_t f_t is the number of
  ranks (`planner.problem.fills`).
- A *placement* of atoms with degrees d_a is an integer matrix x (A, T) with Π_t x[a, t] = d_a and
  Π_a x[a, t] = f_t.
- A *split* of a group is (g_1 .. g_T), how many of its members sit in each tier:
  g_t = Π x[a, t] over the group's atoms.

Prime by prime the exponents of x form a contingency table with given row sums (exponents of the
degrees) and column sums (exponents of the fill). Primes do not interact, so placements are the
cross product of the primes' tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import prod

import numpy as np
from numpy.typing import NDArray

from planner.layouts.arrays import BoolArray, IntArray
from planner.problem.fills import Fill, fills

__all__ = [
    "MAX_BLOCK_ROWS",
    "count_placements",
    "order_placements",
    "placement_blocks",
    "placements",
    "rank_order",
    "rank_table",
    "spans_beyond",
    "splits",
]

MAX_BLOCK_ROWS = 50_000
"""Most placements in one array, so that memory stays flat however many a layout has."""

_MAX_CROSS = 1_000_000  # most candidates in one array that extends contingency tables


# --- splits -----------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _splits(
    size: int,
    widths: tuple[int, ...],
    num: int | None,
    among: tuple[Fill, ...] | None,
) -> IntArray:
    options = np.array(fills(widths, size), dtype=np.int64).reshape(-1, len(widths))
    if num is not None:
        possible = fills(widths, num) if among is None else among
        used = np.array(possible, dtype=np.int64).reshape(-1, len(widths))
        divides = (used[None, :, :] % options[:, None, :] == 0).all(axis=2).any(axis=1)
        options = options[divides]
    options.setflags(write=False)  # the cache hands the same array to every caller
    return options


def splits(
    size: int,
    widths: Sequence[int],
    num: int | None = None,
    among: tuple[Fill, ...] | None = None,
) -> IntArray:
    """All splits (g_1 .. g_T) of a group of `size` members, shape (S, T).

    With `num` ranks given, exactly those that some placement of some fill realises: g_t divides
    f_t for one fill of `num`, since the other atoms can always take the rest. Without, a superset.
    among: the fills of `num` that count; all by default.
    """
    return _splits(size, tuple(widths), num, among)


# --- placements -------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _exponents(number: int) -> dict[int, int]:
    """Prime → its exponent in the number."""
    exponents: dict[int, int] = {}
    divisor = 2
    while number > 1:
        if divisor * divisor > number:
            divisor = number
        while number % divisor == 0:
            exponents[divisor] = exponents.get(divisor, 0) + 1
            number //= divisor
        divisor += 1
    return exponents


@lru_cache(maxsize=1024)
def _compositions(total: int, caps: tuple[int, ...]) -> NDArray[np.int8]:
    """All vectors c with 0 ≤ c_t ≤ caps_t and Σ c_t = total, innermost largest first."""
    grid = np.indices([cap + 1 for cap in caps], dtype=np.int8).reshape(len(caps), -1).T[::-1]
    return np.ascontiguousarray(grid[grid.sum(axis=1, dtype=np.int64) == total])


@lru_cache(maxsize=256)
def _tables(rows: tuple[int, ...], columns: tuple[int, ...]) -> NDArray[np.int8]:
    """All non-negative integer tables with these row and column sums, shape (n, rows, columns)."""
    tables = np.zeros((1, 0, len(columns)), dtype=np.int8)
    left = np.array([columns], dtype=np.int8)  # of each table's column sums
    for total in rows[:-1]:
        choices = _compositions(total, tuple(min(total, column) for column in columns))
        step = max(1, _MAX_CROSS // max(1, len(choices)))
        extended, rest = [], []
        for start in range(0, len(left), step):
            state, choice = np.nonzero(
                (choices[None, :, :] <= left[start : start + step, None, :]).all(axis=2)
            )
            state += start
            extended.append(np.concatenate([tables[state], choices[choice][:, None, :]], axis=1))
            rest.append(left[state] - choices[choice])
        tables, left = np.concatenate(extended), np.concatenate(rest)
    # the last row takes what is left of every column
    tables = np.concatenate([tables, left[:, None, :]], axis=1)
    tables.setflags(write=False)
    return tables


def _prime_factors(degrees: Sequence[int], fill: Sequence[int]) -> list[IntArray] | None:
    """Per prime p the factors p^table of all tables, each (n_p, A, T); None where products differ.

    Largest prime first: it has the fewest tables and varies slowest in the order of placements.
    """
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
        # a placement's number in the mixed radix of the primes' table counts
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


def spans_beyond(placement: IntArray, atoms: Sequence[int], tier: int) -> BoolArray:
    """Where the group of these atoms reaches past `tier`; placement (..., A, T) → bool (...)."""
    beyond = placement[..., list(atoms), tier + 1 :] > 1
    return np.asarray(beyond.any(axis=(-2, -1)))


# --- rank orders ------------------------------------------------------------------------------


def order_placements(
    degrees: IntArray, order: Sequence[int], fill: Sequence[int] | IntArray
) -> tuple[IntArray, BoolArray]:
    """Placements that one rank order gives many layouts.

    degrees: (R, A); order: all atoms, innermost first; fill: one (T), or one per row (R, T).

    Ranks count up along the order and are laid on accelerators in sequence. So an atom occupies
    the interval from the product of the degrees inside it to that product times its own degree,
    a tier likewise, and the factor is the overlap of the two.

    Returns placements (R, A, T) and, per row, whether it is a product placement at all: every
    atom's end divides every tier's end or is divided by it.

    Raises:
        ValueError: the order does not name every atom once.
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

    Raises:
        ValueError: the factors do not multiply to the ranks of the fill.
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
