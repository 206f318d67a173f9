"""The search over the real dense costs against plain enumeration by the scalar step.

The oracle knows nothing of `planner.search` but the table of legal layouts (see test_enumerate):
itertools over every fill and placement, one scalar `evaluate` a row, memory by the plan's report.
"""

from collections import Counter
from math import isclose
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner import api
from planner.cost import overlap
from planner.cost.context import CostContext
from planner.layouts.keys import CP_KINDS
from planner.layouts.layout import Layout, LayoutTable
from planner.problem.scenario import Scenario, Search
from planner.problem.topology import Fabric
from planner.search.layout_problem import LayoutProblem, splits_of
from planner.search.space.enumerate import layouts
from tests.oracles import (
    all_placements,
    divisors,
    plain_least_step,
    plain_splits,
    plain_step,
    step_of_costs,
)
from tests.scenarios import (
    small_accelerator,
    small_fabric,
    small_model,
    small_scenario,
    small_software,
    small_topology,
    small_training,
    topology,
)
from tests.search.checks import TOP_K, check_bounds, check_plan, fitting_layouts
from tests.search.monotone import first_decrease

MAX_ROWS = 300  # rows of an instance; the scalar step takes half a millisecond

CLUSTERS = {
    # widths inner to outer, accelerators
    "2 tiers": (((4, 4), 16), ((4, 8), 32), ((8, 3), 24), ((6, 4), 12), ((6, 4), 24), ((5, 6), 30)),
    "72": (((72, 2), 36), ((72, 2), 48), ((72, 2), 72), ((72, 2), 144), ((72, 2, 2), 72)),
    "48": (((48, 3), 48), ((48, 3), 96), ((48, 2, 2), 48), ((48, 2, 2, 2), 32)),
    "3 tiers": (((2, 3, 4), 24), ((3, 4, 2), 24), ((2, 2, 4), 16), ((3, 3, 3), 18)),
    "4 tiers": (((2, 2, 3, 2), 24), ((2, 2, 2, 2), 16), ((2, 3, 2, 2), 12), ((3, 2, 2, 2), 8)),
}

ORDERS: dict[str, tuple[Any, ...]] = {
    "tp-cp-dp-pp": ("tp", "cp", "dp", "pp"),
    "tp-cp-pp-dp": ("tp", "cp", "pp", "dp"),
    "tp-pp-cp-dp": ("tp", "pp", "cp", "dp"),
}


def fraction(most: float = 1.0) -> st.SearchStrategy[float]:
    return st.integers(0, 10).map(lambda tenth: most * tenth / 10)


RENDEZVOUS = {"rendezvous_seconds": 2e-5, "eager_bytes": 2.0**22}
SHARP = {"sharp_efficiency": 0.9, "sharp_seconds": 3e-5}


@st.composite
def random_fabrics(draw: st.DrawFn, num_tiers: int) -> list[Fabric]:
    rate = 1e9 * draw(st.integers(20, 600))
    fabrics = []
    for tier in range(num_tiers):
        fabrics.append(
            small_fabric(
                tier,
                bytes_per_second=rate,
                hop_seconds=1e-6 * draw(st.integers(0, 20)),
                base_seconds=1e-6 * draw(st.integers(0, 60)),
                ramp=draw(st.sampled_from([0.0, 0.3, 1.0])),
                short_send_bytes_per_second=draw(st.sampled_from([None, 0.2 * rate])),
                mesh_members=draw(st.sampled_from([None, None, 8.0])),
                **draw(st.sampled_from([{}, {}, RENDEZVOUS])),
                **draw(st.sampled_from([{}, {}, SHARP])),
            )
        )
        rate *= draw(st.sampled_from([0.03, 0.1, 0.3, 0.8, 1.2]))
    return fabrics


