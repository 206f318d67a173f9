"""Experts, latent attention and prediction layers: parameters by hand, what cannot be."""

from __future__ import annotations

from typing import Any

import pytest

from planner.errors import InputError
from planner.inputs.values import load, parse
from planner.problem.blocks import DENSE, MLA, SPARSE, MoE
from planner.problem.model import Model

H, LAYERS = 1024, 4  # of the toy: 16 heads of 64 on 4 key/value heads, gated MLP of 4096
ATTENTION = H * (1024 + 2 * 256) + 1024 * H
EXPERT = 3 * H * 512
MOE = MoE(num_experts=8, top_k=2, expert_ffn_hidden_size=512, num_shared_experts=2)
LATENT = MLA(
    q_lora_rank=384, kv_lora_rank=128, qk_nope_head_dim=48, qk_rope_head_dim=16, v_head_dim=32
)


@pytest.fixture
def toy(texts: dict[str, str]) -> Model:
    return parse(texts["model.yaml"], "model.yaml", Model)


# ---------------------------------------------------------------- experts


def test_parameters_of_a_layer_with_experts_by_hand(toy: Model) -> None:
    """Attention, two norms, a router of one column an expert, two shared and eight routed."""
    sparse = toy.replace(moe=MOE)
    assert sparse.num_parameters_of(SPARSE) == ATTENTION + 2 * H + 8 * H + 2 * EXPERT
    assert sparse.num_expert_parameters == 8 * EXPERT
    assert sparse.shared_ffn_hidden_size == 2 * 512
    layer = sparse.num_parameters_of(SPARSE) + sparse.num_expert_parameters
    assert sparse.num_parameters == LAYERS * layer + 2 * 32000 * H + H
    # six of eight routed experts of every layer stay away from a token
    assert sparse.num_parameters - sparse.num_active_parameters == LAYERS * 6 * EXPERT


@pytest.mark.parametrize(
    ("dense", "period", "with_experts"),
    [(0, 1, 4), (1, 1, 3), (3, 1, 1), (0, 2, 2), (1, 2, 1), (0, 3, 1), (2, 2, 1)],
)
def test_layers_with_experts_are_the_last_of_every_period(
    toy: Model, dense: int, period: int, with_experts: int
) -> None:
    """Counted layer by layer; the others are dense."""
    sparse = toy.replace(moe=MOE.replace(num_dense_layers=dense, layer_period=period))
    marks = [i >= dense and (i - dense) % period == period - 1 for i in range(LAYERS)]
    assert sparse.num_moe_layers == sum(marks) == with_experts
    plain = sparse.num_parameters_of(SPARSE) + sparse.num_expert_parameters
    layers = sum(plain if mark else sparse.num_parameters_of(DENSE) for mark in marks)
    assert sparse.num_parameters == layers + 2 * 32000 * H + H


def test_all_experts_chosen_are_all_active(toy: Model) -> None:
    every = toy.replace(moe=MOE.replace(top_k=8))
    assert every.num_active_parameters == every.num_parameters
    assert toy.num_active_parameters == toy.num_parameters


def test_expert_biases_and_no_gate(toy: Model) -> None:
    """gpt-oss has biases: up's outputs and down's, one set an expert."""
    plain = toy.replace(moe=MOE, gated_mlp=False, linear_bias=True)
    assert plain.num_expert_parameters == 8 * (2 * H * 512 + 512 + H)


# ---------------------------------------------------------------- latent attention


def test_latent_attention_by_hand(toy: Model) -> None:
    """Down, norm and up of queries; of keys and values, whose rotary part passes by; output."""
    queries = H * 384 + 384 + 384 * 16 * (48 + 16)
    latent = H * (128 + 16) + 128 + 128 * 16 * (48 + 32)
    output = 16 * 32 * H
    latents = toy.replace(mla=LATENT)
    assert latents.num_attention_parameters == queries + latent + output + H
    whole = toy.replace(mla=LATENT.replace(q_lora_rank=None))
    assert whole.num_attention_parameters == H * 16 * 64 + latent + output + H
    assert (latents.qk_head_dim, latents.v_head_dim) == (64, 32)
    assert (toy.qk_head_dim, toy.v_head_dim) == (64, 64)


