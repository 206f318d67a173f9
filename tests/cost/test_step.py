"""The step: by hand on ideal parts, table against numbers, and what must never make it worse."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.cost.compute import RankShare, end_times, layer_times
from planner.cost.context import CostContext
from planner.cost.flops import executed_flops, model_flops
from planner.cost.memory import worst_stage
from planner.cost.stage_split import default_stage_layers
from planner.cost.step import StepTime, evaluate, layout_costs
from planner.layouts.grids import DENSE_GRID
from planner.layouts.keys import CP_KINDS, RECOMPUTE, V_SHAPED
from planner.layouts.layout import Layout, LayoutTable
from planner.layouts.schedules import Pipeline
from planner.layouts.timeline import ChunkPasses, play
from planner.problem.blocks import DENSE
from tests.oracles import assert_table_equals_numbers, innermost_splits, lossy_kinds, placed_layouts
from tests.scenarios import (
    BACKENDS,
    LOSSY,
    PEAK,
    accelerator,
    context,
    model,
    overheads,
    sized_for,
    software,
    training,
    uniform_topology,
    unlimited_topology,
)

TERMS = tuple(f.name for f in fields(StepTime))


def spent(ctx: CostContext, layout: Layout, splits: Any = None) -> dict[str, float]:
    found = evaluate(ctx, layout, splits or innermost_splits(layout, len(ctx.ramp)))
    return {name: float(getattr(found, name)) for name in TERMS}


def silent(**parts: Any) -> CostContext:
    return context(topology=unlimited_topology(), **parts)


# ---------------------------------------------------------------- by hand


@pytest.mark.parametrize("attention", BACKENDS)
@pytest.mark.parametrize("recompute", RECOMPUTE)
@pytest.mark.parametrize(
    "layout",
    [Layout(num_microbatches=8), Layout(tp=2, cp=2, dp_shard=2, num_microbatches=4, sp=True)],
)
def test_ideal_step_is_its_flops_at_the_peak(
    layout: Layout, recompute: str, attention: str
) -> None:
    layout = replace(layout, recompute=recompute)
    ctx = sized_for(silent(training=training(attention=attention)), layout)
    expected = executed_flops(ctx, layout) / (layout.num_ranks * PEAK)
    assert sum(spent(ctx, layout).values()) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("vp", [1, 2])
def test_pipeline_of_equal_stages_as_played_out(vp: int) -> None:
    """A vocabulary of one token leaves the last stage with next to no head."""
    ctx = silent(model=model(vocab_size=1))
    layout = Layout(pp=4, vp=vp, num_microbatches=8)
    layer = layer_times(ctx, DENSE, RankShare(1, 1, 1, 0, 1))
    forward = float(layer.gemm.forward + layer.core.forward) * 8 / (4 * vp)
    backward = float(layer.gemm.backward + layer.core.backward) * 8 / (4 * vp)
    passes = ChunkPasses([forward] * 4 * vp, [backward] * 4 * vp, [0.0] * 4 * vp)
    expected = play(Pipeline(layout.schedule, 4, vp, 8), passes).seconds
    assert sum(spent(ctx, layout).values()) == pytest.approx(expected, rel=0.01)


def test_slowest_stage_sets_the_pace() -> None:
    """10 layers on 4 stages: 2 and the head against 3; what is idle is as played out, of ranks that
    are alike but for one."""
    ctx = silent(model=model(num_layers=10))
    layer = layer_times(ctx, DENSE, RankShare(1, 1, 1, 0, 1))
    work = [layer.gemm.forward, layer.gemm.backward]
    cores = [layer.core.forward, layer.core.backward]
    slot = float(sum(work) + sum(cores))
    ends = end_times(ctx, Layout())
    head = float(ends.head.forward + ends.head.backward)
    found = spent(ctx, Layout(pp=4, num_microbatches=6))
    mean = (10 * slot + head) / 4
    assert found["stage_imbalance"] == pytest.approx(6 * (max(3 * slot, 2 * slot + head) - mean))
    forward, backward = float(work[0] + cores[0]), float(work[1] + cores[1])
    counts, heads = (2, 3, 3, 2), (0.0, 0.0, 0.0, 1.0)
    passes = ChunkPasses(
        [n * forward + h * float(ends.head.forward) for n, h in zip(counts, heads, strict=True)],
        [n * backward + h * float(ends.head.backward) for n, h in zip(counts, heads, strict=True)],
        [0.0] * 4,
    )
    whole = play(Pipeline("1f1b", 4, 1, 6), passes).seconds
    slowest = max(3 * slot, 2 * slot + head)
    assert found["bubble"] + 6 * slowest == pytest.approx(whole, rel=0.02)
    assert found["compute_gemm"] == pytest.approx(6 * (2.5 * float(sum(work)) + head / 4))
    assert found["compute_attention"] == pytest.approx(6 * 2.5 * float(sum(cores)))


def test_named_stages_are_costed_as_they_are() -> None:
    ctx = silent()
    even = spent(ctx, Layout(pp=2, num_microbatches=6))
    named = spent(ctx, Layout(pp=2, num_microbatches=6, stage_layers=(4, 4)))
    lopsided = spent(ctx, Layout(pp=2, num_microbatches=6, stage_layers=(1, 7)))
    assert named == pytest.approx(even)
    layer = layer_times(ctx, DENSE, RankShare(1, 1, 1, 0, 1))
    slot = float(layer.gemm.forward + layer.gemm.backward)
    slot += float(layer.core.forward + layer.core.backward)
    assert lopsided["stage_imbalance"] - even["stage_imbalance"] == pytest.approx(6 * 3 * slot)


def test_exposed_tensor_parallel_traffic() -> None:
    """4 all-reduces a layer and micro-batch of 64·32 elements over 4 ranks, at 1 byte a second."""
    found = spent(context(), Layout(tp=4, num_microbatches=3))
    assert found["tp"] == pytest.approx(3 * 8 * 4 * 2 * 0.75 * 64 * 32 * 2)
    assert found["cp"] == found["pp"] == found["dp"] == 0.0


def test_ring_hides_behind_attention_but_for_its_first_block() -> None:
    """Rates at which a ring's block takes longer, or less long, than the work beside it."""
    layout = Layout(cp=4, dp_shard=1, zero_stage=0, num_microbatches=2)
    ctx = silent()
    layer = layer_times(ctx, DENSE, RankShare(1, 4, 1, 0, 4))
    work = 0.75 * float(layer.core.forward), 0.75 * float(layer.core.backward)
    num_bytes = 0.75 * 2 * 64 * 32 * 2
    slow, fast = num_bytes / work[0] / 4, num_bytes / work[0] * 4
    for rate, hides in ((slow, True), (fast, True), (slow, False)):
        kind = "ring" if hides else "all_gather"
        links = uniform_topology(bytes_per_second=rate)
        found = spent(context(topology=links), replace(layout, cp_kind=kind))
        passes = (num_bytes / rate, 2 * num_bytes / rate)
        exposed = [max(0.0, p - w * hides) for p, w in zip(passes, work, strict=True)]
        assert found["cp"] == pytest.approx(2 * 8 * sum(exposed), abs=1e-20)


