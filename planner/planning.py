"""A scenario planned or a given layout evaluated: search, proof and assessment, as a Plan."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np

from planner import bars
from planner.assess import Assessment, assess, economics, group_losses
from planner.cost.context import CostContext
from planner.cost.layers import model_layers_by_stage
from planner.errors import IllegalLayoutError, InputError
from planner.grids import grids_nest
from planner.layout import Layout, LayoutTable
from planner.planfile import Plan, RunnerUp, SearchReport, Status, Swap
from planner.problem.scenario import Scenario, inputs_sha256, scenario_to_document
from planner.ranks import framework_order, order_atoms, order_splits
from planner.search import relax
from planner.search.enumerate import (
    MEMORY_RULE,
    NESTED_RULE,
    SEARCH_RULE,
    layouts,
)
from planner.search.families import BOUND_RULE, Answer, search_families
from planner.search.given import given_layout, parse_layout
from planner.search.model_rules import rules_for
from planner.search.optimize import best_placement
from planner.search.placement import SideConstraints, rank_order
from planner.search.problem import LayoutProblem, grid_of, splits_of
from planner.search.protocol import Row, Watch, unwatched
from planner.search.reasons import reasons as reasons_of
from planner.search.restrictions import EXPERTS_NEED_MOE, WITHOUT_EXPERTS
from planner.search.rules import rule_sentences
from planner.search.swaps import swap_costs

PLACEMENT_RULE = "placement"
SENTENCES = {
    EXPERTS_NEED_MOE: WITHOUT_EXPERTS,
    PLACEMENT_RULE: "its groups do not nest in evenly filled domains, in any allowed rank order",
    SEARCH_RULE: "the scenario's search: restricts it away",
    NESTED_RULE: "its expert groups cut across its tensor, context or data groups",
    MEMORY_RULE: "it does not fit in memory",
    BOUND_RULE: "even with nothing run again it cannot be among the best",
}


def plan(
    scenario: Scenario,
    top_k: int = 5,
    time_limit_seconds: float | None = None,
    watch: Watch = unwatched,
    reasons: bool = True,
) -> Plan:
    """The layout and placement of least predicted step time, with its proof and runners-up.

    Where nothing fits, why and what would change it, unless `reasons` is false.

    At the time limit, or once `watch` says to stop, the best so far: status feasible with its gap,
    or unknown.

    Raises:
        InputError: top_k or the time limit is out of range.
        PlannerError: the scenario cannot be costed.
    """
    if top_k < 1:
        raise InputError(f"{top_k} is out of range", key="top_k", allowed="an integer >= 1")
    if time_limit_seconds is not None and not 0 <= time_limit_seconds < inf:
        raise InputError(
            f"{time_limit_seconds} is out of range",
            key="time_limit_seconds",
            allowed="a finite number >= 0",
        )
    started = time.perf_counter(), time.process_time()
    ctx = CostContext.of(scenario)
    found = search_families(ctx, scenario.search, top_k, time_limit_seconds, watch)
    return planned(ctx, scenario, found, started, reasons)


def planned(
    ctx: CostContext,
    scenario: Scenario,
    found: Answer,
    started: tuple[float, float],
    reasons: bool = True,
) -> Plan:
    """A search's answer as a plan; `started` in seconds of wall and processor time."""
    plain, result, excluded = found.problem, found.result, found.excluded
    if result is not None and result.status == "infeasible":
        excluded[PLACEMENT_RULE] += plain.num_shapes
    spent = SearchReport(
        shapes=plain.num_shapes,
        placements=result.counts.placements if result else 0,
        opened=result.counts.opened if result else 0,
        seconds=time.perf_counter() - started[0],
        cpu_seconds=time.process_time() - started[1],
        excluded={rule: count for rule, count in excluded.items() if count},
        rule_texts={
            **rule_sentences(rules_for(ctx)),
            **SENTENCES,
        },
    )
    base = _base(scenario, result.status if result else "infeasible", spent)
    if result is None or result.best is None:
        bound = result.bound_seconds if result else None
        base = replace(base, bound_seconds=bound)
        return _nothing(ctx, scenario, base, found.legal) if reasons else base
    own = best_placement(plain, result.best.shape)
    assert own is not None
    layout = plain.table.row(result.best.shape)
    best = _filled(ctx, scenario, base, layout, result.best, own[1])
    return replace(
        best,
        objective_seconds=result.objective_seconds,
        bound_seconds=result.bound_seconds,
        gap_fraction=result.gap_fraction,
        runners_up=tuple(_runner_up(ctx, plain, row, best) for row in result.runners_up),
    )


