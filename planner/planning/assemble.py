"""A search's answer made into a plan: the best layout assessed, its rivals, or why none fits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from planner.cost.context import CostContext, attention_of
from planner.cost.stages import layers_by_rank
from planner.layouts.layout import Layout, LayoutTable
from planner.planning.assess import assess, economics
from planner.planning.groups import group_losses
from planner.planning.layout_search import LayoutSearch, Stopwatch, with_batch_of
from planner.planning.placing import Place, place_of, rank_order_of, splits_of_groups
from planner.planning.plan import (
    DefaultSplit,
    GroupReport,
    MfuDenominator,
    Plan,
    RunnerUp,
    SearchReport,
    Status,
)
from planner.problem.scenario import Scenario, inputs_sha256, scenario_to_document
from planner.search.families import BOUND_RULE
from planner.search.infeasible import relaxation
from planner.search.infeasible.conflict import conflict as reasons_of
from planner.search.interface import PlacedLayout, SideConstraints
from planner.search.layout_problem import LayoutProblem
from planner.search.one_layout import best_placement
from planner.search.rules.catalog import rule_sentences, rules_for
from planner.search.space.enumerate import MEMORY_RULE, NESTED_RULE, SEARCH_RULE, layouts
from planner.search.space.limits import fits_in_memory, searches_splits
from planner.search.space.restrictions import EXPERTS_NEED_MOE, WITHOUT_EXPERTS

PLACEMENT_RULE = "placement"
RULE_TEXTS = {
    EXPERTS_NEED_MOE: WITHOUT_EXPERTS,
    PLACEMENT_RULE: "its groups do not nest in evenly filled domains, in any allowed rank order",
    SEARCH_RULE: "the scenario's search: restricts it away",
    NESTED_RULE: "its expert groups cut across its tensor, context or data groups",
    MEMORY_RULE: "it does not fit in memory",
    BOUND_RULE: "even without recompute it cannot be among the best",
}
"""Rules of the search itself in words, by id; those of frameworks have their own."""


# ---------------------------------------------------------------- a search's answer


def plan_of_search(search: LayoutSearch, stopwatch: Stopwatch, reasons: bool = True) -> Plan:
    """The plan of a search's answer; where nothing fits, why, unless `reasons` is false.

    Of a scenario whose batch is a band, the plan's inputs have the chosen batch, and objective and
    bound are seconds of its step.
    """
    result, report = search.result, _search_report(search, stopwatch)
    status: Status = "infeasible" if result is None else result.status
    if result is None or result.best is None or search.layout is None:
        bound = None if result is None else result.bound_seconds
        empty = replace(empty_plan(search.scenario, status, report), bound_seconds=bound)
        return _with_reasons(search, empty) if reasons else empty

    layout = search.layout
    scenario = with_batch_of(search.scenario, layout)
    ctx = search.ctx if scenario is search.scenario else CostContext.of(scenario)
    # the placement shown may be a tie; what a custom rank order gains is against the best one
    lowest = best_placement(search.answer.problem, result.best.layout_index)
    assert lowest is not None, "the search placed it"
    _, lowest_step_seconds = lowest
    place = place_of(ctx, layout, result.best, lowest_step_seconds)
    plan = plan_in_place(ctx, scenario, empty_plan(scenario, status, report), layout, place)
    assert result.objective_seconds is not None
    bound = result.bound_seconds
    return replace(
        plan,
        default_split=_default_split(ctx, scenario, layout),
        objective_seconds=result.objective_seconds / search.tokens_weight,
        bound_seconds=None if bound is None else bound / search.tokens_weight,
        gap_fraction=result.gap_fraction,
        runners_up=tuple(_runner_up(search, ctx, placed, plan) for placed in result.runners_up),
    )


def _search_report(search: LayoutSearch, stopwatch: Stopwatch) -> SearchReport:
    answer, result = search.answer, search.result
    excluded = Counter(answer.excluded)
    if result is not None and result.status == "infeasible":
        excluded[PLACEMENT_RULE] += answer.problem.num_layouts
    return SearchReport(
        shapes=answer.problem.num_layouts,
        placements=result.counts.placements if result else 0,
        opened=result.counts.opened if result else 0,
        seconds=stopwatch.seconds,
        cpu_seconds=stopwatch.cpu_seconds,
        excluded={rule: count for rule, count in excluded.items() if count},
        rule_texts={**rule_sentences(rules_for(search.ctx)), **RULE_TEXTS},
        any_split=searches_splits(search.ctx, search.scenario.search),
        best_splits=answer.best_splits,
    )


def _with_reasons(search: LayoutSearch, empty: Plan) -> Plan:
    """The plan that is none, with the nearest miss and, where none can be, what forbids one."""
    table, scenario = search.answer.legal, search.scenario
    if not len(table):  # every family was ruled out before its layouts were enumerated
        table, _ = layouts(search.ctx, scenario.search, prune=False)
    # of a search that ran out of time nothing is known, so that there is nothing to explain
    proven = empty.status == "infeasible"
    return replace(
        empty,
        nearest_miss=relaxation.nearest_miss(search.ctx, scenario.search, table),
        relaxations=relaxation.relaxations(scenario) if proven else (),
        reasons=reasons_of(scenario) if proven else (),
    )


def _default_split(ctx: CostContext, scenario: Scenario, layout: Layout) -> DefaultSplit | None:
    """The default stage split of the layout in its best placement, where it has another."""
    if layout.stage_layers is None:
        return None
    default = replace(layout, stage_layers=None)
    table = LayoutTable.from_layouts([default])
    constraints = SideConstraints(orders=scenario.search.orders)
    placed = best_placement(LayoutProblem(ctx, table), 0, 0.0, constraints)
    return DefaultSplit(
        stage_layers=tuple(layers_by_rank(ctx.model.num_layers, default, ctx.reserved)),
        step_seconds=None if placed is None else placed[1],
        fits=bool(fits_in_memory(ctx, scenario.search, table)[0]),
    )


def _runner_up(
    search: LayoutSearch, best_ctx: CostContext, placed: PlacedLayout, best: Plan
) -> RunnerUp:
    """A runner-up against the best; where the batch may differ, loss and terms are per token, as
    of the best plan's batch."""
    layout = search.answer.problem.layout(placed.layout_index)
    # each layout of a band of batches cuts its own batch, and is costed with that
    ctx, tokens_ratio = best_ctx, 1.0
    if search.answer.problem.ctx is not best_ctx:
        ctx = CostContext.of(with_batch_of(search.scenario, layout))
        tokens_ratio = best_ctx.training.global_batch_size / ctx.training.global_batch_size
    assessed = assess(ctx, layout, splits_of_groups(placed))
    assert best.time is not None and best.step_seconds is not None
    return RunnerUp(
        layout=layout,
        rank_order=rank_order_of(ctx, placed),
        step_seconds=assessed.step_seconds,
        loss_fraction=tokens_ratio * assessed.step_seconds / best.step_seconds - 1.0,
        terms={
            term: tokens_ratio * seconds - best.time[term]
            for term, seconds in assessed.time.items()
        },
        step_seconds_high=assessed.step_seconds_high,
        groups=group_losses(best.groups, assessed.groups),
    )


