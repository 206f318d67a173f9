"""Which domains of an inventory hold a plan's blocks: exact, by tables from the inside out.

A plan fills equal nested blocks (see `planner.problem.cluster`); which domains hold them is free.
Compared, one after another:

1. the fewest domains in use, from the outermost tier inwards: the slowest links join the fewest;
2. the fewest usable accelerators in the domains in use, from the outermost tier inwards: the spares
   are whole domains, and the largest;
3. the first domains in the inventory's order, the first of them holding most.

Both counts add up over domains, so they are the digits of one integer, and the least of it for a
domain that holds u blocks is a table

    C_t[d, u] = used + min { Σ C_{t-1}[child, k] : Σ k = f_t · u },

a min-plus product over the domain's children. Innermost domains of a parent with equally many
accelerators are one item, which holds K blocks in its first ⌈K / most⌉ domains. Domains with the
same children share their table. No solver: a CP-SAT model of the same (a second algorithm in the
tests) finds no proof in a minute where blocks are a part of a node on 2 000 nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from planner.errors import UnsupportedError
from planner.problem.cluster import Cluster

__all__ = ["choose_domains"]

Ints = NDArray[np.int64]

NEVER = np.int64(2**62)
"""Above every cost, and twice it is still an int64."""


@dataclass(frozen=True, eq=False)
class _Item:
    """What may hold blocks together: one domain, or innermost domains alike.

    cost[k] is of k blocks in it; most: that one of its domains holds.
    """

    domains: tuple[int, ...]
    most: int
    cost: Ints


def choose_domains(cluster: Cluster, fill: Sequence[int]) -> Ints | None:
    """Blocks that each innermost domain holds, by the rule above; None where none can be placed.

    Raises:
        UnsupportedError: the inventory is too large for 64 bits (about 10^5 nodes).
    """
    if not cluster.holds(fill):
        return None
    return _Choice(cluster, fill).blocks()


class _Choice:
    """The tables of one cluster and fill."""

    def __init__(self, cluster: Cluster, fill: Sequence[int]) -> None:
        self.cluster, self.fill = cluster, fill
        self.most = cluster.blocks(fill)
        self.children = [
            [np.flatnonzero(parent == d) for d in range(len(names))]
            for parent, names in zip(cluster.parent, cluster.domains[1:], strict=True)
        ]
        self.unit = _units(cluster)
        self.alike = self._signatures()
        self.tables: dict[tuple[int, int], Ints] = {}

    def blocks(self) -> Ints:
        """Blocks of every innermost domain, from the outside in."""
        top = len(self.fill) - 1
        held: list[Ints] = [np.zeros(len(names), np.int64) for names in self.cluster.domains]
        able = np.flatnonzero(self.most[top] >= 1)
        best = min(able.tolist(), key=lambda d: (int(self.table(top, d)[1]), d))
        held[top][best] = 1
        for tier in range(top, 0, -1):
            for domain in np.flatnonzero(held[tier]).tolist():
                number = self.fill[tier] * int(held[tier][domain])
                for child, k in self._shared_out(tier, domain, number):
                    held[tier - 1][child] = k
        return held[0]

    def table(self, tier: int, domain: int) -> Ints:
        """Least cost of 0, 1, .. blocks in a domain, itself counted."""
        key = (tier, self.alike[tier][domain])
        if key not in self.tables:
            most = int(self.most[tier][domain])
            if tier == len(self.fill) - 1:
                most = min(most, 1)
            size = int(self.cluster.accelerators[tier][domain])
            used, of_size = self.unit[tier]
            inner = np.zeros(most + 1, dtype=np.int64)
            if tier:
                need = self.fill[tier] * most
                inner = self._products(self._items(tier, domain), need)[-1][:: self.fill[tier]]
            inner[1:] += used + of_size * size
            self.tables[key] = inner
        return self.tables[key]

    def _items(self, tier: int, domain: int) -> list[_Item]:
        children = self.children[tier - 1][domain].tolist()
        if tier > 1:
            tables = [self.table(tier - 1, child) for child in children]
            return [
                _Item((child,), len(found) - 1, found)
                for child, found in zip(children, tables, strict=True)
            ]
        alike: dict[int, list[int]] = {}
        for child in children:
            alike.setdefault(self.alike[0][child], []).append(child)
        items = []
        for members in alike.values():
            most = int(self.most[0][members[0]])
            if most:
                blocks = np.arange(most * len(members) + 1)
                cost = -(-blocks // most) * self.table(0, members[0])[1]
                items.append(_Item(tuple(members), most, cost))
        return items

    def _products(self, items: Sequence[_Item], need: int) -> list[Ints]:
        """Least cost of 0 .. need blocks in the first 0, 1, .. items."""
        found = [np.full(need + 1, NEVER, dtype=np.int64)]
        found[0][0] = 0
        for item in items:
            before, after = found[-1], found[-1].copy()
            for k in range(1, min(len(item.cost), need + 1)):
                np.minimum(after[k:], before[: need + 1 - k] + item.cost[k], out=after[k:])
            found.append(np.minimum(after, NEVER))
        return found

    def _shared_out(self, tier: int, domain: int, need: int) -> list[tuple[int, int]]:
        """(child, blocks) of a domain that holds `need` blocks of its children's tier."""
        items = self._items(tier, domain)
        products = self._products(items, need)
        of_item: list[int] = []
        for item, before in zip(reversed(items), reversed(products[:-1]), strict=True):
            k = np.arange(min(len(item.cost), need + 1))
            chosen = int(np.argmin(before[need - k] + item.cost[k]))
            of_item.append(chosen)
            need -= chosen
        found: list[tuple[int, int]] = []
        for item, blocks in zip(items, reversed(of_item), strict=True):
            for child in item.domains:
                found.append((child, min(item.most, blocks)))
                blocks -= found[-1][1]
        return self._first_hold_most(tier - 1, found)

    def _first_hold_most(
        self, tier: int, found: Sequence[tuple[int, int]]
    ) -> list[tuple[int, int]]:
        """The same among domains that are alike, given to the first of them first."""
        alike: dict[int, list[tuple[int, int]]] = {}
        for child, blocks in found:
            alike.setdefault(self.alike[tier][child], []).append((child, blocks))
        return [
            (child, blocks)
            for pairs in alike.values()
            for child, blocks in zip(
                sorted(child for child, _ in pairs),
                sorted((blocks for _, blocks in pairs), reverse=True),
                strict=True,
            )
        ]

    def _signatures(self) -> list[list[int]]:
        """Numbers of what every domain holds, the same for domains that hold the same."""
        numbers: dict[object, int] = {}
        found = [[numbers.setdefault(size, len(numbers)) for size in
                  self.cluster.accelerators[0].tolist()]]  # fmt: skip
        for of_tier in self.children:
            numbers = {}
            found.append(
                [
                    numbers.setdefault(tuple(sorted(found[-1][c] for c in children)), len(numbers))
                    for children in of_tier
                ]
            )
        return found


def _units(cluster: Cluster) -> list[tuple[int, int]]:
    """Per tier, what one more domain and one more accelerator in use cost: digits of an integer."""
    total = int(cluster.accelerators[-1].sum()) + 1
    digits = [total] * len(cluster.domains) + [len(names) + 1 for names in cluster.domains]
    if prod(digits) >= NEVER:
        raise UnsupportedError("the inventory has too many nodes to be compared exactly")
    units = np.cumprod([1, *digits[:-1]], dtype=np.int64).tolist()
    return list(zip(units[len(cluster.domains) :], units[: len(cluster.domains)], strict=True))
