"""What other machines would buy: by hand, monotone properties, both sides of break-evens."""

from __future__ import annotations

import json
from functools import cache
from math import inf
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import api
from planner.advise import break_even as breaking
from planner.advise.break_even import MATCH_FRACTION, WIDTH_FRACTION, fsdp_break_even, fsdp_scenario
from planner.advise.changes import changed_scenario, step_of
from planner.advise.scaling import scaling_curve
from planner.advise.upgrades import ideas, network_keys
from planner.advise.what_if import WhatIf, what_if
from planner.cli import main
from planner.errors import InputError
from planner.problem.batch import Band
from planner.problem.scenario import Scenario, Search
from planner.report.text.pieces import plain_text
from planner.report.text.what_if import what_if_report
from tests.inventories import nodes_in_leaves, wide
from tests.scenarios import (
    PEAK,
    fabric,
    figure,
    model,
    objective,
    scenario,
    small_fabric,
    small_scenario,
    small_topology,
    small_training,
    software,
    topology,
    training,
    with_accelerator,
)


def quick(**changes: Any) -> Scenario:
    """The small job with little to search."""
    search = Search(
        tp=(1, 2, 4), cp=(1,), pp=(1, 2), vp=(1,), sp=(False,), mbs=(1, 2), zero_stage=(1, 3),
        dp_replicate=(1,),
    )  # fmt: skip
    return small_scenario(16, **({"search": search} | changes))


@cache
def asked() -> WhatIf:
    """What the small job was asked."""
    return what_if(quick())


def upgrades(found: WhatIf) -> dict[str, Any]:
    return {upgrade.id: upgrade for upgrade in found.upgrades}


# --- upgrades -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_gain_is_the_difference_of_two_plans() -> None:
    base, found = quick(), asked()
    first = objective(base)
    assert found.plan.objective_seconds == first
    by_id = upgrades(found)
    for idea in ideas(base):
        if idea.impossible is None:
            again = objective(changed_scenario(base, idea.set))
            assert by_id[idea.id].step_seconds == again
            assert by_id[idea.id].gain_fraction == pytest.approx(1.0 - again / first)
    assert by_id["fp8"].step_seconds is None and "no fp8" in by_id["fp8"].infeasible
    assert by_id["accelerators"].num_accelerators == 32


@pytest.mark.slow
def test_an_inventory_has_no_more_nodes_than_it_lists() -> None:
    """Three nodes of 8: nothing wider, no twice as many, and no count above what they hold."""
    base = small_scenario(
        16, topology=wide(), inventory=nodes_in_leaves([[8, 8], [8]]),
        search=Search(tp=(2,), pp=(1,), cp=(1,), vp=(1,), mbs=(1,)),
    )  # fmt: skip
    found = what_if(base)
    by_id = upgrades(found)
    assert by_id["domain"].step_seconds is None and "inventory lab" in by_id["domain"].infeasible
    assert by_id["accelerators"].infeasible == "inventory lab has 24 for one job"
    assert found.scaling is not None
    assert [point.num_accelerators for point in found.scaling.points] == [4, 8, 16]


def test_half_of_all_latency_halves_what_is_nothing_but_latency() -> None:
    """Two accelerators, links of no other cost, tp forced: by hand, what is saved is half of the
    exposed tp seconds."""
    inner = fabric(bytes_per_second=1e30, base_seconds=1e-3)
    base = scenario(
        topology=topology([inner], (2,)),
        training=training(global_batch_size=1),
        software=software(recompute=("none",)),
        search=Search(tp=(2,), sp=(False,), tie_fraction=0.0),
    )
    plan = api.plan(base, top_k=1)
    assert plan.time is not None and plan.time["tp"] > 0
    found = next(idea for idea in ideas(base) if idea.id == "latency")
    faster = objective(changed_scenario(base, found.set))
    assert plan.objective_seconds is not None
    assert plan.objective_seconds - faster == pytest.approx(plan.time["tp"] / 2, rel=1e-9)


def test_eight_bits_halve_what_is_nothing_but_matmuls() -> None:
    """The ideal part has matmuls of 8 bits at twice the peak, and an HBM that costs nothing."""
    base = scenario(
        num_accelerators=1,
        topology=topology([fabric()], (1,)),
        model=model(num_attention_heads=1, vocab_size=1, hidden_size=8192, ffn_hidden_size=8192),
        training=training(global_batch_size=1),
        search=Search(recompute=("none",)),
    )
    base = with_accelerator(base, hbm_bytes_per_second=1e30, hbm_bytes=1e30, vector_flops=1e30)
    plan = api.plan(base, top_k=1)
    idea = next(idea for idea in ideas(base) if idea.id == "fp8")
    assert idea.impossible is None and plan.time is not None
    fast = api.plan(changed_scenario(base, idea.set), top_k=1)
    assert fast.time is not None
    head = 3 * 2 * 64 * 8192 * 1 / PEAK  # stays in 16 bits
    assert fast.time["compute_gemm"] - head == pytest.approx(
        (plan.time["compute_gemm"] - head) / 2, rel=1e-6
    )


