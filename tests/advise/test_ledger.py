"""Where a step's seconds go: sums, signs, and one synthetic job for every regime."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import api
from planner.advise.baseline import Baseline
from planner.advise.ledger import METRICS, REGIMES, hbm_utilisation, ledger, regime
from planner.cost import flops
from planner.problem.scenario import Scenario
from tests.scenarios import (
    BACKENDS,
    NO_LIMIT,
    PEAK,
    SHIPPED_4D,
    accelerator,
    attention,
    fabric,
    figure,
    gemm,
    model,
    overheads,
    scenario,
    shipped_plan,
    small_scenario,
    software,
    topology,
    training,
)


def baseline(problem: Scenario, layout: str) -> Baseline:
    return Baseline.of(problem, api.evaluate(problem, layout))


def unlimited(part: Any = None, **links: float) -> Any:
    """Eight accelerators under one tier that nothing waits for, unless the links say so."""
    link = fabric(**({"bytes_per_second": NO_LIMIT} | links))
    return topology([link], [8], **({"accelerator": part} if part else {}))


JOBS: dict[str, tuple[Scenario, str]] = {
    "compute": (scenario(topology=unlimited()), ""),
    "kernel": (
        scenario(
            topology=unlimited(
                accelerator(
                    gemm={p: gemm(efficiency=0.2) for p in ("bf16", "fp8")},
                    attention=dict.fromkeys(BACKENDS, attention(forward=0.2, backward=0.2)),
                )
            )
        ),
        "",
    ),
    "memory": (scenario(topology=unlimited(accelerator(hbm_bytes_per_second=1e9))), ""),
    "communication": (scenario(topology=unlimited(bytes_per_second=1e6)), "tp=4,dp=2"),
    "bubble": (scenario(topology=unlimited()), "pp=8,mbs=8"),
    "host": (
        scenario(topology=unlimited(), software=software({"host_seconds_per_kernel": 1.0})),
        "",
    ),
    "unexplained": (
        scenario(topology=unlimited(), software=software({"unexplained_seconds": 1.0})),
        "",
    ),
    "straggler": (
        scenario(
            topology=topology(
                [fabric(bytes_per_second=NO_LIMIT)] * 2,
                [2, 4],
                overheads=overheads(straggler_fraction_per_doubling=1.0),
            )
        ),
        "",
    ),
}


def test_there_is_a_job_for_every_regime() -> None:
    assert set(JOBS) == set(REGIMES) == set(METRICS)


@pytest.mark.parametrize("name", JOBS)
def test_each_regime_dominates_in_its_job(name: str) -> None:
    found = regime(baseline(*JOBS[name]))
    assert found.name == name
    assert found.share > 0.5
    assert found.metric == METRICS[name]
    assert sum(found.shares.values()) == pytest.approx(1.0)


def test_nothing_is_lost_on_an_ideal_machine_but_what_flash_repeats() -> None:
    base = baseline(*JOBS["compute"])
    parts = ledger(base)
    again = 0.5 * flops.tokens_per_step(base.ctx) * flops.forward_flops_per_token(base.ctx)[1]
    assert parts["model_flops"] == pytest.approx(flops.model_flops(base.ctx) / (8 * PEAK))
    assert parts["extra_flops"] == pytest.approx(again / (8 * PEAK))
    assert parts["model_flops"] + parts["extra_flops"] == pytest.approx(base.step_seconds)


def test_kernels_at_a_fifth_of_the_peak_lose_four_fifths() -> None:
    found = regime(baseline(*JOBS["kernel"]))
    assert found.share == pytest.approx(0.8)
    assert found.metrics["kernel_efficiency"] == pytest.approx(0.2)


def test_clocks_are_told_from_kernels() -> None:
    part = accelerator(sustained_fraction=figure(0.5))
    base = baseline(scenario(topology=unlimited(part)), "")
    parts = ledger(base)
    assert parts["clocks"] == pytest.approx(base.step_seconds / 2)
    assert parts["kernels"] == pytest.approx(0.0, abs=1e-12 * base.step_seconds)


def test_a_bubble_of_seven_slots_in_eight() -> None:
    """pp=8, one micro-batch: seven slots idle for the one that works, evenly but for the head."""
    found = regime(baseline(*JOBS["bubble"]))
    parts = found.ledger
    idle = parts["bubble"] + parts["stage_imbalance"]
    assert idle == pytest.approx(7 * (parts["model_flops"] + parts["extra_flops"]))
    assert found.metrics["bubble_fraction"] == pytest.approx(idle / sum(parts.values()))


def test_the_group_with_the_most_exposed_traffic_is_named() -> None:
    problem, layout = JOBS["communication"]
    base = baseline(problem, layout)
    found = regime(base)
    assert found.group == "tp"
    assert found.metrics["busbw"] == base.plan.groups["tp"].busbw == pytest.approx(1e6)


def test_hbm_that_limits_everything_is_fully_used() -> None:
    part = accelerator(hbm_bytes_per_second=1e3, hbm_efficiency=0.8)
    base = baseline(scenario(topology=unlimited(part)), "")
    assert regime(base).name == "memory"
    assert hbm_utilisation(base) == pytest.approx(0.8, rel=1e-3)


def test_hbm_use_does_not_count_waiting() -> None:
    """A slower link makes the step longer and the memory idler, in proportion."""
    part = accelerator(hbm_bytes_per_second=1e10)
    bases = [
        baseline(scenario(topology=unlimited(part, bytes_per_second=rate)), "tp=4,dp=2")
        for rate in (NO_LIMIT, 1e6)
    ]
    used = [hbm_utilisation(base) * base.step_seconds for base in bases]
    assert used[0] == pytest.approx(used[1])


@pytest.mark.parametrize("name", [*SHIPPED_4D, "llama3-8b-h100x8", "llama3-70b-b200x64"])
def test_shipped_ledgers_sum_to_the_step_and_start_with_mfu(name: str) -> None:
    plan = shipped_plan(name)
    base = Baseline.of(api.scenario_of(plan), plan)
    parts = ledger(base)
    assert sum(parts.values()) == pytest.approx(base.step_seconds, rel=1e-12)
    assert parts["model_flops"] / base.step_seconds == pytest.approx(plan.mfu, rel=1e-12)
    assert min(parts.values()) >= -1e-12 * base.step_seconds


@settings(deadline=None, max_examples=15)
@given(
    st.sampled_from(["tp=4,dp=4", "pp=4,vp=1,dp=4", "tp=2,cp=2,pp=2,dp=2", "dp=16,zero_stage=3"]),
    st.sampled_from(["none", "selective", "full"]),
    st.sampled_from([1.0, 3.0]),
)
def test_ledgers_of_lossy_jobs_have_no_negative_part(
    layout: str, recompute: str, multiplier: float
) -> None:
    problem = small_scenario(
        model=model(num_layers=4, hidden_size=512, ffn_hidden_size=2048),
        training=training(sequence_length=1024, global_batch_size=16),
        software=software({"memory_bound_multiplier": multiplier, "unexplained_fraction": 0.01}),
    )
    base = baseline(problem, f"{layout},recompute={recompute}")
    parts = ledger(base)
    assert sum(parts.values()) == pytest.approx(base.step_seconds, rel=1e-12)
    assert min(parts.values()) >= -1e-12 * base.step_seconds
