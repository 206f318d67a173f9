"""No layout fits: the nearest miss by brute force, and relaxations checked by planning them."""

from typing import Any

import pytest

from planner import api
from planner.cost.context import CostContext
from planner.planning.assess import memory_report
from planner.planning.plan import Plan
from planner.problem.scenario import Scenario, Search
from planner.search.infeasible.relaxation import nearest_miss, of_open
from planner.search.space.enumerate import layouts
from tests.scenarios import (
    small_accelerator,
    small_model,
    small_scenario,
    small_software,
    small_topology,
    small_training,
)


def tight(hbm_bytes: float, num: int = 16, **changes: Any) -> Scenario:
    """A scenario whose accelerators have little memory; the software's own share is small."""
    values: dict[str, Any] = {
        "topology": small_topology((4, 16), accelerator=small_accelerator(hbm_bytes=hbm_bytes)),
        "software": small_software(
            runtime_bytes=1e7, communicator_bytes=1e6,
            zero_stages=(0, 1), recompute=("none", "full"),
        ),
        "training": small_training(global_batch_size=64),
    }  # fmt: skip
    return small_scenario(num, **(values | changes))


def peaks(scenario: Scenario) -> list[float]:
    """Peak of every legal layout, by the scalar report."""
    ctx = CostContext.of(scenario)
    table, _ = layouts(ctx, scenario.search)
    return [memory_report(ctx, table.row(i)).peak_bytes for i in range(len(table))]


def relaxed(scenario: Scenario, change: dict[str, Any]) -> Scenario:
    """The scenario with a relaxation's changes applied, as --set would."""
    for key, value in change.items():
        part, _, name = key.partition(".")
        if part == "search":
            listed = (value,) if name == "offload" and value is not None else value
            scenario = scenario.replace(search=scenario.search.replace(**{name: listed}))
        elif part == "training":
            scenario = scenario.replace(training=scenario.training.replace(**{name: value}))
        else:
            scenario = scenario.replace(**{key: value})
    return scenario


def check_relaxations(scenario: Scenario, plan: Plan) -> set[str]:
    """Every relaxation makes the scenario plannable; returns the keys they change."""
    assert plan.status == "infeasible"
    for relaxation in plan.relaxations:
        other = api.plan(relaxed(scenario, dict(relaxation["change"])))
        assert other.status == "optimal", relaxation["change"]
        assert other.memory is not None
        assert other.memory.peak_bytes >= relaxation["peak_bytes"] * (1 - 1e-9)
        assert other.search is not None
        assert 0 < other.search.shapes <= relaxation["layouts_that_fit"]
    return {key for relaxation in plan.relaxations for key in relaxation["change"]}


# --- the nearest miss -----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("hbm_bytes", [5e7, 1e8, 1.5e8])
def test_nearest_miss_is_the_least_peak_of_all(hbm_bytes: float) -> None:
    scenario = tight(hbm_bytes)
    plan = api.plan(scenario)
    assert plan.status == "infeasible"
    assert plan.nearest_miss is not None
    least = min(peaks(scenario))
    assert least > hbm_bytes
    assert plan.nearest_miss["over_bytes"] == pytest.approx(least - hbm_bytes, rel=1e-9)
    assert plan.search is not None
    assert plan.search.excluded["memory"] == len(peaks(scenario))
    assert plan.search.shapes == 0
    assert plan.step_seconds is None and plan.layout is None and plan.runners_up == ()


@pytest.mark.parametrize("search", [Search(), Search(pp=(2, 4)), Search(pp=(4,), vp=(1,))])
def test_nearest_miss_names_its_stage_and_largest_term(search: Search) -> None:
    scenario = tight(5e7, search=search)
    miss = api.plan(scenario).nearest_miss
    assert miss is not None
    ctx = CostContext.of(scenario)
    table, _ = layouts(ctx, search)
    (layout,) = [
        row for row in map(table.row, range(len(table))) if row.to_document() == miss["layout"]
    ]
    report = memory_report(ctx, layout)
    assert miss["peak_bytes"] == pytest.approx(report.peak_bytes, rel=1e-12)
    assert miss["terms"] == pytest.approx(dict(report.terms), rel=1e-12)
    assert miss["term"] == max(report.terms, key=lambda term: report.terms[term])
    stages = [s["stage"] for s in report.by_stage if s["peak_bytes"] == report.peak_bytes]
    assert miss["stage"] in stages


@pytest.mark.parametrize("schedule", ["zb-v", "dualpipev", "dualpipe"])
@pytest.mark.parametrize("num_layers", [11, 15, 16])
def test_nearest_miss_of_a_folded_schedule_names_the_rank(schedule: str, num_layers: int) -> None:
    """A rank holds two stages of the pipeline: the fullest rank is not that of one stage."""
    search = Search(pp=(4,), schedule=(schedule,))
    model = small_model(num_layers=num_layers, vocab_size=8)  # light ends: the layers decide
    software = small_software(schedules=(schedule,))
    large = tight(1e12, model=model, software=software, search=search)
    table, _ = layouts(CostContext.of(large), search)
    ctx = CostContext.of(large.replace(topology=tight(5e7).topology))
    checked = 0
    for i in range(len(table)):
        miss = nearest_miss(ctx, search, table.take(slice(i, i + 1)))
        report = memory_report(ctx, table.row(i))
        if miss is None:
            continue
        stages = [s["stage"] for s in report.by_stage if s["peak_bytes"] == report.peak_bytes]
        assert miss["stage"] in stages
        checked += 1
    assert checked


