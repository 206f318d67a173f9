"""Random small search problems with a coupled step, and the oracle that solves them plainly.

The oracle is written apart from `planner`: nested loops over factorisations, a scalar step in
plain Python, framework orders judged by simulating the ranks.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from math import inf, prod

import numpy as np

from planner.search.placement import NotNestedError, fills, refine, splits
from tests.oracles import all_placements, divisors
from tests.search.synthetic_bounds import group_minima, link_bound, simplex_weights

KINDS = ("coupled", "replicated", "expert")

WIDTHS = {
    2: ((8, 4), (72, 2), (48, 3), (4, 8), (6, 6), (72, 4)),
    3: ((2, 2, 4), (4, 3, 2), (8, 2, 3), (48, 2, 2), (72, 2, 2), (2, 4, 4)),
    4: ((2, 2, 2, 2), (2, 3, 2, 2), (4, 2, 2, 3), (72, 2, 2, 2), (48, 2, 3, 2)),
}


@dataclass(frozen=True)
class Group:
    """One communicating group: its atoms, bytes, latency hops, and how the step takes it in."""

    atoms: tuple[int, ...]
    volume: float
    hops: float
    role: str  # 'serial', 'hidden' (behind a shared budget) or 'linked' (on shared links)


@dataclass(frozen=True)
class Shape:
    degrees: tuple[int, ...]
    groups: dict[str, Group]
    compute: float
    budget: float
    orders: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class SyntheticProblem:
    """The problem's protocol over arrays. `rebate` > 0 makes the step non-monotone (a bad F)."""

    widths: tuple[int, ...]
    shapes: tuple[Shape, ...]
    alpha: tuple[float, ...]
    beta: tuple[float, ...]
    rebate: float = 0.0

    @property
    def num_shapes(self):
        return len(self.shapes)

    @property
    def degrees(self):
        return np.array([shape.degrees for shape in self.shapes], dtype=np.int64)

    def latency(self, group, split):
        return group.hops * ((split - 1) * np.array(self.alpha)).sum(axis=-1)

    def busy(self, group, split):
        inner = np.cumprod(split, axis=-1) // split
        return group.volume * (split - 1) / split / inner / np.array(self.beta)

    def step(self, shape, latency, busy):
        """F: latency {name: (...)}, busy {name: (..., T)} → seconds (...); monotone but rebate."""
        total = shape.compute + 0.0 * next(iter(latency.values()))
        hidden, linked = -shape.budget + 0.0 * total, 0.0 * next(iter(busy.values()))
        for name, group in shape.groups.items():
            whole = latency[name] + busy[name].sum(axis=-1)
            if group.role == "serial":
                total = total + whole
            elif group.role == "hidden":
                hidden = hidden + whole
            else:
                total, linked = total + latency[name], linked + busy[name]
        total = total + np.maximum(0.0, hidden) + linked.max(axis=-1)
        return total - self.rebate * sum(busy[name][..., -1] for name in shape.groups)

    def score_rows(self, shapes, placements):
        result = np.empty(len(shapes))
        for i in np.unique(shapes).tolist():
            rows, shape = np.flatnonzero(shapes == i), self.shapes[i]
            split = {
                name: placements[rows][:, list(group.atoms), :].prod(axis=1)
                for name, group in shape.groups.items()
            }
            latency = {n: self.latency(g, split[n]) for n, g in shape.groups.items()}
            busy = {n: self.busy(g, split[n]) for n, g in shape.groups.items()}
            result[rows] = self.step(shape, latency, busy)
        return result

    def slow_byte_seconds(self, shapes, placements):
        result = np.empty(len(shapes))
        for row, (i, placement) in enumerate(zip(shapes.tolist(), placements, strict=True)):
            result[row] = sum(
                self.busy(g, placement[list(g.atoms)].prod(axis=0))[1:].sum() * g.volume
                for g in self.shapes[i].groups.values()
            )
        return result

    def degrees_sum(self, shapes):
        return self.degrees[shapes].sum(axis=1)

    def orders(self, i):
        return self.shapes[i].orders

    def groups(self, i):
        return {name: group.atoms for name, group in self.shapes[i].groups.items()}

    def key(self, i):
        return i

    def lower_bounds(self):
        return np.array([self._bound(shape) for shape in self.shapes])

    def tighter_bounds(self, shapes):
        """The least, over the splits of one group, of the bound given that split."""
        found = []
        for shape in (self.shapes[i] for i in shapes):
            first = next(iter(shape.groups.values())).atoms
            size, num = prod(shape.degrees[a] for a in first), prod(shape.degrees)
            given = splits(size, self.widths, num).tolist()
            found.append(min((self._bound(shape, first, split) for split in given), default=inf))
        return np.array(found)

    def _bound(self, shape, first=(), split=None):
        num = prod(shape.degrees)
        if not fills(self.widths, num):
            return inf
        weights = simplex_weights(len(self.widths), 4)
        total, hidden, linked = shape.compute, -shape.budget, []
        for group in shape.groups.values():
            beside = None if set(group.atoms) & set(first) else split
            size = prod(shape.degrees[a] for a in group.atoms)
            options = splits(size, self.widths, num, beside)
            if group.atoms == first:
                options = np.array([split])
            minima = group_minima(
                lambda split, g=group: self.latency(g, split),
                lambda split, g=group: self.busy(g, split),
                options,
                weights,
            )
            if group.role == "serial":
                total += minima.serial_seconds
            elif group.role == "hidden":
                hidden += minima.serial_seconds
            else:
                total += minima.latency_seconds
                linked.append(minima)
        return total + max(0.0, hidden) + link_bound(linked)


