"""A scenario planned or a given layout evaluated: search, proof and assessment, as a Plan."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np

from planner.cost import prediction_intervals as bars
from planner.cost.context import CostContext
from planner.cost.layers import model_layers_by_stage
from planner.errors import IllegalLayoutError, InputError
from planner.layouts.grids import grids_nest
from planner.layouts.layout import Layout, LayoutTable
from planner.layouts.rank_orders import framework_order, order_atoms, order_splits
from planner.planning.assess import Assessment, Split, assess, economics, group_losses
from planner.planning.cautions import cautions
from planner.planning.choosing import choice_of_batch, choose, is_open, options
from planner.planning.finding import Found, find, of_batch
from planner.planning.plan import (
    Choice,
    DefaultSplit,
    MfuDenominator,
    Plan,
    RunnerUp,
    SearchReport,
    Status,
    Swap,
)
from planner.planning.seating import seat_framework, seat_plan
from planner.problem.scenario import (
    Scenario,
    inputs_sha256,
    scenario_from_document,
    scenario_to_document,
)
from planner.search.families import BOUND_RULE, Answer
from planner.search.infeasible import relax
from planner.search.infeasible.reasons import reasons as reasons_of
from planner.search.optimize import best_placement
from planner.search.placement import SideConstraints, rank_order
from planner.search.problem import LayoutProblem, grid_of, splits_of
from planner.search.protocol import Row, Watch, unwatched
from planner.search.rules.model import rules_for
from planner.search.rules.rules import rule_sentences
from planner.search.space.enumerate import MEMORY_RULE, NESTED_RULE, SEARCH_RULE, layouts
from planner.search.space.given import given_layout, parse_layout
from planner.search.space.restrictions import EXPERTS_NEED_MOE, WITHOUT_EXPERTS
from planner.search.space.room import accepted, searches_splits
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
    if is_open(scenario):
        return _plan_of_choice(scenario, top_k, time_limit_seconds, watch, reasons, started)
    best = _plan_of(find(scenario, top_k, time_limit_seconds, watch), started, reasons)
    least, most = scenario.training.batch_range
    return best if least == most else replace(best, choice=choice_of_batch(scenario, best))


def planned(
    ctx: CostContext,
    scenario: Scenario,
    found: Answer,
    started: tuple[float, float],
    reasons: bool = True,
) -> Plan:
    """A search's answer as a plan; `started` in seconds of wall and processor time."""
    return _plan_of(Found(scenario, ctx, found, None), started, reasons)


def _plan_of(found: Found, started: tuple[float, float], reasons: bool) -> Plan:
    """The plan of what was found; of a band, its scenario has the chosen batch."""
    scenario, ctx, plain, result = found.scenario, found.ctx, found.answer.problem, found.result
    excluded = Counter(found.answer.excluded)
    if result is not None and result.status == "infeasible":
        excluded[PLACEMENT_RULE] += plain.num_shapes
    report = SearchReport(
        shapes=plain.num_shapes,
        placements=result.counts.placements if result else 0,
        opened=result.counts.opened if result else 0,
        seconds=time.perf_counter() - started[0],
        cpu_seconds=time.process_time() - started[1],
        excluded={rule: count for rule, count in excluded.items() if count},
        rule_texts={**rule_sentences(rules_for(ctx)), **SENTENCES},
        any_split=searches_splits(ctx, scenario.search),
        best_splits=found.answer.best_splits,
    )
    status = result.status if result else "infeasible"
    if result is None or result.best is None:
        base = _base(scenario, status, report)
        bound = result.bound_seconds if result else None
        base = replace(base, bound_seconds=bound)
        return _nothing(ctx, scenario, base, found.answer.legal) if reasons else base
    own = best_placement(plain, result.best.shape)
    assert own is not None
    layout = plain.layout(result.best.shape)
    concrete = of_batch(scenario, layout)
    ctx = ctx if concrete is scenario else CostContext.of(concrete)
    best = _filled(ctx, concrete, _base(concrete, status, report), layout, result.best, own[1])
    assert result.objective_seconds is not None
    return replace(
        best,
        default_split=_default_split(ctx, concrete, layout),
        objective_seconds=result.objective_seconds / found.weight,
        bound_seconds=None if (b := result.bound_seconds) is None else b / found.weight,
        gap_fraction=result.gap_fraction,
        runners_up=tuple(_runner_up(scenario, ctx, plain, row, best) for row in result.runners_up),
    )


