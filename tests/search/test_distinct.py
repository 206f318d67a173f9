"""The K best plans: exact against enumeration, truly different, told apart and explained."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from planner import api
from planner.cost.context import CostContext
from planner.layouts.layout import Layout
from planner.planning.assess import assess, memory_report
from planner.planning.plan import Plan
from planner.problem.scenario import Scenario, Search
from planner.report.text.layouts import layout_labels
from planner.report.text.pieces import plain_text
from planner.report.text.plan import plan_report
from planner.search.space.enumerate import layouts
from tests.expert_scenarios import experts
from tests.oracles import all_placements, plain_least_step, plain_splits, plain_step
from tests.scenarios import (
    small_model,
    small_scenario,
    small_software,
    small_topology,
    small_training,
)
from tests.search.checks import as_layout, fitting_layouts
from tests.search.test_layout_problem import CLUSTERS, random_scenarios

MANY = 50


def sparse(**changes: Any) -> Scenario:
    usual: dict[str, Any] = {
        "topology": small_topology((2, 4)),
        "model": small_model(moe=experts(expert_ffn_hidden_size=512)),
        "training": small_training(sequence_length=960, global_batch_size=8),
        "software": small_software(
            dispatchers=("flex",), overlap=("tp", "dp", "pp", "ep"), recompute=("none", "full"),
            cp_kinds=("ring", "all_gather"),
        ),
        "search": Search(mbs=(1,), tie_fraction=0.0),
    }  # fmt: skip
    return small_scenario(8, **(usual | changes))


def vector(ctx: CostContext, layout: Layout) -> tuple[float, ...]:
    """All that a layout costs in its best placement: time terms and memory terms."""
    widths = ctx.topology.widths
    rows = all_placements(layout.degrees(), widths)
    best = min(rows, key=lambda row: plain_step(ctx, layout, row))
    found = assess(ctx, layout, {k: [float(x) for x in v] for k, v in plain_splits(best).items()})
    return (*found.time.values(), *memory_report(ctx, layout).terms.values())


DEGREES = ("tp", "cp", "pp", "dp_shard", "dp_replicate", "ep", "etp", "mbs", "vp")


@pytest.mark.slow
@settings(
    max_examples=8, deadline=None, derandomize=True, database=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
@given(random_scenarios(CLUSTERS["2 tiers"]))
def test_fifty_best_are_those_of_enumeration_and_no_copies(scenario: Scenario) -> None:
    ctx = CostContext.of(scenario)
    rows = fitting_layouts(ctx, scenario)
    if not rows:
        return
    least = {row: plain_least_step(ctx, row) for row in rows}
    plan = api.plan(scenario, MANY)
    own = as_layout(plan.layout)
    others = sorted(step for layout, step in least.items() if layout != own)[: MANY - 1]
    assert [r.step_seconds for r in plan.runners_up] == pytest.approx(others, rel=1e-9)
    named = [own, *(as_layout(r.layout) for r in plan.runners_up)]
    seen: dict[tuple[float, ...], Layout] = {}
    for layout in named:
        twin = seen.setdefault(vector(ctx, layout), layout)
        degrees = [[getattr(one, key) for key in DEGREES] for one in (twin, layout)]
        assert twin is layout or degrees[0] != degrees[1], (twin, layout)


@pytest.mark.parametrize("stages", [None, (1, 2, 3), (2, 3), (3,)])
def test_zero_stages_that_shard_nothing_are_one_layout(stages: tuple[Any, ...] | None) -> None:
    software = small_software(zero_stages=(0, 1, 2, 3), shard_groups="any")
    scenario = small_scenario(8, software=software, search=Search(zero_stage=stages, mbs=(1,)))
    table, _ = layouts(CostContext.of(scenario), scenario.search)
    alone = table.take(table.cp * table.dp_shard == 1)
    assert len(alone)
    assert set(alone.zero_stage.tolist()) == {min(stages or (0,))}


GROUPS_OF_TERMS = {
    "tp": ["tp"],
    "pp": ["pp"],
    "cp": ["cp"],
    "dp": ["shard", "replicate", "edp"],
    "ep": ["ep", "etp"],
}


def check_losses(plan: Plan) -> None:
    """What each runner-up loses is told in terms and, of traffic, in groups."""
    assert plan.step_seconds is not None
    for runner in plan.runners_up:
        more = runner.step_seconds - plan.step_seconds
        assert sum(runner.terms.values()) == pytest.approx(more, abs=1e-9 * plan.step_seconds)
        for term, groups in GROUPS_OF_TERMS.items():
            extra = sum(runner.groups[g].extra_seconds for g in groups if g in runner.groups)
            assert extra == pytest.approx(runner.terms[term], abs=1e-9 * plan.step_seconds)
        tiers = {group.tier for group in runner.groups.values()}
        assert tiers <= {tier["name"] for tier in plan.inputs["topology"]["tiers"]}


@pytest.mark.parametrize("scenario", [sparse(), small_scenario(16)], ids=["experts", "dense"])
def test_runners_up_say_what_they_lose_and_where_and_read_apart(scenario: Scenario) -> None:
    plan = api.plan(scenario, MANY)
    assert len(plan.runners_up) == MANY - 1 and plan.layout is not None
    check_losses(plan)
    labels = layout_labels([one.layout for one in (plan, *plan.runners_up)])
    assert len(set(labels)) == MANY
    text = plain_text(plan_report(plan), 400)
    assert all(label in text for label in labels[1:])


def test_labels_alike_say_where_they_differ() -> None:
    base = Layout(tp=2, pp=2, dp_shard=2, sp=True, overlap="tp+dp")
    other = replace(base, overlap="tp")
    assert layout_labels([base, other, replace(base, tp=4)]) == [
        "tp2 pp2 dp2 mbs1 zero1 overlap=tp+dp", "tp2 pp2 dp2 mbs1 zero1 overlap=tp",
        "tp4 pp2 dp2 mbs1 zero1",
    ]  # fmt: skip
