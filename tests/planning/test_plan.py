"""The plan file: its keys are a contract, its numbers add up, its ranks are the placement."""

import json
from collections.abc import Mapping
from functools import cache
from math import isclose, prod
from typing import Any

import pytest

from planner import __version__, api
from planner.errors import InputError
from planner.layouts.grids import DENSE_GRID
from planner.planning.plan import SCHEMA_VERSION, Plan
from planner.problem.scenario import Scenario, Search, inputs_sha256
from tests.oracles import rank_coordinates, rank_factors
from tests.scenarios import (
    attention,
    kernels,
    small_accelerator,
    small_scenario,
    small_software,
    small_topology,
    small_training,
)

SHIPPED = ("llama3-8b-h100x8", "llama3-70b-4d-h100x1024", "llama3-405b-4d-h100x16384")
SCENARIOS = (*SHIPPED, "tiny", "nodes of 6", "replicas", "own order", "one")

# --- the contract ---------------------------------------------------------------------------------

KEYS = {
    "schema_version", "planner_version", "inputs", "inputs_sha256", "status", "objective_seconds",
    "bound_seconds", "gap_fraction", "mfu", "hfu", "step_seconds", "tokens_per_second",
    "tokens_per_second_per_accelerator", "days", "accelerator_hours", "cost", "layout", "fill",
    "placement", "rank_order", "rank_order_name", "time", "memory", "groups", "search",
    "runners_up", "excluded", "nearest_miss", "relaxations", "attention",
}  # fmt: skip
TIME_KEYS = [
    "compute_gemm", "compute_attention", "compute_memory_bound", "recompute", "loss", "tp", "cp",
    "ep", "pp", "dp", "optimizer", "offload", "host", "stage_imbalance", "bubble", "straggler",
    "unexplained",
]  # fmt: skip
LAYOUT_KEYS = {
    "tp", "cp", "pp", "dp", "dp_shard", "dp_replicate", "ep", "etp", "edp", "sp", "vp", "mbs",
    "num_microbatches", "zero_stage", "schedule", "stage_layers", "recompute", "cp_kind", "cp_a2a",
    "overlap", "offload", "recompute_layers", "loss_chunks",
}  # fmt: skip
GROUP_KEYS = {
    "bytes", "flops", "intensity", "exposed_intensity", "busy_seconds", "exposed_seconds", "tiers",
    "wall", "busbw",
}  # fmt: skip
SEARCH_KEYS = {"shapes", "placements", "opened", "seconds", "cpu_seconds", "excluded"}
MISS_KEYS = {"layout", "over_bytes", "stage", "term"}
WHOLE_MEMORY = {"peak_bytes", "capacity_bytes", "verdict", "worst_stage", "by_stage"}


@cache
def scenario_named(name: str) -> Scenario:
    if name in SHIPPED:
        return api.load_scenario(name)
    return {
        "tiny": small_scenario(16),
        "nodes of 6": small_scenario(
            24, topology=small_topology((6, 4)), training=small_training(global_batch_size=48),
            search=Search(tp=(2, 4), pp=(2, 4), tie_fraction=0.0),
        ),
        "replicas": small_scenario(
            72, topology=small_topology((72, 2)), training=small_training(global_batch_size=72),
            software=small_software(zero_stages=(3,)),
            search=Search(dp_replicate=(3, 9), cp=(1, 2)),
        ),
        # weights outweigh activations: the shards go inside, which no framework order does
        "own order": small_scenario(
            16, training=small_training(sequence_length=64),
            software=small_software(zero_stages=(3,)),
            search=Search(tp=(2,), pp=(2,), dp_replicate=(1,), tie_fraction=0.0),
        ),
        "one": small_scenario(1),
    }[name]  # fmt: skip


@cache
def planned(name: str) -> Plan:
    return api.plan(scenario_named(name), top_k=3)


@cache
def infeasible() -> Plan:
    part = small_accelerator(hbm_bytes=1.05e9)
    return api.plan(small_scenario(16, topology=small_topology(accelerator=part)))


def as_json(plan: Plan) -> dict[str, Any]:
    text = json.dumps(plan.to_document(), allow_nan=False)
    document: dict[str, Any] = json.loads(text)
    return document


