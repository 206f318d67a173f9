"""What lives in the host's memory: time of its transfers and steps, bytes freed and pinned."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.cost.activations import layer_activations
from planner.cost.context import CostContext
from planner.cost.memory import PINNED_SHARE, VERDICTS, host_bytes, verdict_index, worst_stage
from planner.cost.offload import offloads_activations, offloads_nothing, offloads_optimizer
from planner.cost.step import StepTime, evaluate, layout_costs
from planner.layouts.keys import OFFLOADS
from planner.layouts.layout import Layout, LayoutTable
from planner.problem.blocks import DENSE
from tests.oracles import innermost_splits, placed_layouts, step_of_costs
from tests.scenarios import (
    LOSSY,
    accelerator,
    context,
    figure,
    host,
    topology,
    unlimited_topology,
)
from tests.search.monotone import first_decrease

AWAY = Layout(dp_shard=8, zero_stage=1, offload="optimizer")


def with_host(ctx: CostContext | None = None, **rates: float) -> CostContext:
    """A context whose accelerator has this host."""
    ctx = ctx or context()
    part = ctx.accelerator.replace(host=host(**rates))
    return context(
        model=ctx.model, training=ctx.training, software=ctx.software,
        topology=ctx.topology.replace(accelerator=part),
    )  # fmt: skip


def spent(ctx: CostContext, layout: Layout) -> StepTime:
    return evaluate(ctx, layout, innermost_splits(layout))


def parameters(layout: Layout) -> float:
    return float(layout_costs(context(), layout).parameters.dense)


# ---------------------------------------------------------------- optimizer states


def test_the_host_steps_at_its_memory_s_rate() -> None:
    """24 bytes of states, 2 of the weight, 4 of gradients written and read, a parameter."""
    slow = with_host(memory_bytes_per_second=1e6)
    own = parameters(AWAY) / 8
    assert spent(slow, AWAY).optimizer == pytest.approx(own * (24 + 2 + 8) / 1e6)


def test_gradients_come_over_the_link_and_set_the_pace_where_it_is_slower() -> None:
    slow = with_host(link_bytes_per_second=1e6, memory_bytes_per_second=1e8)
    own = parameters(AWAY) / 8
    assert spent(slow, AWAY).optimizer == pytest.approx(own * 4 / 1e6)
    half = with_host(link_bytes_per_second=1e6, link_efficiency=0.5)
    assert spent(half, AWAY).optimizer == pytest.approx(own * 4 / 5e5)


def test_the_device_still_scales_and_clears_gradients() -> None:
    hbm = topology(accelerator=accelerator(hbm_bytes_per_second=1e9))
    ctx = with_host(context(topology=hbm))
    stays, away = (float(spent(ctx, replace(AWAY, offload=o)).optimizer) for o in OFFLOADS[:2])
    assert stays - away == pytest.approx(parameters(AWAY) / 8 * 26 / 1e9)
    assert away > 0


def test_states_leave_the_device_for_the_host() -> None:
    """Twelve bytes a parameter freed; those and a copy of four-byte gradients pinned."""
    ctx = with_host()
    own = parameters(AWAY) / 8
    stays, away = (worst_stage(ctx, replace(AWAY, offload=o))[1] for o in OFFLOADS[:2])
    assert stays - away == pytest.approx(12 * own)
    assert host_bytes(ctx, AWAY) == pytest.approx(16 * own)
    assert host_bytes(ctx, replace(AWAY, offload="none")) == 0


# ---------------------------------------------------------------- activations


def test_all_but_two_layers_activations_leave_the_device() -> None:
    """Eight layers of one micro-batch in flight: six go."""
    ctx = with_host()
    layout = Layout(offload="activations")
    layer = float(layer_activations(ctx, layout, DENSE).kept)
    stays, away = (worst_stage(ctx, replace(layout, offload=o))[0] for o in ("none", "activations"))
    assert np.max(stays.activations - away.activations) == pytest.approx(6 * layer)
    assert host_bytes(ctx, layout) == pytest.approx(6 * layer)
    assert host_bytes(ctx, replace(layout, offload="optimizer+activations")) > 6 * layer


def test_activations_travel_beside_the_passes_and_the_rest_shows() -> None:
    layout = Layout(num_microbatches=3, offload="activations")
    ideal = layout_costs(context(), layout).kinds[0].layer
    forward = float(ideal.gemm.forward + ideal.core.forward)
    backward = float(ideal.gemm.backward + ideal.core.backward)
    kept = float(layer_activations(context(), layout, DENSE).kept)
    for seconds in (forward / 2, (forward + backward) / 2, 3 * backward):
        ctx = with_host(link_bytes_per_second=kept / seconds)
        exposed = max(0.0, seconds - forward) + max(0.0, seconds - backward)
        assert spent(ctx, layout).offload == pytest.approx(3 * 8 * exposed)
        assert spent(ctx, replace(layout, offload="none")).offload == 0


def test_slow_transfers_fill_the_bubble_too() -> None:
    """A stage's slot takes its transfers' time, idle or not."""
    layout = Layout(pp=2, num_microbatches=2, offload="activations", zero_stage=0)
    ctx = with_host(context(topology=unlimited_topology()), link_bytes_per_second=1.0)
    found = spent(ctx, layout)
    assert found.bubble == pytest.approx(float(found.offload) / 2, rel=1e-3)


# ---------------------------------------------------------------- verdicts


@pytest.mark.parametrize("offload", OFFLOADS[1:])
def test_a_host_too_small_does_not_fit(offload: str) -> None:
    layout = Layout(offload=offload)
    needed = float(host_bytes(with_host(), layout))
    for share, verdict in ((1.01, "fits"), (0.99, "no")):
        ctx = with_host(memory_bytes=share * needed / PINNED_SHARE)
        assert VERDICTS[int(verdict_index(ctx, layout, 0.0))] == verdict
        assert VERDICTS[int(verdict_index(ctx, replace(layout, offload="none"), 0.0))] == "fits"


# ---------------------------------------------------------------- one formula, monotone


offloads = st.sampled_from(OFFLOADS)


def hosted(kind: tuple[str, str]) -> CostContext:
    """A lossy context with a host slow enough to matter."""
    return with_host(
        LOSSY[kind], link_bytes_per_second=2e10, link_efficiency=0.8,
        memory_bytes_per_second=5e10, memory_efficiency=0.7, memory_bytes=1e6,
    )  # fmt: skip


KINDS = sorted(LOSSY)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(placed_layouts(), offloads), min_size=1, max_size=4))
def test_table_equals_numbers(rows: list[Any]) -> None:
    ctx = hosted(("flash", "bf16"))
    layouts = [replace(layout, offload=offload) for (layout, _), offload in rows]
    splits = {
        name: [np.array([split[name][t] for (_, split), _ in rows]) for t in range(3)]
        for name in rows[0][0][1]
    }
    table = LayoutTable.from_layouts(layouts)
    many = evaluate(ctx, table, splits)
    peaks = worst_stage(ctx, table)[1]
    pinned = np.broadcast_to(host_bytes(ctx, table), peaks.shape)
    for i, layout in enumerate(layouts):
        one = evaluate(ctx, layout, rows[i][0][1])
        for f in fields(StepTime):
            column = np.broadcast_to(getattr(many, f.name), (len(rows),))
            assert column[i] == pytest.approx(float(getattr(one, f.name)), rel=1e-12, abs=1e-18)
        assert peaks[i] == pytest.approx(float(worst_stage(ctx, layout)[1]), rel=1e-12)
        assert pinned[i] == pytest.approx(float(host_bytes(ctx, layout)), rel=1e-12)
        assert table.row(i) == layout


@settings(max_examples=20, deadline=None)
@given(placed_layouts(), offloads, st.sampled_from(KINDS))
def test_step_never_falls_when_a_cost_rises(row: Any, offload: str, kind: tuple[str, str]) -> None:
    layout = replace(row[0], offload=offload)
    step, flat = step_of_costs(hosted(kind), layout, row[1])
    assert first_decrease(step, flat) is None, layout  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("name", ["link_bytes_per_second", "memory_bytes_per_second"])
@settings(max_examples=20, deadline=None)
@given(placed_layouts(), offloads, st.floats(1.0, 2.0))
def test_a_faster_host_never_slows(name: str, row: Any, offload: str, factor: float) -> None:
    layout, split = replace(row[0], offload=offload), row[1]
    ctx = hosted(("flash", "bf16"))
    there = ctx.accelerator.host
    assert there is not None
    better = there.replace(**{name: figure(float(getattr(there, name)) * factor)})
    part = ctx.accelerator.replace(host=better)
    faster = context(
        model=ctx.model, training=ctx.training, software=ctx.software,
        topology=ctx.topology.replace(accelerator=part),
    )  # fmt: skip
    after = float(evaluate(faster, layout, split).total)
    assert after <= float(evaluate(ctx, layout, split).total) * (1 + 1e-12)


def test_experts_states_are_pinned_by_their_own_shards() -> None:
    from tests.expert_scenarios import sparse_context

    ctx = sparse_context()
    ctx = with_host(ctx)
    dense, wide = (
        float(host_bytes(ctx, Layout(dp_shard=8, ep=ep, offload="optimizer"))) for ep in (1, 8)
    )
    assert dense == pytest.approx(wide)  # each rank has 1/8 of all either way


def test_what_each_choice_offloads() -> None:
    for choice in OFFLOADS:
        layout = Layout(offload=choice)
        assert bool(offloads_optimizer(layout)) == ("optimizer" in choice)
        assert bool(offloads_activations(layout)) == ("activations" in choice)
        assert bool(offloads_nothing(layout)) == (choice == "none")
