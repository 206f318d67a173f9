"""A scenario planned or a given layout evaluated: search, proof and assessment, as a Plan."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np

from planner import bars
from planner.assess import Assessment, assess, economics
from planner.cost.context import CostContext
from planner.cost.layers import model_layers_by_stage
from planner.errors import IllegalLayoutError, InputError
from planner.layout import Layout, LayoutTable, grids_nest
from planner.planfile import Plan, RunnerUp, SearchReport, Status, Swap
from planner.problem.scenario import Scenario, Search, inputs_sha256, scenario_to_document
from planner.ranks import framework_order, order_atoms, order_splits
from planner.search import relax
from planner.search.certify import certify
from planner.search.enumerate import (
    MEMORY_RULE,
    NESTED_RULE,
    SEARCH_RULE,
    layouts,
    usual_kinds,
    with_cp_kinds,
)
from planner.search.given import given_layout, parse_layout
from planner.search.optimize import best_placement, search
from planner.search.placement import SideConstraints, rank_order
from planner.search.problem import LayoutProblem, any_kind_bounds, grid_of, splits_of
from planner.search.protocol import Row, SearchProblem, SearchResult
from planner.search.robust import Scaled
from planner.search.room import accepted
from planner.search.rules import rule_sentences, rules_of
from planner.search.swaps import swap_costs

PLACEMENT_RULE = "placement"
SENTENCES = {
    PLACEMENT_RULE: "its groups do not nest in evenly filled domains, in any allowed rank order",
    SEARCH_RULE: "the scenario's search: restricts it away",
    NESTED_RULE: "its expert groups cut across its tensor, context or data groups",
    MEMORY_RULE: "it does not fit in memory",
}


def plan(scenario: Scenario, top_k: int = 5, time_limit_seconds: float | None = None) -> Plan:
    """The layout and placement of least predicted step time, with its proof and runners-up.

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
    started, cpu = time.perf_counter(), time.process_time()
    ctx = CostContext.of(scenario)
    usual = scenario.search
    if time_limit_seconds is None:
        usual = usual_kinds(ctx, usual)
    table, excluded = layouts(ctx, usual)
    fitting = table.take(accepted(ctx, scenario.search, table)) if len(table) else table
    excluded[MEMORY_RULE] += len(table) - len(fitting)
    plain = LayoutProblem(ctx, fitting)
    result = _searched(plain, scenario, top_k, time_limit_seconds) if len(fitting) else None
    if usual is not scenario.search and result is not None:
        others = _other_kinds(ctx, scenario.search, fitting, result.threshold_seconds)
        if len(others):
            # the layouts left unopened are no better than those found
            opened = fitting.take(np.array(result.opened_shapes, dtype=np.int64))
            plain, fitting = LayoutProblem(ctx, opened.joined(others)), fitting.joined(others)
            before = result.counts.placements
            result = _searched(plain, scenario, top_k, time_limit_seconds)
            counts = replace(result.counts, placements=result.counts.placements + before)
            result = replace(result, counts=counts)
    if result is not None and result.status == "infeasible":
        excluded[PLACEMENT_RULE] += len(fitting)
    spent = SearchReport(
        shapes=len(fitting),
        placements=result.counts.placements if result else 0,
        opened=result.counts.opened if result else 0,
        seconds=time.perf_counter() - started,
        cpu_seconds=time.process_time() - cpu,
        excluded={rule: count for rule, count in excluded.items() if count},
        rule_texts={
            **rule_sentences(rules_of(ctx.software, ctx.model.moe is not None)),
            **SENTENCES,
        },
    )
    base = _base(scenario, result.status if result else "infeasible", spent)
    if result is None or result.best is None:
        bound = result.bound_seconds if result else None
        return replace(_nothing(ctx, scenario, base, table), bound_seconds=bound)
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


def _other_kinds(
    ctx: CostContext, search: Search, table: LayoutTable, threshold_seconds: float
) -> LayoutTable:
    """Layouts with other kinds of context parallelism than the table's that may be below a step.

    Where no bound of the table's own layouts is, whatever their kind, there are none: other kinds
    have the memory and no more legal degrees.
    """
    cut = table.take(table.cp > 1)
    factor = bars.step_ends(bars.shipped(), ctx, cut)[1] if search.robust and len(cut) else 1.0
    near = cut.take(any_kind_bounds(ctx, cut) * factor < threshold_seconds)
    return with_cp_kinds(ctx, search, near, ctx.software.cp_kinds[1:])


def _searched(
    plain: LayoutProblem, scenario: Scenario, top_k: int, time_limit_seconds: float | None
) -> SearchResult:
    """The search's answer, checked without its solver; robust, of the bars' upper ends."""
    problem: SearchProblem = plain
    if scenario.search.robust:
        problem = Scaled(plain, bars.step_ends(bars.shipped(), plain.ctx, plain.table)[1])
    tie_fraction = scenario.search.tie_fraction
    constraints = SideConstraints(orders=scenario.search.orders)
    result = search(
        problem,
        top_k=top_k,
        tie_fraction=tie_fraction,
        time_limit_seconds=time_limit_seconds,
        constraints=constraints,
    )
    certificate = certify(problem, result, tie_fraction=tie_fraction, constraints=constraints)
    if not certificate.valid:
        raise AssertionError("; ".join(certificate.failures))
    return result


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
    return tuple(found)


def _nothing(ctx: CostContext, scenario: Scenario, base: Plan, table: LayoutTable) -> Plan:
    if not len(table):
        table, _ = layouts(ctx, usual_kinds(ctx, scenario.search), prune=False)
    return replace(
        base,
        nearest_miss=relax.nearest_miss(ctx, scenario.search, table),
        relaxations=tuple(relax.relaxations(scenario)) if base.status == "infeasible" else (),
    )
