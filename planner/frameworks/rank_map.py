"""Where ranks sit: hosts, and the framework's number of the rank at every place.

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
from planner.frameworks.job import Job, one_line, order_as_atoms
from planner.frameworks.target import target
from planner.layouts.grids import EXPERT_GRID
from planner.layouts.rank_orders import Order, order_atoms, order_degrees

NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
LARGEST_HOST = 16
"""Accelerators of the largest host there is: wider scale-up domains span several hosts."""


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
    degrees = order_degrees(pieces)
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
    if job.node_runs is not None:
        return _named_hosts(job, job.node_runs)
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
    fill = job.fill
    domain = min(fill.get(inner.name, inner.width), ranks)
    most = max(inner.width // size, 1)
    each = next((g for g in range(size, 0, -1) if domain % g == 0 and domain // g <= most), None)
    if each is None or ranks % each:
        raise ExportError(
            f"{domain} ranks of each {inner.name} domain do not fall evenly on hosts of {size}; "
            f"expressible: a multiple of the hosts used"
        )
    return Hosts(ranks // each, each, domain // each, _under(job, ranks // each, domain // each))


def _under(job: Job, number: int, in_domain: int) -> int | None:
    """Hosts under one leaf switch, where a host is a whole innermost domain."""
    tiers, fill = job.scenario.topology.tiers, job.fill
    if in_domain != 1 or len(tiers) <= 2:
        return None
    return min(fill.get(tiers[1].name, tiers[1].width), number)


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
    fill, inner = job.fill, job.scenario.topology.tiers[0].name
    domain = fill.get(inner, counts[0])
    in_domain = domain // counts[0] if domain % counts[0] == 0 and domain else 1
    return Hosts(len(names), counts[0], in_domain, _under(job, len(names), in_domain), (*names,))
