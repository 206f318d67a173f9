"""The step of models with experts: by hand, table against numbers, what never makes it worse."""

from __future__ import annotations

from dataclasses import fields, replace
from math import isclose
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import api
from planner.cost.context import CostContext
from planner.cost.flops import executed_flops
from planner.cost.overlap import DISPATCH_SHARE
from planner.cost.stages import layers_by_rank
from planner.cost.step import StepTime, evaluate
from planner.layouts.grids import EXPERT_GRID
from planner.layouts.keys import RECOMPUTE, V_SHAPED
from planner.layouts.layout import Layout
from tests.expert_scenarios import (
    EVEN,
    LATENT,
    SHIPPED,
    experts,
    shipped_context,
    shipped_scenario,
    sparse_context,
    sparse_model,
    sparse_software,
)
from tests.oracles import (
    assert_table_equals_numbers,
    innermost_splits,
    placed_expert_layouts,
    plain_splits,
    step_of_costs,
)
from tests.scenarios import (
    PEAK,
    accelerator,
    sized_for,
    topology,
    training,
    uniform_topology,
    unlimited_topology,
)
from tests.search.monotone import first_decrease

TERMS = tuple(f.name for f in fields(StepTime))
LAYERS, COPIES = 8, 2 * 64 * 32 * 2  # bytes of two copies of a micro-batch's tokens


def spent(ctx: CostContext, layout: Layout) -> dict[str, float]:
    found = evaluate(ctx, layout, innermost_splits(layout, len(ctx.ramp)))
    return {name: float(getattr(found, name)) for name in TERMS}


def silent(**parts: Any) -> CostContext:
    return sparse_context(topology=unlimited_topology(), **parts)


# ---------------------------------------------------------------- by hand


@pytest.mark.parametrize("recompute", RECOMPUTE)
@pytest.mark.parametrize(
    "toy",
    [
        sparse_model(),
        sparse_model(gated_mlp=True, moe=experts(num_shared_experts=2, num_dense_layers=3)),
        sparse_model(mla=LATENT, mtp_layers=1),
        sparse_model(moe=experts(layer_period=2)),
    ],
)
@pytest.mark.parametrize(
    "layout",
    [
        Layout(num_microbatches=8),
        Layout(dp_shard=4, ep=4, num_microbatches=2),
        Layout(tp=2, cp=2, dp_shard=2, etp=2, ep=2, num_microbatches=4, sp=True),
    ],
)
def test_ideal_step_is_its_flops_at_the_peak(layout: Layout, toy: Any, recompute: str) -> None:
    """But for routers, whose 2·32·8 FLOPs a token are timed by what they move."""
    layout = replace(layout, recompute=recompute)
    ctx = sized_for(silent(toy=toy), layout)
    expected = float(executed_flops(ctx, layout))
    routers = toy.num_moe_layers + toy.mtp_layers
    tokens = ctx.training.global_batch_size * ctx.training.sequence_length
    most = 4 * tokens * routers * 2 * 32 * 8
    found = sum(spent(ctx, layout).values()) * layout.num_ranks * PEAK
    assert expected - most <= found * (1 + 1e-9)
    assert found <= expected * (1 + 1e-9)


def test_windows_narrower_than_a_tile_save_nothing_of_a_sequence_of_half_a_tile() -> None:
    """Kernels compute whole tiles of 128: 64 tokens are less than one, with a window or without."""
    layout = Layout(num_microbatches=8)
    whole, windowed = (
        spent(silent(toy=sparse_model(**windows)), layout)["compute_attention"]
        for windows in ({}, {"sliding_window": 16, "num_windowed_layers": 4})
    )
    assert windowed == pytest.approx(whole, rel=1e-12)


