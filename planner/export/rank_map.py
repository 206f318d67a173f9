"""Where ranks sit: hosts, and the framework's number of the rank at every place.

A plan fills places, host after host and domain after domain, in its rank order. A framework counts
ranks in an order of its own; where the two differ, ranks are put on hosts by a list.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from planner.errors import ExportError
from planner.export.job import Job, order_as_atoms
from planner.grids import EXPERT_GRID
from planner.ranks import Order, order_atoms
from planner.targets import target

LARGEST_HOST = 16
"""Accelerators of the largest host there is: wider scale-up domains span several hosts."""


@dataclass(frozen=True, slots=True)
class Hosts:
    """Hosts of a job: ranks on each, hosts of a scale-up domain, hosts that share a switch."""

    number: int
    ranks_each: int
    in_domain: int
    under_switch: int | None


@dataclass(frozen=True, slots=True)
class RankMap:
    """The framework's rank at place p is Σ digitᵢ(p)·strideᵢ, digits counted in `factors`."""

    order: str
    factors: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def as_counted(self) -> bool:
        """Whether the framework's own order already puts every rank in its place."""
        reached = [prod(self.factors[:i]) for i in range(len(self.factors))]
        return list(self.strides) == reached

    def ranks(self) -> NDArray[np.int64]:
        """The framework's rank at every place."""
        place = np.arange(prod(self.factors))
        found = np.zeros_like(place)
        for factor, stride in zip(self.factors, self.strides, strict=True):
            found += place % factor * stride
            place //= factor
        return found


def rank_map(job: Job, orders: Sequence[str] = ()) -> RankMap:
    """The framework's ranks at the plan's places, in the order of its that fits best.

    orders: names of the software's orders that may be used; the first stands in where none numbers
    the ranks as planned.
    """
    known = {n: a for n, a in job.scenario.software.orders.items() if not orders or n in orders}
    pieces = [(atom, factor) for atom, factor in job.rank_order if factor > 1]
    planned = order_as_atoms(pieces)
    name = next(
        (
            name
            for name, axes in known.items()
            if planned == [atom for atom in order_atoms(axes, EXPERT_GRID) if atom in planned]
        ),
        next(iter(known)),
    )
    return RankMap(name, tuple(f for _, f in pieces), _strides(pieces, known[name]))


def _strides(pieces: Order, axes: Sequence[str]) -> tuple[int, ...]:
    degrees: dict[str, int] = {}
    for atom, factor in pieces:
        degrees[atom] = degrees.get(atom, 1) * factor
    start, reached = {}, 1
    for atom in order_atoms(axes, EXPERT_GRID):
        start[atom] = reached
        reached *= degrees.get(atom, 1)
    found = []
    for atom, factor in pieces:
        found.append(start[atom])
        start[atom] *= factor
    return tuple(found)


def hosts(job: Job) -> Hosts:
    """The hosts of a job.

    Raises:
        ExportError: it is not known how many accelerators a host has, or the plan's domains do not
            fill hosts evenly.
    """
    topology, ranks = job.scenario.topology, job.scenario.num_accelerators
    tiers = topology.tiers
    inner, name = tiers[0], topology.accelerator.name
    known = target("slurm").accelerators_per_host
    size = int(known[name]) if name in known else inner.width
    if size > LARGEST_HOST:
        raise ExportError(
            f"how many accelerators a host of {name} has is not known, and {inner.name} domains of "
            f"{inner.width} are wider than any; known: {', '.join(known)}"
        )
    fill = job.plan.fill or {}
    domain = min(fill.get(inner.name, inner.width), ranks)
    most = max(inner.width // size, 1)
    each = next((g for g in range(size, 0, -1) if domain % g == 0 and domain // g <= most), None)
    if each is None or ranks % each:
        raise ExportError(
            f"{domain} ranks of each {inner.name} domain do not fall evenly on hosts of {size}; "
            f"expressible: a multiple of the hosts used"
        )
    number, in_domain = ranks // each, domain // each
    under = None
    if in_domain == 1 and len(tiers) > 2:
        under = min(fill.get(tiers[1].name, tiers[1].width), number)
    return Hosts(number, each, in_domain, under)