def test_what_cannot_be_is_said() -> None:
    one_tier = quick(topology=small_topology((16,)))
    by_id = {idea.id: idea for idea in ideas(one_tier)}
    assert by_id["network"].impossible is not None
    assert by_id["accelerators"].impossible is not None
    mesh = small_topology((4, 4)).replace(
        tiers=(
            small_topology().tiers[0].replace(fabric=small_fabric(0, mesh_members=figure(4.0))),
            small_topology().tiers[1],
        )
    )
    assert {i.id: i for i in ideas(quick(topology=mesh))}["domain"].impossible is not None


def test_a_wider_cluster_is_made_where_there_is_too_little_of_it() -> None:
    idea = {i.id: i for i in ideas(quick())}["accelerators"]
    assert idea.set == {"num_accelerators": 32, "topology.tiers.1.width": 8}
    assert changed_scenario(quick(), idea.set).topology.num_accelerators == 32


@pytest.mark.slow
@settings(deadline=None, max_examples=6)
@given(
    factor=st.floats(1.0, 64.0), least=st.floats(0.1, 1.0),
    latency=st.floats(0.0, 1.0), memory=st.floats(1.0, 3.0),
)  # fmt: skip
def test_better_machines_are_never_slower(
    factor: float, least: float, latency: float, memory: float
) -> None:
    base = quick()
    slow = objective(changed_scenario(base, network_keys(base, least)))
    now = objective(base)
    assert slow >= now >= objective(changed_scenario(base, network_keys(base, factor)))
    tiers = tuple(
        tier.replace(
            fabric=tier.fabric.replace(
                base_seconds=figure(latency * float(tier.fabric.base_seconds)),
                hop_seconds=figure(latency * float(tier.fabric.hop_seconds)),
            )
        )
        for tier in base.topology.tiers
    )
    assert objective(base.replace(topology=base.topology.replace(tiers=tiers))) <= now
    assert objective(with_accelerator(base, hbm_bytes=32e9 * memory)) <= now


# --- FSDP -----------------------------------------------------------------------------------------


def fsdp_ratio(base: Scenario, bytes_per_second: float, now: float) -> float:
    """FSDP's least step over the best one, each planned by itself."""
    fsdp, _ = fsdp_scenario(base)
    keys = network_keys(base, bytes_per_second / now)
    return objective(changed_scenario(fsdp, keys)) / objective(changed_scenario(base, keys))


@pytest.mark.slow
@pytest.mark.parametrize("batch", [16, 64])
def test_both_sides_of_the_break_even(batch: int) -> None:
    base = quick(training=small_training(global_batch_size=batch))
    found = fsdp_break_even(base)
    now = found.now
    ratio_at = cache(lambda rate: fsdp_ratio(base, rate, now))
    assert now == base.topology.tiers[1].bytes_per_second
    assert found.verdict in ("at", "always", "never")
    if found.lower is not None:
        assert ratio_at(found.lower) > 1.0 + MATCH_FRACTION
    if found.upper is not None:
        assert ratio_at(found.upper) <= (1.0 + MATCH_FRACTION) * (1 + 1e-9)
    if found.lower is not None and found.upper is not None:
        assert 1.0 < found.upper / found.lower <= 1.0 + WIDTH_FRACTION
    for trial in found.trials:
        ratio = ratio_at(trial.bytes_per_second)
        assert trial.matches == (ratio <= (1.0 + MATCH_FRACTION) * (1 + 1e-9))


