"""How layers are split over stages, and the stages that stand for all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.cost.folds import layers_by_rank
from planner.cost.pipeline import leading_layers, microbatches_in_flight, stage_classes
from planner.layouts.layout import Layout, LayoutTable
from planner.layouts.stage_split import default_stage_layers

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
    found = leading_layers(leading, num_layers, layout, np.arange(pp), layers, reserved)
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
    held = states * layers + kept * layers * microbatches_in_flight(layout, stage)
    held = held + embedding * (stage == 0) + head * (stage == pp - 1)
    classes = stage_classes(num_layers, layout, reserved)
    assert held[classes].max() == pytest.approx(held.max(), rel=1e-12)
