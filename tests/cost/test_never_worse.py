"""What must never make a step slower: any cost lower, any link or part better."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.cost.context import CostContext
from planner.cost.step import evaluate
from planner.layouts.layout import Layout
from tests.oracles import innermost_splits, layouts, lossy_kinds, placed_layouts, step_of_costs
from tests.scenarios import (
    LOSSY,
    context,
    fabric,
    figure,
    model,
    software,
    topology,
    unlimited_topology,
)
from tests.search.monotone import first_decrease


def check_never_falls(ctx: CostContext, layout: Layout, split: Any) -> None:
    step, flat = step_of_costs(ctx, layout, split)
    assert step(flat) == pytest.approx(float(evaluate(ctx, layout, split).total), rel=1e-12)
    assert first_decrease(step, flat) is None, layout  # type: ignore[no-untyped-call]


@settings(max_examples=40, deadline=None)
@given(placed_layouts(), lossy_kinds)
def test_step_never_falls_when_a_cost_rises(row: Any, kind: tuple[str, str]) -> None:
    check_never_falls(LOSSY[kind], *row)


@settings(max_examples=40, deadline=None)
@given(placed_layouts(), st.floats(1e-7, 1e-4))
def test_step_never_falls_when_a_cost_rises_and_the_host_is_slow(row: Any, seconds: float) -> None:
    ctx = LOSSY["flash", "bf16"]
    slow = {"host_seconds_per_kernel": figure(seconds)}
    coefficients = ctx.software.coefficients.replace(**slow)
    ctx = replace(ctx, software=ctx.software.replace(coefficients=coefficients))
    check_never_falls(ctx, *row)


def test_step_never_falls_on_a_last_stage_of_fewer_layers_and_a_slow_host() -> None:
    """The stage with the head is the slowest and has fewer layers than the mean stage."""
    ctx = context(
        topology=unlimited_topology(),
        model=model(num_layers=7, vocab_size=4096),
        software=software({"host_seconds_per_kernel": 1e-3}),
    )
    layout = Layout(tp=2, pp=4, num_microbatches=64)
    check_never_falls(ctx, layout, innermost_splits(layout))


IMPROVEMENTS: dict[str, str] = {
    "bytes_per_second": "faster",
    "efficiency": "faster",
    "all_reduce_efficiency": "faster",
    "all_to_all_efficiency": "faster",
    "p2p_efficiency": "faster",
    "hop_seconds": "shorter",
    "base_seconds": "shorter",
    "posting_seconds": "shorter",
    "ramp": "shorter",
}


@pytest.mark.parametrize("name", IMPROVEMENTS)
@settings(max_examples=25, deadline=None)
@given(placed_layouts(), st.integers(0, 2), st.floats(1.0, 1.25))
def test_better_links_never_slow_a_placed_layout(
    name: str, row: Any, tier: int, factor: float
) -> None:
    layout, split = row
    ctx = LOSSY["flash", "bf16"]
    link = ctx.topology.tiers[tier].fabric
    change = factor if IMPROVEMENTS[name] == "faster" else 1 / factor
    improved = link.replace(**{name: figure(float(getattr(link, name)) * change)})
    tiers = list(ctx.topology.tiers)
    tiers[tier] = tiers[tier].replace(fabric=improved)
    better = with_topology(ctx, ctx.topology.replace(tiers=tuple(tiers)))
    assert_not_slower(better, ctx, layout, split)


@pytest.mark.parametrize("name", ["hbm_bytes_per_second", "hbm_efficiency"])
@settings(max_examples=25, deadline=None)
@given(placed_layouts(), st.floats(1.0, 1.1), st.sampled_from(["bf16", "fp8"]))
def test_faster_hbm_never_slows_a_placed_layout(
    name: str, row: Any, factor: float, precision: str
) -> None:
    ctx = LOSSY["flash", precision]
    assert_not_slower(with_part(ctx, name, factor), ctx, *row)


@pytest.mark.parametrize("name", ["hbm_bytes_per_second", "sustained_fraction"])
def test_better_part_never_slows_a_layout_whose_attention_hides_two_groups(name: str) -> None:
    ctx = LOSSY["naive", "bf16"]
    ctx = replace(ctx, training=ctx.training.replace(sequence_length=512))
    slow = [fabric(bytes_per_second=rate) for rate in (4e8, 5e7, 5e7)]
    ctx = with_topology(ctx, topology(slow, (8, 8, 64), accelerator=ctx.accelerator))
    layout = Layout(cp=8, zero_stage=0, overlap="dp")
    assert_not_slower(with_part(ctx, name, 1.05), ctx, layout, innermost_splits(layout, 3))


def with_part(ctx: CostContext, name: str, factor: float) -> CostContext:
    part = ctx.accelerator
    now = getattr(part, name)
    better: Any = (
        {key: figure(float(value) * factor) for key, value in now.items()}
        if isinstance(now, dict)
        else figure(float(now) * factor)
    )
    improved = part.replace(**{name: better})
    return with_topology(ctx, ctx.topology.replace(accelerator=improved))


def with_topology(ctx: CostContext, cluster: Any) -> CostContext:
    return context(model=ctx.model, training=ctx.training, software=ctx.software, topology=cluster)


def assert_not_slower(better: CostContext, ctx: CostContext, layout: Layout, split: Any) -> None:
    after = float(evaluate(better, layout, split).total)
    assert after <= float(evaluate(ctx, layout, split).total) * (1 + 1e-12)


@settings(max_examples=25, deadline=None)
@given(layouts(), lossy_kinds)
def test_a_group_inside_a_domain_is_never_slower_than_across(
    layout: Layout, kind: tuple[str, str]
) -> None:
    ctx = LOSSY[kind]
    near = innermost_splits(layout, 3)
    far = {name: [1.0, *split[:-1]] for name, split in near.items()}
    assert float(evaluate(ctx, layout, near).total) <= float(evaluate(ctx, layout, far).total)
