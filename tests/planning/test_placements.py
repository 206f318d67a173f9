"""What plans rest on: better hardware is never worse, and groups live where the costs put them."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import api
from planner.cost.context import CostContext
from planner.layouts.grids import DENSE_GRID
from planner.problem.scenario import Scenario, Search
from tests.oracles import all_placements, plain_least_step, plain_step
from tests.scenarios import (
    SHIPPED_4D,
    figure,
    objective,
    shipped_plan,
    shipped_software,
    small_accelerator,
    small_fabric,
    small_model,
    small_scenario,
    small_software,
    small_training,
    topology,
    with_accelerator,
)

# --- better hardware is never worse ---------------------------------------------------------------

CLUSTERS = (((4, 4), 16), ((6, 4), 24), ((2, 2, 3), 12), ((72, 2), 72), ((2, 3, 2, 2), 12))


@st.composite
def random_scenarios(draw: st.DrawFn) -> Scenario:
    widths, num = draw(st.sampled_from(CLUSTERS))
    fabrics = [
        small_fabric(tier, bytes_per_second=draw(st.floats(1e9, 400e9)))
        for tier in range(len(widths))
    ]
    part = small_accelerator(hbm_bytes=draw(st.sampled_from([2.5e9, 4e9, 80e9])))
    heads = 12 if num % 3 == 0 else 8
    return small_scenario(
        num,
        topology=topology(fabrics, widths, accelerator=part),
        model=small_model(
            num_attention_heads=heads, num_key_value_heads=heads, hidden_size=128 * heads,
            ffn_hidden_size=384 * heads,
        ),
        training=small_training(
            sequence_length=draw(st.sampled_from([480, 3840])), global_batch_size=2 * num
        ),
        software=small_software(
            zero_stages=draw(st.sampled_from([(0, 1), (1, 3)])),
            recompute=("none", "full"),
            overlap=draw(st.sampled_from([(), ("dp",), ("tp", "dp", "pp")])),
        ),
    )  # fmt: skip


def with_tier(scenario: Scenario, number: int, **changes: Any) -> Scenario:
    tiers = list(scenario.topology.tiers)
    tiers[number] = tiers[number].replace(**changes)
    return scenario.replace(topology=scenario.topology.replace(tiers=tuple(tiers)))


def improved(scenario: Scenario, what: str, number: int, factor: float) -> Scenario:
    """The scenario with one figure of the hardware better by a factor."""
    part, tier = scenario.topology.accelerator, scenario.topology.tiers[number]
    fabric = tier.fabric
    if what == "bandwidth":
        return with_tier(scenario, number, bandwidth=figure(tier.bytes_per_second * factor))
    if what in ("hop_seconds", "base_seconds"):
        better = fabric.replace(**{what: figure(getattr(fabric, what) / factor)})
        return with_tier(scenario, number, fabric=better)
    return with_accelerator(scenario, **{what: getattr(part, what) * factor})


BETTER = ("bandwidth", "hop_seconds", "base_seconds", "hbm_bytes", "hbm_bytes_per_second")


@pytest.mark.slow
@pytest.mark.parametrize("what", BETTER)
@given(random_scenarios(), st.integers(0, 3), st.sampled_from([1.01, 2.0, 50.0]))
@settings(max_examples=12, deadline=None, derandomize=True)
def test_better_hardware_never_makes_the_optimum_worse(
    what: str, scenario: Scenario, number: int, factor: float
) -> None:
    better = improved(scenario, what, number % len(scenario.topology.tiers), factor)
    before, after = api.plan(scenario, top_k=1), api.plan(better, top_k=1)
    if before.objective_seconds is None:
        assert what == "hbm_bytes" or after.objective_seconds is None
        return
    assert after.objective_seconds is not None
    assert after.objective_seconds <= before.objective_seconds * (1 + 1e-9)


def test_better_hardware_does_make_the_optimum_better_somewhere() -> None:
    scenario = small_scenario(
        16, software=small_software(overlap=()), search=Search(tp=(2,), pp=(2,))
    )
    for what in ("bandwidth", "hop_seconds", "hbm_bytes_per_second"):
        for number in (0, 1):
            better = improved(scenario, what, number, 4.0)
            assert objective(better) < objective(scenario) * (1 - 1e-6), (what, number)
    roomy = small_scenario(16)
    assert objective(roomy) < objective(with_accelerator(roomy, hbm_bytes=1.65e9)) * (1 - 1e-6)


@pytest.mark.parametrize("hbm_bytes_per_second", [100e9, 150e9, 200e9])
def test_faster_memory_helps_where_one_matmul_hides_two_kinds_of_traffic(
    hbm_bytes_per_second: float,
) -> None:
    """Memory-bound matmuls with tp and ZeRO-3 traffic beside them, both far beyond what hides."""
    scenario = small_scenario(
        128,
        topology=topology(
            [small_fabric(0, bytes_per_second=6e9)], (128,), accelerator=small_accelerator()
        ),
        model=small_model(hidden_size=2048, ffn_hidden_size=8192),
        training=small_training(sequence_length=256, global_batch_size=32),
        software=small_software(
            zero_stages=(3,),
            sequence_parallel="always",
            coefficients={"tp_overlap_fraction": 0.9, "dp_overlap_fraction": 0.9},
        ),
        search=Search(tp=(8,), cp=(1,), dp_shard=(16,), mbs=(1,)),
    )
    slow = with_accelerator(scenario, hbm_bytes_per_second=hbm_bytes_per_second)
    fast = with_accelerator(scenario, hbm_bytes_per_second=1.5 * hbm_bytes_per_second)
    assert objective(fast) <= objective(slow) * (1 + 1e-9)


# --- where groups live ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", SHIPPED_4D)
def test_tp_is_found_innermost_where_every_axis_is_in_use(name: str) -> None:
    plan = shipped_plan(name)
    assert plan.status == "optimal" and plan.layout is not None and plan.rank_order is not None
    assert all(getattr(plan.layout, axis) > 1 for axis in ("tp", "cp", "pp", "dp"))
    assert plan.rank_order[0][0] == "tp"
    assert plan.placement is not None
    innermost = next(iter(plan.placement["tp"]))
    assert plan.placement["tp"][innermost] == plan.layout.tp


@pytest.mark.parametrize("name", SHIPPED_4D)
def test_every_group_has_both_intensities_and_a_wall(name: str) -> None:
    plan = shipped_plan(name)
    assert set(plan.groups) == {"tp", "cp", "shard", "pp"}
    for group in plan.groups.values():
        assert group.intensity is not None and group.intensity > 0
        if group.exposed_seconds > 0:
            # only the exposed share of the bytes counts, so there are more FLOPs to each
            assert group.exposed_intensity is not None
            assert group.exposed_intensity >= group.intensity * (1 - 1e-9)
        else:
            assert group.exposed_intensity is None
        assert group.wall in ("compute", "bandwidth", "latency")
        assert all(tier["ridge"] > 0 for tier in group.tiers.values())


@pytest.mark.parametrize("name", SHIPPED_4D)
def test_every_pair_has_a_swap_and_none_gains(name: str) -> None:
    plan = shipped_plan(name)
    pairs = {frozenset(swap.atoms) for swap in plan.swaps}
    assert plan.layout is not None
    used = [atom for atom in DENSE_GRID.atoms if getattr(plan.layout, atom) > 1]
    assert pairs == {frozenset((a, b)) for a in used for b in used if a != b}
    costs = [swap.seconds for swap in plan.swaps]
    assert all(seconds is None or seconds >= 0 for seconds in costs)
    # putting the widest traffic on the slowest tier costs most
    outward = {s.atoms: s.seconds for s in plan.swaps if s.seconds is not None}
    assert max(outward, key=lambda pair: outward[pair])[0] == "tp"


def test_intensities_of_a_known_layout() -> None:
    """70B, tp8 cp2 pp4 dp16 on dgx-h100: about 6e3, 4.5e5, 3.4e6 and (dp) 2.9e5 FLOP per byte."""
    scenario = api.load_scenario("llama3-70b-h100x1024")
    groups = api.evaluate(scenario, "tp=8,cp=2,pp=4,dp=16").groups
    found = {name: group.intensity for name, group in groups.items()}
    assert found["tp"] == pytest.approx(6e3, rel=0.35)
    assert found["cp"] == pytest.approx(4.5e5, rel=0.35)
    assert found["shard"] == pytest.approx(2.9e5, rel=0.35)
    assert found["pp"] == pytest.approx(3.4e6, rel=0.35)
    sharded = scenario.replace(software=scenario.software.replace(zero_stages=(1, 3)))
    third = api.evaluate(sharded, "tp=8,cp=2,pp=4,dp=16,zero_stage=3").groups["shard"].intensity
    assert third is not None and third < 1e4


def short_sequences(**search: Any) -> Scenario:
    """70B with ZeRO-3 over 64 H100 and sequences of 256: weights outweigh activations."""
    scenario = api.load_scenario("llama3-70b-h100x1024")
    restrictions: dict[str, Any] = {
        "tp": (2,), "cp": (1,), "pp": (1,), "dp_replicate": (1,), "mbs": (1,), "zero_stage": (3,),
        "tie_fraction": 0.0,
    }  # fmt: skip
    return scenario.replace(
        num_accelerators=64,
        software=shipped_software("torchtitan"),
        training=scenario.training.replace(sequence_length=256, global_batch_size=64),
        search=Search(**(restrictions | search)),
    )


def test_tp_is_rightly_not_innermost_for_short_sequences_under_zero_3() -> None:
    scenario = short_sequences()
    plan = api.plan(scenario)
    assert plan.rank_order is not None and plan.rank_order[0] == ("dp_shard", 8)
    assert plan.groups["shard"].intensity is not None and plan.groups["tp"].intensity is not None
    assert plan.groups["shard"].intensity < plan.groups["tp"].intensity
    # every placement that has tp inside, one by one, is far slower
    ctx = CostContext.of(scenario)
    assert plan.layout is not None
    layout = replace(plan.layout, stage_layers=None)
    rows = all_placements(layout.degrees(), scenario.topology.widths)
    inside = min(plain_step(ctx, layout, row) for row in rows if row[0][0] > 1)
    assert plan.objective_seconds == pytest.approx(plain_least_step(ctx, layout), rel=1e-9)
    assert inside > 1.2 * (plan.objective_seconds or 0)


def test_a_free_placement_beats_every_order_of_the_framework() -> None:
    free = api.plan(short_sequences())
    ordered = api.plan(short_sequences(orders="framework"))
    assert free.rank_order_name is None
    assert ordered.rank_order_name in shipped_software("torchtitan").orders
    assert ordered.objective_seconds is not None and free.objective_seconds is not None
    assert ordered.objective_seconds > 1.2 * free.objective_seconds


@pytest.mark.parametrize("name", SHIPPED_4D)
def test_the_plan_says_what_a_rank_file_of_ones_own_would_gain(name: str) -> None:
    plan, scenario = shipped_plan(name), api.load_scenario(name)
    ctx = CostContext.of(scenario)
    assert plan.step_seconds is not None and plan.layout is not None
    layout = replace(plan.layout, stage_layers=None)
    gain = plan.step_seconds / plain_least_step(ctx, layout) - 1
    assert plan.rank_order_name is not None
    assert plan.custom_order_gain_fraction == pytest.approx(gain, abs=1e-9)


def test_ties_go_to_an_order_of_the_framework() -> None:
    scenario = small_scenario(16, search=Search(tie_fraction=0.0))
    tied = api.plan(scenario.replace(search=Search(tie_fraction=0.2)))
    exact = api.plan(scenario)
    assert exact.objective_seconds == tied.objective_seconds == exact.step_seconds
    assert tied.rank_order_name is not None
    assert tied.step_seconds is not None and exact.step_seconds is not None
    assert tied.step_seconds <= 1.2 * exact.step_seconds