@pytest.mark.slow
def test_a_layout_inside_the_fragile_band_misses_the_band_not_the_capacity() -> None:
    """Where only `fits` is fits_in_memory, the miss is what lies above the band."""
    free = tight(1e12)
    capacity = min(peaks(free)) * 1.02
    scenario = tight(capacity)
    plan = api.plan(scenario)
    assert plan.status == "infeasible" and plan.nearest_miss is not None
    assert plan.nearest_miss["over_bytes"] > 0
    assert "search.memory" in check_relaxations(scenario, plan)


def test_no_legal_layout_has_no_nearest_miss() -> None:
    plan = api.plan(small_scenario(16, search=Search(tp=(5,))))
    assert plan.status == "infeasible"
    assert plan.nearest_miss is None
    assert plan.search is not None and plan.search.excluded["search"] > 0
    assert "search" in plan.search.rule_texts


# --- relaxations ----------------------------------------------------------------------------------


def test_more_accelerators_are_found_where_they_help() -> None:
    scenario = tight(1.5e8, 4)
    keys = check_relaxations(scenario, api.plan(scenario))
    assert "num_accelerators" in keys


def test_a_restriction_that_bars_what_fits_is_named() -> None:
    free = tight(4e8)
    assert api.plan(free).status == "optimal"
    scenario = free.replace(search=Search(tp=(1,), pp=(1,), recompute=("none",), zero_stage=(0,)))
    plan = api.plan(scenario)
    check_relaxations(scenario, plan)
    names = ("tp", "pp", "recompute", "zero_stage")
    changes = [set(relaxation["change"]) for relaxation in plan.relaxations]
    assert {f"search.{name}" for name in names} in changes
    for name in names:
        other = api.plan(scenario.replace(search=scenario.search.replace(**{name: None})))
        assert ({f"search.{name}"} in changes) == (other.status == "optimal")


@pytest.mark.parametrize("search", [Search(tp=(5,)), Search(tp=(8,), pp=(4,)), Search(mbs=(7,))])
def test_restrictions_that_no_rule_allows_are_named(search: Search) -> None:
    scenario = small_scenario(16, search=search)
    keys = check_relaxations(scenario, api.plan(scenario))
    assert keys == {f"search.{name}" for name, value in search if value != getattr(Search(), name)}


def test_a_count_that_fills_no_domains_is_not_cured_by_memory() -> None:
    """Eleven ranks fit no domains of 4 in groups of 4, whatever the memory."""
    scenario = small_scenario(11, training=small_training(global_batch_size=11))
    plan = api.plan(scenario)
    check_relaxations(scenario, plan)


def test_an_order_the_domains_do_not_nest_in_is_not_cured_by_memory() -> None:
    """tp=2 innermost does not nest in domains of 3; a free placement does."""
    search = Search(tp=(2,), dp=(3,), orders="framework")
    scenario = small_scenario(
        6, topology=small_topology((3, 2)), search=search,
        training=small_training(global_batch_size=12),
    )  # fmt: skip
    assert api.plan(scenario.replace(search=search.replace(orders="any"))).status == "optimal"
    check_relaxations(scenario, api.plan(scenario))


def test_nothing_helps_where_nothing_can() -> None:
    scenario = tight(1e7, topology=small_topology(accelerator=small_accelerator(hbm_bytes=1e7)))
    plan = api.plan(scenario)
    assert plan.status == "infeasible"
    assert plan.relaxations == ()
    assert plan.nearest_miss is not None


def test_layouts_that_fit_are_no_misses() -> None:
    """Infeasible for want of a placement, or unknown for want of time: memory is not the reason."""
    count = small_scenario(11, training=small_training(global_batch_size=11))
    order = small_scenario(
        6, topology=small_topology((3, 2)), search=Search(tp=(2,), dp=(3,)),
        training=small_training(global_batch_size=12),
    )  # fmt: skip
    unknown = api.plan(order, time_limit_seconds=0)
    assert unknown.status == "unknown"
    for plan in (api.plan(count), unknown):
        assert plan.nearest_miss is None or plan.nearest_miss["over_bytes"] > 0


def test_what_is_changed_is_open_no_more() -> None:
    asked = small_scenario(8, search=Search(num_accelerators=(4, 8), precision=("bf16",)))
    found = of_open(asked, [{"change": {"training.precision": "fp8", "num_accelerators": 16}}])
    (change,) = (dict(one["change"]) for one in found)
    open_no_more = {"search.precision": None, "search.num_accelerators": None}
    assert change == {"training.precision": "fp8", "num_accelerators": 16, **open_no_more}
    alone = ({"change": {"search.tp": None}},)
    assert of_open(asked, alone) == alone
