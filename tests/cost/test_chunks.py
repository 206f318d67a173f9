"""Passes of chunks as a timeline plays them, against the step's own terms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.cost import step
from planner.cost.chunks import chunk_passes, layers_of_chunks, pipeline_of, shortened
from planner.cost.context import CostContext
from planner.cost.step import evaluate
from planner.layouts.keys import SCHEDULES, V_SHAPED
from planner.layouts.layout import Layout
from planner.layouts.timeline import play
from tests.expert_scenarios import experts, sparse_context, sparse_model, sparse_software
from tests.oracles import able_schedules, innermost_splits
from tests.scenarios import context, model, sized_for, software, unlimited_topology

OUTSIDE = ("dp", "optimizer", "host", "straggler")
"""Terms of a step that lie outside the passes."""

ALL = [
    Layout(pp=pp, vp=vp, num_microbatches=max(16, fewest), schedule=schedule)
    for pp, vp in ((4, 1), (4, 2), (2, 4))
    for schedule, fewest in able_schedules(pp, vp)
]


def pipeline_seconds(ctx: CostContext, layout: Layout, splits: Any) -> float:
    found = evaluate(ctx, layout, splits)
    return float(found.total) - sum(float(getattr(found, name)) for name in OUTSIDE)


def check_as_played(ctx: CostContext, layout: Layout, rel: float) -> None:
    ctx, splits = sized_for(ctx, layout), innermost_splits(layout)
    timeline = play(pipeline_of(layout, layout.num_microbatches), chunk_passes(ctx, layout, splits))
    assert timeline.seconds == pytest.approx(pipeline_seconds(ctx, layout, splits), rel=rel)


@pytest.mark.parametrize("layout", ALL, ids=lambda x: f"{x.schedule}-pp{x.pp}-vp{x.vp}")
def test_step_of_equal_stages_as_played(layout: Layout) -> None:
    """Next to no head; sends of a third of a pass are part of the passes."""
    toy = model(vocab_size=1, num_layers=16)
    able = software({"memory_bound_multiplier": 1e-9}, schedules=SCHEDULES)
    check_as_played(context(topology=unlimited_topology(), model=toy, software=able), layout, 2e-3)


@pytest.mark.parametrize(("pp", "vp", "layers"), [(4, 4, 18), (8, 3, 30), (8, 4, 38), (4, 4, 14)])
@pytest.mark.parametrize("rounds", [2, 6])
def test_unequal_chunks_wait_for_each_other_as_played(
    pp: int, vp: int, layers: int, rounds: int
) -> None:
    toy = model(vocab_size=1, num_layers=layers)
    able = software({"memory_bound_multiplier": 1e-9}, schedules=SCHEDULES)
    layout = Layout(pp=pp, vp=vp, num_microbatches=rounds * pp, schedule="interleaved")
    check_as_played(context(topology=unlimited_topology(), model=toy, software=able), layout, 0.06)


@pytest.mark.parametrize(
    ("pp", "vp", "layers"), [(8, 3, 31), (8, 3, 27), (16, 3, 56), (16, 7, 126)]
)
def test_unequal_chunks_wait_for_the_head_as_played(
    pp: int, vp: int, layers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A head of some layers' length on the last chunk, whose rank has room for it."""
    able = software({"memory_bound_multiplier": 1e-9}, schedules=SCHEDULES)
    toy = model(vocab_size=2048, num_layers=layers)
    ctx = context(topology=unlimited_topology(), model=toy, software=able)
    layout = Layout(pp=pp, vp=vp, num_microbatches=8 * pp, schedule="interleaved")
    ctx, splits = sized_for(ctx, layout), innermost_splits(layout)
    passes = chunk_passes(ctx, layout, splits)
    played = play(pipeline_of(layout, layout.num_microbatches), passes).seconds
    told = pipeline_seconds(ctx, layout, splits)
    monkeypatch.setattr(step, "runs_in_rounds", lambda layout: np.asarray(False))
    without = pipeline_seconds(ctx, layout, splits)
    assert passes.forward[-1] > 1.3 * passes.forward[pp]
    assert without < told < 1.02 * played
    assert abs(told / played - 1) < 0.07 < 1 - without / played


@pytest.mark.parametrize("overlap", ["none", "ep"])
@pytest.mark.parametrize("schedule", ["dualpipe", "dualpipev"])
def test_exchanges_beside_another_micro_batch_as_played(schedule: str, overlap: str) -> None:
    v = schedule in V_SHAPED
    layout = Layout(
        pp=4, vp=2 if v else 1, dp_shard=4, ep=4, num_microbatches=24, schedule=schedule,
        overlap=overlap,
    )  # fmt: skip
    links = {"bytes_per_second": 3e9}
    able = sparse_software({"dp_overlap_fraction": 0.9}, schedules=SCHEDULES)
    from tests.scenarios import uniform_topology

    toy = sparse_model(vocab_size=1, num_layers=16)
    ctx = sparse_context(toy=toy, software=able, topology=uniform_topology(**links))
    check_as_played(ctx, layout, 0.02)


def test_overlap_shortens_what_is_played() -> None:
    from tests.scenarios import uniform_topology

    seconds = {}
    for overlap in ("none", "ep"):
        layout = Layout(
            pp=4, dp_shard=4, ep=4, num_microbatches=24, schedule="dualpipe", overlap=overlap
        )
        able = sparse_software({"dp_overlap_fraction": 0.9}, schedules=SCHEDULES)
        ctx = sparse_context(
            toy=sparse_model(num_layers=16), software=able,
            topology=uniform_topology(bytes_per_second=3e9),
        )  # fmt: skip
        passes = chunk_passes(ctx, layout, innermost_splits(layout))
        assert (passes.hidden > 0) == (overlap == "ep")
        seconds[overlap] = play(pipeline_of(layout, 24), passes).seconds
    assert seconds["ep"] < seconds["none"]


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 6), st.integers(1, 3), st.integers(0, 20), st.integers(0, 2), st.data())
def test_chunks_hold_every_layer_once(
    pp: int, vp: int, more: int, predictions: int, data: st.DataObject
) -> None:
    schedule, fewest = data.draw(st.sampled_from(able_schedules(pp, vp)))
    num_layers = 2 * pp * vp + more
    toy = sparse_model(
        num_layers=num_layers, mtp_layers=predictions, moe=experts(num_dense_layers=1)
    )
    split = None
    if data.draw(st.booleans()) and schedule != "dualpipe":
        shares = data.draw(st.lists(st.integers(2, 6), min_size=pp, max_size=pp))
        shares[0] += max(0, num_layers - sum(shares))
        split = tuple(shares) if sum(shares) == num_layers else None
    layout = Layout(pp=pp, vp=vp, num_microbatches=fewest, schedule=schedule, stage_layers=split)
    dense, sparse = layers_of_chunks(sparse_context(toy=toy), layout)
    assert dense.sum() == pytest.approx(1)
    assert (dense + sparse).sum() == pytest.approx(num_layers + predictions)
    assert np.all(dense >= 0) and np.all(sparse >= 0)
    if split is not None and schedule not in V_SHAPED:
        total = dense + sparse
        by_stage = np.array([total[stage::pp].sum() for stage in range(pp)])
        by_stage[-1] -= predictions
        assert by_stage == pytest.approx(np.array(split))


def test_a_short_pipeline_keeps_its_parity_and_its_ends() -> None:
    whole = pipeline_of(Layout(pp=4, vp=2, num_microbatches=960, schedule="dualpipev"), 960)
    short = shortened(whole, 6)
    assert short.num_microbatches == 48
    assert shortened(short, 6) == short
