"""Where ranks sit: the node of every rank of a plan on an inventory, and what its groups cross.

Ranks are those of the plan's rank order. They fill equal blocks, the blocks of a domain one after
another, domains with more blocks first, then in the inventory's order: so neighbouring blocks share
domains as far as the choice of domains allows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.cost.context import CostContext
from planner.errors import InputError
from planner.layouts.layout import Layout
from planner.layouts.rank_orders import Order, Ranks, framework_groups, group_ranks, worst_of
from planner.planning.groups import Splits
from planner.planning.plan import GroupCrossings, NodesReport
from planner.problem.cluster import Cluster, Piece
from planner.search.inventory import choose_domains
from planner.search.layout_problem import grid_of

Ints = NDArray[np.int64]

# ---------------------------------------------------------------- seats


@dataclass(frozen=True, eq=False, slots=True)
class Seats:
    """Where each of n ranks sits.

    node: position of its node among the usable nodes, shape (n).
    domains: for each tier, inner to outer, the position of its domain, shape (n).
    """

    node: Ints
    domains: tuple[Ints, ...]

    def runs(self) -> list[tuple[int, int]]:
        """(node, consecutive ranks), in the order of ranks."""
        ends = np.flatnonzero(np.diff(self.node)) + 1
        starts = np.concatenate([[0], ends]).tolist()
        lengths = np.diff([*starts, len(self.node)]).tolist()
        return [(int(self.node[start]), n) for start, n in zip(starts, lengths, strict=True)]


def block_seats(cluster: Cluster, blocks: Ints, fill: Sequence[int]) -> Seats:
    """The seats of ranks in equal blocks.

    blocks: how many blocks of fill[0] accelerators each innermost domain holds, shape (domains).
    """
    totals = [blocks]
    for parent, names in zip(cluster.parent, cluster.domains[1:], strict=True):
        above = np.zeros(len(names), dtype=np.int64)
        np.add.at(above, parent, totals[-1])
        totals.append(above)
    domains_of_piece = cluster.of_piece()
    keys: list[Ints] = []  # np.lexsort wants the last key first
    for tier, of_domain in enumerate(domains_of_piece):
        keys += [of_domain, -totals[tier][of_domain]]
    ordered = [domain for domain in np.lexsort(keys).tolist() if blocks[domain]]
    nodes, innermost = [], []
    for domain in ordered:
        taken = _taken_nodes(cluster.pieces[domain], int(blocks[domain]) * fill[0])
        nodes.append(taken)
        innermost.append(np.full(len(taken), domain))
    domain_of_rank = np.concatenate(innermost)
    return Seats(
        np.concatenate(nodes), tuple(of_domain[domain_of_rank] for of_domain in domains_of_piece)
    )


def _taken_nodes(pieces: Sequence[Piece], number: int) -> Ints:
    """The nodes of so many accelerators of one domain, equally many of each where that can be."""
    # the most accelerators of every used node, such that they add up to the number
    each = next(
        size
        for size in range(min(number, max(piece.count for piece in pieces)), 0, -1)
        if number % size == 0 and sum(piece.count // size for piece in pieces) * size >= number
    )
    largest_first = sorted(range(len(pieces)), key=lambda i: (-(pieces[i].count // each), i))
    left, taken = number // each, {}
    for i in largest_first:
        taken[i] = min(left, pieces[i].count // each)
        left -= taken[i]
    return np.concatenate(
        [np.full(taken[i] * each, pieces[i].node, dtype=np.int64) for i in sorted(taken)]
    )


def named_order_seats(cluster: Cluster, number: int) -> Seats:
    """The seats that a scheduler hands out: nodes by name, each filled before the next."""
    by_name = sorted(range(len(cluster.nodes)), key=lambda i: cluster.nodes[i])
    pieces_of_node: dict[int, list[tuple[int, int]]] = {}
    for domain, pieces in enumerate(cluster.pieces):
        for piece in pieces:
            pieces_of_node.setdefault(piece.node, []).append((domain, piece.count))
    node = np.concatenate([np.full(cluster.sizes[i], i, dtype=np.int64) for i in by_name])
    domain_of_rank = np.concatenate(
        [np.full(count, domain) for i in by_name for domain, count in pieces_of_node[i]]
    )[:number]
    return Seats(
        node[:number], tuple(of_domain[domain_of_rank] for of_domain in cluster.of_piece())
    )


def crossings(groups: Ranks, seats: Seats) -> tuple[int, ...]:
    """How many groups have members in several domains, per tier; groups (G, size)."""
    return tuple(
        int(np.count_nonzero((of_rank[groups] != of_rank[groups[:, :1]]).any(axis=1)))
        for of_rank in seats.domains
    )


# ---------------------------------------------------------------- a plan seated


@dataclass(frozen=True, slots=True)
class Seated:
    """The nodes of a plan, and every group's worst split over the domains it really touches."""

    nodes: NodesReport
    splits: Splits


