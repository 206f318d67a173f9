"""Random small search problems with a coupled step, and the oracle that solves them plainly.

The oracle is written apart from `planner`: nested loops over factorisations, a scalar step in
plain Python, framework orders judged by simulating the ranks.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, prod

import numpy as np

from planner.problem.fills import fills
from planner.search.placement import splits
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
class SyntheticLayout:
    degrees: tuple[int, ...]
    groups: dict[str, Group]
    compute: float
    budget: float
    orders: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class SyntheticProblem:
    """The problem's protocol over arrays. `rebate` > 0 makes the step non-monotone (a bad F)."""

    widths: tuple[int, ...]
    layouts: tuple[SyntheticLayout, ...]
    alpha: tuple[float, ...]
    beta: tuple[float, ...]
    rebate: float = 0.0

    @property
    def num_layouts(self):
        return len(self.layouts)

    @property
    def degrees(self):
        return np.array([layout.degrees for layout in self.layouts], dtype=np.int64)

    def latency(self, group, split):
        return group.hops * ((split - 1) * np.array(self.alpha)).sum(axis=-1)

    def busy(self, group, split):
        inner = np.cumprod(split, axis=-1) // split
        return group.volume * (split - 1) / split / inner / np.array(self.beta)

    def step(self, layout, latency, busy):
        """F: latency {name: (...)}, busy {name: (..., T)} → seconds (...); monotone but rebate."""
        total = layout.compute + 0.0 * next(iter(latency.values()))
        hidden, linked = -layout.budget + 0.0 * total, 0.0 * next(iter(busy.values()))
        for name, group in layout.groups.items():
            whole = latency[name] + busy[name].sum(axis=-1)
            if group.role == "serial":
                total = total + whole
            elif group.role == "hidden":
                hidden = hidden + whole
            else:
                total, linked = total + latency[name], linked + busy[name]
        total = total + np.maximum(0.0, hidden) + linked.max(axis=-1)
        return total - self.rebate * sum(busy[name][..., -1] for name in layout.groups)

    def step_seconds(self, indices, placements):
        result = np.empty(len(indices))
        for i in np.unique(indices).tolist():
            rows, layout = np.flatnonzero(indices == i), self.layouts[i]
            split = {
                name: placements[rows][:, list(group.atoms), :].prod(axis=1)
                for name, group in layout.groups.items()
            }
            latency = {n: self.latency(g, split[n]) for n, g in layout.groups.items()}
            busy = {n: self.busy(g, split[n]) for n, g in layout.groups.items()}
            result[rows] = self.step(layout, latency, busy)
        return result

    def slow_tier_seconds(self, indices, placements):
        result = np.empty(len(indices))
        for row, (i, placement) in enumerate(zip(indices.tolist(), placements, strict=True)):
            result[row] = sum(
                self.busy(g, placement[list(g.atoms)].prod(axis=0))[1:].sum() * g.volume
                for g in self.layouts[i].groups.values()
            )
        return result

    def degrees_sum(self, indices):
        return self.degrees[indices].sum(axis=1)

    def framework_orders(self, i):
        return self.layouts[i].orders

    def groups(self, i):
        return {name: group.atoms for name, group in self.layouts[i].groups.items()}

    def identity(self, i):
        return i

    def lower_bounds(self):
        return np.array([self._bound(layout) for layout in self.layouts])

    def tighter_bounds(self, indices):
        """The least, over the splits of one group, of the bound given that split."""
        found = []
        for layout in (self.layouts[i] for i in indices):
            first = next(iter(layout.groups.values())).atoms
            size, num = prod(layout.degrees[a] for a in first), prod(layout.degrees)
            given = splits(size, self.widths, num).tolist()
            found.append(min((self._bound(layout, first, split) for split in given), default=inf))
        return np.array(found)

    def _bound(self, layout, first=(), split=None):
        num = prod(layout.degrees)
        if not fills(self.widths, num):
            return inf
        weights = simplex_weights(len(self.widths), 4)
        total, hidden, linked = layout.compute, -layout.budget, []
        for group in layout.groups.values():
            size = prod(layout.degrees[a] for a in group.atoms)
            if split is None or set(group.atoms) & set(first):
                options = splits(size, self.widths, num)
            else:
                options = splits_with(size, self.widths, num, split)
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


