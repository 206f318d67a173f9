"""A plan explained: each group's place and walls, what the step waits for, what would help."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from math import inf, log, prod

from planner.advise.actions import actions
from planner.advise.advice import Explanation, GroupPlace, Inversion
from planner.advise.baseline import Baseline
from planner.advise.ledger import regime
from planner.layouts.grids import DENSE_GRID, EXPERT_GRID
from planner.planning.plan import GroupReport, Plan
from planner.planning.solve import GivenLayout, chosen_scenario, evaluate, plan
from planner.problem.scenario import Scenario
from planner.search.protocol import Watch, unwatched

Groups = Mapping[str, GroupReport]


def explain(
    scenario: Scenario, layout: GivenLayout | None = None, watch: Watch = unwatched
) -> Explanation:
    """Why each group of the best plan (or of a layout) lives where it does, what the step waits
    for, and what would make it faster, each change tried. `watch` follows the search, as in `plan`.

    Raises:
        IllegalLayoutError, InputError: as `evaluate`.
    """
    explained = plan(scenario, watch=watch) if layout is None else evaluate(scenario, layout)
    return explain_plan(chosen_scenario(scenario, explained), explained)


def explain_plan(scenario: Scenario, plan: Plan) -> Explanation:
    """The explanation of a plan of this scenario.

    A plan without a layout explains itself: it says what would make one fit.
    """
    if plan.layout is None:
        return Explanation(plan)
    base = Baseline.of(scenario, plan)
    groups = plan.groups
    by_intensity = sorted(groups, key=lambda name: _or_inf(groups[name].intensity))
    by_exposed = sorted(groups, key=lambda name: _or_inf(groups[name].exposed_intensity))
    return Explanation(
        plan=plan,
        groups=tuple(_place(base, name, by_intensity, by_exposed) for name in groups),
        intensity_order=tuple(by_intensity),
        exposed_order=tuple(by_exposed),
        place_order=tuple(sorted(groups, key=lambda name: depth(groups[name]))),
        inversions=_inversions(plan),
        regime=regime(base),
        actions=actions(base),
    )


def _or_inf(value: float | None) -> float:
    return inf if value is None else value


def _place(base: Baseline, name: str, by_intensity: list[str], by_exposed: list[str]) -> GroupPlace:
    group = base.plan.groups[name]
    tier = max(group.tiers, key=lambda t: group.tiers[t]["busy_seconds"])
    crossed = group.tiers[tier]
    own = group.flops / crossed["bytes"] if crossed["bytes"] > 0 else None
    return GroupPlace(
        name=name,
        members=group.members,
        tier=tier,
        spans=tuple(group.tiers),
        intensity=group.intensity,
        intensity_rank=None if group.intensity is None else by_intensity.index(name) + 1,
        exposed_intensity=group.exposed_intensity,
        exposed_rank=by_exposed.index(name) + 1,
        tier_intensity=own,
        ridge=crossed["ridge"],
        ridge_ratio=None if own is None else own / crossed["ridge"],
        ridge_ratios={
            other.name: None
            if group.intensity is None
            else group.intensity * other.bytes_per_second / base.ctx.peak_flops
            for other in base.scenario.topology.tiers
        },
        walls={
            "compute": group.flops / base.ctx.peak_flops,
            "bandwidth": max(cost["busy_seconds"] for cost in group.tiers.values()),
            "latency": group.latency_seconds,
        },
        wall=group.wall,
        busy_seconds=group.busy_seconds,
        exposed_seconds=group.exposed_seconds,
        busbw=group.busbw,
        exchanges=_exchanges(base.plan, name),
    )


def depth(group: GroupReport) -> float:
    """How far out a group lives: the mean tier (0 the innermost) of its members' logarithm."""
    factors = list(group.split.values())
    return sum(t * log(f) for t, f in enumerate(factors)) / sum(log(f) for f in factors)


def own_atom(plan: Plan, group: str) -> str:
    """The atom that moves when a group does: of several, the outermost that has ranks."""
    places = plan.placement or {}
    grid = EXPERT_GRID if len(places) == len(EXPERT_GRID.atoms) else DENSE_GRID
    atoms = grid.groups[group]
    return next((a for a in reversed(atoms) if prod(places.get(a, {}).values()) > 1), atoms[-1])


def _exchanges(plan: Plan, name: str) -> dict[str, float | None]:
    """What each other group costs to change places with; groups that move with this one, because
    the same atom places both, are none to exchange with."""
    costs = {frozenset(swap.atoms): swap.seconds for swap in plan.swaps}
    own = own_atom(plan, name)
    pairs = {other: frozenset((own, own_atom(plan, other))) for other in plan.groups}
    return {other: costs[pair] for other, pair in pairs.items() if pair in costs}


def _inversions(plan: Plan) -> tuple[Inversion, ...]:
    """Pairs of which the one with the greater intensity lives further in."""
    found = []
    for pair in combinations(plan.groups, 2):
        inner, outer = sorted(pair, key=lambda name: depth(plan.groups[name]))
        if depth(plan.groups[inner]) == depth(plan.groups[outer]):
            continue
        if _or_inf(plan.groups[inner].intensity) > _or_inf(plan.groups[outer].intensity):
            cost = _exchanges(plan, inner).get(outer)
            found.append(Inversion(inner, outer, cost))
    return tuple(found)