# --- random instances ---------------------------------------------------------------------------


def _groups_of(kind, rng, num):
    """Random degrees over `num` ranks: (degrees, {name: atoms}, framework orders) or None."""
    pp = rng.choice([d for d in divisors(num) if d <= 4])
    stage = num // pp
    tp = rng.choice([d for d in divisors(stage) if d <= 8])
    cp = rng.choice([d for d in divisors(stage // tp) if d <= 4])
    dp = stage // tp // cp
    if kind != "expert":
        choices = [d for d in divisors(dp) if d < dp] if kind == "replicated" else [dp]
        if not choices:
            return None
        shard = rng.choice(choices)
        groups = {"tp": (0,), "cp": (1,), "shard": (1, 2), "replicate": (3,), "pp": (4,)}
        orders = ((0, 1, 2, 3, 4), (0, 4, 1, 2, 3), (0, 1, 4, 2, 3))
        return (tp, cp, shard, dp // shard, pp), groups, orders
    etp = rng.choice(divisors(tp))
    ep = rng.choice([d for d in divisors(stage // etp) if d > 1] or [1])
    chains = (tp, tp * cp, stage), (etp, etp * ep, stage)
    try:
        atoms, (dense, expert) = refine(*chains)
    except NotNestedError:  # such grids are not searched
        return None
    names = ("tp", "cp", "dp"), ("etp", "ep", "edp")
    groups = dict(zip(names[0], dense, strict=True)) | dict(zip(names[1], expert, strict=True))
    groups["pp"] = (5,)
    return (*atoms, pp), groups, ((0, 1, 2, 3, 4, 5), (*dense[0], 5, *dense[1], *dense[2]))


def random_problem(kind: str, seed: int, max_shapes: int = 8) -> SyntheticProblem:
    """A small instance: 2-4 tiers, up to `max_shapes` shapes, all groups priced at random."""
    rng = random.Random(f"{kind}-{seed}")
    num_tiers = rng.choice([2, 3, 4])
    widths = rng.choice(WIDTHS[num_tiers])
    most = {2: 144, 3: 96, 4: 64}[num_tiers]
    num = rng.choice([n for n in range(8, most + 1) if len(divisors(n)) > 4 and fills(widths, n)])
    beta = [rng.uniform(50.0, 100.0)]
    alpha = [rng.uniform(1e-4, 1e-3)]
    for _ in widths[1:]:
        beta.append(beta[-1] * rng.uniform(0.1, 0.9))
        alpha.append(alpha[-1] * rng.uniform(1.0, 4.0))
    shapes: dict[tuple[int, ...], Shape] = {}
    for _ in range(60):
        made = _groups_of(kind, rng, num)
        if made is None or made[0] in shapes:
            continue
        degrees, atoms, orders = made
        roles = [rng.choice(["serial", "hidden", "linked"]) for _ in atoms]
        if kind == "coupled":
            roles = [rng.choice(["hidden", "linked"]) for _ in atoms]
        groups = {
            name: Group(members, rng.uniform(1.0, 40.0), rng.uniform(1.0, 30.0), role)
            for (name, members), role in zip(atoms.items(), roles, strict=True)
        }
        compute, budget = rng.uniform(0.5, 1.0), rng.choice([0.0, rng.uniform(0.0, 0.5)])
        shapes[degrees] = Shape(degrees, groups, compute, budget, orders)
        if len(shapes) == max_shapes:
            break
    return SyntheticProblem(widths, tuple(shapes.values()), tuple(alpha), tuple(beta))


# --- the oracle -----------------------------------------------------------------------------------


def scalar_step(problem, shape, placement):
    """The step of one row, in plain Python."""
    total, hidden = shape.compute, -shape.budget
    link = [0.0] * len(problem.widths)
    for group in shape.groups.values():
        split = [prod(placement[a][t] for a in group.atoms) for t in range(len(problem.widths))]
        latency, busy, inner = 0.0, [], 1
        for t, members in enumerate(split):
            latency += group.hops * problem.alpha[t] * (members - 1)
            busy.append(group.volume * (members - 1) / members / inner / problem.beta[t])
            inner *= members
        if group.role == "serial":
            total += latency + sum(busy)
        elif group.role == "hidden":
            hidden += latency + sum(busy)
        else:
            total += latency
            link = [a + b for a, b in zip(link, busy, strict=True)]
    return total + max(0.0, hidden) + max(link)


def gives_order(order, placement):
    """Whether ranks numbered along `order` sit where the placement says, by simulation."""
    degrees = [prod(factors) for factors in placement]
    digits = [(a, placement[a][t]) for t in range(len(placement[0])) for a in order]
    for rank in range(prod(degrees)):
        named, left = {}, rank
        for atom in order:
            left, named[atom] = divmod(left, degrees[atom])
        placed, stride, left = dict.fromkeys(named, 0), dict.fromkeys(named, 1), rank
        for atom, factor in digits:
            left, digit = divmod(left, factor)
            placed[atom] += digit * stride[atom]
            stride[atom] *= factor
        if placed != named:
            return False
    return True


def brute_force(problem, allowed=lambda shape, placement: True):
    """Every allowed row, costed: list of (step, shape index, placement)."""
    return [
        (scalar_step(problem, shape, placement), i, placement)
        for i, shape in enumerate(problem.shapes)
        for placement in all_placements(shape.degrees, problem.widths)
        if allowed(shape, placement)
    ]
