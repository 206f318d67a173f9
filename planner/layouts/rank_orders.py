"""Rank tables: which rank sits in which domain, and how far a group reaches.

Ranks count up through an order of atoms, innermost first; consecutive ranks fill domains of
consecutive sizes. Reading spans off the table serves every layout, also those whose groups do not
nest in the domains (tp·cp = 6 in nodes of 8).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from planner.layouts.grids import DENSE_GRID, Grid
from planner.layouts.layout import Layout

Ranks = NDArray[np.int64]

Order = Sequence[tuple[str, int]]
"""(atom, factor) pairs, innermost first; factors of an atom multiply to its degree."""


def order_degrees(order: Order) -> dict[str, int]:
    """Each atom's degree: what its factors multiply to."""
    degrees: dict[str, int] = {}
    for atom, factor in order:
        degrees[atom] = degrees.get(atom, 1) * factor
    return degrees


def atom_coordinates(order: Order) -> dict[str, NDArray[np.int64]]:
    """Each rank's coordinate in every atom, arrays of length n = product of the factors."""
    num_ranks = int(np.prod([factor for _, factor in order], dtype=np.int64))
    rest = np.arange(num_ranks)
    coordinates = {atom: np.zeros(num_ranks, dtype=np.int64) for atom, _ in order}
    reached = dict.fromkeys(coordinates, 1)
    for atom, factor in order:
        coordinates[atom] += rest % factor * reached[atom]
        reached[atom] *= factor
        rest //= factor
    return coordinates


def group_ranks(order: Order, atoms: Sequence[str]) -> Ranks:
    """Ranks of every group that varies in `atoms` alone, shape (number of groups, group size)."""
    return _grouped(atom_coordinates(order), atoms)


def _grouped(coordinates: Mapping[str, NDArray[np.int64]], names: Sequence[str]) -> Ranks:
    others = [name for name in coordinates if name not in names]
    # sort by what is fixed inside a group, then by place in it
    keys = [coordinates[name] for name in (*names, *others) if name in coordinates]
    ranks = np.lexsort(keys) if keys else np.arange(1)
    size = 1
    for name in names:
        size *= int(coordinates[name].max()) + 1 if name in coordinates else 1
    return ranks.reshape(-1, size)


def expert_coordinates(
    coordinates: Mapping[str, NDArray[np.int64]], etp: int, ep: int
) -> dict[str, NDArray[np.int64]]:
    """Coordinates in the experts' grid: ranks counted along tp, cp, dp_shard are etp·ep·edp."""
    index, reached = np.zeros_like(coordinates["pp"]), 1
    for axis in ("tp", "cp", "dp_shard"):
        index = index + coordinates[axis] * reached
        reached *= int(coordinates[axis].max()) + 1
    others = {axis: coordinates[axis] for axis in ("dp_replicate", "pp")}
    return {"etp": index % etp, "ep": index // etp % ep, "edp": index // (etp * ep), **others}


def worst_of(groups: Ranks, domains: Sequence[NDArray[np.int64]]) -> list[float]:
    """Members per tier of the group that crosses most, inner to outer.

    groups: ranks, (number, size). domains: of every rank the domain of each tier, inner to outer;
    the outermost holds all. With D_t the most domains of tier t a group touches, tier t+1 joins
    D_t / D_{t+1} of them.
    """
    reached = [float(groups.shape[1])]
    for of_rank in domains[:-1]:
        found = np.sort(of_rank[groups], axis=1)
        reached.append(float(1 + np.max(np.sum(np.diff(found, axis=1) > 0, axis=1))))
    reached.append(1.0)
    return [inner / outer for inner, outer in pairwise(reached)]


def order_atoms(axes: Sequence[str], grid: Grid = DENSE_GRID) -> list[str]:
    """A framework's order of axes (innermost first) as atoms; dp is dp_shard inside dp_replicate.

    An axis cut by the experts' grid has its inner parts first. Axes the order does not name come
    last.
    """
    atoms: list[str] = []
    for axis in [*axes, *DENSE_GRID.atoms]:
        for part in ("dp_shard", "dp_replicate") if axis == "dp" else (axis,):
            cuts = [atom for atom in grid.atoms if atom.partition(".")[0] == part]
            atoms += [atom for atom in cuts if atom not in atoms]
    return atoms


def framework_order(layout: Layout, axes: Sequence[str]) -> list[tuple[str, int]]:
    """A framework's order of axes (innermost first) as dense atoms and their degrees."""
    return [(atom, getattr(layout, atom)) for atom in order_atoms(axes)]


def order_splits(
    layout: Layout, axes: Sequence[str], widths: Sequence[int]
) -> Mapping[str, list[float]]:
    """Every group's worst split under a framework's order on domains filled to `widths`.

    Experts live where the dense grid puts their ranks, also where the two grids do not nest.
    """
    domain_sizes = np.cumprod(np.asarray(widths, dtype=np.int64))
    domains = [np.arange(layout.num_ranks) // size for size in domain_sizes]
    groups = framework_groups(layout, axes)
    return {name: worst_of(ranks, domains) for name, ranks in groups.items()}


def framework_groups(layout: Layout, axes: Sequence[str]) -> Mapping[str, Ranks]:
    """Ranks of every group under a framework's order, each (number of groups, group size)."""
    dense = atom_coordinates(framework_order(layout, axes))
    found = {name: _grouped(dense, atoms) for name, atoms in DENSE_GRID.groups.items()}
    experts = expert_coordinates(dense, layout.etp, layout.ep)
    return found | {name: _grouped(experts, (name,)) for name in ("etp", "ep", "edp")}


def local_ranks(node: Ranks) -> Ranks:
    """Of every place, how many places before it are on its node."""
    order = np.argsort(node, kind="stable")
    ordered = node[order]
    first = np.searchsorted(ordered, ordered, side="left")
    found = np.empty_like(node)
    found[order] = np.arange(len(node)) - first
    return found
