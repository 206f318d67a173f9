"""The split of layers over chunks, against its closed form per stage and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.cost.stage_split import (
    LastTurn,
    chunk_layers,
    default_stage_layers,
    given_stages,
    last_turn,
    names_chunks,
)
from planner.cost.stages import StageLayers, leading_layers
from planner.layouts.layout import Layout


@given(
    pp=st.integers(1, 16), vp=st.integers(1, 6), per_chunk=st.integers(1, 5),
    rest=st.integers(0, 95), first=st.integers(0, 2), last=st.integers(0, 4),
)  # fmt: skip
def test_chunks_add_up_to_the_stages_of_the_cost_model(pp, vp, per_chunk, rest, first, last):
    layout, reserved = Layout(pp=pp, vp=vp), (first, last)
    layers = per_chunk * pp * vp + rest % (pp * vp)
    chunks = chunk_layers(layers, layout, reserved)
    by_stage = [sum(chunks[stage::pp]) for stage in range(pp)]
    closed = default_stage_layers(layers, layout, np.arange(pp), reserved)
    assert by_stage == np.broadcast_to(closed, (pp,)).tolist()
    assert sum(chunks) == layers and min(chunks) >= 0
    # the split named is the split
    assert chunk_layers(layers, Layout(pp=pp, vp=vp, stage_layers=tuple(by_stage)), reserved) == (
        chunks
    )


@given(pp=st.integers(2, 8), vp=st.integers(2, 5), layers=st.integers(1, 90))
def test_the_last_chunk_beside_that_of_the_fullest_stage(pp, vp, layers):
    chunks = chunk_layers(layers, Layout(pp=pp, vp=vp))
    most = max(c for c, held in enumerate(chunks) if held == max(chunks)) % pp
    differ = most < pp - 1 and min(chunks) < max(chunks)
    ahead = chunks[-1] - chunks[(vp - 1) * pp + most] if differ else -np.inf
    assert last_turn(layers, Layout(pp=pp, vp=vp)).extra_layers == ahead


def test_the_last_chunk_of_a_named_split():
    fullest_is_last = Layout(pp=2, vp=2, stage_layers=(1, 3, 2, 2))  # stages of 3 and 5
    assert last_turn(8, fullest_is_last).extra_layers == -np.inf
    assert last_turn(8, Layout(pp=2, vp=2, stage_layers=(3, 1, 3, 1))) == LastTurn(-2, 1.5)


def test_the_remainder_is_in_the_middle():
    assert chunk_layers(126, Layout(pp=16, vp=2)) == [3, *[4] * 30, 3]
    assert chunk_layers(126, Layout(pp=16)) == [7, *[8] * 14, 7]
    # DeepSeek-V3 on 8 stages of 2: 61 layers, a prediction layer for three
    assert chunk_layers(61, Layout(pp=8, vp=2), (0, 3)) == [*[4] * 15, 1]


def test_chunks_that_are_named_are_the_chunks():
    layout = Layout(pp=2, vp=2, stage_layers=(3, 4, 3, 2))
    assert chunk_layers(12, layout) == [3, 4, 3, 2]
    assert names_chunks(layout) and given_stages(layout) == [6, 6]
    # leading dense layers lie where the first chunks do, not in the first stage's sum
    leading = leading_layers(4, 12, layout, StageLayers(np.arange(2), np.array([6, 6])))
    assert leading.tolist() == [3, 1]


@pytest.mark.parametrize(
    ("stages", "chunks"), [((8, 4), [4, 2, 4, 2]), ((7, 5), None), ((6, 6), [3, 3, 3, 3])]
)
def test_named_stages_fall_into_equal_chunks_or_into_none(stages, chunks):
    assert chunk_layers(12, Layout(pp=2, vp=2, stage_layers=stages)) == chunks
