"""Why a plan is as it is: each group's place and walls, what the step waits for, what would help.

Groups are ordered by intensity and by depth, how far out they live; where the two orders differ,
the answer says what swapping the places would cost. The actions are `planner.advise.actions`, the
ledger of the step's seconds `planner.advise.ledger`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from math import inf, log, prod
from typing import Annotated, Any

from pydantic import SerializerFunctionWrapHandler, WrapSerializer

from planner.advise.actions import LABELS, Action, Label, actions
from planner.advise.baseline import Baseline
from planner.advise.ledger import Regime, regime
from planner.cost.chunks import chunk_passes, pipeline_of, shortened
from planner.layouts.grids import DENSE_GRID, EXPERT_GRID
from planner.layouts.timeline import Timeline, play
from planner.planning.document import document
from planner.planning.groups import busiest_tier
from planner.planning.plan import GroupReport, Plan
from planner.planning.solve import chosen_scenario, evaluate, plan
from planner.problem.scenario import Scenario, ScenarioLike, load_scenario
from planner.search.interface import Watch, unwatched
from planner.search.space.given import GivenLayout


@dataclass(frozen=True, slots=True)
class GroupPlace:
    """One communicating group: where it lives, how near its walls are, what other places cost.

    tier: the one that it keeps busy longest; spans: all that it crosses.
    intensity, exposed_intensity, tier_intensity: FLOPs per byte of all that it moves, of what is
    exposed (None where nothing is), and of what crosses `tier`. Ranks among the groups count from
    1, the lowest.
    ridge: the dense peak over the bandwidth of `tier`; ridge_ratio: tier_intensity over it;
    ridge_ratios: intensity over the ridge of every tier, if all its traffic were there.
    walls: seconds of a step, compute at the dense peak, bandwidth of the busiest tier, latency;
    wall: the longest.
    exchanges: seconds that the step gains in length when this group and the other swap places, None
    where they share all their tiers.
    """

    name: str
    members: int
    tier: str
    spans: tuple[str, ...]
    intensity: float | None
    intensity_rank: int | None
    exposed_intensity: float | None
    exposed_rank: int
    tier_intensity: float | None
    ridge: float
    ridge_ratio: float | None
    ridge_ratios: Mapping[str, float | None]
    walls: Mapping[str, float]
    wall: str
    busy_seconds: float
    exposed_seconds: float
    busbw: float | None
    exchanges: Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class Inversion:
    """Two groups that live in the other order than their intensities, and what a swap costs.

    exchange_seconds: what a step gains in length; None where there is no such swap.
    """

    inner: str
    outer: str
    exchange_seconds: float | None


def _by_name(groups: object, listed: SerializerFunctionWrapHandler) -> dict[str, Any]:
    return {group["name"]: group for group in listed(groups)}


def _by_label(actions: object, listed: SerializerFunctionWrapHandler) -> dict[str, Any]:
    written = listed(actions)
    return {label: [a for a in written if a["label"] == label] for label in LABELS}


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a plan is as it is and what would make it faster; without a layout, only the plan.

    Orders name groups, smallest intensity first and innermost first.
    """

    plan: Plan
    groups: Annotated[tuple[GroupPlace, ...], WrapSerializer(_by_name)] = ()
    intensity_order: tuple[str, ...] = ()
    exposed_order: tuple[str, ...] = ()
    place_order: tuple[str, ...] = ()
    inversions: tuple[Inversion, ...] = ()
    regime: Regime | None = None
    actions: Annotated[tuple[Action, ...], WrapSerializer(_by_label)] = ()

    def labelled(self, label: Label) -> tuple[Action, ...]:
        """The actions under one label, greatest gain first, those that cannot be made last."""
        return tuple(action for action in self.actions if action.label == label)

    def to_document(self) -> dict[str, Any]:
        """The explanation as one JSON document."""
        return document(self)


def explain(
    scenario: ScenarioLike, layout: GivenLayout | None = None, watch: Watch = unwatched
) -> Explanation:
    """The best plan of a scenario explained, or a given layout in its best placement.

    watch: follows the search, as in `plan`.

    Raises:
        IllegalLayoutError, InputError: as `evaluate`.
    """
    scenario = load_scenario(scenario)
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
    tier = busiest_tier(group)
    assert tier is not None, "a group of several members crosses a tier"
    crossed = group.tiers[tier]
    intensity = group.flops / crossed["bytes"] if crossed["bytes"] > 0 else None
    return GroupPlace(
        name=name,
        members=group.members,
        tier=tier,
        spans=tuple(group.tiers),
        intensity=group.intensity,
        intensity_rank=None if group.intensity is None else by_intensity.index(name) + 1,
        exposed_intensity=group.exposed_intensity,
        exposed_rank=by_exposed.index(name) + 1,
        tier_intensity=intensity,
        ridge=crossed["ridge"],
        ridge_ratio=None if intensity is None else intensity / crossed["ridge"],
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
        exchanges=_swap_costs(base.plan, name),
    )


def depth(group: GroupReport) -> float:
    """How far out a group lives: the mean tier, 0 the innermost, weighted by log(members).

    Σ_t t · log(members_t) / Σ_t log(members_t).
    """
    factors = list(group.split.values())
    return sum(t * log(f) for t, f in enumerate(factors)) / sum(log(f) for f in factors)


def own_atom(plan: Plan, group: str) -> str:
    """The atom that moves when a group does: of several, the outermost that has ranks."""
    places = plan.placement or {}
    grid = EXPERT_GRID if len(places) == len(EXPERT_GRID.atoms) else DENSE_GRID
    atoms = grid.groups[group]
    return next((a for a in reversed(atoms) if prod(places.get(a, {}).values()) > 1), atoms[-1])


def _swap_costs(plan: Plan, name: str) -> dict[str, float | None]:
    """Seconds that swapping places with each other group adds to the step.

    Groups that move with this one, because the same atom places both, are left out.
    """
    costs = {frozenset(swap.atoms): swap.seconds for swap in plan.swaps}
    own = own_atom(plan, name)
    pairs = {other: frozenset((own, own_atom(plan, other))) for other in plan.groups}
    return {other: costs[pair] for other, pair in pairs.items() if pair in costs}


def _inversions(plan: Plan) -> tuple[Inversion, ...]:
    """Pairs of which the one with the greater intensity lives further in."""
    inversions = []
    for pair in combinations(plan.groups, 2):
        inner, outer = sorted(pair, key=lambda name: depth(plan.groups[name]))
        if depth(plan.groups[inner]) == depth(plan.groups[outer]):
            continue
        if _or_inf(plan.groups[inner].intensity) > _or_inf(plan.groups[outer].intensity):
            inversions.append(Inversion(inner, outer, _swap_costs(plan, inner).get(outer)))
    return tuple(inversions)


# ---------------------------------------------------------------- the pipeline, played out

ROUNDS = 6
"""Rounds of micro-batches that are played: both ends of the pipeline, and steady state between."""


def timeline(scenario: ScenarioLike, plan: Plan) -> Timeline:
    """When every rank of a plan's pipeline runs what, over a few micro-batches.

    Exposed communication is part of the passes that wait for it.

    Raises:
        InputError: the plan holds no layout.
    """
    scenario = load_scenario(scenario)
    base = Baseline.of(scenario, plan)
    passes = chunk_passes(base.ctx, base.layout, base.splits)
    pipeline = pipeline_of(base.layout, base.layout.num_microbatches)
    return play(shortened(pipeline, ROUNDS), passes)
