"""Where ranks sit: the hosts of a job, and the framework's number of the rank at every place.

A plan fills places, host after host and domain after domain, in its rank order. A framework counts
ranks in an order of its own; where the two differ, ranks are put on hosts by a list.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from planner.errors import ExportError
from planner.frameworks.job import Job, matching_order
from planner.frameworks.target import target
from planner.frameworks.text import one_line
from planner.layouts.grids import EXPERT_GRID
from planner.layouts.rank_orders import Order, order_atoms, order_degrees
from planner.problem.topology import Topology

NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

MAX_ACCELERATORS_PER_HOST = 16
"""Of the largest host there is: wider scale-up domains span several hosts."""


# ---------------------------------------------------------------- hosts


@dataclass(frozen=True, slots=True)
class Hosts:
    """Hosts of a job: ranks on each, hosts of a scale-up domain, hosts that share a switch.

    names: in the order of places, where the plan names nodes.
    """

    number: int
    ranks_each: int
    in_domain: int
    under_switch: int | None
    names: tuple[str, ...] = ()


def accelerators_per_host(topology: Topology) -> int | None:
    """Accelerators of one host of a topology, where that is known."""
    known = target("slurm").accelerators_per_host
    if topology.accelerator.name in known:
        return int(known[topology.accelerator.name])
    width = topology.tiers[0].width
    return width if width <= MAX_ACCELERATORS_PER_HOST else None


def hosts_of(job: Job) -> Hosts:
    """The hosts of a job.

    Raises:
        ExportError: it is not known how many accelerators a host has, or the plan's domains do not
            fill hosts evenly.
    """
    if job.node_runs is not None:
        return _named_hosts(job, job.node_runs)
    topology, ranks = job.scenario.topology, job.scenario.num_accelerators
    innermost = topology.tiers[0]
    size = accelerators_per_host(topology)
    if size is None:
        raise ExportError(
            f"how many accelerators a host of {topology.accelerator.name} has is not known, and "
            f"{innermost.name} domains of {innermost.width} are wider than any; known: "
            f"{', '.join(target('slurm').accelerators_per_host)}"
        )
    domain = min(job.fill.get(innermost.name, innermost.width), ranks)
    # the fewest hosts that share a domain's ranks evenly, of those that it has
    most = max(innermost.width // size, 1)
    each = next((n for n in range(size, 0, -1) if domain % n == 0 and domain // n <= most), None)
    if each is None or ranks % each:
        raise ExportError(
            f"{domain} ranks of each {innermost.name} domain do not fall evenly on hosts of {size};"
            " expressible: a multiple of the hosts used"
        )
    number, in_domain = ranks // each, domain // each
    return Hosts(number, each, in_domain, _hosts_under_switch(job, number, in_domain))


def _hosts_under_switch(job: Job, number: int, in_domain: int) -> int | None:
    """Hosts under one leaf switch, where a host is an innermost domain."""
    tiers = job.scenario.topology.tiers
    if in_domain != 1 or len(tiers) <= 2:
        return None
    return min(job.fill.get(tiers[1].name, tiers[1].width), number)


def _named_hosts(job: Job, runs: Sequence[tuple[str, int]]) -> Hosts:
    """The nodes that a plan names, each with equally many ranks in a row."""
    names, counts = [name for name, _ in runs], sorted({count for _, count in runs})
    bad = next((name for name in names if not NODE_NAME.fullmatch(name)), None)
    if bad is not None:
        raise ExportError(
            f"the node name {one_line(bad)!r} is no host name; allowed: letters, digits and ._- "
            "behind a letter or digit"
        )
    if len(counts) > 1 or len(set(names)) < len(names):
        raise ExportError(
            f"nodes hold {' or '.join(map(str, counts))} ranks in a row: a launcher wants alike "
            "many on each; the target rankfile writes any"
        )
    (each,) = counts
    # a fill that does not fall on the nodes says nothing about hosts of one domain
    domain = job.fill.get(job.scenario.topology.tiers[0].name, each)
    in_domain = domain // each if domain % each == 0 and domain else 1
    under = _hosts_under_switch(job, len(names), in_domain)
    return Hosts(len(names), each, in_domain, under, tuple(names))


# ---------------------------------------------------------------- ranks


@dataclass(frozen=True, slots=True)
class RankMap:
    """The framework's rank at place p is Σ digitᵢ(p)·strideᵢ, digits counted in `factors`.

    order: the name of the framework's rank order.
    """

    order: str
    factors: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def is_identity(self) -> bool:
        """Whether the framework's own order already puts every rank in its place."""
        return list(self.strides) == [prod(self.factors[:i]) for i in range(len(self.factors))]

    def ranks(self) -> NDArray[np.int64]:
        """The framework's rank at every place."""
        place = np.arange(prod(self.factors))
        ranks = np.zeros_like(place)
        for factor, stride in zip(self.factors, self.strides, strict=True):
            ranks += place % factor * stride
            place //= factor
        return ranks


def rank_map(job: Job, orders: Sequence[str] = ()) -> RankMap:
    """The framework's ranks at the plan's places, in the order of its that fits best.

    orders: names of the software's orders that may be used; the first stands in where none numbers
    the ranks as planned.
    """
    usable = {n: a for n, a in job.scenario.software.orders.items() if not orders or n in orders}
    pieces = [(atom, factor) for atom, factor in job.rank_order if factor > 1]
    name = matching_order(pieces, usable) or next(iter(usable))
    return RankMap(name, tuple(f for _, f in pieces), _strides(pieces, usable[name]))


def _strides(pieces: Order, axes: Sequence[str]) -> tuple[int, ...]:
    """How far apart in the framework's ranks the neighbours along each piece of an order are."""
    degrees = order_degrees(pieces)
    # ranks between two neighbours along an atom: the product of all degrees inside it
    start, reached = {}, 1
    for atom in order_atoms(axes, EXPERT_GRID):
        start[atom] = reached
        reached *= degrees.get(atom, 1)
    strides = []
    for atom, factor in pieces:
        strides.append(start[atom])
        start[atom] *= factor  # the next piece of this atom lies outside this one
    return tuple(strides)