def _plan_of_choice(
    scenario: Scenario,
    top_k: int,
    time_limit_seconds: float | None,
    watch: Watch,
    reasons: bool,
    started: tuple[float, float],
) -> Plan:
    chosen = choose(scenario, top_k, time_limit_seconds, watch)
    found, best, choice = chosen.all, chosen.best, chosen.choice
    if best is None:
        one = _none_chosen(scenario, found, choice)
        none = _plan_of(one, started, reasons) if isinstance(one, Found) else one
        return replace(none, choice=choice, relaxations=relax.of_open(scenario, none.relaxations))
    plan_ = _plan_of(best, started, reasons)
    assert plan_.search is not None
    counts = [one.result.counts for one in found if one.result is not None]
    report = replace(
        plan_.search,
        shapes=sum(count.shapes for count in counts),
        opened=sum(count.opened for count in counts),
        placements=sum(count.placements for count in counts),
        seconds=time.perf_counter() - started[0],
        cpu_seconds=time.process_time() - started[1],
    )
    status: Status = "feasible" if choice.gap_fraction else plan_.status
    return replace(plan_, search=report, choice=choice, status=status)


def _none_chosen(scenario: Scenario, found: Sequence[Found], choice: Choice) -> Plan | Found:
    """Why no option was chosen: none fits, or those that fit keep no deadline, or time ran out."""
    unfinished = any(option.status == "unknown" for option in choice.options)
    if unfinished:
        return _base(scenario, "unknown", None)
    late = [one for one in found if one.least is not None]
    if choice.deadline_seconds is not None and (late or not found):
        deadline = f"{choice.deadline_seconds:.4g} s a step"
        fastest = min(late, key=lambda one: one.least or inf, default=None)
        text = f"no count keeps the deadline of {deadline}"
        if fastest is None:
            bounds = [o.bound for o in choice.options if o.status == "ruled out" and o.bound]
            text += f"; none can take less than {min(bounds):.4g} s" if bounds else ""
        else:
            text += (
                f"; the least found is {fastest.least:.4g} s, on "
                f"{fastest.scenario.num_accelerators:,} accelerators"
            )
        return replace(_base(scenario, "infeasible", None), warnings=(text,))
    most = list(options(scenario))[-1]
    return found[-1] if found else find(most, 1, None)


def chosen_scenario(scenario: Scenario, plan_: Plan) -> Scenario:
    """The scenario of a plan of another, which may have left count, precision or batch open."""
    if plan_.choice is None:
        return scenario
    return scenario_from_document(plan_.inputs, "the chosen scenario")


def _default_split(ctx: CostContext, scenario: Scenario, layout: Layout) -> DefaultSplit | None:
    """The layout in its default split and best placement, where it names another."""
    if layout.stage_layers is None:
        return None
    default = replace(layout, stage_layers=None)
    table = LayoutTable.from_layouts([default])
    constraints = SideConstraints(orders=scenario.search.orders)
    found = best_placement(LayoutProblem(ctx, table), 0, 0.0, constraints)
    return DefaultSplit(
        stage_layers=tuple(model_layers_by_stage(ctx.model, default, ctx.reserved)),
        step_seconds=None if found is None else found[1],
        fits=bool(accepted(ctx, scenario.search, table)[0]),
    )


GivenLayout = str | Mapping[str, Any] | Layout
"""A layout as text (`tp=8,pp=4`), as keys and values, or as the layout of a plan."""


def evaluate(scenario: Scenario, layout: GivenLayout) -> Plan:
    """One given layout in its best placement: time, memory, MFU, walls.

    Status: feasible, or infeasible where it does not fit in memory. Layouts whose groups do not
    nest in the domains are costed in the software's own rank order, from the rank table.

    Raises:
        IllegalLayoutError: a rule is broken.
        InputError: a key or value is wrong.
    """
    (found,) = evaluate_many(scenario, [layout])
    if isinstance(found, IllegalLayoutError):
        raise found
    return found


