"""Seats: the node and local rank of every place of a plan, and what its groups cross.

Places count up in the plan's rank order. They fill blocks, the blocks of a domain one after
another, domains with more blocks first, then in the inventory's order: so neighbouring blocks share
domains as far as the choice of domains allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.layouts.rank_orders import Ranks
from planner.problem.cluster import Cluster, Piece

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False, slots=True)
class Seats:
    """node: of every place, its position among the usable nodes. domains: of every place and tier,
    inner to outer, the position of its domain. blocks: that each innermost domain holds."""

    node: Ints
    domains: tuple[Ints, ...]

    def runs(self) -> list[tuple[int, int]]:
        """(node, places in a row), in the order of places."""
        ends = np.flatnonzero(np.diff(self.node)) + 1
        starts = np.concatenate([[0], ends]).tolist()
        lengths = np.diff([*starts, len(self.node)]).tolist()
        return [(int(self.node[start]), n) for start, n in zip(starts, lengths, strict=True)]


def block_seats(cluster: Cluster, blocks: Ints, fill: Sequence[int]) -> Seats:
    """The seats of places that fill so many blocks of f_1 accelerators of each innermost domain."""
    totals = [blocks]
    for parent, names in zip(cluster.parent, cluster.domains[1:], strict=True):
        above = np.zeros(len(names), dtype=np.int64)
        np.add.at(above, parent, totals[-1])
        totals.append(above)
    of_piece = cluster.of_piece()
    keys: list[Ints] = []  # np.lexsort wants the last key first
    for tier, of_domain in enumerate(of_piece):
        keys += [of_domain, -totals[tier][of_domain]]
    ordered = [domain for domain in np.lexsort(keys).tolist() if blocks[domain]]
    nodes, inner = [], []
    for domain in ordered:
        taken = _taken(cluster.pieces[domain], int(blocks[domain]) * fill[0])
        nodes.append(taken)
        inner.append(np.full(len(taken), domain))
    node, domain_of = np.concatenate(nodes), np.concatenate(inner)
    return Seats(node, tuple(found[domain_of] for found in of_piece))


def _taken(pieces: Sequence[Piece], number: int) -> Ints:
    """The nodes of so many accelerators of one domain, alike many of each where that can be."""
    each = next(
        g
        for g in range(min(number, max(p.count for p in pieces)), 0, -1)
        if number % g == 0 and sum(p.count // g for p in pieces) * g >= number
    )
    most_first = sorted(range(len(pieces)), key=lambda i: (-(pieces[i].count // each), i))
    left, taken = number // each, {}
    for i in most_first:
        taken[i] = min(left, pieces[i].count // each)
        left -= taken[i]
    return np.concatenate(
        [np.full(taken[i] * each, pieces[i].node, dtype=np.int64) for i in sorted(taken)]
    )


def named_order_seats(cluster: Cluster, number: int) -> Seats:
    """The seats that a scheduler hands out: nodes by name, each filled before the next."""
    by_name = sorted(range(len(cluster.nodes)), key=lambda i: cluster.nodes[i])
    where: dict[int, list[tuple[int, int]]] = {}
    for domain, pieces in enumerate(cluster.pieces):
        for piece in pieces:
            where.setdefault(piece.node, []).append((domain, piece.count))
    node = np.concatenate([np.full(cluster.sizes[i], i, dtype=np.int64) for i in by_name])
    domain_of = np.concatenate(
        [np.full(count, domain) for i in by_name for domain, count in where[i]]
    )
    of_piece = cluster.of_piece()
    return Seats(node[:number], tuple(found[domain_of[:number]] for found in of_piece))


def crossings(groups: Ranks, seats: Seats) -> tuple[int, ...]:
    """How many of the groups have members in several domains, per tier; groups (G, size)."""
    return tuple(
        int(np.count_nonzero((of_place[groups] != of_place[groups[:, :1]]).any(axis=1)))
        for of_place in seats.domains
    )