@st.composite
def random_software(draw: st.DrawFn) -> Any:
    both = st.sampled_from([("tp", "dp", "pp"), ("tp", "dp", "pp"), ("dp",), ("tp", "dp"), ()])
    names = draw(st.sampled_from([["tp-cp-dp-pp"], ["tp-cp-dp-pp", "tp-cp-pp-dp"], [*ORDERS]]))
    return small_software(
        zero_stages=draw(st.sampled_from([(1,), (3,), (0, 1), (1, 3), (2, 3)])),
        shard_groups=draw(st.sampled_from(["any", "any", "full"])),
        sequence_parallel=draw(st.sampled_from(["always", "never", "optional"])),
        cp_kinds=tuple(draw(st.permutations(CP_KINDS))[: draw(st.integers(1, 2))]),
        overlap=draw(both),
        orders={name: ORDERS[name] for name in names},
        recompute=(draw(st.sampled_from(["none", "selective", "full"])),),
        runtime_bytes=1e8,
        communicator_bytes=1e7,
        coefficients={
            "tp_overlap_fraction": draw(fraction()),
            "dp_overlap_fraction": draw(fraction()),
            "pp_overlap_fraction": draw(fraction()),
            "contention_fraction": draw(fraction(0.5)),
            "unexplained_fraction": draw(fraction(0.02)),
        },
    )


def num_rows(scenario: Scenario) -> int:
    table, _ = layouts(CostContext.of(scenario), scenario.search)
    widths = scenario.topology.widths
    return sum(len(all_placements(tuple(d), widths)) for d in table.degrees().tolist())


def trimmed(scenario: Scenario) -> Scenario:
    """The scenario with its longest lists of choices cut until few enough rows are left."""
    while num_rows(scenario) > MAX_ROWS:
        search = scenario.search
        lists = {n: v for n in Search.model_fields if isinstance(v := getattr(search, n), tuple)}
        longest = max(lists, key=lambda name: len(lists[name]))
        if len(lists[longest]) == 1:
            break
        scenario = scenario.replace(search=search.replace(**{longest: lists[longest][1:]}))
    return scenario


