"""One call each: plans, single layouts, comparisons, names; what is refused and how."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from planner import api
from planner.cost.context import CostContext
from planner.errors import IllegalLayoutError, InputError
from planner.planning.plan import Plan
from planner.problem.scenario import Search
from planner.problem.topology import Topology
from planner.search.space.given import given_layout, parse_layout
from tests.oracles import plain_least_step
from tests.scenarios import (
    SHIPPED_4D,
    objective,
    shipped_plan,
    small_scenario,
    small_software,
    small_topology,
    small_training,
    with_accelerator,
)

# --- status, limits -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["llama3-8b-h100x8", *SHIPPED_4D])
def test_a_time_limit_of_nothing_gives_a_valid_bound(name: str) -> None:
    proven = shipped_plan(name).objective_seconds
    plan = api.plan(api.load_scenario(name), time_limit_seconds=0)
    assert proven is not None and plan.bound_seconds is not None
    assert plan.status in ("feasible", "unknown")
    assert plan.bound_seconds <= proven * (1 + 1e-9)
    if plan.status == "feasible":
        assert plan.objective_seconds is not None and plan.gap_fraction is not None
        assert plan.objective_seconds >= proven * (1 - 1e-9)
        assert 0 <= plan.gap_fraction < 1
    else:
        assert plan.objective_seconds is None and plan.layout is None


def test_no_incumbent_in_no_time_is_unknown() -> None:
    """tp=2 innermost does not nest in domains of 3, so no framework order can be costed."""
    scenario = small_scenario(
        6, topology=small_topology((3, 2)), search=Search(tp=(2,), dp=(3,)),
        training=small_training(global_batch_size=12),
    )  # fmt: skip
    plan = api.plan(scenario, time_limit_seconds=0)
    assert plan.status == "unknown" and plan.step_seconds is None
    assert plan.bound_seconds is not None and plan.bound_seconds <= objective(scenario)
    assert plan.relaxations == ()


def test_search_that_nothing_allows_is_infeasible_with_reasons() -> None:
    plan = api.plan(small_scenario(16, search=Search(tp=(5,))))
    assert plan.status == "infeasible"
    assert plan.search is not None and plan.search.excluded["search"] > 0
    assert plan.objective_seconds is None and plan.bound_seconds is None


def test_top_k_is_the_number_of_layouts_shown() -> None:
    scenario = small_scenario(16)
    for top_k in (1, 2, 7):
        assert len(api.plan(scenario, top_k=top_k).runners_up) == top_k - 1
    few = api.plan(
        scenario.replace(search=Search(tp=(2,), pp=(1,), cp=(1,), mbs=(1,), sp=(False,),
                                       dp_replicate=(1,))), top_k=50,
    )  # fmt: skip
    assert few.search is not None and len(few.runners_up) == few.search.shapes - 1


def test_runners_up_say_what_they_lose() -> None:
    plan = api.plan(small_scenario(16), top_k=4)
    assert plan.time is not None and plan.step_seconds is not None
    for runner in plan.runners_up:
        assert runner.step_seconds == pytest.approx(
            plan.step_seconds + sum(runner.terms.values()), rel=1e-9
        )
        assert runner.loss_fraction == pytest.approx(
            runner.step_seconds / plan.step_seconds - 1, abs=1e-12
        )
        assert set(runner.terms) == set(plan.time)


def test_more_than_half_a_cluster_of_72_may_use_64() -> None:
    scenario = small_scenario(
        128, topology=small_topology((72, 2)), training=small_training(global_batch_size=128)
    )
    plan = api.plan(scenario)
    assert plan.fill == {"tier0": 64, "tier1": 2}


def test_experts_are_planned_like_everything_else() -> None:
    """The plan is proven, says where experts live, and is found again in its file."""
    scenario = api.load_scenario("mixtral-8x7b-h100x64", {"num_accelerators": "16"})
    plan = api.plan(scenario, top_k=2)
    assert plan.status == "optimal" and plan.layout is not None
    experts = plan.layout.ep * plan.layout.etp
    assert experts > 1  # 47 billion parameters do not fit in 80 GB whole
    assert plan.layout.edp * experts == plan.layout.tp * plan.layout.cp * plan.layout.dp
    found = {group: report.members for group, report in plan.groups.items()}
    assert found.get("ep", 1) == plan.layout.ep and found.get("etp", 1) == plan.layout.etp
    placed = api.evaluate(scenario, replace(plan.layout, stage_layers=None))
    assert placed.step_seconds == pytest.approx(plan.step_seconds, rel=0.01)


# --- one layout -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["", "tp=2", "tp=4,pp=2", "tp=2,cp=2,pp=2,vp=2", "dp_shard=4,zero_stage=3", "tp=8,mbs=2,sp=1",
     "cp=4,cp_kind=a2a", "pp=4,recompute=none,overlap=none"],
)  # fmt: skip
def test_evaluate_takes_the_best_placement(text: str) -> None:
    able = small_software(cp_kinds=("ring", "a2a"))
    scenario = small_scenario(16, software=able, search=Search(tie_fraction=0.0))
    plan = api.evaluate(scenario, text)
    ctx = CostContext.of(scenario)
    layout = given_layout(ctx, parse_layout(text))
    assert plan.status == "feasible"
    assert plan.step_seconds == pytest.approx(plain_least_step(ctx, layout), rel=1e-9)
    assert plan.search is None and plan.objective_seconds is None


def test_evaluate_takes_the_best_placement_of_uneven_stages() -> None:
    """Under ZeRO-3 with short sequences the shards belong inside, whatever the stages."""
    scenario = small_scenario(
        16,
        training=small_training(sequence_length=64, global_batch_size=16),
        search=Search(tie_fraction=0.0),
    )
    text = "tp=2,pp=2,zero_stage=3,stage_layers=1+3"
    ctx = CostContext.of(scenario)
    layout = given_layout(ctx, parse_layout(text))
    assert layout.stage_layers == (1, 3)
    plan = api.evaluate(scenario, text)
    assert plan.layout is not None and plan.layout.stage_layers == (1, 3)
    assert plan.step_seconds == pytest.approx(plain_least_step(ctx, layout), rel=1e-9)


def test_evaluate_of_the_default_stages_is_evaluate_without_them() -> None:
    scenario = small_scenario(16)
    plain = api.evaluate(scenario, "tp=2,pp=2")
    spelled = api.evaluate(scenario, "tp=2,pp=2,stage_layers=2+2")
    assert spelled == plain


def test_evaluate_keeps_to_the_orders_the_scenario_allows() -> None:
    free = small_scenario(16, search=Search(tie_fraction=0.0))
    free = free.replace(training=small_training(sequence_length=64, global_batch_size=16))
    text = "tp=2,zero_stage=3"
    assert api.evaluate(free, text).rank_order_name is None
    ordered = free.replace(search=Search(tie_fraction=0.0, orders="framework"))
    assert api.evaluate(ordered, text).rank_order_name == "tp-cp-dp-pp"


def test_layouts_that_fit_no_domains_are_costed_by_their_ranks() -> None:
    scenario = small_scenario(11, training=small_training(global_batch_size=11))
    plan = api.evaluate(scenario, "")
    assert plan.status in ("feasible", "infeasible") and plan.step_seconds is not None
    assert plan.fill is None and plan.placement is None
    assert plan.rank_order == (("dp_shard", 11),)
    assert plan.rank_order_name == "tp-cp-dp-pp"
    assert any("rank order" in warning for warning in plan.warnings)


def test_evaluate_says_whether_it_fits() -> None:
    scenario = small_scenario(16)
    for hbm_bytes, verdict in ((80e9, "fits"), (1e9, "no")):
        plan = api.evaluate(with_accelerator(scenario, hbm_bytes=hbm_bytes), "tp=2")
        assert plan.memory is not None and plan.memory.verdict == verdict
    peak = plan.memory.peak_bytes if plan.memory is not None else 0.0
    fragile = api.evaluate(with_accelerator(scenario, hbm_bytes=peak * 1.01), "tp=2")
    assert fragile.memory is not None and fragile.memory.verdict == "fragile"
    assert any("fragile" in warning for warning in fragile.warnings)


def test_evaluate_refuses_what_no_rule_allows() -> None:
    with pytest.raises(IllegalLayoutError):
        api.evaluate(small_scenario(16), "tp=3")
    with pytest.raises(InputError):
        api.evaluate(small_scenario(16), {"tpp": 2})


def test_evaluate_many_gives_a_plan_or_the_broken_rule_for_each() -> None:
    scenario = small_scenario(16)
    rows: list[Mapping[str, Any]] = [{"tp": "2"}, {"tp": "3"}, {"tp": 4, "pp": 2}, {"vp": 2}]
    found = api.evaluate_many(scenario, rows)
    assert [type(result) for result in found] == [
        Plan, IllegalLayoutError, Plan, IllegalLayoutError,
    ]  # fmt: skip
    assert found[0] == api.evaluate(scenario, "tp=2")
    assert found[2] == api.evaluate(scenario, "tp=4,pp=2")
    with pytest.raises(InputError):
        api.evaluate_many(scenario, [{"tp": "2"}, {"nonsense": "2"}])


# --- plans as values ------------------------------------------------------------------------------


def test_read_plan_takes_the_file_or_its_folder(tmp_path: Path) -> None:
    plan = shipped_plan(SHIPPED_4D[0])
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan.to_document(), allow_nan=False))
    for path in (file, str(file), tmp_path):
        document = json.dumps(api.read_plan(path).to_document(), allow_nan=False)
        assert json.loads(document) == json.loads(file.read_text())


@pytest.mark.parametrize("text", ["", "nonsense", "[]", "{}", '{"schema_version": 99}', "\x00"])
def test_what_is_no_plan_is_refused_by_name(tmp_path: Path, text: str) -> None:
    file = tmp_path / "plan.json"
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        api.read_plan(file)
    assert "plan.json" in str(caught.value)


def test_a_missing_plan_is_refused_by_name(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "other.json"):
        with pytest.raises(InputError, match=path.name):
            api.read_plan(path)


def test_scenario_of_a_plan_is_the_scenario() -> None:
    scenario = api.load_scenario("llama3-8b-h100x8")
    plan = shipped_plan("llama3-8b-h100x8")
    assert api.scenario_of(plan) == scenario
    again = Plan.from_document(json.loads(json.dumps(plan.to_document())))
    assert api.scenario_of(again) == scenario
    assert api.plan(api.scenario_of(again)).objective_seconds == plan.objective_seconds


def test_compare_goes_term_by_term() -> None:
    scenario = small_scenario(16)
    first, second = api.plan(scenario), api.evaluate(scenario, "tp=8,sp=1")
    found = api.compare(first, second)
    assert first.time is not None and second.time is not None
    assert set(found.time) == set(first.time)
    for term, (a, b, more) in found.time.items():
        assert (a, b) == (first.time[term], second.time[term])
        assert more == pytest.approx(b - a)
    assert sum(more for _, _, more in found.time.values()) == pytest.approx(
        (second.step_seconds or 0) - (first.step_seconds or 0), rel=1e-9
    )
    assert "peak_bytes" in found.memory
    json.dumps(found.to_document(), allow_nan=False)
    same = api.compare(first, first)
    assert all(more == 0 for _, _, more in (*same.time.values(), *same.memory.values()))


def test_compare_refuses_a_plan_without_a_layout() -> None:
    scenario = small_scenario(16)
    nothing = api.plan(scenario.replace(search=Search(tp=(5,))))
    with pytest.raises(InputError, match=r"without a layout.*second is of status infeasible"):
        api.compare(api.plan(scenario), nothing)


def test_names_and_schemas() -> None:
    assert "dgx-h100" in api.names("topology")
    assert "llama3-405b" in api.names("model")
    assert set(SHIPPED_4D) <= set(api.names("scenario"))
    assert "megatron-core" in api.names("software")
    for kind in ("scenario", "topology", "model"):
        schema = api.schema(kind)
        assert schema["type"] == "object" and schema["properties"]
        json.dumps(schema)
    with pytest.raises(InputError, match="scenario"):
        api.schema("plan")


def test_overrides_are_applied_before_planning() -> None:
    scenario = api.load_scenario("llama3-8b-h100x8", {"search.tp": "4", "search.mbs": "1"})
    plan = api.plan(scenario)
    assert plan.layout is not None and (plan.layout.tp, plan.layout.mbs) == (4, 1)
    assert isinstance(scenario.topology, Topology)
