"""Searching over splits of the layers: as good as every layout in every split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from planner import api
from planner.cost import prediction_intervals as intervals
from planner.cost.context import CostContext
from planner.cost.stage_split import chunk_layers
from planner.layouts.layout import Layout, LayoutTable
from planner.planning.plan import Plan
from planner.problem.scenario import Scenario, Search
from planner.report.text.pieces import plain_text
from planner.report.text.plan import plan_report
from planner.search.interface import SideConstraints
from planner.search.layout_problem import LayoutProblem, any_split_problem, changed_split_problem
from planner.search.one_layout import best_placement
from planner.search.space.enumerate import layouts
from planner.search.space.limits import fits_in_memory
from planner.search.stage_splits.options import is_searched
from planner.search.stage_splits.split_search import NamedSplitProblem
from tests.expert_scenarios import experts
from tests.scenarios import (
    small_accelerator,
    small_model,
    small_scenario,
    small_software,
    small_topology,
    small_training,
)
from tests.search.test_best_split import compositions
from tests.search.test_watch import Until

ANY = Search(
    stages="any", tp=(1, 2), cp=(1,), pp=(1, 2, 4), vp=(1, 2), mbs=(1,), zero_stage=(1,),
    dp_replicate=(1,), ep=(1, 2), etp=(1,),
)  # fmt: skip


def job(gigabytes: float, search: Search = ANY, **changes: Any) -> Scenario:
    part = small_accelerator(hbm_bytes=1e9 * gigabytes)
    usual: dict[str, Any] = {
        "topology": small_topology((2, 4), accelerator=part),
        "model": small_model(num_layers=5, vocab_size=256000),
        "software": small_software(stage_splits="any", dispatchers=("alltoall",)),
        "search": search,
    }
    return small_scenario(8, **(usual | changes))


def counting(gigabytes: float, **search: Any) -> Scenario:
    """A job whose memory is what layers keep, under software that runs some of them again."""
    return job(
        gigabytes,
        ANY.replace(pp=(2, 4), **search),
        model=small_model(num_layers=5),
        training=small_training(sequence_length=1920, global_batch_size=16),
        software=small_software(
            stage_splits="any", recompute=("none", "full"), recompute_counts=True
        ),
    )


LEADING = small_model(
    num_layers=5, mtp_layers=1,
    moe=experts(expert_ffn_hidden_size=1024, num_dense_layers=2),
)  # fmt: skip
CASES = {
    "dense": job(60.0),
    "dense, memory is short": job(7.0),
    "dense, only other splits fit": job(6.2),
    "experts": job(60.0, model=LEADING),
    "experts, memory is short": job(9.0, model=LEADING),
    "recompute": job(
        6.8,
        software=small_software(stage_splits="any", recompute=("none", "full")),
    ),
    "counts": counting(2.2),
    "a count that is asked for": counting(2.6, recompute_layers=(2,)),
    "first and last of their own": job(
        60.0, software=small_software(stage_splits="ends"), search=ANY.replace(vp=(1,))
    ),
    "framework orders": job(60.0, search=ANY.replace(orders="framework")),
    "by the upper end": job(12.0, search=ANY.replace(robust=True)),
}  # fmt: skip


def every_row(ctx: CostContext, scenario: Scenario) -> list[Layout]:
    """The legal layouts, those that run all layers again in every count that is asked for."""
    table, _ = layouts(ctx, scenario.search.replace(recompute_layers=(0,)))
    every = range(ctx.model.num_layers if ctx.software.recompute_counts else 1)
    asked = scenario.search.recompute_layers or every
    return [
        replace(row, recompute_layers=layers)
        for row in (table.row(i) for i in range(len(table)))
        for layers in (every if row.recompute == "full" else (0,))
        if layers in asked
    ]


def counts_within(row: Layout, chunks: Sequence[int]) -> bool:
    """Whether every chunk has the layers that each runs again, and one more than those."""
    return not row.recompute_layers or min(chunks) >= row.recompute_layers < max(chunks)


def every_split(scenario: Scenario) -> dict[Any, float]:
    """The best step of every layout, over its placements and all its splits that fit."""
    ctx, asked = CostContext.of(scenario), scenario.search
    ends = ctx.software.stage_splits == "ends"
    found: dict[Any, float] = {}
    for row in every_row(ctx, scenario):
        splits: list[Any] = [None]
        if is_searched(ctx, LayoutTable.from_layouts([row]))[0]:
            splits += compositions(ctx.model.num_layers, row.pp * row.vp)
        for split in splits:
            chunks = split or chunk_layers(ctx.model.num_layers, row, ctx.reserved)
            if not counts_within(row, chunks):
                continue
            if ends and split is not None and len(set(split[1:-1])) > 1:
                continue
            one = LayoutTable.from_layouts([replace(row, stage_layers=split)])
            if not fits_in_memory(ctx, asked, one)[0]:
                continue
            rules = SideConstraints(orders=asked.orders)
            best = best_placement(LayoutProblem(ctx, one), 0, 0.0, rules)
            if best is None:
                continue
            factor = 1.0
            if asked.robust:
                factor = float(intervals.step_interval(intervals.shipped(), ctx, one).high[0])
            found[row] = min(found.get(row, np.inf), best[1] * factor)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_no_layout_is_better_in_any_split(name: str) -> None:
    scenario = CASES[name]
    every = sorted(every_split(scenario).values())
    plan = api.plan(scenario, top_k=3)
    assert plan.status == "optimal" and plan.layout is not None
    assert plan.objective_seconds == pytest.approx(every[0], rel=1e-8)
    assert sum(plan.layout.stage_layers) == scenario.model.num_layers
    # the runners-up are the next layouts, each in its best split
    if not scenario.search.robust:
        steps = sorted([plan.step_seconds, *(runner.step_seconds for runner in plan.runners_up)])
        assert steps[0] >= every[0] * (1 - 1e-8)
        assert steps[1:] == pytest.approx(every[1 : len(steps)], rel=scenario.search.tie_fraction)


@pytest.mark.parametrize("name", ["dense, memory is short", "recompute", "counts"])
def test_a_watch_is_told_true_bounds_of_splits(name: str) -> None:
    """What is told between a split's discovery and the search that has it too."""
    watch = Until(float("inf"))
    plan = api.plan(CASES[name], top_k=3, watch=watch)
    told = watch.seen
    assert plan.status == "optimal" and plan.objective_seconds is not None
    assert plan.search is not None and plan.search.best_splits > 0 and len(told) > 20
    assert max(one.bound_seconds for one in told) <= plan.objective_seconds * (1 + 1e-9)
    assert min(one.best_seconds for one in told) >= plan.objective_seconds * (1 - 1e-9)