@st.composite
def random_scenarios(draw: st.DrawFn, clusters: tuple[Any, ...]) -> Scenario:
    """A small job on one of the clusters; few enough choices to cost every row one by one."""
    widths, num = draw(st.sampled_from(clusters))
    heads = 12 if num % 3 == 0 else 10 if num % 5 == 0 else 8
    software = draw(random_software())
    part = small_accelerator(hbm_bytes=1e9 * draw(st.sampled_from([1, 2, 32, 32])))
    tp = draw(st.lists(st.sampled_from(divisors(heads)), min_size=2, max_size=3, unique=True))
    found = small_scenario(
        num,
        topology=topology(draw(random_fabrics(len(widths))), widths, accelerator=part),
        model=small_model(
            num_layers=draw(st.integers(2, 6)),
            hidden_size=128 * heads,
            ffn_hidden_size=512 * heads,
            num_attention_heads=heads,
            num_key_value_heads=draw(st.sampled_from([heads, heads // 2])),
        ),
        training=small_training(
            sequence_length=draw(st.sampled_from([120, 480, 1920, 7680])),
            global_batch_size=num * draw(st.integers(1, 3)),
        ),
        software=software,
        search=Search(
            tp=tuple(tp),
            cp=draw(st.sampled_from([(1,), (1, 2), (1, 2, 3), (2, 4)])),
            pp=draw(st.sampled_from([(1, 2), (1, 3), (2, 4), (1, 2, 3, 4)])),
            vp=draw(st.sampled_from([(1,), (1, 2)])),
            mbs=draw(st.sampled_from([(1,), (2, 1)])),
            tie_fraction=draw(st.sampled_from([0.0, 0.005, 0.05])),
        ),
    )
    return trimmed(found)


# --- the oracle -----------------------------------------------------------------------------------


def shares_budget(scenario: Scenario, layout: Layout) -> bool:
    """Whether two collectives of the layout hide behind the same backward pass."""
    hides = layout.overlap_dp and scenario.software.coefficients.dp_overlap_fraction > 0
    shard = layout.cp * layout.dp_shard > 1
    return bool(hides and shard and (layout.dp_replicate > 1 or layout.zero_stage == 3))


def examine(scenario: Scenario, seen: Counter[str]) -> None:
    ctx = CostContext.of(scenario)
    rows = fitting_layouts(ctx, scenario)
    if not rows:
        return
    least = {row: plain_least_step(ctx, row) for row in rows}
    assert len(least) == len(rows)
    check_bounds(LayoutProblem(ctx, LayoutTable.from_layouts(rows)), least)
    plan = api.plan(scenario, top_k=TOP_K)
    check_plan(plan, scenario, least)
    # other kinds of context parallelism than the usual one are counted where they may win
    one = len(scenario.software.cp_kinds) == 1
    assert plan.search is not None
    assert plan.search.shapes == len(rows) if one else plan.search.shapes <= len(rows)
    in_order = scenario.replace(search=scenario.search.replace(orders="framework"))
    ordered = api.plan(in_order, top_k=1)
    assert plan.objective_seconds is not None
    gain = (ordered.objective_seconds or float("inf")) / plan.objective_seconds
    assert gain >= 1 - 1e-9
    widths = scenario.topology.widths
    seen["instances"] += 1
    seen["odd width"] += any(width & (width - 1) for width in widths)
    seen["part of dp shards"] += any(r.dp_replicate > 1 and r.zero_stage > 0 for r in rows)
    seen["shared budget"] += any(shares_budget(scenario, row) for row in rows)
    seen["general beats orders"] += gain > 1 + 1e-6


def examine_many(clusters: tuple[Any, ...], seen: Counter[str]) -> None:
    @settings(
        max_examples=12, deadline=None, derandomize=True, database=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(random_scenarios(clusters))
    def check(scenario: Scenario) -> None:
        examine(scenario, seen)

    check()


@pytest.mark.slow
def test_optimum_bounds_and_runners_up_equal_plain_enumeration() -> None:
    seen: Counter[str] = Counter()
    for kind, clusters in CLUSTERS.items():
        before = seen["instances"]
        examine_many(clusters, seen)
        assert seen["instances"] - before >= 8, kind
    total = seen["instances"]
    assert total >= 50
    assert 3 * seen["part of dp shards"] >= total
    assert 3 * seen["shared budget"] >= total
    assert 2 * seen["odd width"] >= total
    assert seen["general beats orders"] >= 5


# --- what the proof rests on ----------------------------------------------------------------------


def some_problem(**software: Any) -> tuple[CostContext, LayoutProblem, dict[Layout, float]]:
    """Eight accelerators over three tiers, every layout of one micro-batch size."""
    scenario = small_scenario(
        8,
        topology=small_topology((2, 2, 2)),
        software=small_software(sequence_parallel="always", **software),
        search=Search(mbs=(1,), vp=(1,)),
    )
    ctx = CostContext.of(scenario)
    rows = fitting_layouts(ctx, scenario)
    least = {row: plain_least_step(ctx, row) for row in rows}
    return ctx, LayoutProblem(ctx, LayoutTable.from_layouts(rows)), least


def rebate(busy: Any, budget: Any) -> Any:
    """An overlap that pays back more than the traffic costs."""
    return np.maximum(0.0, busy - budget) - 2.0 * np.asarray(busy)


def test_a_term_that_falls_with_traffic_breaks_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    _, problem, least = some_problem()
    check_bounds(problem, least)
    monkeypatch.setattr(overlap, "beyond", rebate)
    _, problem, least = some_problem()
    with pytest.raises(AssertionError):
        check_bounds(problem, least)


def test_bounds_are_close_where_groups_do_not_compete_for_a_tier() -> None:
    """One group alone has one split a fill: its bound is its step where one fill serves all."""
    _, problem, least = some_problem()
    every = np.arange(problem.num_layouts)
    lower = problem.lower_bounds()
    alone = [i for i in every.tolist() if sorted(problem.degrees[i].tolist())[-2] == 1]
    assert alone
    for i in alone:
        assert isclose(lower[i], least[problem.table.row(i)], rel_tol=1e-9)


def test_tighter_bounds_are_closer_where_tp_takes_the_innermost_domain() -> None:
    _, problem, _ = some_problem()
    every = np.arange(problem.num_layouts)
    gain = problem.tighter_bounds(every) / problem.lower_bounds()
    crowded = (problem.table.tp > 1) & (problem.table.tp < 8)
    assert (gain[crowded] > 1 + 1e-3).all()


@pytest.mark.parametrize("zero_stage", [0, 1, 3])
@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize("overlap", ["none", "tp+dp+pp"])
def test_step_never_falls_when_a_cost_rises(zero_stage: int, overlap: str, recompute: str) -> None:
    scenario = small_scenario(32, topology=small_topology((2, 4, 4)))
    ctx = CostContext.of(scenario)
    layout = Layout(
        tp=2, cp=2, pp=2, dp_shard=2, dp_replicate=2, vp=2, num_microbatches=4,
        zero_stage=zero_stage, sp=True, overlap=overlap, recompute=recompute,
    )  # fmt: skip
    for placement in all_placements(layout.degrees(), (2, 4, 4))[::7]:
        total, costs = step_of_costs(ctx, layout, plain_splits(placement))
        assert isclose(total(costs), plain_step(ctx, layout, placement), rel_tol=1e-12)
        assert first_decrease(total, costs) is None  # type: ignore[no-untyped-call]


# --- rows in a table ------------------------------------------------------------------------------


@pytest.mark.slow
def test_score_rows_equal_the_scalar_step_and_splits_are_products() -> None:
    ctx, problem, _ = some_problem(recompute=("none", "selective", "full"))
    for i in range(0, problem.num_layouts, 5):
        layout = problem.table.row(i)
        rows = all_placements(layout.degrees(), problem.widths)
        scores = problem.step_seconds(np.full(len(rows), i), np.array(rows))
        assert scores.dtype == np.float64
        plain = [plain_step(ctx, layout, row) for row in rows]
        assert scores.tolist() == pytest.approx(plain, rel=1e-12)
        for row in rows:
            found = splits_of(np.array(row))
            assert {k: [int(g) for g in v] for k, v in found.items()} == plain_splits(row)


def test_slow_byte_seconds_count_links_outside_the_innermost_domain_only() -> None:
    _, problem, _ = some_problem()
    pure = [i for i in range(problem.num_layouts) if problem.degrees[i].tolist() == [2, 1, 4, 1, 1]]
    (i, *_) = pure
    inside = ((2, 1, 1), (1, 1, 1), (1, 2, 2), (1, 1, 1), (1, 1, 1))
    outside = ((1, 2, 1), (1, 1, 1), (2, 1, 2), (1, 1, 1), (1, 1, 1))
    near, far = problem.slow_tier_seconds(np.array([i, i]), np.array([inside, outside]))
    assert 0 < near < far
    one = next(
        k for k in range(problem.num_layouts) if problem.degrees[k].tolist() == [8] + [1] * 4
    )
    assert problem.slow_tier_seconds(np.array([one]), np.array([((2, 2, 2), *[(1, 1, 1)] * 4)])) > 0


def test_orders_follow_the_software_with_dp_as_shards_inside_replicas() -> None:
    orders = {"tp-cp-dp-pp": ("tp", "cp", "dp", "pp"), "pp-first": ("pp", "dp", "tp")}
    _, problem, _ = some_problem(orders=orders)
    # DENSE_GRID.atoms: tp, cp, dp_shard, dp_replicate, pp; axes an order leaves out come last
    assert list(problem.framework_orders(0)) == [(0, 1, 2, 3, 4), (4, 2, 3, 0, 1)]