@pytest.mark.parametrize("name", SCENARIOS)
def test_document_has_the_keys_of_the_contract(name: str) -> None:
    document = as_json(planned(name))
    assert set(document) >= KEYS
    assert document["schema_version"] == SCHEMA_VERSION == 3
    assert document["planner_version"] == __version__
    assert document["status"] == "optimal"
    assert list(document["time"]) == TIME_KEYS
    assert set(document["layout"]) >= LAYOUT_KEYS
    assert set(document["search"]) >= SEARCH_KEYS
    assert document["excluded"] == document["search"]["excluded"]
    tiers = scenario_named(name).topology.tier_names
    assert tuple(document["fill"]) == tiers
    assert tuple(document["placement"]) == DENSE_GRID.atoms
    assert all(tuple(factors) == tiers for factors in document["placement"].values())
    for group in document["groups"].values():
        assert set(group) >= GROUP_KEYS
        assert set(group["tiers"]) <= set(tiers)
        for tier in group["tiers"].values():
            assert set(tier) >= {"bytes", "busy_seconds", "ridge"}
    assert set(document["memory"]) >= WHOLE_MEMORY
    assert document["inputs"]["model"]["name"] == scenario_named(name).model.name
    assert len(document["runners_up"]) == (2 if planned(name).search is not None else 0)


def test_attention_is_that_of_the_software_unless_the_scenario_names_one() -> None:
    accelerator = small_accelerator(
        attention={"flash": attention(forward=0.6), "flash-v2": attention(forward=0.4)}
    )
    here = {"topology": small_topology(accelerator=accelerator)}
    slow = small_software(attention=kernels("flash-v2"))
    taken = {
        "fastest": api.plan(small_scenario(**here), top_k=1),
        "software": api.plan(small_scenario(**here, software=slow), top_k=1),
        "named": api.plan(
            small_scenario(**here, software=slow, training=small_training(attention="flash")),
            top_k=1,
        ),
    }
    found = {name: as_json(plan)["attention"] for name, plan in taken.items()}
    assert found == {"fastest": "flash", "software": "flash-v2", "named": "flash"}
    steps = {name: plan.objective_seconds for name, plan in taken.items()}
    assert steps["fastest"] == steps["named"] < steps["software"]


def test_the_layout_has_every_layout_key() -> None:
    assert set(as_json(planned("tiny"))["layout"]) == LAYOUT_KEYS | {"dispatcher"}


def test_infeasible_is_one_document_with_nulls() -> None:
    document = as_json(infeasible())
    assert set(document) >= KEYS
    assert document["status"] == "infeasible"
    for key in ("objective_seconds", "bound_seconds", "gap_fraction", "step_seconds", "mfu", "hfu",
                "layout", "fill", "placement", "rank_order", "time", "memory",
                "tokens_per_second"):  # fmt: skip
        assert document[key] is None, key
    assert document["excluded"]["memory"] > 0
    assert set(document["nearest_miss"]) >= MISS_KEYS
    assert isinstance(document["nearest_miss"]["stage"], int)
    assert document["nearest_miss"]["over_bytes"] > 0
    assert document["nearest_miss"]["term"] in document["nearest_miss"]["terms"]
    assert isinstance(document["relaxations"], list)


@pytest.mark.parametrize("name", SCENARIOS)
def test_inputs_hash_covers_the_whole_input(name: str) -> None:
    plan, scenario = planned(name), scenario_named(name)
    assert plan.inputs_sha256 == inputs_sha256(plan.inputs)
    other = scenario.replace(
        training=scenario.training.replace(
            global_batch_size=2 * scenario.training.global_batch_size
        )
    )
    assert api.plan(other).inputs_sha256 != plan.inputs_sha256


# --- round trip -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SCENARIOS)
def test_document_round_trip(name: str) -> None:
    plan = planned(name)
    assert Plan.from_document(plan.to_document()) == plan


@pytest.mark.parametrize("name", SCENARIOS)
def test_json_round_trip(name: str) -> None:
    document = as_json(planned(name))
    assert as_json(Plan.from_document(document)) == document


def test_a_plan_read_from_json_is_the_same_value() -> None:
    plan = planned("nodes of 6")
    assert Plan.from_document(as_json(plan)) == plan


def test_infeasible_and_evaluated_round_trip() -> None:
    for plan in (infeasible(), api.evaluate(small_scenario(16), "tp=2,pp=2")):
        assert Plan.from_document(plan.to_document()) == plan
        assert as_json(Plan.from_document(as_json(plan))) == as_json(plan)


@pytest.mark.parametrize("document", [None, [], {}, "plan", {"status": "optimal"}])
def test_what_is_no_document_is_refused(document: Any) -> None:
    with pytest.raises(InputError, match="not a plan file"):
        Plan.from_document(document)


@pytest.mark.parametrize("version", [0, 1, 2, 4, "3", None])
def test_another_version_is_refused(version: Any) -> None:
    document = {**as_json(planned("tiny")), "schema_version": version}
    with pytest.raises(InputError) as caught:
        Plan.from_document(document, "p.json")
    assert (caught.value.path, caught.value.key) == ("p.json", "schema_version")