def test_boundary_sends_wait_or_partly_hide() -> None:
    ctx = context(software=software({"pp_overlap_fraction": 0.75}))
    layout = Layout(pp=4, num_microbatches=5)
    send = 2 * 64 * 32 * 2
    assert spent(ctx, layout)["pp"] == pytest.approx(5 * send)
    assert spent(ctx, replace(layout, overlap="pp"))["pp"] == pytest.approx(5 * send / 4)
    quiet = spent(silent(), layout)["bubble"]
    assert spent(ctx, layout)["bubble"] == pytest.approx(quiet + 3 * send)


def test_gradients_hide_behind_the_last_backward_and_parameters_behind_the_first_forward() -> None:
    layout = Layout(dp_shard=4, num_microbatches=8)
    layer = layer_times(silent(), DENSE, RankShare(1, 1, 1, 0, 1))
    forward = 8 * float(layer.gemm.forward + layer.core.forward)
    backward = 8 * float(layer.gemm.backward + layer.core.backward)
    count = float(layout_costs(silent(), layout).parameters.dense)
    rate = 0.75 * 2 * count / forward  # gathering takes one forward pass
    links = uniform_topology(bytes_per_second=rate)
    ctx = context(topology=links, software=software({"dp_overlap_fraction": 0.5}))
    assert spent(ctx, layout)["dp"] == pytest.approx(3 * forward)
    hidden = 0.5 * forward + min(0.5 * backward, 2 * forward)
    exposed = spent(ctx, replace(layout, overlap="dp"))["dp"]
    assert exposed == pytest.approx(3 * forward - hidden)
    more = replace(layout, overlap="dp", num_microbatches=80)
    assert spent(ctx, more)["dp"] == pytest.approx(exposed)
    zero_3 = replace(layout, zero_stage=3)
    assert spent(ctx, zero_3)["dp"] == pytest.approx(8 * 4 * forward)