def test_deepseek_v3_by_hand() -> None:
    """arXiv 2412.19437, section 4.2, matrix by matrix."""
    model = load("deepseek-v3", "model", Model)
    h, heads = 7168, 128
    attention = (
        h * 1536 + 1536 + 1536 * heads * 192  # queries
        + h * (512 + 64) + 512 + 512 * heads * (128 + 128)  # keys and values
        + heads * 128 * h
    )  # fmt: skip
    expert, norms = 3 * h * 2048, 2 * h
    dense = attention + norms + 3 * h * 18432
    sparse = attention + norms + 256 * h + 257 * expert
    assert model.num_parameters_of(DENSE) == dense
    assert model.num_parameters_of(SPARSE) + model.num_expert_parameters == sparse
    assert model.num_parameters == 3 * dense + 58 * sparse + 2 * 129280 * h + h
    active = model.num_parameters - 58 * 248 * expert
    assert model.num_active_parameters == active


# ---------------------------------------------------------------- prediction layers


def test_prediction_layer_by_hand(toy: Model) -> None:
    """A projection of two joined states, their norms and a last one, and a layer of its own."""
    dense = toy.replace(mtp_layers=1)
    join = 2 * H * H + 3 * H
    assert dense.num_prediction_parameters == join + toy.num_parameters_of(DENSE)
    sparse = toy.replace(mtp_layers=1, moe=MOE)
    layer = sparse.num_parameters_of(SPARSE) + sparse.num_expert_parameters
    assert sparse.num_prediction_parameters == join + layer
    # sizes are of the main model
    assert dense.num_parameters == toy.num_parameters


def test_prediction_layer_of_deepseek_v3_as_published() -> None:
    """11.5 billion of its own (DeepSeek-V3, README_WEIGHTS.md), embedding and head shared."""
    model = load("deepseek-v3", "model", Model)
    assert model.num_prediction_parameters == pytest.approx(11.5e9, rel=0.01)


# ---------------------------------------------------------------- what cannot be


@pytest.mark.parametrize(
    ("extra", "key", "said"),
    [
        ("moe: {num_experts: 8, top_k: 9, expert_ffn_hidden_size: 64}", "moe", "1 to 8"),
        (
            "moe: {num_experts: 8, top_k: 2, expert_ffn_hidden_size: 64, num_dense_layers: 4}",
            "moe.num_dense_layers",
            "0 to 3",
        ),
        (
            "moe: {num_experts: 8, top_k: 2, expert_ffn_hidden_size: 64, num_dense_layers: 3, "
            "layer_period: 2}",
            "moe.num_dense_layers",
            "0 to 2",
        ),
        ("moe: {num_experts: 0, top_k: 2, expert_ffn_hidden_size: 64}", "moe.num_experts", ""),
        ("moe: {num_experts: 8, top_k: 2}", "moe.expert_ffn_hidden_size", ""),
        ("num_windowed_layers: 2", "num_windowed_layers", "sliding_window"),
        ("sliding_window: 64\nnum_windowed_layers: 5", "num_windowed_layers", "0 to 4"),
        ("sliding_window: 0", "sliding_window", ""),
        ("mtp_layers: -1", "mtp_layers", ""),
    ],
)
def test_wrong_experts_and_windows(extra: str, key: str, said: str, texts: dict[str, str]) -> None:
    with pytest.raises(InputError) as caught:
        parse(texts["model.yaml"] + extra + "\n", "model.yaml", Model)
    assert (caught.value.key or "").startswith(key)
    assert said in (caught.value.allowed or "")


@pytest.mark.parametrize(
    "extra",
    [
        "moe: {num_experts: 8, top_k: 8, expert_ffn_hidden_size: 64, num_dense_layers: 3}",
        "moe: {num_experts: 8, top_k: 2, expert_ffn_hidden_size: 64, layer_period: 4}",
        "sliding_window: 64\nnum_windowed_layers: 4",
        "sliding_window: 64",
    ],
)
def test_right_experts_and_windows(extra: str, texts: dict[str, str]) -> None:
    found: Any = parse(texts["model.yaml"] + extra + "\n", "model.yaml", Model)
    assert found.num_layers == LAYERS