def evaluate(scenario: Scenario, layout: str | Mapping[str, Any]) -> Plan:
    """One given layout in its best placement: time, memory, MFU, walls.

    Status: feasible, or infeasible where it does not fit in memory. Layouts whose groups do not
    nest in the domains are costed in the software's own rank order, from the rank table.

    Raises:
        IllegalLayoutError: a rule is broken.
        InputError: a key or value is wrong.
    """
    (found,) = evaluate_many(
        scenario, [parse_layout(layout) if isinstance(layout, str) else layout]
    )
    if isinstance(found, IllegalLayoutError):
        raise found
    return found


def evaluate_many(
    scenario: Scenario, rows: Iterable[Mapping[str, Any]]
) -> list[Plan | IllegalLayoutError]:
    """Each given layout evaluated, or the rule it breaks."""
    ctx = CostContext.of(scenario)
    base = _base(scenario, "feasible", None)
    results: list[Plan | IllegalLayoutError] = []
    for row in rows:
        try:
            results.append(_evaluated(ctx, scenario, base, given_layout(ctx, row)))
        except IllegalLayoutError as error:
            results.append(error)
    return results


def _base(scenario: Scenario, status: Status, spent: SearchReport | None) -> Plan:
    document = scenario_to_document(scenario)
    return Plan(inputs=document, inputs_sha256=inputs_sha256(document), status=status, search=spent)


def _evaluated(ctx: CostContext, scenario: Scenario, base: Plan, layout: Layout) -> Plan:
    problem = LayoutProblem(ctx, LayoutTable.from_layouts([layout]))
    constraints = SideConstraints(orders=scenario.search.orders)
    found = None
    if grids_nest(layout):
        found = best_placement(problem, 0, scenario.search.tie_fraction, constraints)
    if found is not None:
        plan_ = _filled(ctx, scenario, base, layout, *found)
    else:
        plan_ = _in_rank_order(ctx, scenario, base, layout)
    fits = plan_.memory is not None and plan_.memory.verdict != "no"
    return plan_ if fits else replace(plan_, status="infeasible")


def _in_rank_order(ctx: CostContext, scenario: Scenario, base: Plan, layout: Layout) -> Plan:
    order_name, axes = next(iter(ctx.software.orders.items()))
    order = framework_order(layout, axes)
    splits = order_splits(layout, axes, ctx.topology.widths)
    plan_ = _assessed(scenario, base, layout, assess(ctx, layout, splits), ctx)
    return replace(
        plan_,
        rank_order=tuple(pair for pair in order if pair[1] > 1),
        rank_order_name=order_name,
        warnings=(
            "its groups do not nest in the domains: costed in the software's own rank order "
            f"{order_name}, every group as its worst one",
        ),
    )


def _filled(
    ctx: CostContext, scenario: Scenario, base: Plan, layout: Layout, row: Row, least: float
) -> Plan:
    """The plan of a layout in a placement; `least` is its step in its best placement."""
    tiers = ctx.topology.tier_names
    placement = np.array(row.placement, dtype=np.int64)
    grid = grid_of(ctx.model)
    atoms = None if row.order is None else [grid.atoms[atom] for atom in row.order]
    orders = ctx.software.orders.items()
    name = next((name for name, axes in orders if order_atoms(axes, grid) == atoms), None)
    found = assess(ctx, layout, _splits(row))
    plan_ = _assessed(scenario, base, layout, found, ctx)
    return replace(
        plan_,
        custom_order_gain_fraction=None if name is None else found.step_seconds / least - 1.0,
        fill=dict(zip(tiers, row.fill, strict=True)),
        placement={
            atom: dict(zip(tiers, factors, strict=True))
            for atom, factors in zip(grid.atoms, row.placement, strict=True)
        },
        rank_order=_rank_order(ctx, row),
        rank_order_name=name,
        swaps=tuple(
            Swap(pair, seconds)
            for pair, seconds in swap_costs(ctx, layout, placement, least).items()
        ),
        warnings=_warnings(ctx, plan_),
    )


