"""The stages that ranks hold: which count for all, and folded pipelines walked one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.cost.pipeline import in_flight_1f1b, microbatches_in_flight
from planner.cost.stage_split import default_stage_layers
from planner.cost.stages import (
    RankStage,
    RankStages,
    StageLayers,
    candidate_ranks,
    candidate_stages,
    layers_by_rank,
    leading_layers,
    rank_stages,
    stage_classes,
    stage_of,
)
from planner.layouts.keys import V_SHAPED
from planner.layouts.layout import Layout, LayoutTable
from tests.expert_scenarios import experts as moe
from tests.expert_scenarios import sparse_context, sparse_software, staged_context
from tests.expert_scenarios import sparse_model as moe_model
from tests.oracles import able_schedules
from tests.scenarios import context

degrees = st.integers(1, 24)
chunks = st.integers(1, 8)


def split(num_layers: int, pp: int, vp: int = 1) -> list[int]:
    layers = default_stage_layers(num_layers, Layout(pp=pp, vp=vp), np.arange(pp))
    return [int(count) for count in np.broadcast_to(layers, (pp,))]


def plain_split(num_layers: int, pp: int, vp: int) -> list[int]:
    """⌊L/C⌋ layers a chunk; the remainder, one each, to a run of chunks in the middle."""
    sizes = [num_layers // (pp * vp)] * (pp * vp)
    rest = num_layers % (pp * vp)
    before = (pp * vp - rest) // 2
    for chunk in range(before, before + rest):
        sizes[chunk] += 1
    return [sum(sizes[stage::pp]) for stage in range(pp)]


# ---------------------------------------------------------------- split


@given(st.integers(1, 200), degrees, chunks)
def test_default_split_has_every_layer_once(num_layers: int, pp: int, vp: int) -> None:
    found = split(num_layers, pp, vp)
    assert sum(found) == num_layers
    assert found == plain_split(num_layers, pp, vp)


@pytest.mark.parametrize(
    ("num_layers", "pp", "vp", "expected"),
    [
        (8, 4, 1, [2, 2, 2, 2]),
        (10, 4, 1, [2, 3, 3, 2]),
        (9, 4, 1, [2, 3, 2, 2]),
        (11, 4, 1, [3, 3, 3, 2]),
        (7, 1, 1, [7]),
        (126, 16, 1, [7, *[8] * 14, 7]),
        # chunks 1 1 2 2 | 2 2 1 1 of stages 0 1 2 3 0 1 2 3
        (12, 4, 2, [3, 3, 3, 3]),
        # chunks 1 1 1 2 | 2 1 1 1
        (10, 4, 2, [3, 2, 2, 3]),
    ],
)
def test_remainder_goes_to_the_middle(
    num_layers: int, pp: int, vp: int, expected: list[int]
) -> None:
    assert split(num_layers, pp, vp) == expected


@given(st.lists(st.tuples(degrees, chunks), min_size=1, max_size=5), st.integers(1, 200))
def test_split_of_a_table(rows: list[tuple[int, int]], num_layers: int) -> None:
    table = LayoutTable.from_layouts([Layout(pp=pp, vp=vp) for pp, vp in rows])
    classes = stage_classes(num_layers, table)
    assert classes.shape == (3, len(rows))
    layers = default_stage_layers(num_layers, table, classes)
    for i, (pp, vp) in enumerate(rows):
        own = split(num_layers, pp, vp)
        assert [own[stage] for stage in classes[:, i]] == layers[:, i].tolist()


ends = st.tuples(st.integers(0, 3), st.integers(0, 4))


@pytest.mark.parametrize(
    ("num_layers", "pp", "reserved", "expected"),
    [
        # a list of an embedding, 40 layers, a norm and a head, over 2 and 4 stages
        (40, 2, (1, 2), [21, 19]),
        (40, 4, (1, 2), [10, 11, 11, 8]),
        (40, 1, (1, 2), [40]),
        # chunks of two layers and fewer make no room for two
        (8, 4, (1, 2), [2, 2, 2, 2]),
    ],
)
def test_ends_have_fewer_layers_for_what_they_hold_besides(
    num_layers: int, pp: int, reserved: tuple[int, int], expected: list[int]
) -> None:
    assert layers_by_rank(num_layers, Layout(pp=pp), reserved) == expected


@given(st.integers(1, 200), degrees, chunks, ends)
def test_ends_leave_every_layer_once(
    num_layers: int, pp: int, vp: int, reserved: tuple[int, int]
) -> None:
    found = layers_by_rank(num_layers, Layout(pp=pp, vp=vp), reserved)
    assert sum(found) == num_layers
    assert min(found) >= min(split(num_layers, pp, vp)) * (num_layers < pp * vp)


@given(st.integers(1, 60), degrees, chunks, ends, st.integers(0, 4))
def test_leading_layers_are_those_of_the_first_chunks(
    num_layers: int, pp: int, vp: int, reserved: tuple[int, int], leading: int
) -> None:
    """Against a walk along the chunks, which hold their layers in the model's order."""
    layout, leading = Layout(pp=pp, vp=vp), min(leading, num_layers)
    layers = np.array(layers_by_rank(num_layers, layout, reserved))
    if num_layers < pp * vp:
        return  # chunks without a layer are ruled out
    stages = StageLayers(np.arange(pp), layers)
    found = leading_layers(leading, num_layers, layout, stages, reserved)
    placed = num_layers + sum(reserved)
    if placed // (pp * vp) <= max(reserved):
        placed, reserved = num_layers, (0, 0)
    sizes = [placed // (pp * vp)] * (pp * vp)
    before = (pp * vp - placed % (pp * vp)) // 2
    for chunk in range(before, before + placed % (pp * vp)):
        sizes[chunk] += 1
    sizes[0] -= reserved[0]
    sizes[-1] -= reserved[1]
    owner = [chunk % pp for chunk, size in enumerate(sizes) for _ in range(size)]
    assert found.tolist() == [owner[:leading].count(stage) for stage in range(pp)]


# ---------------------------------------------------------------- stages that matter

weights = st.floats(0, 10)


@given(st.integers(1, 60), degrees, chunks, weights, weights, weights)
def test_slowest_stage_is_among_the_classes(
    num_layers: int, pp: int, vp: int, layer: float, embedding: float, head: float
) -> None:
    slots = [layer * count for count in split(num_layers, pp, vp)]
    slots[0] += embedding
    slots[-1] += head
    classes = stage_classes(num_layers, Layout(pp=pp, vp=vp)).tolist()
    assert max(slots[stage] for stage in classes) == max(slots)


@given(
    st.integers(1, 60), degrees, chunks, ends, st.integers(1, 64),
    weights, weights, weights, weights,
)  # fmt: skip
def test_fullest_stage_is_among_the_classes(
    num_layers: int,
    pp: int,
    vp: int,
    reserved: tuple[int, int],
    m: int,
    states: float,
    kept: float,
    embedding: float,
    head: float,
) -> None:
    """Bytes of states and activations a layer, of the embedding and of the head."""
    layout = Layout(pp=pp, vp=vp, num_microbatches=m)
    stage = np.arange(pp)
    layers = np.array(layers_by_rank(num_layers, layout, reserved))
    held = states * layers + kept * layers * in_flight_1f1b(layout, stage)
    held = held + embedding * (stage == 0) + head * (stage == pp - 1)
    classes = stage_classes(num_layers, layout, reserved)
    assert held[classes].max() == pytest.approx(held.max(), rel=1e-12)


# ---------------------------------------------------------------- folded pipelines

small_ends = st.tuples(st.integers(0, 2), st.integers(0, 3))


@st.composite
def pipelines(draw: st.DrawFn) -> tuple[int, Layout]:
    """Layers, and a layout of a pipeline whose chunks all have one."""
    pp, vp = draw(st.integers(2, 12)), draw(st.integers(1, 3))
    schedule, fewest = draw(st.sampled_from(able_schedules(pp, vp)))
    m = 2 * fewest
    layers = draw(st.integers(pp * vp, 5 * pp * vp))
    return layers, Layout(pp=pp, vp=vp, num_microbatches=m, schedule=schedule)


def stages_of_ranks(num_layers: int, layout: Layout, reserved: tuple[int, int]) -> list[list[int]]:
    """Layers of every stage that each rank holds, off the split of the way in plain Python."""
    twice = 2 if layout.schedule in V_SHAPED else 1
    stages, vp = twice * layout.pp, layout.vp // twice
    way = Layout(pp=stages, vp=vp)
    split = layers_by_rank(num_layers, way, reserved)
    if layout.schedule == "dualpipe" or twice == 2:
        return [[split[rank], split[stages - 1 - rank]] for rank in range(layout.pp)]
    return [[layers] for layers in split]


def all_ranks(num_layers: int, layout: Layout, reserved: tuple[int, int]) -> RankStages:
    layers = np.array(layers_by_rank(num_layers, layout, reserved))
    ctx = staged_context(num_layers, reserved)
    return rank_stages(ctx, layout, StageLayers(np.arange(layout.pp), layers))


def layers_on(stage: RankStage) -> np.ndarray:
    return np.asarray(sum(stage.layers_by_kind))


@settings(deadline=None)
@given(pipelines(), small_ends)
def test_ranks_hold_the_stages_that_micro_batches_pass(
    case: tuple[int, Layout], reserved: tuple[int, int]
) -> None:
    num_layers, layout = case
    near, far = all_ranks(num_layers, layout, reserved)
    expected = stages_of_ranks(num_layers, layout, reserved)
    for rank, layers in enumerate(expected):
        found = [int(layers_on(near)[rank]), int(layers_on(far)[rank])]
        assert found == (layers if len(layers) == 2 else [*layers, 0]), (layout, rank)
    # the model is held once, by dualpipe twice
    copies = 2 if layout.schedule == "dualpipe" else 1
    assert sum(layers_on(near)) + sum(layers_on(far)) == copies * num_layers
    for end in ("is_first", "is_last"):
        assert sum(getattr(near, end)) + sum(getattr(far, end)) == copies
    # and every stage passed by all micro-batches
    passed = sum(stage.microbatch_share * layers_on(stage) for stage in (near, far))
    assert sum(passed) == pytest.approx(num_layers)


@settings(deadline=None)
@given(pipelines())
def test_ends_of_a_v_are_on_the_first_rank(case: tuple[int, Layout]) -> None:
    num_layers, layout = case
    near, far = all_ranks(num_layers, layout, (0, 0))
    if layout.schedule in V_SHAPED:
        assert bool(near.is_first[0]) and bool(far.is_last[0])
    elif layout.schedule == "dualpipe":
        assert [bool(end[i]) for i in (0, -1) for end in (near.is_first, far.is_last)] == [
            True, True, False, False,
        ]  # fmt: skip
        assert bool(near.is_last[-1]) and bool(far.is_first[-1])
    else:
        assert bool(near.is_first[0]) and bool(near.is_last[-1])


@settings(deadline=None)
@given(pipelines(), small_ends, st.integers(0, 2), weights, weights, weights, weights, weights)
def test_slowest_and_fullest_ranks_are_among_the_classes(
    case: tuple[int, Layout],
    reserved: tuple[int, int],
    leading: int,
    layer: float,
    embedding: float,
    head: float,
    states: float,
    kept: float,
) -> None:
    num_layers, layout = case

    def of(stages: RankStages) -> tuple[float, float]:
        slot, bytes_ = 0.0, 0.0
        for stage in stages:
            of_ends = stage.is_first * embedding + stage.is_last * head
            slot = slot + stage.microbatch_share * (layers_on(stage) * layer + of_ends)
            in_flight = microbatches_in_flight(layout, stage, False)
            bytes_ = bytes_ + layers_on(stage) * (states + kept * in_flight) + of_ends
        return float(np.max(slot)), float(np.max(bytes_))

    ctx = staged_context(num_layers, reserved, leading)
    found = of(rank_stages(ctx, layout, candidate_ranks(ctx, layout)))
    expected = of(all_ranks(num_layers, layout, reserved))
    assert found[0] == pytest.approx(expected[0])
    assert found[1] == pytest.approx(expected[1])


@settings(deadline=None)
@given(st.lists(pipelines(), min_size=1, max_size=6), small_ends)
def test_a_table_holds_what_its_rows_do(
    cases: list[tuple[int, Layout]], reserved: tuple[int, int]
) -> None:
    num_layers = max(layers for layers, _ in cases)
    layouts = [layout for _, layout in cases]
    table, ctx = LayoutTable.from_layouts(layouts), staged_context(num_layers, reserved, 1)
    ranks = candidate_ranks(ctx, table)
    shape = np.shape(ranks.stage)
    for i, layout in enumerate(layouts):
        own = candidate_ranks(ctx, layout)
        assert ranks.stage[:, i].tolist() == own.stage.tolist()
        stages = zip(rank_stages(ctx, table, ranks), rank_stages(ctx, layout, own), strict=True)
        for stage, expected in stages:

            def column(value: object, i: int = i) -> list[float]:
                return np.broadcast_to(value, shape)[:, i].tolist()

            flight = microbatches_in_flight(layout, expected, False)
            assert column(microbatches_in_flight(table, stage, False)) == np.ravel(flight).tolist()
            for name in ("is_first", "is_last", "microbatch_share"):
                alone = np.broadcast_to(getattr(expected, name), np.shape(own.stage))
                assert column(getattr(stage, name)) == alone.tolist(), (name, layout)
            kinds = zip(stage.layers_by_kind, expected.layers_by_kind, strict=True)
            for layers, alone in kinds:
                assert column(layers) == np.broadcast_to(alone, np.shape(own.stage)).tolist()


def test_software_of_1f1b_alone_holds_one_stage_a_rank() -> None:
    layout, ctx = Layout(pp=4, num_microbatches=8), staged_context(10, only_1f1b=True)
    ranks = candidate_ranks(ctx, layout)
    (stage,) = rank_stages(ctx, layout, ranks)
    assert layers_on(stage).tolist() == default_stage_layers(10, layout, ranks.stage).tolist()


def test_kinds_of_layers_lie_where_micro_batches_meet_them() -> None:
    """Nine layers, the first dense, and one that predicts, on a V of two ranks: 2 2 3 2."""
    toy = moe_model(num_layers=9, mtp_layers=1, moe=moe(num_dense_layers=1))
    ctx = sparse_context(toy=toy, software=sparse_software(schedules=("1f1b", "dualpipev")))
    layout = Layout(pp=2, vp=2, num_microbatches=8, schedule="dualpipev")
    ranks = StageLayers(np.arange(2), np.array(layers_by_rank(9, layout, ctx.reserved)))
    near, far = (stage.layers_by_kind for stage in rank_stages(ctx, layout, ranks))
    unfolded = Layout(pp=4)
    by_stage = np.array(layers_by_rank(9, unfolded, ctx.reserved))
    stages = StageLayers(np.arange(4), by_stage)
    dense, experts = stage_of(ctx, unfolded, stages).layers_by_kind
    assert near[0].tolist() == [dense[0], dense[1]]
    assert far[0].tolist() == [dense[3], dense[2]]
    assert near[1].tolist() == [experts[0], experts[1]]
    assert far[1].tolist() == [experts[3], experts[2]]
    assert experts[3] == by_stage[3] + 1  # the one that predicts


def test_a_given_split_of_a_v_is_halved_rank_by_rank() -> None:
    layout = Layout(pp=2, vp=2, num_microbatches=8, schedule="dualpipev", stage_layers=(5, 4))
    ctx = staged_context(9)
    near, far = rank_stages(ctx, layout, candidate_ranks(ctx, layout))
    assert layers_on(near).tolist() == [3, 2]
    assert layers_on(far).tolist() == [2, 2]


def test_stages_of_a_model_are_not_folded() -> None:
    found = candidate_stages(
        context(model=moe_model(num_layers=9)), Layout(pp=2, num_microbatches=8)
    )
    assert found.layers.max() == 5 and found.stage.max() == 1
