"""Whether the parts of a plan file say the same: what was edited by hand is refused, not followed.

Figures are not costed anew, which another version may do otherwise: only what one part says of
another is held against it.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isclose, prod
from typing import get_args

from planner.cost.memory import VERDICTS
from planner.errors import InputError
from planner.layouts.rank_orders import order_degrees
from planner.planning.plan import MemoryReport, Plan
from planner.problem.cluster import Cluster
from planner.problem.objective import Objective
from planner.problem.scenario import Scenario

RELATIVE = 1e-6
"""Slack of sums that were rounded."""


def require_agreement(plan: Plan, scenario: Scenario, path: str) -> None:
    """Refuse a plan whose parts contradict each other.

    Raises:
        InputError: with the key that does not agree, and with what.
    """
    for key, wrong in _contradictions(plan, scenario):
        raise InputError(
            f"the plan's parts do not agree: {wrong}", path=path, key=key,
            allowed="a plan file that was not edited",
        )  # fmt: skip


def _contradictions(plan: Plan, scenario: Scenario) -> Iterator[tuple[str, str]]:
    for key in ("objective_seconds", "step_seconds"):
        value = getattr(plan, key)
        if value is not None and value <= 0:
            yield key, "it is not above 0"
    if plan.objective_seconds is not None and plan.bound_seconds is not None:
        gap = 1.0 - plan.bound_seconds / plan.objective_seconds
        if plan.gap_fraction is None or abs(gap - plan.gap_fraction) > RELATIVE:
            yield "gap_fraction", "it is not that of objective_seconds and bound_seconds"
    if plan.time is not None and not _same(sum(plan.time.values()), plan.step_seconds):
        yield "time", "the terms of time do not sum to step_seconds"
    each, number = plan.tokens_per_second_per_accelerator, scenario.num_accelerators
    if each is not None and not _same(each * number, plan.tokens_per_second):
        yield "tokens_per_second", "it is not that of one accelerator times their number"
    if plan.memory is not None:
        yield from _memory(plan.memory)
    yield from _placement(plan, scenario)
    yield from _nodes(plan, scenario)
    yield from _choice(plan, scenario)


def _same(one: float, other: float | None) -> bool:
    return other is not None and isclose(one, other, rel_tol=RELATIVE)


def _memory(memory: MemoryReport) -> Iterator[tuple[str, str]]:
    if memory.verdict not in VERDICTS:
        yield "memory.verdict", f"it is none of {', '.join(VERDICTS)}"
    if memory.capacity_bytes <= 0:
        yield "memory.capacity_bytes", "it is not above 0"
    if not _same(sum(memory.terms.values()), memory.peak_bytes):
        yield "memory.peak_bytes", "the terms of memory do not sum to it"
    peaks = [stage.get("peak_bytes", 0.0) for stage in memory.by_stage]
    if not 0 <= memory.worst_stage < len(peaks):
        yield "memory.worst_stage", "there is no such stage"
    elif not _same(peaks[memory.worst_stage], memory.peak_bytes):
        yield "memory.worst_stage", "its peak is not that of the plan"


def _placement(plan: Plan, scenario: Scenario) -> Iterator[tuple[str, str]]:
    if plan.fill is None or plan.placement is None:
        return
    tiers = scenario.topology.tier_names
    if set(plan.fill) != set(tiers) or any(set(p) != set(tiers) for p in plan.placement.values()):
        yield "placement", f"the tiers are not {', '.join(tiers)}"
        return
    if prod(plan.fill.values()) != scenario.num_accelerators:
        yield "fill", "it does not multiply to the accelerators"
    for tier in tiers:
        if prod(factors[tier] for factors in plan.placement.values()) != plan.fill[tier]:
            yield f"placement.*.{tier}", "the factors do not multiply to the tier's fill"
    degrees = order_degrees(plan.rank_order or ())
    for atom, factors in plan.placement.items():
        if prod(factors.values()) != degrees.get(atom, 1):
            yield f"placement.{atom}", "the factors do not multiply to the degree"


def _nodes(plan: Plan, scenario: Scenario) -> Iterator[tuple[str, str]]:
    if plan.nodes is None or scenario.inventory is None:
        return
    cluster = Cluster.of(scenario.inventory, scenario.topology)
    used = {name for name, _ in plan.nodes.ranks}
    if plan.nodes.spares != tuple(name for name in cluster.nodes if name not in used):
        yield "nodes.spares", "they are not the usable nodes without ranks"
    if dict(plan.nodes.left_out) != cluster.left_out:
        yield "nodes.left_out", "they are not the inventory's nodes that are not usable"


def _choice(plan: Plan, scenario: Scenario) -> Iterator[tuple[str, str]]:
    choice = plan.choice
    if choice is None:
        return
    if choice.objective not in get_args(Objective):
        yield "choice.objective", f"it is none of {', '.join(get_args(Objective))}"
    chosen = [option for option in choice.options if option.status == "chosen"]
    if plan.layout is None or not choice.options:
        if chosen:
            yield "choice.options", "one is chosen, and there is no layout"
        return
    ours = (scenario.num_accelerators, scenario.training.precision)
    if [(option.num_accelerators, option.precision) for option in chosen] != [ours]:
        yield "choice.options", "the chosen one is not that of the inputs"
    elif choice.objective == "fewest_for_deadline":
        if choice.value != float(scenario.num_accelerators):
            yield "choice.value", "it is not the number of accelerators"
    elif not _same(choice.value or 0.0, chosen[0].value):
        yield "choice.value", "it is not that of the chosen option"