@pytest.mark.parametrize(
    ("key", "value"),
    [("memory", {}), ("memory", 3), ("groups", {"tp": {}}), ("search", {"shapes": 1}),
     ("runners_up", [{}]), ("swaps", [{}]), ("groups", {"tp": 1})],
)  # fmt: skip
def test_broken_parts_are_refused(key: str, value: Any) -> None:
    with pytest.raises(InputError):
        Plan.from_document({**as_json(planned("tiny")), key: value})


@pytest.mark.parametrize("key", ["inputs", "inputs_sha256", "status"])
def test_a_document_without_its_head_is_refused(key: str) -> None:
    document = as_json(planned("tiny"))
    del document[key]
    with pytest.raises(InputError):
        Plan.from_document(document)


# --- numbers add up -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SCENARIOS)
def test_time_terms_sum_to_the_step(name: str) -> None:
    plan = planned(name)
    assert plan.time is not None and plan.step_seconds is not None
    assert isclose(sum(plan.time.values()), plan.step_seconds, rel_tol=1e-9)
    assert all(seconds >= -1e-12 * plan.step_seconds for seconds in plan.time.values())
    assert plan.time["ep"] == 0


@pytest.mark.parametrize("name", SCENARIOS)
def test_objective_bound_and_gap_belong_together(name: str) -> None:
    plan = planned(name)
    assert plan.status == "optimal"
    assert plan.objective_seconds is not None and plan.step_seconds is not None
    assert plan.bound_seconds == pytest.approx(plan.objective_seconds, rel=1e-9)
    assert plan.gap_fraction == pytest.approx(0.0, abs=1e-9)
    limit = plan.objective_seconds * (1 + scenario_named(name).search.tie_fraction)
    assert plan.objective_seconds * (1 - 1e-9) <= plan.step_seconds <= limit * (1 + 1e-9)


@pytest.mark.parametrize("name", SCENARIOS)
def test_memory_terms_sum_to_the_peak_of_the_worst_stage(name: str) -> None:
    memory = planned(name).memory
    layout = planned(name).layout
    assert memory is not None and layout is not None
    assert isclose(sum(memory.terms.values()), memory.peak_bytes, rel_tol=1e-9)
    assert min(memory.terms.values()) >= 0
    assert [stage["stage"] for stage in memory.by_stage] == list(range(layout.pp))
    peaks = [stage["peak_bytes"] for stage in memory.by_stage]
    assert peaks[memory.worst_stage] == max(peaks) == pytest.approx(memory.peak_bytes)
    assert [stage["layers"] for stage in memory.by_stage] == list(layout.stage_layers or ())
    assert sum(layout.stage_layers or ()) == scenario_named(name).model.num_layers
    assert memory.verdict == "fits" and memory.peak_bytes < memory.capacity_bytes


@pytest.mark.parametrize("name", SCENARIOS)
def test_utilisation_and_rates(name: str) -> None:
    plan, scenario = planned(name), scenario_named(name)
    assert plan.mfu is not None and plan.hfu is not None and plan.step_seconds is not None
    assert 0 < plan.mfu <= plan.hfu <= 1
    tokens = scenario.training.global_batch_size * scenario.training.sequence_length
    assert plan.tokens_per_second == pytest.approx(tokens / plan.step_seconds)
    assert plan.tokens_per_second_per_accelerator == pytest.approx(
        tokens / plan.step_seconds / scenario.num_accelerators
    )
    assert plan.mfu_denominator is not None
    peak = scenario.topology.accelerator.peak_flops["bf16"]
    assert plan.mfu_denominator.peak_flops == peak
    assert plan.mfu_bf16 == pytest.approx(plan.mfu)


@pytest.mark.parametrize("name", SCENARIOS)
def test_groups_add_up(name: str) -> None:
    plan = planned(name)
    assert plan.layout is not None and plan.time is not None and plan.placement is not None
    members = {
        "tp": plan.layout.tp, "cp": plan.layout.cp, "pp": plan.layout.pp,
        "shard": plan.layout.cp * plan.layout.dp_shard,
        "replicate": plan.layout.dp_replicate,
    }  # fmt: skip
    assert {k: g.members for k, g in plan.groups.items()} == {
        k: n for k, n in members.items() if n > 1
    }
    for group in plan.groups.values():
        assert prod(group.split.values()) == pytest.approx(group.members)
        assert group.exposed_seconds >= 0
        assert group.busy_seconds >= group.latency_seconds - 1e-15
        if group.bytes:
            assert group.intensity == pytest.approx(group.flops / group.bytes)
        assert group.bytes == pytest.approx(
            max((tier["bytes"] for tier in group.tiers.values()), default=group.bytes)
        )
    exposed = {k: group.exposed_seconds for k, group in plan.groups.items()}
    for term, names in (("tp", ["tp"]), ("cp", ["cp"]), ("pp", ["pp"]),
                        ("dp", ["shard", "replicate"])):  # fmt: skip
        assert sum(exposed.get(group, 0.0) for group in names) == pytest.approx(
            plan.time[term], rel=1e-9, abs=1e-15
        )