# ---------------------------------------------------------------- a layout in its place


def empty_plan(scenario: Scenario, status: Status, search: SearchReport | None = None) -> Plan:
    """The plan of a scenario before there is a layout."""
    document = scenario_to_document(scenario)
    return Plan(
        inputs=document,
        inputs_sha256=inputs_sha256(document),
        status=status,
        attention=attention_of(scenario),
        search=search,
    )


def plan_in_place(
    ctx: CostContext, scenario: Scenario, empty: Plan, layout: Layout, place: Place
) -> Plan:
    """The plan of a layout in a place, assessed; `empty` is the scenario's plan without one."""
    assessed = assess(ctx, layout, place.splits)
    # a plan names its stage split even where it is the default one, so that its file says it
    split = layout.stage_layers or layers_by_rank(ctx.model.num_layers, layout, ctx.reserved)
    plan = replace(
        empty,
        step_seconds=assessed.step_seconds,
        step_seconds_low=assessed.step_seconds_low,
        step_seconds_high=assessed.step_seconds_high,
        interval_coverage=assessed.interval_coverage,
        interval_kind=assessed.interval_kind,
        interval_reason=assessed.interval_reason,
        mfu=assessed.mfu,
        mfu_denominator=MfuDenominator(
            accelerator=ctx.accelerator.name,
            precision=ctx.training.peak_key,
            peak_flops=ctx.peak_flops,
        ),
        mfu_bf16=assessed.mfu_bf16,
        hfu=assessed.hfu,
        **economics(scenario, assessed.step_seconds),
        layout=replace(layout, stage_layers=tuple(split)),
        fill=place.fill,
        placement=place.placement,
        rank_order=place.rank_order,
        rank_order_name=place.rank_order_name,
        custom_order_gain_fraction=place.custom_order_gain_fraction,
        nodes=place.nodes,
        time=assessed.time,
        memory=assessed.memory,
        groups=assessed.groups,
        swaps=place.swaps,
    )
    return replace(plan, warnings=tuple(_cautions(ctx, plan)))


def _cautions(ctx: CostContext, plan: Plan) -> Iterator[str]:
    """What to be careful about in a plan that holds a layout."""
    if plan.placement is None:  # the other cautions need to know which domains a group spans
        yield (
            "its groups do not nest in the domains: costed in the software's own rank order "
            f"{plan.rank_order_name}, every group as its worst one"
        )
        return
    expert = plan.groups.get("ep")
    inner, *outer = ctx.topology.tier_names
    if expert is not None and any(expert.split[tier] > 1 for tier in outer):
        yield _experts_leave_the_domain(expert, inner, ctx.topology.widths[0])
    if plan.nodes is not None and plan.nodes.shared:
        yield (
            "some domains hold several of the plan's equal blocks: groups are costed as the worst "
            "one of the rank table, and the proof is over blocks that each have a domain"
        )
    if plan.memory is not None and plan.memory.verdict == "fragile":
        yield (
            "memory is fragile: the prediction is close under the capacity, and fragmentation can "
            "exceed it; first try expandable allocator segments"
        )
    if ctx.model.mamba is not None:
        yield (
            "state-space layers: no complete published run stands behind their times, and the "
            "prediction interval is that of models without them"
        )


def _experts_leave_the_domain(expert: GroupReport, inner: str, width: int) -> str:
    inside = round(expert.split[inner])
    remedy = (
        f"search: {{ep: [...]}} with at most {width} keeps them inside"
        if expert.members > width
        else "another rank order, or a smaller ep, can keep them inside"
    )
    return (
        f"tokens to experts leave the {inner} domain ({inside} of {expert.members} ranks are in "
        f"one): legal, but dispatch and combine then wait for the network, and some stacks stall "
        f"there; {remedy}; sums run in another order than inside one domain, so losses of the two "
        "differ in their last digits"
    )