def test_stragglers_add_a_fraction_for_each_doubling() -> None:
    """Beyond the innermost domain of 8 ranks, a stage of 32 has two doublings; one of 16 one."""
    layout = Layout(tp=2, dp_shard=8, dp_replicate=2, num_microbatches=2)
    waits = overheads(straggler_fraction_per_doubling=0.01)
    late, even = (
        context(topology=unlimited_topology().replace(**changes))
        for changes in ({"overheads": waits}, {})
    )
    for piped, doublings in ((layout, 2), (replace(layout, pp=2, dp_replicate=1), 1)):
        rest = sum(spent(even, piped).values())
        assert spent(late, piped)["straggler"] == pytest.approx(0.01 * doublings * rest)
    assert spent(late, Layout())["straggler"] == 0.0


def test_unexplained_time_is_a_fraction_of_a_step_and_seconds_once() -> None:
    ctx = silent(software=software({"unexplained_seconds": 3.0, "unexplained_fraction": 0.1}))
    for m in (1, 10):
        layout = Layout(num_microbatches=m)
        rest = sum(spent(silent(), layout).values())
        assert spent(ctx, layout)["unexplained"] == pytest.approx(3.0 + 0.1 * rest)
    graphs = silent(software=ctx.software, training=ctx.training.replace(cuda_graphs="full"))
    rest = sum(spent(silent(), Layout()).values())
    assert spent(graphs, Layout())["unexplained"] == pytest.approx(0.1 * rest)


def test_host_hides_behind_kernels_until_it_starts_them_too_slowly() -> None:
    def with_host(seconds: float, m: int = 4) -> dict[str, float]:
        slow = software({"host_seconds_per_kernel": seconds})
        return spent(silent(software=slow), Layout(num_microbatches=m))

    work = sum(with_host(0.0).values())
    assert with_host(1e-4 * work)["host"] == 0.0
    bound, twice = (sum(with_host(seconds).values()) for seconds in (work, 2 * work))
    assert twice == pytest.approx(2 * bound)
    assert sum(with_host(work, m=8).values()) == pytest.approx(2 * bound)


def test_optimizer_streams_a_rank_s_own_states() -> None:
    part = accelerator(hbm_bytes_per_second=1e6)
    ctx = context(topology=unlimited_topology().replace(accelerator=part))
    layout = Layout(dp_shard=4, cp=2)
    by_zero = [spent(ctx, replace(layout, zero_stage=z))["optimizer"] for z in range(4)]
    count = float(layout_costs(ctx, layout).parameters.dense)
    # gradient in, master and two moments in and out, weight out: 4 + 24 + 2 at the least
    assert by_zero[0] * 1e6 >= 30 * count
    assert by_zero[2] == by_zero[3] == pytest.approx(by_zero[0] / 8)
    assert by_zero[2] <= by_zero[1] <= by_zero[0] / 4


def test_every_way_of_context_parallelism_is_priced() -> None:
    links = uniform_topology(bytes_per_second=1e9)
    for kind in CP_KINDS:
        layout = Layout(cp=4, cp_kind=kind, cp_a2a=2 if kind == "hierarchical" else 1)
        assert spent(context(topology=links), layout)["cp"] > 0


def test_hierarchical_rings_hide_and_their_exchanges_do_not() -> None:
    """Four ranks, exchanging in pairs: a ring of two, behind half of attention."""
    layout = Layout(cp=4, zero_stage=0, num_microbatches=2, cp_kind="hierarchical", cp_a2a=2)
    layer = layer_times(silent(), DENSE, RankShare(1, 4, 1, 0, 2))
    own = 64 / 4 * 32 * 2  # queries of a rank; as many keys, values and outputs
    for rate in (1e6, 1e9):
        found = spent(context(topology=uniform_topology(bytes_per_second=rate)), layout)
        exchanges = 2 * 4 * own * (1 - 1 / 2) / rate
        ring = [
            max(0.0, passes * 2 * own * 2 * (1 - 1 / 2) / rate - work / 2)
            for passes, work in (
                (1, float(layer.core.forward)),
                (2, float(layer.core.backward)),
            )
        ]
        assert found["cp"] == pytest.approx(2 * 8 * (exchanges + sum(ring)), rel=1e-12)


