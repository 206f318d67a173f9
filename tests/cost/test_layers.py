"""Kinds of layers and their matmuls: by hand, and against layers walked one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.cost.layers import (
    attention_matmuls,
    layer_kinds,
    mlp_matmuls,
    num_layers,
)
from planner.cost.stages import StageLayers, candidate_stages, layers_by_rank, stage_of
from planner.inputs.values import load
from planner.layouts.layout import Layout
from planner.problem.model import Model
from tests.expert_scenarios import LATENT, experts, sparse_context, sparse_model
from tests.scenarios import model


def ends_of(toy: Model) -> tuple[int, int]:
    return 0, toy.num_reserved_layers


# ---------------------------------------------------------------- matmuls


def test_matmuls_of_a_dense_layer_by_hand() -> None:
    """4 heads of 8 on 2 key/value heads, over tp 2: the first projection is of q, k and v."""
    toy = model(num_key_value_heads=2)
    found = [(m.outputs, m.inputs) for m in attention_matmuls(toy, 2)]
    assert found == [((32 + 2 * 16) / 2, 32), (32, 16)]
    assert [(m.outputs, m.inputs) for m in mlp_matmuls(toy, 128, 2)] == [(64, 32), (32, 64)]
    gated = mlp_matmuls(model(gated_mlp=True), 128, 2)
    assert [(m.outputs, m.inputs) for m in gated] == [(128, 32), (32, 64)]


def test_matmuls_of_latent_attention_by_hand() -> None:
    """Down-projections are whole on every rank, up-projections and output are cut."""
    found = attention_matmuls(model(mla=LATENT), 2)
    whole = {(m.outputs, m.inputs) for m in found if m.unsharded}
    assert whole == {(16 + 4, 32), (24, 32)}
    ups = {(m.outputs, m.inputs) for m in found if m.up_projection}
    assert ups == {(4 * 12 / 2, 24), (4 * (8 + 6) / 2, 16)}
    (output,) = [m for m in found if not m.unsharded and not m.up_projection]
    assert (output.outputs, output.inputs) == (32, 4 * 6 / 2)
    plain = attention_matmuls(model(mla=LATENT.replace(q_lora_rank=None)), 1)
    assert (4 * 12, 32) in {(m.outputs, m.inputs) for m in plain}


@pytest.mark.parametrize("latent", [None, LATENT, LATENT.replace(q_lora_rank=None)])
def test_matmuls_have_the_weights_of_the_parameters(latent: object) -> None:
    """But for norms: of the input, and of latents."""
    toy = model(mla=latent)
    weights = sum(m.inputs * m.outputs for m in attention_matmuls(toy, 1))
    norms = 32 + (0 if toy.mla is None else (toy.mla.q_lora_rank or 0) + toy.mla.kv_lora_rank)
    assert weights == toy.num_attention_parameters - norms


# ---------------------------------------------------------------- kinds by stage


@pytest.mark.parametrize(
    ("pp", "vp", "layers"),
    [
        (16, 1, [*[4] * 15, 1]),
        (8, 1, [*[8] * 7, 5]),
        (4, 1, [16, 16, 16, 13]),
        # chunks of 4, the last of 1
        (2, 8, [32, 29]),
        (4, 4, [16, 16, 16, 13]),
        (1, 1, [61]),
    ],
)
def test_last_chunk_of_deepseek_v3_makes_room_for_its_prediction_layer(
    pp: int, vp: int, layers: list[int]
) -> None:
    """As NVIDIA's published pipeline layouts: E t×4 | t×4 … | t m L."""
    deepseek = load("deepseek-v3", "model", Model)
    assert layers_by_rank(deepseek.num_layers, Layout(pp=pp, vp=vp), ends_of(deepseek)) == layers


def test_chunks_of_few_layers_make_no_room() -> None:
    """61 layers in 32 chunks: (61 + 3)/32 = 2 are not more than the three kept free."""
    deepseek = load("deepseek-v3", "model", Model)
    found = layers_by_rank(deepseek.num_layers, Layout(pp=16, vp=2), ends_of(deepseek))
    assert sum(found) == 61 and min(found) >= 2


@st.composite
def staged(draw: st.DrawFn) -> tuple[Model, Layout]:
    """A model of both kinds, and a pipeline whose every chunk has a layer."""
    layers = draw(st.integers(2, 40))
    toy = sparse_model(
        num_layers=layers,
        mtp_layers=draw(st.integers(0, 1)),
        moe=experts(num_dense_layers=draw(st.integers(0, min(4, layers - 1)))),
    )
    pp = draw(st.integers(1, layers))
    vp = draw(st.integers(1, layers // pp)) if pp > 1 else 1
    return toy, Layout(pp=pp, vp=vp)


def chunk_sizes(toy: Model, layout: Layout) -> list[int]:
    """Even chunks, remainder to the middle; the last is three smaller for a prediction layer."""
    chunks, layers = layout.pp * layout.vp, toy.num_layers
    room = 3 * toy.mtp_layers
    if (layers + room) // chunks <= room:
        room = 0
    base, rest = divmod(layers + room, chunks)
    first = (chunks - rest) // 2
    sizes = [base + (first <= chunk < first + rest) for chunk in range(chunks)]
    sizes[-1] -= room
    return sizes


@given(staged())
@settings(deadline=None)
def test_kinds_of_layers_on_every_stage_walked_one_by_one(case: tuple[Model, Layout]) -> None:
    toy, layout = case
    moe = toy.moe
    assert moe is not None
    counts = np.zeros((2, layout.pp), dtype=int)  # dense, with experts
    layer = 0
    for chunk, size in enumerate(chunk_sizes(toy, layout)):
        for _ in range(size):
            counts[int(layer >= moe.num_dense_layers), chunk % layout.pp] += 1
            layer += 1
    assert layer == toy.num_layers
    layers = np.array(layers_by_rank(toy.num_layers, layout, ends_of(toy)))
    assert layers.tolist() == counts.sum(axis=0).tolist()
    counts[1, -1] += toy.mtp_layers
    stages = StageLayers(np.arange(layout.pp), layers)
    found = stage_of(sparse_context(toy=toy), layout, stages).layers_by_kind
    expected = [row for row in counts.tolist() if sum(row)]
    assert [np.broadcast_to(kind, (layout.pp,)).tolist() for kind in found] == expected
    shares = [kind.share for kind in layer_kinds(toy)]
    assert shares == pytest.approx([sum(row) / num_layers(toy) for row in expected])


@given(staged(), st.floats(0.01, 1.0), st.floats(0.0, 10.0), st.floats(0.0, 10.0))
@settings(deadline=None)
def test_slowest_stage_is_among_those_considered(
    case: tuple[Model, Layout], dense: float, embedding: float, head: float
) -> None:
    """Where layers with experts are the heavier ones."""
    toy, layout = case

    ctx = sparse_context(toy=toy)

    def slots(at: StageLayers) -> np.ndarray:
        weights = {False: dense, True: 1.0}
        by_kind = stage_of(ctx, layout, at).layers_by_kind
        slot = sum(
            weights[kind.has_experts] * layers
            for kind, layers in zip(layer_kinds(toy), by_kind, strict=True)
        )
        return np.asarray(slot + embedding * (at.stage == 0) + head * (at.stage == layout.pp - 1))

    layers = np.array(layers_by_rank(toy.num_layers, layout, ends_of(toy)))
    every = slots(StageLayers(np.arange(layout.pp), layers))
    among = slots(candidate_stages(ctx, layout))
    assert among.max() == pytest.approx(every.max(), rel=1e-12)