def _assessed(
    scenario: Scenario, base: Plan, layout: Layout, found: Assessment, ctx: CostContext
) -> Plan:
    split = model_layers_by_stage(ctx.model, layout, ctx.reserved)
    document = {**layout.to_document(), "stage_layers": split}
    return replace(
        base,
        step_seconds=found.step_seconds,
        step_seconds_low=found.step_bar[0],
        step_seconds_high=found.step_bar[1],
        bar_coverage=float(bars.shipped().coverage),
        bar_kind=found.bar_kind,
        mfu=found.mfu,
        mfu_denominator={
            "accelerator": ctx.accelerator.name,
            "precision": ctx.training.peak_key,
            "peak_flops": ctx.peak_flops,
        },
        mfu_bf16=found.mfu_bf16,
        hfu=found.hfu,
        layout=document,
        time=found.time,
        memory=found.memory,
        groups=found.groups,
        **economics(scenario, found.step_seconds),
    )


def _runner_up(ctx: CostContext, problem: LayoutProblem, row: Row, best: Plan) -> RunnerUp:
    layout = problem.table.row(row.shape)
    found = assess(ctx, layout, _splits(row))
    assert best.time is not None and best.step_seconds is not None
    return RunnerUp(
        layout=layout.to_document(),
        rank_order=_rank_order(ctx, row),
        step_seconds=found.step_seconds,
        loss_fraction=found.step_seconds / best.step_seconds - 1.0,
        terms={k: v - best.time[k] for k, v in found.time.items()},
        step_seconds_high=found.step_bar[1],
        groups=group_losses(best.groups, found.groups),
    )


def _splits(row: Row) -> dict[str, list[float]]:
    splits = splits_of(np.array(row.placement, dtype=np.int64))
    return {name: [float(members) for members in split] for name, split in splits.items()}


def _rank_order(ctx: CostContext, row: Row) -> tuple[tuple[str, int], ...]:
    atoms = grid_of(ctx.model).atoms
    pairs = rank_order(np.array(row.placement, dtype=np.int64), row.order)
    return tuple((atoms[atom], factor) for atom, factor in pairs)


def _warnings(ctx: CostContext, plan_: Plan) -> tuple[str, ...]:
    found = []
    inner, *outer = ctx.topology.tier_names
    ep = plan_.groups.get("ep")
    if ep is not None and any(ep.split[tier] > 1 for tier in outer):
        most, width = round(ep.split[inner]), ctx.topology.widths[0]
        remedy = (
            f"search: {{ep: [...]}} with at most {width} keeps them inside"
            if ep.members > width
            else "another rank order, or a smaller ep, can keep them inside"
        )
        found.append(
            f"tokens to experts leave the {inner} domain ({most} of {ep.members} ranks are in "
            f"one): legal, but exchanges then wait for the network, and some stacks stall there; "
            f"{remedy}"
        )
    if plan_.memory is not None and plan_.memory.verdict == "fragile":
        found.append(
            "memory is fragile: the prediction is close under the capacity, and fragmentation can "
            "exceed it; first try expandable allocator segments"
        )
    if ctx.model.mamba is not None:
        found.append(
            "state-space layers: no complete published run stands behind their times, and the bar "
            "is that of models without them"
        )
    return tuple(found)


def _nothing(ctx: CostContext, scenario: Scenario, base: Plan, table: LayoutTable) -> Plan:
    if not len(table):
        table, _ = layouts(ctx, scenario.search, prune=False)
    return replace(
        base,
        nearest_miss=relax.nearest_miss(ctx, scenario.search, table),
        relaxations=relax.relaxations(scenario) if base.status == "infeasible" else (),
        reasons=reasons_of(scenario) if base.status == "infeasible" else (),
    )