def evaluate_many(
    scenario: Scenario, rows: Iterable[GivenLayout]
) -> list[Plan | IllegalLayoutError]:
    """Each given layout evaluated, or the rule it breaks."""
    ctx = CostContext.of(scenario)
    base = _base(scenario, "feasible", None)
    results: list[Plan | IllegalLayoutError] = []
    for row in rows:
        try:
            results.append(_evaluated(ctx, scenario, base, given_layout(ctx, _keys_of(row))))
        except IllegalLayoutError as error:
            results.append(error)
    return results


def _keys_of(layout: GivenLayout) -> Mapping[str, Any]:
    if isinstance(layout, Layout):
        return layout.to_document()
    return parse_layout(layout) if isinstance(layout, str) else layout


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
    seated = None if ctx.cluster is None else seat_framework(ctx, layout)
    splits = seated.splits if seated else order_splits(layout, axes, ctx.topology.widths)
    plan_ = _assessed(scenario, base, layout, assess(ctx, layout, splits), ctx)
    return replace(
        plan_,
        nodes=None if seated is None else seated.nodes,
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
    gain = None if name is None else row.step_seconds / least - 1.0
    splits: Split = _splits(row)
    seated = None
    if ctx.cluster is not None:
        seated = seat_plan(ctx, layout, _rank_order(ctx, row), row.fill)
        splits = seated.splits if seated.nodes.shared else splits
    plan_ = _assessed(scenario, base, layout, assess(ctx, layout, splits), ctx)
    plan_ = replace(plan_, nodes=None if seated is None else seated.nodes)
    return replace(
        plan_,
        custom_order_gain_fraction=gain,
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
        warnings=cautions(ctx, plan_),
    )


def _assessed(
    scenario: Scenario, base: Plan, layout: Layout, found: Assessment, ctx: CostContext
) -> Plan:
    split = layout.stage_layers or model_layers_by_stage(ctx.model, layout, ctx.reserved)
    return replace(
        base,
        step_seconds=found.step_seconds,
        step_seconds_low=found.step_bar[0],
        step_seconds_high=found.step_bar[1],
        interval_coverage=float(bars.shipped().coverage),
        interval_kind=found.interval_kind,
        mfu=found.mfu,
        mfu_denominator=MfuDenominator(
            accelerator=ctx.accelerator.name,
            precision=ctx.training.peak_key,
            peak_flops=ctx.peak_flops,
        ),
        mfu_bf16=found.mfu_bf16,
        hfu=found.hfu,
        layout=replace(layout, stage_layers=tuple(split)),
        time=found.time,
        memory=found.memory,
        groups=found.groups,
        **economics(scenario, found.step_seconds),
    )


def _runner_up(
    scenario: Scenario, ctx: CostContext, problem: LayoutProblem, row: Row, best: Plan
) -> RunnerUp:
    """A runner-up beside the best; where the batch may differ, loss and terms are per token, as
    of the best plan's batch."""
    layout = problem.layout(row.shape)
    own, times = ctx, 1.0
    if problem.ctx is not ctx:
        own = CostContext.of(of_batch(scenario, layout))
        times = ctx.training.global_batch_size / own.training.global_batch_size
    found = assess(own, layout, _splits(row))
    assert best.time is not None and best.step_seconds is not None
    return RunnerUp(
        layout=layout,
        rank_order=_rank_order(ctx, row),
        step_seconds=found.step_seconds,
        loss_fraction=times * found.step_seconds / best.step_seconds - 1.0,
        terms={k: times * v - best.time[k] for k, v in found.time.items()},
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


def _nothing(ctx: CostContext, scenario: Scenario, base: Plan, table: LayoutTable) -> Plan:
    if not len(table):
        table, _ = layouts(ctx, scenario.search, prune=False)
    return replace(
        base,
        nearest_miss=relax.nearest_miss(ctx, scenario.search, table),
        relaxations=relax.relaxations(scenario) if base.status == "infeasible" else (),
        reasons=reasons_of(scenario) if base.status == "infeasible" else (),
    )
