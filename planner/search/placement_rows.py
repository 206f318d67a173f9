"""Rows of a search problem: layouts with one placement each, listed, filtered and named.

Rows are two arrays of one length R: layout indices (R) and placements (R, A, T).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import lru_cache
from math import prod
from typing import TypeVar

import numpy as np

from planner.layouts.arrays import BoolArray, IntArray
from planner.problem.fills import fills
from planner.search.interface import PlacedLayout, SearchProblem, SideConstraints
from planner.search.placement import (
    count_placements,
    order_placements,
    placement_blocks,
    spans_beyond,
    splits,
)

__all__ = [
    "allowed_blocks",
    "constraint_violations",
    "join_blocks",
    "order_numbers",
    "order_rows",
    "placed_layout",
    "unplaceable",
]

_CACHED_ROWS = 4096
"""Degrees with more placements are enumerated each time, in blocks, so that memory stays flat."""

T = TypeVar("T", bound=Hashable)


# --- all placements of one layout -------------------------------------------------------------


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


def allowed_blocks(
    problem: SearchProblem, index: int, constraints: SideConstraints
) -> Iterator[IntArray]:
    """Every placement of one layout that keeps its groups within their tiers, in blocks.

    `constraints.orders` is not applied here: see `order_numbers`.
    """
    degrees, widths = tuple(problem.degrees[index].tolist()), tuple(problem.widths)
    few = _few_placements(degrees, widths)
    all_rows: Iterable[IntArray] = [few] if few is not None else _many_placements(degrees, widths)
    for block in all_rows:
        indices = np.full(len(block), index)
        violated = constraint_violations(problem, indices, block, constraints)
        yield block[~np.any(list(violated.values()), axis=0)] if violated else block


def join_blocks(blocks: Sequence[tuple[int, IntArray]]) -> tuple[IntArray, IntArray]:
    """At least one (layout index, placements of that layout) as rows: (R), (R, A, T)."""
    indices = np.repeat([index for index, _ in blocks], [len(block) for _, block in blocks])
    return indices, np.concatenate([block for _, block in blocks])


# --- rank orders of the framework -------------------------------------------------------------


def order_rows(problem: SearchProblem, indices: IntArray) -> tuple[IntArray, IntArray]:
    """Rows of every framework order of the layouts over every fill: (R), (R, A, T)."""
    members: dict[tuple[tuple[tuple[int, ...], ...], int], list[int]] = {}
    for index in indices.tolist():
        orders, ranks = (
            tuple(problem.framework_orders(index)),
            prod(problem.degrees[index].tolist()),
        )
        members.setdefault((orders, ranks), []).append(index)
    row_indices = [np.zeros(0, dtype=np.int64)]
    rows = [np.ones((0, problem.degrees.shape[1], len(problem.widths)), dtype=np.int64)]
    for (orders, ranks), of_orders in members.items():
        own = np.array(of_orders, dtype=np.int64)
        for order in orders:
            for fill in fills(problem.widths, ranks):
                placed, nested = order_placements(problem.degrees[own], order, fill)
                row_indices.append(own[nested])
                rows.append(placed[nested])
    return np.concatenate(row_indices), np.concatenate(rows)


def order_numbers(problem: SearchProblem, indices: IntArray, placements: IntArray) -> IntArray:
    """Position in `framework_orders` of the first that gives each row's placement; -1: none."""
    numbers = np.full(len(indices), -1, dtype=np.int64)
    for orders, rows in _rows_by(indices, lambda i: tuple(problem.framework_orders(i))):
        own, fill = placements[rows], placements[rows].prod(axis=1)
        for number in reversed(range(len(orders))):
            placed, nested = order_placements(problem.degrees[indices[rows]], orders[number], fill)
            numbers[rows[nested & (placed == own).all(axis=(1, 2))]] = number
    return numbers


def _rows_by(indices: IntArray, attribute: Callable[[int], T]) -> Iterator[tuple[T, IntArray]]:
    """Rows of each value of a layout's attribute, which is computed once per distinct layout."""
    distinct, inverse = np.unique(indices, return_inverse=True)
    values = [attribute(index) for index in distinct.tolist()]
    for value in dict.fromkeys(values):
        yield value, np.flatnonzero(np.array([v == value for v in values], dtype=bool)[inverse])


# --- side constraints -------------------------------------------------------------------------


def constraint_violations(
    problem: SearchProblem, indices: IntArray, placements: IntArray, constraints: SideConstraints
) -> dict[str, BoolArray]:
    """Rows that break each `keep_within` constraint, (R) by the constraint's name."""
    violations = {}
    for group, tier in constraints.keep_within.items():
        violated = np.zeros(len(indices), dtype=bool)

        def group_atoms(index: int, group: str = group) -> tuple[int, ...]:
            return tuple(problem.groups(index)[group])

        for atoms, rows in _rows_by(indices, group_atoms):
            violated[rows] = spans_beyond(placements[rows], atoms, tier)
        violations[f"keep {group} within tier {tier}"] = violated
    return violations


def unplaceable(problem: SearchProblem, constraints: SideConstraints) -> BoolArray:
    """Layouts (num_layouts) that cannot keep all constrained groups within their tiers at once.

    A quick necessary check: for every tier, the groups kept within it or a tier below must
    together have a split that ends there. The rows themselves are filtered one by one.
    """
    result = np.zeros(problem.num_layouts, dtype=bool)
    if not constraints.keep_within:
        return result
    ranks = problem.degrees.prod(axis=1)
    for groups, rows in _rows_by(
        np.arange(problem.num_layouts), lambda i: tuple(sorted(problem.groups(i).items()))
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


# --- out of arrays ----------------------------------------------------------------------------


def placed_layout(
    problem: SearchProblem, index: int, placement: IntArray, step_seconds: float
) -> PlacedLayout:
    """One row as plain Python values, with the framework order that gives its placement (A, T)."""
    number = order_numbers(problem, np.array([index]), placement[None]).item()
    return PlacedLayout(
        layout_index=index,
        fill=tuple(placement.prod(axis=0).tolist()),
        placement=tuple(tuple(factors) for factors in placement.tolist()),
        step_seconds=step_seconds,
        order=tuple(problem.framework_orders(index)[number]) if number >= 0 else None,
    )