# ---------------------------------------------------------------- one formula


@settings(max_examples=50, deadline=None)
@given(st.lists(placed_layouts(), min_size=1, max_size=6), lossy_kinds)
def test_table_equals_numbers(rows: list[Any], kind: tuple[str, str]) -> None:
    ctx = LOSSY[kind]
    assert_table_equals_numbers(ctx, rows, DENSE_GRID)


def test_table_equals_numbers_where_integers_would_overflow() -> None:
    """A million tokens a sequence, a million ranks: products are floats from the start."""
    huge = model(
        num_layers=126, hidden_size=16384, ffn_hidden_size=53248, num_attention_heads=128,
        vocab_size=10**9,
    )  # fmt: skip
    row = Layout(tp=8, cp=16, pp=16, dp_shard=1024, mbs=64, num_microbatches=10**6, zero_stage=3)
    rows = [row, replace(row, dp_replicate=2)]
    for attention in BACKENDS:
        job = training(sequence_length=2**22, global_batch_size=10**12, attention=attention)
        ctx = silent(model=huge, training=job)
        near = [innermost_splits(row) for row in rows]
        splits = {
            name: [np.array(tier) for tier in zip(*(split[name] for split in near), strict=True)]
            for name in DENSE_GRID.groups
        }
        found = evaluate(ctx, LayoutTable.from_layouts(rows), splits)
        for i, row in enumerate(rows):
            one = evaluate(ctx, row, near[i])
            for name in TERMS:
                expected = pytest.approx(float(getattr(one, name)), rel=1e-12)
                assert getattr(found, name)[i] == expected, name
            assert found.total[i] > model_flops(ctx) / ctx.peak_flops / 10**8


@settings(deadline=None)
@given(placed_layouts(), lossy_kinds)
def test_terms_sum_to_the_step_and_are_not_negative(row: Any, kind: tuple[str, str]) -> None:
    layout, split = row
    found = evaluate(LOSSY[kind], layout, split)
    values = {name: float(getattr(found, name)) for name in TERMS}
    assert all(np.isfinite(value) for value in values.values())
    assert sum(values.values()) == pytest.approx(float(found.total), rel=1e-12)
    noise = -1e-12 * float(found.total)
    assert all(value >= noise for value in values.values()), values


@settings(deadline=None)
@given(placed_layouts(), lossy_kinds)
def test_three_stage_classes_stand_for_all(row: Any, kind: tuple[str, str]) -> None:
    """A layout that names its default split has every stage looked at."""
    layout, split = row
    if layout.schedule in V_SHAPED:
        return  # a split that is given says nothing of a rank's two stages
    ctx = LOSSY[kind]
    stage = np.arange(layout.pp)
    layers = default_stage_layers(ctx.model.num_layers, layout, stage)
    named = replace(layout, stage_layers=tuple(np.broadcast_to(layers, stage.shape).tolist()))
    expected = float(evaluate(ctx, named, split).total)
    assert float(evaluate(ctx, layout, split).total) == pytest.approx(expected, rel=1e-12)


@settings(deadline=None)
@given(st.lists(placed_layouts(), min_size=1, max_size=6), lossy_kinds)
def test_other_schedules_of_the_software_change_nothing(
    rows: list[Any], kind: tuple[str, str]
) -> None:
    """To the last bit, of layouts under 1F1B and interleaved."""
    ctx = LOSSY[kind]
    alone = replace(ctx, software=ctx.software.replace(schedules=("1f1b", "interleaved")))
    for layout, split in rows:
        plain = replace(layout, schedule="1f1b")
        assert spent(alone, plain, split) == spent(ctx, plain, split)
        table = LayoutTable.from_layouts([plain])
        bytes_ = [float(worst_stage(each, table)[1][0]) for each in (alone, ctx)]
        assert bytes_[0] == bytes_[1]