def test_exposed_exchanges() -> None:
    """Four exchanges of two copies a layer and micro-batch, all but 1/ep, at 1 byte a second."""
    found = spent(sparse_context(), Layout(dp_shard=4, ep=4, num_microbatches=3))
    assert found["ep"] == pytest.approx(3 * LAYERS * 4 * COPIES * 0.75)
    assert found["tp"] == found["cp"] == found["pp"] == 0.0
    mixed = sparse_context(experts(num_dense_layers=5))
    found = spent(mixed, Layout(dp_shard=4, ep=4, num_microbatches=3))
    assert found["ep"] == pytest.approx(3 * 3 * 4 * COPIES * 0.75)


@pytest.mark.parametrize("hidden_share", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("slower", [0.1, 10.0])
def test_exchanges_hide_beside_another_micro_batch(slower: float, hidden_share: float) -> None:
    """As much as the overlap's share of a layer's work, less what their kernels take from it; the
    first of three micro-batches has none to run beside."""
    layout = Layout(dp_shard=4, ep=4, num_microbatches=3)
    work = sum(spent(silent(), layout)[t] for t in ("compute_gemm", "compute_attention"))
    work -= 3 * 3 * 2 * 64 * 32 * 64 / PEAK  # the head is no layer's
    num_bytes = 3 * LAYERS * 4 * COPIES * 0.75
    links = uniform_topology(bytes_per_second=num_bytes / work / slower)
    profile = sparse_software({"dp_overlap_fraction": hidden_share})
    ctx = sparse_context(topology=links, software=profile)
    assert spent(ctx, layout)["ep"] == pytest.approx(slower * work)
    beside = min(slower, hidden_share * 2 / 3) * work * (1 - DISPATCH_SHARE)
    overlapped = spent(ctx, replace(layout, overlap="ep"))["ep"]
    assert overlapped == pytest.approx(slower * work - beside, rel=1e-9)


def test_host_and_kernels_alternate() -> None:
    """√(host² + work²): it must know how many tokens came before it starts their kernels."""
    layout = Layout(dp_shard=4, ep=4, num_microbatches=3)
    work = sum(spent(silent(), layout).values())
    slow = silent(software=sparse_software({"host_seconds_per_kernel": 1e-3 * work}))
    host = spent(slow, layout)["host"]
    starting = ((host + work) ** 2 - work**2) ** 0.5
    many = silent(software=sparse_software({"host_seconds_per_kernel": 1e3 * work}))
    assert spent(many, layout)["host"] == pytest.approx(1e6 * starting - work, rel=1e-6)
    assert 0 < host < starting


def test_graphs_start_kernels_at_once() -> None:
    """All of them, or all but the experts'."""
    profile = sparse_software({"host_seconds_per_kernel": 1.0})
    layout = Layout(dp_shard=4, ep=4, num_microbatches=3)
    none, partial, full = (
        spent(silent(software=profile, training=training(cuda_graphs=graphs, **EVEN)), layout)
        for graphs in ("none", "partial", "full")
    )
    assert none["host"] > partial["host"] > full["host"] == 0.0


def test_optimizer_streams_experts_of_its_own_replicas() -> None:
    """Twice the replicas, half the states; more expert parallelism, as many."""
    part = accelerator(hbm_bytes_per_second=1e6)
    ctx = sparse_context(topology=unlimited_topology().replace(accelerator=part))
    by_ep = [spent(ctx, Layout(dp_shard=8, ep=ep, zero_stage=2))["optimizer"] for ep in (1, 2, 8)]
    assert by_ep == pytest.approx([by_ep[0]] * 3)
    wider = spent(ctx, Layout(dp_shard=16, ep=2, zero_stage=2))["optimizer"]
    assert wider == pytest.approx(by_ep[0] / 2)


# ---------------------------------------------------------------- uneven routing


@pytest.mark.parametrize(
    ("name", "cluster", "num", "layout"),
    [
        ("deepseek-v3", "dgx-h800", 2048, "pp=16,ep=64,mbs=1,overlap=dp+pp"),
        ("gpt-oss-120b", "gb300-nvl72", 64, "ep=64,mbs=4"),
    ],
)
def test_uneven_routing_costs_what_runs_lose_by_it(
    name: str, cluster: str, num: int, layout: str
) -> None:
    """8 to 25 % of a step where experts dominate and few share a rank."""
    even, uneven = (
        api.evaluate(shipped_scenario(name, cluster, num, **routing), layout).step_seconds or 0.0
        for routing in (EVEN, {})
    )
    assert 1.08 < uneven / even < 1.25


# ---------------------------------------------------------------- one formula


@pytest.mark.parametrize("name", SHIPPED)
@settings(max_examples=30, deadline=None)
@given(rows=st.lists(placed_expert_layouts(48), min_size=1, max_size=5))
def test_table_equals_numbers(name: str, rows: list[Any]) -> None:
    ctx = shipped_context(name)
    assert_table_equals_numbers(ctx, rows, EXPERT_GRID)


@pytest.mark.parametrize("name", SHIPPED)
@settings(max_examples=40, deadline=None)
@given(row=placed_expert_layouts(48))
def test_terms_sum_to_the_step_and_are_not_negative(name: str, row: Any) -> None:
    layout, split = row
    found = evaluate(shipped_context(name), layout, split)
    values = {term: float(getattr(found, term)) for term in TERMS}
    assert all(np.isfinite(value) for value in values.values())
    assert sum(values.values()) == pytest.approx(float(found.total), rel=1e-12)
    noise = -1e-12 * float(found.total)
    assert all(value >= noise for value in values.values()), values


@pytest.mark.parametrize("name", SHIPPED)
@settings(max_examples=40, deadline=None)
@given(row=placed_expert_layouts(48))
def test_stages_considered_stand_for_all(name: str, row: Any) -> None:
    """Of one chunk a stage: a layout that names its default split has every stage looked at."""
    layout, split = row
    ctx = shipped_context(name)
    if layout.schedule in V_SHAPED:
        return  # a split that is given says nothing of a rank's two stages
    layout = replace(layout, vp=1)
    named = replace(
        layout, stage_layers=tuple(layers_by_rank(ctx.model.num_layers, layout, ctx.reserved))
    )
    expected = float(evaluate(ctx, named, split).total)
    assert float(evaluate(ctx, layout, split).total) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("zero_stage", [0, 1, 3])
@pytest.mark.parametrize("recompute", ["none", "full", "act"])
@pytest.mark.parametrize("dispatcher", ["alltoall", "flex", "allgather"])
def test_step_never_falls_when_a_cost_rises(
    zero_stage: int, dispatcher: str, recompute: str
) -> None:
    ctx = shipped_context("deepseek-v3")
    for overlap in ("none", "tp+dp+pp+ep"):
        layout = Layout(
            tp=4, cp=2, pp=2, dp_shard=4, dp_replicate=2, vp=2, num_microbatches=4, etp=2, ep=8,
            zero_stage=zero_stage, sp=True, overlap=overlap, recompute=recompute,
            dispatcher=dispatcher,
        )  # fmt: skip
        splits = plain_splits(
            [(d, 1) if i % 2 else (1, d) for i, d in enumerate(layout.degrees(EXPERT_GRID))]
        )
        wide = {
            name: [float(n) for n in (*split, 1)][: len(ctx.ramp)] for name, split in splits.items()
        }
        total, costs = step_of_costs(ctx, layout, wide)
        assert isclose(total(costs), float(evaluate(ctx, layout, wide).total), rel_tol=1e-12)
        assert first_decrease(total, costs) is None  # type: ignore[no-untyped-call]


def test_every_kind_of_dispatch_is_priced() -> None:
    links = topology(accelerator=accelerator())
    for kind in ("alltoall", "flex", "allgather"):
        ctx = sparse_context(topology=links)
        assert spent(ctx, Layout(dp_shard=4, ep=4, dispatcher=kind))["ep"] > 0