def test_a_named_split_s_bound_holds_where_the_host_sets_the_pace() -> None:
    """Traffic that the host hides lengthens the fuller stage alone, which then waits less."""
    scenario = job(
        60.0, model=small_model(num_layers=6, hidden_size=512, vocab_size=64000),
        topology=small_topology((2, 8)),
        software=small_software(
            {"host_seconds_per_kernel": 2e-4}, stage_splits="any", cp_kinds=("a2a",)
        ),
        training=small_training(sequence_length=1920, global_batch_size=8),
    ).replace(num_accelerators=16)  # fmt: skip
    ctx = CostContext.of(scenario)
    layout = Layout(cp=2, pp=2, dp_shard=4, num_microbatches=2, cp_kind="a2a", overlap="dp+pp")
    one = LayoutTable.from_layouts([layout])
    problem, at = (
        NamedSplitProblem(ctx, one.take(slice(0)), one, [(5, 1)]),
        np.zeros(1, dtype=np.int64),
    )
    plain = LayoutProblem(ctx, replace(one, stage_layers=(5, 1)))
    least = best_placement(problem, 0)
    assert least is not None
    assert plain.lower_bounds()[0] > least[1]
    assert problem.lower_bounds()[0] <= least[1] and problem.tighter_bounds(at)[0] <= least[1]


def test_layouts_without_a_place_have_no_best_split() -> None:
    """Six data-parallel ranks do not fill domains of four in the software's rank order."""
    search = ANY.replace(pp=(2,), tp=(1,), vp=(1,), orders="framework")
    scenario = job(60.0, search, topology=small_topology((4, 3))).replace(num_accelerators=12)
    scenario = scenario.replace(training=small_training(global_batch_size=12))
    assert api.plan(scenario).status == "infeasible"