def test_days_hours_and_cost() -> None:
    scenario = small_scenario(
        16, training=small_training(total_tokens=3e9), price_per_accelerator_hour=2.5
    )
    plan = api.plan(scenario)
    assert plan.step_seconds is not None
    steps = 3e9 / (16 * 2048)
    assert plan.days == pytest.approx(steps * plan.step_seconds / 86400)
    assert plan.accelerator_hours == pytest.approx(16 * steps * plan.step_seconds / 3600)
    assert plan.cost == pytest.approx(2.5 * (plan.accelerator_hours or 0))
    without = planned("tiny")
    assert (without.days, without.accelerator_hours, without.cost) == (None, None, None)


# --- ranks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n in SCENARIOS if n != SHIPPED[2]])
def test_rank_order_gives_the_placement(name: str) -> None:
    plan = planned(name)
    assert plan.rank_order is not None and plan.fill is not None and plan.placement is not None
    order = [(atom, factor) for atom, factor in plan.rank_order]
    degrees = dict.fromkeys(DENSE_GRID.atoms, 1)
    for atom, factor in order:
        assert factor > 1
        degrees[atom] *= factor
    assert plan.layout is not None
    assert all(degrees[atom] == getattr(plan.layout, atom) for atom in DENSE_GRID.atoms)
    ranks = rank_coordinates(order)
    assert len({tuple(c.values()) for c in ranks}) == len(ranks) == prod(plan.fill.values())
    assert rank_factors(order, list(plan.fill.values())) == {
        atom: list(factors.values()) for atom, factors in plan.placement.items()
    }
    widths = scenario_named(name).topology.widths
    assert all(used <= width for used, width in zip(plan.fill.values(), widths, strict=True))


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_named_order_lists_its_axes_in_turn(name: str) -> None:
    plan, scenario = planned(name), scenario_named(name)
    assert plan.rank_order is not None
    if plan.rank_order_name is None:
        return
    axes = scenario.software.orders[plan.rank_order_name]
    turn = [a for axis in axes for a in (("dp_shard", "dp_replicate") if axis == "dp" else (axis,))]
    named = [atom for atom, _ in plan.rank_order]
    assert named == [atom for atom in turn if atom in named]


# --- the plan's own layout, evaluated -------------------------------------------------------------


def as_text(layout: Mapping[str, Any]) -> str:
    """The layout as a user would type it."""
    parts = []
    for key, value in layout.items():
        if isinstance(value, list):
            value = "+".join(map(str, value))
        if value is not None:
            parts.append(f"{key}={value}")
    return ",".join(parts)


@pytest.mark.parametrize("name", SCENARIOS)
def test_evaluate_of_the_plans_layout_is_no_worse(name: str) -> None:
    scenario = scenario_named(name)
    exact = scenario.replace(search=scenario.search.replace(tie_fraction=0.0))
    plan = api.plan(exact)
    assert plan.layout is not None and plan.step_seconds is not None
    for layout in (as_text(plan.layout.to_document()), plan.layout):
        again = api.evaluate(exact, layout)
        assert again.layout == plan.layout
        assert again.step_seconds is not None
        assert again.step_seconds <= plan.step_seconds * (1 + 1e-9)
        assert again.memory == plan.memory


@pytest.mark.parametrize("name", SCENARIOS)
def test_evaluate_of_a_tied_plan_stays_in_the_tie_band(name: str) -> None:
    plan, scenario = planned(name), scenario_named(name)
    assert plan.layout is not None
    text = as_text({k: v for k, v in plan.layout.to_document().items() if k != "stage_layers"})
    again = api.evaluate(scenario, text)
    assert again.step_seconds is not None and plan.step_seconds is not None
    assert again.step_seconds <= plan.step_seconds * (1 + scenario.search.tie_fraction)


@pytest.mark.parametrize("name", SCENARIOS)
def test_runners_up_are_layouts_that_evaluate_to_their_step(name: str) -> None:
    scenario = scenario_named(name)
    exact = scenario.replace(search=scenario.search.replace(tie_fraction=0.0))
    for runner in api.plan(exact, top_k=3).runners_up:
        again = api.evaluate(exact, as_text({**runner.layout.to_document(), "stage_layers": None}))
        assert again.step_seconds == pytest.approx(runner.step_seconds, rel=1e-9)
