"""The search over layouts with experts against plain enumeration by the scalar step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from planner import api
from planner.cost.context import CostContext
from planner.layouts.grids import EXPERT_GRID
from planner.layouts.layout import Layout, LayoutTable
from planner.problem.scenario import Scenario, Search
from planner.search.layout_problem import LayoutProblem, splits_of
from tests.expert_scenarios import LATENT, experts
from tests.oracles import all_placements, plain_least_step, plain_splits, plain_step
from tests.scenarios import (
    small_accelerator,
    small_model,
    small_scenario,
    small_software,
    small_topology,
    small_training,
)
from tests.search.checks import TOP_K, check_bounds, check_plan, fitting_layouts


def sparse(widths: tuple[int, ...], num: int, gigabytes: float = 32.0, **changes: Any) -> Scenario:
    """A few choices on a small cluster, all of whose placements can be costed one by one."""
    usual: dict[str, Any] = {
        "topology": small_topology(
            widths, accelerator=small_accelerator(hbm_bytes=1e9 * gigabytes)
        ),
        "model": small_model(moe=experts(expert_ffn_hidden_size=512)),
        "training": small_training(sequence_length=1920, global_batch_size=2 * num),
        "software": framework(),
        "search": Search(tp=(1, 2), cp=(1,), pp=(1, 2), vp=(1,), mbs=(1,), tie_fraction=0.0),
    }
    return small_scenario(num, **(usual | changes))


def framework(**changes: Any) -> Any:
    usual: dict[str, Any] = {
        "dispatchers": ("flex", "alltoall"),
        "overlap": ("tp", "dp", "pp", "ep"),
        "sequence_parallel": "always",
        "zero_stages": (1,),
        "shard_groups": "full",
    }
    return small_software(**(usual | changes))


CASES = {
    "one domain and three": sparse((2, 4), 8),
    "three tiers": sparse((2, 2, 2), 8),
    "odd widths": sparse((6, 2), 12),
    "no overlap, all-to-all": sparse(
        (2, 4), 8, software=framework(overlap=(), dispatchers=("alltoall",))
    ),
    "context parallel": sparse(
        (4, 2), 8, search=Search(tp=(1, 2), cp=(2, 4), pp=(1,), mbs=(1,), tie_fraction=0.0)
    ),
    "memory is short": sparse(
        (2, 4), 8, 2.5, software=framework(recompute=("none", "full", "moe", "act"))
    ),
    "shards in part": sparse(
        (2, 4), 8, software=framework(shard_groups="any", zero_stages=(1, 3)),
        search=Search(tp=(1, 2), cp=(1,), pp=(1,), mbs=(1,), ep=(1, 4)),
    ),
    "latent attention and prediction": sparse(
        (2, 4), 8,
        model=small_model(moe=experts(num_dense_layers=1, num_shared_experts=1), mla=LATENT,
                          mtp_layers=1),
        search=Search(tp=(1, 2), cp=(1,), pp=(1, 2), vp=(1, 2), mbs=(1,)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_optimum_bounds_and_runners_up_equal_plain_enumeration(name: str) -> None:
    scenario = CASES[name]
    ctx = CostContext.of(scenario)
    rows = fitting_layouts(ctx, scenario)
    assert {row.ep for row in rows} > {1} or scenario.search.ep
    least = {row: plain_least_step(ctx, row) for row in rows}
    check_bounds(LayoutProblem(ctx, LayoutTable.from_layouts(rows)), least)
    plan = api.plan(scenario, top_k=TOP_K)
    check_plan(plan, scenario, least)
    # other kinds of context parallelism than the usual one are counted where they may win
    assert plan.search is not None and plan.search.shapes <= len(rows)
    assert plan.search.shapes == len(rows) or any(row.cp_kind != "ring" for row in rows)


def test_instances_see_what_they_are_for() -> None:
    """Experts cut over tp and over ep, nested inside tp, across tp and data, and recomputation."""
    rows = {name: fitting_layouts(CostContext.of(s), s) for name, s in CASES.items()}
    every = [row for some in rows.values() for row in some]
    assert any(row.etp > 1 for row in every)
    assert any(1 < row.ep < row.tp * row.cp for row in every)
    assert any(row.ep > row.tp * row.cp > 1 for row in every)
    assert {row.recompute for row in rows["memory is short"]} > {"none"}
    assert any(row.dp_replicate > 1 for row in rows["shards in part"])
    overlapped = {row.overlap_ep for row in rows["one domain and three"]}
    assert overlapped == {0, 1}


def test_recomputation_is_never_faster_than_none() -> None:
    """So a layout that fits with none needs no other."""
    scenario = CASES["memory is short"]
    ctx = CostContext.of(scenario)
    for row in fitting_layouts(ctx, scenario):
        plain = replace(row, recompute="none")
        for placement in all_placements(row.degrees(EXPERT_GRID), scenario.topology.widths)[::3]:
            least = plain_step(ctx, plain, placement)
            for kind in scenario.software.recompute:
                again = replace(row, recompute=kind)
                assert plain_step(ctx, again, placement) >= least * (1 - 1e-12)


def test_score_rows_equal_the_scalar_step_and_splits_are_products() -> None:
    scenario = CASES["three tiers"]
    ctx = CostContext.of(scenario)
    problem = LayoutProblem(ctx, LayoutTable.from_layouts(fitting_layouts(ctx, scenario)))
    for i in range(0, problem.num_layouts, 3):
        layout = problem.table.row(i)
        rows = all_placements(layout.degrees(EXPERT_GRID), problem.widths)
        scores = problem.step_seconds(np.full(len(rows), i), np.array(rows))
        plain = [plain_step(ctx, layout, row) for row in rows]
        assert scores.tolist() == pytest.approx(plain, rel=1e-12)
        for row in rows:
            found = splits_of(np.array(row))
            assert {k: [int(g) for g in v] for k, v in found.items()} == plain_splits(row)


def test_orders_keep_the_experts_ranks_together() -> None:
    """Past tp·cp experts take data-parallel ranks, which must then follow at once."""
    orders = {"dp-first": ("tp", "cp", "dp", "pp"), "pp-first": ("tp", "cp", "pp", "dp")}
    scenario = sparse((2, 4), 8, software=framework(orders=orders))
    ctx = CostContext.of(scenario)
    inside, beyond = (
        Layout(tp=4, sp=True, dp_shard=2, ep=4),
        Layout(tp=4, sp=True, dp_shard=2, ep=8),
    )
    problem = LayoutProblem(ctx, LayoutTable.from_layouts([inside, beyond]))
    named = [[EXPERT_GRID.atoms[atom] for atom in order] for order in problem.framework_orders(0)]
    assert [atoms.index("pp") > atoms.index("dp_shard") for atoms in named] == [True, False]
    assert all(atoms.index("tp.ep") < atoms.index("tp") < atoms.index("cp.etp") for atoms in named)
    assert (
        len(problem.framework_orders(1)) == 1
        and problem.framework_orders(1)[0] == problem.framework_orders(0)[0]
    )
