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

from planner.layout import ATOMS, GROUPS, Layout

Order = Sequence[tuple[str, int]]
"""(atom, factor) pairs, innermost first; factors of an atom multiply to its degree."""


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


def group_ranks(order: Order, atoms: Sequence[str]) -> NDArray[np.int64]:
    """Ranks of every group that varies in `atoms` alone, shape (number of groups, group size)."""
    coordinates = atom_coordinates(order)
    others = [name for name in coordinates if name not in atoms]
    # sort by what is fixed inside a group, then by place in it
    keys = [coordinates[name] for name in atoms if name in coordinates]
    keys += [coordinates[name] for name in others]
    ranks = np.lexsort(keys) if keys else np.arange(1)
    size = int(np.prod([f for name, f in order if name in atoms], dtype=np.int64))
    return ranks.reshape(-1, size)


def worst_split(order: Order, atoms: Sequence[str], domain_sizes: Sequence[int]) -> list[float]:
    """Members per tier of the group that crosses most, inner to outer.

    domain_sizes: ranks in a domain of each tier, inner to outer; the outermost holds all. With
    D_t the most domains of tier t a group touches, tier t+1 joins D_t / D_{t+1} of them.
    """
    groups = group_ranks(order, atoms)
    reached = [float(groups.shape[1])]
    for size in domain_sizes[:-1]:
        domains = np.sort(groups // size, axis=1)
        reached.append(float(1 + np.max(np.sum(np.diff(domains, axis=1) > 0, axis=1))))
    reached.append(1.0)
    return [inner / outer for inner, outer in pairwise(reached)]


def order_atoms(axes: Sequence[str]) -> list[str]:
    """A framework's order of axes (innermost first) as atoms; dp is dp_shard inside dp_replicate.

    Axes the order does not name come last.
    """
    atoms: list[str] = []
    for axis in [*axes, *ATOMS]:
        for atom in ("dp_shard", "dp_replicate") if axis == "dp" else (axis,):
            if atom in ATOMS and atom not in atoms:
                atoms.append(atom)
    return atoms


def framework_order(layout: Layout, axes: Sequence[str]) -> list[tuple[str, int]]:
    """A framework's order of axes (innermost first) as atoms and their degrees."""
    return [(atom, getattr(layout, atom)) for atom in order_atoms(axes)]


def order_splits(order: Order, widths: Sequence[int]) -> Mapping[str, list[float]]:
    """Every group's worst split under an order on domains filled to `widths`."""
    sizes = np.cumprod(np.asarray(widths, dtype=np.int64)).tolist()
    return {name: worst_split(order, atoms, sizes) for name, atoms in GROUPS.items()}