# --- splits of two groups -------------------------------------------------------------------------


def splits_with(size, widths, num, other):
    """Splits of a group of `size` that occur together with another's, without common atoms."""
    free = [
        tuple(used // taken for used, taken in zip(fill, other, strict=True))
        for fill in fills(widths, num)
        if all(used % taken == 0 for used, taken in zip(fill, other, strict=True))
    ]
    return splits(size, widths, num, among=tuple(free))


# --- atoms of two grids ---------------------------------------------------------------------------


class NotNestedError(ValueError):
    """Boundaries of two grids over the same ranks do not divide each other."""


def refine(
    *chains: Sequence[int],
) -> tuple[tuple[int, ...], tuple[tuple[tuple[int, ...], ...], ...]]:
    """Atoms of the common refinement of divisor chains, and each chain's groups of atoms.

    A chain lists the boundaries of one grid over the same ranks, innermost first, for example
    (tp, tp·cp, tp·cp·dp) and (etp, etp·ep, tp·cp·dp). Returns the atoms' degrees, innermost
    first, and per chain one tuple of atom indices per block: block k lies between boundaries
    k - 1 and k. Equal boundaries keep an atom of degree 1, so that the number of atoms,
    Σ(len(chain) - 1) + 1, depends on the chains' lengths only.
    """
    total = chains[0][-1]
    if any(chain[-1] != total for chain in chains):
        raise ValueError(f"chains must end at the same number of ranks, not {chains}")
    inner = sorted(
        (boundary, number, k)
        for number, chain in enumerate(chains)
        for k, boundary in enumerate(chain[:-1])
    )
    boundaries = [1, *(boundary for boundary, _, _ in inner), total]
    for low, high in pairwise(boundaries):
        if high % low:
            raise NotNestedError(f"group boundaries {low} and {high} do not divide each other")
    atoms = tuple(high // low for low, high in pairwise(boundaries))
    place = {(number, k): index + 1 for index, (_, number, k) in enumerate(inner)}
    groups = []
    for number, chain in enumerate(chains):
        ends = [0, *(place[number, k] for k in range(len(chain) - 1)), len(atoms)]
        groups.append(tuple(tuple(range(a, b)) for a, b in pairwise(ends)))
    return atoms, tuple(groups)


# --- random instances -----------------------------------------------------------------------------


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


def random_problem(kind: str, seed: int, max_layouts: int = 8) -> SyntheticProblem:
    """A small instance: 2-4 tiers, up to `max_layouts` layouts, all groups priced at random."""
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
    layouts: dict[tuple[int, ...], SyntheticLayout] = {}
    for _ in range(60):
        made = _groups_of(kind, rng, num)
        if made is None or made[0] in layouts:
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
        layouts[degrees] = SyntheticLayout(degrees, groups, compute, budget, orders)
        if len(layouts) == max_layouts:
            break
    return SyntheticProblem(widths, tuple(layouts.values()), tuple(alpha), tuple(beta))


# --- the oracle -----------------------------------------------------------------------------------


def scalar_step(problem, layout, placement):
    """The step of one row, in plain Python."""
    total, hidden = layout.compute, -layout.budget
    link = [0.0] * len(problem.widths)
    for group in layout.groups.values():
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


def brute_force(problem, allowed=lambda layout, placement: True):
    """Every allowed row, costed: list of (step, layout index, placement)."""
    return [
        (scalar_step(problem, layout, placement), i, placement)
        for i, layout in enumerate(problem.layouts)
        for placement in all_placements(layout.degrees, problem.widths)
        if allowed(layout, placement)
    ]
