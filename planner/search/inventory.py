"""Which domains of an inventory a plan's blocks go to: exact, by tables from the inside out.

A plan fills equal nested blocks (see `planner.problem.cluster`); which domains they go to is free.
Choices are compared by, one after another,

1. the fewest domains in use, from the outermost tier inwards: the slowest links join the fewest;
2. the fewest usable accelerators in the domains in use, from the outermost tier inwards: what is
   spared are complete domains, and the largest;
3. the first domains in the inventory's order, the first of them with the most blocks.

**Tables.** The counts of 1 and 2 add up over domains, so they are the digits of one integer. Its
minimum for a domain that takes u blocks is

    C_t[domain, u] = used + min { Σ C_{t-1}[child, k_child] : Σ k_child = f_t · u },

a min-plus product over the domain's children. Innermost domains of one parent with equally many
accelerators are one item, which fits K blocks into its first ⌈K / most⌉ domains. Domains with the
same children share their table.

No solver: a CP-SAT model of the same (a second algorithm in the tests) has no proof after a minute
where blocks are fractions of a node on 2 000 nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from planner.errors import UnsupportedError
from planner.layouts.arrays import IntArray
from planner.problem.cluster import Cluster

__all__ = ["choose_domains"]

NEVER = np.int64(2**62)
"""Above every cost, and twice it is still an int64."""


def choose_domains(cluster: Cluster, fill: Sequence[int]) -> IntArray | None:
    """Blocks that each innermost domain takes, by the rule above; None where none can be placed.

    Raises:
        UnsupportedError: the inventory is too large for 64 bits (about 10^5 nodes).
    """
    if not cluster.holds(fill):
        return None
    return _Choice(cluster, fill).blocks()


@dataclass(frozen=True, eq=False)
class _Item:
    """What may take blocks together: one domain, or interchangeable innermost domains.

    cost[k]: of k blocks in it; most: blocks that one of its domains may take.
    """

    domains: tuple[int, ...]
    most: int
    cost: IntArray


class _Choice:
    """The tables of one cluster and fill."""

    def __init__(self, cluster: Cluster, fill: Sequence[int]) -> None:
        self.cluster, self.fill = cluster, fill
        self.most = cluster.blocks(fill)
        self.children = [
            [np.flatnonzero(parent == d) for d in range(len(names))]
            for parent, names in zip(cluster.parent, cluster.domains[1:], strict=True)
        ]
        self.units = _units(cluster)
        self.signatures = self._signatures()
        self.tables: dict[tuple[int, int], IntArray] = {}

    def blocks(self) -> IntArray:
        """Blocks of every innermost domain, distributed from the outside in."""
        top = len(self.fill) - 1
        taken: list[IntArray] = [np.zeros(len(names), np.int64) for names in self.cluster.domains]
        able = np.flatnonzero(self.most[top] >= 1)
        best = min(able.tolist(), key=lambda d: (int(self._table(top, d)[1]), d))
        taken[top][best] = 1
        for tier in range(top, 0, -1):
            for domain in np.flatnonzero(taken[tier]).tolist():
                number = self.fill[tier] * int(taken[tier][domain])
                for child, k in self._distributed(tier, domain, number):
                    taken[tier - 1][child] = k
        return taken[0]

    # --- tables from the inside out ---

    def _table(self, tier: int, domain: int) -> IntArray:
        """Lowest cost of 0, 1, .. blocks in a domain, itself counted."""
        key = (tier, self.signatures[tier][domain])
        if key not in self.tables:
            most = int(self.most[tier][domain])
            if tier == len(self.fill) - 1:
                most = min(most, 1)  # a job is one block of the outermost tier
            size = int(self.cluster.accelerators[tier][domain])
            per_domain, per_accelerator = self.units[tier]
            cost = np.zeros(most + 1, dtype=np.int64)
            if tier:
                number = self.fill[tier] * most
                cost = self._products(self._items(tier, domain), number)[-1][:: self.fill[tier]]
            cost[1:] += per_domain + per_accelerator * size
            self.tables[key] = cost
        return self.tables[key]

    def _items(self, tier: int, domain: int) -> list[_Item]:
        """What a domain's blocks of the tier below may go to."""
        children = self.children[tier - 1][domain].tolist()
        if tier > 1:
            tables = [self._table(tier - 1, child) for child in children]
            return [
                _Item((child,), len(table) - 1, table)
                for child, table in zip(children, tables, strict=True)
            ]
        interchangeable: dict[int, list[int]] = {}
        for child in children:
            interchangeable.setdefault(self.signatures[0][child], []).append(child)
        items = []
        for members in interchangeable.values():
            most = int(self.most[0][members[0]])
            if most:
                blocks = np.arange(most * len(members) + 1)
                cost = -(-blocks // most) * self._table(0, members[0])[1]
                items.append(_Item(tuple(members), most, cost))
        return items

    def _products(self, items: Sequence[_Item], number: int) -> list[IntArray]:
        """Lowest cost of 0 .. `number` blocks in the first 0, 1, .. items: min-plus products."""
        products = [np.full(number + 1, NEVER, dtype=np.int64)]
        products[0][0] = 0
        for item in items:
            before, after = products[-1], products[-1].copy()
            for k in range(1, min(len(item.cost), number + 1)):
                np.minimum(after[k:], before[: number + 1 - k] + item.cost[k], out=after[k:])
            products.append(np.minimum(after, NEVER))
        return products

    # --- blocks from the outside in ---

    def _distributed(self, tier: int, domain: int, number: int) -> list[tuple[int, int]]:
        """(child, blocks) of a domain that takes `number` blocks of its children's tier."""
        items = self._items(tier, domain)
        products = self._products(items, number)
        of_items: list[int] = []
        for item, before in zip(reversed(items), reversed(products[:-1]), strict=True):
            k = np.arange(min(len(item.cost), number + 1))
            chosen = int(np.argmin(before[number - k] + item.cost[k]))
            of_items.append(chosen)
            number -= chosen
        taken: list[tuple[int, int]] = []
        for item, blocks in zip(items, reversed(of_items), strict=True):
            for child in item.domains:
                taken.append((child, min(item.most, blocks)))
                blocks -= taken[-1][1]
        return self._first_take_most(tier - 1, taken)

    def _first_take_most(
        self, tier: int, taken: Sequence[tuple[int, int]]
    ) -> list[tuple[int, int]]:
        """The same blocks, of interchangeable domains the first ones taking the most."""
        interchangeable: dict[int, list[tuple[int, int]]] = {}
        for child, blocks in taken:
            interchangeable.setdefault(self.signatures[tier][child], []).append((child, blocks))
        return [
            (child, blocks)
            for pairs in interchangeable.values()
            for child, blocks in zip(
                sorted(child for child, _ in pairs),
                sorted((blocks for _, blocks in pairs), reverse=True),
                strict=True,
            )
        ]

    def _signatures(self) -> list[list[int]]:
        """Per tier a number for each domain, equal for domains that contain the same."""
        numbers: dict[object, int] = {}
        innermost = self.cluster.accelerators[0].tolist()
        signatures = [[numbers.setdefault(size, len(numbers)) for size in innermost]]
        for of_tier in self.children:
            numbers = {}
            inner = signatures[-1]
            contents = (tuple(sorted(inner[c] for c in children)) for children in of_tier)
            signatures.append([numbers.setdefault(key, len(numbers)) for key in contents])
        return signatures


def _units(cluster: Cluster) -> list[tuple[int, int]]:
    """Per tier, what one more domain and one more accelerator in use add: digits of an integer."""
    total = int(cluster.accelerators[-1].sum()) + 1
    digits = [total] * len(cluster.domains) + [len(names) + 1 for names in cluster.domains]
    if prod(digits) >= NEVER:
        raise UnsupportedError("the inventory has too many nodes to be compared exactly")
    units = np.cumprod([1, *digits[:-1]], dtype=np.int64).tolist()
    return list(zip(units[len(cluster.domains) :], units[: len(cluster.domains)], strict=True))