def test_never_and_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ranks that data parallelism alone can use: FSDP's gathers are never free, but cost
    nothing beside latency on endless links; with a latency of the network they always do."""
    monkeypatch.setattr(breaking, "LOWEST_FACTOR", 0.5)
    alone = quick(search=Search(tp=(1,), cp=(1,), pp=(1,), zero_stage=(3,)))
    found = fsdp_break_even(alone)
    assert found.verdict == "always" and found.lower is None  # there is nothing else
    slow = small_fabric(1, base_seconds=figure(1.0))
    far = small_topology((4, 4))
    far = far.replace(tiers=(far.tiers[0], far.tiers[1].replace(fabric=slow)))
    found = fsdp_break_even(quick(topology=far))
    assert found.verdict == "never" and found.upper is None
    assert all(not trial.matches for trial in found.trials)


def test_no_batch_for_so_many_ranks_is_impossible() -> None:
    found = fsdp_break_even(quick(training=small_training(global_batch_size=8)))
    assert found.verdict == "impossible" and found.reason is not None
    one_tier = fsdp_break_even(quick(topology=small_topology((16,))))
    assert one_tier.verdict == "impossible" and "network" in (one_tier.reason or "")


def test_software_without_zero_3_is_asked_as_if() -> None:
    base = quick()
    alone = base.replace(software=base.software.replace(zero_stages=(1,)))
    restricted, assumed = fsdp_scenario(alone)
    assert 3 in restricted.software.zero_stages and assumed is not None
    assert fsdp_scenario(base)[1] is None


# --- scaling --------------------------------------------------------------------------------------


def test_the_curve_is_a_plan_for_each_count() -> None:
    base = quick()
    curve = scaling_curve(base, counts=(4, 8, 16))
    steps = [objective(base.replace(num_accelerators=n)) for n in (4, 8, 16)]
    assert [point.step_seconds for point in curve.points] == steps
    first, second, third = curve.points
    assert first.efficiency_fraction == 1.0 and first.marginal_fraction is None
    assert third.efficiency_fraction == pytest.approx(4 * steps[0] / (16 * steps[2]))
    assert second.marginal_fraction == pytest.approx(steps[0] / steps[1] - 1.0)
    tokens = 16 * 2048
    assert third.tokens_per_second == pytest.approx(tokens / steps[2])


@pytest.mark.parametrize("threshold", [0.05, 0.3, 0.6, 0.95])
def test_where_more_are_wasted(threshold: float) -> None:
    base = quick()
    curve = scaling_curve(base, counts=(1, 2, 4, 8, 16), threshold_fraction=threshold)
    before = None
    for point in curve.points:
        if point.marginal_fraction is not None and point.marginal_fraction < threshold:
            assert curve.wasted_beyond == before
            break
        before = point.num_accelerators if point.step_seconds is not None else before
    else:
        assert curve.wasted_beyond is None


def test_a_batch_of_one_cannot_use_more_ranks_than_divide_it() -> None:
    """One sequence, no tensor, context or pipeline parallelism: a second rank has nothing to do."""
    search = Search(tp=(1,), cp=(1,), pp=(1,))
    base = quick(search=search, training=small_training(global_batch_size=1))
    curve = scaling_curve(base, counts=(1, 2, 4))
    assert [point.step_seconds is None for point in curve.points] == [False, True, True]
    assert curve.wasted_beyond == 1


@pytest.mark.parametrize("threshold", [0.0, 1.0, -1.0, inf])
def test_thresholds_out_of_range(threshold: float) -> None:
    with pytest.raises(InputError, match="out of range"):
        scaling_curve(quick(), counts=(4,), threshold_fraction=threshold)


# --- what is printed ------------------------------------------------------------------------------


def test_the_report_and_its_document() -> None:
    found = asked()
    text = plain_text(what_if_report(found))
    for words in ("What each change would save", "FSDP", "More or fewer accelerators", "proven"):
        assert words in text
    document = json.loads(json.dumps(found.to_document(), allow_nan=False))
    assert {upgrade["id"] for upgrade in document["upgrades"]} == {
        "hbm", "network", "domain", "latency", "fp8", "nvfp4", "accelerators",
    }  # fmt: skip
    assert document["plan"]["objective_seconds"] == found.plan.objective_seconds
    assert found.plans_made > 5


@pytest.mark.slow
def test_an_open_scenario_is_asked_about_what_was_chosen() -> None:
    base = quick(training=small_training(global_batch_size=Band(16, 17)))
    found = what_if(base)
    chosen = found.plan.inputs["training"]["global_batch_size"]
    alone = what_if(base.replace(training=small_training(global_batch_size=chosen)))
    assert found.upgrades == alone.upgrades and found.scaling == alone.scaling


def test_where_nothing_fits_the_plan_says_why() -> None:
    found = what_if(with_accelerator(quick(), hbm_bytes=3e8))
    assert found.plan.layout is None and found.upgrades == ()
    assert "No layout fits." in plain_text(what_if_report(found))


def test_the_old_layout_is_told_apart_from_the_new() -> None:
    base = quick()
    plan = api.plan(base, top_k=1)
    assert plan.layout is not None
    assert step_of(base, plan.layout) == pytest.approx(plan.objective_seconds)
    assert step_of(with_accelerator(base, hbm_bytes=3e8), plan.layout) is None


def test_a_robust_search_compares_upper_ends() -> None:
    base = quick()
    robust = base.replace(search=base.search.replace(robust=True))
    best = api.plan(robust, top_k=1)
    assert best.layout is not None and best.step_seconds is not None
    assert step_of(robust, best.layout) == pytest.approx(best.objective_seconds)
    assert best.objective_seconds != pytest.approx(best.step_seconds)


@pytest.mark.slow
def test_command_line() -> None:
    search = "search={tp: [1, 2], pp: 1, cp: 1, mbs: 1, recompute: full}"
    result = CliRunner().invoke(
        main, ["explain", "llama3-8b-h100x8", "--what-if", "--json", "--set", search]
    )
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["scaling"]["threshold_fraction"] == 0.5
    both = CliRunner().invoke(
        main, ["explain", "llama3-8b-h100x8", "--what-if", "--layout", "tp=2"]
    )
    assert both.exit_code == 2 and "--what-if" in both.stderr
