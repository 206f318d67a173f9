"""The usable part of an inventory as nested domains, and what it can hold.

A job of n accelerators is placed in equal nested blocks: a fill (f_1 .. f_T) says that f_1
accelerators of one innermost domain make a block, f_2 such blocks of one domain of the next tier a
block of that tier, and so on, n = Π f_t. A domain may hold several blocks. How many blocks of tier
t a domain can hold is

    B_1 = ⌊accelerators / f_1⌋,   B_t = ⌊Σ over its domains B_{t-1} / f_t⌋

exactly, since blocks below are interchangeable. A fill is possible where some domain of the
outermost tier holds one block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from planner.errors import InputError
from planner.problem.inventory import Inventory, InventoryNode
from planner.problem.topology import Topology

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Piece:
    """Accelerators of one node that lie in one innermost domain: local ranks first .. + count."""

    node: int  # position among the usable nodes, in the order of the inventory
    first: int
    count: int


@dataclass(eq=False)
class Cluster:
    """Usable nodes under the tiers of a topology.

    nodes: names, in the order of the inventory. domains: for each tier, inner to outer, the names
    of its domains in order of their first node. parent: for each tier but the outermost, the
    position of each domain's domain in the next tier. pieces: of each innermost domain. left_out:
    node → why it is not usable.
    """

    nodes: tuple[str, ...]
    sizes: tuple[int, ...]  # accelerators of each node
    tiers: tuple[str, ...]
    domains: tuple[tuple[str, ...], ...]
    parent: tuple[Ints, ...]
    pieces: tuple[tuple[Piece, ...], ...]
    left_out: dict[str, str]
    _held: dict[tuple[int, ...], bool] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, inventory: Inventory, topology: Topology) -> Cluster:
        """The usable nodes of an inventory of this topology.

        Raises:
            InputError: the tiers do not fit the topology's, a domain is wider than its tier, or no
                node is usable.
        """
        unnamed = _inside_a_node(inventory, topology)
        given = [t for t in topology.tier_names[unnamed:] if t in inventory.tiers]
        usable, left_out = [], {}
        for node in inventory.nodes:
            reason = _left_out(node, given)
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
        made = _nested(usable, topology, unnamed, left_out)
        made._require_widths(topology)
        return made

    @cached_property
    def accelerators(self) -> tuple[Ints, ...]:
        """Usable accelerators of every domain, per tier."""
        inner = [sum(piece.count for piece in pieces) for pieces in self.pieces]
        found = [np.array(inner, dtype=np.int64)]
        for parent, names in zip(self.parent, self.domains[1:], strict=True):
            found.append(_sums(found[-1], parent, len(names)))
        return tuple(found)

    @cached_property
    def widest(self) -> tuple[int, ...]:
        """Children of the widest domain of each tier; accelerators, of the innermost."""
        wide = [int(self.accelerators[0].max())]
        wide += [
            int(np.bincount(parent, minlength=len(names)).max())
            for parent, names in zip(self.parent, self.domains[1:], strict=True)
        ]
        return tuple(wide)

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """What no fill exceeds: as many blocks as accelerators, of which one may be a block."""
        return tuple(int(found.max()) for found in self.accelerators)

    @property
    def largest(self) -> int:
        """Most accelerators that one job can have: those of the largest outermost domain."""
        return int(self.accelerators[-1].max())

    def blocks(self, fill: Sequence[int]) -> tuple[Ints, ...]:
        """Blocks of every tier that each of its domains can hold."""
        found = [self.accelerators[0] // fill[0]]
        for used, parent, names in zip(fill[1:], self.parent, self.domains[1:], strict=True):
            found.append(_sums(found[-1], parent, len(names)) // used)
        return tuple(found)

    def holds(self, fill: Sequence[int]) -> bool:
        """Whether the nodes can hold this fill."""
        key = tuple(fill)
        if key not in self._held:
            self._held[key] = bool(self.blocks(key)[-1].max() >= 1)
        return self._held[key]

    def of_piece(self) -> tuple[Ints, ...]:
        """For every tier, the domain of each innermost domain."""
        found = [np.arange(len(self.pieces))]
        for parent in self.parent:
            found.append(parent[found[-1]])
        return tuple(found)

    def _require_widths(self, topology: Topology) -> None:
        for tier, wide in zip(topology.tiers, self.widest, strict=True):
            if wide > tier.width:
                raise InputError(
                    f"an inventory's domain of tier {tier.name} holds {wide}, one of topology "
                    f"{topology.name} at most {tier.width}",
                    key="inventory", allowed="an inventory of this topology",
                )  # fmt: skip


def _sums(values: Ints, parent: Ints, number: int) -> Ints:
    found = np.zeros(number, dtype=np.int64)
    np.add.at(found, parent, values)
    return found


def _inside_a_node(inventory: Inventory, topology: Topology) -> int:
    """How many of the innermost tiers lie inside a node, so that the inventory need not name them.

    A tier does where it is not named and some node is exactly as wide as one of its domains, or
    as several; the outermost tier has one domain where it is not named.
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
    unnamed = topology.tier_names.index(known[0])
    size = max((node.accelerators or 0 for node in inventory.nodes), default=0)
    widths = list(accumulate(topology.widths, _times))
    for tier, width in zip(topology.tiers[:unnamed], widths[:unnamed], strict=True):
        if size % width:
            raise InputError(
                f"inventory {inventory.name} does not name the {tier.name} domains, and a node of "
                f"{size} accelerators is not made of domains of {width}",
                key="inventory", value=tier.name, allowed=f"{tier.name} among its tiers",
            )  # fmt: skip
    missing = [t for t in topology.tier_names[unnamed:-1] if t not in known]
    if missing:
        raise InputError(
            f"inventory {inventory.name} does not name the {missing[0]} domains",
            key="inventory", value=missing[0], allowed=", ".join(topology.tier_names),
        )  # fmt: skip
    return unnamed


