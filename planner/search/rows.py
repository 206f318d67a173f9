"""Rows of a search problem: (shape, placement) pairs, enumerated, classified and filtered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.search.placement import (
    IntArray,
    SideConstraints,
    count_placements,
    fills,
    order_placements,
    placement_blocks,
    spans_beyond,
    splits,
)
from planner.search.protocol import SearchProblem

__all__ = ["blocks", "framework_rows", "order_rows", "outside_rows", "rows_of", "unplaceable"]

BoolArray = NDArray[np.bool_]

_CACHED_ROWS = 4096  # layouts with more placements are enumerated anew, in blocks


@lru_cache(maxsize=256)
def _few_placements(degrees: tuple[int, ...], widths: tuple[int, ...]) -> IntArray | None:
    """All placements of the degrees over all fills in one array; None where they are many."""
    all_fills = fills(widths, prod(degrees))
    if sum(count_placements(degrees, fill) for fill in all_fills) > _CACHED_ROWS:
        return None
    empty = np.ones((0, len(degrees), len(widths)), dtype=np.int64)
    rows = np.concatenate([empty, *_many_placements(degrees, widths)])
    rows.setflags(write=False)
    return rows


def _many_placements(degrees: tuple[int, ...], widths: tuple[int, ...]) -> Iterator[IntArray]:
    for fill in fills(widths, prod(degrees)):
        yield from placement_blocks(degrees, fill)


def blocks(problem: SearchProblem, shape: int, constraints: SideConstraints) -> Iterator[IntArray]:
    """Every placement of one shape that keeps its groups within their tiers, in blocks."""
    degrees, widths = tuple(problem.degrees[shape].tolist()), tuple(problem.widths)
    few = _few_placements(degrees, widths)
    all_rows: Iterable[IntArray] = [few] if few is not None else _many_placements(degrees, widths)
    for block in all_rows:
        outside = outside_rows(problem, np.full(len(block), shape), block, constraints)
        yield block[~np.any(list(outside.values()), axis=0)] if outside else block


def rows_of(blocks: Sequence[tuple[int, IntArray]]) -> tuple[IntArray, IntArray]:
    """Blocks of placements, at least one and each of one shape, as rows: (R), (R, A, T)."""
    shapes = np.repeat([shape for shape, _ in blocks], [len(block) for _, block in blocks])
    return shapes, np.concatenate([block for _, block in blocks])


def order_rows(problem: SearchProblem, shapes: IntArray) -> tuple[IntArray, IntArray]:
    """Rows of every framework order of the shapes over every fill: (R), (R, A, T)."""
    alike: dict[tuple[tuple[tuple[int, ...], ...], int], list[int]] = {}
    for shape in shapes.tolist():
        kind = (tuple(problem.orders(shape)), prod(problem.degrees[shape].tolist()))
        alike.setdefault(kind, []).append(shape)
    found_shapes = [np.zeros(0, dtype=np.int64)]
    found = [np.ones((0, problem.degrees.shape[1], len(problem.widths)), dtype=np.int64)]
    for (orders, num), members in alike.items():
        index = np.array(members, dtype=np.int64)
        for order in orders:
            for fill in fills(problem.widths, num):
                rows, nested = order_placements(problem.degrees[index], order, fill)
                found_shapes.append(index[nested])
                found.append(rows[nested])
    return np.concatenate(found_shapes), np.concatenate(found)


def _by_kind(shapes: IntArray, kind: Callable[[int], Any]) -> Iterator[tuple[Any, IntArray]]:
    """Row numbers of the shapes of each kind: `kind` is asked once per distinct shape."""
    distinct, inverse = np.unique(shapes, return_inverse=True)
    kinds = [kind(shape) for shape in distinct.tolist()]
    for value in dict.fromkeys(kinds):
        yield value, np.flatnonzero(np.array([k == value for k in kinds], dtype=bool)[inverse])


def outside_rows(
    problem: SearchProblem, shapes: IntArray, placements: IntArray, constraints: SideConstraints
) -> dict[str, BoolArray]:
    """Rows that break each `keep_within` constraint, (R) per constraint's name."""
    result = {}
    for group, tier in constraints.keep_within.items():
        outside = np.zeros(len(shapes), dtype=bool)

        def group_atoms(shape: int, group: str = group) -> tuple[int, ...]:
            return tuple(problem.groups(shape)[group])

        for atoms, rows in _by_kind(shapes, group_atoms):
            outside[rows] = spans_beyond(placements[rows], atoms, tier)
        result[f"keep {group} within tier {tier}"] = outside
    return result


def framework_rows(problem: SearchProblem, shapes: IntArray, placements: IntArray) -> IntArray:
    """Position in `orders(i)` of the first order that gives each row's placement, -1 for none."""
    result = np.full(len(shapes), -1, dtype=np.int64)
    for orders, rows in _by_kind(shapes, lambda i: tuple(problem.orders(i))):
        given, fill = placements[rows], placements[rows].prod(axis=1)
        for number in reversed(range(len(orders))):
            found, nested = order_placements(problem.degrees[shapes[rows]], orders[number], fill)
            result[rows[nested & (found == given).all(axis=(1, 2))]] = number
    return result


def unplaceable(problem: SearchProblem, constraints: SideConstraints) -> BoolArray:
    """Shapes (num_shapes) that cannot keep all constrained groups within their tiers at once.

    A quick necessary check: for every tier, the groups kept within it or a tier below must
    together have a split that ends there. The rows themselves are filtered one by one.
    """
    result = np.zeros(problem.num_shapes, dtype=bool)
    if not constraints.keep_within:
        return result
    ranks = problem.degrees.prod(axis=1)
    for groups, rows in _by_kind(
        np.arange(problem.num_shapes), lambda i: tuple(sorted(problem.groups(i).items()))
    ):
        for tier in set(constraints.keep_within.values()):
            inner = [g for g, last in constraints.keep_within.items() if last <= tier]
            atoms = sorted({atom for group in inner for atom in dict(groups)[group]})
            sizes = problem.degrees[rows][:, atoms].prod(axis=1)
            cases, case = np.unique(
                np.column_stack([sizes, ranks[rows]]), axis=0, return_inverse=True
            )
            bad = [
                not (splits(size, problem.widths, num)[:, tier + 1 :] == 1).all(axis=1).any()
                for size, num in cases.tolist()
            ]
            result[rows] |= np.array(bad)[case.reshape(-1)]
    return result
