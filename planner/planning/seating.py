"""A plan's places put on the nodes of an inventory, and what its groups cross there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from planner.cost.context import CostContext
from planner.errors import InputError
from planner.layouts.layout import Layout
from planner.layouts.rank_orders import Order, Ranks, framework_groups, group_ranks, worst_of
from planner.planning.plan import GroupCrossings, NodesReport, Plan
from planner.planning.seats import Seats, block_seats, crossings, named_order_seats
from planner.problem.cluster import Cluster
from planner.problem.scenario import Scenario
from planner.search.inventory import choose_domains
from planner.search.layout_problem import grid_of
from planner.search.placement import fills


@dataclass(frozen=True, slots=True)
class Seated:
    """The nodes of a plan, and every group's worst split over the domains it really touches."""

    nodes: NodesReport
    splits: Mapping[str, list[float]]


def seat_plan(ctx: CostContext, layout: Layout, order: Order, fill: Sequence[int]) -> Seated:
    """Put a plan's ranks, numbered along `order`, in blocks of `fill` on the usable nodes."""
    groups = {name: group_ranks(order, atoms) for name, atoms in grid_of(ctx.model).groups.items()}
    return _seated(ctx, layout, groups, fill)


def seat_framework(ctx: CostContext, layout: Layout) -> Seated:
    """Put ranks in the software's own order on the usable nodes, innermost domains filled first.

    Raises:
        InputError: the nodes hold the job in no equal blocks.
    """
    assert ctx.cluster is not None
    possible = fills(ctx.cluster.widths, ctx.num_accelerators)
    fill = next((fill for fill in possible if ctx.cluster.holds(fill)), None)
    if fill is None:
        raise InputError(
            f"{ctx.num_accelerators} ranks do not fall in equal blocks on the usable nodes",
            key="inventory", allowed="another number of accelerators",
        )  # fmt: skip
    return _seated(ctx, layout, framework_groups(layout, _first_order(ctx)), fill)


def _first_order(ctx: CostContext) -> tuple[str, ...]:
    return tuple(next(iter(ctx.software.orders.values())))


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
    before = named_order_seats(cluster, ctx.num_accelerators)
    default = framework_groups(layout, _first_order(ctx))
    used = set(np.unique(seats.node).tolist())
    report = NodesReport(
        ranks=tuple((cluster.nodes[node], count) for node, count in seats.runs()),
        spares=tuple(name for i, name in enumerate(cluster.nodes) if i not in used),
        left_out=dict(cluster.left_out),
        domains={
            tier: len(np.unique(of_place))
            for tier, of_place in zip(cluster.tiers, seats.domains, strict=True)
        },
        shared=_shares(seats, fill),
        crossings={
            name: GroupCrossings(
                groups=len(ranks),
                before=_by_tier(cluster.tiers, crossings(default[name], before)),
                after=_by_tier(cluster.tiers, crossings(ranks, seats)),
            )
            for name, ranks in groups.items()
            if ranks.shape[1] > 1
        },
    )
    return Seated(report, {name: worst_of(ranks, seats.domains) for name, ranks in groups.items()})


def _by_tier(tiers: Sequence[str], counts: Sequence[int]) -> dict[str, int]:
    """Groups that have members in several domains of each tier; the outermost has one."""
    return dict(zip(tiers[:-1], counts[:-1], strict=True))


def _shares(seats: Seats, fill: Sequence[int]) -> bool:
    """Whether some domain holds more than one block: groups may then cross less than planned."""
    numbers = [len(np.unique(of_place)) for of_place in seats.domains]
    blocks = np.cumprod(fill)
    return any(
        number * size < len(seats.node) for number, size in zip(numbers, blocks, strict=True)
    )


def require_nodes(plan: Plan, scenario: Scenario, path: str) -> None:
    """Refuse a plan whose nodes are not those of its scenario's inventory.

    Raises:
        InputError: nodes without an inventory or none with one, an unusable node, or other counts.
    """
    wrong = None
    if (plan.nodes is None) != (scenario.inventory is None):
        wrong = "nodes belong to an inventory, and an inventory's plan has nodes"
    elif plan.nodes is not None and scenario.inventory is not None:
        cluster = Cluster.of(scenario.inventory, scenario.topology)
        sizes = dict(zip(cluster.nodes, cluster.sizes, strict=True))
        taken: Counter[str] = Counter()
        for name, count in plan.nodes.ranks:
            taken[name] += count
        bad = [n for n, count in taken.items() if not 1 <= count <= sizes.get(n, 0)]
        if bad:
            wrong = f"node {bad[0]} does not have {taken[bad[0]]} usable accelerators"
        elif taken.total() != scenario.num_accelerators:
            wrong = f"{taken.total()} ranks on nodes, {scenario.num_accelerators} accelerators"
    if wrong is not None:
        raise InputError(
            f"the nodes do not fit the inputs: {wrong}", path=path, key="nodes",
            allowed="a plan file that was not edited",
        )  # fmt: skip
