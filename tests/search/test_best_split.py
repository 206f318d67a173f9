"""The best split of layers over stages, against every split there is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, pairwise
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.cost.context import CostContext
from planner.cost.memory import worst_stage
from planner.cost.stage_split_bounds import (
    any_split_floor_bytes,
    any_split_peak_bytes,
    mean_stage_costs,
)
from planner.cost.step import evaluate, step_time
from planner.cost.traffic import channel_costs
from planner.layouts.layout import Layout, LayoutTable
from planner.problem.scenario import Search
from planner.search.rules.legality import split_holds
from planner.search.rules.recompute import layers_alike
from planner.search.space.limits import fits_in_memory
from planner.search.stage_splits.best_split import best_split, split_bound
from planner.search.stage_splits.options import TrafficCosts, is_searched, stage_options
from tests.expert_scenarios import experts
from tests.scenarios import (
    context,
    figure,
    lossy_context,
    model,
    sized_for,
    small_accelerator,
    small_software,
    small_topology,
    small_training,
)

FITS = Search()
LOSSY = lossy_context()


def compositions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """All ways to write a number as a sum of so many positive ones, in order."""
    for marks in combinations(range(1, total), parts - 1):
        yield tuple(b - a for a, b in pairwise((0, *marks, total)))


def on_one_domain(ctx: CostContext, layout: Layout) -> dict[str, list[float]]:
    """Every group inside the innermost tier, but for dp outside."""
    tiers = len(ctx.topology.tiers)
    inner = {"tp": layout.tp, "cp": layout.cp, "pp": layout.pp}
    groups = ("tp", "cp", "pp", "dp", "shard", "replicate", "ep", "etp", "edp")
    sizes = {
        "dp": layout.dp, "shard": layout.cp * layout.dp_shard, "replicate": layout.dp_replicate,
        "ep": layout.ep, "etp": layout.etp, "edp": layout.edp, **inner,
    }  # fmt: skip
    return {name: [1.0, float(sizes[name]), *[1.0] * (tiers - 2)] for name in groups}


def costing(ctx: CostContext, layout: Layout) -> TrafficCosts:
    splits = on_one_domain(ctx, layout)
    return lambda shape: channel_costs(ctx, shape.traffic, splits)


def table_of(layout: Layout) -> LayoutTable:
    return LayoutTable.from_layouts([layout])


def by_enumeration(ctx: CostContext, layout: Layout) -> dict[tuple[int, ...], float]:
    """Steps of every split that fits: each costed as a layout of its own, by the real step."""
    splits = on_one_domain(ctx, layout)
    found = {}
    for split in compositions(ctx.model.num_layers, layout.pp * layout.vp):
        table = table_of(replace(layout, stage_layers=split))
        if layout.recompute_layers and not min(split) >= layout.recompute_layers < max(split):
            continue  # of every chunk so many are run again, and of one not all
        if fits_in_memory(ctx, FITS, table)[0]:
            found[split] = float(evaluate(ctx, table, splits).total[0])
    return found


@st.composite
def cases(draw: st.DrawFn) -> tuple[CostContext, Layout]:
    """Contexts whose memory is short or not, and layouts of few stages of few layers."""
    kind = draw(st.sampled_from(["dense", "tied", "experts", "leading", "pattern"]))
    pp, vp = draw(st.sampled_from([(2, 1), (3, 1), (4, 1), (2, 2), (3, 2), (2, 3)]))
    layers = draw(st.integers(pp * vp, 8))
    sizes = {
        "num_layers": layers, "hidden_size": draw(st.sampled_from([256, 1024])),
        "ffn_hidden_size": draw(st.sampled_from([512, 4096])), "num_attention_heads": 8,
        "num_key_value_heads": 4, "vocab_size": draw(st.sampled_from([1000, 32000, 256000])),
        "gated_mlp": True, "tied_embeddings": kind == "tied",
    }  # fmt: skip
    if kind in ("experts", "leading"):
        sizes["mtp_layers"] = draw(st.integers(0, 2))
        sizes["moe"] = experts(
            expert_ffn_hidden_size=draw(st.sampled_from([256, 4096])),
            num_dense_layers=draw(st.integers(1, min(4, layers - 1))) if kind == "leading" else 0,
        )
    if kind == "pattern":
        vp = 1
        letters = draw(st.lists(st.sampled_from("*-"), min_size=layers, max_size=layers))
        sizes["layer_pattern"] = "".join(["*", "-", *letters[2:]])
    coefficients = {
        "host_seconds_per_kernel": draw(st.sampled_from([0.0, 2e-6, 2e-4])),
        "dp_overlap_fraction": draw(st.sampled_from([0.0, 1.0])),
    }
    ctx = context(
        model=model(**sizes),
        topology=small_topology((2, 8, 64), accelerator=small_accelerator()),
        training=small_training(),
        software=small_software(
            coefficients, stage_splits="any", dispatchers=("alltoall",), runtime_bytes=1e6,
            communicator_bytes=1e6, schedules=("1f1b", "interleaved", "zb-h1", "interleaved-zb"),
        ),
    )  # fmt: skip
    m = draw(st.integers(1, 3)) * pp if vp > 1 else draw(st.integers(1, 9))
    layout = Layout(
        pp=pp, vp=vp, num_microbatches=m, dp_shard=draw(st.sampled_from([1, 4])),
        zero_stage=draw(st.sampled_from([0, 1])), mbs=draw(st.sampled_from([1, 4])),
        schedule=draw(st.sampled_from(["1f1b", "zb-h1"])), overlap="dp+pp",
        ep=2 if "moe" in sizes and draw(st.booleans()) else 1,
    )  # fmt: skip
    if layout.ep > layout.dp_shard:
        layout = replace(layout, ep=1)
    if layout.schedule in ("1f1b", "interleaved") and layers_alike(ctx) and draw(st.booleans()):
        counted = draw(st.integers(0, (layers - 1) // (pp * vp)))
        layout = replace(layout, recompute="full", recompute_layers=counted)
    ctx = sized_for(ctx, layout)
    if draw(st.booleans()):  # somewhere between the least and the most a split needs
        _, peak = worst_stage(ctx, table_of(layout))
        room = draw(st.sampled_from([0.7, 0.85, 0.95, 1.0])) * float(peak[0]) / 0.92
        found = replace(ctx, accelerator=ctx.accelerator.replace(hbm_bytes=figure(room)))
        return found, layout
    return replace(ctx, accelerator=ctx.accelerator.replace(hbm_bytes=figure(1e13))), layout


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(case=cases())
def test_no_split_is_better(case: tuple[CostContext, Layout]) -> None:
    ctx, layout = case
    table, price = table_of(layout), costing(ctx, layout)
    assert is_searched(ctx, table).all()
    every = by_enumeration(ctx, layout)
    best = best_split(ctx, table, stage_options(ctx, FITS, table), price)
    found = best.split
    if not every:
        assert found is None
        return
    least = min(every.values())
    assert found is not None
    # of chunks that wait for each other only the bound is certain
    assert min(found.step_seconds, best.open_seconds) <= least * (1 + 2e-9)
    assert best.open_seconds < inf or found.step_seconds == pytest.approx(least, rel=2e-9)
    assert best.open_seconds == inf or layout.vp > 1
    assert every[found.stage_layers] == pytest.approx(found.step_seconds, rel=1e-12)
    chosen = replace(layout, stage_layers=found.stage_layers)
    assert split_holds(ctx, chosen) and sum(found.stage_layers) == ctx.model.num_layers
    # bounds: of the dynamic program alone, of the mean stage
    assert split_bound(ctx, table, stage_options(ctx, FITS, table), price) <= least * (1 + 1e-12)
    shape = mean_stage_costs(ctx, table)
    bound = step_time(ctx, table, shape, price(shape)).total[0]
    assert bound <= least * (1 + 1e-12)
    peaks = [
        float(worst_stage(ctx, table_of(replace(layout, stage_layers=split)))[1][0])
        for split in every
    ]
    for floor in (any_split_floor_bytes, any_split_peak_bytes):
        assert floor(ctx, table)[0] <= min(peaks) * (1 + 1e-12)
    # below what is asked for, or nothing
    options = stage_options(ctx, FITS, table)
    assert best_split(ctx, table, options, price, 0.999 * least).split is None


def test_no_chunk_has_fewer_layers_than_it_runs_again() -> None:
    """A head as long as some layers leaves its stage one, of which two cannot be run again."""
    ctx = context(
        model=model(
            num_layers=6, hidden_size=256, ffn_hidden_size=512, num_attention_heads=8,
            num_key_value_heads=4, vocab_size=32000, gated_mlp=True, tied_embeddings=False,
        ),
        topology=small_topology((2, 8, 64), accelerator=small_accelerator()),
        training=small_training(),
        software=small_software(stage_splits="any"),
    )  # fmt: skip
    layout = Layout(pp=2, num_microbatches=8, recompute="full")
    ctx = sized_for(ctx, layout)
    splits = {}
    for counted in (0, 2):
        one = replace(layout, recompute_layers=counted)
        table = table_of(one)
        best = best_split(ctx, table, stage_options(ctx, FITS, table), costing(ctx, one))
        assert best.split is not None
        splits[counted] = best.split.stage_layers
        assert splits[counted] in by_enumeration(ctx, one)
    assert splits == {0: (5, 1), 2: (4, 2)}