def seat_plan(ctx: CostContext, layout: Layout, order: Order, fill: Sequence[int]) -> Seated:
    """Seat ranks that are numbered along `order`, in blocks of `fill` on the usable nodes."""
    groups = {name: group_ranks(order, atoms) for name, atoms in grid_of(ctx.model).groups.items()}
    return _seated(ctx, layout, groups, fill)


def seat_framework(ctx: CostContext, layout: Layout) -> Seated:
    """Seat ranks in the software's own order on the usable nodes, innermost domains filled first.

    Raises:
        InputError: the nodes hold the job in no equal blocks.
    """
    assert ctx.cluster is not None
    fill = next(ctx.cluster.fills(ctx.num_accelerators), None)
    if fill is None:
        raise InputError(
            f"{ctx.num_accelerators} ranks do not fall in equal blocks on the usable nodes",
            key="inventory", allowed="another number of accelerators",
        )  # fmt: skip
    return _seated(ctx, layout, _default_groups(ctx, layout), fill)


def _default_groups(ctx: CostContext, layout: Layout) -> Mapping[str, Ranks]:
    """The groups under the order that the software takes where nobody names one."""
    return framework_groups(layout, tuple(next(iter(ctx.software.orders.values()))))


def _seated(
    ctx: CostContext, layout: Layout, groups: Mapping[str, Ranks], fill: Sequence[int]
) -> Seated:
    cluster = ctx.cluster
    assert cluster is not None
    blocks = choose_domains(cluster, fill)
    assert blocks is not None, "the search offers only fills that the nodes hold"
    seats = block_seats(cluster, blocks, fill)
    if len(seats.node) != ctx.num_accelerators:
        raise AssertionError(f"{len(seats.node)} seats for {ctx.num_accelerators} ranks")
    used = set(np.unique(seats.node).tolist())
    report = NodesReport(
        ranks=tuple((cluster.nodes[node], count) for node, count in seats.runs()),
        spares=tuple(name for i, name in enumerate(cluster.nodes) if i not in used),
        left_out=dict(cluster.left_out),
        domains={
            tier: len(np.unique(of_rank))
            for tier, of_rank in zip(cluster.tiers, seats.domains, strict=True)
        },
        shared=_share_domains(seats, fill),
        crossings=_crossings_of_groups(ctx, layout, groups, seats),
    )
    return Seated(report, {name: worst_of(ranks, seats.domains) for name, ranks in groups.items()})


def _crossings_of_groups(
    ctx: CostContext, layout: Layout, groups: Mapping[str, Ranks], seats: Seats
) -> dict[str, GroupCrossings]:
    """Crossings of every group of several members, as a scheduler seats them and as planned."""
    cluster = ctx.cluster
    assert cluster is not None
    by_name = named_order_seats(cluster, ctx.num_accelerators)
    default = _default_groups(ctx, layout)

    def by_tier(counts: Sequence[int]) -> dict[str, int]:
        # the outermost tier has one domain, which nothing crosses
        return dict(zip(cluster.tiers[:-1], counts[:-1], strict=True))

    return {
        name: GroupCrossings(
            groups=len(ranks),
            before=by_tier(crossings(default[name], by_name)),
            after=by_tier(crossings(ranks, seats)),
        )
        for name, ranks in groups.items()
        if ranks.shape[1] > 1
    }


def _share_domains(seats: Seats, fill: Sequence[int]) -> bool:
    """Whether some domain holds more than one block: groups may then cross less than planned."""
    domains_used = [len(np.unique(of_rank)) for of_rank in seats.domains]
    block_sizes = np.cumprod(fill)
    return any(
        number * size < len(seats.node)
        for number, size in zip(domains_used, block_sizes, strict=True)
    )
