"""The usable nodes of an inventory as nested domains, and which jobs they can hold.

A job is placed in the equal nested blocks of a fill (f_1 .. f_T) (`planner.problem.fills`). A
domain may hold several blocks. How many blocks of tier t a domain can hold is

    B_1 = ⌊accelerators / f_1⌋,   B_t = ⌊Σ over its domains B_{t-1} / f_t⌋

exactly, since blocks below are interchangeable. A fill is possible where some domain of the
outermost tier holds one block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from operator import mul

import numpy as np
from numpy.typing import NDArray

from planner.errors import InputError
from planner.problem.fills import Fill, fills
from planner.problem.inventory import Inventory, InventoryNode
from planner.problem.topology import Topology

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Piece:
    """Accelerators of one node that lie in one innermost domain.

    Attributes:
        node: position of the node among the usable ones, in the order of the inventory.
        first: local rank of the first accelerator.
        count: how many accelerators, with consecutive local ranks.
    """

    node: int
    first: int
    count: int


@dataclass(eq=False)
class Cluster:
    """The usable nodes under the tiers of a topology.

    Tiers go from the innermost to the outermost; the domains of a tier are numbered in the order
    of their first node.

    Attributes:
        nodes: names, in the order of the inventory.
        sizes: accelerators of each node.
        tiers: names.
        domains: for each tier, the names of its domains.
        parent: for each tier but the outermost, an array that gives each domain the number of the
            domain around it in the next tier.
        pieces: for each innermost domain, the pieces of nodes that make it up.
        left_out: node → why it is not usable.
    """

    nodes: tuple[str, ...]
    sizes: tuple[int, ...]
    tiers: tuple[str, ...]
    domains: tuple[tuple[str, ...], ...]
    parent: tuple[Ints, ...]
    pieces: tuple[tuple[Piece, ...], ...]
    left_out: dict[str, str]
    _known_fills: dict[tuple[int, ...], bool] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, inventory: Inventory, topology: Topology) -> Cluster:
        """Return the usable nodes of an inventory of this topology.

        Raises:
            InputError: the tiers do not fit the topology's, a domain is wider than its tier, or no
                node is usable.
        """
        num_unnamed = _num_tiers_inside_a_node(inventory, topology)
        named = [t for t in topology.tier_names[num_unnamed:] if t in inventory.tiers]
        usable, left_out = [], {}
        for node in inventory.nodes:
            reason = _why_unusable(node, named)
            if reason is None:
                usable.append(node)
            else:
                left_out[node.name] = reason
        if not usable:
            raise InputError(
                f"no node of inventory {inventory.name} is usable "
                f"({'; '.join(dict.fromkeys(left_out.values()))})",
                key="inventory", allowed="nodes in state usable, with accelerators and domains",
            )  # fmt: skip
        cluster = _nested(usable, topology, num_unnamed, left_out)
        cluster._require_widths(topology)
        return cluster

    @cached_property
    def accelerators(self) -> tuple[Ints, ...]:
        """For each tier, the usable accelerators of every domain."""
        inner = [sum(piece.count for piece in pieces) for pieces in self.pieces]
        return self._summed_outwards(np.array(inner, dtype=np.int64), [1] * len(self.parent))

    @cached_property
    def widest(self) -> tuple[int, ...]:
        """For each tier, the children of its widest domain; of the innermost, accelerators."""
        children = [int(self.accelerators[0].max())]
        children += [
            int(np.bincount(parent, minlength=len(names)).max())
            for parent, names in zip(self.parent, self.domains[1:], strict=True)
        ]
        return tuple(children)

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """For each tier, a bound on fills: the accelerators of its largest domain.

        Each accelerator may be a block of its own, so a fill may exceed the number of domains.
        """
        return tuple(int(counts.max()) for counts in self.accelerators)

    @property
    def largest(self) -> int:
        """The most accelerators that one job can have: those of the largest outermost domain."""
        return int(self.accelerators[-1].max())

    def blocks(self, fill: Sequence[int]) -> tuple[Ints, ...]:
        """Return, for each tier, how many of the fill's blocks each of its domains can hold."""
        return self._summed_outwards(self.accelerators[0] // fill[0], fill[1:])

    def holds(self, fill: Sequence[int]) -> bool:
        """Whether the nodes can hold a job of this fill."""
        key = tuple(fill)
        if key not in self._known_fills:
            self._known_fills[key] = bool(self.blocks(key)[-1].max() >= 1)
        return self._known_fills[key]

    def fills(self, num: int) -> Iterator[Fill]:
        """Yield the fills of so many accelerators that the nodes hold, innermost fullest first."""
        return (fill for fill in fills(self.widths, num) if self.holds(fill))

    def of_piece(self) -> tuple[Ints, ...]:
        """Return, for each tier, the domain that each innermost domain lies in."""
        domains = [np.arange(len(self.pieces))]
        for parent in self.parent:
            domains.append(parent[domains[-1]])
        return tuple(domains)

    def _summed_outwards(self, innermost: Ints, divisors: Sequence[int]) -> tuple[Ints, ...]:
        """Return a value of each domain, from those of the innermost: B_t = ⌊Σ B_{t-1} / f_t⌋."""
        values = [innermost]
        for divisor, parent, names in zip(divisors, self.parent, self.domains[1:], strict=True):
            sums = np.zeros(len(names), dtype=np.int64)
            np.add.at(sums, parent, values[-1])
            values.append(sums // divisor)
        return tuple(values)

    def _require_widths(self, topology: Topology) -> None:
        for tier, wide in zip(topology.tiers, self.widest, strict=True):
            if wide > tier.width:
                raise InputError(
                    f"an inventory's domain of tier {tier.name} holds {wide}, one of topology "
                    f"{topology.name} at most {tier.width}",
                    key="inventory", allowed="an inventory of this topology",
                )  # fmt: skip


def _num_tiers_inside_a_node(inventory: Inventory, topology: Topology) -> int:
    """Return how many of the innermost tiers lie inside a node, so that they need no names.

    A tier lies inside where it is not named and the largest node is as wide as one of its domains
    or as several. The outermost tier has one domain where it is not named.
    """
    unknown = [tier for tier in inventory.tiers if tier not in topology.tier_names]
    if unknown:
        raise InputError(
            f"inventory {inventory.name} names tier '{unknown[0]}', which topology "
            f"{topology.name} does not have",
            key="inventory", value=unknown[0], allowed=", ".join(topology.tier_names),
        )  # fmt: skip
    known = [tier for tier in topology.tier_names if tier in inventory.tiers]
    if list(inventory.tiers) != known:
        raise InputError(
            f"inventory {inventory.name} has its tiers in another order than topology "
            f"{topology.name}",
            key="inventory", value=", ".join(inventory.tiers), allowed=", ".join(known),
        )  # fmt: skip
    num_unnamed = topology.tier_names.index(known[0])
    size = max((node.accelerators or 0 for node in inventory.nodes), default=0)
    domain_sizes = accumulate(topology.widths, mul)
    for tier, width in zip(topology.tiers[:num_unnamed], domain_sizes, strict=False):
        if size % width:
            raise InputError(
                f"inventory {inventory.name} does not name the {tier.name} domains, and a node of "
                f"{size} accelerators is not made of domains of {width}",
                key="inventory", value=tier.name, allowed=f"{tier.name} among its tiers",
            )  # fmt: skip
    missing = [t for t in topology.tier_names[num_unnamed:-1] if t not in known]
    if missing:
        raise InputError(
            f"inventory {inventory.name} does not name the {missing[0]} domains",
            key="inventory", value=missing[0], allowed=", ".join(topology.tier_names),
        )  # fmt: skip
    return num_unnamed


def _why_unusable(node: InventoryNode, tiers: Sequence[str]) -> str | None:
    """Return why no job can use a node, one that needs a domain of each of the tiers; or None."""
    if node.state != "usable":
        return node.state
    if node.accelerators is None:
        return "accelerators unknown"
    unknown = next((tier for tier in tiers if tier not in node.domains), None)
    return None if unknown is None else f"{unknown} domain unknown"


def _nested(
    usable: Sequence[InventoryNode], topology: Topology, num_unnamed: int, left_out: dict[str, str]
) -> Cluster:
    """Number the domains in the order of their first node, and cut nodes into pieces."""
    tiers = topology.tier_names
    # A domain is told apart by its name and those of all domains around it.
    numbers: list[dict[tuple[str, ...], int]] = [{} for _ in tiers]
    parent: list[list[int]] = [[] for _ in tiers[1:]]
    pieces: list[list[Piece]] = []
    for position, node in enumerate(usable):
        for domains, first, count in _cut(node, topology, num_unnamed):
            around = None
            for tier in reversed(range(len(tiers))):
                path = domains[tier:]
                if path not in numbers[tier]:
                    numbers[tier][path] = len(numbers[tier])
                    if tier == 0:
                        pieces.append([])
                    if around is not None:
                        parent[tier].append(around)
                around = numbers[tier][path]
            assert around is not None
            pieces[around].append(Piece(position, first, count))
    return Cluster(
        nodes=tuple(node.name for node in usable),
        sizes=tuple(node.accelerators or 0 for node in usable),
        tiers=tiers,
        domains=tuple(tuple(path[0] for path in of_tier) for of_tier in numbers),
        parent=tuple(np.array(of_tier, dtype=np.int64) for of_tier in parent),
        pieces=tuple(tuple(of_domain) for of_domain in pieces),
        left_out=left_out,
    )


def _cut(
    node: InventoryNode, topology: Topology, num_unnamed: int
) -> Iterator[tuple[tuple[str, ...], int, int]]:
    """Yield a node's accelerators by innermost domain.

    Yields:
        Names of the domains they lie in, innermost first; local rank of the first; how many.
    """
    size, domain_sizes = node.accelerators or 0, list(accumulate(topology.widths, mul))
    outer = tuple(node.domains.get(tier, "") for tier in topology.tier_names[num_unnamed:])
    step = domain_sizes[0] if num_unnamed else size
    for first in range(0, size, step):
        inner = tuple(
            node.name if domain_sizes[t] >= size else f"{node.name}/{first // domain_sizes[t]}"
            for t in range(num_unnamed)
        )
        yield (*inner, *outer), first, min(step, size - first)
