"""Layouts of models with a layer pattern: rules case by case, table and optimum against plain
enumeration."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import api
from planner.cost.context import CostContext
from planner.cost.stages import layers_by_rank
from planner.errors import IllegalLayoutError
from planner.frameworks.rule import Rule
from planner.layouts.layout import Layout, LayoutTable
from planner.problem.scenario import Scenario, Search
from planner.search.layout_problem import LayoutProblem
from planner.search.rules.catalog import rules_for
from planner.search.rules.legality import nearest_values
from planner.search.rules.model import PATTERN_RULES
from planner.search.space.enumerate import layouts
from tests.expert_scenarios import experts
from tests.hybrid_scenarios import hybrid_context, hybrid_model, mamba, small_hybrid
from tests.oracles import divisors, expert_layouts, nests, plain_least_step
from tests.scenarios import (
    context,
    model,
    small_accelerator,
    small_scenario,
    small_software,
    small_topology,
    small_training,
)
from tests.search.checks import TOP_K, check_bounds, check_plan, fitting_layouts

# ---------------------------------------------------------------- rules

CTX = hybrid_context(toy=hybrid_model(mamba=mamba(num_heads=12, num_groups=4)))
L = Layout

CASES: dict[str, tuple[list[Layout], list[Layout], tuple[str, ...]]] = {
    "tp-divides-state-heads": (
        [L(), L(tp=2), L(tp=4)], [L(tp=3), L(tp=8), L(tp=12)], ("tp=2", "tp=4"),
    ),
    "cp-divides-state-heads": (
        [L(tp=2), L(tp=4, cp=3), L(cp=4), L(cp=12), L(tp=2, cp=6)],
        [L(cp=3), L(tp=4, cp=2), L(tp=2, cp=4), L(cp=6)],
        ("cp=2", "cp=4"),
    ),
    "patterns-exclude-virtual-stages": ([L(pp=2)], [L(pp=2, vp=2)], ("vp=1",)),
    "pattern-stages-even": (
        [L(pp=2), L(pp=8), L(pp=3, stage_layers=(2, 3, 3))],
        [L(pp=3), L(pp=5)],
        ("pp=2", "pp=4"),
    ),
    "ep-overlap-needs-transformer-layers": ([L(overlap="tp+dp")], [L(overlap="ep")], ()),
}  # fmt: skip
"""Layouts that keep and that break each rule, and the nearest values of the first that breaks it;
12 state-space heads in 4 groups, 8 layers."""


def rule_named(rule_id: str) -> Rule:
    (rule,) = [rule for rule in PATTERN_RULES if rule.id == rule_id]
    return rule


def test_every_rule_has_a_case() -> None:
    assert set(CASES) == {rule.id for rule in PATTERN_RULES}


@pytest.mark.parametrize("rule_id", CASES)
def test_rule_accepts_and_rejects(rule_id: str) -> None:
    accepted, rejected, nearest = CASES[rule_id]
    rule = rule_named(rule_id)
    assert [bool(np.all(rule.holds(CTX, row))) for row in accepted] == [True] * len(accepted)
    assert [bool(np.all(rule.holds(CTX, row))) for row in rejected] == [False] * len(rejected)
    assert rule.sentence and rule.source and all(hasattr(Layout(), key) for key in rule.keys)
    assert nearest_values(CTX, rejected[0], rule, rule.keys[0]) == nearest


def broken(ctx: CostContext, layout: Layout) -> set[str]:
    """Rules of sizes that a layout breaks."""
    sizes = {"tp-divides-heads", "tp-divides-ffn", *CASES}
    return {r.id for r in rules_for(ctx) if r.id in sizes and not np.all(r.holds(ctx, layout))}


def test_rules_of_what_a_model_lacks_do_not_bind() -> None:
    """Nine heads and MLPs of an odd size that no layer has; no state-space layer."""
    bare = hybrid_model("EE", num_attention_heads=9, ffn_hidden_size=7, head_dim=8)
    halves = Layout(tp=2, cp=4, sp=True)
    assert broken(hybrid_context(toy=bare), halves) == set()
    attends = bare.replace(layer_pattern="E*")
    assert broken(hybrid_context(toy=attends), halves) == {"tp-divides-heads"}
    odd = experts(expert_ffn_hidden_size=9, num_shared_experts=1)
    assert broken(hybrid_context(toy=bare.replace(moe=odd)), halves) == {"tp-divides-ffn"}
    assert broken(context(model=bare.replace(layer_pattern=None)), halves) == {
        "tp-divides-heads", "tp-divides-ffn",
    }  # fmt: skip


def test_transformers_have_no_rules_of_patterns() -> None:
    ids = {rule.id for rule in rules_for(context(model=model()))}
    assert not ids & set(CASES)
    assert set(CASES) <= {rule.id for rule in rules_for(CTX)}


@given(st.lists(expert_layouts(8, 12), min_size=1, max_size=20))
@settings(max_examples=30, deadline=None)
def test_table_equals_scalar_on_random_layouts(rows: list[Layout]) -> None:
    for rule in rules_for(CTX):
        table = np.broadcast_to(rule.holds(CTX, LayoutTable.from_layouts(rows)), (len(rows),))
        assert table.tolist() == [bool(np.all(rule.holds(CTX, row))) for row in rows], rule.id


def test_a_given_layout_is_told_the_rule() -> None:
    scenario = api.load_scenario("nemotron-3-nano-h100x64")
    with pytest.raises(IllegalLayoutError) as caught:
        api.evaluate(scenario, "tp=16,ep=4")
    assert caught.value.rule == "tp-divides-state-heads"
    assert caught.value.nearest == ("tp=8",)
    with pytest.raises(IllegalLayoutError) as caught:
        api.evaluate(scenario, "pp=4,vp=2")
    assert caught.value.rule == "patterns-exclude-virtual-stages"
    plan = api.evaluate(scenario, "pp=4,stage_layers=12+14+14+12,ep=8,recompute=full")
    assert plan.step_seconds is not None


# ---------------------------------------------------------------- enumeration


def hybrid(
    num: int = 8, widths: tuple[int, ...] = (2, 4), gigabytes: float = 32.0, **changes: Any
) -> Scenario:
    usual: dict[str, Any] = {
        "topology": small_topology(
            widths, accelerator=small_accelerator(hbm_bytes=1e9 * gigabytes)
        ),
        "model": small_hybrid(),
        "training": small_training(sequence_length=1920, global_batch_size=2 * num),
        "software": small_software(
            dispatchers=("flex", "alltoall"), overlap=("tp", "dp", "pp", "ep"),
            sequence_parallel="always", zero_stages=(1,), shard_groups="full",
        ),
        "search": Search(mbs=(1,), tie_fraction=0.0),
    }  # fmt: skip
    return small_scenario(num, **(usual | changes))


def brute_force(scenario: Scenario) -> set[Layout]:
    """Every product of degrees, filtered in plain Python; sp wherever tp > 1."""
    n, batch, toy = (
        scenario.num_accelerators, scenario.training.global_batch_size, scenario.model,
    )  # fmt: skip
    s, moe, scans = scenario.training.sequence_length, toy.moe, toy.mamba
    assert moe is not None and scans is not None
    found = set()
    for tp, cp, pp, shard in itertools.product(divisors(n), repeat=4):
        if tp * cp * pp * shard != n or batch % shard:
            continue
        groups = scans.num_groups // tp if scans.num_groups % tp == 0 else 0
        legal = [
            toy.num_attention_heads % tp == 0,
            toy.ffn_hidden_size % tp == 0,
            scans.num_heads % (tp * cp) == 0,
            groups and (groups % cp == 0 or cp % groups == 0),
            s % (2 * cp) == 0 if cp > 1 else True,
            tp == 1 or s % (tp * cp) == 0,
            toy.num_layers % pp == 0,
        ]
        if not all(legal):
            continue
        every = itertools.product(divisors(tp), divisors(tp * cp * shard), ("alltoall", "flex"))
        for etp, ep, dispatcher in every:
            row = Layout(
                tp=tp, cp=cp, pp=pp, dp_shard=shard, mbs=1, num_microbatches=batch // shard,
                zero_stage=1, sp=tp > 1, etp=etp, ep=ep, overlap="tp+dp+pp",
                dispatcher=dispatcher,
            )  # fmt: skip
            if (
                (ep > 1 or dispatcher == "alltoall")
                and moe.num_experts % ep == 0
                and moe.expert_ffn_hidden_size % etp == 0
                and (tp * cp * shard) % (etp * ep) == 0
                and nests(row)
            ):
                found.add(row)
    return found


@pytest.mark.parametrize(
    "scenario",
    [
        hybrid(),
        hybrid(model=small_hybrid("MMMMMM*E")),
        hybrid(6, (6,), model=small_hybrid("M*E", mamba=mamba(num_heads=6, num_groups=3))),
    ],
)
def test_table_equals_a_filtered_product(scenario: Scenario) -> None:
    table, excluded = layouts(CostContext.of(scenario), scenario.search, False)
    rows = [table.row(i) for i in range(len(table))]
    assert len(set(rows)) == len(rows)
    assert set(rows) == brute_force(scenario)
    assert {row.pp for row in rows} > {1} and {row.ep for row in rows} > {1}
    assert all(count > 0 for count in excluded.values())


CASES_OF_PLANS = {
    "two tiers": hybrid(search=Search(tp=(1, 2), cp=(1,), pp=(1, 2), mbs=(1,), tie_fraction=0.0)),
    "context parallel": hybrid(
        widths=(4, 2), search=Search(tp=(1, 2), cp=(2, 4), pp=(1,), mbs=(1,), tie_fraction=0.0)
    ),
    "memory is short": hybrid(
        gigabytes=3.0,
        software=small_software(
            dispatchers=("alltoall",), overlap=("dp",), sequence_parallel="always",
            zero_stages=(1, 3), shard_groups="any", recompute=("none", "full", "moe", "act"),
        ),
        search=Search(tp=(1, 2), cp=(1,), pp=(1, 2), mbs=(1,)),
    ),
    "latent experts and prediction": hybrid(
        model=small_hybrid(
            mtp_layers=1, mtp_pattern="*E",
            moe=experts(expert_ffn_hidden_size=512, latent_size=256, num_shared_experts=1),
        ),
        search=Search(tp=(1, 2), cp=(1,), mbs=(1,)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES_OF_PLANS)
def test_optimum_bounds_and_runners_up_equal_plain_enumeration(name: str) -> None:
    scenario = CASES_OF_PLANS[name]
    ctx = CostContext.of(scenario)
    rows = fitting_layouts(ctx, scenario)
    least = {row: plain_least_step(ctx, row) for row in rows}
    check_bounds(LayoutProblem(ctx, LayoutTable.from_layouts(rows)), least)
    plan = api.plan(scenario, top_k=TOP_K)
    check_plan(plan, scenario, least)
    assert plan.search is not None and plan.search.shapes == len(rows)
    if name == "memory is short":
        assert {row.recompute for row in rows} > {"none"}


def test_every_stage_of_a_pattern_is_looked_at() -> None:
    """All that costs is in the middle: naming the split changes nothing."""
    scenario = hybrid(model=small_hybrid("--E*MM--"))
    ctx = CostContext.of(scenario)
    row = Layout(pp=4, dp_shard=2, num_microbatches=8, overlap="dp")
    named = replace(row, stage_layers=(2, 2, 2, 2))
    assert plain_least_step(ctx, row) == pytest.approx(plain_least_step(ctx, named), rel=1e-12)
    uneven = replace(row, stage_layers=(1, 2, 2, 3))
    assert plain_least_step(ctx, uneven) != pytest.approx(plain_least_step(ctx, row), rel=1e-3)


def test_bounds_of_a_shipped_hybrid_are_tight() -> None:
    plan = api.plan(api.load_scenario("nemotron-3-nano-h100x64"), top_k=1)
    assert plan.status == "optimal" and plan.search is not None
    assert plan.search.opened < plan.search.shapes / 10
    assert any("state-space layers" in warning for warning in plan.warnings)


def test_stages_of_a_pattern_ignore_what_a_framework_counts_at_the_ends() -> None:
    """Other models have a layer fewer on either end."""
    ends = small_software(layers_at_ends=(1, 1))
    for toy, layers in ((small_hybrid(), [4, 4]), (model(num_layers=8), [4, 4])):
        ctx = CostContext.of(hybrid(model=toy, software=ends))
        assert layers_by_rank(ctx.model.num_layers, Layout(pp=2), ctx.reserved) == layers
    four = CostContext.of(hybrid(model=small_hybrid(), software=ends))
    assert layers_by_rank(four.model.num_layers, Layout(pp=4), four.reserved) == [2, 2, 2, 2]
    plain = CostContext.of(hybrid(model=model(num_layers=10), software=ends))
    assert layers_by_rank(plain.model.num_layers, Layout(pp=4), plain.reserved) == [2, 3, 3, 2]
