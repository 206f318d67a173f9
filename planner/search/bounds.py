"""Lower bounds of a layout's step over all its placements: component minima.

**The bound.** A communicating group G costs a vector c_G: latency, switch, and busy seconds of each
tier. It depends only on G's own split over the tiers. The step is F(layout, c), non-decreasing in
every component of every c_G (`planner.cost.step`; tests push each component up). Let m_G hold each
component's minimum over the splits of G, every component by itself. Then c_G ≥ m_G in any
placement, so

    F(layout, m) ≤ F(layout, c(placement)),

a lower bound that needs no placement. It is no step: minima may come from different splits, and
groups may claim the same places.

**Tighter bounds.** Every placement has some number a of a tp group's members in one innermost
domain of width w. Given a, a group without common atoms has at most w // a members there. So the
minimum over a of the bounds given a is a lower bound as well, and never below the first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from planner.cost.channels import Channel
from planner.cost.collective_costs import UnitCost, unit_cost
from planner.cost.collectives import Collective, GroupCost
from planner.cost.context import CostContext, TierArrays
from planner.cost.traffic import GroupCollective, Traffic, group_collectives, priced
from planner.layouts.arrays import BoolArray, IntArray, distinct_values
from planner.layouts.numeric import Numeric
from planner.problem.fills import Fill
from planner.search.placement import splits


@dataclass(frozen=True, eq=False)
class TierSpace:
    """The tiers that groups of a job are split over.

    fills: those that are possible for the job's number of ranks, from which splits follow.
    """

    tiers: TierArrays
    widths: tuple[int, ...]
    num_ranks: int
    fills: tuple[Fill, ...]

    @classmethod
    def of(cls, ctx: CostContext) -> TierSpace:
        """All fills of the topology, or those that the inventory's usable nodes hold."""
        cluster, num = ctx.cluster, ctx.num_accelerators
        if cluster is None:
            return cls(ctx.tiers, ctx.topology.widths, num, tuple(ctx.topology.fills(num)))
        return cls(ctx.tiers, cluster.widths, num, tuple(cluster.fills(num)))

    # a key of the caches below: arrays have no hash, so tiers count by identity

    @cached_property
    def _key(self) -> tuple[object, ...]:
        return id(self.tiers), self.widths, self.num_ranks, self.fills

    @cached_property
    def _hash(self) -> int:
        return hash(self._key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TierSpace) and self._key == other._key


def minimum_costs(
    space: TierSpace,
    traffic: Traffic,
    degrees: IntArray,
    groups: Mapping[str, tuple[int, ...]],
    tp_innermost: int | None,
) -> tuple[dict[Channel, GroupCost], BoolArray]:
    """Component minima of every channel of some layouts, and which layouts have a placement.

    degrees: (R, A); groups: group → its atoms; tp_innermost: members of a tp group in one innermost
    domain, None for any number. The costs' arrays have shape (R), zeros where nothing is possible.
    """
    possible = np.ones(len(degrees), dtype=bool)
    units: dict[GroupCollective, UnitCost] = {}
    for group, collective in group_collectives(traffic):
        sizes = degrees[:, list(groups[group])].prod(axis=1)
        innermost = _innermost_members(group, groups, space.widths[0], tp_innermost)
        units[group, collective], has_split = component_minima(space, collective, sizes, innermost)
        possible &= has_split
    return priced(traffic, units), possible


def _innermost_members(
    group: str, groups: Mapping[str, tuple[int, ...]], width: int, tp_innermost: int | None
) -> tuple[int, int]:
    """Fewest and most members that a group may have in one innermost domain."""
    if tp_innermost is None:
        return 1, width
    if group == "tp":
        return tp_innermost, tp_innermost
    # members of a group that shares atoms with tp may be the same ranks
    shares_atoms = not set(groups[group]).isdisjoint(groups["tp"])
    return 1, width if shares_atoms else width // tp_innermost


def component_minima(
    space: TierSpace, collective: Collective, sizes: IntArray, innermost: tuple[int, int]
) -> tuple[UnitCost, BoolArray]:
    """Lowest seconds of a call and lowest busy seconds per byte of groups of these sizes, (R).

    Each component's minimum is over
    the splits that some fill realises with innermost[0] to innermost[1] members in one innermost
    domain. Second, whether there is such a split; the unit cost is 0 where not.
    """
    distinct, position = distinct_values(sizes)
    rows = [_minima(space, collective, size, innermost) for size in distinct.tolist()]
    possible = np.array([row is not None for row in rows], dtype=bool)[position]
    return _columns(rows, len(space.widths), position), possible


@lru_cache(maxsize=4096)
def _minima(
    space: TierSpace, collective: Collective, size: int, innermost: tuple[int, int]
) -> UnitCost | None:
    """Each component's minimum for one size; None where there is no split."""
    options = splits(size, space.widths, space.num_ranks, among=space.fills)
    options = options[(innermost[0] <= options[:, 0]) & (options[:, 0] <= innermost[1])]
    if not len(options):
        return None
    unit = unit_cost(collective, list(options.T), space.tiers)

    def lowest(component: Numeric) -> float:
        return float(np.min(np.broadcast_to(component, len(options))))

    def optional(component: Numeric | None) -> float | None:
        return None if component is None else lowest(component)

    return UnitCost(
        latency_seconds=lowest(unit.latency_seconds),
        switch_seconds=lowest(unit.switch_seconds),
        busy_seconds=tuple(lowest(seconds) for seconds in unit.busy_seconds),
        short_busy_seconds=optional(unit.short_busy_seconds),
        rendezvous_seconds=optional(unit.rendezvous_seconds),
        long_calls_per_byte=lowest(unit.long_calls_per_byte),
    )


def _columns(rows: Sequence[UnitCost | None], num_tiers: int, position: IntArray) -> UnitCost:
    """Unit costs of distinct sizes as one of arrays, gathered to all rows; 0 for None."""
    known = [row for row in rows if row is not None]
    nothing = UnitCost(0.0, 0.0, (0.0,) * num_tiers)
    filled = [nothing if row is None else row for row in rows]

    def column(read: Callable[[UnitCost], Numeric | None]) -> Numeric:
        return np.array([read(row) or 0.0 for row in filled], dtype=np.float64)[position]

    def optional(read: Callable[[UnitCost], Numeric | None]) -> Numeric | None:
        return column(read) if any(read(row) is not None for row in known) else None

    return UnitCost(
        latency_seconds=column(lambda row: row.latency_seconds),
        switch_seconds=column(lambda row: row.switch_seconds),
        busy_seconds=tuple(
            np.array([row.busy_seconds[t] for row in filled], dtype=np.float64)[position]
            for t in range(num_tiers)
        ),
        short_busy_seconds=optional(lambda row: row.short_busy_seconds),
        rendezvous_seconds=optional(lambda row: row.rendezvous_seconds),
        long_calls_per_byte=column(lambda row: row.long_calls_per_byte),
    )
