"""Groups in their places: intensities, ranks, ridges and exchanges by hand and from the plan."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from planner import api
from planner.advise.actions import LABELS
from planner.advise.explain import Explanation, GroupPlace, depth, explain_plan
from planner.planning.plan import Plan
from tests.expert_scenarios import experts
from tests.scenarios import (
    PEAK,
    SHIPPED_4D,
    fabric,
    model,
    scenario,
    shipped_plan,
    small_model,
    small_scenario,
    small_software,
    small_topology,
    small_training,
    topology,
    training,
)


def explained(name: str) -> Explanation:
    return explain_plan(api.load_scenario(name), shipped_plan(name))


def places(explanation: Explanation) -> dict[str, GroupPlace]:
    return {group.name: group for group in explanation.groups}


@pytest.fixture(scope="module")
def found() -> Explanation:
    return explained(SHIPPED_4D[0])


def test_every_group_of_the_plan_is_explained(found: Explanation) -> None:
    plan = shipped_plan(SHIPPED_4D[0])
    assert found.plan is plan
    assert set(places(found)) == set(plan.groups) == {"tp", "cp", "shard", "pp"}
    for name, place in places(found).items():
        group = plan.groups[name]
        assert (place.members, place.intensity, place.wall) == (
            group.members, group.intensity, group.wall,
        )  # fmt: skip
        assert place.wall == max(place.walls, key=lambda wall: place.walls[wall])
        assert place.spans == tuple(group.tiers)


def test_ranks_are_those_of_the_intensities(found: Explanation) -> None:
    groups = places(found)
    for rank, name in enumerate(found.intensity_order, 1):
        assert groups[name].intensity_rank == rank
    values = [groups[name].intensity for name in found.intensity_order]
    assert values == sorted(values, key=lambda v: v or 0.0)
    assert found.intensity_order[0] == "tp"
    for rank, name in enumerate(found.exposed_order, 1):
        assert groups[name].exposed_rank == rank


def test_ridge_and_ratio_are_of_the_tier_that_sets_the_pace(found: Explanation) -> None:
    plan = shipped_plan(SHIPPED_4D[0])
    rates = {t.name: t.bytes_per_second for t in api.scenario_of(plan).topology.tiers}
    peak = plan.mfu_denominator.peak_flops if plan.mfu_denominator else 0.0
    for name, place in places(found).items():
        tiers = plan.groups[name].tiers
        assert tiers[place.tier]["busy_seconds"] == max(c["busy_seconds"] for c in tiers.values())
        assert place.ridge == pytest.approx(peak / rates[place.tier])
        own = plan.groups[name].flops / tiers[place.tier]["bytes"]
        assert place.tier_intensity == pytest.approx(own)
        assert place.ridge_ratio == pytest.approx(own / place.ridge)
        for tier, ratio in place.ridge_ratios.items():
            assert ratio == pytest.approx((place.intensity or 0.0) * rates[tier] / peak)


def test_exchanges_are_the_plans_swaps_seen_from_both_sides(found: Explanation) -> None:
    groups = places(found)
    atoms = {"tp": "tp", "cp": "cp", "shard": "dp_shard", "pp": "pp"}
    swaps = {frozenset(s.atoms): s.seconds for s in shipped_plan(SHIPPED_4D[0]).swaps}
    for name, place in groups.items():
        others = set(groups) - {name}
        assert set(place.exchanges) == others
        for other, cost in place.exchanges.items():
            assert cost == swaps[frozenset((atoms[name], atoms[other]))]
            assert groups[other].exchanges[name] == cost


def test_places_are_ordered_from_the_inside(found: Explanation) -> None:
    plan = shipped_plan(SHIPPED_4D[0])
    depths = [depth(plan.groups[name]) for name in found.place_order]
    assert depths == sorted(depths)
    for pair in found.inversions:
        assert depth(plan.groups[pair.inner]) < depth(plan.groups[pair.outer])


def test_an_inversion_is_told_with_what_the_other_order_costs() -> None:
    """pp inside, tp outside: against their intensities, and dear."""
    problem = scenario(
        topology=topology([fabric(bytes_per_second=1e8), fabric(bytes_per_second=1e6)], [2, 2]),
        model=model(num_layers=4),
    )
    plan = api.evaluate(problem, "tp=2,pp=2")
    assert not explain_plan(problem, plan).inversions
    groups = dict(zip(("tp", "pp"), (plan.groups["tp"], plan.groups["pp"]), strict=True))
    exchanged = {
        "tp": replace(groups["tp"], split=groups["pp"].split, tiers=groups["pp"].tiers),
        "pp": replace(groups["pp"], split=groups["tp"].split, tiers=groups["tp"].tiers),
    }
    (pair,) = explain_plan(problem, replace(plan, groups=exchanged)).inversions
    assert (pair.inner, pair.outer) == ("pp", "tp")
    assert pair.exchange_seconds == plan.swaps[0].seconds


def test_the_intensity_of_a_lone_group_by_hand() -> None:
    """ZeRO-1 over 2: gradients (4 B) reduced and parameters (2 B) gathered, half of each moves."""
    problem = scenario(topology=topology([fabric(bytes_per_second=1e6)], [2]))
    found = api.explain(problem, "dp=2")
    (group,) = found.groups
    toy = problem.model
    moved = (4 + 2) * toy.num_parameters / 2
    assert group.tier_intensity == group.intensity
    assert group.intensity is not None
    assert group.intensity * moved == pytest.approx(found.plan.groups["shard"].flops)
    assert group.ridge == pytest.approx(PEAK / 1e6)
    assert group.walls["bandwidth"] == pytest.approx(moved / 1e6)
    assert group.exchanges == {} and group.wall == "bandwidth"


def test_a_plan_in_rank_order_is_explained_too() -> None:
    """Five ranks do not fill domains of four evenly: there is no placement to exchange."""
    problem = scenario(
        topology=topology([fabric(bytes_per_second=1e6)] * 2, [4, 2]),
        num_accelerators=5,
        training=training(global_batch_size=5),
    )
    plan = api.evaluate(problem, "dp=5")
    found = explain_plan(problem, plan)
    assert plan.placement is None and found.regime is not None
    assert sum(found.regime.ledger.values()) == pytest.approx(plan.step_seconds)
    assert all(group.exchanges == {} for group in found.groups)


def test_one_accelerator_has_no_groups() -> None:
    found = api.explain(scenario(num_accelerators=1), "")
    assert found.groups == () and found.inversions == ()
    assert found.regime is not None and found.regime.group is None
    assert found.regime.metrics["busbw"] is None


def test_where_nothing_fits_only_the_plan_speaks() -> None:
    problem = api.load_scenario("llama3-70b-h100x1024", {"num_accelerators": "8"})
    found = api.explain(problem)
    assert found.plan.layout is None and found.regime is None and found.actions == ()
    assert found.to_document()["plan"]["status"] == "infeasible"


def test_the_document_is_plain_json_with_stable_keys(found: Explanation) -> None:
    document = json.loads(json.dumps(found.to_document(), allow_nan=False))
    assert set(document) == {
        "schema_version", "planner_version", "plan", "groups", "intensity_order", "exposed_order",
        "place_order", "inversions", "regime", "actions",
    }  # fmt: skip
    assert set(document["groups"]) == {"tp", "cp", "shard", "pp"}
    assert list(document["actions"]) == list(LABELS)
    assert set(document["groups"]["tp"]) == set(GroupPlace.__dataclass_fields__)
    assert set(document["regime"]) == {
        "name", "share", "group", "shares", "ledger", "metric", "metrics",
    }  # fmt: skip
    for actions in document["actions"].values():
        for action in actions:
            assert set(action) == {
                "id", "label", "text", "set", "layout", "step_seconds", "gain_seconds",
                "gain_fraction", "infeasible",
            }  # fmt: skip
    assert Plan.from_document(document["plan"]) == Plan.from_document(found.plan.to_document())


def test_experts_groups_that_share_an_atom_are_exchanged_alike() -> None:
    """What an exchange costs is said of every group it moves, and of an inversion the same."""
    job = small_scenario(
        16,
        topology=small_topology((4, 4)),
        model=small_model(moe=experts(expert_ffn_hidden_size=512)),
        training=small_training(sequence_length=960, global_batch_size=16),
        software=small_software(dispatchers=("flex",), recompute=("none",)),
    )
    found = explain_plan(job, api.evaluate(job, "ep=4,pp=2"))
    groups = places(found)
    assert set(groups) == {"ep", "edp", "shard", "pp"}
    for name, place in groups.items():
        for other, cost in place.exchanges.items():
            assert groups[other].exchanges[name] == cost
    assert set(groups["ep"].exchanges) == {"edp", "shard", "pp"}
    for pair in found.inversions:
        assert groups[pair.inner].exchanges.get(pair.outer) == pair.exchange_seconds
