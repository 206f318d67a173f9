"""What ranks hold of folded pipelines, against a walk along the way that micro-batches take."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.cost.folds import Held, held, layers_by_rank, microbatches_in_flight, rank_stages
from planner.cost.layers import held_stages, layers_by_kind, model_stages
from planner.layouts.layout import V_SHAPED, Layout, LayoutTable
from planner.layouts.stage_split import default_stage_layers
from tests.expert_scenarios import experts as moe
from tests.expert_scenarios import sparse_model as moe_model
from tests.oracles import able_schedules

ends = st.tuples(st.integers(0, 2), st.integers(0, 3))


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


def all_held(num_layers: int, layout: Layout, reserved: tuple[int, int]) -> tuple[Held, ...]:
    ranks = np.arange(layout.pp)
    layers = np.array(layers_by_rank(num_layers, layout, reserved))
    return held(num_layers, layout, ranks, layers, reserved, False)


@settings(deadline=None)
@given(pipelines(), ends)
def test_ranks_hold_the_stages_of_the_way(
    case: tuple[int, Layout], reserved: tuple[int, int]
) -> None:
    num_layers, layout = case
    near, far = all_held(num_layers, layout, reserved)
    expected = stages_of_ranks(num_layers, layout, reserved)
    for rank, layers in enumerate(expected):
        found = [int(near.layers[rank]), int(far.layers[rank])]
        assert found == (layers if len(layers) == 2 else [*layers, 0]), (layout, rank)
    # the model is held once, by dualpipe twice
    copies = 2 if layout.schedule == "dualpipe" else 1
    assert sum(near.layers) + sum(far.layers) == copies * num_layers
    for part in ("first", "last"):
        assert sum(getattr(near, part)) + sum(getattr(far, part)) == copies
    # and every stage passed by all micro-batches
    assert sum(near.passes * near.layers + far.passes * far.layers) == pytest.approx(num_layers)


@settings(deadline=None)
@given(pipelines())
def test_ends_of_a_v_are_on_the_first_rank(case: tuple[int, Layout]) -> None:
    num_layers, layout = case
    near, far = all_held(num_layers, layout, (0, 0))
    if layout.schedule in V_SHAPED:
        assert bool(near.first[0]) and bool(far.last[0])
    elif layout.schedule == "dualpipe":
        assert [bool(part[i]) for i in (0, -1) for part in (near.first, far.last)] == [
            True, True, False, False,
        ]  # fmt: skip
        assert bool(near.last[-1]) and bool(far.first[-1])
    else:
        assert bool(near.first[0]) and bool(near.last[-1])


weights = st.floats(0, 10)


@settings(deadline=None)
@given(pipelines(), ends, st.integers(0, 2), weights, weights, weights, weights, weights)
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

    def of(parts: tuple[Held, ...]) -> tuple[float, float]:
        slot, bytes_ = 0.0, 0.0
        for part in parts:
            own = part.layers * layer + part.first * embedding + part.last * head
            slot = slot + part.passes * own
            bytes_ = bytes_ + part.layers * (
                states + kept * microbatches_in_flight(layout, part, False)
            )
            bytes_ = bytes_ + part.first * embedding + part.last * head
        return float(np.max(slot)), float(np.max(bytes_))

    stage, layers = rank_stages(num_layers, layout, reserved, leading, False)
    found = of(held(num_layers, layout, stage, layers, reserved, False))
    expected = of(all_held(num_layers, layout, reserved))
    assert found[0] == pytest.approx(expected[0])
    assert found[1] == pytest.approx(expected[1])


@settings(deadline=None)
@given(st.lists(pipelines(), min_size=1, max_size=6), ends)
def test_a_table_holds_what_its_rows_do(
    cases: list[tuple[int, Layout]], reserved: tuple[int, int]
) -> None:
    num_layers = max(layers for layers, _ in cases)
    layouts = [layout for _, layout in cases]
    table = LayoutTable.from_layouts(layouts)
    stage, layers = rank_stages(num_layers, table, reserved, 1, False)
    parts = held(num_layers, table, stage, layers, reserved, False)
    for i, layout in enumerate(layouts):
        one = rank_stages(num_layers, layout, reserved, 1, False)
        assert stage[:, i].tolist() == one[0].tolist()
        alone = held(num_layers, layout, *one, reserved, False)
        for part, expected in zip(parts, alone, strict=True):
            flights = [
                microbatches_in_flight(x, y, False) for x, y in ((table, part), (layout, expected))
            ]
            columns = [np.broadcast_to(flights[0], stage.shape)[:, i], np.ravel(flights[1])]
            assert columns[0].tolist() == columns[1].tolist()
            for name in ("layers", "first", "last", "passes"):
                column = np.broadcast_to(getattr(part, name), stage.shape)[:, i]
                assert (
                    column.tolist()
                    == np.broadcast_to(getattr(expected, name), one[0].shape).tolist()
                ), (name, layout)


def test_software_of_1f1b_alone_holds_one_stage_a_rank() -> None:
    layout = Layout(pp=4, num_microbatches=8)
    stage, layers = rank_stages(10, layout, (0, 0), 0, True)
    (part,) = held(10, layout, stage, layers, (0, 0), True)
    assert part.layers.tolist() == default_stage_layers(10, layout, stage).tolist()


def test_kinds_of_layers_lie_where_the_way_has_them() -> None:
    """Nine layers, the first dense, and one that predicts, on a V of two ranks: 2 2 3 2."""
    toy = moe_model(num_layers=9, mtp_layers=1, moe=moe(num_dense_layers=1))
    layout = Layout(pp=2, vp=2, num_microbatches=8, schedule="dualpipev")
    reserved = (0, toy.num_reserved_layers)
    layers = np.array(layers_by_rank(9, layout, reserved))
    (_, near_kinds), (_, far_kinds) = held_stages(
        toy, layout, np.arange(2), layers, reserved, False
    )
    way = Layout(pp=4)
    by_stage = np.array(layers_by_rank(9, way, reserved))
    dense, experts = layers_by_kind(toy, way, np.arange(4), by_stage, reserved)
    assert near_kinds[0].tolist() == [dense[0], dense[1]]
    assert far_kinds[0].tolist() == [dense[3], dense[2]]
    assert near_kinds[1].tolist() == [experts[0], experts[1]]
    assert far_kinds[1].tolist() == [experts[3], experts[2]]
    assert experts[3] == by_stage[3] + 1  # the one that predicts


def test_a_given_split_of_a_v_is_halved_rank_by_rank() -> None:
    layout = Layout(pp=2, vp=2, num_microbatches=8, schedule="dualpipev", stage_layers=(5, 4))
    stage, layers = rank_stages(9, layout, (0, 0), 0, False)
    near, far = held(9, layout, stage, layers, (0, 0), False)
    assert near.layers.tolist() == [3, 2]
    assert far.layers.tolist() == [2, 2]


def test_stages_of_a_model_need_no_folds_by_default() -> None:
    toy = moe_model(num_layers=9)
    layout = Layout(pp=2, num_microbatches=8)
    stage, layers = model_stages(toy, layout, (0, 0))
    assert layers.max() == 5 and stage.max() == 1