def _times(one: int, other: int) -> int:
    return one * other


def _left_out(node: InventoryNode, tiers: Sequence[str]) -> str | None:
    if node.state != "usable":
        return node.state
    if node.accelerators is None:
        return "accelerators unknown"
    unknown = next((tier for tier in tiers if tier not in node.domains), None)
    return None if unknown is None else f"{unknown} domain unknown"


def _nested(
    usable: Sequence[InventoryNode], topology: Topology, unnamed: int, left_out: dict[str, str]
) -> Cluster:
    """Domains in order of their first node; what lies inside a node is cut from it."""
    tiers = topology.tier_names
    names: list[dict[tuple[object, ...], int]] = [{} for _ in tiers]
    parent: list[list[int]] = [[] for _ in tiers[1:]]
    pieces: list[list[Piece]] = []
    for position, node in enumerate(usable):
        for path, first, count in _cut(node, topology, unnamed):
            above = None
            for tier in reversed(range(len(tiers))):
                key = (*path[tier:],)
                if key not in names[tier]:
                    names[tier][key] = len(names[tier])
                    if tier == 0:
                        pieces.append([])
                    if above is not None:
                        parent[tier].append(above)
                above = names[tier][key]
            assert above is not None
            pieces[above].append(Piece(position, first, count))
    return Cluster(
        nodes=tuple(node.name for node in usable),
        sizes=tuple(node.accelerators or 0 for node in usable),
        tiers=tiers,
        domains=tuple(tuple(str(key[0]) for key in found) for found in names),
        parent=tuple(np.array(found, dtype=np.int64) for found in parent),
        pieces=tuple(tuple(found) for found in pieces),
        left_out=left_out,
    )


def _cut(
    node: InventoryNode, topology: Topology, unnamed: int
) -> Iterator[tuple[tuple[str, ...], int, int]]:
    """The node's accelerators by innermost domain: its domains' names, first of them, count."""
    size, widths = node.accelerators or 0, list(accumulate(topology.widths, _times))
    outer = tuple(node.domains.get(tier, "") for tier in topology.tier_names[unnamed:])
    step = widths[0] if unnamed else size
    for first in range(0, size, step):
        inner = tuple(
            node.name if widths[t] >= size else f"{node.name}/{first // widths[t]}"
            for t in range(unnamed)
        )
        yield (*inner, *outer), first, min(step, size - first)