def test_a_count_and_a_split_win_together() -> None:
    job = CASES["counts"]
    plan = api.plan(job, top_k=1)
    assert plan.layout is not None and plan.objective_seconds is not None
    assert plan.layout.recompute_layers == 1 and plan.layout.stage_layers is not None
    for alone in ({"stages": "default"}, {"recompute_layers": (0,)}):
        other = api.plan(job.replace(search=job.search.replace(**alone)), top_k=1)
        assert (other.objective_seconds or np.inf) > plan.objective_seconds * (1 + 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_bounds_hold_in_every_split(name: str) -> None:
    scenario = CASES[name]
    ctx = CostContext.of(scenario)
    every = every_row(ctx, scenario)
    mixed = [every[i] for i in np.random.default_rng(0).permutation(len(every)).tolist()]
    rows = [row for row in mixed if is_searched(ctx, LayoutTable.from_layouts([row]))[0]]
    counted = [row for row in rows if row.recompute_layers]
    for row in (*rows[:12], *counted[:24]):
        one = LayoutTable.from_layouts([row])
        default = LayoutProblem(ctx, one)
        whatever = any_split_problem(ctx, one).lower_bounds()[0]
        other = max(
            changed_split_problem(ctx, one).lower_bounds()[0],
            changed_split_problem(ctx, one).tighter_bounds(np.array([0]))[0],
        )
        usual = tuple(chunk_layers(ctx.model.num_layers, row, ctx.reserved) or ())
        if counts_within(row, usual):
            assert whatever <= default.lower_bounds()[0] * (1 + 1e-12)
        for split in compositions(ctx.model.num_layers, row.pp * row.vp):
            if not counts_within(row, split):
                continue
            named = LayoutTable.from_layouts([replace(row, stage_layers=split)])
            least = best_placement(LayoutProblem(ctx, named), 0)
            assert least is not None
            assert whatever <= least[1] * (1 + 1e-12)
            by_stage = [sum(split[s :: row.pp]) for s in range(row.pp)]
            same = by_stage == [sum(usual[s :: row.pp]) for s in range(row.pp)]
            assert same or other <= least[1] * (1 + 1e-12)


def test_a_named_split_is_told_with_its_gain_and_launched() -> None:
    """DeepSeek-V3's prediction layer and head take stages of their own size; Megatron is told."""
    overrides = {
        "search.stages": "any", "search.pp": "8", "search.vp": "4", "search.ep": "32",
        "search.tp": "1", "search.cp": "1", "search.mbs": "1", "search.recompute": "mla_up_proj",
    }  # fmt: skip
    scenario = api.load_scenario("deepseek-v3-gb300x256", overrides)
    plan = api.plan(scenario, top_k=1)
    usual = api.plan(scenario.replace(search=scenario.search.replace(stages="default")), top_k=1)
    assert plan.status == "optimal" and plan.layout is not None and plan.search is not None
    assert plan.search.any_split and plan.search.best_splits > 0
    split, default = plan.layout.stage_layers, plan.default_split
    assert len(split) == 32 and sum(split) == 61
    assert default is not None and default.fits and sum(default.stage_layers) == 61
    assert plan.step_seconds is not None and usual.step_seconds is not None
    assert plan.step_seconds < 0.9 * usual.step_seconds
    text = render(plan)
    assert "layers by chunk" in text and "takes" in text and "with any stage split" in text
    assert "no legal layout with the default stage split" in render(usual)
    # the plan file says all of it, and evaluating the layout gives the same
    assert Plan.from_document(plan.to_document()) == plan
    layout = plan.layout.to_document()
    assert min(split) >= 1
    again = api.evaluate(scenario, {key: layout[key] for key in ASKED} | {"stage_layers": split})
    assert again.step_seconds == pytest.approx(plan.step_seconds, rel=1e-9)


ASKED = ("tp", "cp", "pp", "vp", "ep", "mbs", "recompute", "overlap", "dispatcher", "stage_layers")


def render(plan: Plan) -> str:
    return " ".join(plain_text(plan_report(plan), 160).split())


SPLITS = (
    "pp=4,stage_layers=7+8+8+7", "pp=2,vp=2,stage_layers=7+8+9+6", "pp=4,stage_layers=9+8+7+6",
    "pp=4,vp=2,stage_layers=3+4+4+4+3+4+5+3",
)  # fmt: skip


def test_a_split_by_chunks_comes_back_from_megatron_s_arguments() -> None:
    """val-07's 30 layers on 4 stages among them; check reads the split that was written."""
    changes = {"search.orders": "framework", "num_accelerators": "16"}
    scenario = api.load_scenario("llama3-8b-h100x8", {"topology": "dgx-h100", **changes})
    scenario = scenario.replace(model=scenario.model.replace(num_layers=30))
    for text in SPLITS:
        plan = api.evaluate(scenario, f"tp=2,{text}")
        assert plan.layout is not None
        split = plan.layout.stage_layers
        assert sum(split) == 30
        written = api.export_plan(plan, "megatron")["megatron-args.sh"]
        read = api.check(written, scenario, "megatron")
        assert read.rules == () and read.plan is not None and read.plan.layout is not None
        assert read.plan.layout.stage_layers == split
        assert read.plan.step_seconds == pytest.approx(plan.step_seconds, rel=1e-12)


def test_a_time_limit_holds_where_only_other_splits_fit() -> None:
    job = CASES["dense, only other splits fit"]
    default = api.plan(job.replace(search=job.search.replace(stages="default")), top_k=1)
    assert default.status == "infeasible"
    whole, limited = api.plan(job, top_k=1), api.plan(job, top_k=1, time_limit_seconds=1e-9)
    assert limited.layout is not None and limited.status == "feasible"
    assert whole.objective_seconds is not None and limited.bound_seconds is not None
    assert limited.bound_seconds <= whole.objective_seconds <= limited.objective_seconds
    assert whole.search is not None and limited.search is not None
    assert limited.search.best_splits < whole.search.best_splits
